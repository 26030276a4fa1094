package rescue

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func crash() (err error) {
	defer Into(&err, "reading a thing")
	var nothing *int
	*nothing = 1
	return nil
}

func TestAPanicBecomesAnError(t *testing.T) {
	assert.ErrorIs(t, crash(), ErrCrashed)
	assert.ErrorContains(t, crash(), "reading a thing")
}

func TestAPanicEndsItsGoroutineAlone(t *testing.T) {
	done := make(chan struct{})
	Go("a loop", func() {
		defer close(done)
		panic("the end")
	})
	<-done
}
