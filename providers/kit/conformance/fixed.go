package conformance

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// FixedCase is how an annotation is tried that counts only when the load balancer is made.
type FixedCase struct {
	// First is its value when the load balancer is made, and "" is without it. Later is what it becomes.
	First, Later string
	// With are annotations that the Service has from the beginning.
	With map[string]string
	// DualStack makes the Service one of both families.
	DualStack bool
}

// FixedValues is a case of two values, with annotations that the Service has from the beginning: keys, each with its value.
func FixedValues(first, later string, with ...string) func() FixedCase {
	return func() FixedCase {
		c := FixedCase{First: first, Later: later, With: map[string]string{}}
		for pair := range slices.Chunk(with, 2) {
			c.With[pair[0]] = pair[1]
		}
		return c
	}
}

// fixedRows are the annotations that count only when the load balancer is made.
func (f *Fixture) fixedRows() (rows []schema.AnnotationRow) {
	for _, row := range f.Provider.Annotations {
		if row.Changes == schema.AtCreation || row.Changes == schema.RefusedLater {
			rows = append(rows, row)
		}
	}
	return rows
}

// runFixed: what an annotation asks for too late is not applied, and the user is told, by a process that knows of no creation. What was
// asked for in time is told of to nobody.
func runFixed(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	tried := readFixture(t, newFixture, func(f *Fixture) map[string]func() FixedCase { return f.Fixed })
	for _, row := range readFixture(t, newFixture, (*Fixture).fixedRows) {
		name := row.Key[strings.LastIndex(row.Key, "/")+1:]
		require.Contains(t, tried, row.Key, "it counts when the load balancer is made: say how it is tried")
		delete(tried, row.Key)
		virtual(t, name+" later", func(t *testing.T) { runFixedLater(t, newFixture(t), row) })
		virtual(t, name+" in time", func(t *testing.T) { runFixedInTime(t, newFixture(t), row.Key) })
	}
	assert.Empty(t, tried, "these are tried, and no row says that they are fixed")
}

// newFixedWorld makes a Service with a value of an annotation, and its load balancer, and forgets all of it.
func newFixedWorld(t *testing.T, f *Fixture, key string, first func(FixedCase) string) (w *world, s *v1.Service, c FixedCase) {
	t.Helper()
	c = f.Fixed[key]()
	ctx := t.Context()
	w = newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	s = featureService(c.With)
	if c.DualStack {
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, new(v1.IPFamilyPolicyRequireDualStack)
	}
	setAnnotation(s, key, first(c))
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	w.restart()
	return w, s, c
}

// setAnnotation gives an annotation a value; "" takes it away.
func setAnnotation(s *v1.Service, key, value string) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	if s.Annotations[key] = value; value == "" {
		delete(s.Annotations, key)
	}
}

// requireUntold: nobody is told that anything came too late.
func (w *world) requireUntold() {
	w.t.Helper()
	time.Sleep(time.Second)
	list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, e := range list.Items {
		assert.NotEqual(w.t, services.EventFixed, e.Reason, e.Message)
	}
}

// requireWarned demands a warning that names an annotation.
func (w *world) requireWarned(key string) {
	w.t.Helper()
	time.Sleep(time.Second)
	list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	assert.True(w.t, slices.ContainsFunc(list.Items, func(e v1.Event) bool {
		return e.Type == v1.EventTypeWarning && strings.Contains(e.Message, key)
	}), "no warning names %s", key)
}

func runFixedLater(t *testing.T, f *Fixture, row schema.AnnotationRow) {
	t.Helper()
	ctx := t.Context()
	w, s, c := newFixedWorld(t, f, row.Key, func(c FixedCase) string { return c.First })
	w.requireUntold()
	state := w.Snapshot()
	w.changeService(ctx, s, func(s *v1.Service) { setAnnotation(s, row.Key, c.Later) })
	w.Sim.ResetCalls()
	err := w.ensureToEnd(ctx, s)
	w.requireNoWrites("it counts when the load balancer is made")
	assert.Equal(t, state, w.Snapshot())
	if row.Changes == schema.RefusedLater {
		require.ErrorContains(t, err, row.Key)
		w.requireWarned(row.Key)
	} else {
		require.NoError(t, err)
		w.requireEvent(services.EventFixed, "annotation "+row.Key+": ")
	}
	w.changeService(ctx, s, func(s *v1.Service) { setAnnotation(s, row.Key, c.First) })
	w.ensure(ctx, s, nil)
	w.requireNoWrites("it is what it was")
	w.remove(ctx, s, nil)
}

// runFixedInTime: what was asked for when the load balancer was made is told of to nobody.
func runFixedInTime(t *testing.T, f *Fixture, key string) {
	t.Helper()
	w, s, _ := newFixedWorld(t, f, key, func(c FixedCase) string { return cmp.Or(c.First, c.Later) })
	state := w.Snapshot()
	w.Sim.ResetCalls()
	w.ensure(t.Context(), s, nil)
	w.requireNoWrites("it was made so")
	assert.Equal(t, state, w.Snapshot())
	w.requireUntold()
}
