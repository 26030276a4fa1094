package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
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
		Login: func(ctx context.Context, password string) (int, error) {
			s.mu.Lock()
			s.logins++
			s.mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
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

// TestEachRefusedCredentialIsRemembered: a file that changes to and fro does not have the same password sent twice within a minute.
func TestEachRefusedCredentialIsRemembered(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		for range 9 {
			for _, s.typed = range []string{"wrong", "worse"} {
				require.ErrorIs(t, k.Do(t.Context(), s.call), ErrRefused)
				time.Sleep(time.Second)
			}
		}
		assert.Equal(t, 2, s.logins, "each of them once")
		s.typed = "right"
		require.NoError(t, k.Do(t.Context(), s.call))
		s.end()
		s.typed = "wrong"
		require.ErrorIs(t, k.Do(t.Context(), s.call), ErrRefused)
		assert.Equal(t, 3, s.logins, "also after one that was accepted")
	})
}

// TestFailuresAreNoRefusals: they are tried again soon, and every renewal at the next call.
func TestFailuresAreNoRefusals(t *testing.T) {
	bubble(t, true, func(t *testing.T, s *service, k *Keeper[string, int]) {
		s.down = errors.New("down")
		require.ErrorIs(t, k.Do(t.Context(), s.call), s.down)
		require.ErrorIs(t, k.Do(t.Context(), s.call), s.down)
		assert.Equal(t, 1, s.logins)
		s.down = nil
		time.Sleep(firstFailure)
		require.NoError(t, k.Do(t.Context(), s.call))
		s.end()
		s.down = errors.New("down")
		require.Error(t, k.Do(t.Context(), s.call))
		s.down = nil
		require.NoError(t, k.Do(t.Context(), s.call))
		assert.Equal(t, []int{2, 2}, []int{s.logins, s.renewals}, "a renewal that failed is tried again")
	})
}

// TestFailedLoginIsThatOfAllWhoWait: an outage is not answered by a login for each question, of which a half of an answer may refuse each.
func TestFailedLoginIsThatOfAllWhoWait(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		s.down = errors.New("the answer breaks off")
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { assert.ErrorIs(t, k.Do(t.Context(), s.call), s.down) })
		}
		group.Wait()
		assert.Equal(t, 1, s.logins)
		for range 60 {
			require.Error(t, k.Do(t.Context(), s.call))
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, s.logins, 4, "in a minute")
		s.down = nil
		time.Sleep(maxFailure)
		require.NoError(t, k.Do(t.Context(), s.call))
	})
}

// TestLoginGoesOnWithoutItsCaller: who gives up would else leave the next one to send the same refused password again.
func TestLoginGoesOnWithoutItsCaller(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		s.typed = "wrong"
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.Error(t, k.Do(ctx, s.call))
			cancel()
		}
		time.Sleep(time.Second)
		require.ErrorIs(t, k.Do(t.Context(), s.call), ErrRefused)
		assert.Equal(t, 1, s.logins)
	})
}

// TestSessionThatAlwaysEnds: an API that gives sessions and accepts none is not asked for others all the time.
func TestSessionThatAlwaysEnds(t *testing.T) {
	for _, renews := range []bool{false, true} {
		t.Run(strconv.FormatBool(renews), func(t *testing.T) {
			bubble(t, renews, func(t *testing.T, s *service, k *Keeper[string, int]) {
				ended := func(int) error { return ErrEnded }
				require.ErrorIs(t, k.Do(t.Context(), ended), ErrEnded)
				assert.Equal(t, 2, s.logins+s.renewals, "one, and one more")
				for range 60 {
					require.ErrorIs(t, k.Do(t.Context(), ended), ErrEnded)
					time.Sleep(time.Second)
				}
				assert.LessOrEqual(t, s.logins+s.renewals, 10, "in a minute")
				time.Sleep(maxFailure)
				require.NoError(t, k.Do(t.Context(), s.call))
				assert.Empty(t, k.failed, "what is accepted clears it")
			})
		})
	}
}

// TestLoginThatCrashes ends in an error, and not in a wait without end.
func TestLoginThatCrashes(t *testing.T) {
	bubble(t, false, func(t *testing.T, s *service, k *Keeper[string, int]) {
		login := k.Login
		k.Login = func(context.Context, string) (int, error) { panic("a fault") }
		require.ErrorIs(t, k.Do(t.Context(), s.call), rescue.ErrCrashed)
		k.Login = login
		require.NoError(t, k.Do(t.Context(), s.call))
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
