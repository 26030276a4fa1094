package oci

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

func TestVouchedAddresses(t *testing.T) {
	t.Parallel()
	internal := func(a string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: a} }
	external := func(a string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeExternalIP, Address: a} }
	net := instanceVNICs{vnics: []vnic{
		{PrivateIP: "10.0.9.1"},
		{PrivateIP: "10.0.1.1", PublicIP: "192.0.2.1", IPv6: []string{"2603:c020::1", "fd00::1"}, Primary: true},
	}}
	four := []v1.NodeAddress{internal("10.0.1.1"), external("192.0.2.1")}
	for name, c := range map[string]struct {
		told []v1.NodeAddress
		ipv6 bool
		want []v1.NodeAddress
	}{
		"nothing told":                         {nil, false, four},
		"nothing told, IPv6 wanted":            {nil, true, append(slices.Clone(four), external("2603:c020::1"), internal("fd00::1"))},
		"of another machine":                   {[]v1.NodeAddress{internal("10.0.1.2"), external("198.51.100.1")}, false, four},
		"of a second network interface":        {[]v1.NodeAddress{internal("10.0.9.1")}, false, []v1.NodeAddress{internal("10.0.9.1")}},
		"a public one that is called internal": {[]v1.NodeAddress{internal("192.0.2.1")}, false, four},
		"a public one alone":                   {[]v1.NodeAddress{external("192.0.2.1")}, false, []v1.NodeAddress{external("192.0.2.1"), internal("10.0.1.1")}},
		"IPv6 without the label":               {[]v1.NodeAddress{external("2603:C020:0::1")}, false, append([]v1.NodeAddress{external("2603:C020:0::1")}, four...)},
		"IPv6 of another machine":              {[]v1.NodeAddress{external("2603:c020::2")}, false, four},
		"a host name and what is no address":   {[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "a"}, internal("")}, false, four},
	} {
		assert.Equal(t, c.want, net.confirmedAddresses(c.told, c.ipv6), name)
	}
	assert.Empty(t, instanceVNICs{}.confirmedAddresses(four, true), "an instance without network interfaces")
}

// backends are the addresses behind the only load balancer of either kind.
func (w *testWorld) backends() (all []string) {
	w.Helper()
	docs := make([]document, 0, 1)
	for _, lb := range w.sim.LoadBalancers() {
		docs = append(docs, lb.Doc)
	}
	for _, lb := range w.sim.NetworkLoadBalancers() {
		docs = append(docs, lb.Doc)
	}
	require.Len(w, docs, 1)
	for _, set := range follow(docs[0], "backendSets") {
		for _, b := range fieldOf[[]any](set.(document), "backends") {
			all = append(all, b.(document)["ipAddress"].(string))
		}
	}
	slices.Sort(all)
	return all
}

// eachKind tries both kinds of load balancers.
func eachKind(t *testing.T, names []string, test func(w *testWorld, s *v1.Service, nodes []*v1.Node)) {
	t.Helper()
	t.Parallel()
	for kind, annotations := range map[string]map[string]string{"lb": {}, "nlb": ofNetwork()} {
		t.Run(kind, func(t *testing.T) {
			balancing(t, names, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				test(w, conformance.Service("web", annotations, web()), nodes)
			})
		})
	}
}

// TestToldAddresses: what a kubelet writes into its Node brings no other machine behind a load balancer, neither when it is made nor when
// nodes change.
func TestToldAddresses(t *testing.T) {
	eachKind(t, []string{"a", "b"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		lie := nodes[1].DeepCopy()
		lie.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.250"}}
		told := []*v1.Node{nodes[0], lie}
		w.requireServed(s, told)
		require.Equal(w, []string{"10.0.1.1", "10.0.1.2"}, w.backends())
		time.Sleep(time.Minute)
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, told))
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2"}, w.backends())
	})
}

// TestOddNodes: a Node of another cloud, one whose instance is gone, or one about which the cloud says nothing holds up no other node; the
// last keeps its backends.
func TestOddNodes(t *testing.T) {
	eachKind(t, []string{"a", "b", "gone", "hidden"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		require.Equal(w, []string{"10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4"}, w.backends())
		rules := w.allRules()

		foreign := conformance.InitializedNode("foreign", "aws:///us-east-1a/i-0123456789abcdef0")
		foreign.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.250"}}
		w.sim.Remove(mustID(w, nodes[2]))
		hidden := mustID(w, nodes[3])
		w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Names: hidden, Operation: "GET /instances$"})
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET /instances/{id}", Names: hidden})
		joined := w.joinAt("c", "10.0.1.5")
		w.start() // nothing is remembered
		all := append(slices.Clone(w.Nodes), foreign)
		time.Sleep(time.Minute)
		w.requireServed(s, all)
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2", "10.0.1.4", "10.0.1.5"}, w.backends())
		assert.Equal(w, rules, w.allRules(), "what is open for the hidden one stays")
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, slices.DeleteFunc(all, func(n *v1.Node) bool {
			return n == joined
		})))
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2", "10.0.1.4"}, w.backends())

		other := conformance.Service("other", s.Annotations, conformance.Port("alt", 8080, 30081))
		other.UID = "99999999-7a66-4b58-8b4b-0a61c1f9e0a1"
		w.deleted(s)
		w.requireServed(other, w.Nodes)
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2", "10.0.1.5"}, w.backends(), "what nobody vouches for does not join")
	})
}

// TestDualStackBackends: addresses of IPv6 that Nodes tell and their instances have are backends, with the label and without it.
func TestDualStackBackends(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.giveIPv6(nodes[0], v1.NodeExternalIP, "2603:c020::a")
		nodes[0].Status.Addresses = nodes[0].Status.Addresses[:1]
		w.giveIPv6(nodes[1], v1.NodeExternalIP, "2603:c020::b")
		nodes[0].Labels = map[string]string{labelIPv6: ""}
		nodes[1].Status.Addresses = append(nodes[1].Status.Addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "2603:c020::ffff"})
		s := dual(conformance.Service("web", ofNetwork(nlbSubnet, ocisim.DualSubnet()), web()), v1.IPFamilyPolicyRequireDualStack)
		w.requireServed(s, nodes)
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2", "2603:c020::a", "2603:c020::b"}, w.backends())
	})
}

// TestAskedTooLate: an annotation that counts when the load balancer is made, and that is changed later, has an event and changes nothing.
func TestAskedTooLate(t *testing.T) {
	t.Parallel()
	for kind, keys := range map[string][]string{"lb": {annotationInternal, annotationSubnet1}, "nlb": {nlbInternal, nlbSubnet}} {
		for _, key := range keys {
			t.Run(kind+" "+key, func(t *testing.T) {
				balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{}, web())
					if kind == "nlb" {
						s.Annotations = ofNetwork()
					}
					w.requireServed(s, nodes)
					w.requireServed(s, nodes)
					w.quiet(events)
					s.Annotations[key] = map[bool]string{true: "true", false: ocisim.DualSubnet()}[key == keys[0]]
					w.Server.ResetCalls()
					w.requireServed(s, nodes)
					require.Len(w, events.Events, 1)
					assert.Contains(w, <-events.Events, services.EventFixed+" annotation "+key)
					assert.Empty(w, w.writes())
				})
			})
		}
	}
}

// interfaceOf is the primary network interface of a node.
func interfaceOf(t *testing.T, n *v1.Node) string {
	t.Helper()
	id := mustID(t, n)
	return "ocid1.vnic.oc1.phx.abyhqljt" + id[len(id)-len("000001"):]
}

// TestUnlistedAddresses: listings that lag, or that policies empty, take no node out of a load balancer, and close no rule.
func TestUnlistedAddresses(t *testing.T) {
	for kind, annotations := range map[string]map[string]string{"lb": {}, "nlb": ofNetwork(annotationRuleMode, "SL-All")} {
		for _, listing := range []string{"GET /vnicAttachments", "GET /privateIps"} {
			t.Run(kind+" "+listing, func(t *testing.T) {
				marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", annotations, web())
					w.serving(s)
					w.requireServed(s, nodes)
					both, rules := w.backends(), w.allRules()
					w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: listing, Names: interfaceOf(w.T, nodes[1])})
					w.start()
					w.serving(s)
					w.requireServed(s, nodes)
					assert.Equal(w, both, w.backends())
					assert.Equal(w, rules, w.allRules())
					require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
					assert.Equal(w, both, w.backends())
					assert.Equal(w, rules, w.allRules())
				})
			})
		}
	}
}

// TestHiddenIPv6: a Node that tells an address of IPv6 holds up nobody, where policies leave out the listing of these.
func TestHiddenIPv6(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		nodes[1].Status.Addresses = append(nodes[1].Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "fd00::9"})
		w.sim.Hide("/ipv6")
		w.start()
		w.RequireMetadata(nodes[0])
		w.requireServed(conformance.Service("web", byHand(), web()), nodes)
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2"}, w.backends())
	})
}

// TestNodesInDoubtComeBack: nodes that join while the cloud shows nothing of them are tried again, though nothing has failed; those that a
// load balancer has need not be.
func TestNodesInDoubtComeBack(t *testing.T) {
	eachKind(t, []string{"a", "b", "c"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		w.requireServed(s, nodes[:2])
		w.sim.Hide("/vnicAttachments")
		w.start()
		for n, want := range map[int]int{2: 0, 3: 1} {
			q := services.Request{Purpose: services.UpdateNodes, Service: s, Nodes: nodes[:n]}
			var findings, desired []services.Finding
			if isNLBService(s) {
				o, err := w.cloud.loadBalancers.nlb.Observe(w.Context(), q)
				require.NoError(w, err)
				_, findings, err = w.cloud.loadBalancers.nlb.NodeChanges(w.Context(), q, o)
				require.NoError(w, err)
				_, desired, err = w.cloud.loadBalancers.nlb.Desire(w.Context(), q, o)
				require.NoError(w, err)
			} else {
				o, err := w.cloud.loadBalancers.lb.Observe(w.Context(), q)
				require.NoError(w, err)
				_, findings, err = w.cloud.loadBalancers.lb.NodeChanges(w.Context(), q, o)
				require.NoError(w, err)
				_, desired, err = w.cloud.loadBalancers.lb.Desire(w.Context(), q, o)
				require.NoError(w, err)
			}
			require.Len(w, findings, want)
			assert.Equal(w, findings, desired)
			for _, f := range findings {
				assert.Positive(w, f.Again)
				assert.Empty(w, f.Reason, "it is no event")
			}
		}
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2"}, w.backends())
		w.sim.Hide()
		time.Sleep(retryAddresses)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		assert.Equal(w, []string{"10.0.1.1", "10.0.1.2", "10.0.1.3"}, w.backends())
	})
}

// TestRulesAfterADoubt: what stayed open while nobody could tell where a node is, is closed when that is known, though no rule has a mark.
func TestRulesAfterADoubt(t *testing.T) {
	eachKind(t, []string{"a", "b"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		s.Annotations[annotationRuleMode] = "SL-All"
		w.serving(s)
		w.requireServed(s, nodes)
		w.start()
		w.serving(s)
		w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: "GET /vnicAttachments", Names: interfaceOf(w.T, nodes[1])})
		s = s.DeepCopy()
		s.Spec.Ports[0].NodePort = 30090
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Contains(w, w.allRules(), " 30080 ", "for the node that nobody knows where it is")
		w.Server.ClearFaults()
		time.Sleep(time.Hour)
		w.requireServed(s, nodes)
		for _, gone := range []string{"egress 6 30080 " + nodeNet, "ingress 6 30080 " + balancerNet} {
			assert.NotContains(w, w.allRules(), gone)
		}
		assert.Contains(w, w.allRules(), "egress 6 30090 10.0.128.0/18")
	})
}

// TestUnreadableSubnetHoldsUpNoNode: an instance of somebody else in the compartment, in a network that the user may not read, holds up no
// node.
func TestUnreadableSubnetHoldsUpNoNode(t *testing.T) {
	const theirs = "ocid1.subnet.oc1.phx.aaaatheirs"
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.sim.Add("foreign", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC { v[0].Subnet = theirs; return v })
		})
		twice := w.sim.Add("with two interfaces", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC {
				more := w.sim.SecondInterfaceOf(v[0])
				more.Subnet = theirs
				return append(v, more)
			})
		})
		require.NotEmpty(w, twice)
		w.sim.Hide("subnetId="+theirs, "/subnets/"+theirs, "/vnics/ocid1.vnic.oc1.phx.aasecond")
		w.start()
		w.RequireMetadata(nodes[0])
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		w.deleted(s)
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
		unnamed := conformance.NewNode("b", "")
		w.sim.Add("b", nil)
		time.Sleep(time.Minute)
		w.RequireMetadata(unnamed)
	})
}
