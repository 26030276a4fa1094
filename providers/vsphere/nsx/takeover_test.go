package nsx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

type fields = map[string]any

// twoPorts is a Service with a port of each protocol.
func twoPorts() *v1.Service {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	return service("web", nil, port("http", 80, 30080), udp)
}

func TestTakeoverOfLoadBalancersWritesNothing(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *testWorld, o *nsxsim.Original, s *v1.Service){
		"plain":         func(*testWorld, *nsxsim.Original, *v1.Service) {},
		"SNAT disabled": func(_ *testWorld, o *nsxsim.Original, _ *v1.Service) { o.SNAT = "LBSnatDisabled" },
		"another class": func(_ *testWorld, o *nsxsim.Original, s *v1.Service) {
			o.Class, o.Pool, o.Address = "dmz", nsxsim.OtherPool, "198.51.100.7"
			s.Annotations = map[string]string{annotationClass: " dmz "}
		},
		"without the right to read the cluster's identity": func(w *testWorld, _ *nsxsim.Original, _ *v1.Service) {
			w.hideIdentity()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				w.addNode("n1", "10.0.0.1")
				w.addNode("n2", "10.0.0.2")
				s, o := twoPorts(), nsxsim.NewOriginal(w.sim)
				arrange(w, o, s)
				o.Serve(s, w.nodes)
				w.Apply(s)
				w.server.ResetCalls()
				for range 2 { // the takeover, and the next restart
					w.restart()
					status, err := w.try(s)
					require.NoError(w.T, err)
					assert.Equal(w.T, s.Status.LoadBalancer, *status)
					w.update(s)
					w.requireNoKubeWrites()
				}
				assert.Empty(w.T, w.writes())
				assert.Empty(w.T, w.Events())
			})
		})
	}
}

// What is taken over is marked with the next write that is due, and not before.
func TestTakenOverIsMarkedWithTheNextWrite(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		s, o := twoPorts(), nsxsim.NewOriginal(w.sim)
		o.Serve(s, w.nodes)
		w.Apply(s)
		w.addNode("n2", "10.0.0.2")
		w.server.ResetCalls()
		w.update(s)
		assert.Equal(w.T, map[string]int{"PUT /policy/api/v1/infra/lb-pools/{id}": 2}, counts(w.writes()))
		for _, p := range w.sim.Objects(pathPools) {
			assert.Equal(w.T, "anyccm:test-cluster", p.Tag(scopeMark))
			assert.Equal(w.T, "kubernetes:n1", p.Fields["members"].([]any)[0].(fields)["display_name"], "those that stay keep their order")
			assert.Equal(w.T, "kubernetes:n2", p.Fields["members"].([]any)[1].(fields)["display_name"])
		}
		for _, v := range w.sim.Objects(pathServers) {
			assert.Empty(w.T, v.Tag(scopeMark))
		}
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths(), "all of it goes, with the load balancer service of this cluster")
		w.requireNothingRefused()
	})
}

// Two clusters are called alike: what the other one has is neither taken over nor deleted.
func TestTwoClustersOfOneName(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *testWorld, s *v1.Service){
		"the other one's is marked": func(w *testWorld, s *v1.Service) {
			other := newTestWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			other.Apply(s)
			other.ensure(s)
		},
		"the status is a copy of the other one's": func(w *testWorld, s *v1.Service) {
			other := newTestWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			other.Apply(s)
			*s = *other.ensure(s)
		},
		"the other one's is the work of the cloud's own controller": func(w *testWorld, s *v1.Service) {
			other := newTestWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			nsxsim.NewOriginal(other.sim).Serve(s, other.nodes)
			s.Status = v1.ServiceStatus{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := twoPorts()
				prepare(w, s)
				s.ResourceVersion = ""
				w.addNode("n1", "10.0.0.1")
				w.Apply(s)
				before := string(w.sim.State())
				w.server.ResetCalls()
				_, err := w.try(s)
				require.ErrorContains(w.T, err, "belongs to another cluster")
				require.ErrorContains(w.T, err, "--cluster-name")
				assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning LoadBalancerNotOurs")
				w.update(s)
				require.NoError(w.T, w.remove(s))
				found, err := w.Orphans(w.T.Context(), nil)
				require.NoError(w.T, err)
				assert.Empty(w.T, found)
				assert.Empty(w.T, w.writes())
				assert.Equal(w.T, before, string(w.sim.State()))
			})
		})
	}
}
