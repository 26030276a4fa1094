package cloudstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestAddressGivenAgain: an address that was released has the same ID when it is given again; where the answer to that is lost, it is found
// and used, and no second one is taken.
func TestAddressGivenAgain(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		first := w.served(w.serve("first", nil, port("http", 80, 30080)))
		w.remove(first)
		require.Empty(t, w.taken())
		second := w.serve("second", nil, port("http", 80, 30080))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "associateIpAddress", Count: 1})
		require.NoError(t, err)
		_, err = w.insist(second)
		require.Error(t, err)
		w.served(second)
		assert.Equal(t, []string{first.Status.LoadBalancer.Ingress[0].IP}, w.taken(), "the same address is given again")
		w.remove(second)
		assert.Empty(t, w.taken())
	})
}
