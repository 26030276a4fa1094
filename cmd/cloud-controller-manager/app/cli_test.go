package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// ordered requires the texts in this order.
func ordered(t *testing.T, in string, texts ...string) {
	t.Helper()
	rest := in
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		require.True(t, found, "%q is missing, or stands before what should precede it, in\n%s", text, in)
		rest = after
	}
}

// TestHelpBeginsWithTheCommands: each with an example; then our flags and the clouds', then the framework's, feature gates last.
func TestHelpBeginsWithTheCommands(t *testing.T) {
	out, err := executed(t, "--help")
	require.NoError(t, err)
	ordered(t, out, "Usage:", "Commands:", "source <(cloud-controller-manager completion bash)",
		"cloud-controller-manager plan --cloud-provider=round", "cloud-controller-manager validate --cloud-provider=round",
		"\nNode guard flags:", "\nSquare Cloud flags:", "\nGeneric flags:", "--controllers", "\nFeature gates flags:", "--feature-gates")
	assert.Equal(t, 1, strings.Count(out, "--feature-gates "))
	assert.Equal(t, 1, strings.Count(out, "--concurrent-node-status-updates "))
	assert.Regexp(t, `concurrent-node-status-updates int\S* .*\(default 10\)`, out, "our defaults are shown")

	var unused shape
	square, round := rivals(&unused)
	cmd, err := newManager(t, square, round).command(nil)
	require.NoError(t, err)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			assert.Contains(t, c.Example, program+" ", c.Name())
		}
	}
}

// TestHelpShowsTheEnvironment: help of the program and of commands shows a cloud's settings other than flags, credentials first.
func TestHelpShowsTheEnvironment(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--cloud-provider=toy", "--help"}, {"validate", "--cloud-provider=toy", "--help"}} {
		p := provider("toy", func(p *registry.Provider) {
			p.Options = []schema.OptionRow{
				{Env: "TOY_REGION", Spec: schema.Spec{Kind: schema.KindString, Default: "here", Help: "Where."}},
				{Env: "TOY_TOKEN", Required: true, Spec: schema.Spec{Kind: schema.KindSecret, Help: "Token."}},
				{FileKey: "[Global] password", Spec: schema.Spec{Kind: schema.KindSecret, Help: "Password."}},
			}
		})
		m := newManager(t, p)
		m.args = args
		cmd, err := m.command(nil)
		require.NoError(t, err)
		var out bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		ordered(
			t, out.String(), "environment variables and credentials:", "TOY_TOKEN, TOY_TOKEN_FILE", "Required. Token.",
			"key [Global] password", "TOY_REGION", "Where. (default here)",
		)
	}
}

// TestExitStatus: 2 for a malformed command, 1 for any other failure.
func TestExitStatus(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("a: b: c"), 0o600))
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, []string{"version"}},
		{0, []string{"validate", "--help"}},
		{2, []string{"--nosuch"}},
		{2, []string{"nosuch"}},
		{2, []string{"validate"}},
		{2, []string{"validate", "--cloud-provider=nosuch", bad}},
		{2, []string{"validate", "--cloud-provider=square", "-o", "xml", bad}},
		{2, []string{"orphans", "--cloud-provider=square", "argument"}},
		{2, []string{"plan", "--cloud-provider=square"}},
		{2, []string{"handover", "--cloud-provider=square", "--yes"}},
		{2, []string{"orphans", "--cloud-provider=square", "--yes"}},
		{1, []string{"validate", "--cloud-provider=square", bad}},
		{1, []string{"validate", "--cloud-provider=square", bad + "x"}},
		{1, []string{"--cloud-provider=nosuch"}},
	} {
		var unused shape
		square, round := rivals(&unused)
		m := newManager(t, square, round)
		m.args = c.args
		cmd, err := m.command(nil)
		require.NoError(t, err)
		var out bytes.Buffer
		cmd.SetArgs(c.args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		got := 0
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			got = exitStatus(err)
		}
		assert.Equal(t, c.want, got, "%v: %s", c.args, out.String())
	}
	assert.Equal(t, exitUsage, exitStatus(errors.Join(errors.New("x"), usage(errors.New("y")))))
}

// TestCompletion: names of linked clouds and of formats are completed.
func TestCompletion(t *testing.T) {
	for _, command := range [][]string{nil, {"validate"}, {"plan"}, {"orphans"}, {"handover"}, {"preflight"}} {
		out, err := executed(t, slices.Concat([]string{"__complete"}, command, []string{"--cloud-provider", "s"})...)
		require.NoError(t, err)
		assert.Contains(t, out, "square\n", "%v", command)
		assert.NotContains(t, out, "round\n", "%v", command)
	}
	out, err := executed(t, "__complete", "validate", "-o", "")
	require.NoError(t, err)
	assert.Contains(t, out, "text\njson\nyaml\n")
	out, err = executed(t, "completion", "zsh")
	require.NoError(t, err)
	assert.Contains(t, out, "#compdef "+program)
}

// TestManifestFiles: files by -f and as arguments, folders, and with -R subfolders.
func TestManifestFiles(t *testing.T) {
	dir := t.TempDir()
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: %}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n"
	for _, path := range []string{"a.yaml", "b.json", "c.yml", "deep/d.yaml", "notes.txt"} {
		full := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		require.NoError(t, os.WriteFile(full, []byte(strings.ReplaceAll(service, "%", name)), 0o600))
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{filepath.Join(dir, "a.yaml")}, "LoadBalancer: 1,"},
		{[]string{"-f", filepath.Join(dir, "a.yaml"), filepath.Join(dir, "c.yml")}, "LoadBalancer: 2,"},
		{[]string{dir}, "LoadBalancer: 3,"},
		{[]string{"-R", dir}, "LoadBalancer: 4,"},
	} {
		out, err := executed(t, slices.Concat([]string{"validate", "--cloud-provider=square"}, c.args)...)
		require.NoError(t, err, out)
		assert.Contains(t, out, c.want, "%v", c.args)
	}
	_, err := executed(t, "validate", "--cloud-provider=square", t.TempDir())
	require.ErrorContains(t, err, "holds no .yaml, .yml or .json file; -R also reads its subfolders")
}

// TestYAMLOutput: all JSON output is also available as YAML.
func TestYAMLOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n"), 0o600))
	for _, args := range [][]string{{"version"}, {"providers"}, {"validate", "--cloud-provider=square", file}, {"validate", "--cloud-provider=all", file}} {
		asJSON, err := executed(t, append(args, "-o", "json")...)
		require.NoError(t, err)
		asYAML, err := executed(t, append(args, "-o", "yaml")...)
		require.NoError(t, err)
		converted, err := yaml.YAMLToJSON([]byte(asYAML))
		require.NoError(t, err)
		assert.JSONEq(t, asJSON, string(converted), "%v", args)
		assert.NotContains(t, asYAML, "{\n")
	}
}

// TestKubeconfig: --kubeconfig, else KUBECONFIG, else the pod's account; errors name the option.
func TestKubeconfig(t *testing.T) {
	write := func(server string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"users: [{name: u, user: {token: t}}]\nclusters: [{name: c, cluster: {server: "+server+"}}]\n"), 0o600))
		return path
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	_, err := clusterConfig("")
	require.ErrorContains(t, err, "--kubeconfig is missing, the environment variable KUBECONFIG is not set")
	t.Setenv("KUBECONFIG", write("https://variable"))
	config, err := clusterConfig("")
	require.NoError(t, err)
	assert.Equal(t, "https://variable", config.Host)
	config, err = clusterConfig(write("https://flag"))
	require.NoError(t, err)
	assert.Equal(t, "https://flag", config.Host)
	_, err = clusterConfig("/nosuch")
	require.ErrorContains(t, err, "--kubeconfig=/nosuch: ")
	t.Setenv("KUBECONFIG", "/nosuch")
	_, err = clusterConfig("")
	require.ErrorContains(t, err, "environment variable KUBECONFIG=/nosuch: ")

	var unused shape
	square, round := rivals(&unused)
	for _, flag := range []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"} {
		err = check(t, newManager(t, square, round), "--cloud-provider=square", "--"+flag+"=/nosuch")
		require.ErrorContains(t, err, "--"+flag+"=/nosuch: open /nosuch: no such file or directory")
	}
}

// TestSettingsWarnOnce: whatever opens a cloud tells once of a setting without effect, such as an unknown key of the cloud config: the
// program and the commands in their log, preflight in its results, validate for its file.
func TestSettingsWarnOnce(t *testing.T) {
	toy := cloudbase.Maker[string, string, cloudprovider.Interface]{
		Config: func(registry.Inputs) (string, error, error) {
			return "", schema.WarnOfKey("colour", "is unknown and has no effect"), nil
		},
		API: func(string, registry.Inputs) (string, error) { return "", errors.New("not opened in this test") },
	}
	const told, service = "key colour of the cloud config: is unknown and has no effect", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}}`
	for call, logs := range map[string]int{
		"start": 1, "plan -f -": 1, "orphans": 1, "orphans --delete": 1, "handover": 1, "preflight": 0, "validate -f - --cloud-config=/dev/null": 0,
	} {
		t.Run(call, func(t *testing.T) {
			var logged, out bytes.Buffer
			state := klog.CaptureState()
			defer state.Restore()
			klog.SetLoggerWithOptions(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logged))), klog.ContextualLogger(true))
			m := newManager(t, toy.Describe(provider("toy", nil)))
			if call == "start" {
				require.NoError(t, check(t, m, "--cloud-provider=toy"))
				c := &config.Config{}
				c.ComponentConfig.KubeCloudShared.CloudProvider.Name = "toy"
				m.openCloud(c.Complete())
			} else {
				m.args = append(strings.Fields(call), "--cloud-provider=toy")
				cmd, err := m.command(nil)
				require.NoError(t, err)
				cmd.SetArgs(m.args)
				cmd.SetIn(strings.NewReader(service))
				cmd.SetOut(&out)
				err = cmd.ExecuteContext(t.Context())
				assert.Equal(t, strings.HasPrefix(call, "validate"), err == nil, "the others cannot open the cloud: %v", err)
			}
			assert.Equal(t, logs, strings.Count(logged.String(), told), "log of %s: %s", call, logged.String())
			assert.Equal(t, 1-logs, strings.Count(out.String(), told), "output of %s: %s", call, out.String())
		})
	}
}

// TestHandoverExample: the example names a cloud that can do it.
func TestHandoverExample(t *testing.T) {
	m := newManager(t, provider("able", func(p *registry.Provider) { p.Handover = true }), provider("aardvark", nil))
	assert.Contains(t, handoverCommand(choose(m.providers, nil)).Example, "handover --cloud-provider=able")
}
