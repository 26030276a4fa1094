package openstack

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// timed runs a test in virtual time.
func timed(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newTestWorld(t, "", nil))
	})
}

// TestTimes: each step of a Service's life is no slower, and costs no more calls, than with OpenStack's own controller, which
// took 8, 18, 12 and 9 s on an Octavia whose changes take about as long as here.
func TestTimes(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		t := w.T
		step := func(name string, most time.Duration, calls int, do func()) {
			w.server.ResetCalls()
			began := time.Now()
			do()
			took, made := time.Since(began), w.server.Calls()
			t.Logf("%s: %.1f s, %d calls: %v", name, took.Seconds(), made.Total, made.ByOperation)
			assert.LessOrEqual(t, took, most, name)
			assert.LessOrEqual(t, made.Total, calls, name)
			assert.Empty(t, made.Refused)
		}
		ensure := func(s *v1.Service) *v1.Service {
			status, err := w.reconciler.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			require.NoError(t, err)
			return w.SetStatus(s, status)
		}
		join := func(i int) {
			time.Sleep(time.Minute) // what was known of nodes is out of date
			w.addNode(openstacksim.Spec{Name: fmt.Sprintf("n%d", i)})
		}
		for i := range 5 {
			join(i)
		}
		w.sim.SetActivation(4 * time.Second)
		s := service("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443))
		w.Apply(s)
		step("a Service with two ports", 8*time.Second, 24, func() { s = ensure(s) })

		w.sim.SetActivation(1200 * time.Millisecond)
		s.Spec.Ports = []v1.ServicePort{servicePort("http", 80, 30080), servicePort("alt", 8443, 30444), servicePort("more", 9000, 30900)}
		w.Apply(s)
		step("one port replaced, one added", 18*time.Second, 46, func() { s = ensure(s) })
		join(5)
		update := func() {
			require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		}
		step("a node joins", 12*time.Second, 44, update)
		w.nodes = w.nodes[:5]
		step("a node leaves", 9*time.Second, 23, update)
		step("the Service goes", 5*time.Second, 20, func() { require.NoError(t, w.remove(s)) })
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Empty(t, w.Events(), "nothing of that is worth a warning")
	})
}

// TestManyServices: 500 load balancers that take a minute each are all served within a minute and a half.
func TestManyServices(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		n := 100
		if tier.All() {
			n = 500
		}
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.sim.SetActivation(40 * time.Second) // a minute at most
		began := time.Now()
		var group sync.WaitGroup
		for i := range n {
			s := rename(web(map[string]string{annotationInternal: textTrue}), fmt.Sprintf("web-%d", i))
			w.Apply(s)
			group.Go(func() {
				_, err := w.reconciler.EnsureLoadBalancer(w.T.Context(), w.cluster, s, w.nodes)
				assert.NoError(w.T, err)
			})
		}
		group.Wait()
		w.T.Logf("%d Services: %.1f s, %v", n, time.Since(began).Seconds(), w.server.Calls().ByOperation)
		assert.Less(w.T, time.Since(began), 90*time.Second)
		assert.Less(w.T, w.server.Calls().ByOperation["GET /load-balancer/v2.0/lbaas/loadbalancers"], 100)
	})
}

// TestNodeAfterSilence: a node is initialised soon after a cloud that did not answer answers again, whenever it was asked for.
func TestNodeAfterSilence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after   time.Duration
		restart bool
	}{{0, false}, {7 * time.Second, false}, {28 * time.Second, false}, {0, true}, {28 * time.Second, true}} {
		t.Run(fmt.Sprintf("asked %s after it began, restart %v", c.after, c.restart), func(t *testing.T) {
			t.Parallel()
			timed(t, func(w *world) {
				w.addNode(openstacksim.Spec{Name: "n1"})
				time.Sleep(time.Hour) // nothing known is young enough
				w.sim.AddServer(openstacksim.Spec{Name: "n2"})
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultHang})
				require.NoError(w.T, err)
				time.AfterFunc(30*time.Second, w.server.ClearFaults)
				end := time.Now().Add(30 * time.Second)
				if c.restart { // the first call is the login then
					w.restart()
				}
				time.Sleep(c.after)
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
				for err = errors.New("not yet"); err != nil; { // as the framework does
					if _, err = w.instances.InstanceMetadata(w.T.Context(), node); err != nil {
						time.Sleep(time.Second)
					}
				}
				assert.LessOrEqual(w.T, time.Since(end), 15*time.Second)
			})
		})
	}
}
