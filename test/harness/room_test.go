package harness

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHasRoom: a crowded machine starts fewer clusters and never none, however busy something else keeps it.
func TestHasRoom(t *testing.T) {
	for name, c := range map[string]struct {
		clusters, runnable, processors int
		want                           bool
	}{
		"nothing runs":                           {0, 500, 2, true},
		"the last that always starts":            {minClusters - 1, 500, 2, true},
		"few run, crowded":                       {minClusters, 500, 2, false},
		"few run, busy":                          {minClusters, maxRunnable * 2, 2, true},
		"one thread too many":                    {minClusters, maxRunnable*2 + 1, 2, false},
		"many run, idle":                         {13, 4, 2, true},
		"a larger machine takes more":            {13, maxRunnable * 16, 16, true},
		"a larger machine has its limit as well": {13, maxRunnable*16 + 1, 16, false},
	} {
		assert.Equal(t, c.want, hasRoom(c.clusters, c.runnable, c.processors), name)
	}
}

func TestRunnableOf(t *testing.T) {
	n, known := runnableOf("50.40 48.88 39.26 25/720 19013\n")
	assert.True(t, known)
	assert.Equal(t, 25, n)
	for _, text := range []string{"", "1 2 3", "1 2 3 x/y 5"} {
		_, known := runnableOf(text)
		assert.False(t, known, "%q", text)
	}
}
