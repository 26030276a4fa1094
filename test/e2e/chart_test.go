package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestChartInstallation: the chart is installed, upgraded and uninstalled on a real API server, which validates every
// object strictly; the upgrade changes the running set-up, and nothing is left at the end.
func TestChartInstallation(t *testing.T) {
	c := newCluster(t, "--instances=1")
	everything := harness.Values{
		"kind": "Deployment", "networkPolicy.enabled": true, "metrics.dashboard.enabled": true, "admissionPolicy.enabled": true, "loadBalancerClassMode": "named", "loadBalancerClass": "example.com/lb",
		"podAnnotations": map[string]string{"a": "b"}, "podLabels": map[string]string{"c": "d"}, "extraArgs": []string{"--node-deletion-dry-run"},
	}
	_, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	objects, err := c.Install(t.Context(), "extra", everything)
	require.NoError(t, err)
	_, err = c.Install(t.Context(), "extra", everything)
	require.NoError(t, err, "once more changes nothing")
	m, err := c.StartRelease(t.Context(), "extra", c.Programs.CCM, everything, nil, nil)
	require.NoError(t, err)
	require.NoError(t, m.WaitLeading(t.Context(), patience))
	joinNodes(t, c, 1)
	m.Stop(10 * time.Second)

	first, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	require.NoError(t, c.Delete(t.Context(), objects))
	for _, o := range first {
		if o.GetKind() == "DaemonSet" {
			require.NoError(t, c.Kube.AppsV1().DaemonSets(o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}), "the only object that the change of the kind replaces")
		}
	}
	roles, err := c.Kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, roles.Items)
	accounts, err := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, accounts.Items)
}
