package pins

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMakeHelp: every target that has a name for people is listed.
func TestMakeHelp(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(makefile, -1) {
		assert.Regexp(t, `(?m)^`+m[1]+`:.* ## `, makefile, "make help does not list it")
	}
}

// TestMakeRefusesUnknownClouds: before anything is built, with the names that there are; a release without a tag does so, too.
func TestMakeRefusesUnknownClouds(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"build", "PROVIDERS=nosuch"}, {"demo", "PROVIDER=nosuch"}} {
		out, err := made(t, args...)
		require.Error(t, err)
		assert.Regexp(t, `there is no provider nosuch; there are \w+ \w+`, string(out))
	}
	out, err := made(t, "release", "RELEASE=")
	require.Error(t, err)
	assert.Contains(t, string(out), "Error: this commit has no tag")
	assert.NotContains(t, string(out), "Building")
}

// made runs make without the flags of a make that runs this test: with -k it would go on after an error.
func made(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	_, err := exec.LookPath("make")
	require.NoError(t, err, "working on this project takes make")
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../.."}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
	return cmd.CombinedOutput()
}

// TestEveryTestIsRun: a package whose tests `make test` leaves out would never be seen to fail.
func TestEveryTestIsRun(t *testing.T) {
	t.Parallel()
	out, err := made(t, "-n", "test", "CLOUDS=all", "RACE=all", "TESTFLAGS=", "GO=go")
	require.NoError(t, err, "%s", out)
	tests, own := commandsOfTests(string(out)), modules(t)
	assert.True(t, tests.run(".", "test/e2e"), "the commands are read wrongly: %s", out)
	assert.False(t, tests.run("build/nosuch", "build/nosuch"), "a module is no part of the one around it")
	elsewhere := []string{
		"build/workflows", // make verify
		"test/release",    // make release-check: there must be a release
	}
	for _, folder := range foldersOfTests(t) {
		if !slices.Contains(elsewhere, folder) {
			assert.True(t, tests.run(moduleOf(own, folder), folder), "make test runs no test of %s; add it to SHARED", folder)
		}
	}
}

// TestNamedTestsExist: a command that runs tests by name would run none of one that was renamed, and be green.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	named := regexp.MustCompile(`(?m) -run (?:'\^\(([\w|]+)\)\$\$'|(\w+)) \./(\S+?)(/\.\.\.)?$`).FindAllStringSubmatch(makefile, -1)
	require.Len(t, named, strings.Count(makefile, " -run "), "all are read")
	tests := testFiles(t)
	for _, m := range named {
		there := map[string]bool{}
		for folder, files := range tests {
			if folder == m[3] || m[4] != "" && strings.HasPrefix(folder, m[3]+"/") {
				maps.Copy(there, waitsOf(files).all)
			}
		}
		for name := range strings.SplitSeq(m[1]+m[2], "|") {
			assert.True(t, there[name], "the Makefile runs %s of %s, which has none", name, m[3])
		}
	}
}

// testCommand runs tests, or lists the packages whose tests the next one runs: in the module of a folder, what the patterns name but for
// some.
type testCommand struct {
	module           string
	patterns, except []string
}

type testCommands []testCommand

var (
	goCommand = regexp.MustCompile(`(?m)^.*\bgo (?:-C (\S+) )?(?:test|list) (.*(?:\n.*grep -vxF .*)?)$`)
	goPattern = regexp.MustCompile(`(?:^| )\./[\w./-]+`)
	exclusion = regexp.MustCompile(`-e [\w.-]+/[\w.-]+/[\w.-]+/(\S+)`)
	someTests = regexp.MustCompile(`\s-run[ =]`)
)

func commandsOfTests(made string) testCommands {
	var all testCommands
	for _, m := range goCommand.FindAllStringSubmatch(made, -1) {
		if someTests.MatchString(m[2]) {
			continue
		}
		c := testCommand{module: path.Clean(m[1])}
		for _, pattern := range goPattern.FindAllString(m[2], -1) {
			c.patterns = append(c.patterns, path.Join(c.module, strings.TrimSpace(pattern)))
		}
		for _, e := range exclusion.FindAllStringSubmatch(m[2], -1) {
			c.except = append(c.except, e[1])
		}
		all = append(all, c)
	}
	return all
}

// run reports whether one of the commands runs the tests of a folder of a module.
func (all testCommands) run(module, folder string) bool {
	return slices.ContainsFunc(all, func(c testCommand) bool {
		return c.module == module && !slices.Contains(c.except, folder) && slices.ContainsFunc(c.patterns, func(pattern string) bool {
			above, below := strings.CutSuffix(pattern, "/...")
			return folder == above || (below && (above == "." || strings.HasPrefix(folder, above+"/")))
		})
	})
}

// moduleOf is the innermost module that a folder lies in.
func moduleOf(modules []string, folder string) string {
	for ; !slices.Contains(modules, folder); folder = path.Dir(folder) {
	}
	return folder
}

// foldersOfTests are the folders of the checkout in which there are tests.
func foldersOfTests(t *testing.T) []string {
	t.Helper()
	folders := map[string]bool{}
	for _, file := range files(t) {
		if strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "/testdata/") {
			folders[path.Dir(file)] = true
		}
	}
	return slices.Sorted(maps.Keys(folders))
}
