package priority

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWhatFailsAgainAndAgainIsNotUrgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Attempts
		try := func(object string, err error) bool {
			ctx, done := a.Urgent(t.Context(), object)
			done(err)
			return IsUrgent(ctx)
		}
		broken := errors.New("quota")
		for range urgentAttempts {
			assert.True(t, try("web", broken))
		}
		assert.False(t, try("web", broken))
		assert.True(t, try("other", broken), "each object by itself")
		assert.False(t, try("web", nil))
		assert.True(t, try("web", broken), "success makes it urgent again")
		for range urgentAttempts {
			try("web", broken)
		}
		assert.False(t, try("web", broken))
		time.Sleep(attemptsMemory)
		assert.True(t, try("web", broken), "and so does time")
		try("third", broken)
		assert.Len(t, a.failed, 2, "what nobody asks about any more is forgotten")
	})
}
