package pins

import (
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
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
		out, err := runMake(t, args...)
		require.Error(t, err)
		assert.Regexp(t, `there is no provider nosuch; there are \w+ \w+`, string(out))
	}
	out, err := runMake(t, "release", "RELEASE=")
	require.Error(t, err)
	assert.Contains(t, string(out), "Error: this commit has no tag")
	assert.NotContains(t, string(out), "Building")
}

// runMake runs make without the flags of a make that runs this test: with -k it would go on after an error.
func runMake(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	_, err := exec.LookPath("make")
	require.NoError(t, err, "working on this project takes make")
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../.."}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
	return cmd.CombinedOutput()
}

// TestEveryTestIsRun: a package that no target tests would never be seen to fail. What make test leaves out stands in test-builds, which
// .ci/run has for a change of what is built, or in the target that is named here.
func TestEveryTestIsRun(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"build/workflows": "verify",
		"test/release":    "release-check", // there must be a release
	}
	targets := map[string]bool{"test-builds": true}
	for _, target := range targetsOf(t, "test") {
		targets[target] = true
	}
	require.Greater(t, len(targets), 4, "the targets of make test are read")
	for _, target := range elsewhere {
		targets[target] = false // for what is named there alone
	}
	tests := map[string]testCommands{}
	for target := range targets {
		tests[target] = commandsOf(t, target)
	}
	own := modules(t)
	for _, folder := range foldersOfTests(t) {
		var run []string
		for target, commands := range tests {
			if (targets[target] || elsewhere[folder] == target) && len(commands.running(moduleOf(own, folder), folder)) > 0 {
				run = append(run, target)
			}
		}
		assert.NotEmpty(t, run, "no target runs the tests of %s; see RACED and APART in the Makefile", folder)
		assert.LessOrEqual(t, len(run), 1, "%s is tested more than once: %v", folder, run)
	}
	assert.Empty(t, tests["test-builds"].running("build/nosuch", "build/nosuch"), "a module is no part of the one around it")
}

// TestTheFullTierIsRun: test-all runs the tests of every package, and all of the full tier where a package's tests look at the tier.
func TestTheFullTierIsRun(t *testing.T) {
	t.Parallel()
	var all testCommands
	for _, target := range targetsOf(t, "test-all") {
		all = append(all, commandsOf(t, target)...)
	}
	own := modules(t)
	for _, folder := range foldersOfTests(t) {
		if folder == "build/workflows" {
			continue // make verify runs them
		}
		run := all.running(moduleOf(own, folder), folder)
		assert.NotEmpty(t, run, "make test-all does not run the tests of %s", folder)
		if looksAtTier(t, folder) {
			assert.Condition(t, func() bool { return slices.ContainsFunc(run, func(c testCommand) bool { return c.full }) },
				"make test-all runs the tests of %s in the fast tier", folder)
		}
	}
	for _, c := range commandsOf(t, "test-cloud-full") {
		assert.True(t, c.full)
	}
	for _, target := range targetsOf(t, "test") {
		for _, c := range commandsOf(t, target) {
			assert.False(t, c.full, target)
		}
	}
}

// TestStagesSeeEveryTest: a stage whose tests write no events would skip tests that nobody sees.
func TestStagesSeeEveryTest(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	chains := regexp.MustCompile(`(?m)^\t@\$\(STAGES\) (.*)$`).FindAllStringSubmatch(makefile, -1)
	require.Len(t, chains, strings.Count(makefile, "$(STAGES)"))
	commands := 0
	for _, chain := range chains {
		for _, target := range targetName.FindAllString(chain[1], -1) {
			for _, line := range goCommand.FindAllString(recipe(t, target), -1) {
				commands++
				assert.Contains(t, line, " -json ", target)
			}
		}
	}
	assert.Greater(t, commands, 8)
}

var targetName = regexp.MustCompile(`[\w-]+`)

// targetsOf are the targets that one with stages runs: those before it, its stages, and those after them.
func targetsOf(t *testing.T, target string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + target + `: (.*) ##.*\n\t@\$\(STAGES\) (.*)(?:\n\t\$\(MAKE\) (.*))?$`).FindStringSubmatch(read(t, "Makefile"))
	require.Len(t, m, 4, target)
	return targetName.FindAllString(strings.Join(m[1:], " "), -1)
}

// commandsOf are the commands that run all tests of packages for a target.
func commandsOf(t *testing.T, target string) testCommands {
	t.Helper()
	return commandsOfTests(recipe(t, target))
}

var recipes sync.Map

// recipe returns what make would run for a target, as build/stages calls it.
func recipe(t *testing.T, target string) string {
	t.Helper()
	made, _ := recipes.LoadOrStore(target, sync.OnceValues(func() (string, error) {
		out, err := runMake(t, "-n", target, "TESTFLAGS=", "EVENTS=-json", "GO=go", "RELEASE=1.2.3", "CLOUD=aws")
		return string(out), err
	}))
	out, err := made.(func() (string, error))()
	require.NoError(t, err, "%s", out)
	return out
}

// looksAtTier reports whether the tests of a folder try more in the full tier.
func looksAtTier(t *testing.T, folder string) bool {
	t.Helper()
	return slices.ContainsFunc(files(t), func(file string) bool {
		return path.Dir(file) == folder && strings.HasSuffix(file, "_test.go") && usesTier.MatchString(read(t, file))
	})
}

var usesTier = regexp.MustCompile(`\b(tier\.(All|Full)|conformance\.(Run|RunParts))\(`)

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

// TestSkippedTestsRunElsewhere: a test that skips itself under the detector is named by the command that runs it without.
func TestSkippedTestsRunElsewhere(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?m)^FRAMEWORK .* -run '\^\(([\w|]+)\)\$\$'`).FindStringSubmatch(read(t, "Makefile"))
	require.Len(t, named, 2)
	var skip []string
	for _, files := range testFiles(t) {
		for _, file := range files {
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && asksForDetector(f) {
					skip = append(skip, f.Name.Name)
				}
			}
		}
	}
	assert.NotEmpty(t, skip)
	assert.Subset(t, strings.Split(named[1], "|"), skip)
}

// asksForDetector reports whether a function does something else under the race detector.
func asksForDetector(f *ast.FuncDecl) (asks bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		name, is := n.(*ast.Ident)
		asks = asks || is && name.Name == "raceDetector"
		return true
	})
	return asks
}

// testCommand runs tests of what the patterns name, in the module of a folder.
type testCommand struct {
	module   string
	patterns []string
	// full is set for the full tier.
	full bool
}

type testCommands []testCommand

var (
	goCommand = regexp.MustCompile(`(?m)^.*\bgo (?:-C (\S+) )?test (.*)$`)
	goPattern = regexp.MustCompile(`(?: |^)(?:\.|github\.com/anyccm/cloud-controller-manager)/([\w./-]+)`)
	someTests = regexp.MustCompile(`\s-run[ =]`)
)

func commandsOfTests(made string) testCommands {
	var all testCommands
	for _, m := range goCommand.FindAllStringSubmatch(made, -1) {
		if someTests.MatchString(m[2]) {
			continue
		}
		c := testCommand{module: path.Clean(m[1]), full: strings.HasPrefix(m[0], "ANYCCM_TIER=all ")}
		for _, pattern := range goPattern.FindAllStringSubmatch(m[2], -1) {
			c.patterns = append(c.patterns, path.Join(c.module, pattern[1]))
		}
		all = append(all, c)
	}
	return all
}

// running are the commands that run the tests of a folder of a module.
func (all testCommands) running(module, folder string) testCommands {
	return slices.DeleteFunc(slices.Clone(all), func(c testCommand) bool {
		return c.module != module || !slices.ContainsFunc(c.patterns, func(pattern string) bool {
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
