package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

const (
	// patience is how long AWS takes in most cases to show what was made, and to let go of what a load balancer had. Within it
	// an operation waits; after it the framework comes back, which it tells as a failure.
	patience = 3 * time.Minute
	// showsWithin is how long reads may lack what was just made.
	showsWithin = 6 * time.Second
)

// patiently does something again for as long as it asks for more time.
func patiently(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := do()
		later, asks := errors.AsType[*cloudproviderapi.RetryError](err)
		if !asks || time.Now().Add(later.RetryAfter()).After(deadline) || !pause(ctx, later) {
			return err
		}
	}
}

// pause waits as long as is asked for; it returns false if the context ends before.
func pause(ctx context.Context, later *cloudproviderapi.RetryError) bool {
	defer progress.Note(ctx, later.Error())()
	timer := time.NewTimer(later.RetryAfter())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// newborns are what was just made, which reads may lack for a moment: its absence then is no absence.
type newborns struct {
	mu   sync.Mutex
	made map[string]time.Time
}

func (n *newborns) add(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made == nil {
		n.made = map[string]time.Time{}
	}
	n.made[key] = time.Now()
	for k, at := range n.made {
		if time.Since(at) > showsWithin {
			delete(n.made, k)
		}
	}
}

func (n *newborns) remove(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.made, key)
}

// has reports whether a thing was just made.
func (n *newborns) has(key string) bool { return n.check(key, key) != nil }

func (n *newborns) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.made)
}

func (n *newborns) keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.made))
}

// check returns a wish for patience where a thing that no read shows was just made.
func (n *newborns) check(key, object string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.made[key]; ok && time.Since(at) < showsWithin {
		return cloudproviderapi.NewRetryError(fmt.Sprintf("AWS does not show %s yet, which was just made", object), groupVisiblePause)
	}
	return nil
}
