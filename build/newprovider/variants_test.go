package main

import (
	"go/format"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lacking repeats docs/developing-a-provider.md: the files to delete for an ability that a cloud does not have, and the lines in other
// files that end in a comment.
var lacking = map[string]struct {
	files []string
	lines string
}{
	"balancersonly": {[]string{"instances.go", "instances_test.go"}, "// nodes"},
	"nodesonly": {
		[]string{"annotations.go", "loadbalancer.go", "loadbalancer_test.go", "model.go", "orphans.go"}, "// load balancers",
	},
}

// TestVariants: deleting parts of the template gives a provider with nodes only and one with load balancers only. Both pass the same
// tests as the whole one.
func TestVariants(t *testing.T) {
	t.Parallel()
	dir := copied(t)
	packages := []string{}
	for name, without := range lacking {
		files, err := Files(name)
		require.NoError(t, err)
		deleted := 0
		for at, text := range files {
			if slices.Contains(without.files, path.Base(at)) {
				delete(files, at)
				deleted++
				continue
			}
			if name == "balancersonly" && strings.HasSuffix(at, ".txt") { // transcripts, which -update writes
				text = regexp.MustCompile(`(?m)^  \d+ GET /v1/instances.*\n`).ReplaceAllString(text, "")
			}
			if files[at] = text; strings.HasSuffix(at, ".go") && path.Dir(at) == "providers/"+name {
				files[at] = withoutLines(t, text, without.lines)
			}
		}
		require.Len(t, without.files, deleted)
		require.NoError(t, write(dir, files, "providers/"+name))
		packages = append(packages, "./providers/"+name)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "developing-a-provider.md"))
	require.NoError(t, err)
	for _, without := range lacking {
		require.Contains(t, string(page), "`"+without.lines+"`")
		for _, file := range without.files {
			require.Contains(t, string(page), "`"+file+"`")
		}
	}
	goTool(t, dir, "run", "./build/generate")
	goTool(t, dir, append([]string{"vet"}, packages...)...)
	goTool(t, dir, append([]string{"test", "-run=^(TestConformance|TestSchedules|TestGeneratedFilesAreFresh)$", "./build/generate"}, packages...)...)
}

// withoutLines returns a file without the lines that end in a comment.
func withoutLines(t *testing.T, text, comment string) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(strings.TrimSpace(line), comment) || strings.HasPrefix(strings.TrimSpace(line), "//") {
			kept = append(kept, line)
		}
	}
	formatted, err := format.Source([]byte(strings.Join(kept, "")))
	require.NoError(t, err)
	return string(formatted)
}
