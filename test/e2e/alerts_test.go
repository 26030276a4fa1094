package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/build/gobuild"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// prometheus builds the command that evaluates scrapes by Prometheus' own engine, once.
var prometheus = sync.OnceValues(func() (string, error) {
	path := filepath.Join(stage.Dir, "prometheus")
	return path, gobuild.Build{
		Name: "prometheus", Dir: "../../build/prometheus", Env: gobuild.Env(), Flags: gobuild.Flags(nil, nil), Output: path, Packages: []string{"."},
	}.Run(context.Background(), os.Stderr)
})

// monitoring holds the objects that the chart renders for Prometheus and Grafana.
type monitoring struct {
	cluster          *harness.Cluster
	rules, dashboard string
	scrapes          int
}

func newMonitoring(t *testing.T, c *harness.Cluster) *monitoring {
	t.Helper()
	values, err := c.ChartValues(t.Context())
	require.NoError(t, err)
	objects, err := c.Render(t.Context(), "cloud-controller-manager", values.Set("metrics.rules.enabled", true).Set("metrics.dashboard.enabled", true))
	require.NoError(t, err)
	m := &monitoring{cluster: c, rules: filepath.Join(c.Dir, "rules.yaml"), dashboard: filepath.Join(c.Dir, "dashboard.json")}
	for _, o := range objects {
		if o.GetKind() == "PrometheusRule" {
			text, err := yaml.Marshal(o.Object["spec"])
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(m.rules, text, 0o600))
		}
		if text, found, err := unstructured.NestedString(o.Object, "data", "cloud-controller-manager.json"); err == nil && found {
			require.NoError(t, os.WriteFile(m.dashboard, []byte(text), 0o600))
		}
	}
	return m
}

// requireRings scrapes programs now and requires what rings when everything stays so for 8 hours: nothing else than these alerts,
// and each for a series with its labels. It returns how many series each expression of the dashboard has.
func (m *monitoring) requireRings(t *testing.T, situation string, programs []*harness.CCM, alerts map[string]string) map[string]int {
	t.Helper()
	command, err := prometheus()
	require.NoError(t, err)
	args := []string{
		"-rules=" + m.rules, "-dashboard=" + m.dashboard, "-hold=8h", fmt.Sprintf("-at=%d", time.Now().Unix()),
		"-labels=namespace=kube-system,job=kube-system/cloud-controller-manager",
	}
	for _, p := range programs {
		text, err := p.Get(t.Context(), "/metrics")
		require.NoError(t, err)
		m.scrapes++
		file := filepath.Join(m.cluster.Dir, fmt.Sprintf("scrape-%d", m.scrapes))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		args = append(args, file)
	}
	cmd := exec.CommandContext(t.Context(), command, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, said.String())
	var answer struct {
		Firing map[string][]string
		Series map[string]int
	}
	require.NoError(t, json.Unmarshal(out, &answer))
	assert.ElementsMatch(t, slices.Collect(maps.Keys(alerts)), slices.Collect(maps.Keys(answer.Firing)), "%s: %v", situation, answer.Firing)
	for alert, labels := range alerts {
		assert.Contains(t, strings.Join(answer.Firing[alert], " "), labels, situation)
	}
	return answer.Series
}

// waitMetric waits until a metric has a value.
func waitMetric(t *testing.T, m *harness.CCM, want float64, name string, labels ...string) {
	t.Helper()
	waitMetricToBe(t, m, fmt.Sprint(want), func(value float64) bool { return value == want }, name, labels...)
}

func waitPositive(t *testing.T, m *harness.CCM, name string, labels ...string) {
	t.Helper()
	waitMetricToBe(t, m, "positive", func(value float64) bool { return value > 0 }, name, labels...)
}

func waitMetricToBe(t *testing.T, m *harness.CCM, wanted string, is func(float64) bool, name string, labels ...string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, fmt.Sprintf("%s %v to be %s", name, labels, wanted), func(ctx context.Context) error {
		value, err := m.Metric(ctx, name, labels...)
		if err == nil && !is(value) {
			err = fmt.Errorf("it is %v", value)
		}
		return err
	}))
}

const of = `provider="digitalocean"`

// TestAlerts: the alerts of the chart, evaluated by Prometheus on scrapes of the running program, ring where they should and nowhere
// else; each expression of the dashboard shows something.
func TestAlerts(t *testing.T) {
	tier.Full(t)
	const n = 5
	c := newCluster(t, fmt.Sprintf("--instances=%d", n), "--published-limits")
	monitors := newMonitoring(t, c)
	monitors.requireRings(t, "nothing is scraped", nil, map[string]string{"CloudControllerManagerAbsent": ""})
	_, err := c.Install(t.Context(), program, approving)
	require.NoError(t, err)
	m := startRelease(t, c, approving, nil, nil)
	joinNodes(t, c, n)
	allowRequests(t, c)
	shown := monitors.requireRings(t, "healthy", []*harness.CCM{m}, nil)
	for expression, series := range shown {
		if !strings.Contains(expression, "code!~") && !strings.Contains(expression, "orphans") {
			assert.NotZero(t, series, "the dashboard shows nothing for %s", expression)
		}
	}

	second, err := c.StartCCM(t.Context(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the second replica", func(ctx context.Context) error {
		text, err := second.Get(ctx, "/metrics")
		if err == nil && !strings.Contains(text, "leader_election_master_status{") {
			err = fmt.Errorf("it does not stand for election yet")
		}
		return err
	}))
	monitors.requireRings(t, "one leads, one waits", []*harness.CCM{m, second}, nil)
	monitors.requireRings(t, "nobody leads", []*harness.CCM{second}, map[string]string{"CloudControllerManagerNobodyLeads": ""})
	second.Stop(patience)

	require.NoError(t, c.Cloud.Remove(t.Context(), "node-5"))
	require.NoError(t, c.SetReady(t.Context(), "node-5", false))
	waitGone(t, c, "node-5")
	waitPositive(t, m, "anyccm_guard_node_deletions_held_total") // each is held for some seconds
	monitors.requireRings(t, "a node was deleted", []*harness.CCM{m}, nil)

	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "nameless", Ready: true}))
	waitMetric(t, m, 1, "anyccm_guard_uninitialized_nodes", of)
	requireEvent(t, c, metav1.NamespaceDefault, "NodeInitializationFailed", "nameless")
	waitPositive(t, m, "anyccm_guard_node_initializations_failed_total", of)
	monitors.requireRings(t, "a node is stuck", []*harness.CCM{m}, map[string]string{"CloudControllerManagerNodesNotInitialized": of})
	require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "nameless", metav1.DeleteOptions{}))
	waitMetric(t, m, 0, "anyccm_guard_uninitialized_nodes", of)

	requireWaitingKubeletRings(t, c, monitors, m)
	requireRefusalRings(t, c, monitors, m)
	requireOutageRings(t, c, monitors, m)
	for i := range n - 1 {
		name := fmt.Sprintf("node-%d", i+1)
		require.NoError(t, c.Cloud.Remove(t.Context(), name))
		require.NoError(t, c.SetReady(t.Context(), name, false))
	}
	waitMetric(t, m, n-1, "anyccm_guard_held_nodes", of, `reason="all"`)
	monitors.requireRings(t, "all instances vanished", []*harness.CCM{m}, map[string]string{"CloudControllerManagerNodeDeletionHeld": `reason="all"`})
}

// requireWaitingKubeletRings has a kubelet ask for another node's addresses, and takes its request away.
func requireWaitingKubeletRings(t *testing.T, c *harness.Cluster, monitors *monitoring, m *harness.CCM) {
	t.Helper()
	kubelet := startKubelet(t, c, "node-1", node(t, c, "node-2").Status.Addresses)
	waitMetric(t, m, 1, "anyccm_serving_certificate_waiting_nodes", of)
	monitors.requireRings(t, "a kubelet waits", []*harness.CCM{m}, map[string]string{"CloudControllerManagerServingCertificatesWait": of})
	kubelet.Stop()
	requests := c.Kube.CertificatesV1().CertificateSigningRequests()
	require.NoError(t, requests.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	waitMetric(t, m, 0, "anyccm_serving_certificate_waiting_nodes", of)
}

// requireRefusalRings has a Service refused, and deletes it.
func requireRefusalRings(t *testing.T, c *harness.Cluster, monitors *monitoring, m *harness.CCM) {
	t.Helper()
	refused, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(
		t.Context(), serviceOf("refused", v1.ServiceTypeLoadBalancer, map[string]string{"anyccm.io/protect-load-balancer": "maybe"}), metav1.CreateOptions{},
	)
	require.NoError(t, err)
	waitMetric(t, m, 1, "anyccm_guard_unserved_services", of, `reason="settings"`)
	monitors.requireRings(t, "a Service is refused", []*harness.CCM{m}, map[string]string{"CloudControllerManagerServicesNotServed": `reason="settings"`})
	require.NoError(t, c.Kube.CoreV1().Services(refused.Namespace).Delete(t.Context(), refused.Name, metav1.DeleteOptions{}))
	waitMetric(t, m, 0, "anyccm_guard_unserved_services", of, `reason="settings"`)
}

// requireOutageRings makes the cloud fail, and then work again.
func requireOutageRings(t *testing.T, c *harness.Cluster, monitors *monitoring, m *harness.CCM) {
	t.Helper()
	require.NoError(t, c.Cloud.AddFault(t.Context(), harness.Fault{Kind: "status", Status: 500}))
	require.NoError(t, c.SetReady(t.Context(), "node-1", false)) // somebody has to ask
	waitMetric(t, m, 0, "anyccm_cloud_api_up", of)
	shown := monitors.requireRings(t, "the cloud is down", []*harness.CCM{m}, map[string]string{"CloudControllerManagerCloudAPIDown": of})
	for expression, series := range shown {
		if strings.Contains(expression, "code!~") {
			assert.NotZero(t, series, expression)
		}
	}
	require.NoError(t, c.Cloud.ClearFaults(t.Context()))
	waitMetric(t, m, 1, "anyccm_cloud_api_up", of)
}

// TestOrphanAlert: a load balancer that its Service left behind rings; one that was left on purpose does not.
func TestOrphanAlert(t *testing.T) {
	tier.Full(t)
	c := newCluster(t, "--instances=2")
	monitors := newMonitoring(t, c)
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	for _, name := range []string{"lost", "kept"} {
		_, err := c.CreateService(t.Context(), name, map[string]string{"anyccm.io/retain-load-balancer": strconv.FormatBool(name == "kept")})
		require.NoError(t, err)
		_, err = c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
	}
	services := c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	m.Stop(patience)
	// Somebody takes the finalizer away while nobody works.
	_, err := services.Patch(t.Context(), "lost", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, services.Delete(t.Context(), "lost", metav1.DeleteOptions{}))
	m = startCCM(t, c, []string{"--orphan-search-period=10s"}, nil)
	require.NoError(t, services.Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	requireEvent(t, c, metav1.NamespaceDefault, "LoadBalancerRetained", "kept")

	require.NoError(t, harness.Eventually(t.Context(), patience, "the search for orphans", func(ctx context.Context) error {
		text, err := m.Get(ctx, "/metrics")
		if err == nil && !strings.Contains(text, "anyccm_guard_orphans{") {
			err = fmt.Errorf("it has not run yet")
		}
		return err
	}))
	found, err := m.Metric(t.Context(), "anyccm_guard_orphans", of)
	require.NoError(t, err)
	assert.InDelta(t, 1, found, 0, "the one that was left on purpose is none")
	shown := monitors.requireRings(t, "an orphan", []*harness.CCM{m}, map[string]string{"CloudControllerManagerOrphans": of})
	for expression, series := range shown {
		if strings.Contains(expression, "orphans") {
			assert.NotZero(t, series, expression)
		}
	}
}
