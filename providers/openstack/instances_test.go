package openstack

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

func TestProviderID(t *testing.T) {
	t.Parallel()
	c := Config{Global: global{Region: "RegionOne"}}
	for text, want := range map[string]string{
		"openstack:///" + someID: someID, "openstack://RegionOne/" + someID: someID, "/" + someID: someID, "RegionOne/" + someID: someID,
	} {
		id, err := c.parseProviderID(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, id)
	}
	for text, why := range map[string]string{
		"openstack://" + someID: "does not have the form", someID: "does not have the form", "aws:///" + someID: "does not have the form", "": "does not have the form",
		"openstack:///a/b": "does not have the form", "openstack:///": "does not have the form", "openstack://RegionTwo/" + someID: "serves region",
	} {
		_, err := c.parseProviderID(text)
		require.ErrorContains(t, err, why, text)
	}
}

// TestNodes: what a node is told, found by name and by ID, and when it counts as gone.
func TestNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		id := w.sim.AddServer(openstacksim.Spec{Name: "node.1", Zone: "zone one (a)"})
		w.sim.AddServer(openstacksim.Spec{Name: "nodex1"})
		byName := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node.1"}}
		m, err := w.instances.InstanceMetadata(t.Context(), byName)
		require.NoError(t, err)
		assert.Equal(t, &cloudprovider.InstanceMetadata{
			ProviderID: "openstack:///" + id, InstanceType: "m1.small", Zone: "zone-one-a", Region: "RegionOne",
			NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}},
		}, m)
		byID := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "whatever"}, Spec: v1.NodeSpec{ProviderID: m.ProviderID}}
		again, err := w.instances.InstanceMetadata(t.Context(), byID)
		require.NoError(t, err)
		assert.Equal(t, m, again)

		for _, status := range []string{"BUILD", "ERROR", "PAUSED", "SUSPENDED", "SHELVED_OFFLOADED", "SOFT_DELETED", "SHUTOFF"} {
			require.NoError(t, w.sim.SetStatus(id, status))
			w.restart()
			exists, err := w.instances.InstanceExists(t.Context(), byID)
			require.NoError(t, err)
			assert.True(t, exists, status)
			shutdown, err := w.instances.InstanceShutdown(t.Context(), byID)
			require.NoError(t, err)
			assert.Equal(t, status == "SHUTOFF", shutdown, status)
		}
		w.sim.Remove(id)
		w.restart()
		exists, err := w.instances.InstanceExists(t.Context(), byID)
		require.NoError(t, err)
		assert.False(t, exists)
		_, err = w.instances.InstanceShutdown(t.Context(), byID)
		require.Error(t, err)
		exists, err = w.instances.InstanceExists(t.Context(), byName)
		require.Error(t, err, "a name proves nothing")
		assert.False(t, exists)
		_, err = w.instances.InstanceMetadata(t.Context(), byName)
		require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
		foreign := &v1.Node{Spec: v1.NodeSpec{ProviderID: "openstack://RegionTwo/" + someID}}
		_, err = w.instances.InstanceExists(t.Context(), foreign)
		require.ErrorContains(t, err, "serves region", "another region's node is never gone")

		w.sim.AddServer(openstacksim.Spec{Name: "nodex1"})
		w.restart()
		_, err = w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nodex1"}})
		require.ErrorContains(t, err, "2 servers are named nodex1")
		w.env["OS_CCM_REGIONAL"] = "true"
		w.restart()
		w.sim.AddServer(openstacksim.Spec{Name: "regional"})
		m, err = w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "regional"}})
		require.NoError(t, err)
		assert.Regexp(t, "^openstack://RegionOne/[0-9a-f-]+$", m.ProviderID)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestStrangeAnswers: what is no answer of Nova's proves nothing about a server.
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simkit.Fault{
		"a page with 404":       {Kind: simkit.FaultHTML, Status: http.StatusNotFound},
		"a page with 200":       {Kind: simkit.FaultHTML},
		"a gateway's 404":       {Kind: simkit.FaultStatus, Status: http.StatusBadGateway},
		"a refused credential":  {Kind: simkit.FaultStatus, Status: http.StatusForbidden},
		"a listing without one": {Kind: "no-list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				n := w.addNode(openstacksim.Spec{Name: "n1"})
				w.restart()
				fault.Operation = "/compute/"
				_, err := w.server.AddFault(fault)
				require.NoError(t, err)
				_, err = w.instances.InstanceExists(t.Context(), n)
				require.Error(t, err)
			})
		})
	}
}

// TestFlavors: the instance type, also of servers whose flavor was deleted, and on a Nova that does not embed flavors.
func TestFlavors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		minor  int
		flavor string
		delete bool
		want   string
	}{
		"embedded":                       {95, "1", false, "m1.small"},
		"embedded, no label value":       {95, "9", false, "9"},
		"by ID":                          {46, "1", false, "m1.small"},
		"by ID, no label value":          {46, "9", false, "9"},
		"deleted, known by its ID":       {46, "1", true, "1"},
		"deleted, but Nova keeps a name": {95, "1", true, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.AddFlavor("9", "huge (16 GiB)"); s.SetNovaMicroversion(c.minor) })
				w.sim.AddServer(openstacksim.Spec{Name: "n1", FlavorID: c.flavor})
				if c.delete {
					w.sim.RemoveFlavor(c.flavor)
				}
				for range 2 {
					m, err := w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
					require.NoError(t, err)
					assert.Equal(t, c.want, m.InstanceType)
				}
				got := w.server.Calls().ByOperation
				assert.LessOrEqual(t, got["GET /compute/v2.1/flavors/{id}"]+got["GET /compute/v2.1/flavors/detail"], 1, "it is read once")
			})
		})
	}
}

func internalIP(ip string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip}
}

func externalIP(ip string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip}
}

// portsWith is one port with these addresses.
func portsWith(status string, ips ...string) []*port {
	p := &port{Status: status}
	for _, ip := range ips {
		p.FixedIPs = append(p.FixedIPs, fixedIP{Address: ip})
	}
	return []*port{p}
}

// nodeAddressCases are a server, its ports, those inside its trunks and the networks of the config, and the node's addresses.
var nodeAddressCases = map[string]struct {
	s       server
	ports   []*port
	trunked []address
	c       networking
	want    []v1.NodeAddress
}{
	"ports, then access addresses, then hostname": {
		server{
			accessIPv4: "203.0.113.1", accessIPv6: "2001:db8::1", metadata: map[string]string{"hostname": "h"},
			addresses: []address{{"net", "10.0.0.1", false}},
		},
		portsWith("ACTIVE", "10.0.0.1"), nil,
		networking{},
		[]v1.NodeAddress{internalIP("10.0.0.1"), externalIP("203.0.113.1"), externalIP("2001:db8::1"), {Type: v1.NodeHostName, Address: "h"}},
	},
	"a port that is down": {
		server{addresses: []address{{"net", "10.0.0.1", false}}},
		portsWith("DOWN", "10.0.0.9"), nil,
		networking{},
		[]v1.NodeAddress{internalIP("10.0.0.1")},
	},
	"a floating address": {
		server{addresses: []address{{"net", "10.0.0.1", false}, {"net", "203.0.113.5", true}}},
		nil, nil,
		networking{},
		[]v1.NodeAddress{internalIP("10.0.0.1"), externalIP("203.0.113.5")},
	},
	"a public network": {
		server{addresses: []address{{"ext", "203.0.113.6", false}, {"net", "10.0.0.1", false}}},
		portsWith("ACTIVE", "203.0.113.6", "10.0.0.1"), nil,
		networking{PublicNetworks: []string{"ext"}},
		[]v1.NodeAddress{internalIP("10.0.0.1"), externalIP("203.0.113.6")},
	},
	"one internal network": {
		server{addresses: []address{{"a", "10.0.1.1", false}, {"b", "10.0.2.1", false}, {"b", "203.0.113.7", true}}},
		portsWith("ACTIVE", "10.0.1.1", "10.0.2.1"), nil,
		networking{InternalNetworks: []string{"a"}},
		[]v1.NodeAddress{internalIP("10.0.1.1"), externalIP("203.0.113.7")},
	},
	"several": {
		server{addresses: []address{{"a", "10.0.1.1", false}, {"b", "10.0.2.1", false}}},
		nil, nil,
		networking{InternalNetworks: []string{"b", "a"}},
		[]v1.NodeAddress{internalIP("10.0.1.1"), internalIP("10.0.2.1")},
	},
	"without IPv6": {
		server{accessIPv6: "2001:db8::1", addresses: []address{{"net", "2001:db8::2", false}}},
		portsWith("ACTIVE", "10.0.0.1", "2001:db8::2"), nil,
		networking{IPv6Disabled: true},
		[]v1.NodeAddress{internalIP("10.0.0.1")},
	},
	"ports inside a trunk": {
		server{addresses: []address{{"z", "10.0.0.1", false}}},
		portsWith("ACTIVE", "10.0.0.1"),
		[]address{{"a", "10.9.0.1", false}},
		networking{},
		[]v1.NodeAddress{internalIP("10.0.0.1"), internalIP("10.9.0.1")},
	},
	"sorted": {
		server{metadata: map[string]string{"hostname": "h"}},
		portsWith("ACTIVE", "10.0.0.9", "192.168.0.2", "10.0.0.3", "172.16.0.1"), nil,
		networking{SortOrder: "192.168.0.0/16, 10.0.0.0/8"},
		[]v1.NodeAddress{
			internalIP("192.168.0.2"), internalIP("10.0.0.3"), internalIP("10.0.0.9"), internalIP("172.16.0.1"),
			{Type: v1.NodeHostName, Address: "h"},
		},
	},
	"the first network wins": {
		server{},
		portsWith("ACTIVE", "10.0.0.9", "10.1.0.1"), nil,
		networking{SortOrder: "10.1.0.0/16 10.0.0.0/8"},
		[]v1.NodeAddress{internalIP("10.1.0.1"), internalIP("10.0.0.9")},
	},
}

func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range nodeAddressCases {
		assert.Equal(t, c.want, nodeAddresses(c.s, c.ports, c.trunked, c.c), name)
	}
	for have, want := range map[string]string{"nova": "nova", "a  b": "a-b", "_x_": "x", "äöü": "", "zone/1": "zone-1"} {
		assert.Equal(t, want, sanitize(have))
	}
}

// TestTrunks: the addresses of ports inside a trunk belong to the node.
func TestTrunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		inner := w.sim.AddNetwork("inner", false)
		subnet := w.sim.AddSubnet(inner, "inner", "10.9.0.0/24")
		sub := w.sim.AddPort(openstacksim.Port{NetworkID: inner, FixedIPs: []openstacksim.FixedIP{{SubnetID: subnet, Address: "10.9.0.7"}}})
		id := w.sim.AddServer(openstacksim.Spec{Name: "n1"})
		for _, p := range w.sim.Ports() {
			if p.DeviceID == id {
				w.sim.ChangePort(p.ID, func(p *openstacksim.Port) {
					p.Trunk = &openstacksim.Trunk{ID: "trunk", SubPorts: []openstacksim.SubPort{
						{PortID: sub, ID: 7, Type: "vlan"}, {PortID: someID, ID: 8, Type: "vlan"},
					}}
				})
			}
		}
		m, err := w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		require.NoError(t, err)
		assert.Equal(t, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeInternalIP, Address: "10.9.0.7"}}, m.NodeAddresses)
	})
}

// TestPages: listings of several pages are complete.
func TestPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.SetPageLimit(2) })
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			w.addNode(openstacksim.Spec{Name: name})
		}
		w.restart()
		all, pages, err := w.api.listServers(t.Context())
		require.NoError(t, err)
		assert.Len(t, all, 5)
		assert.Equal(t, 3, pages)
	})
}
