package openstack

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// realCloudConfig names the cloud.conf of an OpenStack on which TestRealOctavia may make load balancers. Its project needs six
// servers or more; they are only read.
const realCloudConfig = "ANYCCM_TEST_OPENSTACK_CLOUD_CONFIG"

// TestRealOctavia measures the steps of a Service's life on a real Octavia, against the times and calls of OpenStack's own
// controller on an Octavia whose changes take 1 to 3 s. It has no place in a run of all tests, because there is no cloud:
//
//	ANYCCM_TEST_OPENSTACK_CLOUD_CONFIG=cloud.conf go test ./providers/openstack -run TestRealOctavia -v
func TestRealOctavia(t *testing.T) { //nolint:paralleltest // it measures times, and counts calls by a metric of the process
	path := os.Getenv(realCloudConfig)
	if path == "" {
		t.Skipf("NOT RUN: nothing was measured on a real Octavia; name the cloud.conf of one by %s", realCloudConfig)
	}
	w := realWorld(t, path)
	nodes := w.nodes
	w.nodes = nodes[:5]
	step := func(name string, most time.Duration, calls int, do func()) {
		before, began := callsOfProcess(t), time.Now()
		do()
		took, made := time.Since(began), callsOfProcess(t)
		total := 0
		by := map[string]int{}
		for operation, n := range made {
			if n -= before[operation]; n > 0 {
				by[operation], total = n, total+n
			}
		}
		t.Logf("%s: %.1f s, %d calls: %v", name, took.Seconds(), total, by)
		assert.LessOrEqual(t, took, most, name)
		assert.LessOrEqual(t, total, calls, name)
	}
	s := service("web", map[string]string{}, servicePort("http", 80, 30080), servicePort("https", 443, 30443))
	ensure := func() {
		status, err := w.reconciler.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
		require.NoError(t, err)
		s = w.SetStatus(s, status)
	}
	update := func() {
		require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
	}
	w.Apply(s)
	defer func() { // whatever fails, nothing is left
		if gone := w.Current(s); t.Failed() {
			gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			assert.NoError(t, w.reconciler.EnsureLoadBalancerDeleted(t.Context(), w.cluster, gone))
		}
	}()
	step("a Service with two ports", 8*time.Second, 24, ensure)
	s.Spec.Ports = []v1.ServicePort{servicePort("http", 80, 30080), servicePort("alt", 8443, 30444), servicePort("more", 9000, 30900)}
	w.Apply(s)
	step("one port replaced, one added", 18*time.Second, 46, ensure)
	w.nodes = nodes[:6]
	step("a node joins", 12*time.Second, 44, update)
	w.nodes = nodes[:5]
	step("a node leaves", 9*time.Second, 23, update)
	step("nothing changed", time.Second, 4, ensure)
	step("the Service goes", 5*time.Second, 20, func() { require.NoError(t, w.remove(s)) })
}

// realWorld is a provider on a real cloud, with a node for each of its servers.
func realWorld(t *testing.T, path string) *world {
	t.Helper()
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	w := &world{Bench: conformance.NewBench(t), cluster: fmt.Sprintf("measured-%d", time.Now().Unix())}
	c, err := newCloud(testInputs(string(file), nil))
	require.NoError(t, err)
	c.reconciler.kube, c.reconciler.Events = w.Kube, w.Recorder
	c.reconciler.cluster.SetClient(w.Kube)
	c.reconciler.cluster.SetServices(w.Services())
	c.reconciler.writer.room = waiting.New(func(ctx context.Context, ids []string) map[string]inventory.Seen[*loadBalancer] {
		seen := c.reconciler.loadBalancers.Look(ctx, ids)
		for _, id := range ids {
			if lb := seen[id].Value; lb != nil && !lb.isPending() {
				w.ended(lb)
			}
		}
		return seen
	}, pace)
	c.instances.nodes.SetLister(w.Nodes())
	w.cloud = c
	servers, err := c.instances.servers.All(t.Context(), inventory.Query{})
	require.NoError(t, err)
	for _, server := range servers {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: server.name, Labels: map[string]string{}}}
		m, err := c.instances.InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
		w.nodes = append(w.nodes, node)
		w.Register(node)
	}
	require.GreaterOrEqual(t, len(w.nodes), 6, "the project needs six servers")
	return w
}

// ended tells how long ago Octavia's work ended that was waited for, which is the time that is lost. Octavia tells whole seconds.
func (w *world) ended(lb *loadBalancer) {
	at, err := time.Parse("2006-01-02T15:04:05", lb.UpdatedAt)
	if assert.NoError(w.T, err) {
		w.T.Logf("%s is seen at rest %.1f to %.1f s after its work ended", lb.ID, max(0, time.Since(at).Seconds()-1), time.Since(at).Seconds())
	}
}

// callsOfProcess counts the calls so far, by operation.
func callsOfProcess(t *testing.T) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	calls := map[string]int{}
	for _, f := range families {
		if f.GetName() != "openstack_api_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			calls[strings.Join(labels, " ")] += int(m.GetCounter().GetValue())
		}
	}
	return calls
}
