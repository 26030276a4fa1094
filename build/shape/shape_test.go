package shape

import (
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
)

const (
	root = "../.."
	// The limits. A tab counts as one character; the longest string of a line does not count.
	maxLine     = 140
	maxFunction = 60
	maxFile     = 700
)

type excess struct {
	Lines []int
	// Functions are those that are too long, with their length.
	Functions map[string]int
	// Length is the file's, if it is too long.
	Length int
}

func (e excess) isEmpty() bool { return len(e.Lines) == 0 && len(e.Functions) == 0 && e.Length == 0 }

func TestShape(t *testing.T) {
	t.Parallel()
	found, files := measureAll(t)
	require.Greater(t, files, 300, "the sources were read")
	for _, problem := range problems(found) {
		t.Error(problem)
	}
}

func problems(found map[string]excess) []string {
	var list []string
	for _, file := range slices.Sorted(maps.Keys(found)) {
		has := found[file]
		if len(has.Lines) > 0 {
			list = append(list, fmt.Sprintf("%s: lines have more than %d characters besides their longest string: %v", file, maxLine, has.Lines))
		}
		for _, name := range slices.Sorted(maps.Keys(has.Functions)) {
			list = append(list, fmt.Sprintf("%s: %s has %d lines, at most %d are allowed", file, name, has.Functions[name], maxFunction))
		}
		if has.Length > 0 {
			list = append(list, fmt.Sprintf("%s has %d lines, at most %d are allowed", file, has.Length, maxFile))
		}
	}
	return list
}

// TestFilesOfTestsNameABehaviour: a file of tests has the name of what they hold, or that of the file that they are about, and not the name
// of the worry or the review that led to them.
func TestFilesOfTestsNameABehaviour(t *testing.T) {
	t.Parallel()
	files := 0
	require.NoError(t, walk(func(path string) error {
		name, isTest := strings.CutSuffix(path, "_test.go")
		if !isTest {
			return nil
		}
		files++
		if !namesABehaviour(name) {
			_, err := os.Stat(name + ".go")
			assert.NoError(t, err, "%s: move its tests to the file of the behaviour, under names that say it", path)
		}
		return nil
	}))
	require.Greater(t, files, 100, "the sources were read")
}

// worries are words that say why somebody looked, and not at what.
var worries = []string{
	"again", "attack", "away", "broken", "bug", "bugs", "claims", "comeback", "crash", "doubts", "faults", "findings", "fixes", "heard", "hostile",
	"intruders", "issues", "late", "misc", "more", "problems", "prompt", "regressions", "review", "safety", "several", "steady", "strays",
	"trouble", "turn", "wayback",
}

// namesABehaviour judges the name of a file of tests without its ending. A number or the prefix of a variant makes no other name. Faults
// are a subject of their own where tests put them between programs.
func namesABehaviour(name string) bool {
	word := strings.TrimRight(filepath.Base(name), "0123456789")
	if word == "faults" && strings.HasPrefix(strings.TrimPrefix(filepath.ToSlash(name), root+"/"), "test/") {
		return true
	}
	return !slices.Contains(worries, word) && !strings.HasSuffix(word, "wayback")
}

// TestNamesABehaviour: the rule sees what it is for.
func TestNamesABehaviour(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"providers/x/attack": false, "providers/x/attack2": false, "nsxwayback": false, "registry/late": false,
		"providers/x/lateness": true, "test/e2e/faults": true, "providers/x/faults": false, "providers/faults/client": true, "security": true,
	} {
		assert.Equal(t, good, namesABehaviour(name), name)
	}
}

// measureAll measures every Go file of the checkout.
func measureAll(t *testing.T) (map[string]excess, int) {
	t.Helper()
	found, files := map[string]excess{}, 0
	require.NoError(t, walk(func(path string) error {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		e, err := measure(source)
		if err != nil {
			return fmt.Errorf("%s: %w", relative, err)
		}
		files++
		if !e.isEmpty() {
			found[filepath.ToSlash(relative)] = e
		}
		return nil
	}))
	return found, files
}

// walk visits every Go file of the checkout.
func walk(visit func(path string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, filepath.Base(path)) && filepath.Dir(path) == filepath.Clean(root) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		return visit(path)
	})
}

// measure returns the excess of a source.
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
			e.Lines = append(e.Lines, i+1)
		}
	}
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
	assert.Equal(t, []int{3, 5, 6}, e.Lines, "a comment, a name, two strings")
	assert.Empty(t, e.Functions)

	longer := source + "func (t *T[K]) TooLong() {" + strings.Repeat("\n", maxFunction) + "}\n" + strings.Repeat("// x\n", maxFile)
	e, err = measure([]byte(longer))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"T.TooLong": maxFunction + 1}, e.Functions)
	assert.Equal(t, strings.Count(longer, "\n"), e.Length)
}

// TestProblems: each kind of excess is said, with its file.
func TestProblems(t *testing.T) {
	t.Parallel()
	assert.Empty(t, problems(map[string]excess{}))
	assert.Equal(t, []string{
		"a.go: lines have more than 140 characters besides their longest string: [3 5]",
		"a.go: T.f has 61 lines, at most 60 are allowed",
		"b.go has 701 lines, at most 700 are allowed",
	}, problems(map[string]excess{
		"a.go": {Lines: []int{3, 5}, Functions: map[string]int{"T.f": 61}},
		"b.go": {Length: 701},
	}))
}
