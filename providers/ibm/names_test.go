package ibm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// What the record says of load balancers with these names that are about to be made.
const (
	madeShop  = recordMade + ibmsim.Cluster + "/shop"
	madeStore = recordMade + ibmsim.Cluster + "/store"
)

func second(annotations map[string]string) *v1.Service {
	s := conformance.Service("second", annotations, conformance.Port("http", 8000, 30800))
	s.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return s
}

// TestNameChanges (34): with another name a Service has another load balancer. The one that it had stays, an event says so, and once the
// Service is gone it is an orphan where its name shows that it was the Service's.
func TestNameChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		w.drainEvents()
		s.Annotations = map[string]string{annotationName: "shop"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{create, create}, w.writes())
		assert.Contains(w.t, w.drainEvents(), eventLeft)
		s.Annotations = map[string]string{annotationName: "store"}
		w.mustEnsure(s)
		assert.Contains(w.t, w.drainEvents(), "load balancer shop")
		w.writes()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Equal(w.t, []string{"DELETE " + oneLB}, w.writes(), "only the one that it has")
		orphans, err := w.cloud.Orphans(w.t.Context(), []*v1.Service{s})
		require.NoError(w.t, err)
		assert.Empty(w.t, orphans, "as long as the Service is there, it may be its")
		orphans, err = w.cloud.Orphans(w.t.Context(), nil)
		require.NoError(w.t, err)
		require.Len(w.t, orphans, 1, "a name that was chosen proves nothing")
		assert.Equal(w.t, ownName(ibmsim.Cluster, s), orphans[0].Name)
	})
}

// TestSameName (34): of two Services with one name, the first has the load balancer. The second is refused, and changes and deletes
// nothing.
func TestSameName(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		first := web(annotationName, "shop")
		w.mustEnsure(first)
		before := snapshot(w.t, w.sim)
		w.writes()
		claim := second(map[string]string{annotationName: "shop"})
		for range 2 {
			require.Error(w.t, w.ensure(claim))
			assert.NotEmpty(w.t, w.drainEvents())
			w.restart()
		}
		require.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", claim, w.nodes))
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", claim))
		w.mustEnsure(first)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", first))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// TestNameInterrupted: a program that ends after the creation, before the Service shows it, finds it again by what is behind it.
func TestNameInterrupted(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		s.Status = v1.ServiceStatus{}
		w.restart()
		w.writes()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		s.Status = v1.ServiceStatus{}
		w.restart()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// TestNameRetyped: Kubernetes takes status and node ports from a Service that becomes one of another type. What is behind its load balancer
// tells then; what others have, or made by hand, stays.
func TestNameRetyped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world)
		left    int
	}{
		"its own": {func(*world) {}, 0},
		"another Service has the node port": {func(w *world) {
			third := conformance.Service("third", nil, conformance.Port("http", 9000, 30080))
			third.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0bb"
			w.bench.Apply(third)
		}, 1},
		"its pools were made by hand": {func(w *world) {
			require.NoError(w.t, w.sim.EditLoadBalancer("shop", func(lb *ibmsim.LoadBalancer) {
				lb.Pools = slices.Clone(lb.Pools)
				lb.Pools[0].Name = "api"
			}))
		}, 1},
		"its members are no nodes": {func(w *world) {
			require.NoError(w.t, w.sim.EditLoadBalancer("shop", func(lb *ibmsim.LoadBalancer) {
				lb.Pools = slices.Clone(lb.Pools)
				for n := range lb.Pools {
					lb.Pools[n].Members = []ibmsim.Member{{ID: "r006-x", Port: lb.Pools[n].Members[0].Port, Target: ibmsim.Target{Address: "10.9.9.9"}}}
				}
			}))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 2, 0, nil, func(w *world) {
				s := web(annotationName, "shop")
				w.mustEnsure(s)
				c.prepare(w)
				require.Contains(w.t, s.Annotations[annotationRecord], madeShop+"/")
				s.Annotations[annotationRecord] = madeShop // it was not proved any more
				s.Spec.Type, s.Status = v1.ServiceTypeClusterIP, v1.ServiceStatus{}
				for n := range s.Spec.Ports {
					s.Spec.Ports[n].NodePort = 0
				}
				w.bench.Apply(s.DeepCopy())
				w.restart()
				require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
				assert.Len(w.t, w.sim.LoadBalancers(), c.left)
			})
		})
	}
}

// TestZones (51): a network load balancer goes where the cluster has the fewest; those of other clusters do not count, however they begin.
func TestZones(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		zone := func(lb ibmsim.LoadBalancer) string {
			for _, n := range w.sim.Subnets() {
				if n.ID == lb.Subnets[0] {
					return n.Zone
				}
			}
			return ""
		}
		first := second(map[string]string{annotationFeatures: featureNLB})
		w.mustEnsure(first)
		s := web(annotationFeatures, featureNLB)
		w.mustEnsure(s)
		list := w.sim.LoadBalancers()
		assert.NotEqual(w.t, zone(list[0]), zone(list[1]))
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		w.bench.Withdraw(s)
		for range 2 { // of another cluster, where there is none of ours
			id := w.sim.AddLoadBalancer("kube-"+ibmsim.Cluster+"-x2-"+string(first.UID)[:8], ibmsim.VPC)
			require.NotEmpty(w.t, id)
		}
		for _, lb := range w.sim.LoadBalancers()[1:] {
			require.NoError(w.t, w.sim.EditLoadBalancer(lb.Name, func(lb *ibmsim.LoadBalancer) { lb.Network, lb.Subnets = true, list[1].Subnets }))
		}
		time.Sleep(time.Minute)
		w.mustEnsure(s)
		all := w.sim.LoadBalancers()
		assert.Equal(w.t, zone(list[1]), zone(all[len(all)-1]))
	})
}

// TestChecksOfUDP (54): the node port of UDP answers no health check, whatever else the annotations say.
func TestChecksOfUDP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings settings
		local    bool
		want     monitor
	}{
		"its own port": {settings{CheckUDP: 10256}, false, monitor{Type: protocolTCP, Port: 10256}},
		"by http": {
			settings{CheckUDP: 10256, CheckProtocol: protocolHTTP, CheckPath: "/healthz"},
			false,
			monitor{Type: protocolHTTP, Port: 10256, Path: "/healthz"},
		},
		"port of the others":    {settings{CheckUDP: 10256, CheckProtocol: protocolTCP, CheckPort: 8081}, false, monitor{Type: protocolTCP, Port: 10256}},
		"Local":                 {settings{}, true, monitor{Type: protocolHTTP, Port: 32000, Path: rootPath}},
		"Local, and a protocol": {settings{CheckProtocol: protocolTCP}, true, monitor{Type: protocolHTTP, Port: 32000, Path: rootPath}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := second(nil)
			if c.local {
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
			}
			c.want.Delay, c.want.Timeout, c.want.Retries = 5, 2, 2
			assert.Equal(t, c.want, c.settings.monitor(s, port{protocol: protocolUDP, port: 53, max: 53, nodePort: 30053}))
		})
	}
}

// TestSubnetsMove (31): those of an application load balancer follow the annotation, by one request that bears its ETag; where the
// annotation is removed they stay.
func TestSubnetsMove(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		w.writes()
		s.Annotations = map[string]string{annotationSubnets: "lb-subnet"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"PATCH " + oneLB}, w.writes())
		want := []string{w.sim.Subnets()[2].ID}
		assert.Equal(w.t, want, w.sim.LoadBalancers()[0].Subnets)
		w.mustEnsure(s)
		s.Annotations = nil
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		s.Annotations = map[string]string{annotationSubnets: "nope"}
		require.ErrorContains(w.t, w.ensure(s), `names "nope", which is no subnet`)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, want, w.sim.LoadBalancers()[0].Subnets)
		assert.Empty(w.t, w.server.Calls().Refused)
	})
}

// TestFailedDeletion (46): a load balancer that failed is deleted; one that fails while it is deleted is told of, and tried again.
func TestFailedDeletion(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		set := func(status string) {
			require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) { lb.Provisioning = status }))
		}
		time.Sleep(time.Minute)
		done := make(chan error)
		go func() { done <- w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s) }()
		time.Sleep(10 * time.Second)
		require.NoError(w.t, w.sim.FailDeletion(ownName(ibmsim.Cluster, s)))
		require.ErrorContains(w.t, <-done, "could not be deleted: it has failed")
		assert.Len(w.t, w.sim.LoadBalancers(), 1)
		set("failed")
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// byHand makes a load balancer as a user does, with pools of a name that lead to an address on the node port of a Service.
func (w *world) byHand(name, pool string, nodePort int, address string) {
	w.t.Helper()
	w.sim.AddLoadBalancer(name, ibmsim.VPC)
	require.NoError(w.t, w.sim.EditLoadBalancer(name, func(lb *ibmsim.LoadBalancer) {
		lb.Pools = []ibmsim.Pool{{
			ID: "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000aaaa", Name: pool, Protocol: protocolTCP, Algorithm: algorithm, Proxy: proxyOff,
			Monitor: &ibmsim.Monitor{Delay: 5, Retries: 2, Timeout: 2, Type: protocolTCP},
			Members: []ibmsim.Member{{ID: "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000bbbb", Port: nodePort, Target: ibmsim.Target{Address: address}}},
		}}
	}))
	time.Sleep(time.Minute)
}

// TestUsersLoadBalancer: what a user made leads to a node port of a Service. It is not the Service's by that, whatever the Service records:
// nothing of it changes, and it stays when the Service goes, with an event.
func TestUsersLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pool, record string }{
		"a name of the user's":                    {"api", ""},
		"a name of the user's, a record":          {"api", madeShop},
		"the name of a controller":                {"tcp-80-30080", ""},
		"another load balancer is recorded":       {"tcp-80-30080", madeStore},
		"the pool of another port, a record":      {"tcp-81-30080", madeShop},
		"the pool of another node port, a record": {"tcp-80-30081", madeShop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				w.byHand("shop", c.pool, 30080, w.nodes[0].Status.Addresses[0].Address)
				before := snapshot(w.t, w.sim)
				s := web(annotationName, "shop")
				if c.record != "" {
					s.Annotations[annotationRecord] = c.record
				}
				require.ErrorContains(w.t, w.ensure(s), "belongs to somebody else")
				require.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes))
				w.drainEvents()
				_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
				require.NoError(w.t, err)
				assert.True(w.t, exists, "or nobody is told")
				require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
				assert.Contains(w.t, w.drainEvents(), "load balancer shop")
				assert.Empty(w.t, w.writes())
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
			})
		})
	}
}

// TestOwnershipThatAKubeletTells: labels and addresses that a kubelet writes make no load balancer look like this cluster's.
func TestOwnershipThatAKubeletTells(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		const elsewhere = "10.99.0.1"
		lying := w.nodes[0].DeepCopy()
		lying.Labels[labelInternalIP], lying.Labels[labelInstance] = elsewhere, "0717_e21b7391-2ca2-4ab5-84a8-b92157a633b0"
		lying.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: elsewhere}}
		w.bench.Unregister(w.nodes[0])
		w.bench.Register(lying)
		w.nodes = []*v1.Node{lying}
		w.byHand("shop", "tcp-80-30080", 30080, elsewhere)
		s := web(annotationName, "shop", annotationRecord, madeShop)
		require.ErrorContains(w.t, w.ensure(s), "belongs to somebody else")
		assert.Empty(w.t, w.writes())
	})
}

// TestNameChangesWhileDown (34): the program does not run when the name changes and the Service goes. What stays is told of, by the host
// name that the Service shows, or by its record where it shows none; it is looked for because the Service goes, whether the new name has
// a load balancer or not.
func TestNameChangesWhileDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first string
		edit  func(*v1.Service)
	}{
		"its own name":            {"", nil},
		"a chosen one":            {"store", nil},
		"a chosen one, no status": {"store", func(s *v1.Service) { s.Status = v1.ServiceStatus{} }},
		"its own, no status":      {"", func(s *v1.Service) { s.Status = v1.ServiceStatus{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web()
				if c.first != "" {
					s.Annotations[annotationName] = c.first
				}
				w.mustEnsure(s)
				had := w.sim.LoadBalancers()[0].Name
				if s.Annotations == nil {
					s.Annotations = map[string]string{}
				}
				s.Annotations[annotationName] = "shop"
				if c.edit != nil {
					c.edit(s)
				}
				w.bench.Apply(s.DeepCopy())
				w.restart()
				w.writes()
				_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
				require.NoError(w.t, err)
				assert.True(w.t, exists, "or the framework asks for no deletion")
				require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
				told := w.drainEvents()
				assert.Contains(w.t, told, eventLeft)
				assert.Contains(w.t, told, "load balancer "+had)
				assert.Empty(w.t, w.writes())

				other := second(map[string]string{annotationName: had}) // of another Service nothing is told
				w.bench.Apply(other)
				require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
				if c.first != "" {
					assert.Empty(w.t, w.drainEvents())
				}
			})
		})
	}
}

// TestNameRetypedWhileRunning: a load balancer that IBM's own controller made, under a name that was chosen, has no record. The process
// that has seen it in the status deletes it when the Service becomes one of another type.
func TestNameRetypedWhileRunning(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		delete(s.Annotations, annotationRecord)
		w.restart()
		w.mustEnsure(s)
		assert.NotContains(w.t, s.Annotations, annotationRecord, "a takeover writes nothing")
		s.Spec.Type, s.Status = v1.ServiceTypeClusterIP, v1.ServiceStatus{}
		for n := range s.Spec.Ports {
			s.Spec.Ports[n].NodePort = 0
		}
		w.bench.Apply(s.DeepCopy())
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// TestAdoptedLoadBalancerIsNotDeleted: a load balancer of somebody else that the operator lets a Service adopt is never deleted.
func TestAdoptedLoadBalancerIsNotDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.in.Adopt = registry.AdoptAny
		w.restart()
		w.sim.AddLoadBalancer("theirs", ibmsim.VPC)
		s := web(annotationName, "theirs")
		w.mustEnsure(s)
		record := s.Annotations[annotationRecord]
		require.Contains(w.t, record, recordAdopted)
		delete(s.Annotations, annotationRecord) // as by replacing the Service
		w.mustEnsure(s)
		assert.Equal(w.t, record, s.Annotations[annotationRecord])
		w.restart()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		require.Len(w.t, w.sim.LoadBalancers(), 1)
	})
}

// TestAdoptedBeforeTheStart: the record of an adoption went while the program did not run, as by replacing the Service. A load balancer
// that is older than its Service stays nevertheless, and one that may have been made for it goes, as after a takeover.
func TestAdoptedBeforeTheStart(t *testing.T) {
	t.Parallel()
	made, err := time.Parse(time.RFC3339, ibmsim.Created)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		service time.Time
		stays   int
	}{"older than its Service": {made.Add(time.Hour), 1}, "younger": {made.Add(-time.Hour), 0}} {
		for _, reconciled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reconciled: %t", name, reconciled), func(t *testing.T) {
				t.Parallel()
				inWorld(t, 1, 0, nil, func(w *world) {
					w.in.Adopt = registry.AdoptAny
					w.restart()
					w.sim.AddLoadBalancer("theirs", ibmsim.VPC)
					s := web(annotationName, "theirs")
					s.CreationTimestamp = metav1.NewTime(c.service)
					w.mustEnsure(s)
					w.in.Adopt = registry.AdoptEvidence
					delete(s.Annotations, annotationRecord)
					w.restart()
					if reconciled {
						w.mustEnsure(s)
						assert.Equal(w.t, c.stays > 0, strings.Contains(s.Annotations[annotationRecord], recordAdopted))
					}
					require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
					assert.Len(w.t, w.sim.LoadBalancers(), c.stays)
				})
			})
		}
	}
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

// TestCutNameAdopted: two Services have one name because it was cut. The operator allows adoption, which is about what nobody in this
// cluster has: what another Service shows is its own.
func TestCutNameAdopted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", maxClusterLength)
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

// TestNamesOfOthers: what is refused for a load balancer that does not exist is what a controller may be about to give, cut or whole.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", nil)
	for name, want := range map[string]bool{
		ownName("ocp4", s): true, ownName("a-b-c", s): true, ownName(strings.Repeat("c", 30), s): true,
		ownName(strings.Repeat("c", maxClusterLength), s): true,
		"shop": false, "kube-shop": false, "kube-shop-cafe": false, "kube-shop-2024": false, "my-" + ownName("ocp4", s): false,
	} {
		assert.Equal(t, want, isControllerName(name), name)
	}
}
