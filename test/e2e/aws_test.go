package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const awsAnnotations = "service.beta.kubernetes.io/aws-load-balancer-"

// TestAWSLifeCycle: nodes, and a Service of each kind from its creation to its end, on the fourth cloud.
func TestAWSLifeCycle(t *testing.T) {
	for kind, annotations := range map[string]map[string]string{
		"network": {awsAnnotations + "type": "nlb", awsAnnotations + "cross-zone-load-balancing-enabled": "true"}, "classic": {},
	} {
		t.Run(kind, func(t *testing.T) {
			c := newClusterOn(t, "aws", "--instances=3")
			m := startCCM(t, c, nil, nil)
			joinNodes(t, c, 2)
			node, err := c.Kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Regexp(t, `^aws:///us-east-1[abc]/i-[0-9a-f]{17}$`, node.Spec.ProviderID)
			assert.Equal(t, "us-east-1", node.Labels[v1.LabelTopologyRegion])
			assert.Contains(t, node.Spec.ProviderID, node.Labels[v1.LabelTopologyZone])
			assert.Equal(t, "m5.large", node.Labels[v1.LabelInstanceTypeStable])
			assert.Regexp(t, "^use1-az[123]$", node.Labels["topology.k8s.aws/zone-id"])

			_, err = c.CreateService(t.Context(), "web", annotations)
			require.NoError(t, err)
			address, err := c.WaitServed(t.Context(), "web", patience)
			require.NoError(t, err)
			assert.Contains(t, address, "amazonaws.com")
			waitHoldings(t, c, 1, kind+" load balancer")
			waitHoldings(t, c, 1, "TCP/80, 2 nodes")

			require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
			waitHoldings(t, c, 1, "3 nodes")
			require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "node-3", metav1.DeleteOptions{}))
			waitHoldings(t, c, 1, "2 nodes")

			requireWorked(t, m, "service")
			m.Stop(10 * time.Second)
			require.NoError(t, c.Cloud.ResetCalls(t.Context()))
			m = startCCM(t, c, nil, nil)
			requireEnsured(t, m, 1)
			assert.Zero(t, calls(t, c).Writes)
			again, err := c.WaitServed(t.Context(), "web", patience)
			require.NoError(t, err)
			assert.Equal(t, address, again)

			// The security group is in use for a second after the load balancer is gone; the Service waits for it.
			patchService(t, c, "web", `{"spec":{"type":"ClusterIP"}}`)
			require.NoError(t, harness.Eventually(t.Context(), patience, "everything to be gone", func(ctx context.Context) error {
				var s awsState
				if err := c.Cloud.State(ctx, &s); err != nil {
					return err
				}
				return s.left()
			}))
			assert.Empty(t, calls(t, c).Refused)
		})
	}
}

// awsState is what the tests read of the simulated region.
type awsState struct {
	SecurityGroups []struct {
		Name  string
		Rules []any
	}
	ClassicLoadBalancers, LoadBalancers, TargetGroups []any
	Instances                                         []struct {
		PrivateDNS string
		Tags       map[string]string
	}
}

// left tells what there is beside nodes and their security group, or nil.
func (s awsState) left() error {
	for _, g := range s.SecurityGroups {
		if g.Name != "nodes" || len(g.Rules) > 0 {
			return fmt.Errorf("security group %s has %d rules", g.Name, len(g.Rules))
		}
	}
	if n := len(s.ClassicLoadBalancers) + len(s.LoadBalancers) + len(s.TargetGroups); n > 0 {
		return fmt.Errorf("%d objects are left", n)
	}
	return nil
}

// TestAWSTagging: the tagging controller runs where the chart names it, with the rights that the chart gives it.
func TestAWSTagging(t *testing.T) {
	c := newClusterOn(t, "aws", "--instances=2")
	startRelease(t, c, harness.Values{
		"controllers": []string{"cloud-node-controller", "tagging"}, "options.tags": "team=web", "options.resources": "instance",
	}, nil, nil)
	joinNodes(t, c, 2)
	require.NoError(t, harness.Eventually(t.Context(), patience, "tags on both instances", func(ctx context.Context) error {
		var s awsState
		if err := c.Cloud.State(ctx, &s); err != nil {
			return err
		}
		for _, i := range s.Instances {
			if i.Tags["team"] != "web" {
				return errors.New(i.PrivateDNS + " has no tag")
			}
		}
		return nil
	}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "labels on both nodes", func(ctx context.Context) error {
		nodes, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "k8s.io/cloud-provider-aws"})
		if err == nil && len(nodes.Items) != 2 {
			err = fmt.Errorf("%d nodes have it", len(nodes.Items))
		}
		return err
	}))
}

// TestAWSThousandNodes counts the calls for 1,000 nodes: their initialisation, and a minute in which nothing happens.
func TestAWSThousandNodes(t *testing.T) {
	const n = 1000
	c := newBigClusterOn(t, "aws", fmt.Sprintf("--instances=%d", n), "--latency=40ms")
	m := startCCM(t, c, []string{"--node-status-update-frequency=1m"}, nil)
	require.NoError(t, c.RegisterNodes(t.Context(), 1, n, harness.NodeSpec{Ready: true}))
	require.NoError(t, c.WaitInitialized(t.Context(), n, 3*time.Minute))
	got := calls(t, c)
	t.Logf("%d nodes were initialised with %d requests: %v", n, got.Total, got.ByOperation)
	assert.LessOrEqual(t, got.Total, 15)
	assert.Empty(t, got.Refused)

	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began := time.Now()
	waitAnswers(t, m, "instance", n, 3*time.Minute)
	got = calls(t, c)
	t.Logf("a resync of %d nodes took %d requests: %v", n, got.Total, got.ByOperation)
	assert.LessOrEqual(t, got.Total, 3+minutesSince(began))
}

// TestAWSFirstNode logs how long a start takes until the first node is initialised. Times are not asserted.
func TestAWSFirstNode(t *testing.T) {
	c := newClusterOn(t, "aws", "--instances=1")
	require.NoError(t, c.RegisterNodes(t.Context(), 1, 1, harness.NodeSpec{Ready: true}))
	began := time.Now()
	startCCM(t, c, nil, nil)
	require.NoError(t, c.WaitInitialized(t.Context(), 1, patience))
	t.Logf("the first node was initialised %.2f s after the start, the installation of the chart included", time.Since(began).Seconds())
}
