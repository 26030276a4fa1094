package othermodule

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root = "../.."
	// written is where the commands of the page write the module, seen from the checkout.
	written = "../toy-ccm"
	begin   = "<!-- begin commands: run by test/othermodule -->\n```\n"
	end     = "```\n<!-- end commands -->"
	// maxMiB is the size limit of a slim program; clouds of this repository with an SDK are as large.
	maxMiB = 47
)

// TestACloudInAnotherRepository runs the commands of docs/building.md: they write a module with a cloud, test it, and make a slim
// program and an image of it. Nothing is downloaded.
func TestACloudInAnotherRepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "toy-ccm")
	commands := commandsOf(t)
	require.Contains(t, commands, written)
	out := shell(t, root, strings.ReplaceAll(commands, written, dir))
	for _, pkg := range []string{"toy", "toy/toysim"} {
		assert.Contains(t, out, "example.com/toy-ccm/"+pkg)
	}
	assert.Contains(t, out, "ok  \texample.com/toy-ccm/toy\t")
	assert.Equal(t, "TestConformance", strings.Fields(shell(t, dir, "go test -trimpath -tags=grpcnotrace -list '^TestConformance$' ./toy"))[0])

	program := filepath.Join(dir, "bin", "toy-ccm")
	info, err := os.Stat(program)
	require.NoError(t, err)
	assert.LessOrEqual(t, info.Size(), int64(maxMiB)<<20)
	linked, err := exec.CommandContext(t.Context(), program, "providers", "-o", "json").Output()
	require.NoError(t, err)
	var clouds []struct{ Name string }
	require.NoError(t, json.Unmarshal(linked, &clouds))
	require.Len(t, clouds, 1, "a slim program has its own cloud alone")
	assert.Equal(t, "toy", clouds[0].Name)
	version, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err)
	assert.Contains(t, string(version), "v0.1.0")
	refused, err := exec.CommandContext(t.Context(), program, "--cloud-provider=toy").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(refused), "TOY_TOKEN", "the program checks the options of its cloud")

	var index struct{ Manifests []any }
	text, err := os.ReadFile(filepath.Join(dir, "dist", "image", "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &index))
	assert.Len(t, index.Manifests, 1, "an image of one architecture")
}

// commandsOf returns the commands of the page.
func commandsOf(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "building.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok, "the page has no %q", begin)
	commands, _, ok := strings.Cut(rest, end)
	require.True(t, ok, "the page has no %q", end)
	return commands
}

// shell runs commands one after the other, as somebody would who reads them, but without the internet: whatever is needed is what
// the tests of this module need as well.
func shell(t *testing.T, dir, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, out)
	return string(out)
}
