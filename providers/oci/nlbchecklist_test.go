package oci

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// networkChecklist are the legal and the illegal values of each annotation of network load balancers.
func networkChecklist() map[string]conformance.Checked {
	arrives := func(value, field string, want any) []conformance.Legal {
		return []conformance.Legal{conformance.Arrives(value, nil, field, want)}
	}
	const checker, set, listener = "backendSets.TCP-80.healthChecker.", "backendSets.TCP-80.", "listeners.TCP-80."
	both := ocisim.GroupID(1) + "," + ocisim.GroupID(2)
	return map[string]conformance.Checked{
		nlbInternal: {Legal: []conformance.Legal{
			conformance.Arrives("true", nil, "isPrivate", true), conformance.Arrives("F", nil, "isPrivate", false),
		}, Illegal: []string{"yes", "internal"}},
		nlbSubnet:   {Legal: arrives(ocisim.DualSubnet(), "subnetId", ocisim.DualSubnet()), Illegal: []string{"mine"}},
		nlbGroups:   {Legal: arrives(both, "networkSecurityGroupIds.1", ocisim.GroupID(2)), Illegal: []string{"mine", sixGroups()}},
		nlbRetries:  {Legal: arrives("7", checker+"retries", 7.0), Illegal: []string{"0", "101", "x"}},
		nlbInterval: {Legal: arrives("10001", checker+"intervalInMillis", 10001.0), Illegal: []string{"9999", "1800001", "10s"}},
		nlbTimeout:  {Legal: arrives("1", checker+"timeoutInMillis", 1.0), Illegal: []string{"0", "x"}},
		nlbPolicy: {Legal: []conformance.Legal{
			conformance.Arrives(twoTuple, nil, set+"policy", twoTuple), conformance.Arrives(threeTuple, nil, set+"policy", threeTuple),
			conformance.Arrives("", nil, set+"policy", fiveTuple),
		}, Illegal: []string{"two_tuple", "ROUND_ROBIN"}},
		nlbListMode: {Elsewhere: "TestNetworkRulesOfLists", Illegal: []string{"all", "NSG"}},
		nlbFreeform: {Legal: arrives(`{"a":"b"}`, "freeformTags.a", "b"), Illegal: []string{"{", `{"a":1}`}},
		nlbDefined:  {Legal: arrives(`{"n":{"a":"b"}}`, "definedTags.n.a", "b"), Illegal: []string{"{", `{"a":1}`}},
		nlbNewFreeform: {Legal: []conformance.Legal{
			conformance.Arrives(`{"a":"b"}`, map[string]string{nlbFreeform: `{"a":"c"}`}, "freeformTags.a", "b"),
		}, Illegal: []string{"{", `{"a":1}`}},
		nlbNewDefined: {Legal: []conformance.Legal{
			conformance.Arrives(`{"n":{"a":"b"}}`, map[string]string{nlbDefined: `{"n":{"a":"c"}}`}, "definedTags.n.a", "b"),
		}, Illegal: []string{"{", `{"a":1}`}},
		nlbSelector: {Legal: []conformance.Legal{
			conformance.Arrives("role=none", nil, set+"backends.0", nil), conformance.Arrives("role!=none", nil, set+"backends.0.port", 30080.0),
		}, Illegal: []string{"a in b"}},
		nlbPreserve: {Elsewhere: "TestSourceAddresses", Illegal: []string{"true", "perhaps"}},
		nlbPPv2: {Legal: []conformance.Legal{
			conformance.Arrives("True", nil, listener+"isPpv2Enabled", true), conformance.Arrives("false", nil, listener+"isPpv2Enabled", false),
		}, Illegal: []string{"v2", "1"}, Lenient: true},
		nlbExternal:    {Elsewhere: "TestStatusOfNetwork", Illegal: []string{"perhaps"}},
		nlbPrivateIPv4: {Legal: arrives("10.0.193.5", "assignedPrivateIpv4", "10.0.193.5"), Illegal: []string{"fd00::1", "10.0.0.0/8"}},
		nlbIPv6:        {Elsewhere: "TestDualStackOfSubnets", Illegal: []string{"10.0.0.1", "fd00::/8"}},
	}
}

// TestNetworkChecklist: each annotation of network load balancers, with legal and with illegal values.
func TestNetworkChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: NLBAnnotations.Rows(), Items: networkChecklist(), Prefix: nlbPrefix, Creation: "POST /networkLoadBalancers",
		Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			annotations[annotationType] = typeNLB
			return conformance.Service("web", annotations, web())
		},
		Check: func(s *v1.Service) (warnings, err error) { return checkService(registry.Inputs{}, s) },
		New: func(t *testing.T) conformance.Subject {
			t.Helper()
			sim, server := ocisim.New(testFingerprint)
			sim.SetWorkTime(time.Millisecond)
			bench := conformance.NewBench(t)
			c, err := maker().New(inputs(sim.CloudConfig(server.Start(t))))
			require.NoError(t, err)
			c.begin(cloudbase.Begun{Kube: bench.Kube, Events: bench.Recorder})
			c.loadBalancers.nlb.works = waiting.New(waiting.Each(c.loadBalancers.nlb.readWork), waiting.Pace{Least: time.Millisecond})
			c.instances.nodes.SetLister(bench.Nodes())
			c.loadBalancers.cluster.SetServices(bench.Services())
			node := conformance.InitializedNode("a", providerIDPrefix+sim.AddInstance("a"))
			node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.64.3"}}
			bench.Register(node)
			ensure := func(s *v1.Service) error {
				_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, []*v1.Node{node})
				return err
			}
			return conformance.Subject{Bench: bench, Server: server, Ensure: ensure, Serve: func(s *v1.Service) { require.NoError(t, ensure(s)) }}
		},
	}.Run(t)
}
