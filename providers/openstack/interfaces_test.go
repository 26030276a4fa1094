package openstack

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// twoInterfaces returns a world whose node n1 has a first interface on another network than the second, and that network.
func twoInterfaces(t *testing.T, file string, prepare func(*openstacksim.Sim)) (w *world, other string) {
	t.Helper()
	w = newTestWorld(t, file, prepare)
	other = w.sim.AddNetwork("other", false)
	w.sim.AddSubnet(other, "other-subnet", "10.9.0.0/24")
	w.addNode(openstacksim.Spec{Name: "n1", Networks: []string{other, firstNet}})
	return w, other
}

// TestMemberSubnetOfASecondInterface: the address of a member is the one on the subnet that is asked for.
func TestMemberSubnetOfASecondInterface(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked bool
		want  string
	}{"asked for": {true, "10.0."}, "not asked for": {false, "10.9."}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, _ := twoInterfaces(t, "manage-security-groups = true\n", nil)
				s := web(map[string]string{annotationInternal: textTrue})
				if c.asked {
					s.Annotations[annotationMemberSubnetID] = firstSubnet
				}
				w.Apply(s)
				s, _ = w.ensure(s)
				members := w.sim.Pools()[0].BackendMembers()
				require.Len(t, members, 1)
				assert.Contains(t, members[0].Address, c.want)
				w.requireNoWrites(s)
			})
		})
	}
}

// TestGroupOfANodeElsewhere: what a member is reached at has the security group, on whichever subnet it is.
func TestGroupOfANodeElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, other := twoInterfaces(t, "manage-security-groups = true\n", nil)
		w.addNode(openstacksim.Spec{Name: "n2"})
		s := web(map[string]string{annotationInternal: textTrue})
		w.Apply(s)
		s, _ = w.ensure(s)
		group := w.sim.SecurityGroups()[0].ID
		var networks []string
		for _, p := range w.sim.Ports() {
			if slices.Contains(p.SecurityGroups, group) {
				networks = append(networks, p.NetworkID)
			}
		}
		assert.ElementsMatch(t, []string{other, firstNet}, networks)
		w.requireNoWrites(s)
	})
}

// TestRouteOfASecondInterface: the next hop is an address on a subnet of the router; a route to another one of a node is not ours.
func TestRouteOfASecondInterface(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := twoInterfaces(t, "", nil)
		w.file = "[Route]\nrouter-id = " + w.sim.Routers()[0].ID + "\n"
		w.restart()
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.100.0.0/24")))
		routes := w.sim.Routers()[0].Routes
		require.Len(t, routes, 1)
		assert.Contains(t, routes[0].NextHop, "10.0.")
		first := w.nodes[0].Status.Addresses[0].Address
		require.Contains(t, first, "10.9.")
		w.sim.ChangeRouter(w.sim.Routers()[0].ID, func(r *openstacksim.Router) {
			r.Routes = append(r.Routes, openstacksim.Route{Destination: "10.200.0.0/24", NextHop: first})
		})
		w.restart()
		assert.Equal(t, []string{"10.100.0.0/24 n1 false"}, w.showsAddress())
	})
}

// TestIPv6OfADualStackNetwork: a Service of IPv6 alone gets an address of the network's subnet of IPv6.
func TestIPv6OfADualStackNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		dual := w.sim.AddNetwork("dual", false)
		w.sim.AddSubnet(dual, "dual-4", "10.8.0.0/24")
		w.sim.AddSubnet(dual, "dual-6", "2001:db8:8::/64")
		w.addNode(openstacksim.Spec{Name: "n1", Networks: []string{dual}})
		s := web(map[string]string{annotationNetworkID: dual, annotationInternal: textTrue})
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
		w.Apply(s)
		s, status := w.ensure(s)
		assert.Contains(t, status.Ingress[0].IP, "2001:db8:8:")
		assert.Contains(t, w.sim.Pools()[0].BackendMembers()[0].Address, "2001:db8:8:")
		w.requireNoWrites(s)
	})
}
