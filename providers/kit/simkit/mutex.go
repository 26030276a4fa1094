package simkit

import "sync"

// Mutex guards the state of a cloud.
type Mutex struct{ sync.Mutex }

// Do calls f while the mutex is held.
func (m *Mutex) Do(f func()) {
	m.Lock()
	defer m.Unlock()
	f()
}

// Get returns what f does while the mutex is held.
func Get[T any](m *Mutex, f func() T) T {
	m.Lock()
	defer m.Unlock()
	return f()
}
