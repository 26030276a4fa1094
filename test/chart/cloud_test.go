package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// toys are clouds that no provider has: the chart installs what files/providers.json describes, and knows no cloud itself.
const toys = `{
  "bare": {"credentials": [], "controllers": [], "readsSecrets": false, "config": {"format": "", "file": "", "holdsCredentials": false, "required": false, "secretKeys": []}},
  "file": {
    "credentials": [{"name": "key", "key": "key.pem", "env": "", "optional": false}, {"name": "extra", "key": "extra", "env": "TOY_EXTRA", "optional": true}],
    "controllers": [{"name": "leases", "rights": [{"resources": ["nodes", "nodes/status"], "verbs": ["update"]}]}], "readsSecrets": true,
    "config": {"format": "INI", "file": "toy.conf", "holdsCredentials": false, "required": true, "secretKeys": []}
  },
  "ini": {"credentials": [], "controllers": [], "readsSecrets": false,
    "config": {"format": "INI", "file": "toy.conf", "holdsCredentials": true, "required": true, "secretKeys": ["password", "trustee-password"]}},
  "yaml": {"credentials": [], "controllers": [], "readsSecrets": false,
    "config": {"format": "YAML", "file": "toy.json", "holdsCredentials": true, "required": true, "secretKeys": ["auth.key", "token"]}}
}`

// toyChart is the chart for the toy clouds. It has no schema, so that the templates alone decide.
func toyChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(folder)))
	require.NoError(t, os.Remove(filepath.Join(dir, "values.schema.json")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "files", "providers.json"), []byte(toys), 0o600))
	policies := "bare: {errors: [{expression: 'true', messageExpression: \"''\"}], warnings: [], adoption: []}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "files", "policies.yaml"), []byte(policies), 0o600))
	return dir
}

// TestAnyCloud: credentials, cloud config, options and rights follow from the description of a cloud.
func TestAnyCloud(t *testing.T) {
	t.Parallel()
	chart := toyChart(t)
	all := objects(t, renderOf(t, chart, "x", "cloudProvider: bare\noptions: {TOY_REGION: a, toy-flag: [b, c], toy-switch: true}\n"))
	pod, c := container(t, all)
	assert.Contains(t, c.Args, "--cloud-provider=bare")
	assert.Contains(t, c.Args, "--toy-flag=b,c")
	assert.Contains(t, c.Args, "--toy-switch=true")
	assert.Contains(t, c.Env, v1.EnvVar{Name: "TOY_REGION", Value: "a"})
	assert.Empty(t, pod.Volumes)

	all = objects(t, renderOf(t, chart, "x", "cloudProvider: bare\nadmissionPolicy: {enabled: true, refuseAdoption: true}\n"))
	assert.Contains(t, all, "ValidatingAdmissionPolicy/ccm-x-cloud-controller-manager-service-annotation-errors")
	assert.NotContains(t, all, "ValidatingAdmissionPolicy/ccm-x-cloud-controller-manager-service-annotation-warnings", "a policy without any rule would be refused")

	file := "cloudProvider: file\ncloudConfig: {Global: {zone: [z1, z2]}}\n"
	_, c = container(t, objects(t, renderOf(t, chart, "x", file+"credentials: {existingSecret: mine, keys: {extra: other}}\n")))
	assert.Contains(t, c.Args, "--cloud-config=/etc/anyccm/config/toy.conf")
	assert.Contains(t, c.Env, v1.EnvVar{Name: "TOY_EXTRA", Value: "/etc/anyccm/credentials/other"})
	all = objects(t, renderOf(t, chart, "x", file+"credentials: {values: {key: k, extra: e}}\ncontrollers: [leases]\nreadSecrets: true\n"))
	secret, _ := all["Secret/x-cloud-controller-manager-credentials"].(*v1.Secret)
	require.NotNil(t, secret)
	assert.Equal(t, map[string][]byte{"key.pem": []byte("k"), "extra": []byte("e")}, secret.Data)
	config, _ := all["ConfigMap/x-cloud-controller-manager-cloud-config"].(*v1.ConfigMap)
	require.NotNil(t, config)
	assert.Contains(t, config.Data["toy.conf"], "[Global]\nzone = \"z1\"\nzone = \"z2\"\n")
	role, _ := all["ClusterRole/ccm:x-cloud-controller-manager"].(*rbacv1.ClusterRole)
	require.NotNil(t, role)
	assert.Contains(t, role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"update"}})
	assert.Contains(
		t, role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
	)

	for values, want := range map[string]string{
		"cloudProvider: toy\n":                                       `cloudProvider is "toy"; set it to one of bare, file, ini, yaml`,
		"cloudProvider: bare\nextraCloudConfig: x\n":                 "bare has no cloud config: leave cloudConfig and extraCloudConfig empty",
		"cloudProvider: file\ncredentials: {existingSecret: mine}\n": "file needs a cloud config: set cloudConfig or extraCloudConfig",
	} {
		out, err := helm(t, values, "template", "x", chart)
		require.Error(t, err, values)
		assert.Contains(t, out, want)
	}
}

// TestConfigWithCredentials: a cloud config that holds credentials is a Secret, in the syntax of its cloud, and what is not
// secret in it makes the pods start again when it changes.
func TestConfigWithCredentials(t *testing.T) {
	t.Parallel()
	chart := toyChart(t)
	sum := func(values string) string {
		t.Helper()
		pod, c := container(t, objects(t, renderOf(t, chart, "x", values)))
		require.Len(t, pod.Volumes, 1)
		require.NotEmpty(t, c.Args)
		text := renderOf(t, chart, "x", values)
		_, after, ok := strings.Cut(text, "checksum/cloud-config: ")
		require.True(t, ok)
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	content := func(values, key string) string {
		t.Helper()
		secret, _ := objects(t, renderOf(t, chart, "x", values))["Secret/x-cloud-controller-manager-credentials"].(*v1.Secret)
		require.NotNil(t, secret)
		return string(secret.Data[key])
	}
	ini := "cloudProvider: ini\ncloudConfig: {Global: {url: 'https://k', password: 'a\"b\\c'}}\nextraCloudConfig: |\n  [Class \"edge\"]\n  subnet = s\n"
	text := content(ini, "toy.conf")
	for _, line := range []string{`password = "a\"b\\c"`, `url = "https://k"`, `[Class "edge"]`} {
		assert.Contains(t, text, line)
	}
	assert.Equal(t, sum(ini), sum(strings.Replace(ini, `a"b`, "other", 1)))
	assert.NotEqual(t, sum(ini), sum(strings.Replace(ini, "https://k", "https://l", 1)))
	free := "cloudProvider: ini\nextraCloudConfig: |\n    [Global] Password = zebra\n    trustee-password=t\\\n    xyz\n    region = A\n"
	assert.Equal(t, sum(free), sum(strings.NewReplacer("zebra", "three", "xyz", "four").Replace(free)), "in text as well")
	assert.NotEqual(t, sum(free), sum(strings.Replace(free, "region = A", "region = B", 1)), "another region needs a new start")

	nested := "cloudProvider: yaml\ncloudConfig: {region: a, auth: {user: u, key: k}, token: t}\nextraCloudConfig: |\n  more: secret\n"
	assert.YAMLEq(t, "{region: a, auth: {user: u, key: k}, token: t, more: secret}", content(nested, "toy.json"))
	assert.Equal(t, sum(nested), sum(strings.NewReplacer("key: k", "key: l", "token: t", "token: s", "more: secret", "more: other").Replace(nested)))
	assert.NotEqual(t, sum(nested), sum(strings.Replace(nested, "region: a", "region: b", 1)))
}
