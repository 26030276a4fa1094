package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files, err := Files(root, registry.Linked().Providers())
	require.NoError(t, err)
	for path, want := range files {
		have, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(have), "%s is stale; run make generate", path)
	}
}

// toy is a provider whose folder holds nothing but a file with code.
func toy() registry.Provider {
	return registry.Provider{
		Name: "toy", Title: "Toy Cloud", Stability: "alpha", Features: registry.Features{Instances: true},
		Permissions: []registry.Permission{{For: "nodes", Needs: []string{"toy:read"}}},
		Options: []schema.OptionRow{
			{Env: "TOY_TOKEN", Required: true, Spec: schema.Spec{Kind: schema.KindSecret, Help: "Token."}},
			{Flag: "toy-zone", FileKey: "place.zone", Spec: schema.Spec{Kind: schema.KindString, Help: "Zone."}},
		},
		Sections: map[string]string{"limits": "None.\n"},
		Installation: registry.Installation{
			Credentials: []registry.Credential{{Name: "token", Key: "token", Env: "TOY_TOKEN_FILE", Help: "Token."}},
			Config:      registry.CloudConfig{Format: registry.YAML, File: "toy.yaml", Example: "place: {zone: a}"},
			Secret:      "toy", MaxSlimMiB: 40,
			Migration: registry.Migration{Credentials: "none", ClusterName: "nothing", Written: "nothing"},
		},
	}
}

// checkout is a root with the pages that the generator completes and the folders of these providers.
func checkout(t *testing.T, providers ...string) string {
	t.Helper()
	root := t.TempDir()
	for path := range generatedPages(t) {
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		require.NoError(t, err)
		write(t, filepath.Join(root, path), string(text))
	}
	for _, dir := range []string{"cmd/cloud-controller-manager", "registry", "providers/kit"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for i, name := range providers {
		code := "package " + name + "\n"
		for k, r := range events.Table() {
			if i == 0 {
				code += fmt.Sprintf("const event%d = %q\n", k, r.Reason)
			}
		}
		write(t, filepath.Join(root, "providers", name, "provider.go"), code)
	}
	return root
}

// generatedPages are the generated files that begin as written by hand, none of which is a provider's.
func generatedPages(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := Files(filepath.Join("..", ".."), registry.Linked().Providers())
	require.NoError(t, err)
	files[chartFolder+"values.yaml"] = nil
	maps.DeleteFunc(files, func(path string, _ []byte) bool { return strings.HasPrefix(path, "docs/providers/") })
	return files
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestWhatIsAbsentIsMade: a new provider gets its page, and stands in the matrix, the chart and its schema.
func TestWhatIsAbsentIsMade(t *testing.T) {
	t.Parallel()
	root := checkout(t, "toy")
	for _, path := range []string{"toysim/sim.go", "testdata/chart/plain/values.yaml", "testdata/scenarios.yaml", "testdata/expectations.yaml"} {
		write(t, filepath.Join(root, "providers", "toy", path), "package toysim\n")
	}
	files, err := Files(root, []registry.Provider{toy()})
	require.NoError(t, err)
	for path, want := range map[string]string{
		"docs/providers/toy.md":              "| `TOY_TOKEN` |",
		"README.md":                          "| [Toy Cloud](docs/providers/toy.md) | alpha |",
		"docs/installing.md":                 "--set cloudProvider=toy --set credentials.existingSecret=toy",
		"docs/migrating.md":                  "| Toy Cloud | none |",
		chartFolder + "Chart.yaml":           "keywords: [cloud-controller-manager, kubernetes, toy]\n",
		chartFolder + "README.md":            "| `credentials.values.token` | Token. Key of the Secret: `token`",
		chartFolder + "values.schema.json":   `"const": "absent: place has no such key; it has zone"`,
		chartFolder + "files/providers.json": `"env": "TOY_TOKEN_FILE"`,
		"cmd/cloudsim/zz_generated.toy.go":   `simulators["toy"] = func(token string`,
		".goreleaser.yaml":                   "provider_toy]",
	} {
		assert.Contains(t, string(files[path]), want, path)
	}
	page := string(files["docs/providers/toy.md"])
	for _, want := range []string{"# Toy Cloud\n", "toy:read", "## Limits\n", "None.\n"} {
		assert.Contains(t, page, want)
	}
}

// TestEverythingMissingIsReported: in one run, with what to do, for every provider.
func TestEverythingMissingIsReported(t *testing.T) {
	t.Parallel()
	root := checkout(t, "bare", "toy", "unlinked")
	write(t, filepath.Join(root, "docs", "providers", "toy.md"), "# Toy Cloud\n")
	write(t, filepath.Join(root, "README.md"), "# AnyCCM\n")
	write(t, filepath.Join(root, "providers", "toy", "more.go"), "package toy\nconst eventToy = \"ToyBroken\"\n")
	bad := toy()
	bad.Events = []events.Row{{On: "Node", Reason: "ToyForgotten"}, {On: "Node", Reason: "RouteRefused"}}
	bad.Installation.MaxSlimMiB = 0
	bad.Installation.Credentials[0].Env = "TOY_KEY_FILE"
	_, err := Files(root, []registry.Provider{{Name: "bare"}, bad})
	require.Error(t, err)
	for _, want := range []string{
		"registry/linked/unlinked.go is missing", "provider bare: Title is empty", "provider bare: Permissions are empty", "provider bare: Stability",
		"provider toy: Installation.MaxSlimMiB is empty", "provider toy: credential token: no option reads the environment variable TOY_KEY_FILE",
		"provider toy: no credential serves the required option environment variable TOY_TOKEN",
		"providers/toy/toysim is missing; it holds the simulator", "providers/bare/baresim is missing", "providers/toy/testdata/chart is missing",
		"providers/toy/testdata/scenarios.yaml is missing", "providers/toy/testdata/expectations.yaml is missing",
		"docs/providers/toy.md: the markers of section annotations are missing", "the markers of section permissions are missing", "the markers of section limits are missing",
		"README.md: the markers of section clouds are missing",
		"event ToyBroken of Toy Cloud has no row", "event ToyForgotten has a row, and no code writes it", "event RouteRefused has several rows",
	} {
		assert.ErrorContains(t, err, want)
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
