package pins

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var requirement = regexp.MustCompile(`(?m)^\s+(\S+) (v\S+)(?: // indirect)?$`)

// TestToolsShareTheBuildCache: Helm, kubectl and the control plane have the product's versions of what they have in common. One
// module that differs changes all packages above it, and each of the programs is compiled from nothing.
func TestToolsShareTheBuildCache(t *testing.T) {
	t.Parallel()
	product := map[string]string{}
	for _, m := range requirement.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		product[m[1]] = m[2]
	}
	require.NotEmpty(t, product["k8s.io/client-go"])
	for _, file := range []string{"build/helm/go.mod", "build/kubectl/go.mod", "build/kubeadm/go.mod", "build/controlplane/go.mod"} {
		common := 0
		for _, m := range requirement.FindAllStringSubmatch(read(t, file), -1) {
			if version, ok := product[m[1]]; ok {
				common++
				assert.Equal(t, version, m[2], "%s: %s", file, m[1])
			}
		}
		assert.Greater(t, common, 40, file)
	}
}

// TestToolsHaveChecksums: each module of tools has the checksums of all that it requires, so that Go refuses other sources.
func TestToolsHaveChecksums(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "build", "*", "*.mod"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, file := range files {
		sums := read(t, strings.TrimPrefix(strings.TrimSuffix(filepath.ToSlash(file), ".mod")+".sum", root+"/"))
		required := requirement.FindAllStringSubmatch(read(t, strings.TrimPrefix(filepath.ToSlash(file), root+"/")), -1)
		require.NotEmpty(t, required, file)
		for _, m := range required {
			if !strings.Contains(sums, m[1]+" "+m[2]) { // an assertion would print thousands of lines
				t.Errorf("%s requires %s %s, which has no checksum", file, m[1], m[2])
			}
		}
	}
}
