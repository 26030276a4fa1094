package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/build/gobuild"
	"github.com/anyccm/cloud-controller-manager/test/controlplane/envtest"
)

func TestHelmFits(t *testing.T) {
	for version, want := range map[string]bool{
		"v4.0.0": true, "v4.3.1": true, "v4.3.1+gabcdef": true,
		"v4.3.0-rc.1": false, "v3.19.0": false, "v5.0.0": false, "": false, "v4": false, "xv4.0.0": false,
	} {
		assert.Equal(t, want, helmFits(version), version)
	}
}

func TestKubectlFits(t *testing.T) {
	for answer, want := range map[string]bool{
		"Client Version: v1.30.0\nKustomize Version: v5.0.4": true, "Client Version: v1.37.2-cloud": true, "Client Version: v1.40.0": true,
		"Client Version: v1.29.3": false, "Client Version: v1.3.0": false, "Client Version: v0.0.0": false, "": false,
	} {
		assert.Equal(t, want, kubectlFits(answer), answer)
	}
}

// A helm on the PATH is used in place, also from a folder with an unusual name; one that does not answer is not.
func TestFoundHelm(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := "#!/bin/sh\ntest \"$1\" = version && echo v4.1.0 || echo \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "helm"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out := filepath.Join(t.TempDir(), "bin", "helm")
	require.NoError(t, run(t.Context(), []string{"helm", "-o", out}, t.Output()))
	answer, err := exec.CommandContext(t.Context(), out, "template", "two words").Output()
	require.NoError(t, err)
	assert.Equal(t, "template two words\n", string(answer))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "helm"), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	path, version := findProgram(t.Context(), "helm", "version")
	assert.Empty(t, path+version)
}

// The demo's programs are built quickly where Helm and a control plane are there, and alike else.
func TestAtHand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv(envtest.Variable, "")
	assert.False(t, isInstalled(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "helm"), []byte("#!/bin/sh\necho v4.1.0\n"), 0o700))
	assert.False(t, isInstalled(t.Context()), "no control plane")
	t.Setenv(envtest.Variable, dir)
	assert.True(t, isInstalled(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "helm"), []byte("#!/bin/sh\necho v3.19.0\n"), 0o700))
	assert.False(t, isInstalled(t.Context()), "another Helm")
}

// The tool that builds the demo shares the standard library with it.
func TestMakefileHasTheFlagsOfTheDemo(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	assert.Contains(t, string(text), "$(GO) run -trimpath \""+strings.Join(gobuild.FastBuildFlags(), `" "`)+"\" ./build/tool\n")
}
