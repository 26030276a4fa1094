package pins

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openers are the calls by which a test reads files, and Judge of the conformance suite.
var openers = map[string]bool{
	"os.Open": true, "os.OpenFile": true, "os.OpenRoot": true, "os.ReadFile": true, "os.ReadDir": true, "os.DirFS": true,
	"os.Stat": true, "os.Lstat": true,
	"filepath.Glob": true, "filepath.Walk": true, "filepath.WalkDir": true, "conformance.Judge": true,
}

// opening are the functions of tests that open files, and why these are not embedded. What a test opens counts for go's cache by its time
// of change, so that a fresh clone takes no result from it.
var opening = map[string]string{
	"providers/cloudstack/cloudstacksim TestDescription":  "of the full tier: a description in the module cache",
	"providers/gce loadDiscovery":                         "of the full tier: a description in the module cache",
	"providers/gce TestRecordings":                        "of the full tier: recordings outside of the checkout",
	"providers/gce readExchanges":                         "of the full tier: recordings outside of the checkout",
	"providers/linode TestRecordings":                     "of the full tier: recordings outside of the checkout",
	"providers/linode readExchanges":                      "of the full tier: recordings outside of the checkout",
	"providers/openstack TestTLS":                         "a file that the test has written",
	"providers/openstack realWorld":                       "of a real cloud alone",
	"providers/openstack/openstacksim record":             "of a real cloud alone",
	"providers/ovirt TestSDKReadsTheSimulator":            "of the full tier: a module of its own, which is built",
	"providers/photon/photonsim TestSDKReadsTheSimulator": "of the full tier: a module of its own, which is built",
	"providers/keepalived newNetwork":                     "the DaemonSet that users take; docs/testing.md has the package",
}

// TestTestsOpenNoFiles: the tests of providers and registry embed what they read.
func TestTestsOpenNoFiles(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	read := 0
	for folder, files := range testFiles(t) {
		if !strings.HasPrefix(folder, "providers/") && !strings.HasPrefix(folder, "registry") {
			continue
		}
		for _, file := range files {
			read++
			for name := range opensFiles(file) {
				found[folder+" "+name] = true
			}
		}
	}
	require.Greater(t, read, 200)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		assert.Contains(t, opening, name, "embed the file, or name the function in build/pins/files_test.go with the reason why not")
	}
	for name := range opening {
		assert.True(t, found[name], "%s opens no file any more", name)
	}
}

// opensFiles are the functions of a file that open files, or name one in a folder above.
func opensFiles(file *ast.File) map[string]bool {
	found := map[string]bool{}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && opensFile(call) {
				found[f.Name.Name] = true
			}
			return true
		})
	}
	return found
}

func opensFile(call *ast.CallExpr) bool {
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	pkg, is := selector.X.(*ast.Ident)
	if !is {
		return false
	}
	name := pkg.Name + "." + selector.Sel.Name
	if name != "filepath.Join" || len(call.Args) == 0 {
		return openers[name]
	}
	first, is := call.Args[0].(*ast.BasicLit)
	return is && strings.HasPrefix(first.Value, `"..`)
}
