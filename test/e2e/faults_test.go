package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// outage is how long each fault lasts while nodes are not ready: twelve passes.
const outage = 6 * time.Second

// TestOutage: during no fault of the cloud's API is a Node deleted whose droplet lives; afterwards work resumes by
// itself, and a Node whose droplet was deleted goes. One of the faults is a failure that shows, the other one an answer that is wrong; the
// conformance suite has every kind on every cloud.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		harness.Fault
		// says is part of the event on a node that joins meanwhile.
		says string
	}{
		{harness.Fault{Kind: "status", Status: 500}, "HTTP 500"},
		{harness.Fault{Kind: "empty-list"}, "no droplet is named"},
	} {
		t.Run(strings.TrimSuffix(fmt.Sprintf("%s-%d", f.Kind, f.Status), "-0"), func(t *testing.T) {
			const n = 8
			c := newCluster(t, fmt.Sprintf("--instances=%d", n))
			m := startCCM(t, c, quickDeletion, nil)
			joinNodes(t, c, n)
			began := time.Now()
			require.NoError(t, c.Cloud.AddFault(t.Context(), f.Fault))
			for i := range n {
				require.NoError(t, c.SetReady(t.Context(), fmt.Sprintf("node-%d", i+1), false))
			}
			_, err := c.CreateService(t.Context(), "web", nil)
			require.NoError(t, err)
			// A node that joins during the fault waits, is told why, and is initialised afterwards.
			require.NoError(t, c.Cloud.Seed(t.Context(), 1))
			require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: fmt.Sprintf("node-%d", n+1), Ready: true}))
			passes := passesOf(t, m)
			requireAllNodesFor(t, c, n+1, outage)
			waitPassesSince(t, m, passes, provenPasses) // on a slow machine the time alone does not say that anybody looked
			requireAllNodesFor(t, c, n+1, time.Second)
			requireEvent(t, c, metav1.NamespaceDefault, "NodeInitializationFailed", fmt.Sprintf("node-%d", n+1), f.says)
			faulty, took := calls(t, c).Total, time.Since(began)
			t.Logf("%d calls until the end of the fault, after %s", faulty, took.Round(time.Second))
			assert.Less(t, faulty, int(250*took/outage), "an outage does not multiply the calls")
			kept := requireQuiet(t, c, m)
			assert.True(t, kept > 0 || f.Kind != "status", "reads of single instances know better than a listing that is wrong, and no others")

			require.NoError(t, c.Cloud.ClearFaults(t.Context()))
			require.NoError(t, c.WaitInitialized(t.Context(), n+1, patience))
			require.NoError(t, c.Cloud.Remove(t.Context(), "node-1"))
			waitGone(t, c, "node-1")
			requireAllNodesFor(t, c, n, time.Second)
		})
	}
}

// requireQuiet: a Node that cannot be judged is one line of the log and no error in each pass, and no event tells of an update of a load
// balancer that is not there. It returns how many Nodes could not be judged.
func requireQuiet(t *testing.T, c *harness.Cluster, m *harness.CCM) int {
	t.Helper()
	log, err := os.ReadFile(m.Log)
	require.NoError(t, err)
	assert.NotRegexp(t, `(?m)^E.*node_lifecycle_controller\.go`, string(log))
	kept := regexp.MustCompile(`(?m)^I.*the Node is kept" node="(.*?)"`).FindAllStringSubmatch(string(log), -1)
	for i, line := range kept {
		assert.False(t, slices.ContainsFunc(kept[:i], func(before []string) bool { return before[1] == line[1] }), "%s is told of twice", line[1])
	}
	events, err := c.Kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=UpdatedLoadBalancer"})
	require.NoError(t, err)
	assert.Empty(t, events.Items)
	return len(kept)
}

// requireAllNodesFor watches for a time that no Node goes.
func requireAllNodesFor(t *testing.T, c *harness.Cluster, n int, span time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, n, "a Node of a living droplet was deleted")
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// TestHalfBlindCredential: a credential that lost rights sees a part of the account, or nothing, where the cloud says that what may not be
// read is not found. No Node goes and no load balancer, and these keep their nodes.
func TestHalfBlindCredential(t *testing.T) {
	const n = 4
	c := newCluster(t, fmt.Sprintf("--instances=%d", n))
	m := startCCM(t, c, quickDeletion, nil)
	joinNodes(t, c, n)
	_, err := c.CreateService(t.Context(), "web", nil)
	require.NoError(t, err)
	_, err = c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	before := holdings(t, c)
	for _, step := range []struct {
		faults  []harness.Fault
		unready []string
	}{
		{
			[]harness.Fault{
				{Kind: "unlisted", Names: "400000002,400000003"}, {Kind: "vanished", Names: "400000002"}, {Kind: "vanished", Names: "400000003"},
			},
			[]string{"node-2"},
		},
		{
			[]harness.Fault{{Kind: "empty-list"}, {Kind: "status", Status: http.StatusNotFound, Operation: "GET /v2/droplets/{id}"}},
			[]string{"node-1", "node-2", "node-3", "node-4"},
		},
	} {
		require.NoError(t, c.Cloud.ClearFaults(t.Context()))
		for _, f := range step.faults {
			require.NoError(t, c.Cloud.AddFault(t.Context(), f))
		}
		for _, name := range step.unready {
			require.NoError(t, c.SetReady(t.Context(), name, false))
		}
		passes := passesOf(t, m)
		requireAllNodesFor(t, c, n, outage)
		waitPassesSince(t, m, passes, provenPasses)
		requireAllNodesFor(t, c, n, time.Second)
		assert.Equal(t, before, holdings(t, c))
	}
	requireEvent(t, c, metav1.NamespaceDefault, "NodeDeletionHeld", "node-1", "the credential belongs to another account or project")
}

func TestCloudUnreachableAtStart(t *testing.T) {
	c := newCluster(t, "--instances=2")
	require.NoError(t, c.Cloud.Configure(t.Context(), map[string]any{"unreachable": true}))
	m := startCCM(t, c, nil, nil)
	require.NoError(t, c.RegisterNodes(t.Context(), 1, 2, harness.NodeSpec{Ready: true}))
	_, err := c.CreateService(t.Context(), "web", nil)
	require.NoError(t, err)

	requireReported(t, c, m, "unreachable")
	_, err = m.Get(t.Context(), "/healthz")
	require.NoError(t, err, "an outage of the cloud must not make kubelet restart the program")
	requireEvent(t, c, metav1.NamespaceDefault, "SyncLoadBalancerFailed", "web")
	select {
	case <-m.Done():
		t.Fatal("the program ended")
	default:
	}

	require.NoError(t, c.Cloud.Configure(t.Context(), map[string]any{"unreachable": false}))
	require.NoError(t, c.WaitInitialized(t.Context(), 2, patience))
	_, err = c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	requireHealthy(t, m)
	requireEvent(t, c, metav1.NamespaceSystem, "CloudAPIAvailable", "cloud-controller-manager")
}

// requireReported waits until the log, the health check, the status page, the metric and an event say what is wrong.
func requireReported(t *testing.T, c *harness.Cluster, m *harness.CCM, reason string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the report of the failure", func(ctx context.Context) error {
		status, err := m.CloudAPIStatus(ctx)
		if err == nil && !strings.Contains(status, reason) {
			err = fmt.Errorf("the status page says %s", status)
		}
		if err != nil {
			return err
		}
		log, err := os.ReadFile(m.Log) // which is written after the page
		for _, words := range []string{"The cloud's API cannot be used", reason} {
			if err == nil && !strings.Contains(string(log), words) {
				err = fmt.Errorf("the log does not say %q", words)
			}
		}
		return err
	}))
	_, err := m.Get(t.Context(), "/healthz?cloud-api")
	require.ErrorContains(t, err, "[-]cloud-api failed")
	up, err := m.Metric(t.Context(), "anyccm_cloud_api_up")
	require.NoError(t, err)
	assert.Zero(t, up)
	requireEvent(t, c, metav1.NamespaceSystem, "CloudAPIUnavailable", "cloud-controller-manager")
}

func requireHealthy(t *testing.T, m *harness.CCM) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the health check to pass", func(ctx context.Context) error {
		_, err := m.Get(ctx, "/healthz?cloud-api")
		return err
	}))
}

// requireEvent waits for an event on an object whose message contains all the given texts.
func requireEvent(t *testing.T, c *harness.Cluster, namespace, reason, object string, texts ...string) *v1.Event {
	t.Helper()
	var found *v1.Event
	require.NoError(t, harness.Eventually(t.Context(), patience, "event "+reason, func(ctx context.Context) error {
		list, err := c.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && e.InvolvedObject.Name == object && !slices.ContainsFunc(
				texts, func(text string) bool { return !strings.Contains(e.Message, text) },
			) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	}))
	return found
}

func TestRefusedToken(t *testing.T) {
	c := newCluster(t, "--instances=1")
	file := filepath.Join(c.Dir, "token")
	require.NoError(t, os.WriteFile(file, []byte("dop_v1_wr0ngt0k3n\n"), 0o600))
	m := startCCM(t, c, nil, map[string]string{"DO_ACCESS_TOKEN": "", "DO_ACCESS_TOKEN_FILE": file})
	require.NoError(t, c.RegisterNodes(t.Context(), 1, 1, harness.NodeSpec{Ready: true}))
	requireReported(t, c, m, "check the credential")

	// A rotated file is used without a restart.
	require.NoError(t, os.WriteFile(file, []byte(testToken), 0o600))
	require.NoError(t, c.WaitInitialized(t.Context(), 1, patience))
	requireHealthy(t, m)
}

// TestNoSecretInTheLog runs at the highest verbosity through success and failure.
func TestNoSecretInTheLog(t *testing.T) {
	c := newCluster(t, "--instances=1")
	m := startCCM(t, c, []string{"-v=10"}, nil)
	joinNodes(t, c, 1)
	_, err := c.CreateService(t.Context(), "web", nil)
	require.NoError(t, err)
	_, err = c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	require.NoError(t, c.Cloud.AddFault(t.Context(), harness.Fault{Kind: "status", Status: 401}))
	_, err = c.CreateService(t.Context(), "second", nil)
	require.NoError(t, err)
	requireEvent(t, c, metav1.NamespaceDefault, "SyncLoadBalancerFailed", "second")

	for _, path := range []string{"/metrics", "/configz"} {
		text, err := m.Get(t.Context(), path)
		require.NoError(t, err)
		assert.NotContains(t, text, testToken)
	}
	log, err := os.ReadFile(m.Log)
	require.NoError(t, err)
	assert.Contains(t, string(log), "Cloud API call", "the log is really at that verbosity")
	assert.NotContains(t, string(log), testToken)
	assert.NotContains(t, string(log), testToken[7:])
	assert.NotContains(t, string(log), c.API.Token, "of whoever asks for metrics")
	events, err := c.Kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range events.Items {
		assert.NotContains(t, e.Message, testToken)
	}
}
