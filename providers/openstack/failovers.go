package openstack

import (
	"sync"
	"time"
)

// failoverPause keeps failovers that do not help from following each other.
const failoverPause = 10 * time.Minute

// failovers knows when each load balancer was failed over last.
type failovers struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// may reports whether a failover of a load balancer may be ordered now, and notes that it was.
func (f *failovers) may(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last[id]) < failoverPause {
		return false
	}
	f.last[id] = time.Now()
	return true
}
