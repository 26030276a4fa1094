package waiting

import (
	"context"
	"sync"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Each returns a Look for objects that can only be read one by one, as most operations, work requests and jobs.
func Each[ID comparable, V any](get func(context.Context, ID) (V, error)) Look[ID, V] {
	return func(ctx context.Context, ids []ID) map[ID]inventory.Seen[V] {
		seen := make(map[ID]inventory.Seen[V], len(ids))
		var mu sync.Mutex
		reads := make([]func() error, len(ids))
		for i, id := range ids {
			reads[i] = func() error {
				v, err := get(ctx, id)
				mu.Lock()
				defer mu.Unlock()
				seen[id] = inventory.Seen[V]{Value: v, Err: err}
				return nil
			}
		}
		_ = Together(reads...) // a panic leaves no answer, which is an error of its own
		return seen
	}
}
