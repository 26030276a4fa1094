package chart

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
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

// TestSampleConfigurations: with the values on a cloud's page the chart writes the file that stands below them.
func TestSampleConfigurations(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for _, p := range clouds() {
		values, err := expectations.PageBlocks(root, p.Name, "sample", "yaml")
		require.NoError(t, err)
		config := p.Installation.Config
		if config.Format == registry.NoConfig {
			render(t, "x", "cloudProvider: "+p.Name+"\n"+values[0])
			continue
		}
		files, err := expectations.PageBlocks(root, p.Name, "sample", strings.ToLower(string(config.Format)))
		require.NoError(t, err)
		release := "cloudProvider: " + p.Name + "\n" + values[0]
		if p.Installation.Secret != "" && !config.HoldsCredentials {
			release += "credentials: {existingSecret: mine}\n"
		}
		assert.Equal(t, strings.TrimSpace(files[len(files)-1]), strings.TrimSpace(written(t, p, release)), p.Name)
	}
}

// written is the cloud config that the chart writes.
func written(t *testing.T, p registry.Provider, values string) string {
	t.Helper()
	text := ""
	for _, o := range objects(t, render(t, "x", values)) {
		switch o := o.(type) {
		case *v1.Secret:
			text += string(o.Data[p.Installation.Config.File])
		case *v1.ConfigMap:
			text += o.Data[p.Installation.Config.File]
		}
	}
	return text
}

// TestNamedSections: both ways to write a section with a name, and values of several lines, reach the program as they were meant.
func TestNamedSections(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, p := range clouds() {
		for _, s := range p.Installation.Config.Sections {
			if p.Installation.Config.Format != registry.INI {
				continue
			}
			tried++
			text := "one\ntwo \"quoted\" \\three\n"
			values, err := yaml.Marshal(map[string]any{"cloudConfig": map[string]any{
				s.Kind: map[string]any{"dmz": map[string]string{s.Keys[0]: text}}, s.Kind + ` "inner"`: map[string]string{s.Keys[0]: text},
			}})
			require.NoError(t, err)
			entries, err := schema.ReadINI([]byte(written(t, p, withoutSecret(t, p)+string(values))))
			require.NoError(t, err, p.Name)
			assert.ElementsMatch(t, []schema.INIEntry{
				{Section: s.Kind, Subsection: "dmz", Key: s.Keys[0], Value: text},
				{Section: s.Kind, Subsection: "inner", Key: s.Keys[0], Value: text},
			}, entries, p.Name)
		}
	}
	assert.NotZero(t, tried)
}

// fileHelp begins the description of an option whose value is a path.
var fileHelp = regexp.MustCompile(`^(Files?|Folder) (with|of|that)`)

// TestFilesOfPods: as docs/installing.md says, each key of a Secret is a file in one folder. The page lists all options that name files.
func TestFilesOfPods(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "installing.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## A private CA, and other files\n")
	for _, p := range clouds() {
		_, row, _ := strings.Cut(section, "\n| "+p.Title+" |")
		row, _, _ = strings.Cut(row, "\n")
		for _, o := range p.Options {
			if fileHelp.MatchString(o.Help) {
				_, key, _ := strings.Cut("] "+o.FileKey, "] ")
				key = key[strings.LastIndex(key, " ")+1:]
				assert.Contains(t, row, cmp.Or(key, o.Env), p.Name)
			}
		}
		if p.Installation.Secret == "" {
			continue
		}
		pod, c := container(t, objects(t, render(t, "x", installedValues(p))))
		assert.True(t, slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
			return m.MountPath == "/etc/anyccm/credentials" && m.SubPath == "" && slices.ContainsFunc(pod.Volumes, func(v v1.Volume) bool {
				return v.Name == m.Name && v.Secret != nil && v.Secret.SecretName == "mine" && len(v.Secret.Items) == 0
			})
		}), "%s: %v", p.Name, pod.Volumes)
	}
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
		assert.Contains(t, installed(t, p, "cloud-controller-manager", command), "--cloud-provider="+p.Name)
	}
}

// installed renders the chart for a command of a page, without any further value. The command begins behind the chart's folder.
func installed(t *testing.T, p registry.Provider, release, command string) string {
	t.Helper()
	command, _, _ = strings.Cut(command, "\n```")
	args := strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(command))
	if file := p.Installation.Config.File; slices.Contains(args, "extraCloudConfig="+file) {
		path := filepath.Join(t.TempDir(), file)
		require.NoError(t, os.WriteFile(path, []byte("[global]\n"), 0o600))
		args[slices.Index(args, "extraCloudConfig="+file)] = "extraCloudConfig=" + path
	}
	out, err := helm(t, "", append([]string{"template", release, folder}, args...)...)
	require.NoError(t, err, "%s: %s", p.Name, out)
	return out
}

// TestMigrationPages: what a cloud's page installs beside the cloud's own controller waits for its lease, reads its Secret and has none of
// its names.
func TestMigrationPages(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		from := p.Installation.Migration.Origin
		blocks, err := expectations.PageBlocks(filepath.Join("..", ".."), p.Name, "migration", "")
		require.NoError(t, err)
		if len(from.Workloads) == 0 {
			assert.NotContains(t, strings.Join(blocks, ""), "helm ", p.Name)
			continue
		}
		command := ""
		for _, b := range blocks {
			if _, after, found := strings.Cut(b, "helm install anyccm charts/cloud-controller-manager "); found {
				command = after
			}
		}
		require.NotEmpty(t, command, p.Name)
		all := objects(t, installed(t, p, "anyccm", command))
		pod, container := container(t, all)
		assert.Contains(t, container.Args, "--cloud-provider="+p.Name)
		assert.Contains(t, container.Args, "--cluster-name=kubernetes", "%s: names in the cloud are made of it", p.Name)
		assert.Contains(t, container.Args, "--leader-elect-resource-namespace="+from.Namespace, p.Name)
		assert.Contains(t, container.Args, "--leader-elect-resource-name="+cmp.Or(from.Lease, "anyccm-cloud-controller-manager"), p.Name)
		if from.Secret != "" {
			mounted := slices.ContainsFunc(pod.Volumes, func(v v1.Volume) bool { return holdsSecret(v, from.Secret) })
			assert.True(t, mounted, "%s: %v", p.Name, pod.Volumes)
		}
		requireFlags(t, p, command, container.Args)
		for key := range all {
			for _, workload := range append([]string{"serviceaccount/cloud-controller-manager"}, from.Workloads...) {
				kind, name, _ := strings.Cut(workload, "/")
				assert.False(t, strings.EqualFold(key, kind+"/"+name), "%s: Helm refuses what is there already: %s", p.Name, key)
			}
		}
	}
}

// requireFlags: what a page says of each flag of the cloud's own manifest is true of the chart. These are the arguments of its command.
func requireFlags(t *testing.T, p registry.Provider, command string, args []string) {
	t.Helper()
	require.NotEmpty(t, p.Installation.Migration.Origin.Flags, p.Name)
	for _, f := range p.Installation.Migration.Origin.Flags {
		name, _, _ := strings.Cut(f.Flag, "=")
		switch {
		case f.Value == "" && f.Why == "":
			assert.Contains(t, args, f.Flag, "%s: the chart gives the same", p.Name)
		case f.Value == "":
			assert.NotContains(t, args, f.Flag, "%s: %s", p.Name, f.Why)
		default:
			_, c := container(t, objects(t, installed(t, p, "anyccm", strings.TrimSpace(command)+" --set "+f.Value)))
			given := slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, name+"=") })
			assert.True(t, given && (name == "--cloud-provider" || name == "--cloud-config" || slices.Contains(c.Args, f.Flag)),
				"%s: %s instead of %s: %v", p.Name, f.Value, f.Flag, c.Args)
		}
	}
}

func holdsSecret(v v1.Volume, name string) bool {
	if v.Projected != nil {
		return slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.Secret != nil && s.Secret.Name == name })
	}
	return v.Secret != nil && v.Secret.SecretName == name
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
