package linode

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// vpcWorld is a world in a VPC, with a node of each generation of interfaces and a Linode that is no node.
func vpcWorld(t *testing.T) *world {
	t.Helper()
	var subnets []int
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster", "enable-route-controller": "true"}, func(s *linodesim.Sim) {
		s.AddVPC("other", [2]string{"default", "10.9.0.0/16"})
		_, subnets = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"}, [2]string{"spare", "10.1.0.0/16"})
	})
	w.addNode(linodesim.Spec{Label: "old", SubnetID: subnets[0]})
	w.addNode(linodesim.Spec{Label: "new", SubnetID: subnets[0], LinodeInterfaces: true})
	w.sim.AddLinode(linodesim.Spec{Label: "no-node", SubnetID: subnets[0]})
	return w
}

func (w *world) routeTexts() []string {
	w.T.Helper()
	list, err := w.RouteAPI.ListRoutes(w.T.Context(), "kubernetes")
	require.NoError(w.T, err)
	texts := []string{}
	for _, r := range list {
		texts = append(texts, fmt.Sprint(r.TargetNode, " ", r.DestinationCIDR))
	}
	return texts
}

func route(node, cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	ctx := t.Context()
	assert.Empty(t, w.routeTexts())
	for _, r := range []*cloudprovider.Route{
		route("old", "10.2.0.0/24"), route("new", "10.2.1.0/24"), route("old", "10.2.2.0/24"), route("old", "fd00::/112"),
	} {
		require.NoError(t, w.RouteAPI.CreateRoute(ctx, "kubernetes", "hint", r))
	}
	assert.Equal(t, []string{"new 10.2.1.0/24", "old 10.2.0.0/24", "old 10.2.2.0/24", "old fd00::/112"}, w.routeTexts())
	w.server.ResetCalls()
	for range 20 {
		require.NoError(t, w.RouteAPI.CreateRoute(ctx, "kubernetes", "hint", route("old", "10.2.0.0/24")))
		w.routeTexts()
	}
	assert.Zero(t, w.server.Calls().Total, "what was written is known, and what is there is not written again")

	require.NoError(t, w.RouteAPI.DeleteRoute(ctx, "kubernetes", route("old", "10.2.0.0/24")))
	require.NoError(t, w.RouteAPI.DeleteRoute(ctx, "kubernetes", route("old", "10.2.0.0/24")))
	require.NoError(t, w.RouteAPI.DeleteRoute(ctx, "kubernetes", route("old", "fd00::/112")))
	require.NoError(t, w.RouteAPI.DeleteRoute(ctx, "kubernetes", route("new", "10.2.1.0/24")))
	assert.Equal(t, 2, w.server.Calls().Writes)
	w.restart()
	assert.Equal(t, []string{"old 10.2.2.0/24"}, w.routeTexts(), "the cloud has it so")
	require.NoError(t, w.RouteAPI.CreateRoute(ctx, "kubernetes", "hint", route("old", "fd00::/112")), "the framework asks for it again")
	assert.Equal(t, []string{"old 10.2.2.0/24", "old fd00::/112"}, w.routeTexts())
	assert.Equal(t, 2, w.server.Calls().Writes)
	assert.Empty(t, w.server.Calls().Refused)
}

func TestRouteFailures(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	ctx := t.Context()
	require.ErrorContains(t, w.RouteAPI.CreateRoute(ctx, "c", "h", route("old", "10.2.0.0")), `"10.2.0.0" is not a network`)
	require.Error(t, w.RouteAPI.CreateRoute(ctx, "c", "h", route("unknown", "10.2.0.0/24")))

	id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "/ips"})
	require.NoError(t, err)
	w.restart()
	_, err = w.RouteAPI.ListRoutes(ctx, "c")
	require.ErrorContains(t, err, "not authorized", "a listing that fails never looks like no routes")
	w.server.RemoveFault(id)

	lost, err := parseProviderID(w.nodes[0].Spec.ProviderID)
	require.NoError(t, err)
	w.sim.Remove(lost)
	w.restart()
	require.ErrorContains(t, w.RouteAPI.CreateRoute(ctx, "c", "h", route("old", "10.2.0.0/24")), "not found")
	require.NoError(t, w.RouteAPI.DeleteRoute(ctx, "c", route("old", "10.2.0.0/24")), "its routes are gone with it")
}

// TestRoutesOfOneNodeAtOnce: the ranges of an interface are replaced as a whole; none may be lost.
func TestRoutesOfOneNodeAtOnce(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			assert.NoError(t, w.RouteAPI.CreateRoute(t.Context(), "c", "h", route([]string{"old", "new"}[i%2], fmt.Sprintf("10.2.%d.0/24", i))))
		})
	}
	group.Wait()
	w.restart()
	assert.Len(t, w.routeTexts(), 20)
}

// TestRoutesOfOthersStay: the ranges of an interface are replaced as a whole, on a look of right now.
func TestRoutesOfOthersStay(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	for _, name := range []string{"old", "new"} {
		require.NoError(t, w.RouteAPI.CreateRoute(t.Context(), "c", "h", route(name, "10.2.0.0/24")))
		byHand := func(ranges ...string) {
			node := w.nodes[map[string]int{"old": 0, "new": 1}[name]]
			id, err := parseProviderID(node.Spec.ProviderID)
			require.NoError(t, err)
			l, ok := w.instances.linodes.Peek(id)
			require.True(t, ok)
			require.NoError(t, w.api.setRanges(t.Context(), l, ranges))
		}
		byHand("10.2.0.0/24", "10.77.0.0/24")
		require.NoError(t, w.RouteAPI.CreateRoute(t.Context(), "c", "h", route(name, "10.2.1.0/24")))
		byHand("10.2.0.0/24", "10.77.0.0/24", "10.2.1.0/24", "10.78.0.0/24")
		require.NoError(t, w.RouteAPI.DeleteRoute(t.Context(), "c", route(name, "10.2.0.0/24")))
		w.restart()
		got := slices.DeleteFunc(w.routeTexts(), func(text string) bool { return !strings.HasPrefix(text, name) })
		assert.Equal(t, []string{name + " 10.2.1.0/24", name + " 10.77.0.0/24", name + " 10.78.0.0/24"}, got)
	}
}

// TestVPCAddresses: addresses of nodes in a VPC, and what happens while they cannot be read.
func TestVPCAddresses(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	addresses := w.nodes[0].Status.Addresses
	kinds := []string{}
	for _, a := range addresses {
		kinds = append(kinds, string(a.Type))
	}
	assert.Equal(t, []string{"Hostname", "InternalIP", "ExternalIP", "ExternalIP", "ExternalIP"}, kinds, "%v", addresses)
	assert.Regexp(t, `^10\.0\.`, addresses[1].Address)

	outside := w.sim.AddLinode(linodesim.Spec{Label: "outside"})
	node := w.nodes[0].DeepCopy()
	node.Name, node.Spec.ProviderID = "outside", fmt.Sprint(providerIDPrefix, outside)
	_, err := w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorContains(t, err, "it has no address in the VPC and subnets of the cluster")
	exists, err := w.instances.InstanceExists(t.Context(), node)
	require.NoError(t, err)
	assert.True(t, exists, "and its Node is not deleted for it")

	for _, operation := range []string{"/ips", "/ipv6s", "/subnets", "/v4/vpcs"} {
		id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: operation})
		require.NoError(t, err)
		w.restart()
		exists, err := w.instances.InstanceExists(t.Context(), w.nodes[0])
		assert.Error(t, err, "%s: doubt about the VPC is no absence of the Linode", operation)
		assert.False(t, exists)
		w.server.RemoveFault(id)
	}
	w.flags["subnet-names"] = "nowhere"
	w.restart()
	_, err = w.instances.InstanceMetadata(t.Context(), w.nodes[0])
	require.ErrorContains(t, err, `--subnet-names: no VPC of the cluster has a subnet "nowhere"`)
}
