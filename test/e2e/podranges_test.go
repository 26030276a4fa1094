package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestPodRanges: on every cloud whose nodes the program gives ranges for their pods, in each of its ways: all nodes get ranges of their
// own, keep them over a restart and a change of the leader, and what a Node had that is gone is free again.
func TestPodRanges(t *testing.T) {
	onClouds(t, hasNodes, func(t *testing.T, provider string, expected expectations.Cloud) {
		for name, want := range expected.PodRanges {
			t.Run(name, func(t *testing.T) {
				if name != slices.Min(slices.Collect(maps.Keys(expected.PodRanges))) {
					tier.Full(t)
				}
				c := newClusterOn(t, provider)
				prepareAll(t, c, want.Prepare)
				require.NoError(t, c.Cloud.Seed(t.Context(), 8))
				first := startAs(t, c, want.Setup)
				joinNodes(t, c, 4)
				given := waitRanges(t, c, 4, want)

				first.Stop(patience)
				register(t, c, "node-5", "node-6") // while nobody is there
				second := startAs(t, c, want.Setup)
				given = requireKept(t, given, waitRanges(t, c, 6, want))

				standby := startStandby(t, c, want.Setup)
				register(t, c, "node-7") // as the leader goes
				second.Stop(patience)
				require.NoError(t, standby.WaitLeading(t.Context(), patience))
				given = requireKept(t, given, waitRanges(t, c, 7, want))

				require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "node-2", metav1.DeleteOptions{}))
				former := given["node-2"]
				delete(given, "node-2")
				register(t, c, "node-2", "node-8")
				again := requireKept(t, given, waitRanges(t, c, 8, want))
				if want.Own {
					assert.Equal(t, former, again["node-2"], "it is the instance's")
				} else {
					assert.True(t, slices.Equal(former, again["node-2"]) || slices.Equal(former, again["node-8"]), "what is free is given: %v", again)
				}
			})
		}
	})
}

func register(t *testing.T, c *harness.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: name, Ready: true}))
	}
}

// startStandby starts a second program next to the one that leads, and returns when it runs.
func startStandby(t *testing.T, c *harness.Cluster, s expectations.Setup) *harness.CCM {
	t.Helper()
	m, err := c.StartRelease(t.Context(), "cloud-controller-manager", c.Programs.CCM, harness.Values(s.Values), s.Arguments, s.Environment)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the standby", func(ctx context.Context) error {
		_, err := m.Get(ctx, "/healthz")
		return err
	}))
	return m
}

// waitRanges waits until all nodes have the ranges that they should have, and returns those, which no two nodes share.
func waitRanges(t *testing.T, c *harness.Cluster, nodes int, want expectations.PodRanges) map[string][]string {
	t.Helper()
	given := map[string][]string{}
	require.NoError(t, harness.Eventually(t.Context(), patience, "pod ranges", func(ctx context.Context) error {
		all := listNodes(ctx, t, c)
		if len(all) != nodes {
			return fmt.Errorf("%d nodes of %d", len(all), nodes)
		}
		for name, n := range all {
			if len(n.Spec.PodCIDRs) == 0 {
				return fmt.Errorf("node %s has no range", name)
			}
			if want.Networked && !slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
				return c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionFalse
			}) {
				return fmt.Errorf("node %s is not told that it has its network", name)
			}
			given[name] = n.Spec.PodCIDRs
		}
		return nil
	}))
	requireSound(t, given, want)
	return given
}

// requireSound: each node has a range of each network, and no address belongs to two nodes.
func requireSound(t *testing.T, given map[string][]string, want expectations.PodRanges) {
	t.Helper()
	var all []netip.Prefix
	for name, ranges := range given {
		require.Len(t, ranges, len(want.Within), name)
		for i, text := range ranges {
			p, err := netip.ParsePrefix(text)
			require.NoError(t, err, name)
			within := netip.MustParsePrefix(want.Within[i])
			assert.True(t, within.Contains(p.Addr()) && p.Bits() == want.Bits[i], "%s: %s is no /%d of %s", name, p, want.Bits[i], within)
			for _, other := range all {
				assert.False(t, p.Overlaps(other), "%s: %s belongs to another node as well", name, p)
			}
			all = append(all, p)
		}
	}
}

// requireKept: nodes keep the ranges that they had.
func requireKept(t *testing.T, before, now map[string][]string) map[string][]string {
	t.Helper()
	for name, ranges := range before {
		assert.Equal(t, ranges, now[name], name)
	}
	return now
}
