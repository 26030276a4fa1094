package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestCloudConfigs: mappings, lists and sections with a name are values of the chart as well, and faults in them are seen.
func TestCloudConfigs(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		text, err := os.ReadFile(filepath.Join("..", "..", "providers", p.Name, "testdata", "cloudconfig.yaml"))
		if len(p.Installation.Config.Sections) == 0 && !structured(p) {
			require.ErrorIs(t, err, fs.ErrNotExist, p.Name)
			continue
		}
		require.NoError(t, err)
		var c struct {
			Legal, Illegal map[string]any
			Where          string
		}
		require.NoError(t, yaml.UnmarshalStrict(text, &c), p.Name)
		values := func(config map[string]any) string {
			text, err := yaml.Marshal(map[string]any{"cloudConfig": config})
			require.NoError(t, err)
			return withoutSecret(t, p) + string(text)
		}
		assert.NotContains(t, render(t, "x", values(c.Legal)), "map[", p.Name)
		requireRefusal(t, values(c.Illegal), c.Where)
	}
}

func structured(p registry.Provider) bool {
	for _, o := range p.Options {
		if o.Structured {
			return true
		}
	}
	return false
}

// TestCloudConfigInAnyCase: where keys count in any case, the chart takes them so, and keeps credentials out of what pods show.
func TestCloudConfigInAnyCase(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		if !p.Installation.Config.AnyCase {
			continue
		}
		config := map[string]any{}
		for _, o := range p.Options {
			section, key, inside := strings.Cut(strings.TrimPrefix(o.FileKey, "["), "] ")
			switch {
			case o.FileKey == "":
			case inside:
				below, _ := config[strings.ToUpper(section)].(map[string]any)
				if below == nil {
					below = map[string]any{}
				}
				below[strings.ToUpper(key)] = "x"
				config[strings.ToUpper(section)] = below
			default:
				config[strings.ToUpper(o.FileKey)] = "x"
			}
		}
		checksum := func() string {
			text, err := yaml.Marshal(map[string]any{"cloudConfig": config})
			require.NoError(t, err)
			_, after, _ := strings.Cut(render(t, "x", withoutSecret(t, p)+string(text)), "checksum/cloud-config: ")
			sum, _, _ := strings.Cut(after, "\n")
			return sum
		}
		before := checksum()
		if _, ok := config["AADCLIENTSECRET"]; ok {
			config["AADCLIENTSECRET"] = "another"
			assert.Equal(t, before, checksum(), "%s: a secret is in no hash", p.Name)
		}
	}
}

// withoutSecret are the values of a release whose cloud config is in the values.
func withoutSecret(t *testing.T, p registry.Provider) string {
	t.Helper()
	if p.Installation.Config.HoldsCredentials {
		return "cloudProvider: " + p.Name + "\n"
	}
	return installedValues(p)
}

// TestInstallationPage: what docs/installing.md has for each cloud is enough for the chart, without any further value.
func TestInstallationPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "installing.md"))
	require.NoError(t, err)
	for _, p := range clouds() {
		_, section, found := strings.Cut(string(page), "\n## "+p.Title+"\n")
		require.True(t, found, p.Name)
		_, command, found := strings.Cut(section, "\nhelm install cloud-controller-manager charts/cloud-controller-manager ")
		require.True(t, found, p.Name)
		command, _, _ = strings.Cut(command, "\n```")
		args := strings.Fields(strings.ReplaceAll(command, "\\\n", " "))
		if file := p.Installation.Config.File; slices.Contains(args, "extraCloudConfig="+file) {
			path := filepath.Join(t.TempDir(), file)
			require.NoError(t, os.WriteFile(path, []byte("[global]\n"), 0o600))
			args[slices.Index(args, "extraCloudConfig="+file)] = "extraCloudConfig=" + path
		}
		out, err := helm(t, "", append([]string{"template", "cloud-controller-manager", folder}, args...)...)
		require.NoError(t, err, "%s: %s", p.Name, out)
		assert.Contains(t, out, "--cloud-provider="+p.Name)
	}
}

// TestCloudConfigThatIsNeeded: the chart wants a cloud config exactly where the program does not start without one.
func TestCloudConfigThatIsNeeded(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		config := p.Installation.Config
		if !config.HoldsCredentials {
			continue
		}
		starts := p.Validate(registry.Inputs{})
		if config.Required {
			require.Error(t, starts, p.Name) // TestRefusalsOfEachCloud has what the chart says
			continue
		}
		require.NoError(t, starts, p.Name)
		out := render(t, "x", "cloudProvider: "+p.Name+"\n")
		assert.NotContains(t, out, "--cloud-config=", p.Name)
		assert.NotContains(t, out, "kind: Secret\n", p.Name)
		assert.Contains(t, render(t, "x", "cloudProvider: "+p.Name+"\ncredentials: {existingSecret: mine}\n"), "--cloud-config=", p.Name)
	}
}
