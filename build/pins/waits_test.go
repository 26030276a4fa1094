package pins

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waits are the calls that wait, or bound a wait.
var waits = map[string]bool{
	"time.Sleep": true, "time.After": true, "time.Tick": true, "time.NewTimer": true, "time.NewTicker": true, "time.AfterFunc": true,
	"context.WithTimeout": true, "context.WithDeadline": true, "context.WithTimeoutCause": true, "context.WithDeadlineCause": true,
	"require.Eventually": true, "assert.Eventually": true,
	"require.EventuallyWithT": true, "assert.EventuallyWithT": true, "require.Never": true, "assert.Never": true,
}

// deadlines are methods that bound a wait, and limited the types whose field Timeout does.
var (
	deadlines = map[string]bool{"SetDeadline": true, "SetReadDeadline": true, "SetWriteDeadline": true}
	limited   = map[string]bool{"http.Client": true, "net.Dialer": true}
)

// TestWaitsAreVirtual: a test that waits does so in virtual time, or docs/testing.md names it with the reason why not.
func TestWaitsAreVirtual(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/testing.md")
	_, table, found := strings.Cut(page, "## Waits with a real deadline")
	require.True(t, found)
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:cmd|providers|registry|build)[^`]*)` `([A-Za-z]+)` \\|.*\\| *([^| ][^|]*)\\|$").FindAllStringSubmatch(table, -1) {
		listed[row[1]+" "+row[2]] = true
	}
	real := map[string]bool{}
	functions := 0
	for folder, files := range testFiles(t) {
		p := waitsOf(files)
		functions += len(p.all)
		for _, name := range p.realWaits() {
			real[folder+" "+name] = true
		}
	}
	require.Greater(t, functions, 500, "the tests were read")
	for _, name := range slices.Sorted(maps.Keys(real)) {
		assert.True(t, listed[name], "%s waits in real time: put it into a bubble of testing/synctest, or into the table of docs/testing.md with the reason", name)
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		assert.True(t, real[name], "%s does not wait in real time any more; take it out of docs/testing.md", name)
	}
}

// TestWaitsAreFound: the rule sees what it is for.
func TestWaitsAreFound(t *testing.T) {
	t.Parallel()
	source := `package x
func TestSleeps(t *testing.T) { time.Sleep(1) }
func TestBubble(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1); helper() }) }
func TestPolls(t *testing.T) { t.Run("x", func(t *testing.T) { require.Eventually(t, nil, 1, 1) }) }
func TestBoth(t *testing.T) { shared() }
func TestBothVirtual(t *testing.T) { synctest.Test(t, func(*testing.T) { shared() }) }
func bubble(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }
func TestByHelper(t *testing.T) { bubble(t, func() { time.Sleep(1) }) }
func handsOn(t *testing.T, f func()) { bubble(t, f) }
func TestHandedOn(t *testing.T) { handsOn(t, func() { time.Sleep(1) }) }
func (w *world) helper() { context.WithTimeout(nil, 1) }
func shared() { time.After(1) }
func unused() { time.After(1) }
func TestClient(t *testing.T) { _ = &http.Client{Timeout: 1} }
func TestPatient(t *testing.T) { _ = &http.Client{}; _ = options{Timeout: 1} }
func TestConnection(t *testing.T) { c.SetDeadline(when) }
`
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", source, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"TestClient", "TestConnection", "TestPolls", "TestSleeps", "shared", "unused"}, waitsOf([]*ast.File{file}).realWaits())
}

// testFiles are the tests of the packages whose tests run within one process, by folder. Those of test/ start programs, which have a
// clock of their own.
func testFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	files := map[string][]*ast.File{}
	for _, dir := range []string{"cmd", "providers", "registry", "build"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			folder = filepath.ToSlash(folder)
			files[folder] = append(files[folder], file)
			return err
		}))
	}
	return files
}

// packageWaits are the functions of a package's tests: which wait, which open a bubble, and who calls them.
type packageWaits struct {
	all, waits, bubbles map[string]bool
	callers             map[string]map[string]bool
}

func waitsOf(files []*ast.File) packageWaits {
	p := packageWaits{all: map[string]bool{}, waits: map[string]bool{}, bubbles: map[string]bool{}, callers: map[string]map[string]bool{}}
	for _, file := range files {
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			p.all[f.Name.Name] = true
			ast.Inspect(f.Body, func(n ast.Node) bool {
				p.note(f.Name.Name, n)
				return true
			})
		}
	}
	return p
}

// note keeps what a node says about the function that it stands in.
func (p packageWaits) note(function string, n ast.Node) {
	called := ""
	switch n := n.(type) {
	case *ast.CompositeLit:
		p.waits[function] = p.waits[function] || isLimited(n)
	case *ast.SelectorExpr:
		called = n.Sel.Name
		p.waits[function] = p.waits[function] || deadlines[n.Sel.Name]
		if pkg, ok := n.X.(*ast.Ident); ok {
			p.waits[function] = p.waits[function] || waits[pkg.Name+"."+n.Sel.Name]
			p.bubbles[function] = p.bubbles[function] || (pkg.Name == "synctest" && n.Sel.Name == "Test")
		}
	case *ast.Ident:
		called = n.Name
	}
	if called != "" && called != function {
		if p.callers[called] == nil {
			p.callers[called] = map[string]bool{}
		}
		p.callers[called][function] = true
	}
}

// isLimited reports whether a value of one of the limited types has a time limit.
func isLimited(n *ast.CompositeLit) bool {
	typ, ok := n.Type.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := typ.X.(*ast.Ident)
	return ok && limited[pkg.Name+"."+typ.Sel.Name] && slices.ContainsFunc(n.Elts, func(element ast.Expr) bool {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		key, ok := pair.Key.(*ast.Ident)
		return ok && key.Name == "Timeout"
	})
}

// realWaits are the functions that wait outside of a bubble: those that open none themselves, and that something outside of a bubble
// calls, or nothing.
func (p packageWaits) realWaits() []string {
	var found []string
	for function := range p.waits {
		if p.waits[function] && !p.virtual(function, map[string]bool{}) {
			found = append(found, function)
		}
	}
	slices.Sort(found)
	return found
}

func (p packageWaits) virtual(function string, above map[string]bool) bool {
	switch {
	case p.bubbles[function] || p.callsBubble(function):
		return true
	case above[function]:
		return true // a circle decides nothing
	case strings.HasPrefix(function, "Test") || len(p.callers[function]) == 0:
		return false
	}
	above[function] = true
	for caller := range p.callers[function] {
		if !p.virtual(caller, above) {
			return false
		}
	}
	return true
}

// callsBubble reports whether a function hands its work to a helper that opens a bubble for it, or that hands it on to such a one.
func (p packageWaits) callsBubble(function string) bool {
	return p.handsOn(function, map[string]bool{})
}

func (p packageWaits) handsOn(function string, seen map[string]bool) bool {
	seen[function] = true
	for helper := range p.all {
		if strings.HasPrefix(helper, "Test") || seen[helper] || !p.callers[helper][function] {
			continue
		}
		if p.bubbles[helper] || p.handsOn(helper, seen) {
			return true
		}
	}
	return false
}
