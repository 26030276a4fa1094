package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// onEachTakeover runs a subtest for each cluster of each cloud that is taken over. A cloud without the file fails; one whose file names a
// test of the provider instead has none here, and test/scenarios holds that there is such a test.
func onEachTakeover(t *testing.T, test func(*leftCluster)) {
	t.Helper()
	for _, p := range registry.Linked().Providers() {
		if !hasNodesAndLoadBalancers(p.Features) {
			continue
		}
		is, err := expectations.ReadTakeover(filepath.Join("..", ".."), p)
		require.NoError(t, err)
		if is.None != "" || is.HeldBy != "" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			if p.Name != harness.AnyProvider {
				tier.Full(t)
			}
			if len(is.Clusters) == 0 {
				test(newLeftCluster(t, p.Name, "", is))
				return
			}
			for _, name := range append(slices.Sorted(maps.Keys(is.Clusters)), "") {
				t.Run(cmp.Or(name, "base"), func(t *testing.T) { test(newLeftCluster(t, p.Name, name, is)) })
			}
		})
	}
}

// TestTakeover: on every cloud, the cloud and the cluster are as the cloud's own controller leaves them. Our program starts, with every
// feature on: nothing is written in the cloud, and Services and Nodes stay as they are, but for the records that the documentation
// announces; the same at the next restart. A change of type then deletes what was taken over, and nothing of it is left.
func TestTakeover(t *testing.T) {
	onEachTakeover(t, func(l *leftCluster) {
		l.registerNodes()
		l.createOthers()
		before := l.leaveServices()
		left := l.state()
		services, nodes := listServices(l.t.Context(), l.t, l.c), listNodes(l.t.Context(), l.t, l.c)

		m := l.start()
		l.waitRecords()
		l.waitWork(m, len(l.balanced())+l.recorded())
		l.requireUnchanged(left, nodes)
		l.requireServices(services)

		m.Stop(patience)
		services = listServices(l.t.Context(), l.t, l.c)
		m = l.start()
		l.waitWork(m, len(l.balanced()))
		l.requireUnchanged(left, nodes)
		for name, s := range listServices(l.t.Context(), l.t, l.c) {
			assert.Equal(l.t, services[name].ResourceVersion, s.ResourceVersion, "%s was not written by the second start", name)
		}
		l.requireDeletion(before)
	})
}

// TestTheWayBack: on every cloud, what we make carries the names and records by which the cloud's own controller finds it, and what
// that sends whether it differs or not changes nothing.
func TestTheWayBack(t *testing.T) {
	onEachTakeover(t, func(l *leftCluster) {
		l.kinds = slices.DeleteFunc(l.kinds, func(name string) bool { return l.takeover.Kinds[name].OneWay != "" })
		if len(l.balanced()) == 0 {
			return
		}
		l.registerNodes()
		l.createOthers()
		for _, name := range l.balanced() {
			l.createService(name, nil)
		}
		m := l.start()
		for _, name := range l.balanced() {
			_, err := l.c.WaitServed(l.t.Context(), name, patience)
			require.NoError(l.t, err)
		}
		l.waitWork(m, len(l.balanced()))
		if l.takeover.WayBack.Settled != "" {
			waitState(l.t, l.c, "what is made for all Services", l.value(l.takeover.WayBack.Settled, l.scene("")))
		}
		m.Stop(patience)
		before := l.state()
		for _, name := range l.balanced() {
			missing := expectations.Lacks(l.value(l.takeover.WayBack.Finds, l.scene(name)), before)
			assert.Empty(l.t, missing, "%s is found", name)
			l.sendAll(name, l.takeover.WayBack.Requests)
		}
		l.sendAll("", l.takeover.WayBack.Shared)
		unordered := l.takeover.WayBack.Unordered
		assert.Equal(l.t, expectations.Sorted(before, unordered), expectations.Sorted(l.state(), unordered), "nothing changed but orders that say nothing")
	})
}

// balanced are the kinds with load balancers.
func (l *leftCluster) balanced() []string {
	return slices.DeleteFunc(slices.Clone(l.kinds), func(name string) bool { return !l.takeover.Kinds[name].LoadBalancer() })
}

// start starts the program with nothing counted.
func (l *leftCluster) start() *harness.CCM {
	l.t.Helper()
	require.NoError(l.t, l.c.Cloud.ResetCalls(l.t.Context()))
	return startRelease(l.t, l.c, harness.Values(l.cluster.Values), slices.Concat(quickDeletion, l.cluster.Arguments), l.cluster.Environment)
}

// records are those that our program adds to a kind.
func (l *leftCluster) records(kind string) map[string]string {
	if own := l.takeover.Kinds[kind].Records; own != nil {
		return own
	}
	return l.takeover.Records
}

// recorded is how many Services get records.
func (l *leftCluster) recorded() (n int) {
	for _, name := range l.balanced() {
		if len(l.records(name)) > 0 {
			n++
		}
	}
	return n
}

func (l *leftCluster) waitRecords() {
	l.t.Helper()
	require.NoError(l.t, harness.Eventually(l.t.Context(), patience, "the records", func(ctx context.Context) error {
		services := listServices(ctx, l.t, l.c)
		for _, name := range l.balanced() {
			for key := range l.records(name) {
				if _, has := services[name].Annotations[key]; !has {
					return fmt.Errorf("Service %s has no %s", name, key)
				}
			}
		}
		return nil
	}))
}

// waitWork waits until all Services were looked at, a pass of the node loops is over, and no controller has anything left to do.
func (l *leftCluster) waitWork(m *harness.CCM, services int) {
	l.t.Helper()
	requireEnsured(l.t, m, services)
	waitPasses(l.t, m, 1)
	for _, queue := range append([]string{"service"}, l.cluster.Queues...) {
		requireWorked(l.t, m, queue)
	}
}

// requireUnchanged: nothing was written in the cloud, and the Nodes are as they were.
func (l *leftCluster) requireUnchanged(left any, nodes map[string]*v1.Node) {
	l.t.Helper()
	got := calls(l.t, l.c)
	assert.Zero(l.t, got.Writes, "%v", got.ByOperation)
	assert.Empty(l.t, got.Refused)
	assert.Equal(l.t, left, l.state())
	l.t.Logf("%d Services were taken over with %d reads: %v", len(l.balanced()), got.Reads, got.ByOperation)
	now := listNodes(l.t.Context(), l.t, l.c)
	assert.Len(l.t, now, len(nodes))
	for name, n := range now {
		was := nodes[name]
		require.NotNil(l.t, was, name)
		assert.Equal(l.t, was.ResourceVersion, n.ResourceVersion, "%s was not written at all: %+v, %+v", name, was, n)
	}
}

// requireServices: none was written at all, but for the records that are announced.
func (l *leftCluster) requireServices(before map[string]*v1.Service) {
	l.t.Helper()
	now := listServices(l.t.Context(), l.t, l.c)
	assert.Len(l.t, now, len(before))
	for name, s := range now {
		was, records := before[name], l.records(name)
		assert.Equal(l.t, was.Status, s.Status, name)
		assert.Equal(l.t, was.Spec, s.Spec, name)
		assert.Equal(l.t, was.Finalizers, s.Finalizers, name)
		assert.Equal(l.t, was.Labels, s.Labels, name)
		if len(records) == 0 || !l.takeover.Kinds[name].LoadBalancer() {
			assert.Equal(l.t, was.Annotations, s.Annotations, name)
			assert.Equal(l.t, was.ResourceVersion, s.ResourceVersion, "%s was not written at all", name)
			continue
		}
		want := maps.Clone(was.Annotations)
		for key, pattern := range records {
			assert.NotContains(l.t, was.Annotations, key, name)
			assert.Regexp(l.t, pattern, s.Annotations[key], "%s: %s", name, key)
			if want == nil {
				want = map[string]string{}
			}
			want[key] = s.Annotations[key]
		}
		assert.Equal(l.t, want, s.Annotations, name)
	}
}

// requireDeletion: a change of type deletes what was taken over, with the finalizer and the status, and nothing of it is left.
func (l *leftCluster) requireDeletion(before any) {
	l.t.Helper()
	for _, name := range l.balanced() {
		patchService(l.t, l.c, name, `{"spec":{"type":"ClusterIP","loadBalancerSourceRanges":null}}`)
	}
	require.NoError(l.t, harness.Eventually(l.t.Context(), patience, "the Services to be let go", func(ctx context.Context) error {
		for name, s := range listServices(ctx, l.t, l.c) {
			if len(s.Finalizers) > 0 || len(s.Status.LoadBalancer.Ingress) > 0 {
				return fmt.Errorf("Service %s has finalizers %v and status %v", name, s.Finalizers, s.Status)
			}
		}
		return nil
	}))
	defer func() {
		if l.t.Failed() {
			l.t.Logf("the cloud holds %v", holdings(l.t, l.c))
		}
	}()
	if l.takeover.Rest != "" {
		before = expectations.Settled(withRest(before, l.value(l.takeover.Rest, l.scene(""))))
	}
	waitWholeState(l.t, l.c, before)
	for _, name := range l.balanced() {
		if reason := l.takeover.Kinds[name].Event; reason != "" {
			requireEvent(l.t, l.c, metav1.NamespaceDefault, reason, name)
		}
	}
	assert.Empty(l.t, calls(l.t, l.c).Refused)
}

// withRest is a state with further items in its lists.
func withRest(state, rest any) any {
	s, isObject := state.(map[string]any)
	r, alike := rest.(map[string]any)
	if isObject && alike {
		all := maps.Clone(s)
		for key, value := range r {
			all[key] = withRest(all[key], value)
		}
		return all
	}
	if list, alike := rest.([]any); alike {
		had, _ := state.([]any)
		return slices.Concat(had, list)
	}
	return rest
}

// waitStill waits until two looks at the cloud show the same, and returns that.
func waitStill(t *testing.T, c *harness.Cluster) any {
	t.Helper()
	var last, now any
	require.NoError(t, harness.Eventually(t.Context(), patience, "the simulated cloud to be still", func(ctx context.Context) error {
		last, now = now, nil
		if err := c.Cloud.State(ctx, &now); err != nil {
			return err
		}
		if last == nil || !assert.ObjectsAreEqual(last, now) {
			return errors.New("it changes")
		}
		return nil
	}))
	return now
}
