package podranges

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

var (
	ipv4 = Family{Network: netip.MustParsePrefix("10.192.0.0/22"), Bits: 24}
	ipv6 = Family{Network: netip.MustParsePrefix("fd00:1:2::/62"), Bits: 64}
)

// cluster is an API server with its Nodes, and the cache of one release.
type cluster struct {
	*testing.T

	kube   *fake.Clientset
	cache  cache.Indexer
	events *record.FakeRecorder
	age    time.Duration
}

// newCluster is of an API server that refuses to change a range, as the real one does.
func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, kube: fake.NewClientset(), cache: newIndexer(), events: record.NewFakeRecorder(100)}
	c.kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		object, err := c.kube.Tracker().Get(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", patch.GetName())
		if apierrors.IsNotFound(err) {
			return true, nil, err
		}
		require.NoError(t, err)
		var change struct{ Spec v1.NodeSpec }
		require.NoError(t, json.Unmarshal(patch.GetPatch(), &change))
		node := object.(*v1.Node)
		if change.Spec.PodCIDR != "" && node.Spec.PodCIDR != "" && change.Spec.PodCIDR != node.Spec.PodCIDR {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, node.Name, errors.New("podCIDR may not change"))
		}
		return false, nil, nil
	})
	return c
}

func newIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
}

func (c *cluster) controller(s Settings) *Controller {
	if s.Ours == nil {
		s.Ours = func(*v1.Node) bool { return true }
	}
	a := New(s)
	a.Kube, a.Events, a.Nodes = c.kube, c.events, listers.NewNodeLister(c.cache)
	return a
}

// add makes a Node that is younger than those before.
func (c *cluster) add(name string, ranges ...string) *v1.Node {
	c.Helper()
	c.age += time.Minute
	created := metav1.NewTime(time.Unix(0, 0).Add(c.age))
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: created}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = ranges[0], ranges
	}
	_, err := c.kube.CoreV1().Nodes().Create(c.Context(), n, metav1.CreateOptions{})
	require.NoError(c, err)
	require.NoError(c, c.cache.Add(n))
	return n
}

// sync shows the Nodes to the cache as they are, and returns their ranges.
func (c *cluster) sync() map[string][]string {
	c.Helper()
	list, err := c.kube.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	ranges, objects := map[string][]string{}, []any{}
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
		ranges[list.Items[i].Name] = list.Items[i].Spec.PodCIDRs
	}
	require.NoError(c, c.cache.Replace(objects, ""))
	return ranges
}

func (c *cluster) said() (all []string) {
	for len(c.events.Events) > 0 {
		all = append(all, <-c.events.Events)
	}
	return all
}

// writes counts the patches of Nodes.
func (c *cluster) writes() (n int) {
	for _, a := range c.kube.Actions() {
		if a.GetVerb() != "list" && a.GetVerb() != "get" && a.GetVerb() != "create" {
			n++
		}
	}
	return n
}

func TestFreeBlock(t *testing.T) {
	t.Parallel()
	p := netip.MustParsePrefix
	for name, c := range map[string]struct {
		cluster  string
		mask     int
		taken    []string
		excluded []string
		want     string
	}{
		"first":                   {"10.192.0.0/16", 24, nil, nil, "10.192.0.0/24"},
		"next":                    {"10.192.0.0/16", 24, []string{"10.192.0.0/24", "10.192.2.0/24"}, nil, "10.192.1.0/24"},
		"Service addresses":       {"10.192.0.0/16", 24, nil, []string{"10.192.0.0/22"}, "10.192.4.0/24"},
		"ranges of another size":  {"10.192.0.0/16", 24, []string{"10.192.0.0/23"}, nil, "10.192.2.0/24"},
		"full":                    {"10.192.0.0/23", 24, []string{"10.192.0.0/24", "10.192.1.0/24"}, nil, ""},
		"the end of all networks": {"255.255.255.0/24", 25, []string{"255.255.255.0/25", "255.255.255.128/25"}, nil, ""},
		"IPv6 does not matter":    {"10.192.0.0/16", 24, []string{"2001:db8::/112"}, nil, "10.192.0.0/24"},
		"IPv6":                    {"fd00:1:2::/48", 64, []string{"fd00:1:2::/64", "10.192.0.0/24"}, []string{"fd00:1:2:1::/112"}, "fd00:1:2:2::/64"},
		"host bits":               {"10.192.0.7/16", 24, nil, nil, "10.192.0.0/24"},
	} {
		taken := map[netip.Prefix]bool{}
		for _, text := range c.taken {
			taken[p(text)] = true
		}
		var excluded []netip.Prefix
		for _, text := range c.excluded {
			excluded = append(excluded, p(text))
		}
		got, ok := freeBlock(p(c.cluster), c.mask, taken, excluded)
		assert.Equal(t, c.want != "", ok, name)
		if ok {
			assert.Equal(t, c.want, got.String(), name)
		}
	}
}

// TestBothFamilies: a node gets a block of each network, in the order of the settings, and a run more writes nothing.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{ipv6, ipv4}, Excluded: func(context.Context) ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("10.192.0.0/25"), netip.MustParsePrefix("fd00:1:2:1::/112")}, nil
	}})
	c.add("a")
	c.add("b")
	require.NoError(t, a.Run(t.Context()))
	require.NoError(t, a.Run(t.Context()), "the cache shows nothing of it yet")
	assert.Equal(t, map[string][]string{"a": {"fd00:1:2::/64", "10.192.1.0/24"}, "b": {"fd00:1:2:2::/64", "10.192.2.0/24"}}, c.sync())
	c.kube.ClearActions()
	require.NoError(t, a.Run(t.Context()))
	assert.Empty(t, c.kube.Actions(), "nobody waits, so that nothing is asked")
	assert.Empty(t, a.grants)
	assert.Empty(t, c.said())
}

// TestRangesStay: a Node with a range keeps it, whatever it is, and whoever wrote it, also in the moment before our own write.
func TestRangesStay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{ipv4}})
	c.add("outside", "172.16.0.0/24")
	c.add("single")
	single := c.sync()
	require.NotNil(t, single)
	c.add("joining")
	// Somebody else writes between our listing and our write.
	list := 0
	c.kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if list++; list == 1 {
			n, err := c.kube.Tracker().Get(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", "single")
			require.NoError(t, err)
			other := n.(*v1.Node).DeepCopy()
			other.Spec.PodCIDR, other.Spec.PodCIDRs = "10.192.3.0/24", []string{"10.192.3.0/24"}
			require.NoError(t, c.kube.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, other, ""))
		}
		return false, nil, nil
	})
	require.ErrorContains(t, a.Run(t.Context()), "podCIDR may not change")
	assert.Contains(t, strings.Join(c.said(), "\n"), "Warning CIDRAssignmentFailed")
	require.NoError(t, a.Run(t.Context()), "what the cache does not show, the API server does")
	ranges := c.sync()
	assert.Equal(t, []string{"172.16.0.0/24"}, ranges["outside"])
	assert.Equal(t, []string{"10.192.3.0/24"}, ranges["single"])
	assert.Equal(t, []string{"10.192.1.0/24"}, ranges["joining"])
}

// TestNothingTwiceWhereWritesFail: writes fail in both ways, before they take effect and after it, and no range is given twice.
func TestNothingTwiceWhereWritesFail(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{{Network: netip.MustParsePrefix("10.192.0.0/20"), Bits: 24}}})
	calls := 0
	c.kube.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch calls++; calls % 3 {
		case 0:
			return true, nil, errors.New("timeout, and nothing was done")
		case 1:
			handled, _, err := clienttesting.ObjectReaction(c.kube.Tracker())(action)
			require.NoError(t, err)
			return handled, nil, errors.New("timeout, and all was done")
		}
		return false, nil, nil
	})
	for i := range 12 {
		c.add(fmt.Sprint("n", i))
		_ = a.Run(t.Context())
		if i%2 == 0 {
			c.sync()
		}
	}
	for range 20 {
		_ = a.Run(t.Context())
		c.sync()
	}
	seen := map[string]string{}
	for name, ranges := range c.sync() {
		require.Len(t, ranges, 1, name)
		assert.Empty(t, seen[ranges[0]], "%s and %s have %s", name, seen[ranges[0]], ranges[0])
		seen[ranges[0]] = name
	}
	assert.NotContains(t, strings.Join(c.said(), "\n"), EventConflict)
}

// TestNodeThatGoesMeanwhile: a Node that is deleted between our look and our write needs no range; nothing is tried again for it, and
// its range is free.
func TestNodeThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{ipv4}})
	c.add("gone")
	first := true
	c.kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if first {
			first = false
			require.NoError(t, c.kube.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", "gone"))
		}
		return false, nil, nil
	})
	require.NoError(t, a.Run(t.Context()))
	assert.Empty(t, a.grants)
	assert.Empty(t, c.said())
	c.sync()
	c.add("next")
	require.NoError(t, a.Run(t.Context()))
	assert.Equal(t, []string{"10.192.0.0/24"}, c.sync()["next"])
}

// TestOtherAllocator: where somebody else gives ranges as well, the younger Node of a pair says so once; one that lies in another's
// counts too.
func TestOtherAllocator(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{ipv4}})
	c.add("old", "10.192.0.0/23")
	c.add("fine", "10.192.2.0/24")
	c.add("young", "10.192.1.0/24")
	for range 3 {
		require.NoError(t, a.Run(t.Context()))
	}
	said := c.said()
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "Warning PodCIDRConflict its pod range 10.192.1.0/24 is also that of node old; delete this Node")
	assert.Contains(t, said[0], "kube-controller-manager with --allocate-node-cidrs")
}

// TestRangesOfTheCloud: a node gets what the cloud has given to its instance; one whose instance has nothing holds nobody up, and says
// so. Where the cloud routes the ranges, the node is told that it has its network, once, also where somebody else wrote the range.
func TestRangesOfTheCloud(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	missing := errors.New("the cloud does not answer")
	of := func(_ context.Context, n *v1.Node, expected int) (netip.Prefix, error) {
		assert.Equal(t, 3, expected)
		switch n.Name {
		case "bare":
			return netip.Prefix{}, &NotAvailable{Reason: "its instance has no alias range"}
		case "unknown":
			return netip.Prefix{}, missing
		}
		return netip.MustParsePrefix("10.200.7.0/24"), nil
	}
	a := c.controller(Settings{Networked: true, Families: []Family{{Of: of}}})
	c.add("served", "10.200.6.0/24")
	for _, name := range []string{"bare", "unknown", "new"} {
		c.add(name)
	}
	require.ErrorIs(t, a.Run(t.Context()), missing)
	assert.Equal(t, []string{"Warning CIDRNotAvailable its instance has no alias range"}, c.said(), "doubt is no news")
	ranges := c.sync()
	assert.Equal(t, map[string][]string{"served": {"10.200.6.0/24"}, "bare": nil, "unknown": nil, "new": {"10.200.7.0/24"}}, ranges)
	for name := range ranges {
		n, err := c.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		if ranges[name] == nil {
			assert.Empty(t, n.Status.Conditions, name)
			continue
		}
		require.Len(t, n.Status.Conditions, 1, name)
		condition := n.Status.Conditions[0]
		assert.False(t, condition.LastHeartbeatTime.IsZero())
		condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.Time{}, metav1.Time{}
		assert.Equal(t, v1.NodeCondition{
			Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "RouteCreated", Message: "NodeController create implicit route",
		}, condition)
	}
	for _, name := range []string{"bare", "unknown"} {
		require.NoError(t, c.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	c.sync()
	c.kube.ClearActions()
	require.NoError(t, a.Run(t.Context()))
	assert.Zero(t, c.writes())
}

// hooked is an API server that does something before each call about Nodes.
type hooked struct {
	kubernetes.Interface

	before func()
}

func (h hooked) CoreV1() corev1.CoreV1Interface { return hookedCore{h.Interface.CoreV1(), h.before} }

type hookedCore struct {
	corev1.CoreV1Interface

	before func()
}

func (h hookedCore) Nodes() corev1.NodeInterface {
	h.before()
	return h.CoreV1Interface.Nodes()
}

// TestTwoReleasesGiveNoRangeTwice: two releases with a part of the nodes each, also for different clouds, whose runs cross at every
// single call.
func TestTwoReleasesGiveNoRangeTwice(t *testing.T) {
	t.Parallel()
	for _, clouds := range [][2]string{{"square", "square"}, {"square", "round"}} {
		for stop := range 8 {
			c := newCluster(t)
			settings := Settings{Families: []Family{ipv6, ipv4}, Shared: true, Claim: Claim(clouds[0])}
			first := c.controller(settings)
			settings.Claim = Claim(clouds[1])
			second := c.controller(settings)
			parts := [2]cache.Indexer{newIndexer(), newIndexer()}
			first.Nodes, second.Nodes = listers.NewNodeLister(parts[0]), listers.NewNodeLister(parts[1])
			for i, name := range []string{"b", "a"} {
				require.NoError(t, parts[i].Add(c.add(name)))
			}
			// The second release does all that it has to do before one of the first one's calls.
			calls := 0
			first.Kube = hooked{c.kube, func() {
				if calls++; calls == stop {
					_ = second.Run(t.Context())
				}
			}}
			for range 10 {
				_, _ = first.Run(t.Context()), second.Run(t.Context())
			}
			seen := map[string]bool{}
			for name, ranges := range c.sync() {
				require.Len(t, ranges, 2, "%d %s", stop, name)
				seen[ranges[0]], seen[ranges[1]] = true, true
			}
			for _, n := range c.cache.List() {
				assert.Empty(t, n.(*v1.Node).Annotations)
			}
			assert.Len(t, seen, 4, "%d: no range twice", stop)
		}
	}
}

// TestNewLeaderTrustsNoCache: what the former leader wrote a moment before may be missing in the cache of the API server. The first look
// is at what the API server knows for certain; the later ones are spared that.
func TestNewLeaderTrustsNoCache(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.controller(Settings{Families: []Family{ipv4}})
	var versions []string
	lagging := true
	c.kube.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		version := action.(clienttesting.ListActionImpl).ListOptions.ResourceVersion
		versions = append(versions, version)
		if lagging && version == "0" {
			return true, &v1.NodeList{}, nil
		}
		return false, nil, nil
	})
	former := c.add("former", "10.192.0.0/24")
	require.NoError(t, c.cache.Delete(former))
	c.add("n1")
	require.NoError(t, a.Run(t.Context()))
	lagging = false
	assert.Equal(t, []string{"10.192.1.0/24"}, c.sync()["n1"])
	versions = nil
	c.add("n2")
	require.NoError(t, a.Run(t.Context()))
	assert.Equal(t, []string{"0"}, versions)
}

func TestSame(t *testing.T) {
	assert.True(t, Same("10.0.0.0/24", "10.0.0.9/24"))
	assert.True(t, Same("2001:db8::/64", "2001:0db8:0:0::1/64"))
	assert.True(t, Same("?", "?"))
	assert.False(t, Same("10.0.0.0/24", "10.0.0.0/25"))
	assert.False(t, Same("10.0.0.0/24", "?"))
}
