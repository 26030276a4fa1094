package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/cmd/cloud-controller-manager/app"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// call is a line of a page that calls the program, by itself or at the end of a pipe.
var call = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(?:[^#]*\| )?(?:bin/)?cloud-controller-manager( [^#|>]*)`)

// callVariable has the arguments, in lines, with which the test binary is the program.
const callVariable = "ANYCCM_TEST_CALL"

// TestCallsOfPages: every call of the program that a page shows is understood, its command and its flags. The program can be run once in a
// process, so that each call has one.
func TestCallsOfPages(t *testing.T) {
	if args, ok := os.LookupEnv(callVariable); ok {
		os.Exit(app.Main(registry.Linked(), strings.Split(args, "\n"), os.Stdout, os.Stderr))
	}
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/providers/*.md", "*.md", "charts/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	calls := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			m := call.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			calls++
			args := strings.Fields(strings.NewReplacer("<cloud>", registry.Linked().Names()[0], "...", "").Replace(m[1]))
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCallsOfPages$")
			cmd.Env = append(os.Environ(), callVariable+"="+strings.Join(append(args, "--help"), "\n"))
			said, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s: %s\n%s", page, line, said)
		}
	}
	assert.Greater(t, calls, 12)
}
