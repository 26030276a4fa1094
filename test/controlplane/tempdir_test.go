package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSweepRemovesWhatCrashedRunsLeft(t *testing.T) {
	t.Parallel()
	ended := exec.CommandContext(t.Context(), "true")
	require.NoError(t, ended.Run())
	root := t.TempDir()
	crashed := filepath.Join(root, fmt.Sprintf("anyccm-demo-%d-123", ended.Process.Pid))
	alive := filepath.Join(root, fmt.Sprintf("anyccm-demo-%d-123", os.Getpid()))
	other := filepath.Join(root, "anyccm-demo-mine")
	for _, dir := range []string{crashed, alive, other} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	sweep(root)
	assert.NoDirExists(t, crashed)
	assert.DirExists(t, alive)
	assert.DirExists(t, other)
}

func TestProcess(t *testing.T) {
	t.Parallel()
	p, err := Start("sleeper", t.TempDir(), "/bin/sh", []string{"-c", "echo ready; exec sleep 600"}, nil)
	require.NoError(t, err)
	assert.Positive(t, p.PID())
	require.Eventually(t, func() bool { return p.Tail(5) == "ready" }, time.Minute, time.Millisecond, "what it wrote is kept")
	p.Stop(0)
	<-p.Done()
	assert.Equal(t, -1, p.ExitCode())
	assert.Equal(t, "ready", p.Tail(5), "also after its end")
	_, err = Start("nobody", t.TempDir(), "/nowhere/at/all", nil, nil)
	require.ErrorContains(t, err, "starting nobody")
}
