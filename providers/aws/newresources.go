package aws

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"
)

const (
	// patience is how long AWS usually takes to show new objects and to release those of a deleted load balancer. An operation waits that
	// long; after it the framework retries and reports a failure.
	patience = 3 * time.Minute
	// showsWithin is how long reads may lack what was just made.
	showsWithin = 6 * time.Second
)

// recentlyMade remembers objects that were just created: reads may lack them for a moment, which does not prove them absent.
type recentlyMade struct {
	mu   sync.Mutex
	made map[string]time.Time
}

func (n *recentlyMade) add(key string) {
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

func (n *recentlyMade) remove(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.made, key)
}

// isRecent reports whether a thing was just made.
func (n *recentlyMade) isRecent(key string) bool { return n.check(key, key) != nil }

func (n *recentlyMade) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.made)
}

func (n *recentlyMade) keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.made))
}

// check asks for more time where a thing that no read shows was just made.
func (n *recentlyMade) check(key, object string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.made[key]; ok && time.Since(at) < showsWithin {
		return cloudproviderapi.NewRetryError(fmt.Sprintf("AWS does not show %s yet, which was just made", object), groupVisiblePause)
	}
	return nil
}
