package keylock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	var l Locks
	unlock, err := l.Lock(t.Context(), "a")
	require.NoError(t, err)
	other, err := l.Lock(t.Context(), "b")
	require.NoError(t, err, "keys do not wait for each other")
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Lock(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, l.Held())
	unlock()
	assert.Zero(t, l.Held())
	again, err := l.Lock(t.Context(), "a")
	require.NoError(t, err)
	again()
}
