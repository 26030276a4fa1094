package oci

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

const testNetworkName = "default/web/" + testUID

// ofNetwork are the annotations of a Service with a network load balancer.
func ofNetwork(more ...string) map[string]string {
	a := map[string]string{annotationType: typeNLB}
	for n := 0; n < len(more); n += 2 {
		a[more[n]] = more[n+1]
	}
	return a
}

// local makes a Service one whose nodes answer for themselves.
func local(s *v1.Service) *v1.Service {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	return s
}

func udp(port, nodePort int32) v1.ServicePort {
	p := conformance.Port("udp", port, nodePort)
	p.Protocol = v1.ProtocolUDP
	return p
}

// dual makes a Service one of both families.
func dual(s *v1.Service, policy v1.IPFamilyPolicy) *v1.Service {
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, &policy
	return s
}

// nlb is the only network load balancer in the cloud.
func (w *testWorld) nlb() ocisim.NetworkLoadBalancer {
	w.Helper()
	all := w.sim.NetworkLoadBalancers()
	require.Len(w, all, 1)
	return all[0]
}

// follow is a part of a document.
func follow(d document, path ...string) document {
	for _, name := range path {
		d, _ = d[name].(document)
	}
	return d
}

func ips(status *v1.LoadBalancerStatus) (all []string) {
	for _, in := range status.Ingress {
		all = append(all, in.IP)
	}
	return all
}

// quiet are no events at all.
func (w *testWorld) quiet(events *record.FakeRecorder) {
	w.Helper()
	assert.Empty(w, events.Events)
}

// TestNetworkCreation: scenarios 41 and 46 of network load balancers: the request is as Oracle's own controller makes it, and what there
// is then is not written again.
func TestNetworkCreation(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		status := w.requireServed(s, nodes)
		assert.Equal(w, testNetworkName, w.nlb().Name)
		assert.ElementsMatch(w, []string{w.nlb().Address, w.nlb().Public}, ips(status))
		ids := []string{mustID(w, nodes[0]), mustID(w, nodes[1])}
		text, err := json.Marshal(w.nlb().Doc)
		require.NoError(w, err)
		assert.JSONEq(w, `{
			"compartmentId": "`+ocisim.Compartment+`", "subnetId": "`+ocisim.BalancerSubnet()+`", "isPrivate": false, "networkSecurityGroupIds": [],
			"nlbIpVersion": "IPV4", "freeformTags": {}, "definedTags": {}, "isPreserveSourceDestination": false, "isSymmetricHashEnabled": false,
			"backendSets": {"TCP-80": {"policy": "FIVE_TUPLE", "isPreserveSource": false, "ipVersion": "IPV4",
				"backends": [{"ipAddress": "10.0.1.1", "targetId": "`+ids[0]+`", "port": 30080, "weight": 1},
					{"ipAddress": "10.0.1.2", "targetId": "`+ids[1]+`", "port": 30080, "weight": 1}],
				"healthChecker": {"protocol": "HTTP", "urlPath": "/healthz", "port": 10256, "returnCode": 200, "retries": 3, "timeoutInMillis": 3000,
					"intervalInMillis": 10000}}},
			"listeners": {"TCP-80": {"defaultBackendSetName": "TCP-80", "port": 80, "protocol": "TCP", "ipVersion": "IPV4"}}
		}`, string(text))
		assert.Equal(w, []string{"POST /networkLoadBalancers"}, w.writes())
		assert.Empty(w, w.sim.LoadBalancers())

		s.Status.LoadBalancer = *status
		for _, reads := range []int{3, 8} { // the second one is by a process that does not know yet where nodes are
			time.Sleep(time.Minute)
			w.Server.ResetCalls()
			assert.Equal(w, status, w.requireServed(s, nodes))
			assert.Empty(w, w.writes(), "nothing is to be changed")
			assert.LessOrEqual(w, w.Server.Calls().Total, reads, "%v", w.Server.Calls().ByOperation)
			w.start() // a new process
			w.cloud.loadBalancers.setEvents(events)
		}
		w.quiet(events)
	})
}

func mustID(t require.TestingT, n *v1.Node) string {
	id, err := parseProviderID(n.Spec.ProviderID)
	require.NoError(t, err)
	return id
}

// TestSourceAddresses: scenario 41: nodes see the addresses of clients with externalTrafficPolicy Local, whatever the case of the type.
func TestSourceAddresses(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := local(conformance.Service("web", map[string]string{annotationType: "NLB"}, web()))
		w.requireServed(s, nodes)
		set := follow(w.nlb().Doc, "backendSets", "TCP-80")
		assert.Equal(w, true, set["isPreserveSource"])
		assert.InDelta(w, 32000, follow(set, "healthChecker")["port"], 0)
		s.Annotations[nlbPreserve] = "false"
		w.requireServed(s, nodes)
		assert.Equal(w, false, follow(w.nlb().Doc, "backendSets", "TCP-80")["isPreserveSource"])
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyCluster
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "needs spec.externalTrafficPolicy: Local")
	})
}

// TestBothProtocols: scenario 42: TCP and UDP of one port have one listener where they have one node port.
func TestBothProtocols(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), conformance.Port("dns", 53, 30053), udp(53, 30053), udp(123, 30123))
		w.requireServed(s, nodes)
		assert.Equal(w, []string{"TCP_AND_UDP-53", "UDP-123"}, sortedKeys(follow(w.nlb().Doc, "listeners")))
		assert.Equal(w, "TCP_AND_UDP", follow(w.nlb().Doc, "listeners", "TCP_AND_UDP-53")["protocol"])
		assert.Equal(w, "HTTP", follow(w.nlb().Doc, "backendSets", "UDP-123", "healthChecker")["protocol"], "kube-proxy is asked about ports of UDP too")
		before := w.nlb().Doc
		w.Server.ResetCalls()
		s.Spec.Ports[1].NodePort = 30054
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "give both ports the same nodePort")
		assert.Contains(w, <-events.Events, eventConfigError)
		assert.Empty(w, w.writes())
		assert.Equal(w, before, w.nlb().Doc, "what there is stays")
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		assert.Empty(w, w.writes())
	})
}

// TestDualStack: scenario 43.
func TestDualStack(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.giveIPv6(nodes[0], v1.NodeInternalIP, "fd00::1")
		w.giveIPv6(nodes[1], v1.NodeExternalIP, "2603:c020::2")
		s := conformance.Service("web", ofNetwork(nlbSubnet, ocisim.DualSubnet()), conformance.Port("dns", 53, 30053), udp(53, 30053))
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
		w.requireServed(s, nodes)
		assert.Equal(w, versionIPv4, w.nlb().Doc["nlbIpVersion"])
		single := s.DeepCopy()
		dual(s, v1.IPFamilyPolicyRequireDualStack)
		status := w.requireServed(s, nodes)
		assert.Len(w, status.Ingress, 3, "both families")
		assert.Equal(w, versionBoth, w.nlb().Doc["nlbIpVersion"])
		names := []string{"TCP_AND_UDP-53", "TCP_AND_UDP-53-IPv6"}
		assert.Equal(w, names, sortedKeys(follow(w.nlb().Doc, "listeners")))
		assert.Equal(w, names, sortedKeys(follow(w.nlb().Doc, "backendSets")))
		six := follow(w.nlb().Doc, "backendSets", names[1])
		assert.Equal(w, versionIPv6, six["ipVersion"])
		assert.ElementsMatch(w, []any{
			document{"ipAddress": "fd00::1", "port": 30053.0, "weight": 1.0}, document{"ipAddress": "2603:c020::2", "port": 30053.0, "weight": 1.0},
		}, six["backends"])
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		w.requireServed(single, nodes)
		assert.Equal(w, versionIPv4, w.nlb().Doc["nlbIpVersion"])
		assert.Equal(w, names[:1], sortedKeys(follow(w.nlb().Doc, "backendSets")))
		assert.Len(w, w.writes(), 3, "the listener and the backend set go before the version of IP")
	})
}

// TestDualStackOfSubnets: families that the subnet does not have are refused where they are required, and left out where they are
// preferred.
func TestDualStackOfSubnets(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := dual(conformance.Service("web", ofNetwork(), web()), v1.IPFamilyPolicyRequireDualStack)
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "has no network of IPv6")
		assert.Empty(w, w.sim.NetworkLoadBalancers())
		w.requireServed(dual(s, v1.IPFamilyPolicyPreferDualStack), nodes)
		assert.Equal(w, versionIPv4, w.nlb().Doc["nlbIpVersion"])
		assert.Len(w, w.nlb().Doc["listeners"], 1)
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		s = conformance.Service("web", ofNetwork(nlbSubnet, ocisim.DualSubnet(), nlbIPv6, "2603:c020:0:5::9"), web())
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
		status := w.requireServed(s, nodes)
		assert.Equal(w, []string{"2603:c020:0:5::9"}, ips(status))
		assert.Equal(w, []string{"TCP-80-IPv6"}, sortedKeys(follow(w.nlb().Doc, "listeners")))
	})
}

// TestStatusOfNetwork: scenario 44: what the status shows, and the header of the PROXY protocol.
func TestStatusOfNetwork(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(nlbExternal, "true", nlbPPv2, "TRUE", annotationIPMode, "Proxy"), web())
		status := w.requireServed(s, nodes)
		assert.Equal(w, []string{w.nlb().Public}, ips(status))
		assert.Equal(w, v1.LoadBalancerIPModeProxy, *status.Ingress[0].IPMode)
		looked, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.NoError(w, err)
		assert.True(w, exists)
		assert.Equal(w, status, looked)
		listener := func() any { return follow(w.nlb().Doc, "listeners", "TCP-80")["isPpv2Enabled"] }
		assert.Equal(w, true, listener())
		s.Annotations[nlbPPv2] = "false"
		w.requireServed(s, nodes)
		assert.Equal(w, false, listener())
		w.quiet(events)
		s.Annotations[nlbPPv2] = "v2"
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		assert.Contains(w, <-events.Events, nlbPPv2, "what is no value has no effect, which is told")
		s.Annotations[nlbExternal] = "perhaps"
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, nlbExternal)
		assert.Empty(w, w.writes(), "it is refused before anything is written")
		s.Annotations = ofNetwork(nlbInternal, "true", nlbExternal, "true", nlbPrivateIPv4, "10.0.3.77")
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Equal(w, []string{"10.0.3.77"}, ips(w.requireServed(s, nodes)), "an internal one shows its private address")
	})
}

// TestNetworkIsBusy: scenario 45: while the cloud works for somebody else it takes no change, which is no failure.
func TestNetworkIsBusy(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.sim.BeginNetworkWork(testNetworkName, 40*time.Second))
		w.requireServed(s, nodes) // which was read as idle, and is refused
		assert.Len(w, follow(w.nlb().Doc, "backendSets", "TCP-80")["backends"], 2)
		require.NoError(w, w.sim.BeginNetworkWork(testNetworkName, 40*time.Second))
		time.Sleep(20 * time.Second)
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "where nothing is to be changed, nobody waits")
		assert.LessOrEqual(w, w.Server.Calls().Total, 3)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes[:1]))
		assert.Equal(w, []string{"PUT /networkLoadBalancers/{id}/backendSets/{name}"}, w.writes(), "it waits, and is not refused")
		require.NoError(w, w.sim.BeginNetworkWork(testNetworkName, 40*time.Second))
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.NetworkLoadBalancers())
		w.quiet(events)
	})
}

// TestNetworkKeepsWhatOthersSet: scenarios 47 to 50 of network load balancers: one write for each backend set, with all that others set.
func TestNetworkKeepsWhatOthersSet(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web(), conformance.Port("https", 443, 30443))
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.sim.EditNetworkLoadBalancer(testNetworkName, func(lb *ocisim.NetworkLoadBalancer) {
			set := follow(lb.Doc, "backendSets", "TCP-80")
			set["isFailOpen"] = true
			set["backends"].([]any)[0].(document)["weight"] = 7.0
			set["backends"].([]any)[0].(document)["isDrain"] = true
			follow(lb.Doc, "listeners", "TCP-80")["tcpIdleTimeout"] = 900.0
		}))
		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		put := "PUT /networkLoadBalancers/{id}/backendSets/{name}"
		assert.Equal(w, []string{put, put}, w.writes(), "one write for each backend set")
		s.Annotations[nlbPolicy], s.Annotations[nlbPPv2] = twoTuple, "true"
		s.Spec.Ports = append(s.Spec.Ports[:1], conformance.Port("alt", 8080, 30081))
		w.requireServed(s, nodes)
		set := follow(w.nlb().Doc, "backendSets", "TCP-80")
		assert.Equal(w, true, set["isFailOpen"])
		assert.Equal(w, twoTuple, set["policy"])
		kept := map[any]any{}
		for _, b := range set["backends"].([]any) {
			kept[b.(document)["ipAddress"]] = []any{b.(document)["weight"], b.(document)["isDrain"]}
		}
		assert.Equal(w, map[any]any{"10.0.1.1": []any{7.0, true}, "10.0.1.2": []any{1.0, false}}, kept)
		l := follow(w.nlb().Doc, "listeners", "TCP-80")
		assert.Equal(w, []any{900.0, true}, []any{l["tcpIdleTimeout"], l["isPpv2Enabled"]})
		assert.Equal(w, []string{"TCP-80", "TCP-8080"}, sortedKeys(follow(w.nlb().Doc, "backendSets")))
		assert.Equal(w, []string{"TCP-80", "TCP-8080"}, sortedKeys(follow(w.nlb().Doc, "listeners")))
	})
}

// TestNodeMadeAgain: a node that was made again with the address of a former one is the new instance in the backends.
func TestNodeMadeAgain(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.requireServed(s, nodes[:1])
		w.sim.Remove(mustID(w, nodes[0]))
		again := w.joinAt("c", "10.0.1.1")
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, []*v1.Node{again}))
		b := follow(w.nlb().Doc, "backendSets", "TCP-80")["backends"].([]any)
		require.Len(w, b, 1)
		assert.Equal(w, mustID(w, again), b[0].(document)["targetId"])
	})
}

// TestNetworkWorkFails: scenarios 38 and 39 of network load balancers.
func TestNetworkWorkFails(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.sim.FailNextWork("no capacity")
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "no capacity")
		assert.Contains(w, <-events.Events, eventRefused)
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "has failed")
		assert.Contains(w, <-events.Events, eventFailed)
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.NetworkLoadBalancers())
		w.requireServed(s, nodes)
		w.sim.FailNextWork("a passing fault")
		s.Spec.Ports[0].NodePort = 30099
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "a passing fault")
		w.requireServed(s, nodes)
		w.sim.SetForgetful(true)
		s.Spec.Ports[0].NodePort = 30100
		w.requireServed(s, nodes)
		assert.InDelta(w, 30100, follow(w.nlb().Doc, "backendSets", "TCP-80")["backends"].([]any)[0].(document)["port"], 0)
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
	})
}

// TestNetworkRestart: scenario 40 of network load balancers.
func TestNetworkRestart(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.sim.SetWorkTime(time.Hour)
		for range 2 {
			_, err := w.ensure(s, nodes)
			require.ErrorContains(w, err, "still works")
			w.start()
		}
		time.Sleep(time.Hour)
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.NetworkLoadBalancers(), 1)
	})
}

// TestNetworkLostPermission: scenarios 33 and 62 of network load balancers: what is not shown is not gone.
func TestNetworkLostPermission(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.requireServed(s, nodes)
		for _, hide := range []func(bool){w.sim.SetBlind, w.sim.SetNetworkUnserved} {
			time.Sleep(time.Hour)
			hide(true)
			require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
			_, err := w.ensure(s, nodes)
			require.Error(w, err)
			_, _, err = w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
			require.Error(w, err)
			hide(false)
			time.Sleep(time.Minute) // what fails is not asked again at once
			assert.Len(w, w.sim.NetworkLoadBalancers(), 1)
		}
		w.sim.RemoveNetworkLoadBalancers()
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.NetworkLoadBalancers(), 1, "made again within the day in which retry tokens last")
	})
}

// TestNetworkGroups: scenario 52 of network load balancers.
func TestNetworkGroups(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(nlbGroups, ocisim.GroupID(2)+", "+ocisim.GroupID(1)), web())
		w.requireServed(s, nodes)
		assert.ElementsMatch(w, []any{ocisim.GroupID(1), ocisim.GroupID(2)}, w.nlb().Doc["networkSecurityGroupIds"])
		s.Annotations[nlbGroups] = ocisim.GroupID(3)
		w.requireServed(s, nodes)
		assert.Equal(w, []any{ocisim.GroupID(3)}, w.nlb().Doc["networkSecurityGroupIds"])
		delete(s.Annotations, nlbGroups)
		w.requireServed(s, nodes)
		assert.Empty(w, w.nlb().Doc["networkSecurityGroupIds"])
	})
}

// TestNetworkNoNodes: scenario 54 of network load balancers.
func TestNetworkNoNodes(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", ofNetwork(), web())
		w.requireServed(s, nodes)
		w.Server.ResetCalls()
		w.requireServed(s, nil)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nil))
		assert.Empty(w, w.writes())
	})
}

// TestDeletionAfterARestart: a Service that this process has served is deleted at once, though it shows no status yet, and the kind of load
// balancer that it never had is asked about for the first time.
func TestDeletionAfterARestart(t *testing.T) {
	for word, more := range map[string]map[string]string{typeBalancer: {}, typeNLB: ofNetwork()} {
		t.Run(word, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", more, web())
				w.requireServed(s, nodes)
				s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
				w.deleted(s)
			})
		})
	}
}
