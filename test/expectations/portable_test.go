package expectations

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the clouds that are asked
)

// TestEveryCloud says for every linked cloud which file lacks what.
func TestEveryCloud(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		_, err := Read("../..", p)
		require.NoError(t, err)
	}
}

func TestExamplesAreComplete(t *testing.T) {
	t.Parallel()
	names, err := Examples("../..")
	require.NoError(t, err)
	assert.Equal(t, []string{"internal", "proxy-protocol", "tls", "udp", "web"}, names)
	of := func(e Example) string {
		var text strings.Builder
		for _, problem := range (Portable{Examples: map[string]Example{"web": e, "old": {}}}).problems("providers/x/testdata/expectations.yaml", []string{"web", "udp"}) {
			fmt.Fprintln(&text, problem)
		}
		return text.String()
	}
	const others = "providers/x/testdata/expectations.yaml: portable.examples.udp is missing; say what docs/examples/portable/udp.yaml gives on this cloud (gives and state), or with which words it is refused (refused)\n" +
		"providers/x/testdata/expectations.yaml: portable.examples.old is about a manifest that docs/examples/portable does not have\n"
	state := map[string]any{"a": "b"}
	assert.Equal(t, others, of(Example{Refused: "no"}))
	assert.Equal(t, others, of(Example{Gives: "a load balancer", State: state}))
	for _, e := range []Example{{}, {Gives: "x"}, {State: state}, {Gives: "x", State: state, Refused: "no"}, {Gives: "x", Refused: "no"}} {
		assert.Equal(t, "providers/x/testdata/expectations.yaml: portable.examples.web has either gives and state (or address, where there is no cloud outside of the cluster), or refused\n"+others, of(e), "%+v", e)
	}
}

func TestStateFor(t *testing.T) {
	t.Parallel()
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{NodePort: 30001}}}}
	e := Example{State: map[string]any{"a": []any{map[string]any{"port": "${nodePort}", "check": "HTTP:${nodePort}/x", "of": "(${uid})", "n": 1}}}}
	want := map[string]any{"a": []any{map[string]any{"port": "30001", "check": "HTTP:30001/x", "of": "(u-1)", "n": 1}}}
	assert.Equal(t, want, e.StateFor(s))
	assert.Empty(t, Lacks(want, map[string]any{"a": []any{map[string]any{"port": 30001, "check": "HTTP:30001/x", "of": "(u-1)", "n": 1.0}}}))
}

func TestLacks(t *testing.T) {
	t.Parallel()
	parse := func(text string) (v any) {
		require.NoError(t, yaml.Unmarshal([]byte(text), &v))
		return v
	}
	for _, c := range []struct{ want, have, lacks string }{
		{"{a: 1}", "{a: 1, b: 2}", ""},
		{"{a: {b: [x]}}", "{a: {b: [z, x]}}", ""},
		{"[{a: 1}, {a: 2}]", "[{a: 2}, {a: 1}]", ""},
		{"[{a: 1}, {a: 1}]", "[{a: 1}]", "[1] is missing ()"},
		{"{a: 1}", "{b: 1}", "a is <nil>, and not 1"},
		{"{a: null}", "{b: 1}", ""},
		{"{a: [{b: x}]}", "{a: [{b: z}]}", "a[0] is missing (a[0].b is z, and not x)"},
		{"{a: [x]}", "{a: x}", "a is x, and no list"},
		{"{a: {b: 1}}", "{a: x}", "a is x, and not the object map[b:1]"},
	} {
		assert.Equal(t, c.lacks, Lacks(parse(c.want), parse(c.have)), c.want)
	}
}
