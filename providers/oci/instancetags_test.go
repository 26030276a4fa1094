package oci

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTagsOfInstances: a free-form tag, which everybody may write who may change an instance, is never taken for a defined one.
func TestTagsOfInstances(t *testing.T) {
	t.Parallel()
	i := instance{
		Freeform: map[string]string{"team": "shop", "Operations.zone": "secure", "Operations.rack": "7"},
		Defined:  map[string]map[string]any{"Operations": {"rack": "8", "cost": 1234567.0, "spot": true}, "Oracle-Tags": {"CreatedBy": "somebody"}},
	}
	assert.Equal(t, map[string]string{
		"team": "shop", "Operations.rack": "8", "Operations.cost": "1234567", "Operations.spot": "true", "Oracle-Tags.CreatedBy": "somebody",
	}, i.tags())
}
