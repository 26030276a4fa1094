package openstack

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestAnotherPoolTakesOver: the pool of a listener serves until one of another protocol is complete, also where the program ends in
// between; and that one goes if it is not wanted any more.
func TestAnotherPoolTakesOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused string
		proxy   string
		want    string
	}{
		"it has no members yet":     {"PUT /load-balancer/v2.0/lbaas/pools/{id}/members", textTrue, "PROXY"},
		"it has no monitor yet":     {"POST /load-balancer/v2.0/lbaas/healthmonitors", textTrue, "PROXY"},
		"no listener has it yet":    {"PUT /load-balancer/v2.0/lbaas/listeners/{id}", textTrue, "PROXY"},
		"the former one is there":   {"DELETE /load-balancer/v2.0/lbaas/pools/{id}", textTrue, "PROXY"},
		"it is not wanted any more": {"PUT /load-balancer/v2.0/lbaas/listeners/{id}", "", "TCP"},
		"yet another one is wanted": {"PUT /load-balancer/v2.0/lbaas/listeners/{id}", "v2", "PROXYV2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				before := w.sim.Serves()
				fault, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: c.refused, Writes: true})
				require.NoError(t, err)
				_ = w.refuse(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue })
				require.Len(t, w.sim.Pools(), 2)
				assert.Equal(t, before, w.sim.Serves())
				w.server.RemoveFault(fault)
				w.restart()
				w.changed(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = c.proxy })
				require.Len(t, w.sim.Pools(), 1)
				assert.Equal(t, c.want, w.sim.Pools()[0].Protocol)
				assert.Len(t, w.sim.Monitors(), 1)
				assert.Equal(t, before, w.sim.Serves())
				w.requireNoWrites(s)
			})
		})
	}
}

// TestPoolOfAPolicy: a pool of the user's that a policy of a listener leads to is never taken for the listener's own.
func TestPoolOfAPolicy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *v1.Service, string){
		"another protocol": func(_ *world, s *v1.Service, _ string) { s.Annotations[annotationProxyProtocol] = textTrue },
		"ours was deleted": func(w *world, _ *v1.Service, own string) { w.sim.DropPool(own); w.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				own := w.sim.Pools()[0].ID
				request := poolRequest{LoadBalancerID: s.Annotations[annotationID], Name: "images", Protocol: "TCP", Method: "ROUND_ROBIN"}
				made, err := w.api.do(t.Context(), step{kind: createPool, id: request.LoadBalancerID, body: request})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				listener := w.sim.Listeners()[0].ID
				w.sim.ChangePool(made, func(p *openstacksim.Pool) { p.RedirectFrom(listener); p.FillMembers(3) })
				s, _ = w.changed(s, func(s *v1.Service) { change(w, s, own) })
				require.Len(t, w.sim.Pools(), 2)
				for _, p := range w.sim.Pools() {
					if p.ID == made {
						assert.Len(t, p.BackendMembers(), 3, "the user's")
					}
				}
				assert.NotContains(t, []string{own, made}, *w.sim.Listeners()[0].DefaultPoolID)
				w.requireNoWrites(s)
			})
		})
	}
}

// TestFormerPoolOfAnotherName: the pool that a listener leaves goes, whoever named it, also where the program ends in between.
func TestFormerPoolOfAnotherName(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{
		"at once": "", "later": "DELETE /load-balancer/v2.0/lbaas/pools/{id}", "the listener is late": "PUT /load-balancer/v2.0/lbaas/listeners/{id}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				w.sim.ChangePool(w.sim.Pools()[0].ID, func(p *openstacksim.Pool) {
					p.Name, p.Tags = "renamed by hand", []string{"mine", markPrefix + "former"}
				})
				w.restart()
				change := func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue }
				if refused != "" {
					fault, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: refused, Writes: true})
					require.NoError(t, err)
					_ = w.refuse(s, change)
					require.Len(t, w.sim.Pools(), 2)
					w.server.RemoveFault(fault)
					w.restart()
				}
				s, _ = w.changed(s, change)
				require.Len(t, w.sim.Pools(), 1)
				assert.Equal(t, "PROXY", w.sim.Pools()[0].Protocol)
				w.requireNoWrites(s)
			})
		})
	}
}

// TestPoolOfAnotherCluster: a pool without a listener has a mark, by which a Service called alike in a cluster called alike neither takes
// nor deletes it.
func TestPoolOfAnotherCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: "PUT /load-balancer/v2.0/lbaas/listeners/{id}"})
		require.NoError(t, err)
		_ = w.refuse(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue })
		pools := w.sim.Pools()
		require.Len(t, pools, 2)
		mark, err := w.reconciler.cluster.Mark(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{loadBalancerName(w.cluster, s), mark}, pools[1].Tags)
		w.sim.ChangePool(pools[1].ID, func(p *openstacksim.Pool) { p.Tags[1] = markPrefix + "another" })
		w.server.ClearFaults()
		w.restart()
		_, _ = w.changed(s, func(*v1.Service) {})
		after := w.sim.Pools()
		require.Len(t, after, 2)
		assert.NotEqual(t, pools[1].ID, *w.sim.Listeners()[0].DefaultPoolID)
		assert.True(t, slices.ContainsFunc(after, func(p openstacksim.Pool) bool { return p.ID == pools[1].ID }))
	})
}

// TestPoolsOfGuestsCalledAlike: the pool that a guest's listener leaves is not another guest's, whose Service and cluster are called alike.
func TestPoolsOfGuestsCalledAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, owner := newServedWorld(t, "", web(nil))
		guestOf := func(uid types.UID, port int32) (*world, *v1.Service) {
			guest := w.anotherCluster(w.cluster, "share-across-namespaces = true\n")
			namespace, err := guest.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
			require.NoError(t, err)
			namespace.UID = uid
			_, err = guest.Kube.CoreV1().Namespaces().Update(t.Context(), namespace, metav1.UpdateOptions{})
			require.NoError(t, err)
			guest.restart()
			s := rename(service("guest", map[string]string{annotationID: owner.Annotations[annotationID]}, servicePort("x", port, 30090)), "guest")
			guest.Apply(s)
			s, _ = guest.ensure(s)
			return guest, s
		}
		guest, s := guestOf("second", 90)
		third, other := guestOf("third", 91)
		fault, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: 400, Operation: "DELETE /load-balancer/v2.0/lbaas/pools/{id}", Writes: true,
		})
		require.NoError(t, err)
		_ = guest.refuse(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue })
		require.Len(t, w.sim.Pools(), 4)
		w.server.RemoveFault(fault)
		third.restart()
		third.requireNoWrites(other)
		w.requireNoWrites(owner)
		_, _ = guest.changed(s, func(*v1.Service) {})
		assert.Len(t, w.sim.Pools(), 3)
	})
}

// TestNoRoomForAnotherPool: where a quota has no room for two pools of a listener, the former one goes first.
func TestNoRoomForAnotherPool(t *testing.T) {
	t.Parallel()
	for kind, most := range map[string]int{"pool": 1, "member": 2, "healthmonitor": 1} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				before := w.sim.Serves()
				w.sim.SetQuota(kind, most)
				s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue })
				require.Len(t, w.sim.Pools(), 1)
				assert.Equal(t, "PROXY", w.sim.Pools()[0].Protocol)
				assert.Len(t, w.sim.Monitors(), 1)
				assert.Equal(t, before, w.sim.Serves())
				w.requireNoWrites(s)
			})
		})
	}
}

// TestRefusedPort: what Octavia refuses for one port of a Service holds up no other one.
func TestRefusedPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", service("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)))
		fault, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: "PUT /load-balancer/v2.0/lbaas/pools/{id}/members", Writes: true, Count: 1,
		})
		require.NoError(t, err)
		w.server.ResetCalls()
		_ = w.refuse(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = textTrue })
		protocols := map[int]string{}
		for _, l := range w.sim.Listeners() {
			for _, p := range w.sim.Pools() {
				if p.ID == *l.DefaultPoolID {
					protocols[l.ProtocolPort] = p.Protocol
				}
			}
		}
		assert.Equal(t, map[int]string{80: "TCP", 443: "PROXY"}, protocols)
		assert.Equal(t, 2, w.server.Calls().ByOperation["PUT /load-balancer/v2.0/lbaas/pools/{id}/members"], "it is tried once in a turn")
		w.server.RemoveFault(fault)
		s, _ = w.changed(s, func(*v1.Service) {})
		assert.Len(t, w.sim.Pools(), 2)
		w.requireNoWrites(s)
	})
}

// TestRefusedOpening: a node port that cannot be opened keeps its pool where it is, and holds up nothing else.
func TestRefusedOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", service("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)))
		w.sim.SetQuota("security_group_rule", 2)
		gone := w.nodes[1]
		w.nodes = w.nodes[:1]
		err := w.refuse(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort, s.Annotations[annotationTCPInspect] = 30081, "9" })
		require.ErrorContains(t, err, "Quota exceeded")
		assert.Equal(t, []string{"tcp 30080 10.0.0.0/16", "tcp 30443 10.0.0.0/16"}, groupRules(w))
		for _, l := range w.sim.Listeners() {
			pool := w.sim.Pools()[slices.IndexFunc(w.sim.Pools(), func(p openstacksim.Pool) bool { return p.ID == *l.DefaultPoolID })]
			want := []int{30443}
			if l.ProtocolPort == 80 {
				want = []int{30080, 30080}
			}
			var ports []int
			for _, m := range pool.BackendMembers() {
				ports = append(ports, m.ProtocolPort)
				assert.True(t, l.ProtocolPort == 80 || m.Name != gone.Name)
			}
			assert.Equal(t, want, ports)
			assert.Equal(t, l.ProtocolPort == 443, l.TimeoutTCPInspect == 9)
		}
		w.sim.SetQuota("security_group_rule", 9)
		s, _ = w.changed(s, func(*v1.Service) {})
		assert.Equal(t, []string{"tcp 30081 10.0.0.0/16", "tcp 30443 10.0.0.0/16"}, groupRules(w))
		w.requireNoWrites(s)
	})
}

// TestRefusedPortOfANode: a node whose port does not get the group is no member yet; others join and leave.
func TestRefusedPortOfANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		w.addNode(openstacksim.Spec{Name: "shut"})
		w.addNode(openstacksim.Spec{Name: "late"})
		for _, p := range w.sim.Ports() {
			if strings.HasSuffix(w.nodes[2].Spec.ProviderID, "/"+p.DeviceID) {
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "PUT /networking/v2.0/ports/{id}", Names: p.ID})
				require.NoError(t, err)
			}
		}
		members := func() (names []string) {
			for _, m := range w.sim.Pools()[0].BackendMembers() {
				names = append(names, m.Name)
			}
			slices.Sort(names)
			return names
		}
		require.Error(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		assert.Equal(t, []string{"late", "n1", "n2"}, members())
		w.nodes = w.nodes[1:]
		require.Error(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		assert.Equal(t, []string{"late", "n2"}, members())
		w.server.ClearFaults()
		time.Sleep(time.Minute)
		w.update(s)
		assert.Equal(t, []string{"late", "n2", "shut"}, members())
	})
}
