package guard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

// slowCloud works for a while on each change, and remembers the nodes that each load balancer got last.
type slowCloud struct {
	fake.Cloud
	mu       sync.Mutex
	ensures  time.Duration
	updates  map[string]time.Duration
	failures map[string][]error
	have     map[string]string
	calls    []string
	// refusals are the answers to deletions, the last of them for good.
	refusals []error
	// updated is the Service of the last update.
	updated *v1.Service
}

func newSlowCloud() *slowCloud {
	return &slowCloud{updates: map[string]time.Duration{}, failures: map[string][]error{}, have: map[string]string{}}
}

func (c *slowCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *slowCloud) apply(ctx context.Context, what string, s *v1.Service, nodes []*v1.Node, takes time.Duration) error {
	defer progress.Note(ctx, "load balancer "+s.Name)()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, what+" "+s.Name+" "+namesOf(nodes))
	if left := c.failures[s.Name]; len(left) > 0 {
		c.failures[s.Name] = left[1:]
		if left[0] != nil {
			return left[0]
		}
	}
	c.have[s.Name] = namesOf(nodes)
	return nil
}

func (c *slowCloud) EnsureLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return &v1.LoadBalancerStatus{}, c.apply(ctx, "ensure", s, nodes, c.ensures)
}

func (c *slowCloud) UpdateLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	c.mu.Lock()
	c.updated = s
	c.mu.Unlock()
	return c.apply(ctx, "update", s, nodes, c.updates[s.Name])
}

func (c *slowCloud) EnsureLoadBalancerDeleted(_ context.Context, _ string, s *v1.Service) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.have, s.Name)
	if len(c.refusals) == 0 {
		return nil
	}
	answer := c.refusals[0]
	if len(c.refusals) > 1 {
		c.refusals = c.refusals[1:]
	}
	return answer
}

// nodesOf returns what a load balancer has.
func (c *slowCloud) nodesOf(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have[name]
}

func namesOf(nodes []*v1.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func nodesNamed(names ...string) []*v1.Node {
	var nodes []*v1.Node
	for _, n := range names {
		nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: v1.NodeSpec{ProviderID: "alpha://" + n}})
	}
	return nodes
}

func serviceNamed(name string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// updating runs a test on a guarded slow cloud in virtual time.
func updating(t *testing.T, test func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCloud()
		g := Wrap(c, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy()})
		recorder := record.NewFakeRecorder(100)
		g.reports.setRecorder(recorder)
		stop := make(chan struct{})
		endWith(g.loadBalancers, stop)
		test(t, c, g.loadBalancers, recorder)
		close(stop)
		synctest.Wait()
		assert.Zero(t, g.UpdatesUnderWay(), "what goes on by itself ends with the process")
		assert.Zero(t, countServicesUnderWay(g.loadBalancers), "nothing is remembered of what is over")
	})
}

// update plays the framework's worker, and returns how long it was kept waiting.
func updateNow(t *testing.T, l *loadBalancers, name string, nodes ...string) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, l.UpdateLoadBalancer(t.Context(), "c", serviceNamed(name), nodesNamed(nodes...)))
	return time.Since(began)
}

// TestSlowUpdate: a load balancer that takes a minute holds the framework's worker up for a moment, and gets what was wanted
// last.
func TestSlowUpdate(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		c.updates["slow"] = time.Minute
		assert.LessOrEqual(t, updateNow(t, l, "slow", "a"), updatePatience)
		assert.Zero(t, updateNow(t, l, "quick", "a"))
		assert.Zero(t, updateNow(t, l, "slow", "a", "b"), "it is under way")
		assert.Zero(t, updateNow(t, l, "slow", "b"))
		assert.Zero(t, updateNow(t, l, "quick", "b"))
		assert.Equal(t, "b", c.nodesOf("quick"))
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "b", c.nodesOf("slow"))
		assert.Equal(t, []string{"update quick a", "update quick b", "update slow a", "update slow b"}, c.calls)
		assert.Empty(t, events.Events)
	})
}

// TestUpdateWhileEnsuring: a change of nodes during a reconciliation waits for nothing, and is applied before that returns.
func TestUpdateWhileEnsuring(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.ensures = time.Minute
		done := make(chan error)
		go func() {
			_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
			done <- err
		}()
		time.Sleep(30 * time.Second)
		assert.Zero(t, updateNow(t, l, "web", "a", "b"))
		_, _, err := l.GetLoadBalancer(t.Context(), "c", serviceNamed("web"))
		require.NoError(t, err, "the framework's worker asks at once")
		require.NoError(t, <-done)
		assert.Equal(t, "a,b", c.nodesOf("web"))
	})
}

// TestUpdateAfterEnsureBegan: nodes that a reconciliation brought along are not written over newer ones that something else
// has applied while it waited for its turn.
func TestUpdateAfterEnsureBegan(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.updates["web"] = 20 * time.Second
		updateNow(t, l, "web", "a")
		done := make(chan error)
		go func() {
			_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a", "b"))
			done <- err
		}()
		synctest.Wait()
		assert.Zero(t, updateNow(t, l, "web", "c"))
		require.NoError(t, <-done)
		assert.Equal(t, "c", c.nodesOf("web"))
		assert.Equal(t, "ensure web c", c.calls[len(c.calls)-1])
	})
}

// TestUpdateFailsLater: what goes on by itself is tried again until it succeeds, and tells of its failures.
func TestUpdateFailsLater(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		c.updates["web"] = 10 * time.Second
		c.failures["web"] = []error{errors.New("no"), errors.New("still no")}
		updateNow(t, l, "web", "a")
		time.Sleep(12 * time.Second)
		assert.Zero(t, updateNow(t, l, "web", "b"), "while it waits for its next try")
		time.Sleep(time.Minute)
		assert.Equal(t, "b", c.nodesOf("web"))
		require.Len(t, events.Events, 2)
		assert.Contains(t, <-events.Events, "Warning UpdateLoadBalancerFailed")
	})
}

// TestUpdateFailsAtOnce: a failure that comes soon enough is the framework's, which answers it with a reconciliation.
func TestUpdateFailsAtOnce(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		c.failures["web"] = []error{errors.New("no")}
		require.EqualError(t, l.UpdateLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a")), "no")
		time.Sleep(time.Hour)
		assert.Len(t, c.calls, 1)
		assert.Empty(t, events.Events)
	})
}

// TestUpdateComesBack: a cloud that asks for time gets it, without a word.
func TestUpdateComesBack(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		c.failures["web"] = []error{cloudproviderapi.NewRetryError("busy", 20*time.Second), cloudproviderapi.NewRetryError("busy", 20*time.Second)}
		assert.Zero(t, updateNow(t, l, "web", "a"))
		time.Sleep(50 * time.Second)
		assert.Equal(t, "a", c.nodesOf("web"))
		assert.Empty(t, events.Events)
	})
}

// TestUpdateWhileTheCloudWantsTime: a change of nodes does not wait for a cloud that asked for time, not even after a reconciliation.
func TestUpdateWhileTheCloudWantsTime(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.failures["web"] = []error{cloudproviderapi.NewRetryError("busy", 20*time.Second)}
		assert.Zero(t, updateNow(t, l, "web", "a"))
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
		require.NoError(t, err)
		assert.Zero(t, updateNow(t, l, "web", "b"))
		time.Sleep(21 * time.Second)
		assert.Equal(t, "b", c.nodesOf("web"))
	})
}

// TestUpdateLeftToAReconciliation: a change of nodes that waits for its turn is left to a reconciliation that waits as well, and to the
// framework if that fails.
func TestUpdateLeftToAReconciliation(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		leave := occupy(t, l, serviceNamed("web"))
		c.failures["web"] = []error{errors.New("no")}
		updateNow(t, l, "web", "a")
		done := make(chan error)
		go func() {
			_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a", "b"))
			done <- err
		}()
		synctest.Wait()
		leave()
		require.EqualError(t, <-done, "no")
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"ensure web a,b"}, c.calls)
	})
}

// TestUpdateOvertaken: a reconciliation makes the next try needless; one that fails is the framework's to try again.
func TestUpdateOvertaken(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.updates["web"] = 10 * time.Second
		c.failures["web"] = []error{errors.New("no"), errors.New("no")}
		updateNow(t, l, "web", "a")
		time.Sleep(8 * time.Second)
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a", "b"))
		require.EqualError(t, err, "no")
		_, err = l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a", "c"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Equal(t, "a,c", c.nodesOf("web"))
		assert.Equal(t, "ensure web a,c", c.calls[len(c.calls)-1], "nothing older is applied afterwards")
	})
}

// TestUpdateOfADeletedService: nothing goes on for a Service whose load balancer has gone; one that is made again starts again.
func TestUpdateOfADeletedService(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.updates["web"] = 10 * time.Second
		c.failures["web"] = slices.Repeat([]error{errors.New("no")}, 100)
		updateNow(t, l, "web", "a")
		time.Sleep(20 * time.Second)
		require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "c", serviceNamed("web")))
		calls := len(c.calls)
		time.Sleep(time.Hour)
		assert.Len(t, c.calls, calls)
		c.failures["web"] = nil
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
		require.NoError(t, err)
		assert.Equal(t, "a", c.nodesOf("web"))
	})
}

// TestLeadershipEnds: a try that waits ends with the process; the next leader reconciles every Service.
func TestLeadershipEnds(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.updates["web"] = time.Hour
		updateNow(t, l, "web", "a")
	})
}

// TestLongWait: one Normal event says what is waited for where that takes unusually long, and none where it does not.
func TestLongWait(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
		c.ensures = longWait - time.Second
		_, err := l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
		require.NoError(t, err)
		assert.Empty(t, events.Events)
		c.ensures = 10 * time.Minute
		_, err = l.EnsureLoadBalancer(t.Context(), "c", serviceNamed("web"), nodesNamed("a"))
		require.NoError(t, err)
		require.Len(t, events.Events, 1)
		assert.Equal(t, "Normal LoadBalancerWaiting this takes longer than usual; waiting for load balancer web", <-events.Events)
	})
}

// TestOlderCopyOfAService: a pass of the framework takes all Services at its start; what was reconciled meanwhile stays.
func TestOlderCopyOfAService(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.ensures = 30 * time.Second
		before, after := serviceNamed("a"), serviceNamed("a")
		before.ResourceVersion, after.ResourceVersion = "99", "100"
		after.Labels = map[string]string{"port": "31111"}
		seen := &sawServices{slowCloud: c}
		setProvider(l, seen)
		var group sync.WaitGroup
		group.Go(func() {
			time.Sleep(10 * time.Second)
			assert.NoError(t, l.UpdateLoadBalancer(t.Context(), "", before, nodesNamed("n1", "n2", "n3")))
		})
		_, err := l.EnsureLoadBalancer(t.Context(), "", after, nodesNamed("n1", "n2"))
		require.NoError(t, err)
		group.Wait()
		time.Sleep(time.Minute)
		assert.Equal(t, "n1,n2,n3", c.nodesOf("a"))
		assert.Equal(t, map[string]int{"100": 2}, seen.versions)
	})
}

// sawServices counts the versions of the Services that it is called with.
type sawServices struct {
	*slowCloud
	lock     sync.Mutex
	versions map[string]int
}

func (c *sawServices) saw(s *v1.Service) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.versions == nil {
		c.versions = map[string]int{}
	}
	c.versions[s.ResourceVersion]++
}

func (c *sawServices) EnsureLoadBalancer(
	ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	c.saw(s)
	return c.slowCloud.EnsureLoadBalancer(ctx, cluster, s, nodes)
}

func (c *sawServices) UpdateLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) error {
	c.saw(s)
	return c.slowCloud.UpdateLoadBalancer(ctx, cluster, s, nodes)
}

// TestUpdateByAnOldCopy: a pass of the framework that began before a reconciliation brings the Service as it was then. What is written is
// by the Service of now, so that source ranges that were narrowed meanwhile are not opened again.
func TestUpdateByAnOldCopy(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		showServices(l, stored, true)
		now := serviceNamed("web")
		now.Spec.Type = v1.ServiceTypeLoadBalancer
		now.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		require.NoError(t, stored.Add(now))
		_, err := l.EnsureLoadBalancer(t.Context(), "c", now, nodesNamed("a"))
		require.NoError(t, err)
		updateNow(t, l, "web", "a", "b")
		assert.Equal(t, "a,b", c.nodesOf("web"))
		assert.Equal(t, now.Spec.LoadBalancerSourceRanges, c.updated.Spec.LoadBalancerSourceRanges)
	})
}

var disowned = map[string]string{contract.AnnotationDisown: "true"}

// TestUpdateAfterDeletion: a pass of the framework takes all Services at its start, and may bring along one that was deleted, is
// disowned, or wants no load balancer any more. Nothing is written for such a one, and what fails for it is tried again by nobody.
func TestUpdateAfterDeletion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Service) bool{
		"deleted":                func(*v1.Service) bool { return false },
		"being deleted":          func(s *v1.Service) bool { s.DeletionTimestamp = &metav1.Time{Time: time.Now()}; return true },
		"deleted and made again": func(s *v1.Service) bool { s.UID = "another"; return true },
		"of another type":        func(s *v1.Service) bool { s.Spec.Type = v1.ServiceTypeClusterIP; return true },
		"disowned":               func(s *v1.Service) bool { s.Annotations = disowned; return true },
	} {
		for when, calls := range map[string]int{"before the update": 0, "during the update": 1} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, events *record.FakeRecorder) {
					stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
					showServices(l, stored, true)
					now := serviceNamed("web")
					now.Spec.Type = v1.ServiceTypeLoadBalancer
					require.NoError(t, stored.Add(now))
					depart := func() {
						now := now.DeepCopy()
						require.NoError(t, stored.Delete(now))
						if change(now) {
							require.NoError(t, stored.Add(now))
						}
						if name != "disowned" {
							require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "c", serviceNamed("web")))
						}
					}
					c.updates["web"] = updatePatience + time.Second
					c.failures["web"] = slices.Repeat([]error{errors.New("no such load balancer")}, 1000)
					if calls == 0 {
						depart()
					}
					updateNow(t, l, "web", "a")
					if calls > 0 {
						depart()
					}
					time.Sleep(6 * time.Hour)
					c.mu.Lock()
					defer c.mu.Unlock()
					assert.Len(t, c.calls, calls)
					assert.Zero(t, countServicesUnderWay(l))
					assert.Empty(t, events.Events)
				})
			})
		}
	}
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		showServices(l, stored, true)
		now := serviceNamed("web")
		now.Spec.Type = v1.ServiceTypeLoadBalancer
		require.NoError(t, stored.Add(now))
		c.updates["web"] = updatePatience + time.Second
		c.failures["web"] = slices.Repeat([]error{errors.New("no")}, 20)
		updateNow(t, l, "web", "a")
		time.Sleep(2 * time.Hour)
		assert.Equal(t, "a", c.nodesOf("web"), "one that is there is tried again as long as it takes")
	})
}

// disown stores a Service's newer copy that is disowned, and has it reconciled as the framework does.
func disown(t *testing.T, l *loadBalancers, s *v1.Service) {
	t.Helper()
	s = s.DeepCopy()
	s.ResourceVersion, s.Spec.Type = "200", v1.ServiceTypeLoadBalancer
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[contract.AnnotationDisown] = "true"
	stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, stored.Add(s))
	showServices(l, stored, true)
	_, err := l.EnsureLoadBalancer(t.Context(), "c", s, nodesNamed("a"))
	require.NoError(t, err)
}

// TestDisownedIsNotRetried: a change of nodes that failed before is not applied to a load balancer that was disowned since.
func TestDisownedIsNotRetried(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		c.updates["web"] = 10 * time.Second
		c.failures["web"] = slices.Repeat([]error{errors.New("no")}, 3)
		updateNow(t, l, "web", "a")
		time.Sleep(11 * time.Second) // the first call has failed, and the second one is due
		disown(t, l, serviceNamed("web"))
		calls := len(c.calls)
		time.Sleep(time.Hour)
		assert.Len(t, c.calls, calls, "%v", c.calls)
		assert.Empty(t, c.nodesOf("web"))
	})
}

// TestDisownedWhileItWaits: a reconciliation that waited for another operation does not write a load balancer that was disowned meanwhile.
func TestDisownedWhileItWaits(t *testing.T) {
	t.Parallel()
	updating(t, func(t *testing.T, c *slowCloud, l *loadBalancers, _ *record.FakeRecorder) {
		s := serviceNamed("web")
		leave := occupy(t, l, s)
		done := make(chan error)
		go func() {
			_, err := l.EnsureLoadBalancer(t.Context(), "c", s, nodesNamed("a"))
			done <- err
		}()
		synctest.Wait()
		stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		now := s.DeepCopy()
		now.Spec.Type, now.Annotations = v1.ServiceTypeLoadBalancer, map[string]string{contract.AnnotationDisown: "true"}
		require.NoError(t, stored.Add(now))
		showServices(l, stored, true)
		leave()
		require.NoError(t, <-done)
		assert.Empty(t, c.calls)
	})
}
