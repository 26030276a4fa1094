package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// mayNameClouds are files outside the providers' folders that may name a cloud, with the reason.
var mayNameClouds = map[string]string{
	"build/pins/clouds_test.go":      "clouds in which no name is cut",
	"cmd/cloudsim/main.go":           "the default of a flag",
	"registry/schema/schema_test.go": "words that are near each other",
	"test/harness/harness.go":        "the cloud of tests that need any",
	"test/realclouds/main.go":        "services that others wrote, each of one cloud",
	"test/realclouds/main_test.go":   "the same",
	"test/vrrp/network.go":           "the daemon of that name, which it runs",
	"test/e2e/secrets_test.go":       "a cloud that reads Secrets",
	"test/e2e/start_test.go":         "the metrics of the cloud of tests that need any",

	"cmd/cloud-controller-manager/endpoints_test.go": "endpoints in files and beside them, which are each cloud's own",
	"cmd/cloud-controller-manager/validate_test.go":  "faults of configuration files, which are each cloud's own",
}

// TestNobodyAsksForTheCloud: outside its folder and registry/linked, no code compares with the name of a cloud, and no chart template
// contains one. Differences between clouds belong in their descriptions.
func TestNobodyAsksForTheCloud(t *testing.T) {
	t.Parallel()
	// Examples use a fictional cloud named toy, which the build may contain.
	names := slices.DeleteFunc(registry.Linked().Names(), func(name string) bool { return name == "toy" })
	word := regexp.MustCompile(`(?i)\b(` + strings.Join(names, "|") + `)\b`)
	for _, dir := range []string{"build", "charts", "cmd", "registry", "test", "providers/kit"} {
		err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, _ fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			require.NoError(t, err)
			name, err := filepath.Rel(root, path)
			require.NoError(t, err)
			name = filepath.ToSlash(name)
			switch {
			case strings.HasPrefix(name, "registry/linked/") || strings.HasPrefix(name, "cmd/cloudsim/zz_generated.") || mayNameClouds[name] != "":
			case strings.Contains(name, "/templates/"):
				if text, err := os.ReadFile(path); err == nil {
					assert.Empty(t, word.FindString(string(text)), name)
				}
			case strings.HasSuffix(name, ".go"):
				for _, literal := range literals(t, path) {
					assert.False(t, slices.Contains(names, literal), "%s names the cloud %q", name, literal)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	for name := range mayNameClouds {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		require.NoError(t, err, "the exception is not needed any more")
	}
}

// literals returns the string literals of a Go file.
func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var list []string
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			require.NoError(t, err)
			list = append(list, text)
		}
		return true
	})
	return list
}

// TestMessagesDoNotPlead: errors and events say what to do in this program's words. "Please" is how several clouds' own controllers begin.
func TestMessagesDoNotPlead(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"cmd", "registry", "providers"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(path, "sim") || d.Name() == "simkit"):
				return filepath.SkipDir // a simulator has its cloud's words
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			for _, literal := range literals(t, path) {
				assert.NotContains(t, literal, "Please", path)
			}
			return nil
		}))
	}
}
