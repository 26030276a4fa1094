package schema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTrimmed: blanks around the value of a switch count only where the cloud's own controller does not trim it, and are shown as they
// were written.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	type settings struct{ Trimmed, Plain bool }
	table := Annotations[settings]{
		BoolAnnotation(func(s *settings) *bool { return &s.Trimmed }, AnnotationRow{Key: "x/trimmed", Spec: Spec{Trimmed: true}}),
		BoolAnnotation(func(s *settings) *bool { return &s.Plain }, AnnotationRow{Key: "x/plain"}),
	}
	got, _, err := table.Parse(map[string]string{"x/trimmed": " true ", "x/plain": "true"})
	require.NoError(t, err)
	assert.Equal(t, settings{true, true}, got)
	_, _, err = table.Parse(map[string]string{"x/plain": " true"})
	require.ErrorContains(t, err, `annotation x/plain: " true" is not a boolean`)
	_, _, err = table.Parse(map[string]string{"x/trimmed": " yes "})
	require.ErrorContains(t, err, `annotation x/trimmed: " yes " is not a boolean`)
}
