package main

import (
	"bytes"
	"os"
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

// TestCallsOfPages: every call of the program that a page shows is understood, its command and its flags. It does not run in parallel,
// for the framework keeps its feature gates in one place.
func TestCallsOfPages(t *testing.T) {
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
			var out, said bytes.Buffer
			status := app.Main(registry.Linked(), append(args, "--help"), &out, &said)
			assert.Zero(t, status, "%s: %s\n%s", page, line, said.String())
		}
	}
	assert.Greater(t, calls, 12)
}
