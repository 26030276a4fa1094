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
	"accidental", "added", "addressed", "adopted", "again", "ahead", "allocated", "among", "announced", "announcing", "apart", "askable",
	"asked", "assigning", "away", "bearing", "beside", "built", "claimed", "clipped", "comparing", "concerning", "conclude", "conflicting",
	"connected", "contradicts", "defaulted", "done", "due", "everybodys", "everyone", "everywhere", "exhausted", "explained", "firm",
	"following", "found", "given", "gone", "grouped", "has", "having", "heard", "held", "here", "hinted", "holdable", "in", "into", "joined",
	"joining", "kept", "knowing", "known", "lasted", "lasting", "later", "led", "left", "let", "lifted", "listed", "located", "lost", "made",
	"marked", "matched", "mine", "missing", "mistaken", "named", "neighbours", "nobody", "none", "now", "obtaining", "of", "off", "on", "one",
	"others", "ours", "out", "outlook", "over", "packed", "patiently", "plain", "prefixed", "proved", "realized", "reassigning", "recovered",
	"referred", "refused", "relabeled", "releasing", "reloaded", "remarked", "remembered", "remembering", "rendered", "same",
	"sealed", "seen", "selecting", "served", "settled", "several", "sight", "sighted", "sloppy", "speaks", "stated", "sticking", "still",
	"storing", "strangers", "suspected", "swapped", "taken", "tells", "testify", "theirs", "there", "through", "to", "told", "took",
	"trunked", "truth", "unanswered", "undashed", "under", "united", "unjudged", "unlabelled", "unless", "unlike", "unlinked", "unmet",
	"unpacked", "unpaged", "unproved", "unproven", "unread", "unsticking", "untagged", "untangled", "untrusted", "unusable", "vacant",
	"vanished", "wanted", "who", "whose", "with", "withdraw", "without", "witnessed",
}

// filesDenied name the worry of whoever wrote a file, and not what it holds.
var filesDenied = []string{
	"again", "audience", "away", "claims", "comeback", "doc", "finding", "formernodes", "heard", "openings", "registered", "settle",
	"several", "shown", "strays", "turn",
}

// typesDenied are no nouns, or the author's words for a worry.
var typesDenied = []string{
	"audience", "bound", "doing", "dropped", "failing", "questions", "restored", "rewound", "said", "seen", "selected", "setback",
	"sighting", "silent", "stranger", "testimony", "told", "ways",
}

// maxParticiples is how many functions of a package, besides its tests, may have a participle alone for a name.
const maxParticiples = 5

// participlesAllowed are the packages that have more. No number may grow.
var participlesAllowed = map[string]int{
	"providers/aws/awssim": 8, "test/realclouds": 7,
}

var participle = regexp.MustCompile(`^[a-z]+(ed|ing)$`)

// TestFunctionsSayWhatTheyDo: a function is a verb and its thing, a question, or the noun of what it returns.
func TestFunctionsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	set, functions, participles := token.NewFileSet(), 0, map[string][]string{}
	require.NoError(t, walk(func(path string) error {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+string(filepath.Separator)))
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions++
			assert.NotContains(t, namesDenied, f.Name.Name, "%s: name what %s does, and to what", set.Position(f.Pos()), nameOf(f))
			if participle.MatchString(f.Name.Name) && !strings.HasSuffix(path, "_test.go") {
				participles[folder] = append(participles[folder], nameOf(f))
			}
		}
		return nil
	}))
	require.Greater(t, functions, 1000, "the sources were read")
	for folder, names := range participles {
		assert.LessOrEqual(t, len(names), max(maxParticiples, participlesAllowed[folder]), "%s: name what these do, and to what: %q", folder, names)
	}
}

// TestTypesAreNouns: a type is named after what its values are.
func TestTypesAreNouns(t *testing.T) {
	t.Parallel()
	set, found := token.NewFileSet(), 0
	require.NoError(t, walk(func(path string) error {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				if typ, ok := spec.(*ast.TypeSpec); ok {
					found++
					assert.NotContains(t, typesDenied, typ.Name.Name, "%s: name what a value of the type is", set.Position(typ.Pos()))
				}
			}
		}
		return nil
	}))
	require.Greater(t, found, 500, "the sources were read")
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
