package azure

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// nameInRule adds a destination to the only security rule, as another cluster does with the same rule.
func (w *world) nameInRule(ip string) {
	w.Helper()
	group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
	rules := docs(group, "properties", "securityRules")
	require.Len(w, rules, 1)
	setFieldValues(props(rules[0]), "destinationAddressPrefix", "destinationAddressPrefixes", append(destinationsOf(rules[0]), ip))
	w.sim.Leave(str(group, "id"), group)
	waitFor(2 * observeMaxAge)
}

// TestAddressOfAFormerNodeComesAgain: a former node's address leaves the rules for node ports, even after a failed try. It then belongs to
// its next user, whose cluster may have the same rule.
func TestAddressOfAFormerNodeComesAgain(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		second := w.join("n2")
		ip := internalIP(second, false)
		w.ensure(s)
		opened := func() []string { return destinationsOf(w.securityRules()[0]) }
		require.Contains(w, opened(), ip)

		require.NoError(w, w.sim.RemoveByID(second.Spec.ProviderID))
		w.nodes, w.known = w.nodes[:1], w.known[:1]
		require.NoError(w, w.shown.Delete(second))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "PUT Microsoft.Network/networkSecurityGroups"})
		require.NoError(w, err)
		require.Error(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes))
		w.server.ClearFaults()
		assert.Contains(w, opened(), ip)
		w.update(s)
		assert.NotContains(w, opened(), ip)

		waitFor(2 * observeMaxAge)
		w.ensure(s) // it sees that the rule names the address no more
		w.sim.Take(ip)
		w.nameInRule(ip)
		w.server.ResetCalls()
		w.ensure(s)
		w.update(s)
		require.Contains(w, opened(), ip, "another cluster's")
		assert.Zero(w, w.server.Calls().Writes)
		w.remove(s)
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, []string{ip}, opened())
	})
}

// TestFreeAddressIsAskedForAgain: that nobody had an address some minutes ago does not prove that it is a former node's now.
func TestFreeAddressIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		const ip = "10.240.99.9"
		w.ensure(s)
		w.nameInRule(ip)
		w.ensure(s)
		assert.NotContains(w, destinationsOf(w.securityRules()[0]), ip, "nobody has it")
		w.sim.Take(ip)
		w.nameInRule(ip)
		w.ensure(s)
		require.Contains(w, destinationsOf(w.securityRules()[0]), ip, "another cluster's machine has it")
		w.remove(s)
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, []string{ip}, destinationsOf(w.securityRules()[0]))
	})
}

// TestNodePortsThatChange: rules for node ports that a Service has no more go: another port, and none at all, as of a Service that becomes
// one of type ClusterIP. Those of another Service, and of somebody else, stay.
func TestNodePortsThatChange(t *testing.T) {
	t.Parallel()
	s, second := webService(map[string]string{annotationNoFloating: "true"}), webNumber(1, map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		w.Apply(second)
		w.ensure(s)
		w.ensure(second)
		ip := internalIP(w.nodes[0], false)
		group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
		byHand := leftAllow("IPv4", "by-hand", 600, "Tcp", "Internet", ip, "22")
		setList(group, "securityRules", append(docs(group, "properties", "securityRules"), byHand))
		w.sim.Leave(str(group, "id"), group)
		waitFor(2 * observeMaxAge)
		require.True(w, w.allowed(ip, "30080"))
		w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 })
		w.ensure(s)
		assert.False(w, w.allowed(ip, "30080"))
		assert.True(w, w.allowed(ip, "30090"))
		w.change(s, func(s *v1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, 0 })
		w.remove(s)
		assert.False(w, w.allowed(ip, "30090"))
		assert.True(w, w.allowed(ip, "30081"), "the other one's")
		w.remove(second)
		assert.Equal(w, []string{str(byHand, "name")}, namesOf(w.securityRules()))
	})
}

// TestFormerNodes: an address is a former node's in the rules that named it when its node went, until they do not.
func TestFormerNodes(t *testing.T) {
	t.Parallel()
	const ip = "10.0.0.2"
	rules := func(names ...string) (list []*securityRule) {
		for _, name := range names {
			list = append(list, parsed[securityRule](leftAllow("IPv4", name, 500, "Tcp", "Internet", ip, "30080")))
		}
		return list
	}
	const rule, other = "k8s-azure-lb_allow_IPv4_a", "k8s-azure-lb_allow_IPv4_b"
	var f formerNodes
	assert.Empty(t, f.update(rules("a"), []string{"10.0.0.1", ip}))
	one := []string{"10.0.0.1"}
	assert.Equal(t, map[string][]string{ip: {rule}}, f.update(rules("a"), one))
	assert.Equal(t, map[string][]string{ip: {rule}}, f.update(rules("a", "b"), one), "what names it later is somebody else's")
	assert.Empty(t, f.update(rules("b"), one))
	assert.Empty(t, f.update(rules("a", "b"), one), "it comes again")
	f.recordLeft(ip, other)
	assert.Equal(t, map[string][]string{ip: {other}}, f.update(rules("a", "b"), one))
	assert.Empty(t, f.update(rules("a", "b"), slices.Concat(one, []string{ip})), "a node has it again")
	assert.Equal(t, map[string][]string{ip: {rule, other}}, f.update(rules("a", "b"), one))
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
		setFieldValues(props(rule), "destinationAddressPrefix", "destinationAddressPrefixes", append(addresses(), theirs))
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

// lie makes the Node of a machine tell an address of somebody else's instead of its own.
func (w *world) lie(ip string) {
	w.Helper()
	n := w.nodes[0].DeepCopy()
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip}}
	w.tell(n)
}

// tell replaces the only Node.
func (w *world) tell(n *v1.Node) {
	w.Helper()
	w.nodes, w.known = []*v1.Node{n}, []*v1.Node{n}
	require.NoError(w, w.shown.Update(n))
}

// TestAddressThatANodeSaysItHas: what a kubelet writes into its Node, and no machine of the cluster has, is neither opened nor closed:
// another cluster's address stays in the rule that both have, whatever becomes of the Service and of the Node.
func TestAddressThatANodeSaysItHas(t *testing.T) {
	t.Parallel()
	const theirs = "10.240.77.7"
	for name, then := range map[string]func(w *world, s *v1.Service, honest *v1.Node){
		"the Service stays": func(w *world, s *v1.Service, _ *v1.Node) { w.ensure(s) },
		"the Service goes":  func(w *world, s *v1.Service, _ *v1.Node) { w.remove(s) },
		"floating IP comes back": func(w *world, s *v1.Service, _ *v1.Node) {
			w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationNoFloating) })
			w.ensure(s)
		},
		"the Node tells the truth again": func(w *world, s *v1.Service, honest *v1.Node) {
			w.ensure(s)
			w.tell(honest)
			w.ensure(s)
			w.remove(s)
		},
		"the Service is lost": func(w *world, s *v1.Service, _ *v1.Node) {
			w.lose(s)
			w.deleteOrphans()
		},
	} {
		for opened, want := range map[bool][]string{true: {"Internet"}, false: nil} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, opened %t, restart %t", name, opened, restart), func(t *testing.T) {
					t.Parallel()
					s := webService(map[string]string{annotationNoFloating: "true"})
					withNode(t, s, func(w *world) {
						w.ensure(s)
						w.sim.Take(theirs)
						if opened {
							w.nameInRule(theirs)
						}
						honest := w.nodes[0]
						w.lie(theirs)
						if restart {
							w.restart()
						}
						then(w, s, honest)
						assert.Equal(w, want, w.mayEnter(theirs))
						assert.Equal(w, name == "the Service stays", len(w.mayEnter(internalIP(honest, false))) > 0)
					})
				})
			}
		}
	}
}
