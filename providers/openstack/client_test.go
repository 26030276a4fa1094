package openstack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestSilentKeystone: a login has a deadline, the first one and every later one.
func TestSilentKeystone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "[Metadata]\nrequest-timeout = 1s\n", nil)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultHang, Operation: "/auth/tokens"})
		require.NoError(t, err)
		began := time.Now()
		err = w.CheckAPI(t.Context())
		require.ErrorContains(t, err, "no answer within 1s")
		assert.Less(t, time.Since(began), loginTimeout)
		w.server.ClearFaults()
		w.restart()
		require.NoError(t, w.CheckAPI(t.Context()))
		w.sim.RevokeTokens()
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultHang, Operation: "/auth/tokens"})
		require.NoError(t, err)
		_, _, err = w.api.listServers(t.Context())
		require.ErrorContains(t, err, "no answer within 1s")
	})
}
