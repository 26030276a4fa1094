package azure

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// serveServices are Services with a load balancer, and nodes behind it.
func (w *world) serveServices(services, nodes int) (list []*v1.Service) {
	w.Helper()
	for i := range nodes {
		w.join(fmt.Sprintf("n%d", i+1))
	}
	for i := range services {
		list = append(list, webNumber(i, nil))
	}
	w.Apply(list...)
	w.together(list, w.ensure)
	return list
}

// together does something for all Services at the same time.
func (w *world) together(list []*v1.Service, do func(*v1.Service) *v1.Service) {
	var all sync.WaitGroup
	for _, s := range list {
		all.Go(func() { do(s) })
	}
	all.Wait()
}

// TestUnchangedServicesShareReads: Services that are as they should be cost no write, and their reads are those of one.
func TestUnchangedServicesShareReads(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		list := w.serveServices(20, 2)
		w.restart()
		w.server.ResetCalls()
		for _, s := range list {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes, "%v", calls.ByOperation)
		assert.Equal(t, map[string]int{
			"GET Microsoft.Network/loadBalancers": 1, "GET Microsoft.Network/publicIPAddresses": 1, "GET Microsoft.Network/networkSecurityGroups/{name}": 1,
		}, callsOf(calls, "Microsoft.Network"), "one look for all")
		w.server.ResetCalls()
		w.together(list, w.ensure)
		assert.Zero(t, w.server.Calls().Total, "%v", w.server.Calls().ByOperation)
	})
}

// callsOf are the calls of a provider of Azure.
func callsOf(calls simkit.Calls, namespace string) map[string]int {
	found := map[string]int{}
	for operation, n := range calls.ByOperation {
		if strings.Contains(operation, " "+namespace+"/") {
			found[operation] = n
		}
	}
	return found
}

// TestWaitingServicesAreWrittenTogether: whatever waits while the shared documents are being written goes out with the next write.
func TestWaitingServicesAreWrittenTogether(t *testing.T) {
	t.Parallel()
	const services = 30
	inWorld(t, func(w *world) {
		var list []*v1.Service
		for i := range services {
			list = append(list, webNumber(i, nil))
		}
		for i := range 2 {
			w.join(fmt.Sprintf("n%d", i+1))
		}
		w.Apply(list...)
		w.server.ResetCalls()
		w.together(list, w.ensure)
		calls := w.server.Calls()
		assert.Equal(t, services, calls.ByOperation["PUT Microsoft.Network/publicIPAddresses/{name}"], "each its own address")
		assert.LessOrEqual(t, calls.ByOperation["PUT Microsoft.Network/loadBalancers/{name}"], 4, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.ByOperation["PUT Microsoft.Network/networkSecurityGroups/{name}"], 4, "%v", calls.ByOperation)
		assert.Equal(t, 1, calls.ByOperation["PUT Microsoft.Compute/virtualMachineScaleSets/{name}"], "the model once")
		assert.Equal(t, 2, calls.ByOperation["PUT Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{name}"], "each machine once")
		assert.Empty(t, calls.Refused)

		// A change of all of them at once, and their deletion, are as few writes of the shared documents.
		for _, s := range list {
			w.change(s, func(s *v1.Service) { s.Annotations[annotationIdle] = "30" })
		}
		w.server.ResetCalls()
		w.together(list, w.ensure)
		calls = w.server.Calls()
		assert.LessOrEqual(t, calls.Writes, 2, "%v", calls.ByOperation)
		w.server.ResetCalls()
		w.together(list, func(s *v1.Service) *v1.Service { w.remove(s); return s })
		calls = w.server.Calls()
		assert.LessOrEqual(t, calls.ByOperation["PUT Microsoft.Network/loadBalancers/{name}"]+calls.ByOperation["DELETE Microsoft.Network/loadBalancers/{name}"], 4, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.ByOperation["PUT Microsoft.Network/networkSecurityGroups/{name}"], 4, "%v", calls.ByOperation)
		assert.Empty(t, w.sim.Snapshot())
	})
}

// TestJoiningNode: a node that joins a cluster with many Services is one pass over the shared pool, whether its machine comes with the
// pool already or not.
func TestJoiningNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		list := w.serveServices(40, 3)
		w.join("n4") // the model has the pool
		w.server.ResetCalls()
		w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.Reads, 10, "%v", calls.ByOperation)

		w.joinAs("alone", w.sim.AddMachine("alone"))
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
		calls = w.server.Calls()
		assert.Equal(t, 1, calls.Writes, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.Reads, 20, "%v", calls.ByOperation)
		w.server.ResetCalls()
		for _, s := range list { // one after the other, too
			w.update(s)
		}
		assert.Zero(t, w.server.Calls().Writes)
		assert.LessOrEqual(t, w.server.Calls().Reads, 3, "%v", w.server.Calls().ByOperation)
	})
}

// TestServiceCostsAreConstantInNodes: what a Service costs does not depend on how many nodes have the pool already.
func TestServiceCostsAreConstantInNodes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		list := w.serveServices(1, 2)
		for i := range 300 {
			w.join(fmt.Sprintf("more%d", i))
		}
		w.restart()
		w.server.ResetCalls()
		w.ensure(list[0])
		w.update(list[0])
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes)
		assert.LessOrEqual(t, calls.Total, 6, "%v", calls.ByOperation)
	})
}

// TestUnreadMembersPlanNothing: while it is not known whose the members of a pool are, nothing is planned or written about them.
func TestUnreadMembersPlanNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.joinAs("alone", w.sim.AddMachine("alone"))
		s := webService(nil)
		w.Apply(s)
		w.ensure(s)
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET Microsoft.Network/networkInterfaces"})
		require.NoError(t, err)
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET Microsoft.Network/networkInterfaces/{name}"})
		require.NoError(t, err)
		plan, err := w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), clusterName, s, w.nodes)
		require.ErrorContains(t, err, "network interface")
		assert.Empty(t, plan.Changes)
		w.server.ClearFaults()
		plan, err = w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), clusterName, s, w.nodes)
		require.NoError(t, err)
		assert.Empty(t, plan.Changes)
	})
}
