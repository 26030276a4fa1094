package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGoneIsSaidOnce: no cloud answers InstanceExists itself, and providers/kit/nodes returns false without an error in one place.
func TestGoneIsSaidOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/providers/*/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	deeper, err := filepath.Glob(root + "/providers/*/*/*.go")
	require.NoError(t, err)
	var implementations []string
	sentences := 0
	for _, path := range append(files, deeper...) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "InstanceExists" {
				implementations = append(implementations, filepath.Base(path))
				sentences += goneIn(f)
			}
		}
	}
	assert.ElementsMatch(t, []string{"nodes.go", "reported.go", "split.go", "split.go"}, implementations, "describe instances by nodes.Cloud instead")
	assert.Equal(t, 1, sentences)
}

// goneIn counts the statements "return false, nil" of a function.
func goneIn(f *ast.FuncDecl) int {
	count := 0
	ast.Inspect(f, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 2 {
			value, isName := r.Results[0].(*ast.Ident)
			failure, isNil := r.Results[1].(*ast.Ident)
			if isName && isNil && value.Name == "false" && failure.Name == "nil" {
				count++
			}
		}
		return true
	})
	return count
}
