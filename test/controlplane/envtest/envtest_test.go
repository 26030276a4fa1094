package envtest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstalled(t *testing.T) {
	suffix := "-" + runtime.GOOS + "-" + runtime.GOARCH
	for name, tc := range map[string]struct {
		complete, partial []string
		want              string
	}{
		"nothing":                  {},
		"too old":                  {complete: []string{"1.33.0" + suffix}},
		"too new":                  {complete: []string{"1.38.0" + suffix}},
		"another platform":         {complete: []string{"1.36.0-plan9-386"}},
		"the newest":               {complete: []string{"1.35.9" + suffix, "1.36.10" + suffix, "1.36.9" + suffix}, want: "1.36.10" + suffix},
		"a cut one does not count": {complete: []string{"1.34.0" + suffix}, partial: []string{"1.36.0" + suffix}, want: "1.34.0" + suffix},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, v := range append(tc.complete, tc.partial...) {
				require.NoError(t, os.Mkdir(filepath.Join(dir, v), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, v, "etcd"), nil, 0o600))
			}
			for _, v := range tc.complete {
				require.NoError(t, os.WriteFile(filepath.Join(dir, v, "kube-apiserver"), nil, 0o600))
			}
			want := ""
			if tc.want != "" {
				want = filepath.Join(dir, tc.want)
			}
			assert.Equal(t, want, installed([]string{filepath.Join(dir, "missing"), dir}))
		})
	}
}
