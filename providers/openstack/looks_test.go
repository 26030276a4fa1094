package openstack

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// looksBefore is how many looks at work of a length there were when each came a quarter of the time that had passed after the one
// before, between 0.7 and 3 s: what a schedule may cost at most.
func looksBefore(work time.Duration) int {
	n, at := 1, 700*time.Millisecond
	for ; at < work; n++ {
		at += min(max(at/4, 700*time.Millisecond), 3*time.Second)
	}
	return n
}

// lostAtMost is how much later than its end the end of work of a length is seen at most.
func lostAtMost(work time.Duration) time.Duration {
	if work <= 10*time.Second {
		return max(work/8, 700*time.Millisecond)
	}
	return min(work/4, 3*time.Second)
}

// TestLooks: with the durations of a real Octavia, little time is lost beyond those, and no more calls are made than by looks that
// grow further apart. All else takes no time here.
func TestLooks(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		for i := range 5 {
			time.Sleep(time.Minute) // what was known of nodes is out of date
			w.addNode(openstacksim.Spec{Name: fmt.Sprintf("n%d", i)})
		}
		// The bounds of a step are how often Octavia works, and the calls other than looks.
		step := func(name string, works, others int, do func()) {
			w.server.ResetCalls()
			began, before := time.Now(), len(w.sim.WorkDurations())
			do()
			took, made := time.Since(began), w.server.Calls()
			var busy, lost time.Duration
			looks, few := made.ByOperation["GET /load-balancer/v2.0/lbaas/loadbalancers/{id}"], 0
			for _, work := range w.sim.WorkDurations()[before:] {
				busy, lost, few = busy+work, lost+lostAtMost(work), few+looksBefore(work)
			}
			text := fmt.Sprintf("%s: Octavia worked %v, %s lost, %d looks, %d other calls", name, w.sim.WorkDurations()[before:], took-busy, looks, made.Total-looks)
			w.T.Log(text)
			assert.Len(w.T, w.sim.WorkDurations()[before:], works, text)
			assert.LessOrEqual(w.T, took-busy, lost, text)
			assert.LessOrEqual(w.T, looks, few, text)
			assert.LessOrEqual(w.T, made.Total-looks, others, "%s: %v", text, made.ByOperation)
		}
		for i, takes := range []time.Duration{4 * time.Second, 7 * time.Second, 12 * time.Second, 25 * time.Second, 50 * time.Second} {
			time.Sleep(time.Hour)
			s := rename(service("", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)), fmt.Sprintf("web-%d", i))
			w.Apply(s)
			ensure := func() {
				status, err := w.reconciler.EnsureLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
				require.NoError(w.T, err)
				s = w.SetStatus(s, status)
			}
			w.sim.SetActivation(takes)
			step(fmt.Sprintf("creation of about %s", takes), 1, 16, ensure)
			for _, takes := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
				w.sim.SetActivation(takes)
				s.Spec.Ports = []v1.ServicePort{servicePort("http", 80, 30080+int32(takes/time.Millisecond)), servicePort("https", 443, 30443)}
				w.Apply(s)
				step(fmt.Sprintf("a change of about %s", takes), 1, 6, ensure)
			}
			step("deletion", 1, 5, func() { require.NoError(w.T, w.remove(s)) })
		}
		w.sim.RealTime()
		for i := range 5 {
			time.Sleep(time.Hour)
			s := rename(service("", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)), fmt.Sprintf("real-%d", i))
			w.Apply(s)
			before := len(w.sim.WorkDurations())
			step("creation as on a real Octavia", 1, 16, func() {
				_, err := w.reconciler.EnsureLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
				require.NoError(w.T, err)
			})
			assert.GreaterOrEqual(w.T, w.sim.WorkDurations()[before], 5*time.Second)
			step("deletion as on a real Octavia", 1, 5, func() { require.NoError(w.T, w.remove(s)) })
			assert.LessOrEqual(w.T, w.sim.WorkDurations()[before+1], 3*time.Second)
		}
	})
}
