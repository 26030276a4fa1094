package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
)

// TestEventsAreDocumented: the page lists exactly the reasons in the code: the constants whose name begins with event or Event.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "events.md"))
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(page), "From the framework")
	reasons := map[string]bool{}
	for _, dir := range []string{"cmd", "providers", "registry"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				for i, name := range spec.Names {
					if !strings.HasPrefix(strings.ToLower(name.Name), "event") || i >= len(spec.Values) {
						continue
					}
					if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
						reason, err := strconv.Unquote(value.Value)
						require.NoError(t, err)
						reasons[reason] = true
					}
				}
				return true
			})
			return nil
		}))
	}
	require.NotEmpty(t, reasons)
	for reason := range reasons {
		assert.Contains(t, table, "| `"+reason+"` |")
	}
	rows := events.Table()
	for _, p := range registry.Linked().Providers() {
		rows = append(rows, p.Events...)
	}
	for _, r := range rows {
		assert.True(t, reasons[r.Reason], "%s is in the table and in no code", r.Reason)
		assert.Contains(t, []string{"Warning", "Normal"}, r.Type)
		assert.NotEmpty(t, r.What)
		assert.True(t, r.Do != "" || r.Type == "Normal", "%s: what to do is missing", r.Reason)
	}
	assert.Len(t, rows, len(reasons))
}
