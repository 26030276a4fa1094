package shape

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	root = "../.."
	// The limits. A tab is one character, and what the longest string of a line holds is not counted.
	maxLine     = 140
	maxFunction = 60
	maxFile     = 700
	// exceptionsFile lists what is longer for now.
	exceptionsFile = "testdata/exceptions.yaml"
)

var update = flag.Bool("update", false, "strike exceptions that are needed no more")

// excess is what of a file is too long.
type excess struct {
	// Lines is how many lines are too long.
	Lines int `json:"lines,omitempty"`
	// Functions are those that are too long, with their length.
	Functions map[string]int `json:"functions,omitempty"`
	// Length is that of the file, if it is too long.
	Length int `json:"length,omitempty"`
	// where are the lines that are too long.
	where []int
}

func (e excess) none() bool { return e.Lines == 0 && len(e.Functions) == 0 && e.Length == 0 }

// TestShape: lines, functions and files have limits. Exceptions are listed by file, and the list only shrinks: `go test ./build/shape
// -update` strikes what is needed no more, and never adds anything.
func TestShape(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(exceptionsFile)
	require.NoError(t, err)
	allowed := map[string]excess{}
	require.NoError(t, yaml.UnmarshalStrict(text, &allowed))
	found, files := measureAll(t)
	require.Greater(t, files, 300, "the sources were read")
	if *update {
		write(t, shrunk(allowed, found))
		return
	}
	for _, problem := range compare(allowed, found) {
		t.Error(problem)
	}
}

// compare returns what is too long and not excepted, and exceptions that are too generous.
func compare(allowed, found map[string]excess) []string {
	var problems []string
	for _, file := range slices.Sorted(maps.Keys(found)) {
		has, may := found[file], allowed[file]
		if has.Lines > may.Lines {
			problems = append(problems, fmt.Sprintf("%s: %d lines have more than %d characters besides their longest string, %d may: %v",
				file, has.Lines, maxLine, may.Lines, has.where))
		}
		for _, name := range slices.Sorted(maps.Keys(has.Functions)) {
			if has.Functions[name] > max(may.Functions[name], maxFunction) {
				problems = append(problems, fmt.Sprintf("%s: %s has %d lines, at most %d are allowed",
					file, name, has.Functions[name], max(may.Functions[name], maxFunction)))
			}
		}
		if has.Length > max(may.Length, maxFile) {
			problems = append(problems, fmt.Sprintf("%s has %d lines, at most %d are allowed", file, has.Length, max(may.Length, maxFile)))
		}
	}
	kept := shrunk(allowed, found)
	for _, file := range slices.Sorted(maps.Keys(allowed)) {
		if !assert.ObjectsAreEqual(allowed[file], kept[file]) {
			problems = append(problems, fmt.Sprintf("%s became shorter: run go test ./build/shape -update, which strikes the exceptions", file))
		}
	}
	return problems
}

// shrunk is what remains of the exceptions: never more than there was, nor more than is needed.
func shrunk(allowed, found map[string]excess) map[string]excess {
	kept := map[string]excess{}
	for file, may := range allowed {
		has := found[file]
		e := excess{Lines: min(may.Lines, has.Lines), Length: min(may.Length, has.Length)}
		for name, length := range may.Functions {
			if now := has.Functions[name]; now > 0 {
				if e.Functions == nil {
					e.Functions = map[string]int{}
				}
				e.Functions[name] = min(length, now)
			}
		}
		if !e.none() {
			kept[file] = e
		}
	}
	return kept
}

func write(t *testing.T, exceptions map[string]excess) {
	t.Helper()
	text, err := yaml.Marshal(exceptions)
	require.NoError(t, err)
	head := "# What is longer than build/shape allows, by file. The list only shrinks; go test ./build/shape -update strikes from it.\n"
	require.NoError(t, os.WriteFile(exceptionsFile, append([]byte(head), text...), 0o600))
}

// measureAll measures every Go file of the checkout.
func measureAll(t *testing.T) (map[string]excess, int) {
	t.Helper()
	found, files := map[string]excess{}, 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, relative) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		e, err := measure(source)
		if err != nil {
			return fmt.Errorf("%s: %w", relative, err)
		}
		files++
		if !e.none() {
			found[filepath.ToSlash(relative)] = e
		}
		return nil
	}))
	return found, files
}

// measure returns what of a source is too long.
func measure(source []byte) (excess, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return excess{}, err
	}
	var e excess
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if length := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; length > maxFunction {
			if e.Functions == nil {
				e.Functions = map[string]int{}
			}
			e.Functions[nameOf(f)] = length
		}
	}
	excepted := stringsOf(source)
	lines := strings.Split(strings.TrimSuffix(string(source), "\n"), "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line)-excepted[i+1] > maxLine {
			e.where = append(e.where, i+1)
		}
	}
	e.Lines = len(e.where)
	if len(lines) > maxFile {
		e.Length = len(lines)
	}
	return e, nil
}

// nameOf is the name of a function, with its receiver's type if it has one.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch typ := receiver.(type) {
		case *ast.StarExpr:
			receiver = typ.X
		case *ast.IndexExpr:
			receiver = typ.X
		case *ast.IndexListExpr:
			receiver = typ.X
		case *ast.Ident:
			return typ.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// stringsOf returns how many characters the longest string of each line has, without its quotes.
func stringsOf(source []byte) map[int]int {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	longest := map[int]int{}
	for {
		at, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return longest
		case token.STRING:
			first := file.Line(at)
			for i, part := range strings.Split(text[1:len(text)-1], "\n") {
				longest[first+i] = max(longest[first+i], utf8.RuneCountInString(part))
			}
		}
	}
}

// TestMeasure: the rule sees what it is for.
func TestMeasure(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	source := "package x\n\n// " + long + "\nvar a, b = 1, \"" + long + "\"\nvar " + long + " = 1\nvar c, d = \"" + long + "\", \"" + long + "\"\n" +
		"var e = `" + long + long + "\n" + long + long + "`\n" +
		"func (t *T[K]) Long() {" + strings.Repeat("\n", maxFunction-1) + "}\nfunc fits() {" + strings.Repeat("\n", maxFunction-2) + "}\n"
	e, err := measure([]byte(source))
	require.NoError(t, err)
	assert.Equal(t, []int{3, 5, 6}, e.where, "a comment, a name, two strings")
	assert.Empty(t, e.Functions)

	longer := source + "func (t *T[K]) TooLong() {" + strings.Repeat("\n", maxFunction) + "}\n" + strings.Repeat("// x\n", maxFile)
	e, err = measure([]byte(longer))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"T.TooLong": maxFunction + 1}, e.Functions)
	assert.Equal(t, strings.Count(longer, "\n"), e.Length)
}

// TestExceptionsShrink: more than is allowed is a fault, and so is an exception that is needed no more.
func TestExceptionsShrink(t *testing.T) {
	t.Parallel()
	allowed := map[string]excess{"a.go": {Lines: 2, Functions: map[string]int{"f": 70}, Length: 800}, "gone.go": {Lines: 1}}
	same := map[string]excess{"a.go": allowed["a.go"], "gone.go": {Lines: 1}}
	assert.Empty(t, compare(allowed, same))
	for name, found := range map[string]excess{
		"another line":      {Lines: 3, Functions: map[string]int{"f": 70}, Length: 800},
		"a longer function": {Lines: 2, Functions: map[string]int{"f": 71}, Length: 800},
		"another function":  {Lines: 2, Functions: map[string]int{"f": 70, "g": 61}, Length: 800},
		"a longer file":     {Lines: 2, Functions: map[string]int{"f": 70}, Length: 801},
		"a line less":       {Lines: 1, Functions: map[string]int{"f": 70}, Length: 800},
		"a function less":   {Lines: 2, Length: 800},
		"a shorter file":    {Lines: 2, Functions: map[string]int{"f": 70}, Length: 799},
	} {
		assert.Len(t, compare(allowed, map[string]excess{"a.go": found, "gone.go": {Lines: 1}}), 1, name)
	}
	assert.Equal(t, map[string]excess{"a.go": {Lines: 2}}, shrunk(allowed, map[string]excess{"a.go": {Lines: 5}, "new.go": {Lines: 9}}))
}
