package vsphere

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"
)

func nic(network string, addresses ...string) types.GuestNicInfo {
	return types.GuestNicInfo{Network: network, IpAddress: addresses, DeviceConfigId: 4000}
}

func nodesOf(t *testing.T, internal, external, excludeInternal, excludeExternal string) nodesConfig {
	t.Helper()
	var n nodesConfig
	var err error
	n.InternalCIDRs, err = parseCIDRs(internal)
	require.NoError(t, err)
	n.ExternalCIDRs, err = parseCIDRs(external)
	require.NoError(t, err)
	n.ExcludeInternal, err = parseCIDRs(excludeInternal)
	require.NoError(t, err)
	n.ExcludeExternal, err = parseCIDRs(excludeExternal)
	require.NoError(t, err)
	return n
}

func words(list []v1.NodeAddress) []string {
	var texts []string
	for _, a := range list {
		texts = append(texts, fmt.Sprintf("%s %s", a.Type, a.Address))
	}
	return texts
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	v4, v6 := []v1.IPFamily{v1.IPv4Protocol}, []v1.IPFamily{v1.IPv6Protocol}
	two := []types.GuestNicInfo{nic("Private", "10.0.0.5", "fe80::1"), nic("Public", "198.51.100.5", "2001:db8::5")}
	both := []string{"InternalIP 10.0.0.5", "ExternalIP 10.0.0.5"}
	named := nodesConfig{InternalNetwork: "PRIVATE", ExternalNetwork: "public"}
	for name, c := range map[string]struct {
		config   nodesConfig
		nics     []types.GuestNicInfo
		families []v1.IPFamily
		want     []string
		problem  string
	}{
		"one address is both": {nodesConfig{}, two[:1], v4, both, ""},
		"by network": {
			nodesOf(t, "192.168.0.0/16,10.0.0.0/8", "198.51.100.0/24", "", ""),
			two, v4,
			[]string{"InternalIP 10.0.0.5", "ExternalIP 198.51.100.5"},
			"",
		},
		"the other stays absent": {nodesOf(t, "10.0.0.0/8", "203.0.113.0/24", "", ""), two, v4, []string{"InternalIP 10.0.0.5"}, ""},
		"by name, in any case":   {named, two, v4, []string{"InternalIP 10.0.0.5", "ExternalIP 198.51.100.5"}, ""},
		"names of neither":       {nodesConfig{InternalNetwork: "a", ExternalNetwork: "b"}, two, v4, nil, "node worker has no address"},
		"without a virtual address": {
			nodesOf(t, "", "", "10.0.0.100/32", "10.0.0.100/32"), []types.GuestNicInfo{nic("n", "10.0.0.100", "10.0.0.5")}, v4, both, "",
		},
		"excluded on one side": {nodesOf(t, "", "", "", "10.0.0.0/8"), two[:1], v4, []string{"InternalIP 10.0.0.5"}, ""},
		"made within the guest": {
			nodesConfig{},
			append([]types.GuestNicInfo{{Network: "", IpAddress: []string{"172.17.0.1"}, DeviceConfigId: -1}}, two...), v4,
			[]string{"InternalIP 10.0.0.5", "ExternalIP 10.0.0.5"},
			"",
		},
		"IPv6 alone": {nodesConfig{}, two, v6, []string{"InternalIP 2001:db8::5", "ExternalIP 2001:db8::5"}, ""},
		"both families, IPv6 first": {
			nodesConfig{},
			two,
			[]v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol},
			[]string{"InternalIP 2001:db8::5", "ExternalIP 2001:db8::5", "InternalIP 10.0.0.5", "ExternalIP 10.0.0.5"},
			"",
		},
		"link-local alone": {
			nodesConfig{},
			[]types.GuestNicInfo{nic("n", "fe80::1", "169.254.0.1", "127.0.0.1", "x", "0.0.0.0")},
			v4,
			nil, "reports none that others can reach",
		},
		"no interface":             {nodesConfig{}, nil, v4, nil, "reports no network interface"},
		"a family without address": {nodesConfig{}, two[:1], v6, nil, "has no address of IPv6"},
	} {
		got, err := c.config.addresses(machine{Name: "worker", HostName: "host", NICs: c.nics}, "worker", c.families)
		if c.problem != "" {
			assert.ErrorContains(t, err, c.problem, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, append([]string{"Hostname host"}, c.want...), words(got), name)
	}
}

func TestAddressesNeedTheGuestsName(t *testing.T) {
	t.Parallel()
	nics := []types.GuestNicInfo{nic("Private", "10.0.0.5")}
	_, err := nodesConfig{}.addresses(machine{Name: "worker", NICs: nics}, "worker", []v1.IPFamily{v1.IPv4Protocol})
	require.ErrorContains(t, err, "reports no host name")
}

const network = `
ethernets:
  zeta: {addresses: [10.0.0.9/24], dhcp4: false}
  alpha: {addresses: [10.0.0.7/24, 2001:db8::7/64]}
`

// TestTwoStaticInterfacesAlwaysGiveOneAddress: the first of the document, where the original picks at random.
func TestTwoStaticInterfacesAlwaysGiveOneAddress(t *testing.T) {
	t.Parallel()
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(network))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	inline := "instance-id: a\nnetwork:\n" + "  ethernets:\n    zeta: {addresses: [10.0.0.9/24]}\n    alpha: {addresses: [10.0.0.7/24]}\n"
	for name, metadata := range map[string]string{
		"inline": inline,
		"base64": "network: " + b64(network) + "\nnetwork.encoding: b64\n",
		"gzip":   "network: " + base64.StdEncoding.EncodeToString(packed.Bytes()) + "\nnetwork.encoding: gz+b64\n",
	} {
		m := machine{
			Name: "worker", HostName: "worker", NICs: []types.GuestNicInfo{nic("n", "10.0.0.1", "10.0.0.7", "10.0.0.9")},
			Metadata: b64(metadata), Encoding: "base64",
		}
		for range 100 {
			got, err := nodesConfig{}.addresses(m, "worker", []v1.IPFamily{v1.IPv4Protocol})
			require.NoError(t, err, name)
			require.Equal(t, "10.0.0.9", got[1].Address, name)
		}
	}
	m := machine{Name: "worker", HostName: "worker", NICs: []types.GuestNicInfo{nic("n", "10.0.0.1")}, Metadata: "%", Encoding: "base64"}
	_, err = nodesConfig{}.addresses(m, "worker", []v1.IPFamily{v1.IPv4Protocol})
	require.ErrorContains(t, err, "guestinfo.metadata: is not in base64")
	m.Encoding = "gzip+base64"
	_, err = nodesConfig{}.addresses(m, "worker", []v1.IPFamily{v1.IPv4Protocol})
	require.NoError(t, err, "as the original, what is compressed as a whole is not read")
}

func FuzzStaticAddresses(f *testing.F) {
	f.Add("network:\n  ethernets: {a: {addresses: [x]}}")
	f.Add("network: H4sI\nnetwork.encoding: gz+b64")
	f.Add(network)
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = staticAddresses(base64.StdEncoding.EncodeToString([]byte(text)), "base64") // no crash is all
	})
}

func TestInstanceTypes(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"ubuntu64Guest": "ubuntu", "centos64Guest": "centos64", "sles64Guest": "sles64", "rhel9_64Guest": "rhel9", "debian10_64Guest": "debian10",
		"debian12_64Guest": "unknown", "otherGuest": "other", "otherGuest64": "other", "other3xLinux64Guest": "linux", "vmwarePhoton64Guest": "photon",
		"windows9Server64Guest": "win10server", "darwin16_64Guest": "darwin", "winXPPro64Guest": "winxppro", "asianux3_64Guest": "asianux3",
		"solaris11_64Guest": "solaris11", "win2000AdvServGuest": "win2000advserv", "": "unknown",
	} {
		assert.Equal(t, "vsphere-vm.cpu-4.mem-7gb.os-"+want, instanceType(machine{GuestID: id, CPUs: 4, MemoryMB: 8191}), id)
	}
}

func TestUUIDsInEitherOrder(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "56492e42-22ad-3911-6d72-59cc8f26bc90", swapBytes("422e4956-ad22-1139-6d72-59cc8f26bc90"))
	assert.Equal(t, canonicalUUID("422E4956-AD22-1139-6D72-59CC8F26BC90"), canonicalUUID("56492e42-22ad-3911-6d72-59cc8f26bc90"))
	assert.Equal(t, instanceKey("vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90"), instanceKey("56492e42-22ad-3911-6d72-59cc8f26bc90"))
	assert.Empty(t, canonicalUUID("422e4956"))
	assert.Empty(t, instanceKey("aws:///zone/i-1"))
}
