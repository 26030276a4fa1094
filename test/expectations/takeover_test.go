package expectations

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestReadTakeover(t *testing.T) {
	t.Parallel()
	read := func(text string) error {
		root := t.TempDir()
		folder := filepath.Join(root, "providers", "imagined", "testdata")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "takeover.yaml"), []byte(text), 0o600))
		}
		_, err := ReadTakeover(root, registry.Provider{Name: "imagined"})
		return err
	}
	const whole = "node: x\nstatus: x\nrequests: [{name: lb, body: x}]\nwayBack: {finds: x, none: it sends nothing}\n"
	require.NoError(t, read(whole+"kinds: {plain: {over: {lb: x}}}\n"))
	require.NoError(t, read("none: it has no controller of its own\n"))
	for text, want := range map[string]string{
		"":                                    "providers/imagined/testdata/takeover.yaml is missing",
		"none: x\nkind: {}\n":                 `unknown field "kind"`,
		whole + "kinds: {plain: {ower: {}}}":  `unknown field "ower"`,
		whole:                                 "kinds is missing",
		"kinds: {plain: {}}\n":                "node is missing",
		"kinds: {a: {}}\nwayBack: {finds: x}": "wayBack.requests, or in wayBack.none why there are none, is missing",
		whole + "kinds: {plain: {over: {other: x}}}\n":                  `kinds.plain names a request "other" that is not there`,
		whole + "kinds: {plain: {without: [other]}}\n":                  `kinds.plain names a request "other" that is not there`,
		whole + "kinds: {plain: {}}\nrest: '{{include \"front\" .}}'\n": `it uses a template "front" that is not there`,
		whole + "kinds: {plain: {cluster: another}}\n":                  `kinds.plain names a cluster "another" that is not there`,
	} {
		require.ErrorContains(t, read(text), want)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	is := Takeover{
		Templates: map[string]string{"port": "{{(index .Service.spec.ports 0).nodePort}}"},
		Requests:  []Request{{Name: "lb", Body: "name: {{cut 3 (replace \"-\" \"\" .Kind)}}\nports: [{{template \"port\" .}}]\ncheck: {port: 1, path: /}\nnone: null"}},
	}
	scene := Scene{Kind: "a-bcd", Service: map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"nodePort": 30001.0}}}}}
	kind := LeftKind{Over: map[string]string{"lb": "{check: {port: {{template \"port\" .}}, path: null}, more: [x]}"}}
	for _, r := range []Request{is.Requests[0], {Name: "again", Like: "lb"}} {
		body, err := is.Body(r, kind, scene)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{
			"name": "abc", "ports": []any{30001.0}, "check": map[string]any{"port": 30001.0}, "more": []any{"x"}, "none": nil,
		}, body)
	}
	_, err := is.Body(Request{Name: "again", Like: "no"}, kind, scene)
	require.ErrorContains(t, err, `request again is like "no", which is not there`)
	_, err = is.Text("{{.Service.spec.none}}", scene)
	require.ErrorContains(t, err, "no entry for key")
	filled, err := is.Filled(map[string]any{"a": []any{"{{.Kind}}", 1}}, scene)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"a": []any{"a-bcd", 1}}, filled)
	text, err := is.Text(`{{json (merged (yaml (print "{a: " (include "port" .) "}")) .With)}}`, scene)
	require.NoError(t, err)
	assert.Equal(t, `{"a":30001}`, text)
	var into struct{ A string }
	require.ErrorContains(t, is.Into("b: x", scene, &into), "unknown field")
}

func TestClustersOfATakeover(t *testing.T) {
	t.Parallel()
	is := Takeover{
		Base:     LeftCluster{CloudConfig: "a\n", Environment: map[string]string{"A": "1", "B": "1"}, Queues: []string{"x"}},
		Clusters: map[string]LeftCluster{"other": {CloudConfig: "b\n", Environment: map[string]string{"B": "2"}, Queues: []string{"y"}}},
		Kinds:    map[string]LeftKind{"b": {}, "a": {}, "z": {Stays: "why"}, "o": {Cluster: "other", Spec: map[string]any{"type": "NodePort"}}},
	}
	assert.Equal(t, []string{"z", "a", "b"}, is.KindsOf(""))
	assert.Equal(t, []string{"o"}, is.KindsOf("other"))
	assert.False(t, is.Kinds["o"].LoadBalancer())
	other := is.Cluster("other")
	assert.Equal(t, "a\nb\n", other.CloudConfig)
	assert.Equal(t, map[string]string{"A": "1", "B": "2"}, other.Environment)
	assert.Equal(t, []string{"x", "y"}, other.Queues)
	assert.Equal(t, map[string]string{"A": "1", "B": "1"}, is.Cluster("").Environment)
}

func TestSorted(t *testing.T) {
	t.Parallel()
	state := map[string]any{"a": []any{map[string]any{"b": []any{2, 1}, "c": []any{2, 1}}}}
	want := map[string]any{"a": []any{map[string]any{"b": []any{1, 2}, "c": []any{2, 1}}}}
	assert.Equal(t, want, Sorted(state, []string{"a[].b"}))
}
