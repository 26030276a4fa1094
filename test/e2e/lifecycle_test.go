package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestServiceLifeCycle: on every cloud, nodes, and a Service of each kind from its creation to its end. A restart in between writes
// nothing, nor does one without the records that no other controller writes, and in the end the cloud is as it was before.
func TestServiceLifeCycle(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		for name, kind := range expected.LifeCycle {
			t.Run(name, func(t *testing.T) {
				c := newClusterOn(t, provider, "--instances=3")
				m := startCCM(t, c, nil, nil)
				joinNodes(t, c, 2)
				requireNode(t, c, expected)
				before := wholeState(t, c)
				_, err := c.CreateService(t.Context(), "web", kind.Annotations)
				require.NoError(t, err)
				address := requireServed(t, c, expected, kind)
				nodeComesAndGoes(t, c)
				again := requireQuietRestart(t, c, m, address, nil)
				again = requireQuietRestart(t, c, again, address, ownRecords(t, c, provider, kind))
				nodeComesAndGoes(t, c)
				patchService(t, c, "web", `{"spec":{"ports":[{"name":"alt","port":8080,"protocol":"TCP"}]}}`)
				waitHoldings(t, c, 1, unlessInCluster(c, "8080"))
				requireEnds(t, c, before)
				assert.Empty(t, calls(t, c).Refused)
				requireNoComplaints(t, c, m, again)
			})
		}
	})
}

// unlessInCluster is what a load balancer shows of its nodes and ports. Where there is no cloud outside of the cluster, it is an address,
// which shows neither.
func unlessInCluster(c *harness.Cluster, shown string) string {
	if c.Cloud.InCluster() {
		return ""
	}
	return shown
}

// requireNode holds what was written to a Node against what the cloud's page says of its instances.
func requireNode(t *testing.T, c *harness.Cluster, expected expectations.Cloud) {
	t.Helper()
	n := node(t, c, "node-1")
	if c.Cloud.InCluster() {
		assert.Empty(t, n.Spec.ProviderID, "nobody writes it")
	} else {
		assert.Regexp(t, expected.ProviderID, n.Spec.ProviderID)
	}
	for label, pattern := range expected.Labels {
		assert.Regexp(t, pattern, n.Labels[label], label)
	}
}

// requireServed waits until the Service web is served with two nodes, and returns its address.
func requireServed(t *testing.T, c *harness.Cluster, expected expectations.Cloud, kind expectations.Kind) string {
	t.Helper()
	address, err := c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	assert.Regexp(t, kind.Address, address)
	waitHoldings(t, c, 1, kind.Holds)
	waitHoldings(t, c, 1, unlessInCluster(c, "2 nodes"))
	s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	if kind.IPMode != "" {
		require.NotNil(t, s.Status.LoadBalancer.Ingress[0].IPMode)
		assert.Equal(t, kind.IPMode, *s.Status.LoadBalancer.Ingress[0].IPMode)
	}
	if expected.Adoption.Recorded != "" {
		assert.NotEmpty(t, s.Annotations[expected.Adoption.Recorded], "the load balancer is recorded on the Service")
	}
	return address
}

// nodeComesAndGoes: a third node joins, its addresses still unknown, and leaves.
func nodeComesAndGoes(t *testing.T, c *harness.Cluster) {
	t.Helper()
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
	waitHoldings(t, c, 1, unlessInCluster(c, "3 nodes"))
	require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "node-3", metav1.DeleteOptions{}))
	waitHoldings(t, c, 1, unlessInCluster(c, "2 nodes"))
}

// requireQuietRestart: a program that begins with nothing in memory, and without some annotations, finds everything as it is to be.
func requireQuietRestart(t *testing.T, c *harness.Cluster, m *harness.CCM, address string, without map[string]string) *harness.CCM {
	t.Helper()
	requireWorked(t, m, "service")
	m.Stop(patience)
	annotate := func(value func(was string) any) {
		for key, was := range without {
			patch, err := json.Marshal(object{"metadata": object{"annotations": object{key: value(was)}}})
			require.NoError(t, err)
			patchService(t, c, "web", string(patch))
		}
	}
	annotate(func(string) any { return nil })
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, nil, nil)
	requireEnsured(t, m, 1)
	assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)
	again, err := c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	assert.Equal(t, address, again)
	annotate(func(was string) any { return was }) // without them an ID on the Service counts as the user's from now on
	return m
}

// ownRecords are the annotations of the Service web that this program has added and no other controller writes.
func ownRecords(t *testing.T, c *harness.Cluster, provider string, kind expectations.Kind) map[string]string {
	t.Helper()
	p, err := registry.Linked().Lookup(provider)
	require.NoError(t, err)
	s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	own := map[string]string{}
	for key, value := range s.Annotations {
		if _, users := kind.Annotations[key]; !users && (strings.HasPrefix(key, "anyccm.io/") || slices.Contains(p.Records, key)) {
			own[key] = value
		}
	}
	return own
}

// errorLine is a line of the log by which an error about the Service is told.
var errorLine = regexp.MustCompile(`(?m)^E\d{4} .*default/web.*$`)

// written reports whether the program wrote an event. The API server has complaints of its own.
func written(c *harness.Cluster, e v1.Event) bool {
	return slices.ContainsFunc(e.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == filepath.Base(c.Programs.CCM) })
}

// requireNoComplaints: where nothing went wrong no event warns and no error about the Service is logged. Work that takes its time is
// no failure.
func requireNoComplaints(t *testing.T, c *harness.Cluster, programs ...*harness.CCM) {
	t.Helper()
	list, err := c.Kube.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	reasons := map[string]bool{}
	for _, e := range list.Items {
		if !written(c, e) {
			continue
		}
		reasons[e.Reason] = true
		assert.NotEqual(t, v1.EventTypeWarning, e.Type, "%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
	}
	assert.True(t, reasons["EnsuringLoadBalancer"] && reasons["EnsuredLoadBalancer"], "%v", reasons)
	for _, m := range programs {
		log, err := os.ReadFile(m.Log)
		require.NoError(t, err)
		require.NotEmpty(t, log)
		assert.Empty(t, errorLine.FindAllString(string(log), -1))
	}
}

// requireEnds: of a Service that needs no load balancer any more nothing is left, and of a deleted one neither.
func requireEnds(t *testing.T, c *harness.Cluster, before any) {
	t.Helper()
	// The API server clears the status with the type.
	patchService(t, c, "web", `{"spec":{"type":"ClusterIP"}}`)
	waitWholeState(t, c, before)
	patchService(t, c, "web", `{"spec":{"type":"LoadBalancer"}}`)
	waitHoldings(t, c, 1, unlessInCluster(c, "2 nodes"))
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the Service to go", func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	}))
	waitWholeState(t, c, before)
}

// wholeState is all that the simulated cloud has, without what counts or dates its changes.
func wholeState(t *testing.T, c *harness.Cluster) any {
	t.Helper()
	var state any
	require.NoError(t, c.Cloud.State(t.Context(), &state))
	return settled(state)
}

// changing are fields that tell when or how often an object was changed, or that the cloud adds with the first change.
var changing = []string{"etag", "resourceGuid", "_revision", "revision_number", "_last_modified_time", "updated", "updated_at"}

// settled is a state without what tells of changes, and without what is empty, which clouds show in several ways.
func settled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			if value = settled(value); value != nil && !slices.Contains(changing, key) {
				all[key] = value
			}
		}
		if len(all) > 0 {
			return all
		}
		return nil
	case []any:
		var all []any
		for _, value := range v {
			if value = settled(value); value != nil {
				all = append(all, value)
			}
		}
		if len(all) > 0 {
			return all
		}
		return nil
	}
	return v
}

// waitWholeState waits until the cloud has what it had.
func waitWholeState(t *testing.T, c *harness.Cluster, want any) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "everything to be gone", func(ctx context.Context) error {
		var state any
		if err := c.Cloud.State(ctx, &state); err != nil {
			return err
		}
		has := settled(state)
		if extra := expectations.Lacks(has, want); extra != "" {
			return fmt.Errorf("the cloud has more than before: %s", extra)
		}
		if lost := expectations.Lacks(want, has); lost != "" {
			return fmt.Errorf("the cloud has less than before: %s", lost)
		}
		return nil
	}))
}
