package pins

import (
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
		out, err := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../.."}, args...)...).CombinedOutput()
		require.Error(t, err)
		assert.Regexp(t, `there is no provider nosuch; there are \w+ \w+`, string(out))
	}
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "release", "RELEASE=").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "Error: this commit has no tag")
	assert.NotContains(t, string(out), "Building")
}
