package azure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// lose takes a Service away and leaves all that it has in Azure; then everything starts again without caches, as a command does.
func (w *world) lose(list ...*v1.Service) {
	w.Helper()
	for _, s := range list {
		w.Withdraw(w.Current(s))
		require.NoError(w, w.Kube.CoreV1().Services(s.Namespace).Delete(w.Context(), s.Name, metav1.DeleteOptions{}))
	}
	w.restart()
	w.cloud.instances.nodes.SetLister(nil)
	for _, n := range w.nodes {
		_, _ = w.Kube.CoreV1().Nodes().Create(w.Context(), n, metav1.CreateOptions{}) // it may be there
	}
}

// orphans are those that the command finds.
func (w *world) orphans() []contract.Orphan {
	w.Helper()
	living, err := w.cloud.reconciler.cluster.Living(w.Context())
	require.NoError(w, err)
	found, err := w.cloud.Orphans(w.Context(), living)
	require.NoError(w, err)
	return found
}

// deleteOrphans deletes what is found until nothing is: one orphan may depend on another one.
func (w *world) deleteOrphans() {
	w.Helper()
	for range 4 {
		for _, o := range w.orphans() {
			_ = w.cloud.DeleteOrphan(w.Context(), o) // the state in the end says whether it worked
		}
	}
	require.Empty(w, w.orphans())
}

// opened are the destinations of the rules of the security group, by the names of the rules.
func (w *world) opened() map[string][]string {
	opened := map[string][]string{}
	for _, rule := range w.securityRules() {
		opened[str(rule, "name")] = destinationsOf(rule)
	}
	return opened
}

// TestOrphanLeavesTheSecurityGroup: whatever rules a Service had, its address is in none of them once the orphan is deleted, and the
// rules that it shared with living Services keep theirs.
func TestOrphanLeavesTheSecurityGroup(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"plain":          {},
		"further":        {annotationAdditional: "20.61.0.1"},
		"tags":           {annotationServiceTags: "AzureFrontDoor.Backend,Storage"},
		"ranges":         {annotationAllowedRanges: "192.0.2.0/24", annotationDenyAll: "true"},
		"internal":       {annotationInternal: "true", annotationAllowedRanges: "10.0.0.0/8"},
		"on nodes":       {annotationNoFloating: "true"},
		"on their ports": {annotationNoFloating: "true", annotationServiceTags: "Storage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			living := webNumber(1, annotations)
			withNode(t, living, func(w *world) {
				w.ensure(living)
				alone, before := w.opened(), w.sim.Snapshot()
				lost := webNumber(2, annotations)
				w.Apply(lost)
				w.ensure(lost)
				require.NotEqual(w, alone, w.opened())
				w.lose(lost)
				require.NotEmpty(w, w.orphans())
				w.deleteOrphans()
				assert.Equal(w, alone, w.opened())
				assert.Equal(w, before, w.sim.Snapshot())
				w.restart()
				w.server.ResetCalls()
				w.ensure(living)
				assert.Zero(w, w.server.Calls().Writes)
			})
		})
	}
}

// TestOrphanKeepsNodePortsOfTheLiving: a living Service may have got the node port that is free again.
func TestOrphanKeepsNodePortsOfTheLiving(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{annotationNoFloating: "true", annotationAllowedRanges: "192.0.2.0/24"}
	lost := webNumber(1, annotations)
	withNode(t, lost, func(w *world) {
		w.ensure(lost)
		w.lose(lost)
		w.restart()
		next := webNumber(2, annotations, func(s *v1.Service) { // in the other load balancer: Azure lets one of a kind have a port
			s.Annotations[annotationInternal], s.Spec.Ports[0].NodePort = "true", 30081
		})
		w.Apply(next)
		w.ensure(next)
		before := w.opened()
		require.Len(w, before, 1)
		w.lose()
		w.deleteOrphans()
		assert.Equal(w, before, w.opened())
		w.lose(next)
		w.deleteOrphans()
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestOrphanOnASharedAddress: of two Services with one address, the one that is gone loses its ports alone, whichever made the
// frontend. Its rules are listed where the frontend stays.
func TestOrphanOnASharedAddress(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		s := webService(map[string]string{annotationAllowedRanges: "192.0.2.0/24", annotationDenyAll: "true"})
		withNode(t, s, func(w *world) {
			ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
			second := webNumber(1, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
			w.Apply(second)
			w.ensure(second)
			require.Len(w, w.parts("kubernetes", "frontendIPConfigurations"), 1)
			lost, living := s, second
			if !first {
				lost, living = second, s
			}
			w.lose(lost)
			found := w.orphans()
			require.Len(w, found, 1)
			require.Equal(w, kindRules, found[0].Kind)
			require.Equal(w, baseName(lost), found[0].Name)
			w.deleteOrphans()
			rules := w.parts("kubernetes", "loadBalancingRules")
			require.Len(w, rules, 1)
			assert.True(w, ownedBy(baseName(living), str(rules[0], "name")))
			require.Len(w, w.securityRules(), map[bool]int{true: 1, false: 2}[first], "the ports of the living one, and nobody else where that one asks for it")
			for _, rule := range w.securityRules() {
				assert.Equal(w, []string{ip}, destinationsOf(rule))
				if str(rule, "properties", "access") == "Allow" {
					assert.Equal(w, texts(props(rule), "destinationPortRanges"), map[bool][]string{true: {"8080"}, false: {"80"}}[first])
				}
			}
			w.lose(living)
			w.deleteOrphans()
			assert.Empty(w, w.sim.Snapshot())
		})
	}
}

// TestOrphanedAddress: one that is behind no frontend goes with its rules, unless a living Service has it in mind; what that one lets in
// to it stays.
func TestOrphanedAddress(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		w.sim.RemoveLoadBalancers()
		w.lose(s)
		require.Len(w, w.orphans(), 1)
		for _, asks := range []func(*v1.Service){
			func(s *v1.Service) { s.Spec.LoadBalancerIP = ip },
			func(s *v1.Service) { s.Annotations[annotationIPv4] = ip },
			func(s *v1.Service) { s.Annotations[annotationName] = webPIP },
			func(s *v1.Service) { s.Annotations[annotationAdditional] = ip },
			func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: ip}} },
		} {
			other := webNumber(1, nil, asks)
			o := w.orphans()[0]
			w.Apply(other)
			assert.Empty(w, w.orphans())
			require.ErrorContains(w, w.cloud.DeleteOrphan(w.Context(), o), "no orphan any more")
			w.lose(other)
		}
		require.Len(w, w.securityRules(), 1)
		w.deleteOrphans()
		assert.Empty(w, w.opened())
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestOrphanInAnotherResourceGroup: a public address in a resource group of its own goes with its frontend, behind which nobody would
// find it.
func TestOrphanInAnotherResourceGroup(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationGroup: azuresim.OtherGroup})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.lose(s)
		w.deleteOrphans()
		assert.Empty(w, w.sim.Snapshot())
		assert.Empty(w, w.opened())
	})
}

// TestPreconfiguredLoadBalancerStays: a load balancer whose pools others fill is not deleted with the last orphan.
func TestPreconfiguredLoadBalancerStays(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.set(map[string]any{"preConfiguredBackendPoolLoadBalancerTypes": "all"})
		w.lose(s)
		w.deleteOrphans()
		assert.NotNil(w, w.sim.Shown(lbID("kubernetes")))
		assert.Empty(w, w.parts("kubernetes", "frontendIPConfigurations"))
		assert.Empty(w, w.opened())
	})
}

// TestOrphanUnderForeignWrites: the security group is written under its ETag: what somebody else adds meanwhile stays.
func TestOrphanUnderForeignWrites(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.lose(s)
		id := azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)
		_, err := w.cloud.reconciler.resources.read(w.Context(), id, true) // it is known from now on
		require.NoError(w, err)
		group := w.sim.Shown(id)
		rules := append(docs(group, "properties", "securityRules"), doc{"name": "admin", "properties": doc{
			"direction": "Inbound", "priority": 200, "access": "Allow", "protocol": "*", "sourcePortRange": "*",
			"destinationPortRange": "22", "sourceAddressPrefix": "10.0.0.0/8", "destinationAddressPrefix": "*",
		}})
		setList(group, "securityRules", rules)
		w.sim.Leave(id, group)
		w.deleteOrphans()
		assert.Equal(w, []string{"admin"}, namesOf(w.securityRules()))
	})
}
