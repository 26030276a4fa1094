package pins

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make here")
	}
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
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../.."}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
	return cmd.CombinedOutput()
}

// TestEveryTestIsRun: a package whose tests `make test` leaves out would never be seen to fail.
func TestEveryTestIsRun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make here")
	}
	out, err := made(t, "-n", "test", "CLOUDS=all")
	require.NoError(t, err, "%s", out)
	commands := regexp.MustCompile(`(?m)^.*\bgo (?:-C (\S+) )?(?:test|list) (.*)$`).FindAllStringSubmatch(string(out), -1)
	var run []string
	for _, command := range commands {
		if strings.Contains(command[2], " -run ") {
			continue // a few tests of a package
		}
		for _, pattern := range regexp.MustCompile(`\./[\w./-]+`).FindAllString(command[2], -1) {
			run = append(run, path.Join(command[1], pattern))
		}
	}
	elsewhere := []string{
		"test/release", // make release-check: there must be a release
	}
	for folder := range foldersOfTests(t) {
		found := slices.ContainsFunc(append(run, elsewhere...), func(pattern string) bool {
			prefix, below := strings.CutSuffix(pattern, "/...")
			return folder == prefix || (below && strings.HasPrefix(folder, prefix+"/"))
		})
		assert.True(t, found, "make test runs no test of %s; add it to SHARED", folder)
	}
	assert.Contains(t, run, "test/e2e", "the commands are read wrongly")
}

// foldersOfTests are the folders of the checkout in which there are tests.
func foldersOfTests(t *testing.T) map[string]bool {
	t.Helper()
	folders := map[string]bool{}
	for _, top := range []string{"build", "charts", "cmd", "providers", "registry", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Name() == "testdata" {
				return fs.SkipDir
			}
			if strings.HasSuffix(file, "_test.go") {
				folder, err := filepath.Rel(root, filepath.Dir(file))
				folders[filepath.ToSlash(folder)] = true
				return err
			}
			return nil
		}))
	}
	return folders
}
