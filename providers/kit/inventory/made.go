package inventory

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file keeps the absence of what was just made from being believed: it is a lag of the cloud's reads.

// showPause is the pause before another look at what does not show yet.
const showPause = 2 * time.Second

// Recent remembers for some time what was just made, which reads may lack for so long. That something is not remembered proves nothing.
type Recent[K comparable] struct {
	// Within is how long; 0 remembers nothing.
	Within time.Duration
	mu     sync.Mutex
	made   map[K]time.Time
}

// Add notes what was made now.
func (m *Recent[K]) Add(key K) {
	if m.Within == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		m.made = map[K]time.Time{}
	}
	maps.DeleteFunc(m.made, func(_ K, at time.Time) bool { return time.Since(at) >= m.Within+readTimeout })
	m.made[key] = time.Now()
}

// Remove notes what was deleted.
func (m *Recent[K]) Remove(matches func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.made, func(key K, _ time.Time) bool { return matches(key) })
}

// All returns what reads that begin now may lack, in any order.
func (m *Recent[K]) All() (keys []K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, at := range m.made {
		if time.Since(at) < m.Within {
			keys = append(keys, key)
		}
	}
	return keys
}

// Has reports whether reads that begin now may lack something that was made.
func (m *Recent[K]) Has(key K) bool { return m.mayLack(key, time.Now()) }

// mayLack reports whether a read that began at a time may lack something that was made.
func (m *Recent[K]) mayLack(key K, began time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.made[key]
	return ok && began.Sub(at) < m.Within
}

// orNotShown returns the error of a single read, which asks for more time where what it did not find was just made.
func (m *Recent[K]) orNotShown(kind string, key K, err error, began time.Time) error {
	if errors.Is(err, cloudapi.ErrNotFound) && m.mayLack(key, began) {
		return cloudproviderapi.NewRetryError(fmt.Sprintf("%s %v: what was just made does not show yet", kind, key), showPause)
	}
	return err
}

// noteIfMade notes that an object was made if it is unknown before it is stored.
func noteIfMade[ID comparable](made *Recent[ID], known map[ID]entry, id ID) {
	if _, ok := known[id]; !ok {
		made.Add(id)
	}
}

// Made records that an object was made whose values are unknown. Until Source.Lag has passed, a read that does not find it asks for more
// time. Put and PutPartial do the same for an object that was unknown.
func (i *Inventory[ID, V]) Made(id ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.missing, id)
	i.made.Add(id)
}

// JustMade reports whether an object was made so recently that the cloud may not know it everywhere.
func (i *Inventory[ID, V]) JustMade(id ID) bool { return i.made.Has(id) }
