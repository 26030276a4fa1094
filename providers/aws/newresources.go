package aws

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	// patience is how long AWS usually takes to show new objects and to release those of a deleted load balancer. An operation waits that
	// long; after it the framework retries and reports a failure.
	patience = 3 * time.Minute
	// showsWithin is how long reads may lack what was just made.
	showsWithin = 6 * time.Second
)

// recentlyMade remembers what was just created: reads may lack it for a moment, which does not prove it absent.
type recentlyMade[K comparable] struct {
	mu   sync.Mutex
	made map[K]time.Time
}

func (m *recentlyMade[K]) add(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		m.made = map[K]time.Time{}
	}
	maps.DeleteFunc(m.made, func(_ K, at time.Time) bool { return time.Since(at) > showsWithin })
	m.made[key] = time.Now()
}

func (m *recentlyMade[K]) remove(matches func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.made, func(key K, _ time.Time) bool { return matches(key) })
}

func (m *recentlyMade[K]) removeKey(key K) { m.remove(func(k K) bool { return k == key }) }

// keys returns what was just made, in any order.
func (m *recentlyMade[K]) keys() (keys []K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, at := range m.made {
		if time.Since(at) < showsWithin {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *recentlyMade[K]) isRecent(key K) bool { return slices.Contains(m.keys(), key) }

// check asks for more time where a thing that no read shows was just made.
func (m *recentlyMade[K]) check(key K, object string) error {
	if !m.isRecent(key) {
		return nil
	}
	return cloudproviderapi.NewRetryError(fmt.Sprintf("AWS does not show %s yet, which was just made", object), groupVisiblePause)
}

// checkMissing is check of a thing that a read may have lacked. What was not just made has gone away meanwhile.
func (m *recentlyMade[K]) checkMissing(key K, object string, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		if later := m.check(key, object); later != nil {
			return later
		}
	}
	return notAbsence(err)
}

// notAbsence keeps the absence of something that we just saw or made from being taken for an answer about the Service.
func notAbsence(err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Message: err.Error()}
	}
	return err
}
