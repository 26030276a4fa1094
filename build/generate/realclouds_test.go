package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

// TestRealClouds: what was tried on real services is told as it was recorded, failures by name and with their reason.
func TestRealClouds(t *testing.T) {
	t.Parallel()
	r := results.Record{
		Cloud: "toy", Title: "Toys", Services: []string{"Toy 1.0"}, Commit: "abc", Began: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), How: "make toys",
		Machine: "2 cores", Load: 0.5,
		Trials: []results.Trial{
			{Part: "steps", Name: "made", Result: results.Held, Seconds: 7.04, MaxSeconds: 8, Calls: new(20), MaxCalls: 24},
			{Part: "steps", Name: "changed", Result: results.Failed, Seconds: 30, MaxSeconds: 18, Details: []string{"seen", "took 30.0 s, more than 18 s"}},
			{Part: "suite", Name: "traffic", Result: results.Skipped, Details: []string{"no pod runs"}},
		},
		Lacks: []results.Lack{{What: "wheels", Shows: "it does not roll", Effect: "rolling"}},
	}
	assert.Equal(t, "| cloud | tried on | when | program | result |\n| --- | --- | --- | --- | --- |\n"+
		"| toy | Toys: Toy 1.0 | 2026-11-22 | abc | steps: 1 held, did not hold: changed; suite: 0 held, 1 left out |\n", realTable([]results.Record{r}))
	assert.Equal(t, "### Toys\n\n`make toys`, 2026-11-22, on 2 cores with a load of 0.5 for each core when it began.\n\n"+
		"| part | tried | result | time | calls |\n| --- | --- | --- | --- | --- |\n"+
		"| steps | made | held | 7.0 of 8 s | 20 of 24 |\n| steps | changed | failed: took 30.0 s, more than 18 s | 30.0 of 18 s |  |\n"+
		"| suite | traffic | skipped: no pod runs |  |  |\n\n"+
		"| it does not have | seen by | not tried for it |\n| --- | --- | --- |\n| wheels | it does not roll | rolling |\n", realDetails([]results.Record{r}))

	root := checkout(t)
	require.NoError(t, r.Write(filepath.Join(root, filepath.FromSlash(results.Folder), "toy.json")))
	w := &writer{root: root, files: map[string][]byte{}}
	w.realClouds()
	assert.Empty(t, w.problems)
	assert.Contains(t, string(w.files["README.md"]), "| toy | Toys: Toy 1.0 |")
	assert.Contains(t, string(w.files["docs/acceptance.md"]), "### Toys\n")
}
