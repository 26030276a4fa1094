package nsx

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are those of vSphere's own controller, which cuts none of them.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	for _, ugly := range conformance.UglyNames(255) {
		s := conformance.Service(ugly, nil)
		assert.Equal(t, "cluster:"+ugly+":default/"+ugly, loadBalancerName(ugly, s))
	}
}
