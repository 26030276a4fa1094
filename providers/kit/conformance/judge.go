package conformance

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// unreachable holds the go command's messages when modules cannot be fetched.
var unreachable = []string{"dial tcp", "no such host", "module lookup disabled", "connection refused", "i/o timeout", "proxyconnect"}

// Judge builds the program in a folder, a module of its own around somebody else's client of the cloud, runs it and returns what it wrote.
// Its code lies in files that end in .go.txt, because the tools of this module cannot resolve what it imports. Where its modules cannot be
// fetched the test is skipped, and says so. It belongs to the full tier.
func Judge(t *testing.T, folder string, args ...string) []byte {
	t.Helper()
	tier.Full(t)
	module := t.TempDir()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		require.NoError(t, os.WriteFile(filepath.Join(module, name), text, 0o600)) //nolint:gosec // a folder of the test
	}
	program := filepath.Join(t.TempDir(), "judge")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".") //nolint:gosec // a path of the test
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		if slices.ContainsFunc(unreachable, func(words string) bool { return strings.Contains(string(text), words) }) {
			t.Skipf("the client that judges the simulator cannot be fetched here: %s", text)
		}
		require.NoError(t, err, "%s", text)
	}
	var written, said bytes.Buffer
	run := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // what was built above
	run.Stdout, run.Stderr = &written, &said
	require.NoError(t, run.Run(), "%s", &said)
	return written.Bytes()
}
