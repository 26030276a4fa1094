package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files, err := Files(root)
	require.NoError(t, err)
	for path, want := range files {
		have, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(have), "%s is stale; run make generate", path)
	}
}

// TestCells: what stands in a table ends neither the cell nor vanishes as a tag.
func TestCells(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a|b":                       `a\|b`,
		"tag cluster/<ID> is":       `tag cluster/\<ID> is`,
		"code `port-<port>` stays":  "code `port-<port>` stays",
		"<a> `<b>` <c>, `x|y` done": "\\<a> `<b>` \\<c>, `x\\|y` done",
	} {
		if got := cell(text); got != want {
			t.Errorf("cell(%q) = %q, want %q", text, got, want)
		}
	}
	if got := code("^(a|b)$"); got != "`^(a\\|b)$`" {
		t.Errorf("code: %s", got)
	}
}
