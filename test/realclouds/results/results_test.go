package results

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJudge: a trial holds within its bounds, and says by how much it does not.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trial  Trial
		result string
		words  []string
	}{
		{Trial{Seconds: 8, MaxSeconds: 8, Calls: new(24), MaxCalls: 24}, Held, nil},
		{Trial{Seconds: 100, Calls: new(100)}, Held, nil},
		{Trial{Seconds: 8.1, MaxSeconds: 8}, Failed, []string{"took 8.1 s, more than 8 s"}},
		{Trial{Calls: new(25), MaxCalls: 24}, Failed, []string{"took 25 calls, more than 24"}},
	} {
		c.trial.Judge()
		assert.Equal(t, c.result, c.trial.Result)
		assert.Equal(t, c.words, c.trial.Details)
	}
}

// TestRecords: what is written is read again; a record that does not say when and how is none.
func TestRecords(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := Record{
		Cloud: "toy", Title: "toys", Began: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), How: "make toys",
		Trials: []Trial{{Part: "a", Name: "one", Result: Held}, {Part: "b", Name: "two", Result: Failed}},
	}
	path := filepath.Join(root, filepath.FromSlash(Folder), "toy.json")
	require.NoError(t, r.Write(path))
	all, err := Read(root)
	require.NoError(t, err)
	assert.Equal(t, []Record{r}, all)
	assert.Equal(t, []string{"b: two"}, all[0].Failures())

	require.NoError(t, os.WriteFile(path, []byte(`{"title":"toys"}`), 0o600))
	_, err = Read(root)
	require.ErrorContains(t, err, "says not what was tried, when, how, or with which result")
}

// TestMedian: one slow or lucky run is no result, one run with too many calls is.
func TestMedian(t *testing.T) {
	trials := func(calls ...int) (list []Trial) {
		for i, seconds := range []float64{30, 9, 8.5, 8, 1} {
			list = append(list, Trial{Seconds: seconds, MaxSeconds: 8.6, Calls: new(calls[i]), MaxCalls: 24, Result: Failed, Details: []string{"its own"}})
		}
		return list
	}
	m := Median(trials(17, 18, 17, 17, 17))
	assert.Equal(t, Trial{
		Seconds: 8.5, MaxSeconds: 8.6, Calls: new(18), MaxCalls: 24, Result: Held, Details: []string{"the median of 5, from 1.0 to 30.0 s"},
	}, m)
	assert.Equal(t, Failed, Median(trials(17, 17, 17, 17, 25)).Result)
	assert.Equal(t, Failed, Median([]Trial{{Seconds: 9, MaxSeconds: 8.6}}).Result)
}
