package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// awsState is what the tests read of the simulated region.
type awsState struct {
	Instances []struct {
		PrivateDNS string
		Tags       map[string]string
	}
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
