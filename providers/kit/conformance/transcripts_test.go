package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
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

// TestReadAgain: a read is made again for the same Service's next attempt, for a deletion, after a write for another Service, by a loop
// that comes back, and for a row's reason, which is no reason for another read, write or step.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	list, write := simkit.Call{Operation: "GET pools"}, simkit.Call{Operation: "POST pools", Write: true}
	later := list
	later.At = list.At.Add(loopPause)
	soon := later
	soon.At = list.At.Add(loopPause - time.Second)
	after, other := ReadAgain{Reads: "GET .*", After: "POST .*"}, ReadAgain{Reads: "GET .*", After: "PUT .*"}
	broken := []string{"GET pools is read again after no write"}
	afterWrite := []string{"GET pools is read again after [POST pools]"}
	for name, c := range map[string]struct {
		rows     []ReadAgain
		attempts []attempt
		calls    []simkit.Call
		loops    int
		broken   []string
	}{
		"once":                        {calls: []simkit.Call{list, write}},
		"again":                       {calls: []simkit.Call{list, list}, broken: broken},
		"after a write":               {calls: []simkit.Call{list, write, list}, broken: afterWrite},
		"with a reason":               {rows: []ReadAgain{after}, calls: []simkit.Call{list, write, list}},
		"without the write":           {rows: []ReadAgain{after}, calls: []simkit.Call{write, list, list}, broken: broken},
		"another write":               {rows: []ReadAgain{other}, calls: []simkit.Call{list, write, list}, broken: afterWrite},
		"another read":                {rows: []ReadAgain{{Reads: "GET rules"}}, calls: []simkit.Call{list, list}, broken: broken},
		"a poll":                      {rows: []ReadAgain{{Reads: "GET pools"}}, calls: []simkit.Call{list, list, list}},
		"another step":                {rows: []ReadAgain{{Reads: "GET pools", Step: "a/c"}}, calls: []simkit.Call{list, list}, broken: broken},
		"this step":                   {rows: []ReadAgain{{Reads: "GET pools", Step: "a/b"}}, calls: []simkit.Call{list, list}},
		"the next attempt":            {attempts: []attempt{{0, "web", false}, {1, "web", false}}, calls: []simkit.Call{list, list}},
		"another Service":             {attempts: []attempt{{0, "web", false}, {1, "o", false}}, calls: []simkit.Call{list, list}, broken: broken},
		"another Service, written to": {attempts: []attempt{{0, "web", false}, {2, "o", false}}, calls: []simkit.Call{list, write, list}},
		"a deletion":                  {attempts: []attempt{{0, "web", false}, {1, "o", true}}, calls: []simkit.Call{list, list}},
		"a loop":                      {calls: []simkit.Call{list, later}, loops: 2},
		"a loop, twice at once":       {calls: []simkit.Call{list, soon}, loops: 2, broken: broken},
		"later, and no loop":          {calls: []simkit.Call{list, later}, broken: broken},
	} {
		found, used := findReadAgain(c.rows, c.attempts, c.calls, c.loops, "a/b")
		assert.Equal(t, c.broken, found, name)
		assert.Equal(t, len(c.rows) > 0 && c.broken == nil, len(used) > 0, name)
	}
}
