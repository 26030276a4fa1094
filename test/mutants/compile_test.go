package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryFaultCompiles: a fault that names what the sources no longer have shows nothing, and only a run of all faults, which takes an
// hour, would say so.
func TestEveryFaultCompiles(t *testing.T) {
	t.Parallel()
	root, err := findRoot()
	require.NoError(t, err)
	all, err := load()
	require.NoError(t, err)
	sources := loadSources(t, root, all)
	for _, m := range all {
		if strings.HasSuffix(m.File, ".go") {
			assert.NoError(t, sources.check(m), "%s: %s", m.area, m.Name)
		}
	}
}

// listedPackage holds the fields of a package in the output of go list.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// sources are packages whose files can be checked one at a time.
type sources struct {
	root   string
	fset   *token.FileSet
	config types.Config
	// packages are by folder, and outlines by file: its declarations without their bodies.
	packages map[string]listedPackage
	outlines map[string]*ast.File
}

// loadSources has the packages of all rows and what they import compiled, as the tests have them.
func loadSources(t *testing.T, root string, rows []mutant) *sources {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-trimpath", "-tags", "grpcnotrace", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, m := range rows {
		args = append(args, "./"+filepath.ToSlash(filepath.Dir(m.File)))
	}
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir, list.Env, list.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	s := &sources{root: root, fset: token.NewFileSet(), packages: map[string]listedPackage{}, outlines: map[string]*ast.File{}}
	exports := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exports[p.ImportPath], s.packages[p.Dir] = p.Export, p
	}
	s.config.Importer = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return s
}

// check type-checks the package of a row with its fault, the bodies of functions in that file alone.
func (s *sources) check(m mutant) error {
	text, err := m.apply(s.root)
	if err != nil {
		return err
	}
	changed := filepath.Join(s.root, m.File)
	p := s.packages[filepath.Dir(changed)]
	file, err := parser.ParseFile(s.fset, changed, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := []*ast.File{file}
	for _, name := range p.GoFiles {
		if path := filepath.Join(p.Dir, name); path != changed {
			outline, err := s.outline(path)
			if err != nil {
				return err
			}
			files = append(files, outline)
		}
	}
	if len(files) > len(p.GoFiles) {
		return fmt.Errorf("%s is no file of the build", m.File)
	}
	var wrong []error
	config := s.config
	config.Error = func(err error) {
		if typed, ok := errors.AsType[types.Error](err); !ok || s.fset.File(typed.Pos) == s.fset.File(file.Pos()) {
			wrong = append(wrong, err)
		}
	}
	_, _ = config.Check(p.ImportPath, s.fset, files, nil) // Error has them
	return errors.Join(wrong...)
}

// outline parses a file and drops the bodies of its functions.
func (s *sources) outline(path string) (*ast.File, error) {
	if file := s.outlines[path]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(s.fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	s.outlines[path] = file
	return file, nil
}
