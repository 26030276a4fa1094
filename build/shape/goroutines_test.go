package shape

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryGoroutineRecovers: without it, a single faulty response of a cloud could end the process.
func TestEveryGoroutineRecovers(t *testing.T) {
	looked := 0
	for _, top := range []string{"providers", "registry"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				path == filepath.Join(root, "registry", "rescue", "rescue.go") {
				return err
			}
			if folder := filepath.Base(filepath.Dir(path)); strings.HasSuffix(folder, "sim") || folder == "simkit" || folder == "conformance" {
				return nil // simulators and tests are in no image
			}
			looked++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return fmt.Errorf("reading %s: %w", path, err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: a goroutine is started by rescue.Go, so that a panic in it does not end the process", set.Position(s.Pos()))
				}
				return true
			})
			return nil
		}))
	}
	assert.Greater(t, looked, 50)
}
