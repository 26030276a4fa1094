package main

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// namesObject matches annotations that name an object of the cloud, by name or help.
var (
	namedByKey  = regexp.MustCompile(`-(ids?|arns?|cert|ref|subnets?|groups?|security-groups|allocations)$`)
	namedByHelp = regexp.MustCompile(`\b(IDs?|UUIDs?|ARNs?|reference)\b`)
)

// TestIDsHaveForms: every annotation with an ID of a cloud object declares the form, and the cloud refuses other values without a call.
func TestIDsHaveForms(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			expected, err := expectations.Read(root, p)
			require.NoError(t, err)
			forms := 0
			for _, row := range p.Annotations {
				if row.ID == nil {
					text := row.Kind == schema.KindString || row.Kind == schema.KindList || row.Kind == schema.KindInt
					named := namedByKey.MatchString(row.Key) || namedByHelp.MatchString(row.Help)
					assert.False(t, text && named && expected.NoIDs[row.Key] == "", "%s names an object of the cloud: give it a form of IDs (schema.Spec.ID)", row.Key)
					continue
				}
				forms++
				refusesHostileIDs(t, p, row)
			}
			assert.Equal(t, expected.IDs, forms, "annotations that name objects of the cloud")
		})
	}
}

func refusesHostileIDs(t *testing.T, p registry.Provider, row schema.AnnotationRow) {
	t.Helper()
	given := map[string]string{}
	if row.Where != nil && len(row.Where.OneOf) > 0 {
		given[row.Where.Key] = row.Where.OneOf[0]
	}
	judge := func(value string) string {
		annotations := maps.Clone(given)
		annotations[row.Key] = value
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", Annotations: annotations}}
		s.Spec.Type, s.Spec.Ports = v1.ServiceTypeLoadBalancer, []v1.ServicePort{{Name: "http", Port: 80}}
		registry.AsStored(s)
		_, err := registry.CheckServiceOf(p, registry.Inputs{}, s)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for _, hostile := range []string{"../account", "x?all_tenants=1", "a/../../b", "*", "a b", "a\nb"} {
		hostile = row.ID.NamedUnless + hostile
		assert.Contains(t, judge(hostile), row.Key, "%q is taken for an ID", hostile)
	}
	assert.NotContains(t, judge(row.ID.Example), "annotation "+row.Key+": ", "the example is refused")
}

// TestAdoptingAnnotations: annotations that the controller records, or that take over existing objects, are marked as adopting, so that the
// chart's policy can refuse them.
func TestAdoptingAnnotations(t *testing.T) {
	t.Parallel()
	speaks := regexp.MustCompile(`(?i)adopt|use this|name of the load balancer|that serves (this|the) service`)
	for _, p := range registry.Linked().Providers() {
		expected, err := expectations.Read(root, p)
		require.NoError(t, err)
		var found []string
		for _, row := range p.Annotations {
			if row.Adopting() {
				found = append(found, row.Key)
			}
			assert.False(t, speaks.MatchString(row.Help) && !row.Adopting(), "%s asks for what exists: set AnnotationRow.Adopts", row.Key)
		}
		for _, row := range portable.Annotations.Rows() {
			if slices.ContainsFunc(p.Cloud().Pairs(row.Key), func(pair portable.Pair) bool { return pair.Row.Adopting() }) {
				found = append(found, row.Key)
			}
		}
		assert.Equal(t, expected.Adoption.Annotations, found, p.Name)
	}
}
