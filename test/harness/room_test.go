package harness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHasRoom: a crowded machine starts fewer clusters and never none, however busy something else keeps it.
func TestHasRoom(t *testing.T) {
	for name, c := range map[string]struct {
		n     int
		crowd crowd
		want  bool
	}{
		"the last that always starts":            {minClusters, crowd{500, 2}, true},
		"one more, crowded":                      {minClusters + 1, crowd{500, 2}, false},
		"one more, busy":                         {minClusters + 1, crowd{maxRunnable * 2, 2}, true},
		"one thread too many":                    {minClusters + 1, crowd{maxRunnable*2 + 1, 2}, false},
		"many run, idle":                         {13, crowd{4, 2}, true},
		"a larger machine takes more":            {13, crowd{maxRunnable * 16, 16}, true},
		"a larger machine has its limit as well": {13, crowd{maxRunnable*16 + 1, 16}, false},
	} {
		assert.Equal(t, c.want, hasRoom(c.n, c.crowd), name)
	}
}

func TestCrowdOf(t *testing.T) {
	const load, stat = "50.40 48.88 39.26 25/720 19013\n", "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nctxt 5\n"
	c, known := crowdOf(load, stat)
	assert.True(t, known)
	assert.Equal(t, crowd{25, 2}, c)
	for _, texts := range [][2]string{{"", stat}, {"1 2 3", stat}, {"1 2 3 x/y 5", stat}, {load, ""}, {load, "cpu  1 2 3\n"}} {
		_, known := crowdOf(texts[0], texts[1])
		assert.False(t, known, "%q", texts)
	}
}

// TestWaitForRoom: on an idle machine nothing is waited for; on a crowded one all clusters but the first wait until the crowd is gone,
// their test ends, or for two minutes.
func TestWaitForRoom(t *testing.T) {
	for name, c := range map[string]struct {
		running       int64
		oneEndsAfter  time.Duration
		crowdedFor    time.Duration
		unknown       bool
		least, most   time.Duration
		testEndsAfter time.Duration
		failed        bool
	}{
		"the first":             {crowdedFor: time.Hour},
		"another, idle":         {running: 1},
		"another, crowded":      {running: 1, crowdedFor: 10 * time.Second, least: 10 * time.Second, most: 12 * time.Second},
		"the one that ran ends": {running: 1, oneEndsAfter: 7 * time.Second, crowdedFor: time.Hour, least: 7 * time.Second, most: 9 * time.Second},
		"one of two ends":       {running: 2, oneEndsAfter: 7 * time.Second, crowdedFor: time.Hour, least: maxRoomWait, most: maxRoomWait + time.Second},
		"crowded for ever":      {running: 1, crowdedFor: time.Hour, least: maxRoomWait, most: maxRoomWait + time.Second},
		"its test ends": {
			running: 1, crowdedFor: time.Hour, testEndsAfter: 3 * time.Second, least: 3 * time.Second, most: 3 * time.Second, failed: true,
		},
		"a system that says none": {running: 1, crowdedFor: time.Hour, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &Stage{crowd: func() (crowd, bool) {
					if time.Since(began) < c.crowdedFor {
						return crowd{100, 2}, !c.unknown
					}
					return crowd{3, 2}, !c.unknown
				}}
				want := c.running
				s.clusters.Store(want)
				if c.oneEndsAfter > 0 {
					want--
					time.AfterFunc(c.oneEndsAfter, func() { s.clusters.Add(-1) })
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.testEndsAfter > 0 {
					time.AfterFunc(c.testEndsAfter, cancel)
				}
				err := s.waitForRoom(ctx)
				if assert.Equal(t, c.failed, err != nil, "%v", err); !c.failed {
					want++
				}
				assert.Equal(t, want, s.clusters.Load(), "what started is counted, and nothing else")
				assert.GreaterOrEqual(t, time.Since(began), c.least)
				assert.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}

// TestFailedStartGivesItsPlaceBack: else a run whose starts fail now and then would end up with few clusters at a time.
func TestFailedStartGivesItsPlaceBack(t *testing.T) {
	s := &Stage{Dir: t.TempDir(), starting: make(chan struct{}, maxStarting), crowd: machineCrowd}
	_, err := s.Start(t.Context(), "no-programs", Options{Provider: AnyProvider})
	require.Error(t, err)
	assert.Zero(t, s.clusters.Load())
	assert.Empty(t, s.starting)
}
