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
	"sigs.k8s.io/yaml"

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

// imagined is a provider whose folder holds nothing but a file with code.
func imagined() registry.Provider {
	return registry.Provider{
		Name: "imagined", Title: "Imagined Cloud", Stability: "alpha", Features: registry.Features{Instances: registry.Done},
		Permissions: []registry.Permission{{For: "nodes", Needs: []string{"imagined:read"}}},
		Options: []schema.OptionRow{
			{Env: "IMAGINED_TOKEN", Required: true, Spec: schema.Spec{Kind: schema.KindSecret, Help: "Token."}},
			{Flag: "imagined-zone", FileKey: "place.zone", Spec: schema.Spec{Kind: schema.KindString, Help: "Zone."}},
		},
		Sections: map[string]string{"limits": "None.\n"},
		Installation: registry.Installation{
			Credentials: []registry.Credential{{Name: "token", Key: "token", Env: "IMAGINED_TOKEN_FILE", Help: "Token."}},
			Config:      registry.CloudConfig{Format: registry.YAML, File: "imagined.yaml", Example: "place: {zone: a}"},
			Secret:      "imagined", MaxSlimMiB: 40,
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
	for file, minor := range map[string]string{"1.36.mod": "36", "go.mod": "37"} {
		write(t, filepath.Join(root, kubernetesFolder, file), "require k8s.io/api v0."+minor+".1\n")
	}
	for _, dir := range []string{"cmd/cloud-controller-manager", "registry", "providers/kit"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for i, name := range providers {
		var code strings.Builder
		code.WriteString("package " + name + "\n")
		for k, r := range events.Table() {
			if i == 0 {
				fmt.Fprintf(&code, "const event%d = %q\n", k, r.Reason)
			}
		}
		write(t, filepath.Join(root, "providers", name, "provider.go"), code.String())
	}
	return root
}

// generatedPages are the generated files that begin as written by hand, none of which is a provider's.
func generatedPages(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := Files(filepath.Join("..", ".."), registry.Linked().Providers())
	require.NoError(t, err)
	files[chartFolder+"values.yaml"] = nil
	maps.DeleteFunc(files, func(path string, _ []byte) bool {
		return strings.HasPrefix(path, "docs/providers/") || strings.HasPrefix(path, "providers/")
	})
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
	root := checkout(t, "imagined")
	for _, path := range []string{"imaginedsim/sim.go", "testdata/chart/plain/values.yaml", "testdata/scenarios.yaml", "testdata/expectations.yaml"} {
		write(t, filepath.Join(root, "providers", "imagined", path), "package imaginedsim\n")
	}
	files, err := Files(root, []registry.Provider{imagined()})
	require.NoError(t, err)
	for path, want := range map[string]string{
		"docs/providers/imagined.md": "| `IMAGINED_TOKEN` |",
		"README.md":                  "| [Imagined Cloud](docs/providers/imagined.md) | alpha |",
		"docs/installing.md":         "--set cloudProvider=imagined --set credentials.existingSecret=imagined",
		"docs/migrating.md":          "| Imagined Cloud | none |",
		"docs/support.md": "| cloud | level | Kubernetes 1.36 | Kubernetes 1.37 |\n| --- | --- | --- | --- |\n" +
			"| [Imagined Cloud](providers/imagined.md) | alpha | API types | end to end |\n",
		chartFolder + "Chart.yaml":              "keywords: [cloud-controller-manager, kubernetes, imagined]\n",
		chartFolder + "README.md":               "| `credentials.values.token` | Token. Key of the Secret: `token`",
		chartFolder + "values.schema.json":      `"const": "absent: place has no such key; it has zone"`,
		chartFolder + "files/providers.json":    `"env": "IMAGINED_TOKEN_FILE"`,
		"cmd/cloudsim/zz_generated.imagined.go": `simulators["imagined"] = func(token string`,
		".goreleaser.yaml":                      "provider_imagined]",
	} {
		assert.Contains(t, string(files[path]), want, path)
	}
	page := string(files["docs/providers/imagined.md"])
	for _, want := range []string{"# Imagined Cloud\n", "imagined:read", "## Limits\n", "None.\n"} {
		assert.Contains(t, page, want)
	}
}

// TestEverythingMissingIsReported: in one run, with what to do, for every provider.
func TestEverythingMissingIsReported(t *testing.T) {
	t.Parallel()
	root := checkout(t, "bare", "imagined", "unlinked")
	write(t, filepath.Join(root, "docs", "providers", "imagined.md"), "# Imagined Cloud\n")
	write(t, filepath.Join(root, "README.md"), "# AnyCCM\n")
	write(t, filepath.Join(root, "providers", "imagined", "more.go"), "package imagined\nconst eventToy = \"ToyBroken\"\n"+
		"const labelToy, labelZone = \"example.com/toy\", \"topology.kubernetes.io/zone\"\n"+
		"func read(node *Node) string { return node.Labels[labelToy] + node.Labels[labelZone] }\n")
	bad := imagined()
	bad.Events = []events.Row{{On: "Node", Reason: "ToyForgotten"}, {On: "Node", Reason: "RouteRefused"}}
	bad.Installation.MaxSlimMiB = 0
	bad.Installation.Credentials[0].Env = "IMAGINED_KEY_FILE"
	_, err := Files(root, []registry.Provider{{Name: "bare"}, bad})
	require.Error(t, err)
	for _, want := range []string{
		"registry/linked/unlinked.go is missing", "provider bare: Title is empty", "provider bare: Permissions are empty", "provider bare: Stability",
		"provider imagined: Installation.MaxSlimMiB is empty", "provider imagined: credential token: no option reads the environment variable IMAGINED_KEY_FILE",
		"provider imagined: no credential serves the required option environment variable IMAGINED_TOKEN",
		"providers/imagined/imaginedsim is missing; it holds the simulator", "providers/bare/baresim is missing", "providers/imagined/testdata/chart is missing",
		"providers/imagined/testdata/scenarios.yaml is missing", "providers/imagined/testdata/expectations.yaml is missing",
		"docs/providers/imagined.md: the markers of section annotations are missing", "the markers of section permissions are missing", "the markers of section limits are missing",
		"README.md: the markers of section clouds are missing",
		"provider imagined: its code reads the label example.com/toy of Nodes, which a tag may give",
		"event ToyBroken of Imagined Cloud has no row", "event ToyForgotten has a row, and no code writes it", "event RouteRefused has several rows",
	} {
		assert.ErrorContains(t, err, want)
	}
}

// TestTimes: a cloud's times are those of its first section, with the most load balancers; one that was not measured has no row.
func TestTimes(t *testing.T) {
	t.Parallel()
	root, toy, other, nodes := t.TempDir(), imagined(), imagined(), imagined()
	toy.Features.LoadBalancers, other.Features.LoadBalancers = registry.Done, registry.Done
	other.Name, other.Title = "other", "Other Cloud"
	require.NoError(t, os.MkdirAll(filepath.Join(root, "docs"), 0o755))
	write(t, filepath.Join(root, "docs", "sizing.md"), `<!-- measured: imagined, 1000 nodes -->
imagined, 1000 nodes, a call takes 40ms and the cloud works 3s on a change, limits on calls off:

| load balancers | nodes | change | time | reads |
| --- | --- | --- | --- | --- |
| 500 | 1000 | the nodes | 1.0 s | 0 |
| 1000 | 1000 | the nodes | 2.0 s | 0 |
| 1000 | 1000 | one more node | 3.0 s | 0 |
<!-- measured -->
`)
	assert.Equal(t, `| cloud | a change takes | load balancers | nodes | all nodes join | all are made | one more node | a restart |
| --- | --- | --- | --- | --- | --- | --- | --- |
| Imagined Cloud | 3s | 1000 | 1000 | 2.0 s | not measured | 3.0 s | not measured |
`, timesTable(root, []registry.Provider{toy, other, nodes}))
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

// TestIssueFormsNameEveryCloud: whoever reports something can say on which cloud.
func TestIssueFormsNameEveryCloud(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"bug.yml", "feature.yml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", ".github", "ISSUE_TEMPLATE", form))
		require.NoError(t, err)
		var parsed struct {
			Body []struct {
				ID         string
				Attributes struct {
					Label   string
					Options []string
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &parsed))
		asked := map[string][]string{}
		for _, field := range parsed.Body {
			asked[field.ID] = append(field.Attributes.Options, field.Attributes.Label)
		}
		for _, p := range registry.Linked().Providers() {
			assert.Contains(t, asked["cloud"], p.Title, form)
		}
		assert.Contains(t, asked["preflight"], "cloud-controller-manager preflight -o json", form)
	}
}
