package shape

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// statesAllowed are the variables of packages that are assigned by functions, with the reason.
var statesAllowed = map[string]string{
	"cmd/cloud-controller-manager/app runtime.MemProfileRate": "the runtime takes it no other way",
}

// TestPackagesHaveNoState: what a function assigns to a variable of a package, its own or another's, every test and every cloud of the
// process has. init, main and TestMain begin a process.
func TestPackagesHaveNoState(t *testing.T) {
	t.Parallel()
	packages := map[string][]*ast.File{}
	set := token.NewFileSet()
	require.NoError(t, walk(func(path string) error {
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name := filepath.ToSlash(folder) + " " + file.Name.Name
		packages[name] = append(packages[name], file)
		return nil
	}))
	require.Greater(t, len(packages), 50, "the sources were read")
	unused := maps.Clone(statesAllowed)
	for name, files := range packages {
		folder, _, _ := strings.Cut(name, " ")
		for variable, at := range assigned(files) {
			key := folder + " " + variable
			if _, ok := statesAllowed[key]; !ok {
				t.Errorf("%s: %s belongs to the package; give it to what has it as a field or an argument", set.Position(at), variable)
			}
			delete(unused, key)
		}
	}
	assert.Empty(t, slices.Sorted(maps.Keys(unused)), "nobody assigns them any more")
}

// assigned are the variables of packages to which functions of a package assign, with a place.
func assigned(files []*ast.File) map[string]token.Pos {
	own, specs := declaredVariables(files)
	found := map[string]token.Pos{}
	for _, file := range files {
		imports := importsOf(file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !slices.Contains([]string{"init", "main", "TestMain"}, nameOf(f)) {
				for _, target := range targets(f) {
					first, second := rootOf(target)
					switch {
					case first == nil || first.Name == "_":
					case first.Obj != nil && !specs[first.Obj.Decl]: // it is the function's
					case own[first.Name]:
						found[first.Name] = target.Pos()
					case first.Obj == nil && second != "" && imports[first.Name]:
						found[first.Name+"."+second] = target.Pos()
					}
				}
			}
		}
	}
	return found
}

// declaredVariables returns the names of a package's variables, and their declarations.
func declaredVariables(files []*ast.File) (names map[string]bool, specs map[any]bool) {
	names, specs = map[string]bool{}, map[any]bool{}
	for _, file := range files {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				specs[s] = true
				for _, n := range s.(*ast.ValueSpec).Names {
					names[n.Name] = true
				}
			}
		}
	}
	return names, specs
}

// targets returns the left-hand sides of a function's assignments.
func targets(f *ast.FuncDecl) []ast.Expr {
	var all []ast.Expr
	ast.Inspect(f, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				all = append(all, s.Lhs...)
			}
		case *ast.IncDecStmt:
			all = append(all, s.X)
		}
		return true
	})
	return all
}

// rootOf is the name that an expression begins with, and the one that is selected of it.
func rootOf(e ast.Expr) (first *ast.Ident, second string) {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x, second
		case *ast.SelectorExpr:
			e, second = x.X, x.Sel.Name
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil, ""
		}
	}
}

// importsOf are the names of the packages that a file imports.
func importsOf(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// TestAssigned: the rule sees what it is for.
func TestAssigned(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "", `package x

import "os"

var a, b, c, d, e, f = 1, map[string]int{}, &s{}, 1, 1, []int{1}

var _ = 1

func init() { d = 2 }

func (s *s) m(e int) {
	a++
	b["x"], c.x = 1, 2
	e = 3
	os.Stderr = nil
	s.x = 1
	f := f
	f[0] = 1
	func() { d := 1; d = 2; _ = d }()
	_ = e
}
`, 0)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "b", "c", "os.Stderr"}, slices.Collect(maps.Keys(assigned([]*ast.File{file}))))
}
