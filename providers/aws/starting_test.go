package aws

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestStartingInstances: a node is ready before EC2 lists its instance as running. It serves as soon as it runs, without any
// further event, and keeps nobody else from serving.
func TestStartingInstances(t *testing.T) {
	t.Parallel()
	serving := func(w *world) int {
		if len(w.sim.Classics()) > 0 {
			return len(w.sim.Classics()[0].Instances)
		}
		if groups := w.sim.TargetGroups(); len(groups) > 0 {
			return len(groups[0].Targets)
		}
		return 0
	}
	for name, s := range map[string]*v1.Service{
		"classic": service("web", nil, servicePort("http", 80, 30080)), "network": nlb("web", nil, servicePort("http", 80, 30080)),
	} {
		for _, joins := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " is made", true: " is joined"}[joins], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w, s := startVirtual(t, "", awssim.Options{}), s.DeepCopy()
					w.Apply(s)
					if joins {
						w.ensure(s)
					}
					late := w.addNode(awssim.Spec{Name: "late", State: "pending"})
					done := make(chan error, 1)
					go func() {
						if joins {
							done <- w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, s, w.nodes)
							return
						}
						_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, s, w.nodes)
						done <- err
					}()
					require.Eventually(t, func() bool { return serving(w) > 0 }, 20*time.Second, 10*time.Millisecond, "the others serve meanwhile")
					require.NoError(t, w.sim.SetStatus(instanceOf(late), "running"))
					require.NoError(t, <-done)
					assert.Equal(t, 2, serving(w))
					assert.Empty(t, w.server.Calls().Refused)
				})
			})
		}
	}
}

// TestRecordsOfStartsAreReadAgain: what was pending in a listing runs by now, and serves without anybody waiting.
func TestRecordsOfStartsAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startVirtual(t, "", awssim.Options{})
		late := w.addNode(awssim.Spec{Name: "late", State: "stopped"})
		_, _ = w.instances.InstanceExists(t.Context(), late)
		require.NoError(t, w.sim.SetStatus(instanceOf(late), "running"))
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		require.Eventually(t, func() bool {
			w.ensure(s)
			return len(w.sim.TargetGroups()[0].Targets) == 2
		}, notRunningMaxAge+10*time.Second, 200*time.Millisecond)
	})
}
