package simkit

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Machines implements most of Cloud for a cloud that has only virtual machines.
type Machines[V any] struct {
	// Tokens belong to the cloud's only user.
	Tokens
	// Lock guards the machines, and the rest of the cloud's state.
	Lock sync.Mutex
	All  []*V
	// Password is that user's.
	Password string
	// About describes a machine; IDs are provider IDs without their Prefix.
	About  func(*V) Instance
	Prefix string
	// Make creates a machine, and Set changes its state. On and Off are the states of a running and a powered-off machine.
	Make    func(name string)
	Set     func(v *V, state string)
	On, Off string
}

// Edit changes a machine.
func (m *Machines[V]) Edit(v *V, change func(*V)) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	change(v)
}

// Find returns the machine with an ID, nil where there is none.
func (m *Machines[V]) Find(id string) *V {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	return m.FindLocked(id)
}

// FindLocked is Find for whoever holds the lock.
func (m *Machines[V]) FindLocked(id string) *V {
	at := slices.IndexFunc(m.All, func(v *V) bool { return strings.EqualFold(m.About(v).ProviderID, m.Prefix+id) })
	if at < 0 {
		return nil
	}
	return m.All[at]
}

// Remove removes the machines with these IDs.
func (m *Machines[V]) Remove(ids ...string) {
	for _, id := range ids {
		m.removeEach(func(i Instance) bool { return strings.EqualFold(i.ProviderID, m.Prefix+id) })
	}
}

// RemoveAll removes all machines.
func (m *Machines[V]) RemoveAll() { m.removeEach(func(Instance) bool { return true }) }

func (m *Machines[V]) removeEach(chosen func(Instance) bool) (removed int) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	before := len(m.All)
	m.All = slices.DeleteFunc(m.All, func(v *V) bool { return chosen(m.About(v)) })
	return before - len(m.All)
}

// SetState changes the state of the machine with an ID.
func (m *Machines[V]) SetState(id, state string) error {
	v := m.Find(id)
	if v == nil {
		return errors.New("there is no virtual machine " + id)
	}
	m.Edit(v, func(v *V) { m.Set(v, state) })
	return nil
}

// SetPassword changes the only password that is accepted.
func (m *Machines[V]) SetPassword(password string) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	m.Password = password
}

// State implements Cloud.
func (m *Machines[V]) State() json.RawMessage {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	return Snapshot(map[string]any{"vms": m.All})
}

// Seed implements Cloud.
func (m *Machines[V]) Seed(n int) {
	SeedNodes(n, m.Instances(), func(name string, _ int) { m.Make(name) })
}

// Instances implements Cloud.
func (m *Machines[V]) Instances() []Instance {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	list := make([]Instance, len(m.All))
	for i, v := range m.All {
		list[i] = m.About(v)
	}
	return list
}

// RemoveInstance implements Cloud.
func (m *Machines[V]) RemoveInstance(name string) error {
	if m.removeEach(func(i Instance) bool { return i.Name == name }) == 0 {
		return errors.New("there is no virtual machine " + name)
	}
	return nil
}

// Holdings implements Cloud: there are no objects for Services.
func (*Machines[V]) Holdings() []string { return []string{} }

// Environment implements Cloud: the cloud config is enough.
func (*Machines[V]) Environment(string) map[string]string { return map[string]string{} }

// RateHeaders implements Cloud: there are none.
func (*Machines[V]) RateHeaders(http.Header, int, int, time.Time) {}

// Actions implements Cloud.
func (m *Machines[V]) Actions() map[string]func(json.RawMessage) error {
	set := func(state string) func(json.RawMessage) error {
		return func(body json.RawMessage) error {
			var in struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(body, &in); err != nil {
				return err
			}
			return m.SetState(in.ID, state)
		}
	}
	return map[string]func(json.RawMessage) error{"power-off": set(m.Off), "power-on": set(m.On)}
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
