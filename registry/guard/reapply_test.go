package guard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// waitingCloud is a slow cloud that says after each operation when to come back, for as many operations as it is told.
type waitingCloud struct {
	*slowCloud
	back contract.Reapply
	left int
}

func (c *waitingCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *waitingCloud) ask(ctx context.Context) {
	c.mu.Lock()
	c.left--
	back, asks := c.back, c.left >= 0
	c.mu.Unlock()
	if asks {
		contract.ComeBack(ctx, back.After, back.When)
	}
}

// callsAfter lets time pass, and returns the calls so far.
func (c *waitingCloud) callsAfter(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

func (c *waitingCloud) EnsureLoadBalancer(
	ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	c.ask(ctx)
	return c.slowCloud.EnsureLoadBalancer(ctx, cluster, s, nodes)
}

func (c *waitingCloud) UpdateLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) error {
	c.ask(ctx)
	return c.slowCloud.UpdateLoadBalancer(ctx, cluster, s, nodes)
}

// comingBack runs a test on a cloud that asks so often to come back after half a minute.
func comingBack(t *testing.T, often int, test func(t *testing.T, c *waitingCloud, l *loadBalancers, events *record.FakeRecorder)) {
	t.Helper()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		w := &waitingCloud{slowCloud: c, back: contract.Reapply{After: 30 * time.Second}, left: often}
		setProvider(l, w)
		test(t, w, l, events)
	})
}

// TestComeBack: nodes that wait are applied again by themselves, as often as some wait, and that is no failure.
func TestComeBack(t *testing.T) {
	t.Parallel()
	comingBack(t, 3, func(t *testing.T, c *waitingCloud, l *loadBalancers, events *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1", "n2"))
		require.NoError(t, err)
		assert.Equal(t, []string{"ensure web n1,n2"}, c.callsAfter(25*time.Second))
		assert.Equal(t, []string{"ensure web n1,n2", "update web n1,n2"}, c.callsAfter(10*time.Second))
		assert.Len(t, c.callsAfter(time.Hour), 4, "as often as the cloud asked for it")
		assert.Empty(t, events.Events)
	})
}

// TestComeBackWhen: a channel brings it forward.
func TestComeBackWhen(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		when := make(chan struct{})
		c.back = contract.Reapply{After: time.Hour, When: when}
		updateNow(t, l, "web", "n1")
		assert.Equal(t, []string{"update web n1"}, c.callsAfter(time.Minute))
		close(when)
		assert.Equal(t, []string{"update web n1", "update web n1"}, c.callsAfter(time.Second))
	})
}

// TestComeBackToNewerNodes: nodes that changed meanwhile are not held up, and those before do not come back.
func TestComeBackToNewerNodes(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1", "n2"))
		require.NoError(t, err)
		assert.Less(t, updateNow(t, l, "web", "n1"), time.Second)
		assert.Equal(t, []string{"ensure web n1,n2", "update web n1"}, c.callsAfter(time.Hour))
	})
}

// TestComeBackFails: what fails then is tried again. It is told if it takes so long that a call would not have waited for it.
func TestComeBackFails(t *testing.T) {
	t.Parallel()
	for takes, told := range map[time.Duration]int{0: 0, updatePatience - time.Second: 0, updatePatience + time.Second: 2} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, events *record.FakeRecorder) {
				_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1"))
				require.NoError(t, err)
				c.mu.Lock()
				c.updates["web"] = takes
				c.failures["web"] = []error{errors.New("down"), errors.New("down")}
				c.mu.Unlock()
				assert.Len(t, c.callsAfter(time.Hour), 4)
				assert.Empty(t, c.failures["web"])
				assert.Len(t, events.Events, told)
			})
		})
	}
}

// TestComeBackFailsSlowly: the first failure that an event reports is followed by the shortest pause.
func TestComeBackFailsSlowly(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1"))
		require.NoError(t, err)
		c.mu.Lock()
		c.failures["web"] = slices.Repeat([]error{errors.New("down")}, 4)
		c.mu.Unlock()
		require.Len(t, c.callsAfter(50*time.Second), 4)
		c.mu.Lock()
		c.updates["web"] = updatePatience + time.Second
		c.mu.Unlock()
		assert.Len(t, c.callsAfter(30*time.Second), 6)
	})
}

// TestNewerNodesWhileComingBack: nodes that come while others are applied again are not lost where that fails.
func TestNewerNodesWhileComingBack(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1"))
		require.NoError(t, err)
		c.mu.Lock()
		c.updates["web"] = 2 * time.Second
		c.failures["web"] = []error{errors.New("down")}
		c.mu.Unlock()
		time.Sleep(31 * time.Second)
		assert.Zero(t, updateNow(t, l, "web", "n1", "n2"), "it is under way")
		time.Sleep(time.Minute)
		assert.Equal(t, "n1,n2", c.nodesOf("web"))
	})
}

// TestNoComeBackToTheDeparted: a Service that goes ends it.
func TestNoComeBackToTheDeparted(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("n1"))
		require.NoError(t, err)
		require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "c", serviceNamed("web")))
		assert.Equal(t, []string{"ensure web n1"}, c.callsAfter(time.Hour))
	})
}

// TestDisownedIsNotComeBackTo: nodes that waited are not applied to a load balancer that was disowned since.
func TestDisownedIsNotComeBackTo(t *testing.T) {
	t.Parallel()
	comingBack(t, 1, func(t *testing.T, c *waitingCloud, l *loadBalancers, _ *record.FakeRecorder) {
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
		require.NoError(t, err)
		disown(t, l, serviceNamed("web"))
		assert.Equal(t, []string{"ensure web a"}, c.callsAfter(time.Hour))
	})
}
