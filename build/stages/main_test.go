package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParser: a package that passed is a line and nothing else; of one that failed what its failed tests printed is kept, what its build
// did, and what belongs to no package.
func TestParser(t *testing.T) {
	t.Parallel()
	var lines []string
	p := newParser(func(line string) { lines = append(lines, line) })
	for _, part := range []string{
		`{"Action":"output","Package":"x/a","Test":"TestA","Output":"=== RUN   TestA\n"}` + "\nNote: without a compiler\nsome noise\n",
		`{"Action":"output","Package":"x/a","Test":"TestA","Output":"noise\n"}` + "\n" + `{"Action":"pass","Package":"x/a","Te`,
		`st":"TestA"}` + "\n" + `{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.5s\n"}` + "\n" + `{"Action":"pass","Package":"x/a"}` + "\n",
		`{"Action":"output","Package":"x/b","Output":"?   \tx/b\t[no test files]\n"}` + "\n" + `{"Action":"skip","Package":"x/b"}` + "\n",
		`{"Action":"output","Package":"x/c","Test":"TestFine","Output":"fine\n"}` + "\n" + `{"Action":"pass","Package":"x/c","Test":"TestFine"}` + "\n",
		`{"Action":"output","Package":"x/c","Test":"TestC","Output":"    c_test.go:1: wrong\n"}` + "\n" + `{"Action":"fail","Package":"x/c","Test":"TestC"}` + "\n",
		`{"Action":"output","Package":"x/c","Test":"TestHangs","Output":"panic: test timed out\n"}` + "\n",
		`{"Action":"output","Package":"x/c","Output":"FAIL\n"}` + "\n" + `{"Action":"output","Package":"x/c","Output":"FAIL\tx/c\t1.0s\n"}` + "\n",
		`{"Action":"fail","Package":"x/c"}` + "\n",
		`{"Action":"build-output","ImportPath":"x/d [x/d.test]","Output":"d.go:1: undefined\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"x/d [x/d.test]"}` + "\n",
		`{"Action":"output","Package":"x/d","Output":"FAIL\tx/d [build failed]\n"}` + "\n" + `{"Action":"fail","Package":"x/d","FailedBuild":"x/d [x/d.test]"}` + "\n",
		"make: *** [Makefile:1: x] Error 1",
	} {
		_, err := p.Write([]byte(part))
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"Note: without a compiler", "ok  \tx/a\t0.5s", "FAIL\tx/c\t1.0s", "FAIL\tx/d [build failed]"}, lines)
	assert.Equal(t, []string{
		"    c_test.go:1: wrong\npanic: test timed out\nFAIL\tx/c\t1.0s", "d.go:1: undefined\nFAIL\tx/d [build failed]",
		"some noise\nmake: *** [Makefile:1: x] Error 1",
	}, p.finish(true))
	assert.Empty(t, p.skips)
}

// script is a make whose targets pass, but for broken, and skip, whose test says why it is skipped.
const script = `#!/bin/sh
case "$3" in
broken) printf '%s\n' 'cannot be compiled'; exit 1 ;;
test-unit) printf '%s\n' '{"Action":"output","Package":"x/s","Test":"TestS","Output":"    s_test.go:1: '"$SAYS"'\n"}'
  printf '%s\n' '{"Action":"output","Package":"x/s","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}'
  printf '%s\n' '{"Action":"skip","Package":"x/s","Test":"TestS"}' ;;
*) printf 'noise\n'; printf '%s\n' '{"Action":"output","Package":"x/'$3'","Output":"ok  \tx/'$3'\t1s\n"}' ;;
esac
`

// TestRun: every target runs, whatever failed before it, and the output of what failed comes last.
func TestRun(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "make")
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))

	var out strings.Builder
	assert.False(t, run(t.Context(), program, []string{"first second", "third"}, &out))
	for _, target := range []string{"first", "second", "third"} {
		assert.Contains(t, out.String(), "x/"+target)
	}
	assert.NotContains(t, out.String(), "noise")
	assert.Contains(t, out.String(), "\nno test was skipped\n")

	out.Reset()
	assert.True(t, run(t.Context(), program, []string{"broken after"}, &out))
	assert.Regexp(t, `(?s)FAILED.*x/after.*=== broken\ncannot be compiled\nmake broken: exit status 1\n.*Error: tests failed`, out.String())

	out.Reset()
	assert.True(t, run(t.Context(), program+"-none", []string{"first"}, &out), "a make that does not exist")
}

// TestSkips: what is skipped is counted, with the place where it runs. A reason that is not listed fails the run, and so does one of
// another stage, or where the test has what it needs.
func TestSkips(t *testing.T) {
	program := filepath.Join(t.TempDir(), "make")
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	var out strings.Builder
	skips := func(says string) bool {
		out.Reset()
		t.Setenv("SAYS", says)
		return run(t.Context(), program, []string{"test-unit"}, &out)
	}
	assert.False(t, skips("only in the full tier: make test-all"))
	assert.Contains(t, out.String(), "skipped: 1\n     1  only in the full tier; they run in make test-all")
	assert.True(t, skips("not today"))
	assert.Contains(t, out.String(), "Error: test-unit: x/s.TestS was skipped, for which build/stages/skips.go has no reason: not today\n")

	assert.True(t, skips(`only in the full tier\n    s_test.go:2: not\n        today`), "what it logs before is no reason")
	assert.Contains(t, out.String(), "has no reason: not today\n")

	assert.False(t, skips("nothing was measured on a real Octavia"))
	t.Setenv("ANYCCM_TEST_OPENSTACK_CLOUD_CONFIG", "cloud.conf")
	assert.True(t, skips("nothing was measured on a real Octavia"))
	assert.True(t, skips("set ANYCCM_PYTHON to a Python"), "the test asks for it in the full tier alone")
	assert.Equal(t, -1, find("test-all-packages", skip{says: "only in the full tier"}))
}
