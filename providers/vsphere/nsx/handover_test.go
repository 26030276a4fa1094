package nsx

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// markedObjects are the marks that NSX has, by path, of what has any; addresses are left out, whose marks cannot change.
func (w *testWorld) markedObjects() map[string][]string {
	all := map[string][]string{}
	for _, collection := range []string{pathServices, pathServers, pathPools, pathMonitors} {
		for _, o := range w.sim.Objects(collection) {
			list, _ := o.Fields["tags"].([]any)
			for _, t := range list {
				if tag := t.(fields); tag["scope"] == scopeMark {
					all[o.Path] = append(all[o.Path], fmt.Sprint(tag["tag"]))
				}
			}
		}
	}
	return all
}

// restored is a cluster that was rebuilt: what NSX has for its Service is marked with the identity that it had before, and so is what
// NSX has for a Service that is not there any more.
func restored(w *testWorld) (*testWorld, *v1.Service) {
	w.T.Helper()
	before := newTestWorldOn(w, "before")
	before.addNode("n1", "10.0.0.1")
	s, gone := twoPorts(), service("gone", nil, port("http", 80, 30090))
	s.UID, gone.UID = "web-before", "gone-before"
	for _, x := range []*v1.Service{s, gone} {
		before.Apply(x)
		before.ensure(x)
	}
	w.addNode("n1", "10.0.0.1")
	now := twoPorts()
	w.Apply(now)
	_, err := w.try(now)
	require.ErrorContains(w.T, err, "belongs to another cluster")
	w.Events()
	return w, now
}

// requireStaleRefused demands that nothing is handed over which is not what was listed.
func (w *testWorld) requireStaleRefused(m contract.MarkedLoadBalancer, s *v1.Service) {
	w.T.Helper()
	for _, stale := range []contract.MarkedLoadBalancer{
		{ID: m.ID, Cluster: "another", ServiceUID: m.ServiceUID},
		{ID: m.ID, Cluster: m.Cluster, ServiceUID: "another"},
		{ID: "kubernetes/default/other", Cluster: m.Cluster, ServiceUID: m.ServiceUID},
	} {
		require.ErrorContains(w.T, w.RemarkLoadBalancer(w.T.Context(), stale, s.UID), "carries other marks by now")
	}
}

// A cluster that was rebuilt gets the marks of what it had, with the load balancer service; what it has no Service for stays.
func TestHandover(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w, s := restored(w)
		ctx, before := w.T.Context(), string(w.sim.State())
		address := w.sim.Objects(pathServers)[0].Text("ip_address")
		internal := s.DeepCopy()
		internal.Spec.Type = v1.ServiceTypeClusterIP
		marked, err := w.MarkedLoadBalancers(ctx, []*v1.Service{internal})
		require.NoError(w.T, err)
		require.Len(w.T, marked, 2)
		assert.Empty(w.T, marked[1].Claims, "no load balancer is wanted")
		marked, err = w.MarkedLoadBalancers(ctx, []*v1.Service{s, service("other", nil, port("http", 80, 30091))})
		require.NoError(w.T, err)
		assert.Equal(w.T, []contract.MarkedLoadBalancer{
			{ID: "kubernetes/default/gone", Name: "cluster:kubernetes:default/gone", Cluster: "before", ServiceUID: "gone-before"},
			{
				ID: "kubernetes/default/web", Name: "cluster:kubernetes:default/web", Cluster: "before", ServiceUID: "web-before",
				Claims: []string{"default/web"},
			},
		}, marked)
		w.requireStaleRefused(marked[1], s)
		assert.Equal(w.T, before, string(w.sim.State()), "nothing is changed so far")

		require.NoError(w.T, w.RemarkLoadBalancer(ctx, marked[1], s.UID))
		ours := []string{"anyccm:test-cluster", ownership.ServiceMark(s.UID)}
		for path, marks := range w.markedObjects() {
			switch o := w.sim.Get(path); {
			case o.Tag(scopeService) == "default/web":
				assert.Equal(w.T, ours, marks, path)
			case strings.HasPrefix(path, pathServices):
				assert.Equal(w.T, ours[:1], marks, path)
			default:
				assert.Equal(w.T, []string{"anyccm:before", "anyccm-svc:gone-before"}, marks, path)
			}
		}
		require.ErrorContains(w.T, w.RemarkLoadBalancer(ctx, marked[1], s.UID), "carries other marks by now")
		again, err := w.MarkedLoadBalancers(ctx, []*v1.Service{s})
		require.NoError(w.T, err)
		require.Len(w.T, again, 2)
		assert.Equal(w.T, "test-cluster", again[1].Cluster, "the address is not listed on its own")

		w.restart()
		w.server.ResetCalls()
		s = w.ensure(s)
		assert.Equal(w.T, address, s.Status.LoadBalancer.Ingress[0].IP)
		assert.Empty(w.T, w.writes())
		found, err := w.Orphans(ctx, []*v1.Service{s})
		require.NoError(w.T, err)
		assert.Empty(w.T, found)
		require.NoError(w.T, w.remove(s))
		for _, path := range w.sim.Paths() {
			o := w.sim.Get(path)
			assert.True(w.T, o.Tag(scopeService) == "default/gone" || strings.HasPrefix(path, pathServices), path)
		}
		w.requireNothingRefused()
	})
}

// A handover that broke off after any of its writes is listed as before, and done again.
func TestHandoverBrokenOff(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w, s := restored(w)
		ctx, living := w.T.Context(), []*v1.Service{s}
		marked, err := w.MarkedLoadBalancers(ctx, living)
		require.NoError(w.T, err)
		for k := range 5 { // one of several, each time
			_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Writes: true, From: 2, Count: 1})
			require.NoError(w.T, err)
			require.Error(w.T, w.RemarkLoadBalancer(ctx, marked[1], s.UID), "%d", k)
			w.server.ClearFaults()
			w.restart()
			again, err := w.MarkedLoadBalancers(ctx, living)
			require.NoError(w.T, err)
			require.True(w.T, slices.ContainsFunc(again, func(m contract.MarkedLoadBalancer) bool {
				return m.ID == marked[1].ID && m.Cluster == "before" && m.ServiceUID == "web-before" && slices.Equal(m.Claims, marked[1].Claims)
			}), "%v", again)
		}
		require.NoError(w.T, w.RemarkLoadBalancer(ctx, marked[1], s.UID))
		for path, marks := range w.markedObjects() {
			if w.sim.Get(path).Tag(scopeService) != "default/gone" {
				assert.NotContains(w.T, marks, "anyccm:before", path)
			}
		}
		w.server.ResetCalls()
		w.ensure(s)
		assert.Empty(w.T, w.writes())
	})
}

// The address keeps the mark of before, as NSX does not change it. It is released with the Service all the same, wherever the deletion
// breaks off, and whatever ports the Service got and lost.
func TestAddressThatWasHandedOverIsReleased(t *testing.T) {
	t.Parallel()
	allocations := pathIPPools + "/" + nsxsim.PoolID + "/ip-allocations"
	left := func(w *testWorld) (list []string) {
		for _, a := range w.sim.Objects(allocations) {
			list = append(list, a.Tag(scopeService))
		}
		return list
	}
	handedOver := func(w *testWorld) *v1.Service {
		w, s := restored(w)
		marked, err := w.MarkedLoadBalancers(w.T.Context(), []*v1.Service{s})
		require.NoError(w.T, err)
		require.NoError(w.T, w.RemarkLoadBalancer(w.T.Context(), marked[1], s.UID))
		return w.ensure(s)
	}
	for k := 1; k <= 6; k++ {
		t.Run(fmt.Sprintf("the deletion breaks off after %d writes", k), func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := handedOver(w)
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Writes: true, From: k})
				require.NoError(w.T, err)
				require.Error(w.T, w.remove(s))
				w.server.ClearFaults()
				w.restart()
				require.NoError(w.T, w.remove(s))
				assert.Equal(w.T, []string{"default/gone"}, left(w))
			})
		})
	}
	t.Run("an orphan", func(t *testing.T) {
		t.Parallel()
		inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
			s := handedOver(w)
			require.NoError(w.T, w.Kube.CoreV1().Services("default").Delete(w.T.Context(), s.Name, metav1.DeleteOptions{}))
			found, err := w.Orphans(w.T.Context(), nil)
			require.NoError(w.T, err)
			require.Len(w.T, found, 1)
			require.NoError(w.T, w.DeleteOrphan(w.T.Context(), found[0]))
			assert.Equal(w.T, []string{"default/gone"}, left(w))
		})
	})
	t.Run("all ports are others", func(t *testing.T) {
		t.Parallel()
		inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
			s := handedOver(w)
			address := s.Status.LoadBalancer.Ingress[0].IP
			for _, p := range []v1.ServicePort{port("alt", 8080, 30081), port("third", 8081, 30082)} {
				s = w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = []v1.ServicePort{p} }))
				assert.Equal(w.T, address, s.Status.LoadBalancer.Ingress[0].IP)
			}
			w.restart()
			require.NoError(w.T, w.remove(s))
			assert.Equal(w.T, []string{"default/gone"}, left(w))
		})
	})
}

// A neighbour's of the same Service name is not claimed by a Service that has its own under another cluster name, and an address
// alone cannot be handed over.
func TestWhatIsNotHandedOver(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		neighbour := newTestWorldOn(w, "neighbour")
		neighbour.cluster = "another-name"
		neighbour.addNode("m1", "10.9.0.1")
		neighbour.Apply(webService())
		neighbour.ensure(webService())
		s := serving(w, webService())
		at := pathIPPools + "/vip-pool/ip-allocations/left"
		tags := nsxsim.OriginalTags("cluster", "kubernetes", "service", "default/left")
		w.sim.Add(at, fields{"tags": append(tags, fields{"scope": scopeMark, "tag": "anyccm:before"})})
		left := service("left", nil, port("http", 80, 30085))
		w.restart()
		marked, err := w.MarkedLoadBalancers(w.T.Context(), []*v1.Service{s, left})
		require.NoError(w.T, err)
		require.Len(w.T, marked, 3)
		assert.Equal(w.T, []string{"another-name/default/web", "kubernetes/default/left", "kubernetes/default/web"},
			[]string{marked[0].ID, marked[1].ID, marked[2].ID})
		assert.Empty(w.T, marked[0].Claims)
		w.server.ResetCalls()
		err = w.RemarkLoadBalancer(w.T.Context(), marked[1], left.UID)
		require.ErrorContains(w.T, err, "only "+at+" is left of it")
		w.hideIdentity()
		w.restart()
		require.ErrorIs(w.T, w.RemarkLoadBalancer(w.T.Context(), marked[0], s.UID), ownership.ErrUnknown)
		assert.Empty(w.T, w.writes())
	})
	none := &Parts{}
	_, err := none.MarkedLoadBalancers(t.Context(), nil)
	require.ErrorIs(t, err, contract.ErrNoHandover)
	require.ErrorIs(t, none.RemarkLoadBalancer(t.Context(), contract.MarkedLoadBalancer{}, ""), contract.ErrNoHandover)
}
