package azure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestValidateTellsWhoIsDenied: what the events say of networks that count for nothing, and of settings that let more or fewer in than they
// seem to, is said before a Service is applied.
func TestValidateTellsWhoIsDenied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ranges      []string
		annotations map[string]string
		want        []string
	}{
		"networks":  {ranges: []string{"10.0.0.0/8", "2001:db8::/32"}},
		"host bits": {[]string{"10.0.0.1/8", "192.0.2.0/24"}, nil, []string{"10.0.0.1/8: not legal networks (host bits must be zero); they are left out, and all others are denied"}},
		"host bits in an annotation": {
			nil, map[string]string{annotationAllowedRanges: "10.0.0.1/8"}, []string{"10.0.0.1/8: not legal networks"},
		},
		"tags and networks": {
			[]string{"10.0.0.0/8"}, map[string]string{annotationServiceTags: "AzureCloud"}, []string{"both service tags and networks are given; both may connect"},
		},
	} {
		s := webService(nil)
		s.Spec.LoadBalancerSourceRanges = c.ranges
		s.Annotations = c.annotations
		warnings, err := checkService(registry.Inputs{}, s)
		require.NoError(t, err, name)
		said := schema.Problems(warnings)
		require.Len(t, said, len(c.want), name)
		findings, err := (&reconciler{observer: observer{config: &Config{}}}).Validate(services.Request{Service: s})
		require.NoError(t, err, name)
		require.Len(t, findings, len(c.want), name)
		for i, want := range c.want {
			require.ErrorContains(t, said[i], want, name)
			assert.Contains(t, said[i].Error(), findings[i].Message, name)
		}
	}
}
