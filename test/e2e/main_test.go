// Package e2e tests the built program as a process against a real kube-apiserver and simulated clouds.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// stage is shared by all tests; each has its own cluster and cloud.
var stage *harness.Stage

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	stage, err = harness.NewStage(context.Background(), "e2e", os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	code := m.Run()
	stage.Close()
	os.Exit(code)
}

// patience bounds a wait for something that usually takes a second or two, on a machine that is busy. No test waits for its end.
const patience = 3 * time.Minute

// quickDeletion has the program look ten times as often and take a tenth of the time to delete a Node.
var quickDeletion = []string{"--node-deletion-grace-period=2s", "--node-monitor-period=500ms", "--node-deletion-confirmation-time=1s"}

// program is the name of the release, of its ServiceAccount and of its lease.
const program = "cloud-controller-manager"

const testToken = "dop_v1_5up3r53cr3tt0k3nf0rt35t5"

// newCluster starts a cluster for one test; cloud are further arguments of the simulated cloud.
func newCluster(t *testing.T, cloud ...string) *harness.Cluster {
	t.Helper()
	return newClusterOn(t, harness.AnyProvider, cloud...)
}

func newClusterOn(t *testing.T, provider string, cloud ...string) *harness.Cluster {
	t.Helper()
	t.Parallel()
	return startCluster(t, provider, cloud...)
}

func startCluster(t *testing.T, provider string, cloud ...string) *harness.Cluster {
	t.Helper()
	return startClusterWith(t, provider, "", cloud...)
}

// startClusterWith is startCluster with what is added to the configuration file of the cloud.
func startClusterWith(t *testing.T, provider, config string, cloud ...string) *harness.Cluster {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name()))
	c, err := stage.Start(t.Context(), name, harness.Options{
		Provider: provider, Cloud: append([]string{"--token=" + testToken, "--activation=10ms"}, cloud...), CloudConfig: config, Pooled: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.StopPrograms()
		requireNothingDenied(t, c)
		c.Close()
	})
	return c
}

// bigClusters is held by one test at a time while it fills a cluster with a thousand nodes.
var bigClusters sync.Mutex

// requireNothingDenied: the rights that the program is given are those that it needs.
func requireNothingDenied(t *testing.T, c *harness.Cluster) {
	t.Helper()
	requests, err := c.API.Audit(context.WithoutCancel(t.Context()), "cloud-controller-manager")
	require.NoError(t, err)
	for _, r := range requests {
		assert.NotEqual(t, 403, r.ResponseStatus.Code, "denied: %s %s", r.Verb, r.URI)
	}
}

// everything switches on what is off by default, for tests that count calls: they hold with every feature.
func everything(t *testing.T, c *harness.Cluster) map[string]string {
	t.Helper()
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/tags", testToken, map[string]any{"name": "worker"}, nil))
	return map[string]string{
		"DO_CLUSTER_ID": "5a4981aa-9653-4bd1-bef5-d6bff52042e4", "REGION": "nyc3",
		"PUBLIC_ACCESS_FIREWALL_NAME": "public-access", "PUBLIC_ACCESS_FIREWALL_TAGS": "worker",
	}
}

// startCCM starts the program and waits until it leads.
func startCCM(t *testing.T, c *harness.Cluster, args []string, env map[string]string) *harness.CCM {
	t.Helper()
	return startRelease(t, c, nil, args, env)
}

// startRelease is startCCM with values of the chart.
func startRelease(t *testing.T, c *harness.Cluster, values harness.Values, args []string, env map[string]string) *harness.CCM {
	t.Helper()
	m, err := c.StartRelease(t.Context(), "cloud-controller-manager", c.Programs.CCM, values, args, env)
	require.NoError(t, err)
	require.NoError(t, m.WaitLeading(t.Context(), patience))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of %s:\n%s", m.Log, m.Tail(40))
		}
	})
	return m
}

func joinNodes(t *testing.T, c *harness.Cluster, n int) {
	t.Helper()
	require.NoError(t, c.JoinNodes(t.Context(), n, patience))
}

// minutesSince is how many whole minutes have passed. On a slow machine what is measured takes longer than an answer is used
// for, so that a minute more may cost a listing more.
func minutesSince(began time.Time) int { return int(time.Since(began) / time.Minute) }

func calls(t *testing.T, c *harness.Cluster) harness.Calls {
	t.Helper()
	n, err := c.Cloud.Calls(t.Context())
	require.NoError(t, err)
	return n
}
