package oci

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// placed gives nodes the addresses that their network interfaces have.
func (w *testWorld) placed(nodes []*v1.Node) {
	w.Helper()
	for _, n := range nodes {
		n.Status.Addresses = w.RequireMetadata(n).NodeAddresses
	}
}

// allRules are the rules of all security lists.
func (w *testWorld) allRules() string {
	var all []string
	for _, list := range []string{ocisim.DefaultList, ocisim.BalancerList, ocisim.NewerList} {
		all = append(all, w.sim.SecurityRules(list)...)
	}
	return strings.Join(all, "\n")
}

// TestNetworkRulesOfLists: scenario 56 of network load balancers: rules of security lists, with those of UDP, and for clients whose
// addresses the nodes see; they go with the Service.
func TestNetworkRulesOfLists(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		w.placed(nodes)
		before := w.allRules()
		s := local(conformance.Service("web", ofNetwork(annotationRuleMode, "sl-all"), web(), udp(53, 30053)))
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.requireServed(s, nodes)
		for _, want := range []string{
			"ingress 6 80 203.0.113.0/24", "ingress 17 53 203.0.113.0/24", // clients come in
			"ingress 6 30080 203.0.113.0/24", "ingress 17 30053 203.0.113.0/24", // and are seen by the nodes
			"ingress 6 32000 10.0.", "egress 6 32000 10.0.", "egress 17 30053 10.0.", // health checks and traffic
		} {
			assert.Contains(w, w.allRules(), want)
		}
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		s.Annotations[nlbPreserve] = "false"
		w.requireServed(s, nodes)
		assert.NotContains(w, w.allRules(), "ingress 6 30080 203.0.113.0/24")
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Equal(w, before, w.allRules())
		w.quiet(events)
	})
}

// TestNetworkRulesOfGroups: scenario 59 of network load balancers: a group of its own, which goes with the Service, and when it is wanted
// no more.
func TestNetworkRulesOfGroups(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.placed(nodes)
		s := conformance.Service("web", ofNetwork(annotationRuleMode, "nsg", annotationBackGroups, ocisim.GroupID(3)), udp(53, 30053))
		before := len(w.sim.Groups())
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.Groups(), before+1)
		assert.Len(w, w.nlb().Doc["networkSecurityGroupIds"], 1)
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		var rules []string
		for _, g := range w.sim.Groups() {
			rules = append(rules, g.Rules...)
		}
		assert.Contains(w, strings.Join(rules, "\n"), "17 53", "rules of UDP are such")
		s.Annotations = ofNetwork()
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.Groups(), before)
		s.Annotations = ofNetwork(annotationRuleMode, "nsg")
		w.requireServed(s, nodes)
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Len(w, w.sim.Groups(), before)
	})
}

// TestNetworkReserved: scenario 35 of network load balancers: a reserved address, which cannot be changed later; that is said before
// anything is written.
func TestNetworkReserved(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		w.sim.AddReserved("192.0.2.7")
		s := conformance.Service("web", ofNetwork(nlbExternal, "true"), web())
		s.Spec.LoadBalancerIP = "192.0.2.8"
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, `spec.loadBalancerIP: "192.0.2.8" there is no such reserved public address`)
		assert.Contains(w, <-events.Events, eventConfigError)
		s.Spec.LoadBalancerIP = "192.0.2.7"
		assert.Equal(w, []string{"192.0.2.7"}, ips(w.requireServed(s, nodes)))
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		s.Spec.LoadBalancerIP, s.Annotations[nlbPPv2] = "192.0.2.9", "true"
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "reserved IP cannot be updated after the Load Balancer is created")
		assert.Empty(w, w.writes(), "fault 22: that is said first")
		other := conformance.Service("other", ofNetwork(annotationAddress, "192.0.2.7"), web())
		other.UID = "5c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
		_, err = w.ensure(other, nodes)
		require.ErrorContains(w, err, "is not free: the address is")
	})
}

// TestNetworkTakeover: scenario 61 of network load balancers: what Oracle's own controller made is not written, whatever order the cloud
// shows.
func TestNetworkTakeover(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		checker := document{
			"protocol": "HTTP", "urlPath": "/healthz", "port": 32000, "returnCode": 200, "retries": 3, "timeoutInMillis": 3000, "intervalInMillis": 10000,
		}
		backend := func(n int, port int) document {
			return document{"ipAddress": "10.0.1." + string(rune('1'+n)), "targetId": mustID(w, nodes[n]), "port": port, "weight": 1}
		}
		set := func(port int) document {
			return document{
				"policy": "FIVE_TUPLE", "isPreserveSource": true, "ipVersion": "IPV4", "healthChecker": checker, "backends": []any{backend(1, port), backend(0, port)},
			}
		}
		w.sim.AddNetworkLoadBalancer(testNetworkName, document{
			"compartmentId": ocisim.Compartment, "subnetId": ocisim.BalancerSubnet(), "nlbIpVersion": "IPV4",
			"listeners": document{
				"TCP-80": document{"defaultBackendSetName": "TCP-80", "port": 80, "protocol": "TCP", "ipVersion": "IPV4"},
				"UDP-53": document{"defaultBackendSetName": "UDP-53", "port": 53, "protocol": "UDP", "ipVersion": "IPV4"},
			},
			"backendSets": document{"TCP-80": set(30080), "UDP-53": set(30053)},
		})
		s := local(conformance.Service("web", ofNetwork(), web(), udp(53, 30053)))
		for range 2 {
			w.Server.ResetCalls()
			w.requireServed(s, nodes)
			assert.Empty(w, w.writes())
			w.start()
			w.cloud.loadBalancers.setEvents(events)
		}
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: w.nlb().Public}, {IP: w.nlb().Address}}
		assert.Equal(w, &s.Status.LoadBalancer, w.requireServed(s, nodes), "the order of the status stays")
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.NetworkLoadBalancers())
		w.quiet(events)
	})
}

// TestNetworkInAnotherCompartment: a network load balancer is made in the compartment that its Service names, found there, and deleted.
func TestNetworkInAnotherCompartment(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		const elsewhere = "ocid1.compartment.oc1..elsewhere"
		w.sim.Add("of others", func(i *ocisim.Instance) { i.Compartment = elsewhere })
		s := conformance.Service("web", ofNetwork(annotationCompartment, elsewhere), web())
		services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		require.NoError(w, services.Add(s))
		w.cloud.loadBalancers.cluster.SetServices(listers.NewServiceLister(services))
		status := w.requireServed(s, nodes)
		assert.Equal(w, elsewhere, w.nlb().Doc["compartmentId"])
		time.Sleep(time.Minute)
		w.Server.ResetCalls()
		assert.Equal(w, status, w.requireServed(s, nodes))
		assert.Empty(w, w.writes())
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.NetworkLoadBalancers())
	})
}

// TestNetworkHost: the service has a host of its own.
func TestNetworkHost(t *testing.T) {
	t.Parallel()
	c := Config{Domain: "oraclecloud.com"}
	assert.Equal(t, "https://network-load-balancer-api.eu-frankfurt-1.oci.oraclecloud.com/20200501", c.apiURL("eu-frankfurt-1", "/networkLoadBalancers/x"))
	assert.Equal(t, "https://network-load-balancer-api.eu-frankfurt-1.oci.oraclecloud.com/20200501", c.apiURL("eu-frankfurt-1", "/workRequests/x"))
	assert.Equal(t, "https://iaas.eu-frankfurt-1.oraclecloud.com/20170115", c.apiURL("eu-frankfurt-1", "/loadBalancers"))
	assert.Equal(t, "https://network-load-balancer-api.sim.local/20200501", c.apiURL("sim.local", "/networkLoadBalancers"))
	c.Endpoint = "http://127.0.0.1:1"
	assert.Equal(t, "http://127.0.0.1:1/20200501", c.apiURL("eu-frankfurt-1", "/networkLoadBalancers"))
}
