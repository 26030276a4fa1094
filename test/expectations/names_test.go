package expectations

import (
	"testing"

	"github.com/stretchr/testify/assert"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestTheFrameworkKnowsEveryName: each provider makes itself known by its name and by its aliases.
func TestTheFrameworkKnowsEveryName(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		for _, name := range append([]string{p.Name}, p.Aliases...) {
			assert.True(t, cloudprovider.IsCloudProvider(name), name)
		}
	}
}
