package vsphere

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

// followed starts the provider and waits until changes are followed.
func (w *testWorld) followed(n string) {
	w.Helper()
	w.start()
	_, err := w.Metadata(conformance.NewNode(n, ""))
	require.NoError(w, err)
	w.Later()
	require.NotNil(w, w.changes(), "changes are followed")
	w.servers[0].ResetCalls()
}

func (w *testWorld) changes() *tracker {
	v := w.cloud.api.vcenters[0]
	v.mu.Lock()
	s := v.session
	v.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.currentTracker()
}

// countCalls are the calls for changes and those of full listings.
func (w *testWorld) countCalls() []int {
	calls := w.servers[0].Calls().ByOperation
	return []int{calls[vspheresim.Changes], calls[vspheresim.Listing]}
}

// TestChangesInsteadOfListings: what has changed is asked for by one call, whatever it was.
func TestChangesInsteadOfListings(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		sim := w.sims[0]
		for i := range 150 {
			sim.Add(vspheresim.Spec{Name: fmt.Sprintf("other-%d", i)})
		}
		m := sim.Add(vspheresim.Spec{Name: "worker"})
		w.followed("worker")
		for what, change := range map[string]func(){
			"nothing":       func() {},
			"other guest":   func() { sim.Edit(m, func(vm *mo.VirtualMachine) { vm.Guest.HostName = "Worker" }) },
			"a new machine": func() { sim.Add(vspheresim.Spec{Name: "new"}) },
		} {
			w.Later()
			w.servers[0].ResetCalls()
			change()
			got, err := w.Metadata(conformance.NewNode("worker", ""))
			require.NoError(w, err)
			assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID)
			most := 1
			if what == "a new machine" {
				most = 2 // govmomi's simulator tells all others again then
			}
			assert.LessOrEqual(w, w.calls(), most, "%s: %v", what, w.servers[0].Calls().ByOperation)
			assert.Equal(w, w.calls(), w.countCalls()[0], what)
		}
		w.Later()
		got, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, "Worker", got.NodeAddresses[0].Address)
		_, err = w.Metadata(conformance.NewNode("new", ""))
		require.NoError(w, err)
		sim.PowerOff(m)
		w.Later()
		assert.True(w, w.ShutDown(nodeOf(m)))
		assert.Zero(w, w.countCalls()[1])
		w.requireNothingRefused()
	})
}

// TestChangesAreNoProofOfAbsence: that a machine has left the view is what lost rights look like, too.
func TestChangesAreNoProofOfAbsence(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "other"})
		hidden := w.sims[0].Add(vspheresim.Spec{Name: "hidden"})
		destroyed := w.sims[0].Add(vspheresim.Spec{Name: "destroyed"})
		w.followed("other")
		w.sims[0].Destroy(destroyed)
		w.Later()
		w.RequireGone(nodeOf(destroyed))
		assert.Equal(w, 1, w.countCalls()[1], "everything was listed for the proof")
		w.sims[0].Hide(hidden)
		w.Later()
		w.RequireDoubt(nodeOf(hidden), "NoPermission")
		w.requireNothingRefused()
	})
}

// TestLostChangesMeanAFullListing, and then changes again.
func TestLostChangesMeanAFullListing(t *testing.T) {
	for name, lose := range map[string]func(w *testWorld){
		"version": func(w *testWorld) { w.sims[0].LoseVersion() },
		"answer": func(w *testWorld) {
			w.fail(simkit.Fault{Kind: simkit.FaultLost, Operation: vspheresim.Changes, Count: 1})
		},
		"refused": func(w *testWorld) {
			w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 503, Operation: vspheresim.Changes, Count: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "", nil, func(w *testWorld) {
				m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
				w.followed("worker")
				w.sims[0].Edit(m, func(vm *mo.VirtualMachine) { vm.Guest.HostName = "WORKER" })
				lose(w)
				got, err := w.Metadata(conformance.NewNode("worker", ""))
				require.NoError(w, err)
				assert.Equal(w, "WORKER", got.NodeAddresses[0].Address)
				assert.Equal(w, []int{1, 1}, w.countCalls(), "%v", w.servers[0].Calls().ByOperation)
				time.Sleep(trackDelay + time.Second)
				require.NotNil(w, w.changes())
				assert.Equal(w, 1, w.servers[0].Calls().ByOperation["DestroyPropertyCollector"], "nothing is left in vCenter")
				w.servers[0].ResetCalls()
				w.Later()
				_, err = w.Metadata(conformance.NewNode("worker", ""))
				require.NoError(w, err)
				assert.Equal(w, []int{1, 0}, w.countCalls())
			})
		})
	}
}

// TestSessionThatEndsTakesItsChangesAlong: one login, and a full listing.
func TestSessionThatEndsTakesItsChangesAlong(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.followed("worker")
		w.sims[0].EndSessions()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		calls := w.servers[0].Calls().ByOperation
		assert.Equal(w, []int{1, 1}, []int{calls["Login"], calls["CreateContainerView"]})
		assert.Nil(w, w.changes())
		time.Sleep(trackDelay + time.Second)
		require.NotNil(w, w.changes())
	})
}

// TestChangesAreCheckedByAListing from time to time, in case vCenter has not told one.
func TestChangesAreCheckedByAListing(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.followed("worker")
		for range 30 {
			w.Later()
			_, err := w.Metadata(conformance.NewNode("worker", ""))
			require.NoError(w, err)
		}
		asked := w.countCalls()
		assert.InDelta(w, time.Hour/fullAge, asked[1], 1, "%v", asked)
		assert.Equal(w, 30, asked[0]+asked[1])
	})
}

// TestProgramsThatDoNotLeadFollowNothing: plan and validate end after a few questions.
func TestProgramsThatDoNotLeadFollowNothing(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.cloud.api.vcenters[0].stop = nil
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		w.Later()
		assert.Nil(w, w.changes())
	})
}

// TestChangedProperties holds how a change of properties is understood, in the ways in which vCenter may tell it.
func TestChangedProperties(t *testing.T) {
	t.Parallel()
	ref := types.ManagedObjectReference{Type: kindMachine, Value: "vm-1"}
	before := types.ObjectContent{Obj: ref, PropSet: []types.DynamicProperty{
		{Name: "name", Val: "a"}, {Name: "config.uuid", Val: "u"}, {Name: extraMetadata, Val: "m"}, {Name: "guest.hostName", Val: "h"},
	}}
	names := func(o types.ObjectContent) (list []string) {
		for _, p := range o.PropSet {
			list = append(list, p.Name+"="+p.Val.(string))
		}
		for _, m := range o.MissingSet {
			list = append(list, "!"+m.Path)
		}
		return list
	}
	for name, c := range map[string]struct {
		change  types.PropertyChange
		missing string
		want    []string
	}{
		"assigned": {
			types.PropertyChange{Name: "name", Op: "assign", Val: "b"},
			"",
			[]string{"config.uuid=u", extraMetadata + "=m", "guest.hostName=h", "name=b"},
		},
		"removed":         {types.PropertyChange{Name: "guest.hostName", Op: "remove"}, "", []string{"name=a", "config.uuid=u", extraMetadata + "=m"}},
		"what it was in":  {types.PropertyChange{Name: "config", Op: "indirectRemove"}, "", []string{"name=a", "guest.hostName=h"}},
		"assigned to nil": {types.PropertyChange{Name: "config", Op: "assign"}, "", []string{"name=a", "guest.hostName=h"}},
		"refused":         {types.PropertyChange{Name: "name", Op: "remove"}, "config.uuid", []string{extraMetadata + "=m", "guest.hostName=h", "!config.uuid"}},
	} {
		u := types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: ref, ChangeSet: []types.PropertyChange{c.change}}
		if c.missing != "" {
			u.MissingSet = []types.MissingProperty{{Path: c.missing}}
		}
		after, err := applyUpdate(before, u)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, names(after), name)
	}
	for _, bad := range []types.PropertyChange{{Name: "name", Op: "add", Val: "b"}, {Name: "guest", Op: "assign", Val: types.GuestInfo{}}} {
		_, err := applyUpdate(before, types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: ref, ChangeSet: []types.PropertyChange{bad}})
		assert.Error(t, err, "%v", bad)
	}
	assert.Len(t, before.PropSet, 4, "what was read stays as it was")
	require.ErrorContains(t, newTracker(ref).update(types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: ref}), "not known")
}
