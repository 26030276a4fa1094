package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestFailover: a program that is asked to stop hands leadership over at once.
func TestFailover(t *testing.T) {
	c := newCluster(t, "--instances=2")
	first := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	second, err := c.StartCCM(t.Context(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the standby", func(ctx context.Context) error {
		_, err := second.Get(ctx, "/healthz")
		return err
	}))
	// A standby that stops does not touch the leader's lease, although both run on one host.
	third, err := c.StartCCM(t.Context(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "another standby", func(ctx context.Context) error {
		_, err := third.Get(ctx, "/healthz")
		return err
	}))
	holder := leaseHolder(t, c)
	third.Stop(patience)
	assert.Equal(t, holder, leaseHolder(t, c))

	before := lease(t, c)
	began := time.Now()
	require.NoError(t, first.Signal(syscall.SIGTERM))
	require.NoError(t, second.WaitLeading(t.Context(), patience))
	took := time.Since(began)
	t.Logf("fail-over took %s", took.Round(10*time.Millisecond))
	assert.Less(t, took, time.Duration(*before.Spec.LeaseDurationSeconds)*time.Second/2, "after a crash it would take all of the lease")
	requireReleased(t, c, before)
	<-first.Done()
	assert.Zero(t, first.ExitCode())
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-2", Ready: true}))
	require.NoError(t, c.WaitInitialized(t.Context(), 2, patience))
}

const leaseName = "cloud-controller-manager"

func lease(t *testing.T, c *harness.Cluster) *coordinationv1.Lease {
	t.Helper()
	l, err := c.Kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaseName, metav1.GetOptions{})
	require.NoError(t, err)
	return l
}

func leaseHolder(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	return *lease(t, c).Spec.HolderIdentity
}

// requireReleased: the lease went from one holder to the next because the former one gave it back, and not because it ran out.
func requireReleased(t *testing.T, c *harness.Cluster, before *coordinationv1.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	changes, err := c.Kube.CoordinationV1().Leases(metav1.NamespaceSystem).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + leaseName, ResourceVersion: before.ResourceVersion,
	})
	require.NoError(t, err)
	defer changes.Stop()
	for change := range changes.ResultChan() {
		l, isLease := change.Object.(*coordinationv1.Lease)
		require.True(t, isLease, "%v", change.Object)
		switch holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder {
		case *before.Spec.HolderIdentity: // renewed
		case "":
			return
		default:
			require.Failf(t, "the lease was not released", "%s took it", holder)
		}
	}
	t.Fatal("the lease stays with its holder")
}

// TestRefusedStart: nonsense ends the program before anything starts, with one line for each fault.
func TestRefusedStart(t *testing.T) {
	c := newCluster(t)
	for name, refused := range map[string]struct {
		args []string
		env  map[string]string
		want []string
	}{
		"misspelt provider": {
			args: []string{"--cloud-provider=digitalocaen", "--kubeconfig=/nowhere"},
			want: []string{`unknown --cloud-provider "digitalocaen"; linked providers: `, `did you mean "digitalocean"?`},
		},
		"several faults": {
			args: []string{"--concurrent-service-syncs=0", "--concurrent-node-syncs=0"},
			env:  map[string]string{"DO_ACCESS_TOKEN": "", "DO_OVERRIDE_URL": "api.example", "DEFAULT_LB_TYPE": "regional", "DO_API_RATE_LIMIT_QPS": "0"},
			want: []string{
				"--concurrent-service-syncs=0", "--concurrent-node-syncs=0",
				"DO_ACCESS_TOKEN: is required", `DO_OVERRIDE_URL: "api.example" is not a URL`, `DEFAULT_LB_TYPE: "regional" is not one of`, `DO_API_RATE_LIMIT_QPS: "0" is out of range`,
			},
		},
		"contradiction":  {env: map[string]string{"DO_ACCESS_TOKEN": "x", "DO_ACCESS_TOKEN_FILE": "/nowhere"}, want: []string{"DO_ACCESS_TOKEN and DO_ACCESS_TOKEN_FILE: are both set; keep one"}},
		"missing config": {args: []string{"--cloud-config=/nowhere"}, want: []string{"--cloud-config: open /nowhere"}},
	} {
		m, err := c.StartCCM(t.Context(), refused.args, refused.env)
		require.NoError(t, err, name)
		select {
		case <-m.Done():
		case <-time.After(patience):
			t.Fatalf("%s: the program runs", name)
		}
		assert.Equal(t, 1, m.ExitCode(), name)
		output := m.Tail(1000)
		for _, want := range refused.want {
			assert.Contains(t, output, want, name)
		}
		assert.NotContains(t, output, "goroutine ", name)
		assert.NotContains(t, output, testToken, name)
	}
}

// TestMetricsAreServed: the names that dashboards rely on are there once the program works.
func TestMetricsAreServed(t *testing.T) {
	c := newCluster(t, "--instances=1", "--published-limits")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	for _, name := range []string{
		"anyccm_cloud_api_requests_total", "anyccm_cloud_api_request_duration_seconds_count", "anyccm_cloud_api_rate_limit_remaining",
		"anyccm_cloud_api_rate_limit", "anyccm_cloud_api_up", "anyccm_inventory_answers_total", "anyccm_inventory_reads_total",
	} {
		waitPositive(t, m, name)
	}
	left, err := m.Metric(t.Context(), "anyccm_cloud_api_rate_limit_remaining", fmt.Sprintf("provider=%q", "digitalocean"))
	require.NoError(t, err)
	assert.Less(t, left, 5000.0)
}
