package vrrp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWatcher: who answers, who else does, that nobody does, and for how long nobody did.
func TestWatcher(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(time.Minute) // what was seen before it was asked for does not count
	w := &Watcher{n: &Network{ctx: t.Context()}, address: "10.98.0.1", lines: make(chan answered, 100)}
	saw := func(at time.Duration, who string) { w.lines <- answered{now.Add(at), who} }

	saw(-time.Hour, "n1")
	saw(0, "n1")
	require.NoError(t, w.Until("n1", time.Minute))
	assert.Equal(t, now, w.At())
	w.Forget()
	saw(time.Second, "")
	require.NoError(t, w.Until("", time.Minute))
	saw(2*time.Second, "n1")
	for at := 2500 * time.Millisecond; at < 5*time.Second; at += longestLook {
		saw(at, "")
	}
	saw(5*time.Second, "n2")
	require.NoError(t, w.Until("!n1", time.Minute))
	assert.Equal(t, "n2", w.Who())
	assert.Equal(t, 3*time.Second, w.Gap())
	w.Forget()
	saw(5900*time.Millisecond, "n2") // for 0.4 s longer than a look takes the client did not run
	saw(6*time.Second, "n3")
	require.ErrorContains(t, w.Stays("n2", time.Hour), "n3 answers at 10.98.0.1 instead of n2")
	assert.Equal(t, longestLook, w.Gap(), "when nobody looks, nothing is known")
	saw(7*time.Second, "n2")
	require.ErrorContains(t, w.Until("n1", -1), `waited -1ns for "n1" to answer at 10.98.0.1, and "n2" does`)
	close(w.lines)
	require.ErrorContains(t, w.Until("n1", time.Minute), "the client that asks 10.98.0.1 ended")
}
