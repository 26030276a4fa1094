package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// becoming is a load balancer that becomes active slowly.
type becoming struct {
	takes time.Duration
	// waits: its creation waits instead of being retried.
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

// TestSlowLoadBalancer: a slow load balancer delays no other Service, neither its load balancer nor its nodes, and gets the present nodes
// in the end.
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
	c.cloud.hold = func(ctx context.Context, call string, s *v1.Service) error {
		if s.Name == "slow" && call == callEnsure {
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

// TestBlockedCall: a cloud call that never returns blocks only its own Service. After the guard's limit an event reports it, and it is
// retried.
func TestBlockedCall(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	for call, reason := range map[string]string{
		callEnsure: "SyncLoadBalancerFailed", callUpdate: "UpdateLoadBalancerFailed", callGet: "SyncLoadBalancerFailed", callDelete: "SyncLoadBalancerFailed",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runBlockedCall(t, call, reason) })
		})
	}
}

func runBlockedCall(t *testing.T, blocked, reason string) {
	t.Helper()
	const limit, quick = 15 * time.Minute, 15 * time.Second
	ctx, stop := context.WithCancel(t.Context())
	c := serve(ctx, t, newRelistAPI(), true)
	var calls []time.Time // the first calls of the blocked kind
	c.cloud.hold = func(ctx context.Context, call string, s *v1.Service) error {
		if s.Name != "slow" || call != blocked {
			return nil
		}
		if calls = append(calls, time.Now()); len(calls) > 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	c.setNode(servedNode("first"))
	advanceClock(time.Second)
	c.addService(plainService("web"))
	c.addService(plainService("slow"))
	advanceClock(quick)
	if blocked == callGet || blocked == callDelete {
		c.removeService("slow")
		advanceClock(quick)
	}
	others := c.requireOthersServed(t)
	require.Len(t, calls, 1)
	advanceClock(time.Until(calls[0].Add(limit + quick)))
	require.Greater(t, len(calls), 1, "it is tried again")
	assert.WithinRange(t, calls[1], calls[0].Add(limit), calls[0].Add(limit+quick))
	want := others
	if blocked == callGet || blocked == callDelete {
		want = ""
	}
	assert.Equal(t, want, c.cloud.backends("slow"))
	assert.Contains(t, strings.Join(c.eventsOf("slow "+reason), "\n"), "given up after 15m0s, and tried again: context deadline exceeded")
	stop()
	synctest.Wait()
}

// eventsOf returns the events that start with an object's name and a reason.
func (a *relistAPI) eventsOf(beginning string) (events []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, event := range a.events {
		if strings.HasPrefix(event, beginning) {
			events = append(events, event)
		}
	}
	return events
}

// requireOthersServed asserts that other Services get joining nodes and new load balancers. It returns their nodes.
func (c servedCluster) requireOthersServed(t *testing.T) (backends string) {
	t.Helper()
	const quick = 5 * time.Second
	backends = "first=fake://first"
	for _, name := range []string{"second", "third"} {
		c.setNode(servedNode(name))
		backends += " " + name + "=fake://" + name
		advanceClock(quick)
		require.Equal(t, backends, c.cloud.backends("web"), "a node joined")
	}
	c.addService(plainService("later"))
	advanceClock(quick)
	require.Equal(t, backends, c.cloud.backends("later"), "it is made")
	return backends
}

// TestBlockedLook: after a failed change of nodes, the framework's only worker for these looks up the load balancer. If the cloud never
// answers, other Services still get their nodes.
func TestBlockedLook(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := serve(ctx, t, newRelistAPI(), true)
		looks := 0
		c.cloud.hold = func(ctx context.Context, call string, s *v1.Service) error {
			switch {
			case s.Name == "slow" && call == callUpdate:
				return errors.New("refused")
			case s.Name == "slow" && call == callGet:
				looks++
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		c.setNode(servedNode("first"))
		advanceClock(time.Second)
		c.addService(plainService("web"))
		c.addService(plainService("slow"))
		advanceClock(time.Second)
		others := c.requireOthersServed(t)
		assert.NotZero(t, looks)
		assert.Equal(t, others, c.cloud.backends("slow"), "a reconciliation has them follow")
		assert.Contains(t, strings.Join(c.eventsOf("slow UpdateLoadBalancerFailed"), "\n"), "refused")
		stop()
		synctest.Wait()
	})
}
