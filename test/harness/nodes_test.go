package harness

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
)

// TestEndedProgramIsToldAtOnce: with its status and its last words, and not when the wait is over.
func TestEndedProgramIsToldAtOnce(t *testing.T) {
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	p, err := controlplane.Start("ccm-1", t.TempDir(), shell, []string{"-c", "echo leaderelection lost; exit 3"}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := &CCM{Process: p, URL: "https://127.0.0.1:1"}
	err = m.WaitLeading(ctx, time.Hour)
	require.ErrorIs(t, err, errEnded)
	assert.ErrorContains(t, err, "with status 3 and said last:\nleaderelection lost")
	assert.NoError(t, ctx.Err(), "it was waited for")
}
