package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxMethods is how many methods a type may have outside of tests.
const maxMethods = 40

// methodsAllowed are the types that have more. No number may grow.
var methodsAllowed = map[string]int{"providers/kit/conformance/world": 82, "providers/kit/inventory/view": 57, "test/acceptance/suite": 71}

// TestTypesAreOneThing: a reader can hold all methods of a type in mind.
func TestTypesAreOneThing(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	require.NoError(t, walk(func(file string) error {
		// A simulator is one state with a method for each call of its API.
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "sim") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(file), root+string(filepath.Separator)))
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				receiver, _, _ := strings.Cut(nameOf(f), ".")
				methods[path.Join(folder, receiver)]++
			}
		}
		return nil
	}))
	require.Greater(t, len(methods), 500, "the sources were read")
	for _, typ := range slices.Sorted(maps.Keys(methods)) {
		assert.LessOrEqual(t, methods[typ], max(maxMethods, methodsAllowed[typ]), "%s has too many methods: let one type be one thing", typ)
	}
	for typ, allowed := range methodsAllowed {
		assert.Equal(t, allowed, methods[typ], "the number of %s is no longer needed, or can be lower", typ)
	}
}
