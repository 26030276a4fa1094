package simkit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSeededNamesComeOnce: whoever counts the machines that were seeded knows their names, whatever was removed meanwhile.
func TestSeededNamesComeOnce(t *testing.T) {
	t.Parallel()
	var lock Mutex
	m := Machines[string, Instance]{
		Lock: &lock, About: func(i *Instance) Instance { return *i }, Status: func(i *Instance) *string { return &i.Status },
	}
	var removed []string
	m.Removed = func(i *Instance) { removed = append(removed, i.Name) }
	m.Make = func(name string) { lock.Do(func() { m.VMs.Put(name, &Instance{Name: name}) }) }
	m.Seed(3)
	require.NoError(t, m.RemoveInstance("node-3"))
	require.Error(t, m.RemoveInstance("node-3"))
	m.Remove("node-2")
	m.Seed(1)
	require.NoError(t, m.SetStatus("node-4", "off"))
	require.Error(t, m.SetStatus("node-2", "off"))
	m.Edit("node-1", func(i *Instance) { i.ProviderID = "x://1" })
	assert.Equal(t, []Instance{{Name: "node-1", ProviderID: "x://1"}, {Name: "node-4", Status: "off"}}, m.List())
	assert.Equal(t, m.List(), m.Instances())
	m.RemoveAll()
	assert.Equal(t, []string{"node-3", "node-2", "node-1", "node-4"}, removed)
	assert.Empty(t, m.List())
}
