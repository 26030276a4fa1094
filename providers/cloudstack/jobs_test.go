package cloudstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
)

// TestJobThatOutlivesItsCaller: a job that is still at it when nobody waits any more is given no second time, and its result is found.
func TestJobThatOutlivesItsCaller(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{true: "restart", false: "same process"}[restart], func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.serve("web", port("http", 80, 30080))
				w.sim.HoldJobs(true)
				for range 3 {
					_, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes)
					require.Error(t, err)
					if restart {
						w.restart()
					}
					time.Sleep(time.Minute)
				}
				assert.Equal(t, 1, w.sim.PendingJobs(), "%v", w.server.Calls().ByOperation)
				w.sim.HoldJobs(false)
				w.requireServed(s)
				assert.Len(t, w.takenTexts(), 1)
				assert.Len(t, w.sim.Rules(), 1)
				w.remove(s)
				assert.Empty(t, w.takenTexts())
			})
		})
	}
}

// TestJobThatFailsAfterItsWork: a job that did its work and says that it failed does harm to nobody: what is there is looked at.
func TestJobThatFailsAfterItsWork(t *testing.T) {
	for _, command := range []string{
		"associateIpAddress", "createLoadBalancerRule", "assignToLoadBalancerRule", "createFirewallRule", "deleteFirewallRule",
		"deleteLoadBalancerRule", "disassociateIpAddress",
	} {
		t.Run(command, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.serve("web", port("http", 80, 30080))
				w.sim.FailJobs(cloudstacksim.Failure{Command: command, Code: 530, Text: "timed out", After: true})
				for range 3 {
					if _, err := w.insist(s); err == nil {
						break
					}
					time.Sleep(time.Minute)
				}
				w.requireServed(s)
				assert.Len(t, w.takenTexts(), 1)
				assert.Len(t, w.sim.Rules(), 1)
				assert.Len(t, w.sim.Rules()[0].Members, 2)
				assert.Len(t, w.sim.Firewalls(), 1)
				w.remove(s)
				assert.Empty(t, w.takenTexts())
				assert.Empty(t, w.sim.Rules())
				assert.Empty(t, w.sim.Firewalls())
			})
		})
	}
}
