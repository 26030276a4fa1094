package waiting

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

// work is an object that is finished at a time.
type work struct {
	id   int
	ends time.Time
}

func finished(w work) bool { return !time.Now().Before(w.ends) }

// shop is a cloud with such objects, which is slow to answer.
type shop struct {
	mu          sync.Mutex
	objects     map[int]work
	err         error
	lists, gets int
	answer      time.Duration
	urgent      bool
	hang        map[int]bool
}

func (s *shop) room() *Room[int, work] {
	things := inventory.New(inventory.Source[string, work]{
		Kind: "thing of a test", ID: func(w work) string { return strconv.Itoa(w.id) },
		List: func(ctx context.Context) ([]work, int, error) {
			s.count(ctx, &s.lists)
			s.mu.Lock()
			defer s.mu.Unlock()
			var all []work
			for _, w := range s.objects {
				all = append(all, w)
			}
			return all, 1, s.err
		},
		Get: func(ctx context.Context, name string) (work, error) {
			id, err := strconv.Atoi(name)
			if err != nil {
				return work{}, err
			}
			s.count(ctx, &s.gets)
			s.mu.Lock()
			hangs := s.hang[id]
			s.mu.Unlock()
			if hangs {
				<-ctx.Done()
				return work{}, &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "no answer"}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			w, ok := s.objects[id]
			if !ok && s.err == nil {
				return w, &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: strconv.Itoa(id)}
			}
			return w, s.err
		},
	})
	return New(func(ctx context.Context, ids []int) map[int]inventory.Seen[work] {
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = strconv.Itoa(id)
		}
		looked, seen := things.Look(ctx, names), map[int]inventory.Seen[work]{}
		for i, id := range ids {
			seen[id] = looked[names[i]]
		}
		return seen
	}, Pace{})
}

func (s *shop) count(ctx context.Context, counter *int) {
	s.mu.Lock()
	*counter++
	s.urgent = priority.IsUrgent(ctx)
	s.mu.Unlock()
	time.Sleep(s.answer)
}

func newShop(n int, takes time.Duration) *shop {
	s := &shop{objects: map[int]work{}, answer: 100 * time.Millisecond, hang: map[int]bool{}}
	for i := range n {
		i++ // 0 is no identity
		s.objects[i] = work{id: i, ends: time.Now().Add(takes)}
	}
	return s
}

// TestManyAtOnce: 500 that wait at once are served by one listing every 1 to 3 s, soon after their work has ended.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, takes = 500, 60 * time.Second
		s := newShop(n, takes)
		room := s.room()
		began := time.Now()
		var group sync.WaitGroup
		var served atomic.Int32
		for i := range n {
			i++
			group.Go(func() {
				w, err := room.Until(t.Context(), i, "a thing", finished)
				assert.NoError(t, err)
				assert.Equal(t, i, w.id)
				served.Add(1)
			})
		}
		group.Wait()
		took := time.Since(began)
		assert.EqualValues(t, n, served.Load())
		assert.Less(t, took, takes+4*time.Second)
		assert.Zero(t, s.gets)
		assert.Less(t, s.lists, 35)
		synctest.Wait()
		assert.Zero(t, room.Waiting())
		assert.False(t, room.running, "nobody looks when nobody waits")
	})
}

// TestOneAlone: one that waits costs single reads, and is served a moment after its work has ended, however often before
// work has taken longer.
func TestOneAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(0, 0)
		room := s.room()
		for i, takes := range []time.Duration{90 * time.Second, time.Second, 2500 * time.Millisecond} {
			i++
			s.objects[i] = work{i, time.Now().Add(takes)}
			began := time.Now()
			_, err := room.Until(t.Context(), i, "a thing", finished)
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(began), takes+max(takes/20, 1200*time.Millisecond))
		}
		assert.Zero(t, s.lists)
		assert.Less(t, s.gets, 45)
	})
}

// TestLateJoiner: who joins while others wait is looked at in time, by a look that began afterwards, whenever between two looks
// at the others that is.
func TestLateJoiner(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < 3*time.Second; after += 300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(1, 5*time.Minute)
			room := s.room()
			go func() { _, _ = room.Until(t.Context(), 1, "slow", finished) }()
			time.Sleep(4*time.Minute + after)
			s.mu.Lock()
			s.objects[2] = work{2, time.Now().Add(700 * time.Millisecond)}
			s.mu.Unlock()
			began := time.Now()
			_, err := room.Until(priority.Urgent(t.Context()), 2, "quick", finished)
			require.NoError(t, err)
			assert.Less(t, time.Since(began), 1800*time.Millisecond, "joined %s later", after)
			assert.True(t, s.urgent, "somebody urgent waits for the look")
		})
	}
}

// TestLooksAreFew: those that come one after another share their looks, of which there is at most one a second.
func TestLooksAreFew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n, most int
		apart   time.Duration
	}{
		"two, soon after each other": {2, 30, 400 * time.Millisecond},
		"many, one after another":    {150, 75, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(c.n, time.Minute)
			room := s.room()
			var group sync.WaitGroup
			for i := range c.n {
				i++
				group.Go(func() {
					_, err := room.Until(t.Context(), i, "a thing", finished)
					assert.NoError(t, err)
				})
				time.Sleep(c.apart)
			}
			group.Wait()
			assert.Less(t, s.lists+s.gets, c.most, name)
		})
	}
}

// TestCancellation: who gives up gets the context's error at once, and does not change anything for the others.
func TestCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(2, 10*time.Second)
		room := s.room()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		other := make(chan error)
		go func() {
			_, err := room.Until(t.Context(), 1, "the other", finished)
			other <- err
		}()
		began := time.Now()
		_, err := room.Until(ctx, 1, "the first", finished)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the first")
		assert.Equal(t, 2*time.Second, time.Since(began))
		require.NoError(t, <-other)
		synctest.Wait()
		assert.Zero(t, room.Waiting())
	})
}

// TestFailingLooks: an outage is waited out for a while; a failure that time does not cure is reported at once.
func TestFailingLooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class       error
		lasts       time.Duration
		fails       bool
		least, most time.Duration
	}{
		"an outage that ends": {cloudapi.ErrTransient, 12 * time.Second, false, 12 * time.Second, 16 * time.Second},
		"one that does not":   {cloudapi.ErrTransient, time.Hour, true, 20 * time.Second, 26 * time.Second},
		"a refusal":           {cloudapi.ErrUnauthorized, time.Hour, true, time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop(3, time.Second)
				s.err = &cloudapi.Error{Class: c.class, Message: "no"}
				go func() {
					time.Sleep(c.lasts)
					s.mu.Lock()
					defer s.mu.Unlock()
					s.err = nil
				}()
				room := s.room()
				began := time.Now()
				var group sync.WaitGroup
				for i := range 3 {
					i++
					group.Go(func() {
						_, err := room.Until(t.Context(), i, "a thing", finished)
						assert.Equal(t, c.fails, err != nil, "%v", err)
						if c.fails {
							assert.ErrorIs(t, err, c.class)
						}
					})
				}
				group.Wait()
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, c.least)
				assert.LessOrEqual(t, took, c.most)
				time.Sleep(c.lasts)
			})
		})
	}
}

// TestFailuresInARow: looks that fail now and then never add up to an outage.
func TestFailuresInARow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(1, time.Minute)
		go func() {
			fail := func(err error, lasts time.Duration) {
				s.mu.Lock()
				s.err = err
				s.mu.Unlock()
				time.Sleep(lasts)
			}
			for range 4 {
				fail(&cloudapi.Error{Class: cloudapi.ErrTransient, Message: "no"}, 9*time.Second)
				fail(nil, 5*time.Second)
			}
		}()
		_, err := s.room().Until(t.Context(), 1, "a thing", finished)
		require.NoError(t, err)
	})
}

// TestHangingLook: a read that hangs holds up nobody who waits for something else.
func TestHangingLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(2, time.Hour)
		s.hang[1] = true
		room := s.room()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = room.Until(ctx, 1, "what hangs", finished) }()
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		require.Positive(t, s.gets, "the read has begun")
		s.objects[2] = work{2, time.Now().Add(time.Second)}
		s.mu.Unlock()
		began := time.Now()
		_, err := room.Until(t.Context(), 2, "what works", finished)
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 3*time.Second)
		cancel()
		time.Sleep(2 * time.Minute)
	})
}

// TestGone: what is waited for may vanish, which is the end of a deletion.
func TestGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(2, time.Hour)
		room := s.room()
		go func() {
			time.Sleep(4 * time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.objects)
		}()
		var group sync.WaitGroup
		began := time.Now()
		for i := range 2 {
			i++
			group.Go(func() {
				_, err := room.Until(t.Context(), i, "the deletion", func(work) bool { return false })
				assert.ErrorIs(t, err, cloudapi.ErrNotFound)
			})
		}
		group.Wait()
		assert.Less(t, time.Since(began), 6*time.Second)
		assert.LessOrEqual(t, s.gets, 2, "absence is proved by a read of each")
	})
}

// TestCrashingLook: a crash in a look, or in the question about what it has shown, is an error and not the end.
func TestCrashingLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		room := New(func(context.Context, []int) map[int]inventory.Seen[work] { panic("no") }, Pace{})
		_, err := room.Until(t.Context(), 1, "a thing", finished)
		require.ErrorIs(t, err, errLook)
		_, err = newShop(1, 0).room().Until(t.Context(), 1, "a thing", func(work) bool { panic("no") })
		require.ErrorIs(t, err, errLook)
	})
}

// TestPauses: a cloud that names a pause is not asked before its end.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		began := time.Now()
		room := New(func(_ context.Context, ids []int) map[int]inventory.Seen[work] {
			if looks++; looks == 1 {
				return map[int]inventory.Seen[work]{ids[0]: {Err: &cloudapi.Error{Class: cloudapi.ErrRateLimited, RetryAfter: 9 * time.Second}}}
			}
			return map[int]inventory.Seen[work]{ids[0]: {Value: work{}}}
		}, Pace{})
		_, err := room.Until(t.Context(), 1, "a thing", finished)
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, 2, looks)
	})
}

// TestProgress: what is waited for is on the board for as long as it is waited for.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := &progress.Board{}
		s := newShop(1, 5*time.Second)
		done := make(chan error)
		go func() {
			_, err := s.room().Until(progress.With(t.Context(), board), 1, "load balancer 7 to be built", finished)
			done <- err
		}()
		time.Sleep(2 * time.Second)
		assert.Equal(t, "load balancer 7 to be built", board.What())
		require.NoError(t, errors.Join(<-done))
		assert.Empty(t, board.What())
	})
}
