package waiting

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

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// operation is the cloud's asynchronous work on a change, which succeeds or fails.
type operation struct {
	status string
	ends   time.Time
	err    error
}

func (o operation) ended() bool { return o.status != "RUNNING" }

// TestOperations: operations that cannot be listed are looked at one by one, all of them at each look, and each caller gets the end of
// its own: done, failed, or unknown to the cloud.
func TestOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no address is free")
		operations := map[string]operation{
			"quick": {"DONE", time.Now().Add(2500 * time.Millisecond), nil}, "slow": {"DONE", time.Now().Add(20 * time.Second), nil},
			"bad": {"FAILED", time.Now().Add(5 * time.Second), failed},
		}
		reads := 0
		var mu sync.Mutex
		room := New(Each(func(_ context.Context, id string) (operation, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			o, known := operations[id]
			switch {
			case id == "broken":
				panic("no")
			case !known:
				return o, &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: id}
			case time.Now().Before(o.ends):
				return operation{status: "RUNNING"}, nil
			}
			return o, nil
		}), Pace{})
		began := time.Now()
		var group sync.WaitGroup
		for id, most := range map[string]time.Duration{
			"quick": 3 * time.Second, "slow": 25 * time.Second, "bad": 6 * time.Second, "unknown": time.Second, "broken": time.Second,
		} {
			group.Go(func() {
				o, err := room.Until(t.Context(), id, "operation "+id, operation.ended)
				assert.LessOrEqual(t, time.Since(began), most, id)
				got := fmt.Sprint(o.status, " ", errors.Join(err, o.err))
				switch id {
				case "unknown":
					assert.ErrorIs(t, err, cloudapi.ErrNotFound)
				case "broken":
					assert.ErrorIs(t, err, errLook)
				case "bad":
					assert.Equal(t, "FAILED "+failed.Error(), got)
				default:
					assert.Equal(t, "DONE <nil>", got)
				}
			})
		}
		group.Wait()
		assert.Less(t, reads, 30)
		require.Zero(t, room.Waiting())
	})
}
