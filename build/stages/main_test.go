package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParser: a package that passed is a line and nothing else; of one that failed the output is kept, and so is what belongs to none.
func TestParser(t *testing.T) {
	t.Parallel()
	var lines []string
	p := &parser{done: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{
		"some noise\nok  \tex", "ample/a\t0.5s\n?   \texample/b\t[no test files]\n",
		"--- FAIL: TestC\n    c_test.go:1: wrong\nFAIL\nFAIL\texample/c\t1.0s\n",
		"FAIL\nmake: *** [Makefile:1: x] Error 1",
	} {
		_, err := p.Write([]byte(part))
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"ok  \texample/a\t0.5s", "FAIL\texample/c\t1.0s"}, lines)
	assert.Equal(t, []string{
		"--- FAIL: TestC\n    c_test.go:1: wrong\nFAIL\texample/c\t1.0s", "make: *** [Makefile:1: x] Error 1",
	}, p.finish(true))
}

// TestRun: every target runs, whatever failed before it, and the output of what failed comes last.
func TestRun(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "make")
	script := "#!/bin/sh\ncase $2 in\nbroken) echo 'cannot be compiled'; exit 1 ;;\n*) printf 'noise\\nok  \\texample/%s\\t1s\\n' \"$2\" ;;\nesac\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))

	var out strings.Builder
	assert.False(t, run(t.Context(), program, []string{"first second", "third"}, &out))
	for _, target := range []string{"first", "second", "third"} {
		assert.Contains(t, out.String(), "example/"+target)
	}
	assert.NotContains(t, out.String(), "noise")

	out.Reset()
	assert.True(t, run(t.Context(), program, []string{"broken after"}, &out))
	assert.Regexp(t, `(?s)FAILED.*example/after.*=== broken\ncannot be compiled\nmake broken: exit status 1\n.*Error: tests failed`, out.String())

	out.Reset()
	assert.True(t, run(t.Context(), program+"-none", []string{"first"}, &out), "a make that does not exist")
}
