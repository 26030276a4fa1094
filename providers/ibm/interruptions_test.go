package ibm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// lives are sequences of changes that users make to a Service.
var lives = map[string]struct {
	annotations []string
	steps       []func(*v1.Service)
}{
	"ranges, groups of the user, nobody": {steps: []func(*v1.Service){
		func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "198.51.100.7/32"}
			s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		},
		func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations[annotationGroups] = ibmsim.WebGroup
		},
		func(s *v1.Service) { delete(s.Annotations, annotationGroups) },
	}},
	"ports change places": {steps: []func(*v1.Service){
		func(*v1.Service) {},
		func(s *v1.Service) { s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30443, 30080 },
		func(s *v1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[1].Port = 443, 80 },
		func(s *v1.Service) {
			s.Spec.Ports = []v1.ServicePort{conformance.Port("alt", 8080, 30080)}
			s.Annotations[annotationSubnets] = "lb-subnet"
		},
	}},
	"network, UDP, a range": {annotations: []string{annotationFeatures, featureNLB, annotationCheckUDP, "10256"}, steps: []func(*v1.Service){
		func(s *v1.Service) { s.Annotations[annotationPortRange] = "443-450" },
		func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP },
		func(s *v1.Service) { s.Annotations[annotationPortRange] = "443-460"; s.Spec.Ports[0].NodePort = 30099 },
		func(s *v1.Service) {
			delete(s.Annotations, annotationPortRange)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		},
	}},
	"checks": {steps: []func(*v1.Service){
		func(s *v1.Service) { s.Annotations[annotationIdle], s.Annotations[annotationCheckDelay] = "90", "20" },
		func(s *v1.Service) {
			s.Annotations[annotationFeatures] = featureProxy
			delete(s.Annotations, annotationIdle)
		},
		func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
			delete(s.Annotations, annotationCheckDelay)
		},
	}},
}

// live takes a Service through a life, broken at its k-th write; 0 is none. It returns the states after the steps, and whether it was
// broken. A program that breaks ends there: the next one knows nothing, and goes on, or deletes the Service at once.
func live(t *testing.T, name, kind string, k int, deletes bool) (states []string, broken bool) {
	t.Helper()
	inWorld(t, 2, time.Second, nil, func(w *world) {
		s := web(lives[name].annotations...)
		if k > 0 {
			_, err := w.server.AddFault(simkit.Fault{Kind: kind, Writes: true, From: k})
			require.NoError(w.t, err)
		}
		heal := func() {
			broken = true
			w.server.ClearFaults()
			w.restart()
		}
		for _, step := range lives[name].steps {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			step(s)
			if err := w.ensure(s); err != nil {
				require.False(w.t, broken, "write %d: %v", k, err)
				require.Positive(w.t, k, "%v", err)
				if heal(); deletes {
					break
				}
				w.mustEnsure(s)
			}
			states = append(states, snapshot(w.t, w.sim))
		}
		if err := w.remove(s); err != nil {
			require.False(w.t, broken, "write %d: %v", k, err)
			require.Positive(w.t, k, "%v", err)
			heal()
			require.NoError(w.t, w.remove(s), "write %d", k)
		}
		assert.Empty(w.t, snapshot(w.t, w.sim), "write %d: nothing is left", k)
		for _, text := range w.server.Calls().Refused { // a PATCH whose answer was lost is sent once more with the ETag of before
			assert.Contains(w.t, text, "precondition_failed", "write %d", k)
		}
	})
	return states, broken
}

// TestInterruptedAtEachWrite: a program that ends at any write of a life, before or after the write takes effect, leaves nothing that the
// next one, which knows nothing, does not set right; and nothing at all where the Service is deleted then.
func TestInterruptedAtEachWrite(t *testing.T) {
	t.Parallel()
	for name := range lives {
		for _, kind := range []string{simkit.FaultReset, simkit.FaultLost, simkit.FaultHTML} {
			for _, deletes := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", kind, ", deleted ", deletes), func(t *testing.T) {
					t.Parallel()
					want, _ := live(t, name, "", 0, false)
					require.Len(t, want, len(lives[name].steps))
					for k := 1; ; k++ {
						require.Less(t, k, 80)
						states, broken := live(t, name, kind, k, deletes)
						require.LessOrEqual(t, len(states), len(want))
						for n, state := range states {
							assert.Equal(t, want[n], state, "write %d, step %d", k, n)
						}
						if !broken {
							require.Greater(t, k, len(want), "it was broken at writes")
							break
						}
					}
				})
			}
		}
	}
}

// TestInterruptedWithOthersWorkers: the workers belong to IBM's own account, so that no instance tells what a load balancer leads to. One
// that was made right before the program ended is found all the same.
func TestInterruptedWithOthersWorkers(t *testing.T) {
	t.Parallel()
	inWorld(t, 0, 0, func(file string) string {
		return strings.Replace(file, "g2workerServiceAccountID = "+ibmsim.Account, "g2workerServiceAccountID = ibm", 1)
	}, func(w *world) {
		n := labelledNode("worker-1", "10.0.0.4", "kube-abc-1")
		w.nodes = []*v1.Node{n}
		w.bench.Register(n)
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		s.Status = v1.ServiceStatus{}
		w.restart()
		w.writes()
		assert.NoError(w.t, w.ensure(s))
		assert.Empty(w.t, w.writes())
		s.Status = v1.ServiceStatus{}
		w.restart()
		require.NoError(w.t, w.remove(s))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// TestInterruptedAndChanged: a load balancer with a name that was chosen is made, which takes minutes, and the program ends before the
// Service shows it. Meanwhile the Service, or the nodes, change. It is the Service's all the same.
func TestInterruptedAndChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, s *v1.Service){
		"nothing":           func(*world, *v1.Service) {},
		"another port":      func(_ *world, s *v1.Service) { s.Spec.Ports[0].Port = 8080 },
		"another node port": func(_ *world, s *v1.Service) { s.Spec.Ports[0].NodePort = 30099 },
		"other nodes": func(w *world, _ *v1.Service) {
			w.bench.Unregister(w.nodes[0])
			w.sim.Remove(w.nodes[0].Spec.ProviderID[strings.LastIndex(w.nodes[0].Spec.ProviderID, "/")+1:])
			w.nodes = nil
			w.addNode("worker-2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 4*time.Minute, nil, func(w *world) {
				s := conformance.Service("web", map[string]string{annotationName: "shop", annotationFeatures: featureNLB},
					conformance.Port("http", 80, 30080))
				w.bench.Apply(s.DeepCopy())
				ctx, cut := context.WithTimeout(w.t.Context(), time.Minute)
				defer cut()
				_, err := w.cloud.loadBalancers.EnsureLoadBalancer(ctx, "", s.DeepCopy(), w.nodes)
				require.Error(w.t, err)
				require.Len(w.t, w.sim.LoadBalancers(), 1)
				s.Annotations = w.bench.Current(s).Annotations
				w.restart()
				change(w, s)
				time.Sleep(5 * time.Minute)
				assert.NoError(w.t, w.ensure(s))
				assert.NotEmpty(w.t, s.Status.LoadBalancer.Ingress)
				require.NoError(w.t, w.remove(s))
				assert.Empty(w.t, w.sim.LoadBalancers())
			})
		})
	}
}

// TestInterruptedCreationOfAnotherService: what is left of another Service's creation is not this one's, though it chooses the same name
// later.
func TestInterruptedCreationOfAnotherService(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		s.Status = v1.ServiceStatus{}
		w.bench.Apply(s.DeepCopy())
		w.restart()
		w.writes()
		claim := second(map[string]string{annotationName: "shop", annotationRecord: madeShop})
		require.ErrorContains(w.t, w.ensure(claim), "belongs to")
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", claim))
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		assert.NotEmpty(w.t, ibmsim.Cluster)
	})
}

// TestInterruptedCreationIsFound: the program ends after each write in turn, of a creation with a group and a chosen name, of a change, and
// of a deletion; the next one finds all that was made, and nothing is left when the Service goes.
func TestInterruptedCreationIsFound(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"before it took effect": simkit.FaultReset, "after it took effect": simkit.FaultLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k, done := 1, false; !done; k++ {
				inWorld(t, 2, time.Second, nil, func(w *world) {
					s := conformance.Service("web", map[string]string{annotationName: "shop"}, conformance.Port("http", 80, 30080))
					s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
					_, err := w.server.AddFault(simkit.Fault{Kind: kind, Writes: true, From: k})
					require.NoError(w.t, err)
					failed := w.ensure(s) != nil
					if !failed {
						s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
						s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
						failed = w.ensure(s) != nil
					}
					if !failed {
						failed = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s) != nil
					}
					done = !failed
					w.server.ClearFaults()
					w.restart()
					s.Status = v1.ServiceStatus{} // the creation was not answered
					s.Spec.LoadBalancerSourceRanges = nil
					w.mustEnsure(s)
					require.Len(w.t, w.sim.LoadBalancers(), 1, "write %d", k)
					assert.Equal(w.t, "shop", w.sim.LoadBalancers()[0].Name)
					assert.Empty(w.t, w.sim.MadeGroups(), "write %d", k)
					assert.Equal(w.t, []string{defaults}, w.groups())
					w.restart()
					s.Status = v1.ServiceStatus{}
					require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
					assert.Empty(w.t, snapshot(w.t, w.sim), "write %d", k)
				})
				require.Less(t, k, 40)
			}
		})
	}
}
