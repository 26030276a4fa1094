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

// TestUnplannedWrites: a plan that leaves a write out, that says one too many, and that names another object are found; a write that was
// refused is one that follows.
func TestUnplannedWrites(t *testing.T) {
	t.Parallel()
	rows := []PlannedWrites{
		{Change: `create pool (.+)`, Writes: []string{"POST pools"}},
		{Change: `create listener (\S+)`, Writes: []string{"POST listeners", "PUT tags | POST tags"}, Beside: []string{"PUT rules"}, Because: "why"},
		{Change: `note`, Because: "it is a note"},
	}
	made := func(operation, text string) write { return write{operation: operation, words: splitWords(text)} }
	refused := made("POST pools", "p1")
	refused.refused = true
	for name, c := range map[string]struct {
		planned           []string
		writes            []write
		broken, explained []string
	}{
		"nothing": {},
		"as planned": {
			[]string{"create pool p1", "create pool p2"}, []write{made("POST pools", "name=p2"), made("POST pools", "name=p1")}, nil, nil,
		},
		"one is left out": {
			[]string{"create pool p1"}, []write{made("POST pools", "p1"), made("POST pools", "p2")}, []string{"POST pools was not announced"}, nil,
		},
		"one is not written": {
			[]string{"create pool p1", "create pool p2"}, []write{made("POST pools", "p1")}, []string{"create pool p2: POST pools does not follow"}, nil,
		},
		"another object": {
			[]string{"create pool p1"}, []write{made("POST pools", "p2")}, []string{"create pool p1: POST pools does not follow", "POST pools was not announced"}, nil,
		},
		"refused":              {[]string{"create pool p1"}, []write{refused}, nil, nil},
		"refused, not planned": {nil, []write{refused}, []string{"POST pools was not announced"}, nil},
		"either of two, and beside it": {
			[]string{"create listener 80 (tcp)"},
			[]write{made("POST tags", "80"), made("PUT rules", ""), made("POST listeners", "port: 80")},
			nil,
			[]string{"PUT rules was not announced", "because why"},
		},
		"no call":         {[]string{"note"}, nil, nil, []string{"note: no call follows", "because it is a note"}},
		"an unknown kind": {[]string{"create x"}, nil, []string{"create x: no row of Fixture.PlannedWrites says what it writes"}, nil},
		"shared words":    {[]string{"create pool p", "create pool p-2"}, []write{made("POST pools", "p-2"), made("POST pools", "p")}, nil, nil},
		"a new ID":        {[]string{"create pool p-<new ID>"}, []write{made("POST pools", "p-<id>")}, nil, nil},
	} {
		found := findUnplanned(rows, c.planned, c.writes)
		assert.Equal(t, c.broken, found.broken, name)
		assert.Equal(t, c.explained, found.listExplained(), name)
	}
}
