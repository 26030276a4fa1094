package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// widerRange has sourceRange inside.
const widerRange = "203.0.112.0/23"

// runWidenings: further clients are let in and the port moves on the nodes, while one of the writes is refused.
func runWidenings(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	writes := 0
	synctest.Test(t, func(t *testing.T) { writes = widenWithPort(newOthersRules(t, newFixture), 0) })
	require.NotZero(t, writes)
	for k := range writes {
		virtual(t, fmt.Sprintf("write %d is refused while a port moves and further clients come", k+1), func(t *testing.T) {
			widenWithPort(newOthersRules(t, newFixture), k+1)
		})
	}
}

// widenWithPort has a write refused, or none, and returns how many there are. A port that is still served lets in those who may connect
// before and after.
func widenWithPort(o *othersRules, refused int) (writes int) {
	ctx := o.t.Context()
	o.setRanges(o.service, sourceRange)
	o.ensure(ctx, o.service, nil)
	time.Sleep(settledIn)
	o.changeService(ctx, o.service, func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{widerRange}
		s.Spec.Ports[0].NodePort++
	})
	o.Sim.ResetCalls()
	if refused > 0 {
		o.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Writes: true, From: refused, Count: 1})
	}
	err := o.ensureToEnd(ctx, o.service)
	writes = o.Sim.Calls().Writes
	state := o.Snapshot()
	assert.True(o.t, len(o.Serves()) == 0 || strings.Contains(state, sourceRange) || strings.Contains(state, widerRange),
		"the port is served, and nobody may connect any more; the answer was: %v\n%s", err, state)
	o.ensure(ctx, o.service, func() {})
	assert.Contains(o.t, o.Snapshot(), widerRange, "another try lets them in")
	return writes
}
