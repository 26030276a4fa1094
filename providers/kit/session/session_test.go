package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// service gives sessions for one password, each of which serves until it is ended.
type service struct {
	mu              sync.Mutex
	password, typed string
	number, logins  int
	renewals        int
	down            error
	refusesRenewal  bool
}

func (s *service) keeper(renews bool) *Keeper[string, int] {
	k := &Keeper[string, int]{
		Credentials: func() (string, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.typed, nil },
		Login: func(_ context.Context, password string) (int, error) {
			time.Sleep(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logins++
			if s.down != nil {
				return 0, s.down
			}
			if password != s.password {
				return 0, fmt.Errorf("wrong: %w", ErrRefused)
			}
			s.number++
			return s.number, nil
		},
	}
	if renews {
		k.Renew = func(_ context.Context, before int) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.renewals++
			if s.down != nil {
				return 0, s.down
			}
			if s.refusesRenewal {
				return 0, ErrRefused
			}
			s.number = before + 1
			return s.number, nil
		}
	}
	return k
}

// call is accepted in the newest session alone.
func (s *service) call(number int) error {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.number {
		return fmt.Errorf("session %d: %w", number, ErrEnded)
	}
	return nil
}

func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
}

func bubble(t *testing.T, renews bool, test func(t *testing.T, s *service, k *Keeper[string, int])) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{password: "right", typed: "right"}
		test(t, s, s.keeper(renews))
	})
}

func TestOneLoginForAll(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		all := func() {
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { assert.NoError(t, k.Do(t.Context(), s.call)) })
			}
			group.Wait()
		}
		all()
		assert.Equal(t, 1, s.logins)
		s.end()
		all()
		assert.Equal(t, 2, s.logins)
	})
}

func TestRefusedCredentialsAreNotRepeated(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		s.typed = "wrong"
		for range 50 {
			require.ErrorIs(t, k.Do(t.Context(), s.call), ErrRefused)
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, s.logins, "in a minute")
		for range 60 {
			require.Error(t, k.Do(t.Context(), s.call))
			time.Sleep(time.Minute)
		}
		assert.LessOrEqual(t, s.logins, 10, "in an hour")
		before := s.logins
		s.typed = "right"
		require.NoError(t, k.Do(t.Context(), s.call), "others are tried at once")
		assert.Equal(t, before+1, s.logins)
	})
}

// TestFailuresAreNoRefusals: they are tried again at the next call.
func TestFailuresAreNoRefusals(t *testing.T) {
	bubble(t, true, func(t *testing.T, s *service, k *Keeper[string, int]) {
		s.down = errors.New("down")
		require.Error(t, k.Do(t.Context(), s.call))
		require.Error(t, k.Do(t.Context(), s.call))
		assert.Equal(t, 2, s.logins)
		s.down = nil
		require.NoError(t, k.Do(t.Context(), s.call))
		s.end()
		s.down = errors.New("down")
		require.Error(t, k.Do(t.Context(), s.call))
		s.down = nil
		require.NoError(t, k.Do(t.Context(), s.call))
		assert.Equal(t, []int{3, 2}, []int{s.logins, s.renewals}, "a renewal that failed is tried again")
	})
}

func TestSessionThatAlwaysEnds(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		require.ErrorIs(t, k.Do(t.Context(), func(int) error { return ErrEnded }), ErrEnded)
		assert.Equal(t, 2, s.logins, "one login, and one more")
	})
}

func TestRenewal(t *testing.T) {
	bubble(t, true, func(t *testing.T, s *service, k *Keeper[string, int]) {
		require.NoError(t, k.Do(t.Context(), s.call))
		s.end()
		require.NoError(t, k.Do(t.Context(), s.call))
		assert.Equal(t, []int{1, 1}, []int{s.logins, s.renewals})
		s.end()
		s.refusesRenewal = true
		require.NoError(t, k.Do(t.Context(), s.call))
		assert.Equal(t, []int{2, 2}, []int{s.logins, s.renewals}, "a refused one is followed by a login")
		assert.NotZero(t, k.Take())
		assert.Zero(t, k.Take())
	})
}

func TestWaitingForALoginEndsWithTheCaller(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		go func() { _ = k.Do(t.Context(), s.call) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, k.Do(ctx, s.call), context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
	})
}
