package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the clouds that are tested
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// onEachCloud runs a subtest on every linked cloud that does what is wanted, the fast tier on one of them. A cloud without expectations
// fails. The test runs beside others: waiting for the slowest cloud of one would leave the cores to nobody.
func onEachCloud(t *testing.T, does func(registry.Features) bool, test func(t *testing.T, provider string, expected expectations.Cloud)) {
	t.Helper()
	onClouds(t, does, func(t *testing.T, provider string, expected expectations.Cloud) {
		if provider != harness.AnyProvider {
			tier.Full(t)
		}
		test(t, provider, expected)
	})
}

// onClouds is onEachCloud with every cloud in the fast tier as well.
func onClouds(t *testing.T, does func(registry.Features) bool, test func(t *testing.T, provider string, expected expectations.Cloud)) {
	t.Helper()
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		if !does(p.Features) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			expected, err := expectations.Read(filepath.Join("..", ".."), p)
			require.NoError(t, err)
			test(t, p.Name, expected)
		})
	}
}

func hasNodes(f registry.Features) bool { return f.Instances == registry.Done }

func hasLoadBalancers(f registry.Features) bool { return f.LoadBalancers == registry.Done }

func hasNodesAndLoadBalancers(f registry.Features) bool {
	return f.Instances == registry.Done && f.LoadBalancers == registry.Done
}
