package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestExemptions: an entry covers a field in one operation or in all, and those that covered nothing are told.
func TestExemptions(t *testing.T) {
	t.Parallel()
	e := newExemptions(map[string]string{
		"tags.*": "the user's own", "PUT /pools name": "it stays", "*Rules[].id": "the path says it", "etag": "", "zones": "nobody writes them",
	})
	assert.True(t, e.covers("POST /pools", "tags.team"))
	assert.True(t, e.covers("PUT /pools", "name"))
	assert.False(t, e.covers("POST /pools", "name"))
	assert.True(t, e.covers("POST /balancers", "properties.outboundRules[].id"))
	assert.False(t, e.covers("POST /pools", "etag"), "it has no reason")
	assert.Equal(t, []string{"etag", "zones"}, e.idle())
}
