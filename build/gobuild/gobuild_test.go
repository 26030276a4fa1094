package gobuild

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct {
		p    *progress
		want string
	}{
		"downloading":       {&progress{downloaded: 7}, "helm: 7 modules downloaded after 1m0s"},
		"not counted yet":   {&progress{compiled: 12, downloaded: 7}, "helm: 12 packages compiled after 1m0s"},
		"counted just now":  {&progress{compiled: 12, counted: 12, total: 100, after: time.Minute}, "helm: 12 of 100 packages compiled after 1m0s"},
		"half of the way":   {&progress{compiled: 50, counted: 10, total: 100, after: 20 * time.Second}, "helm: 50 of 100 packages compiled after 1m0s, about 50s more"},
		"all are compiled":  {&progress{compiled: 100, counted: 10, total: 100, after: time.Second}, "helm: compiled, linking after 1m0s"},
		"more than counted": {&progress{compiled: 101, counted: 10, total: 100, after: time.Second}, "helm: compiled, linking after 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.name = "helm"
			assert.Equal(t, tc.want, tc.p.describe(time.Minute))
		})
	}
}

// A package that takes long to compile must not silence the progress.
func TestLinesComeWithoutPackages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*Period+time.Second)
		defer cancel()
		var out strings.Builder
		p := &progress{name: "helm", began: time.Now()}
		p.line(downloading + "example.com/a v1.0.0")
		p.line("example.com/a")
		asked := 0
		p.show(ctx, &out, func(context.Context) (int, error) {
			asked++
			if asked == 1 {
				return 0, errors.New("not yet")
			}
			return 9, nil
		})
		assert.Equal(t, "  helm: 1 packages compiled after 5s\n  helm: 1 of 10 packages compiled after 10s\n  helm: 1 of 10 packages compiled after 15s\n", out.String())
		assert.Equal(t, 2, asked, "the packages are counted once")
	})
}

// TestFlags: whatever is built has the same flags but for what it adds, else it shares no cache with the rest.
func TestFlags(t *testing.T) {
	assert.Equal(t, []string{"-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w"}, Flags(nil, nil))
	assert.Equal(t, []string{"-trimpath", "-tags=grpcnotrace,slim,provider_toy", "-ldflags=-s -w -X a=b"},
		Flags(SlimTags("toy"), []string{"-X a=b"}))
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/x\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	b := Build{Name: "x", Dir: dir, Env: []string{"GOFLAGS=", "GOWORK=off"}, Output: filepath.Join(dir, "x"), Packages: []string{"."}}
	require.NoError(t, b.Run(t.Context(), t.Output()))
	assert.FileExists(t, b.Output)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { wrong }\n"), 0o600))
	err := b.Run(t.Context(), t.Output())
	require.ErrorContains(t, err, "building x")
	assert.ErrorContains(t, err, "undefined: wrong", "the message of the compiler is shown")
}
