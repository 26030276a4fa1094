package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// namesDenied say nothing of what a function does: participles, pronouns and prepositions alone.
var namesDenied = []string{
	"again", "added", "asked", "away", "beside", "claimed", "done", "due", "found", "given", "gone", "has", "heard", "held", "here", "in", "into",
	"joined", "kept", "known", "later", "left", "listed", "lost", "made", "marked", "mine", "missing", "named", "none", "now", "of", "off", "on",
	"one", "others", "ours", "out", "over", "plain", "refused", "same", "seen", "served", "settled", "still", "taken", "theirs", "there", "to",
	"told", "took", "wanted", "who", "with", "without",
}

// filesDenied name the worry of whoever wrote a file, and not what it holds.
var filesDenied = []string{"again", "away", "claims", "comeback", "doc", "heard", "several", "strays", "turn"}

// TestFunctionsSayWhatTheyDo: a function is a verb and its thing, a question, or the noun of what it returns.
func TestFunctionsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	set, functions := token.NewFileSet(), 0
	require.NoError(t, walk(func(path string) error {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions++
				assert.NotContains(t, namesDenied, f.Name.Name, "%s: name what %s does, and to what", set.Position(f.Pos()), nameOf(f))
			}
		}
		return nil
	}))
	require.Greater(t, functions, 1000, "the sources were read")
}

// TestFilesSayWhatTheyHold: a file is named after its subject. doc.go holds the comment of a package alone.
func TestFilesSayWhatTheyHold(t *testing.T) {
	t.Parallel()
	require.NoError(t, walk(func(path string) error {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".go"), "_test")
		if !slices.Contains(filesDenied, name) {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		assert.True(t, name == "doc" && len(file.Decls) == 0, "%s: name the file after what it holds", path)
		return nil
	}))
}

// paraphrase begins a comment that only says its name in other words: "limit is what is allowed".
var paraphrase = regexp.MustCompile(`^\w[\w.]*(, [\w.]+)*(,? and [\w.]+)?\s+(is|are)\s+(what|who)\b`)

// TestCommentsSayMoreThanTheName: a comment states the contract or the reason, with a noun or a verb.
func TestCommentsSayMoreThanTheName(t *testing.T) {
	t.Parallel()
	set, comments := token.NewFileSet(), 0
	require.NoError(t, walk(func(path string) error {
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, c := range file.Comments {
			comments++
			assert.NotRegexp(t, paraphrase, c.Text(), "%s: say what it holds, returns or guarantees, or why", set.Position(c.Pos()))
		}
		return nil
	}))
	require.Greater(t, comments, 1000, "the sources were read")
}
