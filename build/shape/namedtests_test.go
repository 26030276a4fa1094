package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamedTestsAreThere: where tests of a cloud name another one that holds something, in a text of its own, there is such a test in the
// cloud's folder.
func TestNamedTestsAreThere(t *testing.T) {
	t.Parallel()
	clouds, err := os.ReadDir(filepath.Join(root, "providers"))
	require.NoError(t, err)
	total := 0
	for _, cloud := range clouds {
		named, there := testsOf(t, filepath.Join(root, "providers", cloud.Name()))
		total += len(named)
		for name, place := range named {
			assert.True(t, there[name], "%s: %s is no test of %s", place, name, cloud.Name())
		}
	}
	assert.Greater(t, total, 30, "texts were found")
}

// testsOf returns the tests that the test files of a folder name, with the place, and those that they have.
func testsOf(t *testing.T, folder string) (named map[string]token.Position, there map[string]bool) {
	t.Helper()
	named, there = map[string]token.Position{}, map[string]bool{}
	wholeName := regexp.MustCompile(`^Test[A-Z]\w*$`)
	require.NoError(t, filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				there[n.Name.Name] = true
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && wholeName.MatchString(text) {
					named[text] = files.Position(n.Pos())
				}
			}
			return true
		})
		return nil
	}))
	return named, there
}
