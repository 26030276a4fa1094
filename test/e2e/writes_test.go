package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// nodeWrites are the requests of the program so far that changed a Node or tried to.
func nodeWrites(t *testing.T, c *harness.Cluster) []string {
	t.Helper()
	requests, err := c.API.Audit("cloud-controller-manager")
	require.NoError(t, err)
	var writes []string
	for _, r := range requests {
		if strings.HasPrefix(r.URI, "/api/v1/nodes") && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) {
			writes = append(writes, r.Verb+" "+r.URI)
		}
	}
	return writes
}

// waitRounds waits until the program has asked for all nodes that many times more, whatever the cloud calls them.
func waitRounds(t *testing.T, m *harness.CCM, nodes, rounds int) {
	t.Helper()
	const metric = "anyccm_inventory_answers_total"
	before, err := m.Metric(t.Context(), metric)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the address loop", func(ctx context.Context) error {
		now, err := m.Metric(ctx, metric)
		if err == nil && now < before+float64(nodes*rounds) {
			err = fmt.Errorf("%.0f of %d answers", now-before, nodes*rounds)
		}
		return err
	}))
}

// TestNodesAreWrittenOnce: kubelets have set an address before, as they do; the API server stores addresses in an order of its
// own. Once the Nodes have what their cloud reports, neither the address loop nor a restart writes them.
func TestNodesAreWrittenOnce(t *testing.T) {
	const n = 4
	onEachCloud(t, hasNodes, func(t *testing.T, provider string, expected expectations.Cloud) {
		c := newClusterOn(t, provider, fmt.Sprintf("--instances=%d", n))
		often := []string{"--node-status-update-frequency=1s"}
		m := startCCM(t, c, often, nil)
		for i := range n {
			spec := harness.NodeSpec{Name: fmt.Sprintf("node-%d", i+1), Ready: true, Address: fmt.Sprintf("192.0.2.%d", i+1)}
			require.NoError(t, c.RegisterNode(t.Context(), spec))
		}
		require.NoError(t, harness.Eventually(t.Context(), patience, "the cloud's addresses", func(ctx context.Context) error {
			list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, node := range list.Items {
				reported := func(a v1.NodeAddress) bool {
					return (a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP) && !strings.HasPrefix(a.Address, "192.0.2.")
				}
				if !harness.Initialized(&node) || !slices.ContainsFunc(node.Status.Addresses, reported) {
					return fmt.Errorf("%s has %v", node.Name, node.Status.Addresses)
				}
			}
			return nil
		}))
		assert.Regexp(t, expected.ProviderID, node(t, c, "node-1").Spec.ProviderID)
		if expected.TwoAddressesOfOneType {
			requireTwoOfOneType(t, node(t, c, "node-1"))
		}
		waitRounds(t, m, n, 2)
		before := nodeWrites(t, c)
		require.NotEmpty(t, before, "the audit log shows what the program writes")
		waitRounds(t, m, n, 3)
		assert.Empty(t, nodeWrites(t, c)[len(before):], "at a resync")

		m.Stop(patience)
		before = nodeWrites(t, c)
		m = startCCM(t, c, often, nil)
		waitRounds(t, m, n, 3)
		assert.Empty(t, nodeWrites(t, c)[len(before):], "at a restart")
	})
}

// requireTwoOfOneType: two addresses of one type are what the API server stores in another order than they are written.
func requireTwoOfOneType(t *testing.T, n *v1.Node) {
	t.Helper()
	types := map[v1.NodeAddressType]int{}
	for _, a := range n.Status.Addresses {
		types[a.Type]++
	}
	require.True(t, types[v1.NodeInternalIP] > 1 || types[v1.NodeExternalIP] > 1, "%v", n.Status.Addresses)
}
