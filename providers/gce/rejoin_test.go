package gce

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// recreate recreates a node's instance under its name, as a managed instance group does.
func (w *world) recreate(node *v1.Node) {
	id, err := parseProviderID(node.Spec.ProviderID)
	require.NoError(w.T, err)
	w.sim.RemoveInstanceByID(node.Spec.ProviderID)
	require.Equal(w.T, node.Spec.ProviderID, w.sim.AddInstance(gcesim.Spec{Name: id.name, Zone: id.zone}))
}

// look replaces the periodic checks of nodes.
func (w *world) look() {
	time.Sleep(5 * time.Minute)
	_, err := w.instances.all.All(w.T.Context(), inventory.Query{})
	require.NoError(w.T, err)
}

// TestRecreatedInstanceRejoins: a recreated instance whose Node stayed rejoins its load balancers once any read shows it, by one read and
// one write per pool or group. Otherwise nothing is read.
func TestRecreatedInstanceRejoins(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, s := inTwoZones(t, kind)
				const theirs = "theirs"
				w.sim.Put("regions/us-central1/targetPools/"+theirs, map[string]any{"instances": []any{"zones/us-central1-b/instances/b1"}})
				w.restart()
				w.ensure(s)
				w.sim.Edit("targetPools", theirs, func(d map[string]any) { delete(d, "instances") }) // its owner removed it
				triggered := 0
				w.instances.arrivals.setTrigger(func() { triggered++ })
				w.look()
				w.server.ResetCalls()
				require.NoError(t, w.rejoiner.run(t.Context()))
				assert.Zero(t, w.server.Calls().Total)
				assert.Zero(t, triggered)

				w.recreate(w.nodes[1])
				assert.Equal(t, []string{"a1"}, w.membersEverywhere())
				w.look()
				assert.Equal(t, 1, triggered)
				w.server.ResetCalls()
				require.NoError(t, w.rejoiner.run(t.Context()))
				assert.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())
				calls := w.server.Calls()
				assert.Equal(t, 1, calls.Writes, "%v", calls.ByOperation)
				for name, n := range calls.ByOperation {
					if strings.HasPrefix(name, "GET ") && !strings.Contains(name, "operations") {
						assert.Equal(t, 1, n, name)
					}
				}
				w.server.ResetCalls()
				require.NoError(t, w.rejoiner.run(t.Context()))
				require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes))
				assert.Zero(t, w.server.Calls().Writes)
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestRecreatedInstanceRejoinsLater: failures are retried, and an instance without a Node does not rejoin.
func TestRecreatedInstanceRejoinsLater(t *testing.T) {
	for kind, action := range map[string]string{"": "POST targetPools/addInstance", "Internal": "POST instanceGroups/addInstances"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := inTwoZones(t, kind)
				w.look()
				for _, n := range w.nodes {
					w.recreate(n)
				}
				w.look()
				w.Unregister(w.nodes[0])
				w.sim.Deny(action, true)
				require.Error(t, w.rejoiner.run(t.Context()))
				w.sim.Deny(action, false)
				time.Sleep(time.Minute)
				require.NoError(t, w.rejoiner.run(t.Context()))
				assert.Equal(t, []string{"b1"}, w.membersEverywhere())
			})
		})
	}
}

// TestRecreatedBeforeARestart: a process that has begun since puts a recreated instance back with its first reconciliation.
func TestRecreatedBeforeARestart(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, s := inTwoZones(t, kind)
				w.recreate(w.nodes[1])
				w.restart()
				w.ensure(s)
				assert.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())
			})
		})
	}
}

// TestRejoiningWaitsForItsTurn: no instance rejoins during the load balancer's reconciliation.
func TestRejoiningWaitsForItsTurn(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := inTwoZones(t, kind)
				w.look()
				w.recreate(w.nodes[1])
				w.look()
				var keys []string
				for _, p := range w.api.stores.pools.PeekAll() {
					keys = append(keys, p.Name)
				}
				for _, g := range w.api.stores.groups.PeekAll() {
					keys = append(keys, g.id.object())
				}
				var unlocks []func()
				for _, key := range keys {
					unlock, err := w.loadBalancers.Lock(t.Context(), key)
					require.NoError(t, err)
					unlocks = append(unlocks, unlock)
				}
				done := make(chan error)
				go func() { done <- w.rejoiner.run(t.Context()) }()
				time.Sleep(time.Minute)
				assert.Equal(t, []string{"a1"}, w.membersEverywhere(), "a Service has its turn")
				for _, unlock := range unlocks {
					unlock()
				}
				require.NoError(t, <-done)
				assert.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())
			})
		})
	}
}

// TestMissedInstanceRejoins: an instance missing at the last change is awaited without calls; the first read that shows it wakes the
// waiting reconciliation.
func TestMissedInstanceRejoins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := inTwoZones(t, "Internal")
		w.sim.RemoveInstanceByID(w.nodes[1].Spec.ProviderID)
		w.look()
		at, err := w.api.locator.get(t.Context())
		require.NoError(t, err)
		m, err := w.instances.members(t.Context(), w.nodes, at)
		require.NoError(t, err)
		found := w.instances.unknownZoneFindings(requestOf(s), m)
		require.Len(t, found, 1)
		assert.Empty(t, found[0].Reason, "the Node says what is wrong")
		w.look()
		select {
		case <-found[0].When:
			t.Fatal("it is not there")
		default:
		}
		w.sim.AddInstance(gcesim.Spec{Name: "b1", Zone: "us-central1-b"})
		w.look()
		<-found[0].When
	})
}

// TestArrivalsAreBounded: instances without a Node are forgotten after their deletion.
func TestArrivalsAreBounded(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for n := range 1000 {
		a.record(instance{id: instanceID{"p", "z", "x" + strings.Repeat("y", n)}, number: 1})
	}
	kept := instance{id: instanceID{"my-project", "us-central1-a", "n1"}, number: 1}
	a.record(kept)
	a.forgetOld(10, []*v1.Node{nodeNamed("n1", "gce://my-project/us-central1-a/n1")})
	assert.Len(t, a.numbers, 1)
	kept.number = 2
	a.record(kept)
	assert.Len(t, a.takeRecreated(), 1)
	assert.Empty(t, a.takeRecreated())
}

// requestOf is a change of the nodes of a Service.
func requestOf(s *v1.Service) services.Request {
	return services.Request{Purpose: services.UpdateNodes, Service: s}
}

// oneClient returns the same client for every name.
type oneClient struct {
	cloudprovider.ControllerClientBuilder

	kube kubernetes.Interface
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c oneClient) ClientOrDie(string) kubernetes.Interface { return c.kube }

// guarded opens the provider as the program does, with guard, informers and controllers.
func (w *world) guarded() cloudprovider.Interface {
	w.T.Helper()
	for _, n := range w.nodes {
		_, err := w.Kube.CoreV1().Nodes().Create(w.T.Context(), n, metav1.CreateOptions{})
		require.NoError(w.T, err)
	}
	var r registry.Registry
	require.NoError(w.T, r.Add(Description()))
	policy := guard.DefaultPolicy()
	in := testInputs(w.file+"api-endpoint = "+w.url+"/compute/v1\n", w.sim.Environment(w.url))
	in.Dial, in.Guard = w.network.Dial, &policy
	c, err := r.Open(Name, in)
	require.NoError(w.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.T.Cleanup(cancel)
	c.Initialize(oneClient{kube: w.Kube}, ctx.Done())
	factory := informers.NewSharedInformerFactory(w.Kube, 0)
	c.(cloudprovider.InformerUser).SetInformers(factory)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return c
}

// TestWaitingNodesJoinByThemselves: in the whole program, nodes of an unreachable zone and recreated instances join without another
// request; the status is written at once.
func TestWaitingNodesJoinByThemselves(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				for _, name := range []string{"a1", "b1", "c1"} {
					w.addNode(gcesim.Spec{Name: name, Zone: "us-central1-" + name[:1]})
					time.Sleep(time.Minute)
				}
				c := w.guarded()
				lb, _ := c.LoadBalancer()
				nodes, _ := c.InstancesV2()
				w.sim.SetUnreachable("us-central1-b", true)
				w.sim.RemoveInstanceByID(w.nodes[2].Spec.ProviderID)
				s := testService("web", conformance.Port("a", 80, 30080))
				s.Annotations[annotationType] = kind
				status, err := lb.EnsureLoadBalancer(t.Context(), "kubernetes", w.apply(s), w.nodes)
				require.NoError(t, err)
				require.Len(t, status.Ingress, 1)
				time.Sleep(10 * time.Minute)
				assert.Equal(t, []string{"a1"}, w.membersEverywhere())

				w.sim.SetUnreachable("us-central1-b", false)
				time.Sleep(3 * time.Minute)
				assert.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())

				w.sim.AddInstance(gcesim.Spec{Name: "c1", Zone: "us-central1-c"})
				look := func() {
					time.Sleep(6 * time.Minute) // the framework reads the metadata of all nodes every five minutes
					_, err := nodes.InstanceMetadata(t.Context(), w.nodes[0])
					require.NoError(t, err)
					time.Sleep(2 * time.Minute)
				}
				look()
				assert.Equal(t, []string{"a1", "b1", "c1"}, w.membersEverywhere())
				w.recreate(w.nodes[0])
				look()
				assert.Equal(t, []string{"a1", "b1", "c1"}, w.membersEverywhere())
			})
		})
	}
}
