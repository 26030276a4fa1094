package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// nodeWrites are the requests of the program so far that changed a Node or tried to.
func nodeWrites(t *testing.T, c *harness.Cluster) []string {
	t.Helper()
	requests, err := c.API.Audit(t.Context(), "cloud-controller-manager")
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
