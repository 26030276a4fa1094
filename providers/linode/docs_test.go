package linode

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestExamples builds a load balancer from every example of the provider's page.
func TestExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "providers", "linode.md"))
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		text, _, closed := strings.Cut(block, "```")
		require.True(t, closed)
		var s v1.Service
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &s), text)
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if p.Protocol == "" {
				p.Protocol = v1.ProtocolTCP // as the API server fills it in
			}
			p.NodePort = int32(30000 + i)
		}
		set, warnings, err := parseSettings(&s, Config{DefaultType: "common"})
		require.NoError(t, err, text)
		require.NoError(t, warnings, text)
		secrets := map[string]secret{}
		for _, p := range set.ports {
			secrets[p.TLSSecret] = secret{cert: "c", key: "k"}
		}
		d, err := desire(&s, set, nil, []backend{{node: "n", address: netip.MustParseAddr("192.168.128.1")}}, secrets)
		require.NoError(t, err, text)
		assert.Len(t, d.configs, len(s.Spec.Ports))
	}
}
