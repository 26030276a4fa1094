package cloudapi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadPages: pages are read a few at a time, come in their order, and the first that fails ends all.
func TestReadPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes = 40 * time.Millisecond
		var now, most atomic.Int32
		began := time.Now()
		pages, err := ReadPages(t.Context(), 2, 75, func(_ context.Context, number int) (int, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(takes)
			return number, nil
		})
		require.NoError(t, err)
		require.Len(t, pages, 74)
		assert.Equal(t, 2, pages[0])
		assert.Equal(t, 75, pages[73])
		assert.EqualValues(t, pagesTogether, most.Load())
		assert.Less(t, time.Since(began), time.Second)

		failure, read := errors.New("page 5"), atomic.Int32{}
		_, err = ReadPages(t.Context(), 2, 75, func(ctx context.Context, number int) (int, error) {
			read.Add(1)
			if number == 5 {
				return 0, failure
			}
			select {
			case <-ctx.Done():
			case <-time.After(takes):
			}
			return number, ctx.Err()
		})
		require.ErrorIs(t, err, failure)
		assert.LessOrEqual(t, read.Load(), int32(2*pagesTogether))

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = ReadPages(ended, 2, 3, func(context.Context, int) (int, error) { return 0, nil })
		require.ErrorIs(t, err, context.Canceled)
		_, err = ReadPages(t.Context(), 2, 2, func(context.Context, int) (int, error) { panic("a page that crashes") })
		require.Error(t, err)
		none, err := ReadPages(t.Context(), 2, 1, func(context.Context, int) (int, error) { return 0, nil })
		require.NoError(t, err)
		assert.Empty(t, none)
	})
}
