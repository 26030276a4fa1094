package progress

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBoard(t *testing.T) {
	t.Parallel()
	Note(t.Context(), "nobody listens")()
	b := &Board{}
	ctx := With(t.Context(), b)
	assert.Empty(t, b.What())
	outer := Note(ctx, "the load balancer")
	inner := Note(ctx, "its address")
	assert.Equal(t, "its address", b.What())
	outer()
	assert.Equal(t, "its address", b.What())
	inner()
	inner()
	assert.Empty(t, b.What())
}
