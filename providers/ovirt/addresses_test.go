package ovirt

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// shown are addresses as text, without the host name.
func shown(list []v1.NodeAddress) string {
	var all []string
	for _, a := range list {
		if a.Type != v1.NodeHostName {
			all = append(all, string(a.Type)+" "+a.Address)
		}
	}
	return strings.Join(all, ", ")
}

const (
	mac1 = "56:6f:00:00:00:01"
	mac2 = "56:6f:00:00:00:02"
)

func nics(macs ...string) []ovirtsim.NIC {
	var list []ovirtsim.NIC
	for i, m := range macs {
		list = append(list, ovirtsim.NIC{ID: "a1c00000-0000-0000-0000-00000000000" + string(rune('1'+i)), Name: "nic" + string(rune('1'+i)), MAC: m})
	}
	return list
}

type addressCase struct {
	devices  []ovirtsim.Device
	env      map[string]string
	provided string
	want     string
}

// deviceWith is an interface with the MAC address of the machine's.
func deviceWith(name string, ips ...string) ovirtsim.Device {
	return ovirtsim.Device{Name: name, MAC: mac1, IPs: ips}
}

func addressCases() map[string]addressCase {
	eth0 := deviceWith("eth0", "10.35.1.120", "fe80::1", "2001:db8::5")
	return map[string]addressCase{
		"both families, without link-local": {
			devices: []ovirtsim.Device{eth0},
			want:    "InternalIP 10.35.1.120, InternalIP 2001:db8::5",
		},
		"what the guest made itself": {devices: []ovirtsim.Device{
			eth0,
			{Name: "docker0", MAC: "02:42:00:00:00:01", IPs: []string{"172.17.0.1"}},
			{Name: "cni0", MAC: "0a:58:00:00:00:01", IPs: []string{"10.244.0.1"}},
			{Name: "lo", MAC: "00:00:00:00:00:00", IPs: []string{"127.0.0.1"}},
		}, want: "InternalIP 10.35.1.120, InternalIP 2001:db8::5"},
		"a bridge with the MAC address of the interface": {devices: []ovirtsim.Device{
			{Name: "eth0", MAC: mac1}, {Name: "br-ex", MAC: strings.ToUpper(mac1), IPs: []string{"10.35.1.121"}},
		}, want: "InternalIP 10.35.1.121"},
		"unusable ones": {
			devices: []ovirtsim.Device{deviceWith("eth0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "nonsense", "::1", "ff02::1", "10.0.0.9")},
			want:    "InternalIP 10.0.0.9",
		},
		"two of one family in their order": {
			devices: []ovirtsim.Device{deviceWith("eth0", "10.0.0.10", "10.0.0.9")},
			want:    "InternalIP 10.0.0.9, InternalIP 10.0.0.10",
		},
		"by the names of interfaces": {
			devices: []ovirtsim.Device{eth0, deviceWith("vip0", "10.35.1.2")},
			env:     map[string]string{"OVIRT_NODE_INTERFACES": `^(eth|en|br\-ex)`},
			want:    "InternalIP 10.35.1.120, InternalIP 2001:db8::5",
		},
		"without virtual addresses": {
			devices: []ovirtsim.Device{deviceWith("eth0", "10.35.1.2", "10.35.1.120")},
			env:     map[string]string{"OVIRT_NODE_EXCLUDE_NETWORKS": "10.35.1.2/32"},
			want:    "InternalIP 10.35.1.120",
		},
		"of some networks": {
			devices: []ovirtsim.Device{eth0},
			env:     map[string]string{"OVIRT_NODE_INCLUDE_NETWORKS": "2001:db8::/32"}, want: "InternalIP 2001:db8::5",
		},
		"IPv6 first": {
			devices: []ovirtsim.Device{eth0},
			env:     map[string]string{"OVIRT_NODE_IP_FAMILY": "ipv6"}, want: "InternalIP 2001:db8::5, InternalIP 10.35.1.120",
		},
		"IPv6 alone": {devices: []ovirtsim.Device{deviceWith("eth0", "fe80::1", "2001:db8::5")}, want: "InternalIP 2001:db8::5"},
	}
}

// chosenCases are about what the configuration and kubelet say of addresses.
func chosenCases() map[string]addressCase {
	eth0 := deviceWith("eth0", "10.35.1.120", "fe80::1", "2001:db8::5")
	return map[string]addressCase{
		"external networks": {
			devices: []ovirtsim.Device{deviceWith("eth0", "10.0.0.9", "198.51.100.7")},
			env:     map[string]string{"OVIRT_NODE_EXTERNAL_NETWORKS": "198.51.100.0/24"},
			want:    "InternalIP 10.0.0.9, InternalIP 198.51.100.7, ExternalIP 198.51.100.7",
		},
		"external like Kubernetes' own provider": {
			devices: []ovirtsim.Device{eth0}, env: map[string]string{"OVIRT_EXTERNAL_ADDRESSES_LIKE": "it"},
			want: "InternalIP 10.35.1.120, InternalIP 2001:db8::5, ExternalIP 10.35.1.120",
		},
		"external like its successor": {
			devices: []ovirtsim.Device{eth0}, env: map[string]string{"OVIRT_EXTERNAL_ADDRESSES_LIKE": "ext"},
			want: "InternalIP 10.35.1.120, InternalIP 2001:db8::5, ExternalIP 10.35.1.120, ExternalIP 2001:db8::5",
		},
		"the one that kubelet was given": {
			devices: []ovirtsim.Device{deviceWith("eth0", "10.0.0.9", "10.0.0.10")}, provided: "10.0.0.10", want: "InternalIP 10.0.0.10, InternalIP 10.0.0.9",
		},
		"the two that kubelet was given": {
			devices: []ovirtsim.Device{eth0}, provided: "2001:db8::5,10.35.1.120",
			want: "InternalIP 2001:db8::5, InternalIP 10.35.1.120",
		},
	}
}

func TestAddresses(t *testing.T) {
	cases := addressCases()
	maps.Copy(cases, chosenCases())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *testWorld) {
				w.sim.Add("worker", func(v *ovirtsim.VM) { v.FQDN, v.NICs, v.Devices = "worker", nics(mac1), c.devices })
				maps.Copy(w.Env, c.env)
				w.start()
				n := conformance.NewNode("worker", "")
				if c.provided != "" {
					n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: c.provided}
				}
				m := w.RequireMetadata(n)
				assert.Equal(w, v1.NodeAddress{Type: v1.NodeHostName, Address: "worker"}, m.NodeAddresses[0])
				assert.Equal(w, c.want, shown(m.NodeAddresses))
			})
		})
	}
}

// TestOrderOfAddresses: whatever order the engine lists devices and interfaces in, and with the FQDN where it is another name.
func TestOrderOfAddresses(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker", func(v *ovirtsim.VM) {
			v.FQDN, v.NICs = "Worker.example.com", nics(mac1)
			for _, ip := range []string{"10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2"} {
				v.Devices = append(v.Devices, ovirtsim.Device{Name: "eth0." + ip, MAC: mac1, IPs: []string{ip}})
			}
		})
		for range 5 {
			w.start()
			assert.Equal(w, "InternalIP 10.0.0.2, InternalIP 10.0.0.3, InternalIP 10.0.0.4, InternalIP 10.0.0.5, InternalDNS worker.example.com",
				shown(w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses))
		}
	})
}

// TestOrderOfInterfaces: the engine promises none, so that it is that of their names.
func TestOrderOfInterfaces(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker", func(v *ovirtsim.VM) {
			v.FQDN, v.NICs = "", nics(mac1, mac2)
			v.Devices = []ovirtsim.Device{deviceWith("eth0", "10.0.1.9"), {Name: "eth1", MAC: mac2, IPs: []string{"10.0.0.9"}}}
		})
		for range 5 {
			w.start()
			assert.Equal(w, "InternalIP 10.0.1.9, InternalIP 10.0.0.9", shown(w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses))
		}
	})
}

func TestAddressThatKubeletWasGivenMustBeReported(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		n := conformance.NewNode("worker", "")
		n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "10.0.0.77"}
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, "kubelet was started with --node-ip=10.0.0.77, which the guest agent of virtual machine worker")
		w.sim.Edit(v.ID, func(v *ovirtsim.VM) { v.Devices[0].IPs = []string{"10.0.0.77"} })
		assert.Contains(w, shown(w.RequireMetadata(n).NodeAddresses), "10.0.0.77")
	})
}

// TestSilentGuestAgent: a new Node waits for its addresses, and others keep those that they have.
func TestSilentGuestAgent(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker", func(v *ovirtsim.VM) { v.Devices = nil })
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "reports no address of its network interfaces; install and start qemu-guest-agent in it")
		w.sim.Edit(v.ID, func(v *ovirtsim.VM) {
			v.Devices = []ovirtsim.Device{{Name: "eth0", MAC: v.NICs[0].MAC, IPs: []string{"10.0.0.5"}}}
		})
		assert.Contains(w, shown(w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses), "10.0.0.5", "it is read again, not answered from memory")
		n := nodeOf(v)
		w.sim.Edit(v.ID, func(v *ovirtsim.VM) { v.Devices = nil })
		w.Later()
		m, err := w.Metadata(n)
		require.NoError(w, err)
		assert.Empty(w, m.NodeAddresses, "the framework keeps what the Node has")
		require.NoError(w, w.sim.SetStatus(v.ID, "down"))
		w.Later()
		assert.Empty(w, w.RequireMetadata(n).NodeAddresses)
	})
}

// TestTakeoverLeavesNodesAsTheyAre: a Node as the provider of Kubernetes left it, with the option that keeps its addresses, has what is
// said of it already, at the takeover and after the next start.
func TestTakeoverLeavesNodesAsTheyAre(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("vm-17", func(v *ovirtsim.VM) {
			v.FQDN, v.NICs, v.Devices = "worker.example.org", nics(mac1), []ovirtsim.Device{deviceWith("eth0", "10.35.1.120")}
		})
		w.Env["OVIRT_EXTERNAL_ADDRESSES_LIKE"] = "it"
		n := conformance.InitializedNode("worker.example.org", "ovirt:///"+v.ID)
		n.Status.Addresses = []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: n.Name},
			{Type: v1.NodeInternalIP, Address: "10.35.1.120"},
			{Type: v1.NodeExternalIP, Address: "10.35.1.120"},
		}
		for range 2 {
			w.start()
			m := w.RequireMetadata(n)
			assert.Equal(w, n.Spec.ProviderID, m.ProviderID)
			assert.Equal(w, n.Status.Addresses, m.NodeAddresses)
			w.RequireExists(n)
			assert.False(w, w.ShutDown(n))
		}
		w.RequireReadOnly(tokenCall, "POST "+logoutPath)
	})
}

func TestAddressesAreTakenFromTheEngineAlone(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("localhost", func(v *ovirtsim.VM) { v.Devices = nil })
		m, err := w.Metadata(conformance.NewNode("localhost", ""))
		require.ErrorContains(w, err, "reports no address", "and none is taken from elsewhere: %v", m)
	})
}
