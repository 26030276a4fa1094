package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// notOfServices are keys that are not annotations of Services, with their use.
var notOfServices = map[string]string{
	"alpha.kubernetes.io/provided-node-ip": "of a Node, which kubelet writes",
	"node.k8s.linode.com/private-ip":       "of a Node, which the program writes",
	"node.k8s.linode.com/public-ipv6":      "of a Node, which the program writes",
	"k8s.co/cloud-provider-config":         "of a ConfigMap",
}

// TestAnnotationsThatAreReadAreInTheTable: every annotation that a provider's code names or looks up is on its page.
func TestAnnotationsThatAreReadAreInTheTable(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		read := annotationsRead(t, filepath.Join("..", "..", "providers", p.Name))
		require.True(t, len(read) > 0 || p.Features.LoadBalancers != registry.Done, p.Name)
		for _, key := range slices.Sorted(maps.Keys(read)) {
			_, elsewhere := notOfServices[key]
			assert.True(t, elsewhere || inTable(p, key), "%s: annotation %s is in no table: %s", p.Name, key, read[key])
		}
	}
}

// inTable reports whether the provider's table or records contain a key or prefix.
func inTable(p registry.Provider, key string) bool {
	begins := strings.HasSuffix(key, "-") || strings.HasSuffix(key, "/") || strings.HasSuffix(key, "_")
	return slices.Contains(p.Records, key) || slices.ContainsFunc(slices.Concat(p.Annotations, p.Fields), func(r schema.AnnotationRow) bool {
		return r.Key == key || begins && strings.HasPrefix(r.Key, key)
	})
}

// annotationsRead returns the keys that code uses as annotations, with their place.
func annotationsRead(t *testing.T, folder string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasSuffix(path, "sim") || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	}))
	texts := map[string]string{"Numbered": schema.Numbered}
	for range 4 { // constants of constants
		for _, file := range files {
			readConstants(file, texts)
		}
	}
	read := map[string]string{}
	for name, text := range texts {
		if strings.HasPrefix(name, "annotation") && strings.Contains(text, "/") {
			read[text] = "constant " + name
		}
	}
	for _, file := range files {
		findLookups(file, set, texts, read)
	}
	return read
}

// findLookups adds the keys that a file looks up among annotations.
func findLookups(file *ast.File, set *token.FileSet, texts, read map[string]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if at, ok := n.(*ast.IndexExpr); ok && ofAnnotations(at.X) {
			key, known := textOf(at.Index, texts)
			if _, together := at.Index.(*ast.BinaryExpr); known || together {
				read[cmp.Or(key, "that is put together")] = set.Position(at.Pos()).String()
			}
		}
		return true
	})
}

func ofAnnotations(e ast.Expr) bool {
	switch v := e.(type) {
	case *ast.SelectorExpr:
		return v.Sel.Name == "Annotations"
	case *ast.Ident:
		return slices.Contains([]string{"annotations", "given"}, v.Name)
	}
	return false
}

func readConstants(file *ast.File, texts map[string]string) {
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, s := range block.Specs {
			spec, ok := s.(*ast.ValueSpec)
			for i := 0; ok && i < len(spec.Values); i++ {
				if text, known := textOf(spec.Values[i], texts); known {
					texts[spec.Names[i].Name] = text
				}
			}
		}
	}
}

// textOf evaluates an expression of literals and known constants.
func textOf(e ast.Expr, texts map[string]string) (string, bool) {
	switch v := e.(type) {
	case *ast.BinaryExpr:
		left, ok := textOf(v.X, texts)
		right, also := textOf(v.Y, texts)
		return left + right, ok && also && v.Op == token.ADD
	case *ast.SelectorExpr:
		return textOf(v.Sel, texts)
	}
	return literal(e, texts)
}
