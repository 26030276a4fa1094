package defaults

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func noFault(map[string]string) error { return nil }

func TestParse(t *testing.T) {
	t.Parallel()
	set, err := Parse([]byte("- loadBalancerClass: \"\"   # without a class\n  annotations: {a: v2}\n- {loadBalancerClass: internal, annotations: {b: x, c: \"true\"}}\n- loadBalancerClass: example.com/none\n"), noFault)
	require.NoError(t, err)
	assert.Equal(t, Set{"": {"a": "v2"}, "internal": {"b": "x", "c": "true"}, "example.com/none": {}}, set)
	assert.Equal(t, []string{"example.com/none", "internal"}, set.Classes())
	set, err = Parse([]byte("# nothing\n"), noFault)
	require.NoError(t, err)
	assert.Empty(t, set)
}

// TestFaults: all at once, each with its line.
func TestFaults(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`- annotations: {a: b}
- loadBalancerClass: one
  annotations:
    a: true
    bad: x
    bad: y
- loadBalancerClass: one
- loadBalancerClass: "not a class"
- loadBalancerClas: two
  loadBalancerClass: two
- text
`), func(annotations map[string]string) error {
		if annotations["bad"] != "" {
			return errors.Join(&schema.Problem{Place: "annotation bad", Value: annotations["bad"], Reason: "is not good"})
		}
		return nil
	})
	require.Error(t, err)
	var lines []string
	for _, problem := range schema.Problems(err) {
		lines = append(lines, problem.Error())
	}
	assert.Equal(t, []string{
		`line 1: loadBalancerClass is missing; write "" for Services without a class`,
		"line 4: the value of a is not a text; write it in quotes",
		"line 6: bad is there twice",
		`line 5: annotation bad: "x" is not good`,
		`line 7: loadBalancerClass "one" is in line 2 already`,
		`line 8: loadBalancerClass "not a class" is not a label-style name such as example.com/internal`,
		`line 9: "loadBalancerClas" is unknown; use loadBalancerClass and annotations`,
		"line 11: this is not an item with loadBalancerClass and annotations",
	}, lines)
	for _, text := range []string{"a: b\n", "- [\n", "- loadBalancerClass: x\n---\n- loadBalancerClass: y\n"} {
		_, err := Parse([]byte(text), noFault)
		require.Error(t, err, text)
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	assert.Empty(t, ClassOf(&v1.Service{}))
	assert.Equal(t, "internal", ClassOf(&v1.Service{Spec: v1.ServiceSpec{LoadBalancerClass: new("internal")}}))
	selected := &v1.Service{}
	selected.SetSelfLink(Selected + "internal")
	assert.Equal(t, "internal", ClassOf(selected))
	var none *Source
	assert.Empty(t, none.Of(""))
}
