package workflows

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linter judges syntax, expressions, inputs of actions and the graph of jobs. It runs no other program: results must not depend on what
// a machine has.
func linter(t *testing.T) *actionlint.Linter {
	t.Helper()
	l, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)
	return l
}

// TestWorkflows: what GitHub would refuse, or would run otherwise than it was meant, is found before it is there.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.y*ml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found, err := linter(t).Lint(file, text, nil)
		require.NoError(t, err)
		for _, f := range found {
			t.Error(f)
		}
	}
}

// TestFaultsAreFound: the linter is on.
func TestFaultsAreFound(t *testing.T) {
	const good = `on: {push: {branches: [main]}}
jobs:
  test: {runs-on: ubuntu-24.04, steps: [{run: make test}]}
`
	for name, c := range map[string]struct{ text, want string }{
		"good":                        {good, ""},
		"a job that is not there":     {good + "  more: {needs: [tests], runs-on: ubuntu-24.04, steps: [{run: make test}]}\n", `"tests" which does not exist`},
		"a context that is not there": {good + "  more: {runs-on: ubuntu-24.04, steps: [{run: make test, env: {A: '${{ secret.A }}'}}]}\n", `undefined variable "secret"`},
		"a key of a step":             {good + "  more: {runs-on: ubuntu-24.04, steps: [{runs: make test}]}\n", `step must run script with "run"`},
		"a permission":                {good + "permissions: {content: read}\n", `unknown permission scope "content"`},
		"a schedule":                  {"on: {schedule: [{cron: '61 4 * * 1'}]}\njobs:\n  a: {runs-on: ubuntu-24.04, steps: [{run: make test}]}\n", "invalid CRON format"},
	} {
		found, err := linter(t).Lint("test.yaml", []byte(c.text), nil)
		require.NoError(t, err)
		if c.want == "" {
			assert.Empty(t, found, name)
		} else if assert.NotEmpty(t, found, name) {
			assert.Contains(t, found[0].Message, c.want, name)
		}
	}
}
