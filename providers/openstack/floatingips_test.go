package openstack

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
