package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTokenEnds: a token is used until it expires if no other is available, one without an expiry until it is refused, and a short-lived
// one for more than one call.
func TestTokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lifetime, asked, down := time.Hour, 0, false
		tokens := Tokens[string]{Margin: 2 * time.Minute, Fetch: func(context.Context) (token string, expires time.Time, err error) {
			asked++
			if down {
				return "", expires, errors.New("nobody answers")
			}
			if lifetime > 0 {
				expires = time.Now().Add(lifetime)
			}
			return fmt.Sprint("token-", asked), expires, nil
		}}
		get := func() string {
			token, err := tokens.Get(t.Context(), "")
			if err != nil {
				return err.Error()
			}
			return token
		}
		assert.Equal(t, "token-1", get())
		down = true
		time.Sleep(59 * time.Minute)
		for range 100 {
			assert.Equal(t, "token-1", get())
		}
		assert.Equal(t, 2, asked, "whoever does not answer is not asked with each call")
		time.Sleep(time.Minute)
		assert.Equal(t, "nobody answers", get())
		down, lifetime = false, time.Minute
		assert.Equal(t, "token-4", get())
		time.Sleep(40 * time.Second)
		assert.Equal(t, "token-4", get(), "it lasts for a minute, which is less than the usual margin")
		lifetime = 0
		time.Sleep(10 * time.Second)
		assert.Equal(t, "token-5", get())
		time.Sleep(100 * time.Hour)
		assert.Equal(t, "token-5", get(), "nobody said that it ends")
		token, err := tokens.Get(t.Context(), "token-5")
		require.NoError(t, err)
		assert.Equal(t, "token-6", token, "it was refused")
		for range 10 {
			token, err = tokens.Get(t.Context(), "token-6")
			require.NoError(t, err)
			assert.Equal(t, "token-6", token, "it has just been fetched")
		}
		assert.Equal(t, 6, asked, "a token that is refused is not replaced over and over")
	})
}
