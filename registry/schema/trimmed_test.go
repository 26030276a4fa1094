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

// TestSwitch: the word true alone turns a switch on, in any case; what is neither that nor false is a fault.
func TestSwitch(t *testing.T) {
	t.Parallel()
	type settings struct{ On bool }
	row := AnnotationRow{Key: "x/on", Spec: Spec{Lenient: true}}
	table := Annotations[settings]{SwitchAnnotation(func(s *settings) *bool { return &s.On }, row)}
	for text, want := range map[string]struct{ on, warned bool }{
		"true": {on: true}, "tRUE": {on: true}, "False": {}, "1": {warned: true}, "t": {warned: true},
	} {
		s, warnings, err := table.Parse(map[string]string{"x/on": text})
		require.NoError(t, err, text)
		assert.Equal(t, want.on, s.On, text)
		assert.Equal(t, want.warned, warnings != nil, "%s: %v", text, warnings)
		if want.warned {
			assert.ErrorContains(t, warnings, `is neither "true" nor "false"; "false" is used instead`)
		}
	}
}
