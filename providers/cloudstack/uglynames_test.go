package cloudstack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// TestUglyNames: types are those of CloudStack's own controller, cut where it writes a label that Kubernetes refuses, as are zones.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	for _, ugly := range conformance.UglyNames(63) {
		want := strings.NewReplacer("-", "", ".", "", "_", "").Replace(ugly)
		assert.Equal(t, want[:min(len(want), 63)], instanceType(ugly))
		assert.Empty(t, validation.IsValidLabelValue(nodes.LabelValue(ugly)), ugly)
		if len(validation.IsValidLabelValue(ugly)) == 0 {
			assert.Equal(t, ugly, nodes.LabelValue(ugly))
		}
	}
}
