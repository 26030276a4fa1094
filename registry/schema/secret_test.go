package schema

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReplacedSecretFile: a file that is replaced counts within seconds, also where its time of change and its size stay the same; one
// that is away or empty for a moment does not.
func TestReplacedSecretFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(path, written, written))
	}
	_, err := NewSecretFile(path)
	require.ErrorContains(t, err, "reading the secret")
	write(" \n")
	_, err = NewSecretFile(path)
	require.ErrorContains(t, err, "is empty")

	synctest.Test(t, func(t *testing.T) {
		write("one\n")
		s, err := NewSecretFile(path)
		require.NoError(t, err)
		assert.Equal(t, "one", s.Reveal())
		write("two\n")
		time.Sleep(secretReload + time.Second)
		assert.Equal(t, "two", s.Reveal())
		write("")
		time.Sleep(secretReload + time.Second)
		assert.Equal(t, "two", s.Reveal())
		require.NoError(t, os.Remove(path))
		time.Sleep(secretReload + time.Second)
		assert.Equal(t, "two", s.Reveal())
		write("three\n")
		time.Sleep(secretReload + time.Second)
		assert.Equal(t, "three", s.Reveal())
	})
}
