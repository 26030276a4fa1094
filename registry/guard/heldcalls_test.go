package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// queued is a call that was held back, and nothing else.
type queued struct{ limited }

func (queued) HeldBack() bool { return true }

func rateLimited(d time.Duration) error { return fmt.Errorf("adding nodes: %w", queued{limited{d}}) }

func TestHeldBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		wait time.Duration
		held bool
	}{
		"nothing":                    {nil, 0, false},
		"a failure":                  {errors.New("no"), 0, false},
		"refused by the cloud":       {limited{time.Second}, 0, false},
		"held":                       {rateLimited(time.Second), time.Second, true},
		"held, for no known time":    {rateLimited(0), 0, false},
		"several, all of them held":  {errors.Join(rateLimited(time.Second), rateLimited(time.Minute)), time.Minute, true},
		"several, one a failure":     {fmt.Errorf("two: %w", errors.Join(rateLimited(time.Second), errors.New("no"))), 0, false},
		"work that goes on":          {cloudproviderapi.NewRetryError("busy", time.Second), 0, false},
		"a failure that is held too": {fmt.Errorf("%w: %w", errors.New("no"), rateLimited(time.Second)), 0, false},
	} {
		wait, held := heldBackFor(c.err)
		assert.Equal(t, c.held, held, name)
		if held {
			assert.Equal(t, c.wait, wait, name)
		}
	}
}

// TestQueueIsNoFailure: what only waits until the cloud may be called again is done in its turn, with the nodes of then, without an
// event, and without giving it back to the framework, which would tell of a failure and begin anew.
func TestQueueIsNoFailure(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(*loadBalancers) error{
		"ensure": func(l *loadBalancers) error {
			_, err := l.EnsureLoadBalancer(context.Background(), "c", serviceNamed("web"), nodesNamed("a"))
			return err
		},
		"update": func(l *loadBalancers) error {
			return l.UpdateLoadBalancer(context.Background(), "c", serviceNamed("web"), nodesNamed("a"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
				c.failures["web"] = slices.Repeat([]error{rateLimited(10 * time.Second)}, 6)
				done := make(chan error, 1)
				go func() { done <- do(l) }()
				time.Sleep(35 * time.Second)
				assert.Zero(t, updateNow(t, l, "web", "a", "b"), "it is under way")
				time.Sleep(time.Minute)
				require.NoError(t, <-done)
				assert.Equal(t, "a,b", c.nodesOf("web"))
				assert.Equal(t, what+" web a,b", c.calls[len(c.calls)-1], "nothing old was applied on the way")
				assert.Len(t, c.calls, 7)
				assert.Empty(t, events.Events)
			})
		})
	}
}

// TestQueueWithoutEnd: what stays held back, or would for long, is a failure that the user is told of.
func TestQueueWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wait, took time.Duration }{
		"a pause of an hour": {time.Hour, 0},
		"again and again":    {10 * time.Second, turnPatience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			updating(t, func(t *testing.T, cloud *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
				cloud.failures["web"] = slices.Repeat([]error{rateLimited(c.wait)}, 1000)
				began := time.Now()
				_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
				retry, ok := errors.AsType[*cloudproviderapi.RetryError](err)
				require.True(t, ok, "the framework comes back when calls are allowed: %v", err)
				assert.Equal(t, c.wait, retry.RetryAfter())
				assert.LessOrEqual(t, time.Since(began), c.took)
				assert.GreaterOrEqual(t, time.Since(began), c.took-c.wait)
			})
			updating(t, func(t *testing.T, cloud *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
				cloud.failures["web"] = slices.Repeat([]error{rateLimited(c.wait)}, 1000)
				err := l.UpdateLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
				if c.took == 0 {
					require.ErrorContains(t, err, "adding nodes: rate limited", "the framework's, which answers it with a reconciliation")
					return
				}
				require.NoError(t, err)
				time.Sleep(c.took - time.Minute)
				assert.Empty(t, events.Events)
				time.Sleep(2 * time.Minute)
				assert.Contains(t, <-events.Events, "Warning UpdateLoadBalancerFailed")
			})
		})
	}
}

// TestQueueOfAServiceThatGoes: a Service that is deleted while it waits does not wait any longer, and its deletion waits in its turn.
func TestQueueOfAServiceThatGoes(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		showServices(l, stored, true)
		now := serviceNamed("web")
		now.Spec.Type = v1.ServiceTypeLoadBalancer
		require.NoError(t, stored.Add(now))
		c.failures["web"] = slices.Repeat([]error{rateLimited(10 * time.Second)}, 1000)
		began := time.Now()
		go func() {
			time.Sleep(25 * time.Second)
			assert.NoError(t, stored.Delete(now))
		}()
		_, err := l.EnsureLoadBalancer(t.Context(), "c", now, nodesNamed("a"))
		require.Error(t, err)
		assert.LessOrEqual(t, time.Since(began), 35*time.Second)

		c.refusals = []error{rateLimited(20 * time.Second), rateLimited(20 * time.Second), nil}
		began = time.Now()
		require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "c", now))
		assert.Equal(t, 40*time.Second, time.Since(began))
		assert.Empty(t, events.Events)
		synctest.Wait()
	})
}

// TestDeletionAsksForTheServiceOfNow: what keeps a load balancer counts where it is set while the deletion waits for its turn.
func TestDeletionAsksForTheServiceOfNow(t *testing.T) {
	t.Parallel()
	for annotation, refused := range map[string]bool{
		contract.AnnotationRetain: false, contract.AnnotationProtect: true, contract.AnnotationDisown: false,
	} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			updating(t, func(t *testing.T, _ *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
				deleting := &heldDeletion{}
				setProvider(l, deleting)
				stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				showServices(l, stored, true)
				now := serviceNamed("web")
				require.NoError(t, stored.Add(now))
				deleting.then = func() {
					now := now.DeepCopy()
					now.Annotations = map[string]string{annotation: "true"}
					require.NoError(t, stored.Update(now))
				}
				err := l.EnsureLoadBalancerDeleted(t.Context(), "c", serviceNamed("web"))
				assert.Equal(t, refused, err != nil, "%v", err)
				assert.Equal(t, 1, deleting.calls)
			})
		})
	}
}

// heldDeletion is a cloud that holds back deletions, and does something meanwhile.
type heldDeletion struct {
	slowCloud

	then  func()
	calls int
}

func (c *heldDeletion) EnsureLoadBalancerDeleted(context.Context, string, *v1.Service) error {
	c.calls++
	c.then()
	return rateLimited(time.Second)
}
