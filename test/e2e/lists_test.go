package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// object is a JSON object.
type object = map[string]any

func listServices(ctx context.Context, t *testing.T, c *harness.Cluster) map[string]*v1.Service {
	t.Helper()
	list, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	byName := map[string]*v1.Service{}
	for i := range list.Items {
		if list.Items[i].Name != "kubernetes" {
			byName[list.Items[i].Name] = &list.Items[i]
		}
	}
	return byName
}

func listNodes(ctx context.Context, t *testing.T, c *harness.Cluster) map[string]*v1.Node {
	t.Helper()
	list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	byName := map[string]*v1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

// requireWorked waits until a controller has done something and has nothing left to do.
func requireWorked(t *testing.T, m *harness.CCM, queue string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the controller "+queue, func(ctx context.Context) error {
		done, err := m.Metric(ctx, "workqueue_work_duration_seconds_count", fmt.Sprintf("name=%q", queue))
		if err != nil {
			return err
		}
		depth, err := m.Metric(ctx, "workqueue_depth", fmt.Sprintf("name=%q", queue))
		if err != nil {
			return err
		}
		busy, err := m.Metric(ctx, "workqueue_unfinished_work_seconds", fmt.Sprintf("name=%q", queue))
		if err == nil && (done == 0 || depth > 0 || busy > 0) {
			err = fmt.Errorf("%.0f done, %.0f waiting, busy for %.1f s", done, depth, busy)
		}
		return err
	}))
}

// unlessInCluster returns the expected nodes and ports of a load balancer; "" without a cloud outside of the cluster, where it is only an
// address.
func unlessInCluster(c *harness.Cluster, shown string) string {
	if c.Cloud.InCluster() {
		return ""
	}
	return shown
}

// wroteEvent reports whether the program wrote an event. The API server has complaints of its own.
func wroteEvent(c *harness.Cluster, e v1.Event) bool {
	return slices.ContainsFunc(e.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == filepath.Base(c.Programs.CCM) })
}

// wholeState is all that the simulated cloud has, without what counts or dates its changes.
func wholeState(t *testing.T, c *harness.Cluster) any {
	t.Helper()
	var state any
	require.NoError(t, c.Cloud.State(t.Context(), &state))
	return expectations.Settled(state)
}

// waitWholeState waits until the cloud has what it had.
func waitWholeState(t *testing.T, c *harness.Cluster, want any) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "everything to be gone", func(ctx context.Context) error {
		var state any
		if err := c.Cloud.State(ctx, &state); err != nil {
			return err
		}
		has := expectations.Settled(state)
		if extra := expectations.Lacks(has, want); extra != "" {
			return fmt.Errorf("the cloud has more than before: %s", extra)
		}
		if lost := expectations.Lacks(want, has); lost != "" {
			return fmt.Errorf("the cloud has less than before: %s", lost)
		}
		return nil
	}))
}
