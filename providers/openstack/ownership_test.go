package openstack

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestMarks: what is made for a Service carries its UID, and that of the cluster; a Service of the same name that follows
// takes over what the former one left.
func TestMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		tags := w.sim.LoadBalancers()[0].Tags
		assert.Contains(t, tags, ownership.ServiceMark(s.UID))
		assert.True(t, strings.HasPrefix(tags[1], markPrefix), "%v", tags)
		w.vanish(s)
		again := rename(web(nil), "web")
		w.Apply(again)
		again, _ = w.ensure(again)
		lbs := w.sim.LoadBalancers()
		require.Len(t, lbs, 1)
		assert.Contains(t, lbs[0].Tags, ownership.ServiceMark(again.UID))
		assert.NotContains(t, lbs[0].Tags, ownership.ServiceMark(s.UID))
		w.requireNoWrites(again)
	})
}

// TestClaims: a Service that names another one's load balancer gets nothing of it, however old it is, and both are told.
func TestClaims(t *testing.T) {
	t.Parallel()
	claim := func(id string) *v1.Service {
		s := rename(service("tenant", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), "tenant")
		s.Namespace = "elsewhere"
		return s
	}
	t.Run("of another namespace", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "", web(nil))
			w.refuses(claim(owner.Annotations[annotationID]), "belongs to Service default/web and is left alone")
			events := strings.Join(w.Events(), "\n")
			assert.Contains(t, events, ownership.EventNotOurs)
			assert.Contains(t, events, ownership.EventClaimed)
		})
	})
	t.Run("by the name of early releases", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "", web(nil))
			w.sim.ChangeLoadBalancer(owner.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) {
				lb.Name, lb.Tags = legacyName(owner), []string{}
			})
			w.restart()
			w.refuses(claim(owner.Annotations[annotationID]), "belongs to Service default/web and is left alone")
		})
	})
	t.Run("whose Service is of another cluster", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newTestWorld(t, "", nil)
			w.addNode(openstacksim.Spec{Name: "n1"})
			lb := w.sim.AddLoadBalancer("kube_service_kubernetes_elsewhere_web", firstSubnet)
			w.refuses(claim(lb.ID), "which is not of this cluster")
		})
	})
	t.Run("after another name of the cluster", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newTestWorld(t, "", nil)
			w.addNode(openstacksim.Spec{Name: "n1"})
			lb := w.sim.AddLoadBalancer("kube_service_production_default_web", firstSubnet)
			s := web(map[string]string{annotationID: lb.ID, annotationAddress: lb.VIPAddress})
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.77"}}
			w.refuses(s, "which is not of this cluster")
		})
	})
}

// refuses tries to reconcile a Service, and to delete it: that fails, or does nothing, without any write.
func (w *world) refuses(s *v1.Service, want string) {
	w.T.Helper()
	w.Apply(s)
	w.server.ResetCalls()
	_, err := w.try(s)
	require.ErrorContains(w.T, err, want)
	require.NoError(w.T, w.reconciler.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes))
	require.NoError(w.T, w.remove(s))
	assert.Zero(w.T, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
}

// incident is something that happens to a cluster or its Service while no controller runs.
type incident func(*world, *v1.Service)

// nodesReplaced makes the nodes be others than those that the load balancer sends its traffic to.
func nodesReplaced(w *world, _ *v1.Service) {
	for _, n := range w.nodes {
		w.Unregister(n)
	}
	w.nodes = nil
	w.addNode(openstacksim.Spec{Name: fmt.Sprintf("new-%d", len(w.sim.List()))})
}

func membersDropped(w *world, _ *v1.Service) {
	for _, p := range w.sim.Pools() {
		w.sim.ChangePool(p.ID, func(p *openstacksim.Pool) { p.DropMembers() })
	}
}

// membersMoved makes the members have their addresses in another network with the same range.
func membersMoved(w *world, _ *v1.Service) {
	other := w.sim.AddSubnet(w.sim.AddNetwork("other", false), "other", "10.0.0.0/16")
	for _, p := range w.sim.Pools() {
		w.sim.ChangePool(p.ID, func(p *openstacksim.Pool) { p.MoveMembers(other) })
	}
}

func recordsForgotten(_ *world, s *v1.Service) {
	s.Annotations, s.Status = map[string]string{}, v1.ServiceStatus{}
}

// statusForgotten leaves the Service all that its author can write.
func statusForgotten(_ *world, s *v1.Service) { s.Status = v1.ServiceStatus{} }

// leftService is a Service whose load balancer the cloud's own controller left.
func leftService(t *testing.T, w *world, l left) *v1.Service {
	t.Helper()
	s := web(nil)
	if l.annotations != nil {
		s = web(maps.Clone(l.annotations))
	}
	if l.hostname != "" {
		s.Annotations[annotationHostname] = l.hostname
	}
	leave(t, w, s, l)
	return s
}

// TestClustersCalledAlike: the name that OpenStack's own controller gives is another cluster's, too, where both have the same name.
// It takes the address in the status or a node of ours among the members to tell whose an unmarked load balancer is.
func TestClustersCalledAlike(t *testing.T) {
	t.Parallel()
	const refused = "another cluster of the same name"
	for name, c := range map[string]struct {
		left    left
		since   []incident
		adopt   registry.Adoption
		refused bool
		writes  int
	}{
		"as it was left":                            {},
		"as it was left, by a host name":            {left: left{hostname: "web.example.com"}},
		"found by name alone":                       {since: []incident{recordsForgotten}},
		"all nodes are others, the status shows it": {since: []incident{nodesReplaced}, writes: 1},
		"all nodes are others, a private address": {
			left:  left{internal: true, annotations: map[string]string{annotationInternal: textTrue}},
			since: []incident{nodesReplaced}, writes: 1,
		},
		"all nodes are others, by a host name":            {left: left{hostname: "web.example.com"}, since: []incident{nodesReplaced}, refused: true},
		"all nodes are others, by a host name, allowed":   {left: left{hostname: "web.example.com"}, since: []incident{nodesReplaced}, adopt: registry.AdoptAny, writes: 1},
		"another cluster's, found by name":                {since: []incident{nodesReplaced, recordsForgotten}, refused: true},
		"another cluster's, named by annotations":         {since: []incident{nodesReplaced, statusForgotten}, refused: true},
		"another cluster's, named by annotations, none":   {since: []incident{nodesReplaced, statusForgotten}, adopt: registry.AdoptNone, refused: true},
		"another cluster's, without members":              {since: []incident{membersDropped, recordsForgotten}, refused: true},
		"without members, with its address in a record":   {since: []incident{membersDropped, statusForgotten}, writes: 1},
		"another cluster's, on a network like this one's": {since: []incident{membersMoved, statusForgotten}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.addNode(openstacksim.Spec{Name: "n1"})
				w.adopt = c.adopt
				s := leftService(t, w, c.left)
				for _, since := range c.since {
					since(w, s)
				}
				w.restart()
				if c.refused {
					before := w.sim.LoadBalancers()
					w.refuses(s, refused)
					assert.Contains(t, strings.Join(w.Events(), "\n"), ownership.EventNotOurs)
					assert.Equal(t, before, w.sim.LoadBalancers())
					return
				}
				w.Apply(s)
				w.server.ResetCalls()
				s, _ = w.ensure(s)
				assert.Equal(t, c.writes, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
				nodesReplaced(w, s) // what was proved stays so
				w.update(s)
				w.restart() // then the record and the status prove it
				require.NoError(t, w.remove(s))
				assert.Empty(t, w.sim.LoadBalancers())
			})
		})
	}
}

// TestGuestsOfClustersCalledAlike: nobody joins another cluster's load balancer because a Service here has the same name.
func TestGuestsOfClustersCalledAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(nil)
		lb := w.sim.AddLoadBalancer(loadBalancerName(w.cluster, s), firstSubnet)
		w.Apply(s)
		w.refuses(rename(service("guest", map[string]string{annotationID: lb.ID}, servicePort("x", 81, 30081)), "guest"), "which is not of this cluster")
	})
}

// TestTakeoverOfARenamedCluster: without marks, what the status shows and what the members are tell whose it is.
func TestTakeoverOfARenamedCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		adopt       registry.Adoption
		refused     string
	}{
		"by its address":   {},
		"by its members":   {annotations: map[string]string{annotationHostname: "web.example.com"}},
		"nothing is taken": {adopt: registry.AdoptNone, refused: "which is not of this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.addNode(openstacksim.Spec{Name: "n1"})
				s := web(c.annotations)
				leave(t, w, s, left{hostname: c.annotations[annotationHostname]})
				w.cluster, w.adopt = "production", c.adopt
				w.restart()
				w.Apply(s)
				if c.refused != "" {
					_, err := w.try(s)
					require.ErrorContains(t, err, c.refused)
					return
				}
				s, _ = w.ensure(s)
				require.Len(t, w.sim.LoadBalancers(), 1)
				assert.Equal(t, "kube_service_production_default_web", w.sim.LoadBalancers()[0].Name)
				assert.Contains(t, w.sim.LoadBalancers()[0].Tags, ownership.ServiceMark(s.UID), "it is written anyway")
				require.NoError(t, w.remove(s))
				assert.Empty(t, w.sim.LoadBalancers(), "a controller made it")
			})
		})
	}
}

// TestTagsOfOthers: a listener keeps the tags that somebody else gave it.
func TestTagsOfOthers(t *testing.T) {
	t.Parallel()
	u, reason := listenerChanges(
		listener{Tags: []string{"theirs"}, ConnectionLimit: -1}, listenerRequest{Tags: []string{"kube_service_a_b_c"}, ConnectionLimit: -1},
	)
	assert.Equal(t, "tags", reason)
	assert.Equal(t, []string{"theirs", "kube_service_a_b_c"}, *u.Tags)
	_, reason = listenerChanges(
		listener{Tags: []string{"theirs", "kube_service_a_b_c"}, ConnectionLimit: -1},
		listenerRequest{Tags: []string{"kube_service_a_b_c"}, ConnectionLimit: -1},
	)
	assert.Empty(t, reason)
}

// pretender adds a Node of no cloud that is known here, which tells any address it likes.
func (w *world) pretender(address string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-pretender"}, Spec: v1.NodeSpec{ProviderID: "elsewhere://1"}}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
	w.Register(node)
	w.nodes = append(w.nodes, node)
}

// TestAddressOfAnotherNode: a Node that tells another one's address keeps nobody's load balancer from being changed.
func TestAddressOfAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.pretender(w.nodes[0].Status.Addresses[0].Address)
		w.requireNoWrites(s)
		w.addNode(openstacksim.Spec{Name: "n3"})
		require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		assert.Len(t, w.sim.Pools()[0].BackendMembers(), 3)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestUnknownNodeProvesNothing: what a Node of no known cloud tells makes another cluster's load balancer nobody's here.
func TestUnknownNodeProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		theirs := w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(nil)
		leave(t, w, s, left{})
		s.Annotations, s.Status = map[string]string{}, v1.ServiceStatus{}
		w.Unregister(theirs)
		w.nodes = nil
		w.addNode(openstacksim.Spec{Name: "ours"})
		w.pretender(theirs.Status.Addresses[0].Address)
		w.restart()
		w.refuses(s, "another cluster of the same name")
		assert.Len(t, w.sim.LoadBalancers(), 1)
	})
}
