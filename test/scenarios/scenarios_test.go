// Package scenarios holds, for each cloud, the list of what its own controller is held to by tests, and proves that ours
// has a test for each.
package scenarios

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// table is one cloud's list.
type table struct {
	Provider string           `json:"provider"`
	Groups   map[int]scenario `json:"groups"`
	// Extra are scenarios that the other tests leave out.
	Extra []scenario `json:"extra"`
}

type scenario struct {
	Scenario string   `json:"scenario"`
	Tests    []string `json:"tests"`
	Differs  string   `json:"differs"`
}

// sizes are the numbers of groups in the catalogue of each cloud.
func sizes() map[string]int {
	return map[string]int{"aws": 42, "digitalocean": 51, "linode": 29, "openstack": 30}
}

func TestEveryScenarioHasATest(t *testing.T) {
	t.Parallel()
	for provider, groups := range sizes() {
		text, err := os.ReadFile(provider + ".yaml")
		require.NoError(t, err)
		var list table
		require.NoError(t, yaml.UnmarshalStrict(text, &list))
		assert.Equal(t, provider, list.Provider)
		assert.Len(t, list.Groups, groups)
		for n := range groups {
			assert.NotEmpty(t, list.Groups[n+1].Tests, "%s: group %d", provider, n+1)
		}
		known := map[string]map[string]bool{}
		for _, s := range slices.Concat(slices.Collect(maps.Values(list.Groups)), list.Extra) {
			assert.NotEmpty(t, s.Scenario)
			for _, name := range s.Tests {
				dot := strings.LastIndexByte(name, '.')
				require.Positive(t, dot, name)
				pkg, test := name[:dot], name[dot+1:]
				if known[pkg] == nil {
					known[pkg] = testsOf(t, pkg)
				}
				assert.True(t, known[pkg][test], "%s: %q names %s, which is not a test", provider, s.Scenario, name)
			}
		}
	}
}

// testsOf returns the names of a package's tests.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && !skips(f) {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// skips reports whether a test may be skipped: it then proves nothing.
func skips(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Skip") {
			found = true
		}
		return !found
	})
	return found
}
