package openstack

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestMovedFloatingAddress: an address that somebody moved to another port a moment ago is theirs.
func TestMovedFloatingAddress(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*world, *v1.Service){
		"the Service goes": func(w *world, s *v1.Service) { require.NoError(w.T, w.remove(s)) },
		"the Service becomes internal": func(w *world, s *v1.Service) {
			w.changed(s, func(s *v1.Service) { s.Annotations[annotationInternal] = textTrue })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				machine := w.sim.Ports()[0].ID
				time.Sleep(time.Second)
				require.NoError(t, w.sim.AttachFloatingIP(w.sim.FloatingIPs()[0].ID, machine))
				leave(w, s)
				require.Len(t, w.sim.FloatingIPs(), 1)
				assert.Equal(t, machine, deref(w.sim.FloatingIPs()[0].PortID))
			})
		})
	}
}

// TestAddressOfAnother: only an address that was made for this Service goes with it; one that was made for another, and kept,
// stays when a Service uses it.
func TestAddressOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, whose := range []string{"prod/shop from cluster kubernetes", "default/web from cluster production"} {
			w := newTestWorld(t, "", nil)
			w.addNode(openstacksim.Spec{Name: "n1"})
			w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.50", floatingDescription+" "+whose)
			s := web(nil)
			s.Spec.LoadBalancerIP = "203.0.113.50"
			w.Apply(s)
			s, _ = w.ensure(s)
			require.NoError(t, w.remove(s))
			require.Len(t, w.sim.FloatingIPs(), 1, whose)
			assert.Nil(t, w.sim.FloatingIPs()[0].PortID)
		}
	})
}

// TestAddressOfALivingService: a free floating address that was made for another living Service, or that one shows, is not attached
// here, nor one that got a port a moment ago; what is left of one that is gone may be used.
func TestAddressOfALivingService(t *testing.T) {
	t.Parallel()
	const address = "203.0.113.50"
	shows := func(s *v1.Service) {
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: address}}
	}
	for name, c := range map[string]struct {
		description string
		other       func(*v1.Service)
		attached    bool
		refused     string
	}{
		"made for it, and kept":     {description: "Floating IP for Kubernetes external service default/other from cluster kubernetes", refused: "belongs to Service default/other"},
		"shown by it":               {other: shows, refused: "belongs to Service default/other"},
		"made for one that is gone": {description: "Floating IP for Kubernetes external service default/gone from cluster kubernetes"},
		"of one that is internal to the cluster now": {
			description: "Floating IP for Kubernetes external service default/other from cluster kubernetes",
			other:       func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP },
		},
		"nobody's":              {},
		"attached a moment ago": {attached: true, refused: "is not available"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.addNode(openstacksim.Spec{Name: "n1"})
				id := w.sim.AddFloatingIP(w.sim.Networks()[0].ID, address, c.description)
				other := rename(service("other", nil, servicePort("x", 81, 30081)), "other")
				if c.other != nil {
					c.other(other)
				}
				w.Apply(other)
				s := web(nil)
				s.Spec.LoadBalancerIP = address
				w.Apply(s)
				if c.attached { // after it was seen to be free
					_, err := w.reconciler.floatingIPs.All(t.Context(), inventory.Query{})
					require.NoError(t, err)
					require.NoError(t, w.sim.AttachFloatingIP(id, w.sim.Ports()[0].ID))
				}
				status, err := w.try(s)
				port := deref(w.sim.FloatingIPs()[0].PortID)
				if c.refused == "" {
					require.NoError(t, err)
					assert.Equal(t, address, status.Ingress[0].IP)
					assert.Equal(t, w.sim.LoadBalancers()[0].VIPPortID, port)
					return
				}
				require.ErrorContains(t, err, c.refused)
				assert.NotEqual(t, w.sim.LoadBalancers()[0].VIPPortID, port)
				assert.Equal(t, !c.attached, strings.Contains(strings.Join(w.Events(), "\n"), ownership.EventClaimed))
			})
		})
	}
}

// Why what was found as an orphan is not deleted.
const (
	noOrphan      = "is no longer an orphan of this cluster"
	livingService = "is not an orphan: Service"
)

// anotherService is one that nothing but what a case gives it leads to the load balancer.
func anotherService() *v1.Service {
	return rename(service("another", map[string]string{}, servicePort("x", 81, 30081)), "another")
}

// storeUnseen puts a Service where the API server alone has it.
func storeUnseen(w *world, s *v1.Service) {
	_, err := w.Kube.CoreV1().Services(s.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	require.NoError(w.T, err)
}

// sinceFound lists changes after which an orphan that was found must not be deleted, with the reason that is reported.
var sinceFound = map[string]struct {
	since func(w *world, lb openstacksim.LoadBalancer, before *v1.Service)
	want  string
}{
	"another Service shares it": {func(w *world, lb openstacksim.LoadBalancer, _ *v1.Service) {
		w.sim.ChangeLoadBalancer(lb.ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = append(lb.Tags, "kube_service_another_default_web") })
	}, noOrphan},
	"it has another cluster's mark, too": {func(w *world, lb openstacksim.LoadBalancer, _ *v1.Service) {
		w.sim.ChangeLoadBalancer(lb.ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = append(lb.Tags, markPrefix+"other") })
	}, noOrphan},
	"its Service was made again, and is served": {func(w *world, _ openstacksim.LoadBalancer, _ *v1.Service) {
		again := rename(web(nil), "web")
		again.UID = "made-again"
		w.Apply(again)
		w.ensure(again)
	}, livingService},
	"its Service was made again": {func(w *world, _ openstacksim.LoadBalancer, _ *v1.Service) {
		again := web(nil)
		again.UID = "made-again"
		storeUnseen(w, again)
	}, livingService},
	"its mark": {func(w *world, lb openstacksim.LoadBalancer, _ *v1.Service) {
		s := anotherService()
		storeUnseen(w, s)
		w.sim.ChangeLoadBalancer(lb.ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = append(lb.Tags, ownership.ServiceMark(s.UID)) })
	}, livingService},
	"its description": {func(w *world, lb openstacksim.LoadBalancer, _ *v1.Service) {
		s := anotherService()
		storeUnseen(w, s)
		w.sim.ChangeLoadBalancer(lb.ID, func(lb *openstacksim.LoadBalancer) { lb.Description = loadBalancerDescription(w.cluster, s) })
	}, livingService},
	"a record": {func(w *world, lb openstacksim.LoadBalancer, _ *v1.Service) {
		s := anotherService()
		s.Annotations[annotationID] = lb.ID
		storeUnseen(w, s)
	}, livingService},
	"the address in a status": {func(w *world, _ openstacksim.LoadBalancer, before *v1.Service) {
		s := anotherService()
		s.Status = before.Status
		storeUnseen(w, s)
	}, livingService},
	"its Service moved to another one and could come back": {func(w *world, lb openstacksim.LoadBalancer, before *v1.Service) {
		s := web(map[string]string{annotationID: w.sim.AddLoadBalancer("by-hand", firstSubnet).ID, annotationHostname: "web.example.com"})
		s.UID = before.UID
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: "web.example.com"}}
		storeUnseen(w, s)
	}, livingService},
	"the Services cannot be read": {func(w *world, _ openstacksim.LoadBalancer, _ *v1.Service) {
		w.Kube.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("not now") })
	}, "not now"},
}

// TestOrphanThatIsNone: what changed since it was listed is not deleted, and every trace of a living Service wins, also one that
// the informer has not told of yet.
func TestOrphanThatIsNone(t *testing.T) {
	t.Parallel()
	for name, c := range sinceFound {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				w.vanish(s)
				found, err := w.Orphans(t.Context(), nil)
				require.NoError(t, err)
				require.Len(t, found, 1)
				before := w.sim.LoadBalancers()
				time.Sleep(time.Second)
				c.since(w, before[0], s)
				require.ErrorContains(t, w.DeleteOrphan(t.Context(), found[0]), c.want)
				assert.Contains(t, ids(w.sim.LoadBalancers()), before[0].ID)
				assert.Len(t, w.sim.FloatingIPs(), 1)
			})
		})
	}
}

func ids(loadBalancers []openstacksim.LoadBalancer) []string {
	var list []string
	for _, lb := range loadBalancers {
		list = append(list, lb.ID)
	}
	return list
}

// TestOneCall: while Octavia works the calls wait, so that the framework has nothing to warn of.
func TestOneCall(t *testing.T) {
	t.Parallel()
	timed(t, oneCall)
}

func oneCall(w *world) {
	t := w.T
	w.sim.SetActivation(3 * time.Second)
	w.addNode(openstacksim.Spec{Name: "n1"})
	s := web(nil)
	w.Apply(s)
	status, err := w.reconciler.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
	require.NoError(t, err)
	s = w.SetStatus(s, status)
	s.Spec.Ports = []v1.ServicePort{servicePort("https", 443, 30443), servicePort("alt", 8080, 30081)}
	w.Apply(s)
	w.server.ResetCalls()
	_, err = w.reconciler.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
	require.NoError(t, err)
	assert.Len(t, w.sim.Listeners(), 2)
	assert.Len(t, w.sim.Monitors(), 2)
	w.addNode(openstacksim.Spec{Name: "n2"})
	require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
	for _, p := range w.sim.Pools() {
		assert.Len(t, p.BackendMembers(), 2)
	}
	gone := w.Current(s).DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	require.NoError(t, w.reconciler.EnsureLoadBalancerDeleted(t.Context(), w.cluster, gone))
	assert.Empty(t, w.sim.LoadBalancers())
	assert.Empty(t, w.Events())
	assert.Empty(t, w.server.Calls().Refused)
}

// TestChangedRightAfterUs: what somebody changes right after a change of ours is found and set right at once, also after a mere
// change of nodes, though the time of change is the one that our own work may have left.
func TestChangedRightAfterUs(t *testing.T) {
	t.Parallel()
	algorithm := func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" }
	for name, c := range map[string]struct {
		change func(*openstacksim.Pool)
		ours   func(*world, *v1.Service)
	}{
		"a node joins":                  {change: algorithm},
		"a node joins, its member goes": {change: func(p *openstacksim.Pool) { p.DropMembers() }},
		"a port changes": {change: algorithm, ours: func(w *world, s *v1.Service) {
			w.changed(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, servicePort("more", 81, 30081)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				w.sim.ChangeAfterWork(w.sim.Pools()[0].ID, c.change)
				if c.ours != nil {
					c.ours(w, s)
				} else {
					w.addNode(openstacksim.Spec{Name: "n3"})
					require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
				}
				assert.Equal(t, "ROUND_ROBIN", w.sim.Pools()[0].Algorithm)
				assert.Len(t, w.sim.Pools()[0].BackendMembers(), len(w.nodes))
				w.requireNoWrites(w.Current(s))
			})
		})
	}
	t.Run("after we looked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, s := newServedWorld(t, "", web(nil))
			w.addNode(openstacksim.Spec{Name: "n3"})
			w.update(s)
			w.sim.ChangeAfterWork(w.sim.Pools()[0].ID, algorithm)
			w.addNode(openstacksim.Spec{Name: "n4"})
			w.update(s)
			w.ensure(s)
			assert.Equal(t, "ROUND_ROBIN", w.sim.Pools()[0].Algorithm)
			w.requireNoWrites(s)
		})
	})
	t.Run("where annotations are at fault", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, s := newServedWorld(t, "", web(nil))
			s = w.Current(s)
			s.Annotations[annotationConnectionLimit] = "many"
			w.Apply(s)
			w.sim.ChangeAfterWork(w.sim.Pools()[0].ID, func(p *openstacksim.Pool) { p.DropMembers() })
			w.addNode(openstacksim.Spec{Name: "n3"})
			require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, s, w.nodes))
			assert.Len(t, w.sim.Pools()[0].BackendMembers(), 3)
		})
	})
}

// TestSharingAcrossNamespaces: only with the owner's or the operator's agreement; what is shared already stays.
func TestSharingAcrossNamespaces(t *testing.T) {
	t.Parallel()
	guest := func(id string) *v1.Service {
		s := rename(service("guest", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), "guest")
		s.Namespace = "tenant"
		return s
	}
	t.Run("without agreement", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "", web(nil))
			g := guest(owner.Annotations[annotationID])
			w.Apply(g)
			w.server.ResetCalls()
			_, err := w.try(g)
			require.ErrorContains(t, err, annotationShareWith)
			assert.Zero(t, w.server.Calls().Writes)
		})
	})
	t.Run("the owner agrees", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "", web(map[string]string{annotationShareWith: "other, tenant"}))
			g := guest(owner.Annotations[annotationID])
			w.Apply(g)
			w.ensure(g)
			assert.Len(t, w.sim.Listeners(), 2)
			assert.NotContains(t, strings.Join(w.Events(), "\n"), eventShared)
		})
	})
	t.Run("the operator agrees", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "share-across-namespaces = true\n", web(nil))
			g := guest(owner.Annotations[annotationID])
			w.Apply(g)
			w.ensure(g)
			assert.Len(t, w.sim.Listeners(), 2)
		})
	})
	t.Run("after a takeover", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, owner := newServedWorld(t, "", web(map[string]string{annotationShareWith: "tenant"}))
			g := guest(owner.Annotations[annotationID])
			w.Apply(g)
			w.ensure(g)
			w.changed(owner, func(s *v1.Service) { delete(s.Annotations, annotationShareWith) })
			w.restart()
			w.requireNoWrites(g)
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventShared)
		})
	})
}

// TestIDsHaveAForm: what is no ID is never asked about.
func TestIDsHaveAForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		n := w.addNode(openstacksim.Spec{Name: "n1"})
		w.server.ResetCalls()
		for _, id := range []string{"detail?all_tenants=1", "..", "../os-hypervisors", "abc"} {
			wrong := n.DeepCopy()
			wrong.Spec.ProviderID = providerIDPrefix + "/" + id
			_, err := w.instances.InstanceMetadata(t.Context(), wrong)
			require.ErrorContains(t, err, "ID", id)
			_, err = w.instances.InstanceExists(t.Context(), wrong)
			require.Error(t, err, "and it is never absent")
			s := web(map[string]string{annotationID: id})
			_, err = w.reconciler.finder.find(t.Context(), w.cluster, s)
			require.ErrorContains(t, err, "is not the ID of a load balancer, which is a UUID")
		}
		assert.Zero(t, w.server.Calls().Total)
	})
}

// TestVerifyInstance: an instance is a Node's if it has its name.
func TestVerifyInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		a, b := w.addNode(openstacksim.Spec{Name: "n1"}), w.addNode(openstacksim.Spec{Name: "n2"})
		ok, _, err := w.VerifyInstance(t.Context(), a)
		require.NoError(t, err)
		assert.True(t, ok)
		for want, id := range map[string]string{
			`is named "n2"`:  b.Spec.ProviderID,
			"does not exist": providerIDPrefix + "/" + someID,
			"form":           "",
			"UUID":           providerIDPrefix + "/x",
		} {
			liar := a.DeepCopy()
			liar.Spec.ProviderID = id
			ok, why, err := w.VerifyInstance(t.Context(), liar)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Contains(t, why, want)
		}
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: "GET /compute"})
		require.NoError(t, err)
		w.restart()
		_, _, err = w.VerifyInstance(t.Context(), a)
		require.Error(t, err, "a failure is no verdict")
	})
}

// TestPlanOfBrokenLoadBalancers: plan tells what is done about one in ERROR, and nothing of one that Octavia works on.
func TestPlanOfBrokenLoadBalancers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		status := func(v string) {
			w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = v })
			w.restart()
		}
		status(statusError)
		plan, err := w.PlanLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes[:1])
		require.NoError(t, err)
		planned := plan.Changes
		require.Len(t, planned, 1)
		assert.Equal(t, contract.PlanChange, planned[0].Action)
		assert.Contains(t, planned[0].Detail, "failover")
	})
}

// TestLyingKubelets: a Node that claims other nodes' addresses takes no route away and gets none to them.
func TestLyingKubelets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		before := w.showsAddress()
		own := w.nodes[1].Status.Addresses
		liar := w.nodes[1].DeepCopy()
		liar.Status.Addresses = w.nodes[0].Status.Addresses
		w.Register(liar)
		assert.Equal(t, before, w.showsAddress())
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "10.244.2.0/24")))
		hops := map[string]string{}
		for _, r := range w.sim.Routers()[0].Routes {
			hops[r.Destination] = r.NextHop
		}
		assert.Equal(t, own[0].Address, hops["10.244.2.0/24"], "its own address")
		assert.Equal(t, []string{"10.244.1.0/24 n1 false", "10.244.2.0/24 n2 false"}, w.showsAddress())

		homeless := w.nodes[1].DeepCopy()
		homeless.Name, homeless.Spec.ProviderID = "n9", providerIDPrefix+"/"+someID
		w.Register(homeless)
		w.server.ResetCalls()
		require.Error(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n9", "10.244.9.0/24")))
		assert.Zero(t, w.server.Calls().Writes, "no route to a machine that is not there")
	})
}
