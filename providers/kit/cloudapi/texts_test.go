package cloudapi

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTexts: an answer is read whole whatever the pieces that it comes in, never further than one byte beyond the bound, and one that
// breaks off is an error.
func TestTexts(t *testing.T) {
	t.Parallel()
	var reader texts
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		text := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		for name, from := range map[string]io.Reader{
			"at once": bytes.NewReader(text), "by halves": iotest.HalfReader(bytes.NewReader(text)),
			"with the end": iotest.DataErrReader(bytes.NewReader(text)),
		} {
			got, err := reader.readUpTo(from, 1<<20)
			require.NoError(t, err, "%d, %s", size, name)
			assert.True(t, bytes.Equal(text, got), "%d, %s", size, name)
		}
		_, err := reader.readUpTo(io.MultiReader(bytes.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF)), 1<<20)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, size)
	}
	got, err := reader.readUpTo(strings.NewReader(strings.Repeat("x", 5*chunkSize)), 2*chunkSize)
	require.NoError(t, err)
	assert.Len(t, got, 2*chunkSize+1, "enough to see that it is too long")
	_, err = reader.readUpTo(iotest.ErrReader(errors.New("reset")), 10)
	require.ErrorContains(t, err, "reset")
}

// TestTextsMemory: reading takes little more memory than the text, again and again.
func TestTextsMemory(t *testing.T) {
	const size, times = 8 << 20, 4
	text := make([]byte, size)
	var reader texts
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		got, err := reader.readUpTo(iotest.HalfReader(bytes.NewReader(text)), 2*size)
		require.NoError(t, err)
		require.Len(t, got, size)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(times*size*2+size), "a buffer that grows takes five times the text")
}
