package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
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

var unplannedRows = []PlannedWrites{
	{Change: `create pool (.+)`, Writes: []string{"POST pools"}},
	{
		Change: `create listener (\S+)`, Writes: []string{"POST listeners", "PUT tags | POST tags"},
		Beside: []Beside{{"PUT rules", "ours of $1", 2}}, Because: "why",
	},
	{Change: `note`, Because: "it is a note"},
	{Change: `tag`, Writes: []string{"POST tags"}, Beside: []Beside{{"PUT rules", "", 1}}},
	{Change: `create address`, Writes: []string{"POST addresses"}, Unordered: "it is made early"},
}

func makeWrite(operation, text string) write {
	return write{operation: operation, words: splitWords(text)}
}

func refuseWrite(text string) write {
	return write{operation: "POST pools", words: splitWords(text), refused: true}
}

var listenerWrites = []write{makeWrite("POST listeners", "port: 80"), makeWrite("POST tags", "80")}

var unplannedCases = map[string]struct {
	planned           []string
	writes            []write
	broken, explained []string
}{
	"nothing": {},
	"as planned": {
		[]string{"create pool p1", "create pool p2"}, []write{makeWrite("POST pools", "name=p1"), makeWrite("POST pools", "name=p2")}, nil, nil,
	},
	"one is left out": {
		[]string{"create pool p1"}, []write{makeWrite("POST pools", "p1"), makeWrite("POST pools", "p2")}, []string{"POST pools was not announced"}, nil,
	},
	"one is not written": {
		[]string{"create pool p1", "create pool p2"}, []write{makeWrite("POST pools", "p1")}, []string{"create pool p2: POST pools does not follow"}, nil,
	},
	"another object": {
		[]string{"create pool p1"}, []write{makeWrite("POST pools", "p2")}, []string{"create pool p1: POST pools does not follow", "POST pools was not announced"}, nil,
	},
	"refused":              {[]string{"create pool p1"}, []write{refuseWrite("p1")}, nil, nil},
	"refused twice":        {[]string{"create pool p1"}, []write{refuseWrite("p1"), refuseWrite("p1")}, nil, nil},
	"refused, then taken":  {[]string{"create pool p1"}, []write{refuseWrite("p1"), makeWrite("POST pools", "p1")}, nil, nil},
	"refused, not planned": {nil, []write{refuseWrite("p1")}, []string{"POST pools was not announced"}, nil},
	"one of two is refused": {
		[]string{"create pool p1", "create pool p2"}, []write{refuseWrite("p1")}, []string{"create pool p2: POST pools does not follow"}, nil,
	},
	"another object is refused": {
		[]string{"create pool p1"},
		[]write{refuseWrite("p2")},
		[]string{"create pool p1: POST pools does not follow", "POST pools was not announced"},
		nil,
	},
	"either of two, and beside it": {
		[]string{"create listener 80 (tcp)"},
		append(listenerWrites, makeWrite("PUT rules", "ours of 80")),
		nil,
		[]string{"PUT rules was not announced", "because why"},
	},
	"beside another one": {
		[]string{"create listener 80 (tcp)"}, append(listenerWrites, makeWrite("PUT rules", "ours of 81")), []string{"PUT rules was not announced"}, nil,
	},
	"a stranger's beside it": {
		[]string{"create listener 80 (tcp)"}, append(listenerWrites, makeWrite("PUT rules", "theirs of 80")), []string{"PUT rules was not announced"}, nil,
	},
	"beside it too often": {
		[]string{"create listener 80 (tcp)"},
		append(listenerWrites, slices.Repeat([]write{makeWrite("PUT rules", "ours of 80")}, 3)...),
		[]string{"PUT rules was not announced"},
		[]string{"PUT rules was not announced (2 times)", "because why"},
	},
	"beside it whosever it is": {[]string{"tag"}, []write{makeWrite("POST tags", ""), makeWrite("PUT rules", "")}, []string{"PUT rules was not announced"}, nil},
	"no call":                  {[]string{"note"}, nil, nil, []string{"note: no call follows", "because it is a note"}},
	"an unknown kind":          {[]string{"create x"}, nil, []string{"create x: no row of Fixture.PlannedWrites says what it writes"}, nil},
	"shared words": {
		[]string{"create pool p-2", "create pool p"}, []write{makeWrite("POST pools", "p-2"), makeWrite("POST pools", "p")}, nil, nil,
	},
	"a new ID": {[]string{"create pool p-<new ID>"}, []write{makeWrite("POST pools", "p-<id>")}, nil, nil},
	"another order": {
		[]string{"create pool p1", "create pool p2"},
		[]write{makeWrite("POST pools", "p2"), makeWrite("POST pools", "p1")},
		[]string{"create pool p2 is written before create pool p1"},
		nil,
	},
	"another order of what looks alike": {
		[]string{"create pool <p1>", "create listener 80", "create pool <p2>"},
		append([]write{makeWrite("POST pools", "p1")}, append(listenerWrites, makeWrite("POST pools", "p2"))...),
		nil,
		nil,
	},
	"of another Service": {
		[]string{"create pool p1", "web: create pool p2"}, []write{makeWrite("POST pools", "p2"), makeWrite("POST pools", "p1")}, nil, nil,
	},
	"anywhere": {
		[]string{"create pool p1", "create address"}, []write{makeWrite("POST addresses", ""), makeWrite("POST pools", "p1")}, nil, nil,
	},
}

// TestUnplannedWrites: a plan that leaves a write out, that says one too many, that names another object, and that has another order are
// found; a write that was refused is one that follows, for one change of this object.
func TestUnplannedWrites(t *testing.T) {
	t.Parallel()
	for name, c := range unplannedCases {
		var planned []plannedChange
		for _, change := range c.planned {
			service, text, found := strings.Cut(change, ": ")
			if !found {
				service, text = "", change
			}
			planned = append(planned, plannedChange{service, text})
		}
		for i := range c.writes {
			c.writes[i].at = time.Unix(int64(i), 0)
		}
		found := findUnplanned(unplannedRows, planned, c.writes)
		assert.Equal(t, c.broken, found.broken, name)
		assert.Equal(t, c.explained, found.listExplained(), name)
	}
}

// TestComparedWithPlan: what is deleted, and the Services whose plan fails when nodes change, are compared with no plan; all else is.
func TestComparedWithPlan(t *testing.T) {
	t.Parallel()
	post := func(name string) simkit.Call { return simkit.Call{Operation: "POST pools", URL: name, Write: true} }
	p := &Play{
		w:            &world{Fixture: &Fixture{PlannedWrites: []PlannedWrites{{Change: `create pool (\S+)`, Writes: []string{"POST pools"}}}}},
		nodesChanged: true, text: newTranscript(nil), attempts: []attempt{{0, "web", false}, {1, "other", false}, {2, "gone", true}},
	}
	calls := []simkit.Call{post("p1"), post("p2"), post("p3")}
	plans := func(web string, other error) []planOf {
		return []planOf{
			{"web", []contract.Planned{{Action: "create", Object: "pool " + web}}, nil},
			{"other", []contract.Planned{{Action: "create", Object: "pool p2"}}, other},
		}
	}
	assert.Empty(t, p.compareWithPlan(plans("p1", nil), calls).broken)
	assert.Empty(t, p.compareWithPlan(plans("p1", assert.AnError), calls).broken)
	assert.Equal(t, []string{"create pool p9: POST pools does not follow", "POST pools was not announced"},
		p.compareWithPlan(plans("p9", assert.AnError), calls).broken)
	p.nodesChanged = false
	assert.Equal(t, []string{"POST pools was not announced"}, p.compareWithPlan([]planOf{{"web", plans("p1", nil)[0].changes, nil}}, calls).broken)
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
		"once":              {calls: []simkit.Call{list, write}},
		"again":             {calls: []simkit.Call{list, list}, broken: broken},
		"after a write":     {calls: []simkit.Call{list, write, list}, broken: afterWrite},
		"with a reason":     {rows: []ReadAgain{after}, calls: []simkit.Call{list, write, list}},
		"without the write": {rows: []ReadAgain{after}, calls: []simkit.Call{write, list, list}, broken: broken},
		"another write":     {rows: []ReadAgain{other}, calls: []simkit.Call{list, write, list}, broken: afterWrite},
		"another read":      {rows: []ReadAgain{{Reads: "GET rules"}}, calls: []simkit.Call{list, list}, broken: broken},
		"a poll":            {rows: []ReadAgain{{Reads: "GET pools", Most: 2}}, calls: []simkit.Call{list, list, list}},
		"a poll too many": {
			rows: []ReadAgain{{Reads: "GET pools", Most: 1}}, calls: []simkit.Call{list, list, list}, broken: []string{"GET pools is read again more than 1 times"},
		},
		"another step":                {rows: []ReadAgain{{Reads: "GET pools", Step: "a/c"}}, calls: []simkit.Call{list, list}, broken: broken},
		"this step":                   {rows: []ReadAgain{{Reads: "GET pools", Step: "a/b", Most: 1}}, calls: []simkit.Call{list, list}},
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
		assert.Equal(t, len(c.rows) > 0 && (c.broken == nil || c.rows[0].Most > 0), len(used) > 0, name)
	}
}
