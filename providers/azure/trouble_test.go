package azure

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestForeignWriteMeanwhile: what somebody else writes between our read and our write is kept, also when that happens again and again.
func TestForeignWriteMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		id := lbID("kubernetes")
		for i := range 3 {
			w.sim.Meanwhile(id, func(lb map[string]any) {
				tags, _ := lb["tags"].(doc)
				lb["tags"] = asDoc(tagsOf(doc{"tags": tags}))
				lb["tags"].(doc)[fmt.Sprintf("by-hand-%d", i)] = "kept"
				rules := append(docs(lb, "properties", "outboundRules"), part(fmt.Sprintf("out-%d", i), doc{
					"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", base)},
				}))
				setList(lb, "outboundRules", rules)
			})
		}
		w.sim.Meanwhile(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), func(group map[string]any) {
			admin := leftAllow("IPv4", "", 501, "Tcp", "*", "*", "22")
			admin["name"] = "admin"
			setList(group, "securityRules", append(docs(group, "properties", "securityRules"), admin))
		})
		w.change(s, func(s *v1.Service) {
			s.Annotations[annotationIdle], s.Annotations[annotationAllowedRanges] = "30", "10.0.0.0/8"
		})
		w.server.ResetCalls()
		w.ensure(s)
		assert.Equal(w, 4, w.server.Calls().ByOperation["PUT Microsoft.Network/loadBalancers/{name}"], "three times somebody else was quicker")
		tags := tagsOf(w.sim.Shown(id))
		for i := range 3 {
			assert.Equal(w, "kept", tags[fmt.Sprintf("by-hand-%d", i)])
		}
		assert.Len(w, w.parts("kubernetes", "outboundRules"), 3)
		assert.Equal(w, 30, num(w.parts("kubernetes", "loadBalancingRules")[0], "properties", "idleTimeoutInMinutes"))
		assert.NotNil(w, byName(w.securityRules(), "admin"))
		assert.Len(w, w.securityRules(), 2)
	})
}

// TestTwoWriters: two programs that write the same load balancer and security group at the same time lose nothing of each other's.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	first, second := webService(nil), webNumber(1, map[string]string{annotationAllowedRanges: "10.0.0.0/8"})
	withNode(t, first, func(w *world) {
		w.Apply(second)
		one := w.cloud
		w.restart()
		var all sync.WaitGroup
		for c, s := range map[*cloud]*v1.Service{one: first, w.cloud: second} {
			all.Go(func() {
				for range 5 { // what was refused for the other's write is tried again, as the framework does
					if _, err := c.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes); err == nil {
						return
					}
					time.Sleep(10 * time.Second)
				}
				assert.Fail(w, s.Name+" is not served")
			})
		}
		all.Wait()
		assert.ElementsMatch(w, []string{base, baseName(second)}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
		assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), 2)
		assert.Len(w, w.securityRules(), 2)
	})
}

// TestFailedWork: what Azure says about work that failed is the error, and the next try does it, for every kind of resource.
func TestFailedWork(t *testing.T) {
	t.Parallel()
	groupID := azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)
	for _, kind := range []string{"loadBalancers", "publicIPAddresses", "networkSecurityGroups", "privateLinkServices"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			if kind == "privateLinkServices" {
				s = linked(nil)
			}
			withNode(t, s, func(w *world) {
				w.sim.Fail("Microsoft.Network/"+kind, "SubscriptionIsOverQuota", "no more "+kind)
				require.ErrorContains(w, w.refuse(s), "no more "+kind)
				w.ensure(s)
				for _, id := range []string{lbID("kubernetes"), lbID("kubernetes-internal"), pipID(webPIP), linkID("pls-" + base), groupID} {
					if shown := w.sim.Shown(id); shown != nil {
						assert.Equal(w, "Succeeded", str(shown, "properties", "provisioningState"), id)
					}
				}
				time.Sleep(time.Minute) // what was asked for may still come to be
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// TestSlowWork: work that is in progress for several polls, whose polls fail, and during which the program starts again.
func TestSlowWork(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]*simkit.Fault{
		"slow":      nil,
		"not found": {Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "GET operation", Count: 2},
		"broken":    {Kind: simkit.FaultStatus, Status: http.StatusBadGateway, Operation: "GET operation", Count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.sim.SetActivation(40 * time.Second)
				if fault != nil {
					_, err := w.server.AddFault(*fault)
					require.NoError(w, err)
				}
				w.server.ResetCalls()
				w.tryOften(s)
				polls := w.server.Calls().ByOperation["GET operation"]
				assert.Greater(w, polls, 8, "in progress for several polls each")
				assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), 1)
				assert.Equal(w, 1, w.server.Calls().ByOperation["PUT Microsoft.Network/networkSecurityGroups/{name}"])
			})
		})
	}
	t.Run("restart in the middle", func(t *testing.T) {
		t.Parallel()
		for _, after := range []time.Duration{time.Second, 30 * time.Second, 70 * time.Second, 110 * time.Second} {
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.sim.SetActivation(40 * time.Second)
				old := w.cloud
				var all sync.WaitGroup
				all.Go(func() { _, _ = old.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes) })
				time.Sleep(after)
				w.restart()
				w.tryOften(s)
				all.Wait()
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		}
	})
}

// tryOften serves a Service as the framework does: an error is tried again.
func (w *world) tryOften(s *v1.Service) {
	w.Helper()
	var err error
	for range 10 {
		var status *v1.LoadBalancerStatus
		if status, err = w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes); err == nil {
			w.SetStatus(s, status)
			return
		}
		time.Sleep(10 * time.Second)
	}
	require.NoError(w, err)
}

// TestThrottled: a short pause is waited for, while everything else goes on; a long one is an error at once, and no loop.
func TestThrottled(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 5, Operation: "GET Microsoft.Network/loadBalancers", Count: 1})
		require.NoError(w, err)
		began := time.Now()
		w.ensure(s)
		assert.GreaterOrEqual(w, time.Since(began), 5*time.Second, "it waits as long as it is told")
		assert.Less(w, time.Since(began), time.Minute)
		w.restart()
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 600, Operation: "GET Microsoft.Network/loadBalancers"})
		require.NoError(w, err)
		w.server.ResetCalls()
		require.Error(w, w.refuse(s))
		assert.LessOrEqual(w, w.server.Calls().Total, 10, "%v", w.server.Calls().ByOperation)
		began = time.Now()
		exists, err := w.cloud.instances.InstanceExists(w.Context(), w.nodes[0])
		require.NoError(w, err)
		assert.True(w, exists, "machines are another provider of Azure, which has not refused anything")
		assert.Less(w, time.Since(began), 5*time.Second)
	})
}

// TestScaleSetComesBackMeanwhile: a scale set that has a pool again when its load balancer is deleted is asked once more.
func TestScaleSetComesBackMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.sim.Refuse("DELETE Microsoft.Network/loadBalancers", http.StatusBadRequest, codeInUse, "Cannot delete load balancer kubernetes since its child "+
			"resources kubernetes are in use by virtual machine scale set /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x.")
		w.server.ResetCalls()
		w.remove(s)
		assert.Equal(w, 2, w.server.Calls().ByOperation["DELETE Microsoft.Network/loadBalancers/{name}"])
		assert.NotContains(w, w.sim.Snapshot(), "model of", "no scale set has a pool that is not there")
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestNodeThatWentUnseen: where floating IP is off, rules name the nodes; one that went while the program did not run leaves them, and the
// address of another cluster's machine stays.
func TestNodeThatWentUnseen(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		second := w.join("n2")
		foreign := w.sim.AddMachine("other-cluster")
		w.ensure(s)
		addresses := func() []string { return destinationsOf(w.securityRules()[0]) }
		theirs := str(docs(w.sim.Shown(azuresim.ID("Microsoft.Network/networkInterfaces", "other-cluster-nic")), "properties", "ipConfigurations")[0],
			"properties", "privateIPAddress")
		require.NotEmpty(w, theirs, foreign)
		gone := internalIP(second, false)
		group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
		rule := docs(group, "properties", "securityRules")[0]
		setPlural(props(rule), "destinationAddressPrefix", "destinationAddressPrefixes", append(addresses(), theirs))
		w.sim.Leave(str(group, "id"), group)

		require.NoError(w, w.sim.RemoveByID(second.Spec.ProviderID))
		w.nodes, w.known = w.nodes[:1], w.known[:1]
		w.restart()
		w.ensure(s)
		assert.ElementsMatch(w, []string{internalIP(w.nodes[0], false), theirs}, addresses(), "%s is free", gone)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes)
		w.restart()
		w.remove(s)
		assert.Equal(w, []string{theirs}, addresses())
	})
}

// TestNodeThatWentBeforeItsService: the Service goes as well before the program knows of either.
func TestNodeThatWentBeforeItsService(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		second := w.join("n2")
		w.ensure(s)
		require.NoError(w, w.sim.RemoveByID(second.Spec.ProviderID))
		w.nodes, w.known = w.nodes[:1], w.known[:1]
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET Microsoft.Network/virtualNetworks/{name}", Count: 1})
		require.NoError(w, err)
		w.ensure(s)
		assert.Len(w, destinationsOf(w.securityRules()[0]), 2, "a credential that may not ask leaves it")
		w.restart()
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

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
