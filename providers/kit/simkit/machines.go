package simkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Machines are the virtual machines of a cloud, which embeds them. They implement what Cloud wants of one that has nothing else; other
// clouds have methods of their own in the place of some.
type Machines[K comparable, V any] struct {
	// Lock guards the machines, and the rest of the cloud's state.
	Lock sync.Locker
	// VMs is for whoever holds the lock.
	VMs Table[K, V]
	// About describes a machine. Status is where its status stands; On and Off are those of a running and a powered-off one.
	About   func(*V) Instance
	Status  func(*V) *string
	On, Off string
	// Make creates a running machine.
	Make func(name string)
	// Removed is told of each machine that was removed, and Changed of every change, by whoever holds the lock; both may be nil.
	Removed func(*V)
	Changed func()

	// seeded is the latest one that Seed made.
	seeded Instance
}

func (m *Machines[K, V]) write(f func()) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	f()
	if m.Changed != nil {
		m.Changed()
	}
}

// Change changes the machine with an ID, if there is one.
func (m *Machines[K, V]) Change(id K, change func(*V)) (err error) {
	m.write(func() {
		if v := m.VMs.ByID[id]; v != nil {
			change(v)
		} else {
			err = fmt.Errorf("there is no virtual machine %v", id)
		}
	})
	return err
}

// Edit is Change for a machine that must be there.
func (m *Machines[K, V]) Edit(id K, change func(*V)) {
	if err := m.Change(id, change); err != nil {
		panic(err)
	}
}

// List returns copies of all machines.
func (m *Machines[K, V]) List() []V {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	list := make([]V, len(m.VMs.Order))
	for i, v := range m.VMs.All() {
		list[i] = *v
	}
	return list
}

// Remove removes the machine with an ID, if there is one.
func (m *Machines[K, V]) Remove(id K) { m.write(func() { m.RemoveLocked(id) }) }

// RemoveLocked is Remove for whoever holds the lock.
func (m *Machines[K, V]) RemoveLocked(id K) {
	v := m.VMs.ByID[id]
	m.VMs.Remove(id)
	if v != nil && m.Removed != nil {
		m.Removed(v)
	}
}

// RemoveAll removes all machines.
func (m *Machines[K, V]) RemoveAll() {
	m.write(func() {
		for _, id := range slices.Clone(m.VMs.Order) {
			m.RemoveLocked(id)
		}
	})
}

// SetStatus changes the status of the machine with an ID, if there is one.
func (m *Machines[K, V]) SetStatus(id K, status string) error {
	return m.Change(id, func(v *V) { *m.Status(v) = status })
}

// State implements Cloud.
func (m *Machines[K, V]) State() json.RawMessage {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	return Snapshot(map[string]any{"vms": m.VMs.All()})
}

// Seed implements Cloud. The name of a machine that was removed does not come again.
func (m *Machines[K, V]) Seed(n int) {
	SeedNodes(n, append(m.Instances(), m.seeded), func(name string, _ int) {
		m.Make(name)
		m.Lock.Lock()
		defer m.Lock.Unlock()
		m.seeded.Name = name
	})
}

// Instances implements Cloud.
func (m *Machines[K, V]) Instances() []Instance {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	list := make([]Instance, len(m.VMs.Order))
	for i, v := range m.VMs.All() {
		list[i] = m.About(v)
	}
	return list
}

// RemoveInstance implements Cloud.
func (m *Machines[K, V]) RemoveInstance(name string) error {
	err := errors.New("there is no virtual machine " + name)
	m.write(func() {
		for id, v := range m.VMs.ByID {
			if m.About(v).Name == name {
				m.RemoveLocked(id)
				err = nil
			}
		}
	})
	return err
}

// Holdings implements Cloud: there are no objects for Services.
func (*Machines[K, V]) Holdings() []string { return []string{} }

// Environment implements Cloud: the cloud config is enough.
func (*Machines[K, V]) Environment(string) map[string]string { return map[string]string{} }

// RateHeaders implements Cloud: there are none.
func (*Machines[K, V]) RateHeaders(http.Header, int, int, time.Time) {}

// Actions implements Cloud.
func (m *Machines[K, V]) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{"power-off": SetStatus(m.SetStatus, m.Off), "power-on": SetStatus(m.SetStatus, m.On)}
}

// SeedNodes has n machines added: node-1 and so on, after those that are there.
func SeedNodes(n int, there []Instance, add func(name string, number int)) {
	from := 0
	for _, i := range there {
		number, _ := strconv.Atoi(strings.TrimPrefix(i.Name, "node-")) // 0 where it has another name
		from = max(from, number)
	}
	for i := range n {
		add("node-"+strconv.Itoa(from+i+1), from+i)
	}
}

// RemoveNamed removes the machine of a name, by its provider ID.
func RemoveNamed(name string, there []Instance, remove func(providerID string) error) error {
	at := slices.IndexFunc(there, func(i Instance) bool { return i.Name == name })
	if at < 0 {
		return errors.New("there is no machine named " + name)
	}
	return remove(there[at].ProviderID)
}
