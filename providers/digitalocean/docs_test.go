package digitalocean

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

//go:embed testdata/examples.yaml
var examples string

// TestExamples builds a load balancer from every example of the provider's page.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, s := range conformance.Examples(t, examples, checkService) {
		set, _, err := parseSettings(s.Annotations, testConfig.DefaultType, "")
		require.NoError(t, err)
		certificate := ""
		if set.CertificateName != "" {
			certificate = "resolved"
		}
		r, err := build(s, certificate, twoBackends)
		require.NoError(t, err, s.Name)
		assert.Len(t, r.ForwardingRules, len(s.Spec.Ports))
	}
}
