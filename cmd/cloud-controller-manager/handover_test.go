package main

import (
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
		files, err := filepath.Glob(filepath.Join("..", "..", "providers", p.Name, "*.go"))
		require.NoError(t, err)
		can := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			can = can || strings.Contains(string(text), ") RemarkLoadBalancer(")
		}
		assert.Equal(t, can, p.Handover, p.Name)
	}
}
