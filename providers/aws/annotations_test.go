package aws

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBoundedAnnotations: implausibly long values and invalid IDs are refused before they are used.
func TestBoundedAnnotations(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, maxText+1))
	for key, value := range map[string]string{
		annotationTags: long, annotationNodeLabels: long, annotationSubnets: long, annotationTLSPorts: long, annotationSourceRanges: long,
		annotationGroups: "sg-*", annotationCertificate: "arn:aws:acm:us-east-1:123456789012:certificate/../x?y", annotationExtraGroups: "sg-1",
	} {
		_, _, err := parseSettings(service("web", map[string]string{key: value}, servicePort("http", 80, 30080)), Config{})
		require.ErrorContains(t, err, key)
	}
	_, _, err := parseSettings(nlb("web", map[string]string{annotationEIPs: "eipalloc-*"}, servicePort("http", 80, 30080)), Config{})
	require.ErrorContains(t, err, annotationEIPs)
}
