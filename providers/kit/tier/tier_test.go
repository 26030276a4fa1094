package tier

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAll(t *testing.T) {
	t.Setenv(variable, "")
	assert.False(t, All())
	t.Setenv(variable, all)
	assert.True(t, All())
	for _, wrong := range []string{"ALL", "full", "fast", "1"} {
		t.Setenv(variable, wrong)
		assert.PanicsWithValue(t, `ANYCCM_TIER is "`+wrong+`"; leave it empty for the fast tests, or set it to all for all of them`, func() { All() })
	}
}

// TestFull runs a test of the full tier in both.
func TestFull(t *testing.T) {
	for value, skipped := range map[string]bool{"": true, all: false} {
		t.Setenv(variable, value)
		ran := false
		t.Run("tier "+value, func(t *testing.T) {
			Full(t)
			ran = true
		})
		assert.Equal(t, skipped, !ran, value)
	}
}
