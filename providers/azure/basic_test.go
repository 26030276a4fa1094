package azure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// basicWorld has what Azure's own controller left of a basic load balancer.
func basicWorld(t *testing.T, more func(lb doc), test func(w *world, s *v1.Service)) {
	t.Helper()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		pip := leftPIP(leftIP, "sku", doc{"name": "Basic"}, "zones", nil)
		w.sim.LeaveAddress(webPIP, pip.ip, pip.doc)
		lb := doc{"location": azuresim.Location, "sku": doc{"name": "Basic"}, "properties": leftWebBalancer("kubernetes", webPIP)}
		if more != nil {
			more(lb)
		}
		w.sim.Leave(lbID("kubernetes"), lb)
		pool := azuresim.ID("Microsoft.Network/loadBalancers", "kubernetes", "backendAddressPools", "kubernetes")
		w.sim.LeaveMember(azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", azuresim.ScaleSet), pool, false)
		w.sim.LeaveMember(w.nodes[0].Spec.ProviderID, pool, false)
		w.restart()
		test(w, s)
	})
}

// TestBasicLoadBalancers: what is left of them gives way to a standard one with the same address, goes with its Service, and stays where
// somebody else has something on it.
func TestBasicLoadBalancers(t *testing.T) {
	t.Parallel()
	basicWorld(t, nil, func(w *world, s *v1.Service) {
		assert.Equal(w, leftIP, w.ensure(s).Status.LoadBalancer.Ingress[0].IP)
		assert.Equal(w, "Standard", str(w.sim.Shown(lbID("kubernetes")), "sku", "name"))
		assert.Equal(w, "Standard", str(w.sim.Shown(pipID(webPIP)), "sku", "name"))
		assert.Contains(w, w.sim.Snapshot(), "pool kubernetes member n1")
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
	basicWorld(t, nil, func(w *world, s *v1.Service) {
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot(), "it goes with its Service")
	})
	basicWorld(t, func(lb doc) {
		setList(lb, "outboundRules", []doc{part("by-hand", doc{"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", base)}})})
	}, func(w *world, s *v1.Service) {
		w.server.ResetCalls()
		err := w.refuse(s)
		require.ErrorContains(w, err, "is a basic one")
		require.ErrorContains(w, err, "outboundRules by-hand")
		assert.Zero(w, w.server.Calls().Writes)
		assert.Contains(w, strings.Join(w.Events(), "\n"), "outboundRules by-hand")
	})
}
