package ibm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// remove deletes the load balancer of a Service.
func (w *world) remove(s *v1.Service) error {
	return w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s.DeepCopy())
}

// lives are what users do with a Service, one step after the other.
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

// TestBrokenLives: a program that ends at any write of a life, before or after the write takes effect, leaves nothing that the next one,
// which knows nothing, does not set right; and nothing at all where the Service is deleted then.
func TestBrokenLives(t *testing.T) {
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

// TestRangesWhileListingsLag: who may reach a Service is what it asks for last, though listings of security groups are behind our own
// writes. Nothing is asked for twice meanwhile.
func TestRangesWhileListingsLag(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"back again": "192.0.2.0/24", "the same once more": "203.0.113.0/24"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				time.Sleep(5 * time.Minute)
				w.sim.SetListingLag(30 * time.Second)
				time.Sleep(time.Minute)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.mustEnsure(s)
				require.Equal(w.t, []string{"tcp 80-80 203.0.113.0/24"}, w.lets())
				s.Spec.LoadBalancerSourceRanges = []string{last}
				assert.NoError(w.t, w.ensure(s))
				assert.Equal(w.t, []string{"tcp 80-80 " + last}, w.lets())
				assert.Empty(w.t, w.server.Calls().Refused)
				assert.NotContains(w.t, w.told(), "Warning")
			})
		})
	}
}

// TestGroupStillShowsTarget: a security group shows a load balancer for a while after that has gone, or was detached. It is ours alone
// nonetheless, and goes.
func TestGroupStillShowsTarget(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, s *v1.Service) error{
		"the Service goes": func(w *world, s *v1.Service) error { return w.remove(s) },
		"the ranges go":    func(w *world, s *v1.Service) error { s.Spec.LoadBalancerSourceRanges = nil; return w.ensure(s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 10*time.Second, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				time.Sleep(time.Minute)
				w.told()
				w.sim.SetTargetLag(20 * time.Second)
				for try := 0; ; try++ { // the framework asks again as long as it is told to
					if err := end(w, s); err == nil {
						break
					}
					require.Less(w.t, try, 20)
					time.Sleep(5 * time.Second)
				}
				time.Sleep(time.Minute)
				assert.Empty(w.t, w.sim.MadeGroups(), "what was told: %s", w.told())
			})
		})
	}
}

// TestStatusBehind: a load balancer shows that it is active for a moment after a write, and refuses the next one. That is no failure.
func TestStatusBehind(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(time.Minute)
		w.sim.SetStatusLag(8 * time.Second)
		w.writes()
		s.Spec.Ports[0].NodePort = 30099
		require.NoError(w.t, w.ensure(s))
		conflicts := 0
		for _, c := range w.server.Calls().Latest {
			if c.Status == http.StatusConflict {
				conflicts++
			}
		}
		assert.LessOrEqual(w.t, conflicts, 3, "it is not asked over and over")
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", put}, w.writes())
	})
}

// TestSomebodyElsesWork: writes are refused for a minute because the cloud works for somebody else, which no status shows.
func TestSomebodyElsesWork(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusConflict, Operation: "PATCH " + oneLB + "/pools", For: simkit.Duration(time.Minute),
		})
		require.NoError(w.t, err)
		s.Spec.Ports[0].NodePort = 30099
		require.NoError(w.t, w.ensure(s), "the next try is due in about 10 s, and this is no failure")
		assert.LessOrEqual(w.t, w.server.Calls().ByOperation["PATCH "+oneLB+"/pools/{id}"], 20)
	})
}

// TestNameOfAnothersService: nobody takes the name that a controller is about to give to somebody else's load balancer, in this cluster
// or in another one of the VPC.
func TestNameOfAnothersService(t *testing.T) {
	t.Parallel()
	victim := conformance.Service("victim", nil, conformance.Port("http", 80, 30080))
	for name, taken := range map[string]string{
		"of this cluster": ownName(ibmsim.Cluster, victim), "of another cluster": ownName("ocp4-other", victim),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := victim.DeepCopy()
				w.bench.Apply(s.DeepCopy()) // which has no load balancer yet
				tenant := second(map[string]string{annotationName: taken, annotationIPType: typePrivate})
				assert.Error(w.t, w.ensure(tenant), "it is refused")
				assert.Empty(w.t, w.writes())
				assert.NoError(w.t, w.ensure(s), "its owner has it")
			})
		})
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

// labelledNode is a Node that labels describe whole.
func labelledNode(name, address, worker string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labelInternalIP: address, labelWorker: worker, labelType: "bx2.4x16", labelZone: "us-south-1", labelRegion: "us-south",
		v1.LabelTopologyZone: "us-south-1",
	}}}
	n.Spec.ProviderID = "ibm://" + ibmsim.Account + "///" + ibmsim.Cluster + "/" + worker
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
	return n
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
			w.sim.RemoveInstanceByID(w.nodes[0].Spec.ProviderID[strings.LastIndex(w.nodes[0].Spec.ProviderID, "/")+1:])
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

// TestNodesThatAreNoInstances: a bare metal server, or a server in another VPC, is described by its labels, and IBM's own controller sends
// traffic to its address. A takeover takes that from no node without a word.
func TestNodesThatAreNoInstances(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
			lb.Pools = slices.Clone(lb.Pools)
			for n := range lb.Pools {
				p := &lb.Pools[n]
				p.Members = append(slices.Clone(p.Members), ibmsim.Member{
					ID: "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000bbbb", Port: p.Members[0].Port, Target: ibmsim.Target{Address: "10.0.3.3"},
				})
			}
		}))
		metal := labelledNode("metal-1", "10.0.3.3", "0717-e21b7391-2ca2-4ab5-84a8-b92157a633b0")
		w.bench.Register(metal)
		w.nodes = append(w.nodes, metal)
		time.Sleep(time.Minute)
		w.told()
		w.restart()
		w.writes()
		w.mustEnsure(s)
		told := w.told()
		assert.True(w.t, len(w.writes()) == 0 || strings.Contains(told, "metal-1"), "served as before, or an event tells: %q", told)
	})
}

// TestUnlistedAtDeletion: a credential that lost the right to see load balancers still sees the subnets. That its listing is empty proves
// no absence of a load balancer that the Service shows, or at least somebody is told.
func TestUnlistedAtDeletion(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"while it runs": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				require.NotEmpty(w.t, s.Status.LoadBalancer.Ingress)
				time.Sleep(5 * time.Minute)
				if restarts {
					w.restart()
				}
				w.told()
				id := w.sim.LoadBalancers()[0].ID
				for _, f := range []simkit.Fault{{Kind: "empty-list", Operation: "GET /v1/load_balancers$"}, {Kind: simkit.FaultVanished, Names: id}} {
					_, err := w.server.AddFault(f)
					require.NoError(w.t, err)
				}
				_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
				if err == nil && exists {
					err = w.remove(s)
				}
				require.Len(w.t, w.sim.LoadBalancers(), 1)
				assert.True(w.t, err != nil || w.told() != "", "it stays in the cloud for ever, and nobody knows")
			})
		})
	}
}

// TestListingThatShifts: a load balancer is deleted while a listing of several pages is read, so that another one falls between two pages.
// It is not taken for absent by that.
func TestListingThatShifts(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		for n := range 100 {
			w.sim.AddLoadBalancer(fmt.Sprint("other-", n), ibmsim.VPC)
		}
		s := web()
		w.mustEnsure(s)
		for n := range 5 {
			w.sim.AddLoadBalancer(fmt.Sprint("later-", n), ibmsim.VPC)
		}
		w.restart()
		w.sim.DropAfterPage("other-0")
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		assert.True(w.t, err != nil || exists, "or the framework takes it for deleted")
	})
}

// TestTokenEndsBetweenPages: a token that ends in the middle of a listing costs one more login, and no error.
func TestTokenEndsBetweenPages(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		for n := range 120 {
			w.sim.AddLoadBalancer(fmt.Sprint("other-", n), ibmsim.VPC)
		}
		s := web()
		w.sim.EndTokensAfterPage()
		w.mustEnsure(s)
		assert.Equal(w.t, []string{create}, w.writes())
		w.sim.EndTokens() // and in the middle of changes
		s.Spec.Ports[0].NodePort = 30099
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", put}, w.writes())
		assert.Empty(w.t, w.told())
	})
}

// TestRangeOverPort: a range that covers another port of the Service is told of before anything is written, and takes no port away.
func TestRangeOverPort(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationFeatures, featureNLB, annotationPortRange, "80-90")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.writes()
		s.Annotations[annotationPortRange] = "80-500" // 443 is a port of its own
		require.Error(w.t, w.ensure(s))
		assert.Contains(w.t, w.told(), eventConfigError)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
	})
}

// TestCutNameAdopted: two Services have one name because it was cut. The operator allows adoption, which is about what nobody in this
// cluster has: what another Service shows is its own.
func TestCutNameAdopted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", longestCluster)
	inWorld(t, 1, 0, func(file string) string {
		return strings.Replace(file, "clusterID = "+ibmsim.Cluster, "clusterID = "+long, 1)
	}, func(w *world) {
		w.in.Adopt = registry.AdoptAny
		w.restart()
		owner := web()
		owner.UID = "5c000000-7a66-4b58-8b4b-0a61c1f9e0aa"
		claim := second(nil)
		require.Equal(w.t, ownName(long, owner), ownName(long, claim))
		w.mustEnsure(owner)
		w.bench.Apply(owner.DeepCopy()) // with its status
		before := snapshot(w.t, w.sim)
		w.writes()
		for range 2 {
			assert.Error(w.t, w.ensure(claim))
			w.restart()
		}
		w.mustEnsure(owner)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
	})
}

// TestGoneWhenNodesChange: a load balancer that somebody deleted is made again at the next change of nodes, as the monitor's event says, or
// the framework is told that there is none.
func TestGoneWhenNodesChange(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
		w.mustEnsure(s)
		w.sim.RemoveLoadBalancers()
		time.Sleep(5 * time.Minute)
		w.addNode("worker-2")
		err := w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes)
		assert.True(w.t, err != nil || len(w.sim.LoadBalancers()) == 1, "success, and nothing is there")
	})
}

// TestAmbiguousNode: one Node that two instances may be keeps no other one from joining.
func TestAmbiguousNode(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		w.sim.AddInstance("twin")
		w.sim.AddInstance("twin")
		w.addNode("worker-2")
		twin := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin"}}
		assert.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, append(slices.Clone(w.nodes), twin)))
		assert.Len(w.t, w.sim.LoadBalancers()[0].Pools[0].Members, 2)
	})
}

// TestAskedForTooLate: what counts only at the creation is told of where it is asked for later.
func TestAskedForTooLate(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationIPType, typePrivate)
		w.mustEnsure(s)
		w.told()
		w.writes()
		s.Annotations[annotationDNSInstance] = "crn:v1:bluemix:public:dns-svcs:global:a/1::"
		s.Annotations[annotationDNSZone] = "example-com-zone1"
		err := w.ensure(s)
		assert.True(w.t, err != nil || len(w.writes()) > 0 || w.told() != "", "no zone, and no word")
	})
}

// TestGroupThatARuleNames: a user lets members of a Service's group reach something, by a rule of a group of their own. The Service goes,
// and lives without ranges, all the same; the group stays with an event, as one that somebody else uses.
func TestGroupThatARuleNames(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, s *v1.Service) error{
		"the Service goes": func(w *world, s *v1.Service) error { return w.remove(s) },
		"the ranges go":    func(w *world, s *v1.Service) error { s.Spec.LoadBalancerSourceRanges = nil; return w.ensure(s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				own := w.sim.MadeGroups()[0].ID
				require.NoError(w.t, w.sim.EditSecurityGroup(ibmsim.WebGroup, func(g *ibmsim.SecurityGroup) {
					g.Rules = append(g.Rules, ibmsim.Rule{
						ID: "r006-by-hand", Direction: inbound, Family: "ipv4", Protocol: protocolTCP, PortMin: 5432, PortMax: 5432,
						Remote: ibmsim.Remote{ID: own},
					})
				}))
				time.Sleep(time.Minute)
				w.told()
				assert.NoError(w.t, end(w, s), "or it is tried for ever")
				assert.Contains(w.t, w.told(), eventLeft)
			})
		})
	}
}

// userGroup makes a security group as a user does.
func (w *world) userGroup(name string) {
	w.t.Helper()
	vpc, err := w.cloud.reconciler.vpc(w.t.Context())
	require.NoError(w.t, err)
	require.NoError(w.t, w.cloud.api.call(w.t.Context(), request{
		what: "making a group", method: http.MethodPost, path: "/security_groups", in: map[string]any{
			"name": name, "vpc": named{ID: vpc}, "resource_group": named{ID: ibmsim.GroupID},
		},
	}, &named{}))
}

// TestAllGroupsReplaced: a load balancer has as many groups as it takes, and is to have others. Nothing is open meanwhile, and it comes to
// an end.
func TestAllGroupsReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Service){
		"by others of the user": func(s *v1.Service) { s.Annotations[annotationGroups] = "b-0,b-1,b-2,b-3,b-4" },
		"by source ranges": func(s *v1.Service) {
			delete(s.Annotations, annotationGroups)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				for n := range maxGroups {
					w.userGroup(fmt.Sprint("a-", n))
					w.userGroup(fmt.Sprint("b-", n))
				}
				s := web(annotationGroups, "a-0,a-1,a-2,a-3,a-4")
				w.mustEnsure(s)
				require.Len(w.t, w.groups(), maxGroups)
				change(s)
				assert.NoError(w.t, w.ensure(s))
				for _, g := range w.groups() {
					assert.NotContains(w.t, g, "a-", "what is no longer asked for is gone")
				}
			})
		})
	}
}

// TestPartsByHand: what somebody changed by hand in the parts of a load balancer is set right in one go, whatever hangs together with it.
func TestPartsByHand(t *testing.T) {
	t.Parallel()
	extra := func(lb *ibmsim.LoadBalancer, name string) string {
		p := lb.Pools[0]
		p.ID, p.Name, p.Members = "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000aaaa", name, nil
		lb.Pools = append(slices.Clone(lb.Pools), p)
		return p.ID
	}
	for name, change := range map[string]func(*ibmsim.LoadBalancer){
		"a listener leads to another pool": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool = &ibmsim.Reference{ID: extra(lb, "blue")}
		},
		"a listener leads to another pool, and its own has gone": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool = &ibmsim.Reference{ID: extra(lb, "blue")}
			lb.Pools = lb.Pools[1:]
		},
		"two listeners have changed pools": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool, lb.Listeners[1].Pool = lb.Listeners[1].Pool, lb.Listeners[0].Pool
		},
		"a listener leads nowhere": func(lb *ibmsim.LoadBalancer) { lb.Listeners[0].Pool = nil },
		"two pools have changed names": func(lb *ibmsim.LoadBalancer) {
			lb.Pools[0].Name, lb.Pools[1].Name = lb.Pools[1].Name, lb.Pools[0].Name
		},
		"a pool of before has the name of the next": func(lb *ibmsim.LoadBalancer) { extra(lb, "tcp-80-30081") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				before := snapshot(w.t, w.sim)
				time.Sleep(time.Minute)
				require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
					lb.Listeners, lb.Pools = slices.Clone(lb.Listeners), slices.Clone(lb.Pools)
					change(lb)
				}))
				w.restart()
				assert.NoError(w.t, w.ensure(s))
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
				w.writes()
				assert.NoError(w.t, w.ensure(s))
				assert.Empty(w.t, w.writes())
			})
		})
	}
}

// TestTenPorts: a load balancer with as many ports as it takes gets as many others.
func TestTenPorts(t *testing.T) {
	t.Parallel()
	for _, feature := range []string{featureALB, featureNLB} {
		t.Run(feature, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				ports := func(from int32) (list []v1.ServicePort) {
					for n := range int32(maxPorts) {
						list = append(list, conformance.Port(fmt.Sprint("p", n), from+n, 30000+n))
					}
					return list
				}
				s := web(annotationFeatures, feature)
				s.Spec.Ports = ports(1000)
				w.mustEnsure(s)
				s.Spec.Ports = ports(2000)
				w.mustEnsure(s)
				assert.Len(w.t, w.sim.LoadBalancers()[0].Listeners, maxPorts)
				w.writes()
				w.mustEnsure(s)
				assert.Empty(w.t, w.writes())
			})
		})
	}
}

// TestClusterBesideCluster: a second cluster in the VPC has a Service of the same UID, with the same name, record, node ports and status,
// as one that was restored from a backup of the first. Its nodes are others. What the first one has is not touched.
func TestClusterBesideCluster(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.config = strings.Replace(w.config, "clusterID = "+ibmsim.Cluster, "clusterID = restored", 1)
		w.bench.Unregister(w.nodes[0])
		w.nodes = nil
		w.restart()
		w.addNode("restored-worker-1")
		w.writes()
		_ = w.ensure(s)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		_ = w.remove(s)
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
	})
}
