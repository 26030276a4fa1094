package linode

import (
	_ "embed"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

//go:embed testdata/examples.yaml
var examples string

// TestExamples builds a NodeBalancer from every example of the provider's page.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, s := range conformance.Examples(t, examples, checkService) {
		set, _, err := parseSettings(s, Config{DefaultType: "common"})
		require.NoError(t, err)
		secrets := map[string]secret{}
		for _, p := range set.ports {
			secrets[p.TLSSecret] = secret{Cert: "c", Key: "k"}
		}
		d, err := desire(s, set, nil, newWantedNodes([]backend{{node: "n", address: netip.MustParseAddr("192.168.128.1")}}), secrets)
		require.NoError(t, err, s.Name)
		assert.Len(t, d.configs, len(s.Spec.Ports))
	}
}
