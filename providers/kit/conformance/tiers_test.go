package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestBreakWrites: each write is broken in four ways, and once a kind by a page; each kind of read at its first and last call.
func TestBreakWrites(t *testing.T) {
	t.Parallel()
	read, write := func(name string) simkit.Call { return simkit.Call{Operation: name} }, func(name string) simkit.Call {
		return simkit.Call{Operation: name, Write: true}
	}
	calls := []simkit.Call{read("list"), write("create"), read("get"), read("list"), write("change"), read("list"), write("change"), write("delete")}
	byKind, at := map[string]int{}, map[string]bool{}
	for _, life := range breakWrites(calls) {
		assert.Equal(t, 1, life.fault.Count)
		assert.False(t, at[life.name], "twice: %s", life.name)
		at[life.name] = true
		if life.fault.Writes {
			byKind[life.fault.Kind]++
		}
	}
	assert.Equal(t, map[string]int{simkit.FaultReset: 8, simkit.FaultLost: 8, simkit.FaultHTML: 3}, byKind)
	for _, name := range []string{
		"write 1, create: a proxy's page instead of an answer", "write 3, change: restart after it took effect", "write 4, delete: before it took effect",
		"read 1, list: before it took effect", "read 3, list: after it took effect, the answer lost", "read 1, get: server error after it took effect",
	} {
		assert.True(t, at[name], name)
	}
	assert.Len(t, at, 4*4+3+3)
	assert.Len(t, breakEveryCall(calls), 6*len(calls))
}

// TestBreakEarlier: a life that made fewer reads than the one before is broken at its last one; one that made none, or in which the fault
// had its call, tries nothing.
func TestBreakEarlier(t *testing.T) {
	t.Parallel()
	get, write := simkit.Call{Operation: "get"}, simkit.Call{Operation: "create", Write: true}
	life := brokenLife{fault: simkit.Fault{Operation: "get$", From: 5}}
	assert.False(t, life.breakEarlier([]simkit.Call{write}))
	assert.True(t, life.breakEarlier([]simkit.Call{get, write, get, get}))
	assert.Equal(t, 3, life.fault.From)
	assert.False(t, life.breakEarlier([]simkit.Call{get, get, get}), "the third call was there, and nothing broke it")
	life = brokenLife{fault: simkit.Fault{From: 5}}
	assert.True(t, life.breakEarlier([]simkit.Call{get, write}))
	assert.Equal(t, 2, life.fault.From)
	life.fault = simkit.Fault{Writes: true, From: 5}
	assert.False(t, life.breakEarlier([]simkit.Call{write}), "writes are the same in each life")
}
