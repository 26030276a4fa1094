package openstack

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestFreeAddressOfAClusterOfTheSameName: a record that an author wrote deletes no floating address.
func TestFreeAddressOfAClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		external := ""
		for _, n := range w.sim.Networks() {
			if n.External {
				external = n.ID
			}
		}
		theirs := w.sim.AddFloatingIP(external, "203.0.113.200", floatingIPDescription(w.cluster, s))
		now := w.Current(s)
		now.Annotations[annotationAddress] = "203.0.113.200"
		w.Apply(now)
		w.restart()
		require.NoError(t, w.remove(now))
		require.Len(t, w.sim.FloatingIPs(), 1)
		assert.Equal(t, theirs, w.sim.FloatingIPs()[0].ID)
	})
}

// TestFloatingAddressOfALongClusterName: the description keeps the mark where it has no room for the name of the cluster, and the address
// goes with the Service.
func TestFloatingAddressOfALongClusterName(t *testing.T) {
	t.Parallel()
	for _, length := range []int{140, 190, 250} {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.cluster = strings.Repeat("c", length)
				w.addNode(openstacksim.Spec{Name: "n1"})
				s := web(nil)
				w.Apply(s)
				s, _ = w.ensure(s)
				require.Len(t, w.sim.FloatingIPs(), 1)
				w.requireNoWrites(s)
				w.restart()
				require.NoError(t, w.remove(w.Current(s)))
				assert.Empty(t, w.sim.FloatingIPs())
			})
		})
	}
}

// TestMarkedDescription: only a description whose whole text is too long has the name of the cluster cut.
func TestMarkedDescription(t *testing.T) {
	t.Parallel()
	s := web(nil)
	s.UID = "01234567-89ab-cdef-0123-456789abcdef"
	mark := " (" + ownership.ServiceMark(s.UID) + ")"
	const most = 255
	room := most - len(wholeDescription("", s))
	for name, c := range map[string]struct {
		length, want int
		marked       bool
	}{
		"short":                 {1, 1, true},
		"room for the mark":     {room - len(mark), room - len(mark), true},
		"no room for the mark":  {room - len(mark) + 1, room - len(mark) + 1, false},
		"no room for one more":  {room, room, false},
		"no room for the whole": {room + 1, room - len(mark), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := strings.Repeat("c", c.length)
			want := wholeDescription(cluster[:c.want], s)
			if c.marked {
				want += mark
			}
			f := floatingIP{Description: markedDescription(cluster, s, true)}
			assert.Equal(t, want, f.Description)
			assert.True(t, f.namesService(cluster, s))
			plain := floatingIP{Description: markedDescription(cluster, s, false)}
			assert.Equal(t, floatingIPDescription(cluster, s), plain.Description)
			assert.True(t, plain.namesService(cluster, s))
			another := s.DeepCopy()
			another.UID = "another"
			assert.Equal(t, !c.marked, f.namesService(cluster, another))
		})
	}
}
