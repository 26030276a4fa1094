package waiting

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// TestTogether: what is done together takes as long as the longest of it, at most four at a time; of several failures the first in
// order counts, and a crash is a failure.
func TestTogether(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	sleep := func(d time.Duration, err error) func() error {
		return func() error { time.Sleep(d); return err }
	}
	for _, c := range []struct {
		name string
		work []func() error
		took time.Duration
		err  error
	}{
		{"nothing", nil, 0, nil},
		{"the longest", []func() error{sleep(time.Second, nil), sleep(3*time.Second, nil), sleep(2*time.Second, nil)}, 3 * time.Second, nil},
		{"four at a time", []func() error{
			sleep(time.Second, nil), sleep(time.Second, nil), sleep(time.Second, nil), sleep(time.Second, nil), sleep(time.Second, nil),
		}, 2 * time.Second, nil},
		{"failures", []func() error{sleep(time.Second, nil), sleep(2*time.Second, first), sleep(time.Second, second)}, 2 * time.Second, first},
		{"a crash", []func() error{sleep(time.Second, nil), func() error { panic("no") }}, time.Second, rescue.ErrCrashed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				require.ErrorIs(t, Together(c.work...), c.err)
				assert.Equal(t, c.took, time.Since(began))
			})
		})
	}
}

// TestInterval: looks are an eighth of the time apart that has passed for ten seconds, and a quarter later, within the bounds.
func TestInterval(t *testing.T) {
	t.Parallel()
	pace := Pace{Least: 700 * time.Millisecond, Most: 3 * time.Second}
	for waited, want := range map[time.Duration]time.Duration{
		0: pace.Least, 3 * time.Second: pace.Least, 8 * time.Second: time.Second,
		10 * time.Second: 2500 * time.Millisecond, time.Minute: pace.Most,
	} {
		assert.Equal(t, want, pace.interval(waited), waited)
	}
}

// TestSkipLooks: looks that are left out at the beginning are not made, and the others come as soon as for everybody.
func TestSkipLooks(t *testing.T) {
	t.Parallel()
	for skipped, looks := range map[int]int{0: 4, 2: 2, 3: 1, 5: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(1, 3500*time.Millisecond)
			s.answer = 0
			began := time.Now()
			_, err := s.room().Until(t.Context(), 1, "a thing", finished, SkipLooks(skipped))
			require.NoError(t, err)
			assert.Equal(t, time.Duration(max(skipped+1, 4))*time.Second, time.Since(began))
			assert.Equal(t, looks, s.gets)
		})
	}
}
