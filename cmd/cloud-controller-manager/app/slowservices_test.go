package app

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// becoming is a load balancer that takes a while to become active.
type becoming struct {
	takes time.Duration
	// waits is set where that is waited for, and not looked at again.
	waits bool

	mu              sync.Mutex
	begun, answered time.Time
}

func (b *becoming) ensure(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun.IsZero() {
		b.begun = time.Now()
	}
	left := time.Until(b.begun.Add(b.takes))
	if left > 0 && !b.waits {
		return cloudproviderapi.NewRetryError("the load balancer is being set up", min(left, 30*time.Second))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(left):
	}
	b.answered = time.Now()
	return nil
}

// TestSlowLoadBalancer: a load balancer that takes long to become active keeps no other Service waiting, for its own load balancer or for
// nodes, and has the nodes of then.
func TestSlowLoadBalancer(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	for name, slow := range map[string]*becoming{
		"it is looked at again": {takes: 20 * time.Minute}, "it is waited for": {takes: 10 * time.Minute, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runSlowLoadBalancer(t, slow) })
		})
	}
}

func runSlowLoadBalancer(t *testing.T, slow *becoming) {
	t.Helper()
	const others, quick = 50, 5 * time.Second
	const both = "first=fake://first second=fake://second"
	ctx, stop := context.WithCancel(t.Context())
	c := serve(ctx, t, newRelistAPI(), true)
	c.cloud.hold = func(ctx context.Context, s *v1.Service) error {
		if s.Name == "slow" {
			return slow.ensure(ctx)
		}
		return nil
	}
	c.setNode(servedNode("first"))
	advanceClock(time.Second)
	c.addService(plainService("slow"))
	advanceClock(time.Second)
	for i := range others {
		c.addService(plainService(fmt.Sprintf("web-%d", i)))
	}
	advanceClock(quick)
	assert.Len(t, c.cloud.have, others, "all others are served")
	c.setNode(servedNode("second"))
	advanceClock(quick)
	for i := range others {
		assert.Equal(t, both, c.cloud.have[fmt.Sprintf("web-%d", i)], "a node joined")
	}
	advanceClock(slow.takes + time.Minute)
	assert.WithinRange(t, slow.answered, slow.begun.Add(slow.takes), slow.begun.Add(slow.takes+time.Minute))
	assert.Equal(t, both, c.cloud.have["slow"], "it has the nodes of then")
	stop()
	synctest.Wait()
}
