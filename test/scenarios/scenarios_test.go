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

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the providers with a list
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// table is one cloud's list.
type table struct {
	Provider string `json:"provider"`
	// Catalogue is the number of groups of the catalogue, which are numbered from 1 without gaps.
	Catalogue int              `json:"catalogue"`
	Groups    map[int]scenario `json:"groups"`
	// Extra are scenarios that the other tests leave out.
	Extra []scenario `json:"extra"`
	// Takeover are the tests that begin with load balancers as the cloud's own controller leaves them and hold that nothing is written.
	Takeover takeover `json:"takeover"`
}

// takeover names tests, or says why there are none.
type takeover struct {
	Tests []string `json:"tests"`
	None  string   `json:"none"`
}

type scenario struct {
	Scenario string   `json:"scenario"`
	Tests    []string `json:"tests"`
	Differs  string   `json:"differs"`
}

func TestEveryScenarioHasATest(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		provider := p.Name
		file := filepath.Join("..", "..", "providers", provider, "testdata", "scenarios.yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err, "write the list: docs/developing-a-provider.md says what is in it")
		var list table
		require.NoError(t, yaml.UnmarshalStrict(text, &list), file)
		assert.Equal(t, provider, list.Provider)
		assert.Positive(t, list.Catalogue, file)
		assert.Len(t, list.Groups, list.Catalogue, file)
		for n := range list.Catalogue {
			assert.NotEmpty(t, list.Groups[n+1].Tests, "%s: group %d", provider, n+1)
		}
		if p.Features.LoadBalancers == registry.Done {
			assert.NotEqual(t, len(list.Takeover.Tests) > 0, list.Takeover.None != "", "%s: takeover names tests, or says in none why it has none", file)
			left, err := expectations.ReadTakeover(filepath.Join("..", ".."), p)
			require.NoError(t, err)
			if left.HeldBy != "" {
				assert.Contains(t, list.Takeover.Tests, "providers/"+provider+"."+left.HeldBy, "takeover.yaml names another test than %s", file)
			}
		}
		known := map[string]map[string]bool{}
		all := slices.Concat(slices.Collect(maps.Values(list.Groups)), list.Extra)
		if len(list.Takeover.Tests) > 0 {
			all = append(all, scenario{Scenario: "takeover", Tests: list.Takeover.Tests})
		}
		for _, s := range all {
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
