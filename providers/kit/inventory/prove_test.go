package inventory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// TestProve: absence is believed of a complete listing alone which began after the question, and of which nobody says that it proves
// nothing.
func TestProve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listed, broken := []int{1, 2}, error(nil)
		i := New(Source[int, int]{Kind: "proved test object", ID: func(v int) int { return v }, List: func(context.Context) ([]int, int, error) {
			return listed, 1, broken
		}})
		var doubt error
		prove := func(id int) error {
			time.Sleep(time.Second)
			return i.Prove(t.Context(), id, func([]int) error { return doubt })
		}
		require.ErrorIs(t, prove(3), cloudapi.ErrNotFound)
		listed = append(listed, 3)
		err := prove(3)
		require.ErrorContains(t, err, "it is not found, and yet it is listed", "what was listed before counts for nothing")
		require.NotErrorIs(t, err, cloudapi.ErrNotFound)
		doubt = errors.New("nothing else is seen")
		err = prove(4)
		require.ErrorContains(t, err, "nothing else is seen")
		require.NotErrorIs(t, err, cloudapi.ErrNotFound)
		doubt, broken = nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "the page"}
		err = prove(4)
		require.ErrorContains(t, err, "does not prove that it is gone")
		require.NotErrorIs(t, err, cloudapi.ErrNotFound, "a listing that is not found")
	})
}
