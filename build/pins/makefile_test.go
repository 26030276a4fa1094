package pins

import (
	"os"
	"os/exec"
	"regexp"
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
