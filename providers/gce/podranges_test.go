package gce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// podRanges returns the controller for these flags of the framework and the cloud.
func (w *world) podRanges(allocator, clusterCIDR string, flags map[string]string) *podranges.Controller {
	w.T.Helper()
	in := testInputs(w.file+"api-endpoint = "+w.url+"/compute/v1\n", nil)
	in.AllocateNodeCIDRs, in.CIDRAllocator, in.ClusterCIDR, in.Flags = true, allocator, clusterCIDR, flags
	c, _, err := parseConfig(in)
	require.NoError(w.T, err)
	a := newPodRanges(c, w.instances)
	a.Kube, a.Events, a.Nodes = w.Kube, w.Recorder, w.Nodes()
	return a
}

// join adds an instance and its Node, also to the API server.
func (w *world) join(spec gcesim.Spec) {
	w.T.Helper()
	w.sim.AddInstance(spec)
	zone := spec.Zone
	if zone == "" {
		zone = "us-central1-a"
	}
	n := nodeNamed(spec.Name, "gce://my-project/"+zone+"/"+spec.Name)
	n.UID, n.CreationTimestamp = types.UID(spec.Name), metav1.Now()
	_, err := w.Kube.CoreV1().Nodes().Create(w.T.Context(), n, metav1.CreateOptions{})
	require.NoError(w.T, err)
	w.Register(n)
}

// synced copies the API server's Nodes to the cache.
func (w *world) synced() map[string]*v1.Node {
	w.T.Helper()
	list, err := w.Kube.CoreV1().Nodes().List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	all := map[string]*v1.Node{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
		w.Register(&list.Items[i])
	}
	return all
}

func aliased(name, alias, ipv6 string) gcesim.Spec {
	return gcesim.Spec{Name: name, Interfaces: []gcesim.Interface{{IP: "10.128.0.9", Alias: alias, IPv6: ipv6}}}
}

// TestPodRangeFlags: flags of Google's own controller and of the framework, and their conflicts.
func TestPodRangeFlags(t *testing.T) {
	t.Parallel()
	flags := func(list ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(list); i += 2 {
			all[list[i]] = list[i+1]
		}
		return all
	}
	for name, c := range map[string]struct {
		allocator, cluster string
		flags              map[string]string
		want, wrong, warns string
	}{
		"the default":      {"", "10.0.0.0/14", nil, "RangeAllocator", "", ""},
		"both families":    {"RangeAllocator", "10.0.0.0/14,fd00::/48", flags("node-cidr-mask-size-ipv4", "25"), "RangeAllocator", "", ""},
		"no network":       {"RangeAllocator", "", nil, "", "flag --cluster-cidr: must be one network, or one of each family", ""},
		"two of a family":  {"RangeAllocator", "10.0.0.0/16,10.1.0.0/16", nil, "", "one of each family", ""},
		"one mask for two": {"RangeAllocator", "10.0.0.0/14,fd00::/48", flags("node-cidr-mask-size", "24"), "", "use --node-cidr-mask-size-ipv4 and", ""},
		"masks that exclude": {
			"RangeAllocator", "10.0.0.0/14", flags("node-cidr-mask-size", "24", "node-cidr-mask-size-ipv4", "25"), "",
			"excludes --node-cidr-mask-size-ipv4", "",
		},
		"a mask that is too short":     {"RangeAllocator", "10.0.0.0/25", nil, "", "is smaller than the range of one node, /24", ""},
		"a mask of the other family":   {"RangeAllocator", "10.0.0.0/14", flags("node-cidr-mask-size", "64"), "", "is longer than an address", ""},
		"too many ranges":              {"RangeAllocator", "fd00::/40", nil, "", "has more than 2^16 ranges", ""},
		"three networks of Services":   {"CloudAllocator", "", flags("service-cluster-ip-range", "10.1.0.0/16,fd00::/108,10.2.0.0/16"), "", "--service-cluster-ip-range", ""},
		"of the cloud":                 {"CloudAllocator", "", nil, "CloudAllocator", "", ""},
		"of the cloud, in old words":   {"IPAMFromCloud", "", nil, "CloudAllocator", "", "is served as CloudAllocator"},
		"written to instances":         {"IPAMFromCluster", "10.0.0.0/14", nil, "", "", "has no effect: ranges of instances are never written"},
		"a type that nobody knows":     {"Random", "10.0.0.0/14", nil, "", "is not one of RangeAllocator, CloudAllocator", ""},
		"what is no network":           {"CloudAllocator", "", flags("service-cluster-ip-range", "services"), "", "--service-cluster-ip-range", ""},
		"one mask for the one network": {"", "fd00::/48", flags("node-cidr-mask-size", "64"), "RangeAllocator", "", ""},
	} {
		in := testInputs(usual, nil)
		in.AllocateNodeCIDRs, in.CIDRAllocator, in.ClusterCIDR, in.Flags = true, c.allocator, c.cluster, c.flags
		config, warnings, err := parseConfig(in)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.want, config.PodRanges.allocator, name)
		if c.warns != "" {
			require.ErrorContains(t, warnings, c.warns, name)
		} else {
			require.NoError(t, warnings, name)
		}
		in.AllocateNodeCIDRs = false
		config, _, err = parseConfig(in)
		require.NoError(t, err, name)
		assert.Empty(t, config.PodRanges.allocator, name)
	}
}

// TestRangeAllocator: nodes get distinct blocks of the cluster's networks, outside the Services' network, without a call to the cloud.
// Unmanaged Nodes keep theirs.
func TestRangeAllocator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		a := w.podRanges("", "10.244.0.0/16,fd00:10::/56", map[string]string{
			"service-cluster-ip-range": "10.244.0.0/23,fd00:10::/112", "node-cidr-mask-size-ipv4": "25",
		})
		for _, name := range []string{"n1", "n2"} {
			w.join(gcesim.Spec{Name: name})
			time.Sleep(time.Second)
		}
		waiting := nodeNamed("new", "")
		_, err := w.Kube.CoreV1().Nodes().Create(t.Context(), waiting, metav1.CreateOptions{})
		require.NoError(t, err)
		w.Register(waiting)
		w.server.ResetCalls()
		require.NoError(t, a.Run(t.Context()))
		all := w.synced()
		assert.Equal(t, []string{"10.244.2.0/25", "fd00:10:0:1::/64"}, all["n1"].Spec.PodCIDRs)
		assert.Equal(t, []string{"10.244.2.128/25", "fd00:10:0:2::/64"}, all["n2"].Spec.PodCIDRs)
		assert.Equal(t, "10.244.2.0/25", all["n1"].Spec.PodCIDR)
		assert.Empty(t, all["new"].Spec.PodCIDRs, "nobody knows yet whose it is")
		assert.Empty(t, all["n1"].Status.Conditions, "routes are somebody else's")
		assert.Zero(t, w.server.Calls().Total)
	})
}

// TestCloudAllocator: nodes get their instance's alias range and the start of its IPv6 network, in the Services' order of families, and
// their network condition is cleared. A node without a range gets an event, and the range once it exists.
func TestCloudAllocator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for services, want := range map[string][]string{
			"":                           {"10.200.7.0/24"},
			"10.1.0.0/16":                {"10.200.7.0/24"},
			"10.1.0.0/16,fd00:10::/112":  {"10.200.7.0/24", "fd20:1:2:3:4:5:6:0/112"},
			"fd00:10::/112, 10.1.0.0/16": {"fd20:1:2:3:4:5:6:0/112", "10.200.7.0/24"},
			"fd00:10::/112":              {"fd20:1:2:3:4:5:6:0/112"},
		} {
			w := newTestWorld(t, usual)
			a := w.podRanges(cloudAllocator, "", map[string]string{"service-cluster-ip-range": services})
			w.join(aliased("n1", "10.200.7.0/24", "fd20:1:2:3:4:5:6:7"))
			require.NoError(t, a.Run(t.Context()))
			n := w.synced()["n1"]
			assert.Equal(t, want, n.Spec.PodCIDRs, services)
			require.Len(t, n.Status.Conditions, 1)
			assert.Equal(t, [3]any{v1.NodeNetworkUnavailable, v1.ConditionFalse, "RouteCreated"},
				[3]any{n.Status.Conditions[0].Type, n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason})
			w.Kube.ClearActions()
			require.NoError(t, a.Run(t.Context()))
			assert.Empty(t, w.Kube.Actions(), "what Google's own controller left costs nothing")
		}

		w := newTestWorld(t, usual)
		a := w.podRanges(cloudAllocator, "", map[string]string{"service-cluster-ip-range": "10.1.0.0/16,fd00:10::/112"})
		w.join(aliased("bare", "", "fd20::1"))
		w.join(aliased("single", "10.200.8.0/24", ""))
		w.join(aliased("fine", "10.200.9.0/24", "fd20::2:0:1"))
		for range 3 {
			require.ErrorContains(t, a.Run(t.Context()), "my-project/us-central1-a/bare has no alias IP range on its interface nic0")
		}
		said := strings.Join(w.Events(), "\n")
		assert.Contains(t, said, "Warning CIDRNotAvailable instance my-project/us-central1-a/bare has no alias IP range")
		assert.Contains(t, said, "Warning CIDRNotAvailable instance my-project/us-central1-a/single has no IPv6 address")
		all := w.synced()
		assert.Empty(t, all["bare"].Spec.PodCIDRs)
		assert.Empty(t, all["single"].Spec.PodCIDRs)
		assert.Equal(t, []string{"10.200.9.0/24", "fd20::2:0:0/112"}, all["fine"].Spec.PodCIDRs)
		w.sim.RemoveInstanceByID("gce://my-project/us-central1-a/bare")
		w.sim.AddInstance(aliased("bare", "10.200.1.0/24", "fd20::9:0:1"))
		time.Sleep(10 * time.Second)
		require.Error(t, a.Run(t.Context()), "there is another one")
		assert.Equal(t, []string{"10.200.1.0/24", "fd20::9:0:0/112"}, w.synced()["bare"].Spec.PodCIDRs)
	})
}

// TestCloudAllocatorTrustsNoEarlierInstance: an instance recreated under its name has another range, so answers older than the Node do not
// count.
func TestCloudAllocatorTrustsNoEarlierInstance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		a := w.podRanges(cloudAllocator, "", nil)
		w.join(aliased("other", "10.200.5.0/24", ""))
		id := w.sim.AddInstance(aliased("spot", "10.200.7.0/24", ""))
		require.NoError(t, w.instances.CheckAPI(t.Context()))
		w.sim.RemoveInstanceByID(id)
		time.Sleep(10 * time.Second)
		w.join(aliased("spot", "10.200.8.0/24", ""))
		time.Sleep(time.Second)
		require.NoError(t, a.Run(t.Context()))
		assert.Equal(t, []string{"10.200.8.0/24"}, w.synced()["spot"].Spec.PodCIDRs)
	})
}

// TestCloudAllocatorInDoubt: a missing or partial answer causes no write and no event.
func TestCloudAllocatorInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		a := w.podRanges(cloudAllocator, "", nil)
		for i := range 5 {
			w.join(aliased(fmt.Sprint("n", i), fmt.Sprintf("10.200.%d.0/24", i), ""))
		}
		id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 503})
		require.NoError(t, err)
		require.Error(t, a.Run(t.Context()))
		for name, n := range w.synced() {
			assert.Empty(t, n.Spec.PodCIDRs, name)
		}
		assert.Empty(t, w.Events())
		w.server.RemoveFault(id)
		time.Sleep(time.Minute)
		require.NoError(t, a.Run(t.Context()))
		for name, n := range w.synced() {
			assert.Len(t, n.Spec.PodCIDRs, 1, name)
		}
	})
}

// TestCostOfPodRanges: the ranges of 1,000 nodes come from the existing listing.
func TestCostOfPodRanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		a := w.podRanges(cloudAllocator, "", nil)
		for i := range 1000 {
			w.join(aliased(fmt.Sprint("n", i), fmt.Sprintf("10.%d.%d.0/24", 64+i/256, i%256), ""))
		}
		w.server.ResetCalls()
		require.NoError(t, a.Run(t.Context()))
		assert.LessOrEqual(t, w.server.Calls().Total, 6)
		seen := map[string]bool{}
		for name, n := range w.synced() {
			require.Len(t, n.Spec.PodCIDRs, 1, name)
			seen[n.Spec.PodCIDR] = true
		}
		assert.Len(t, seen, 1000)
	})
}

// TestUnmanagedNodes: Nodes with GKE's label for unmanaged nodes are ignored.
func TestUnmanagedNodes(t *testing.T) {
	t.Parallel()
	n := nodeNamed("n1", "gce://my-project/us-central1-a/n1")
	assert.Empty(t, whyUnmanaged(n))
	n.Labels = map[string]string{labelUnmanaged: "false"}
	assert.Empty(t, whyUnmanaged(n))
	n.Labels[labelUnmanaged] = "true"
	assert.NotEmpty(t, Description().Unmanaged(n))
}
