package expectations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestStartWithin: a quick start has the bound of a quick start, and a slow one what its seconds may cost.
func TestStartWithin(t *testing.T) {
	t.Parallel()
	costs := NodeCosts{Start: 14, Minute: 30}
	for took, want := range map[time.Duration]int{
		0: 14, 10 * time.Second: 14, 20 * time.Second: 14, 21 * time.Second: 24, 59 * time.Second: 43, 2 * time.Minute: 74,
	} {
		assert.Equal(t, want, costs.StartWithin(took), took)
	}
}

// TestMostReads: reads that grow with time are told with what they grow by.
func TestMostReads(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "44", Cost{Reads: 44}.MostReads())
	assert.Equal(t, "24 and 1.5 a second", Cost{Reads: 24, PerSecond: 1.5}.MostReads())
}
