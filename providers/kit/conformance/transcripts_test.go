package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestUnneededExceptions: an exception counts for its own rule alone, though another rule excepts the same step.
func TestUnneededExceptions(t *testing.T) {
	t.Parallel()
	f := Fixture{
		Interrupts: map[string]string{"ports/one moves": "a reason", "nodes/one joins": "of another scenario"},
		Unserved:   map[string]string{"ports/one moves": "a reason"},
	}
	assert.Equal(t, []string{ruleAllNodes + ": ports/one moves"},
		findUnneeded(f.listExceptions(), "ports", map[string]bool{ruleServes + ": ports/one moves": true}))
}
