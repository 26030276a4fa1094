package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedAreas are the areas shared by all clouds, each with its minimum number of faults.
var sharedAreas = map[string]int{"guard": 20, "kit": 20, "program": 5, "xcloud": 6}

// leastOfACloud is how many faults each cloud has at least.
const leastOfACloud = 5

// TestFaultsAreCurrent: each fault still finds its place in the sources, and its test is there.
func TestFaultsAreCurrent(t *testing.T) {
	t.Parallel()
	all, err := load()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	root, err := findRoot()
	require.NoError(t, err)
	for _, problem := range problems(root, all) {
		assert.NoError(t, problem)
	}
	count := map[string]int{}
	for _, m := range all {
		count[m.area]++
	}
	clouds, err := os.ReadDir(filepath.Join(root, "providers"))
	require.NoError(t, err)
	least := maps.Clone(sharedAreas)
	for _, cloud := range clouds {
		if _, shared := sharedAreas[cloud.Name()]; !shared {
			least[cloud.Name()] = leastOfACloud
		}
	}
	for area, n := range least {
		assert.GreaterOrEqual(t, count[area], n, area)
	}
}

// TestProblems: what a list can have wrong is said.
func TestProblems(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("one two two"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a_test.go"), []byte("package a\n\nfunc TestA(t *testing.T) {}\n"), 0o600))
	good := mutant{Name: "a", File: "a.go", Find: "one", Replace: "none", Package: ".", Run: "TestA/part", Says: "2 calls"}
	require.Empty(t, problems(root, []mutant{good}))
	require.Len(t, problems(root, []mutant{good, good}), 1, "the name is there twice")
	for says, change := range map[string]func(m *mutant){
		"exactly once":      func(m *mutant) { m.Find = "two" },
		"three":             func(m *mutant) { m.Find = "three" },
		"two texts":         func(m *mutant) { m.Replace = m.Find },
		"b.go":              func(m *mutant) { m.File = "b.go" },
		"has no test TestB": func(m *mutant) { m.Run = "TestB" },
		"are needed":        func(m *mutant) { m.Says = "" },
		"any failure":       func(m *mutant) { m.Says = "Not equal" },
		"with the reason":   func(m *mutant) { m.Tier = "all" },
		"this assertion":    func(m *mutant) { m.Says = `assert.Len\(t, calls, 2\)` },
	} {
		wrong := good
		change(&wrong)
		require.ErrorContains(t, errors.Join(problems(root, []mutant{wrong})...), says)
	}
}

// TestJudge: only the named test that fails for the right reason counts.
func TestJudge(t *testing.T) {
	t.Parallel()
	failed := errors.New("exit status 1")
	m := mutant{Run: "TestA", Says: "2 calls"}
	assert.Equal(t, caught, m.judge("--- FAIL: TestA\n    2 calls\nFAIL", failed).outcome)
	assert.Equal(t, other, m.judge("--- FAIL: TestA\n    nothing\nFAIL", failed).outcome)
	assert.Equal(t, broken, m.judge("a.go:1: undefined: b\nFAIL a [build failed]", failed).outcome)
	assert.Equal(t, broken, m.judge("ok a 0.1s [no tests to run]", nil).outcome)
	assert.Equal(t, survived, m.judge("=== RUN   TestA\nok a 0.1s", nil).outcome)
}

// TestQuoteAssertions: what failed can be told by its source.
func TestQuoteAssertions(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a_test.go"), []byte("package a\n\n\tassert.Len(t, calls, 2)\n"), 0o600))
	const trace = "\tError Trace:\tgithub.com/anyccm/cloud-controller-manager/a_test.go:"
	assert.Contains(t, quoteAssertions(root, trace+"3\n"), "a_test.go: assert.Len(t, calls, 2)")
	assert.NotContains(t, quoteAssertions(root, trace+"9\n"), "assert")
}

// TestChoose: areas and names choose, and what is neither is refused.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := []mutant{{Name: "a", area: "kit"}, {Name: "b", area: "kit"}, {Name: "c", area: "guard"}}
	for wanted, names := range map[string]int{"kit": 2, "c": 1} {
		chosen, err := choose(all, []string{wanted})
		require.NoError(t, err)
		assert.Len(t, chosen, names)
	}
	_, err := choose(all, []string{"kit", "nosuch"})
	require.ErrorContains(t, err, `"nosuch"`)
}
