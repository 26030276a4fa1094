package conformance

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// runTranscribed: each annotation of the cloud is set in a scenario, or a row of Fixture.Untranscribed says why in none.
func runTranscribed(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	if *Update {
		t.Skip("the transcripts are written at the same time")
	}
	f := readFixture(t, newFixture, func(f *Fixture) *Fixture { return f })
	var text strings.Builder
	require.NoError(t, fs.WalkDir(f.Transcripts, transcriptFolder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "bad-annotation.txt" { // there its value is illegal
			return err
		}
		have, err := fs.ReadFile(f.Transcripts, path)
		text.Write(have)
		return err
	}))
	left := map[string]bool{}
	for _, keys := range f.Untranscribed {
		for _, key := range keys {
			left[key] = true
		}
	}
	for _, row := range f.Provider.Annotations {
		key := strings.ReplaceAll(regexp.QuoteMeta(row.Key), schema.Numbered, `\d+`)
		shown := regexp.MustCompile(`(?m)^  [-+] \S+ annotation ` + key + `:`).MatchString(text.String())
		assert.True(t, shown || left[row.Key], "%s: no transcript has it, and no row of Fixture.Untranscribed says why", row.Key)
		assert.False(t, shown && left[row.Key], "%s: a transcript has it", row.Key)
	}
	for key := range left {
		known := func(r schema.AnnotationRow) bool { return r.Key == key }
		assert.True(t, slices.ContainsFunc(f.Provider.Annotations, known), "%s: the cloud has no such annotation", key)
	}
}
