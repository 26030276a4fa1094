package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestHandoverIsDescribed: a cloud's description agrees with its code about handover.
func TestHandoverIsDescribed(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		can := false
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", "providers", p.Name), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			can = can || strings.Contains(string(text), ") RemarkLoadBalancer(")
			return err
		}))
		assert.Equal(t, can, p.Handover, p.Name)
	}
}
