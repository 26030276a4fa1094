package conformance

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Legal is a legal value of an annotation, and where it must arrive.
type Legal struct {
	Value string
	// With are further annotations that the value needs.
	With map[string]string
	// In is the operation of the request where the value arrives; empty means the creating one.
	In string
	// Field is a path such as "configs.0.protocol" in the body of the creating request; Want is its value as JSON decodes
	// it, nil if it must be absent.
	Field string
	Want  any
}

// Arrives is a legal value that must arrive in a field.
func Arrives(value string, with map[string]string, field string, want any) Legal {
	return Legal{Value: value, With: with, Field: field, Want: want}
}

// ArrivesIn is a legal value that must arrive in a field of another request than the creating one.
func ArrivesIn(operation, value string, with map[string]string, field string, want any) Legal {
	return Legal{In: operation, Value: value, With: with, Field: field, Want: want}
}

// Checked holds the test values of one annotation.
type Checked struct {
	Legal []Legal
	// Illegal values must lead to an event that names the annotation, and to no write.
	Illegal []string
	// With are annotations beside which illegal values are judged.
	With map[string]string
	// Lenient values count as the default: the event says so, and the Service is served.
	Lenient bool
	// Elsewhere names the test that shows what the annotation does, where that is not a field of the creating request.
	Elsewhere string
}

// Checklist walks every row of a provider's table of annotations.
type Checklist struct {
	Rows  []schema.AnnotationRow
	Items map[string]Checked
	// Prefix is cut from the names of the subtests.
	Prefix string
	// New makes a provider with a node on a cloud of its own.
	New func(t *testing.T) Subject
	// Virtual is set where New makes a provider in virtual time.
	Virtual bool
	// Service makes the Service that is tried.
	Service func(annotations map[string]string) *v1.Service
	// Check judges a Service offline.
	Check func(*v1.Service) (warnings, err error)
	// Creation is the operation of the creating request.
	Creation string
	// Refused and Ignored are the reasons of events.
	Refused, Ignored string
}

// Subject is a provider under test.
type Subject struct {
	*Bench

	Server *simkit.Server
	// Ensure reconciles a Service once.
	Ensure func(*v1.Service) error
	// Serve reconciles it until it is served.
	Serve func(*v1.Service)
}

// Run demands that each legal value arrives in its field, that each illegal one becomes an event and no write, and that no
// row is left out.
func (c Checklist) Run(t *testing.T) {
	t.Helper()
	items := maps.Clone(c.Items)
	for _, row := range c.Rows {
		item, ok := items[row.Key]
		require.True(t, ok, "the checklist lacks %s", row.Key)
		delete(items, row.Key)
		restricted := len(row.Choices) > 0 || row.Min != nil ||
			row.Check != nil || row.ID != nil || (row.Kind != schema.KindString && row.Kind != schema.KindList)
		t.Run(strings.TrimPrefix(row.Key, c.Prefix), func(t *testing.T) {
			t.Parallel()
			require.True(t, len(item.Legal) > 0 || item.Elsewhere != "", "no legal value is checked")
			require.True(t, len(item.Illegal) > 0 || !restricted || row.Changes == schema.Written, "no illegal value is checked")
			key := strings.ReplaceAll(row.Key, "<port>", "80")
			try := func(t *testing.T) {
				for _, l := range item.Legal {
					c.legal(t, key, l)
				}
				for _, value := range item.Illegal {
					c.illegal(t, key, value, item)
				}
			}
			if c.Virtual {
				synctest.Test(t, try)
			} else {
				try(t)
			}
		})
	}
	assert.Empty(t, items, "these are checked but not in the table")
}

func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, annotations)
	all[key] = value
	return all
}

func (c Checklist) legal(t *testing.T, key string, l Legal) {
	t.Helper()
	subject := c.New(t)
	s := c.Service(withAnnotation(l.With, key, l.Value))
	subject.Apply(s)
	subject.Serve(s)
	_, judged := c.Check(s)
	require.NoError(t, judged, "%s=%q", key, l.Value)
	assert.Equal(t, l.Want, Field(LatestBody(t, subject.Server, cmp.Or(l.In, c.Creation)), l.Field), "%s=%q: %s", key, l.Value, l.Field)
	assert.Empty(t, subject.Server.Calls().Refused)
}

func (c Checklist) illegal(t *testing.T, key, value string, item Checked) {
	t.Helper()
	subject := c.New(t)
	s := c.Service(withAnnotation(item.With, key, value))
	subject.Apply(s)
	subject.Events()
	if item.Lenient {
		subject.Serve(s)
		warned, judged := c.Check(s)
		require.NoError(t, judged)
		require.ErrorContains(t, warned, key)
		assert.Contains(t, strings.Join(subject.Events(), "\n"), "Warning "+c.Ignored+" annotation "+key, "%q", value)
		return
	}
	err := subject.Ensure(s)
	require.Error(t, err, "%s=%q", key, value)
	_, judged := c.Check(s)
	require.EqualError(t, judged, err.Error(), "offline the same words: %s=%q", key, value)
	assert.Contains(t, strings.Join(subject.Events(), "\n"), "Warning "+c.Refused, "%s=%q", key, value)
	assert.Zero(t, subject.Server.Calls().Writes, "%s=%q: %v", key, value, subject.Server.Calls().ByOperation)
}
