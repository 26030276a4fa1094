package digitalocean

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

const testToken = "dop_v1_test"

// testInputs are the options of a provider that talks to the simulator.
func testInputs(url string, more map[string]string) registry.Inputs {
	env := map[string]string{
		"DO_ACCESS_TOKEN": testToken, "DO_OVERRIDE_URL": url + "/", "REGION": "nyc3", "DO_CLUSTER_ID": "c1",
		// The suite breaks thousands of calls on purpose; our own limit would only slow it down.
		"DO_API_RATE_LIMIT_QPS": "100000",
	}
	maps.Copy(env, more)
	return conformance.Inputs(nil, env)
}

// The Services that the tests try.
var (
	service = conformance.Service
	port    = conformance.Port
)

func newFixture(t testing.TB) *conformance.Fixture { return newFixtureBehind(t, nil) }

// newFixtureBehind puts something between the provider and the simulator; faulty tells whether a fault is in force.
func newFixtureBehind(
	t testing.TB, between func(sim *digitaloceansim.Sim, server http.Handler, faulty func() bool) http.Handler,
) *conformance.Fixture {
	sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken, Seed: simkit.SeedOf(t)})
	network := simkit.NewNetwork()
	url, env := network.Serve(t, server), map[string]string{}
	if between != nil {
		url = network.Serve(t, between(sim, server, func() bool { return len(server.Faults()) > 0 }))
	}
	certificate := sim.AddCertificate("web", "custom")
	number := func(providerID string) int {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f := &conformance.Fixture{
		OnlyThere: []string{`needs IPv6 on every node`},
		Sim:       server, Network: network,
		Strictness: conformance.Strictness{LimitsElsewhere: limitsElsewhere(), Unlimited: unlimited()},
		Lag:        sim.SetListingLag,
		Limited: func() {
			env["DO_API_RATE_LIMIT_QPS"] = ""
			server.Configure(func(c *simkit.Settings) {
				c.PerMinute, c.PerHour = digitaloceansim.PublishedPerMinute, digitaloceansim.PublishedPerHour
			})
		},
		SourceRanges: conformance.FeatureCase{ClosesLater: "the rules are those of the load balancer itself", Scope: scopeOf(sim)},
		Provider:     Description(), Everybody: []string{`"allow": []`, everywhereV4, everywhereV6},
		Inputs: func() registry.Inputs { return testInputs(url, env) },
		AddInstance: func(name string) string {
			return providerIDPrefix + strconv.Itoa(sim.AddDroplet(digitaloceansim.Spec{Name: name, Tags: strings.Fields(env[envFirewallTags])}))
		},
		RemoveInstance: func(id string) { sim.Remove(number(id)) },
		PowerOff:       func(id string) { require.NoError(t, sim.SetStatus(number(id), "off")) },
		Resize: func(id string) {
			sim.Edit(number(id), func(d *digitaloceansim.Droplet) { d.SizeSlug = "s-8vcpu-16gb" })
		},
		Tag: func(id string, tags map[string]string) {
			sim.Edit(number(id), func(d *digitaloceansim.Droplet) { d.Tags = slices.Sorted(maps.Keys(tags)) })
		},
		InstanceListing: "GET /v2/droplets", RefuseAccount: func() { sim.SetToken("another") },
		RemoveLoadBalancers: sim.RemoveLoadBalancers,
		OtherAccount:        sim.RemoveAll,
		MalformedIDs:        []string{providerIDPrefix, providerIDPrefix + "12x", providerIDPrefix + "-1", providerIDPrefix + "0"},
		Services:            serviceCases(certificate),
		Transcripts:         transcripts, Secrets: []string{testToken}, Scenarios: scenarios(sim, env, certificate), Serves: sim.Serves,
		Target: target, PlannedWrites: plannedWrites, Unplanned: unplanned, Untranscribed: untranscribed,
		Unserved: map[string]string{"annotation-do-loadbalancer-http3-port/it is 443": "HTTP/3 is served over UDP at the port of HTTPS"},
		Fixed:    fixedCases(), Portable: portableCases(certificate), Snapshot: func() string { return snapshot(t, sim) },
		UDP: conformance.FeatureCase{Shows: `"udp"`},
		DualStack: conformance.FeatureCase{
			With: map[string]string{annotationType: typeRegional}, Without: map[string]string{annotationNetworkStack: "IPV4"}, Shows: `"DUALSTACK"`,
		},
	}
	f.Scopes = map[string]conformance.FeatureCase{"public firewall": firewallCase(f, sim, env)}
	f.TakenOver = leftBalancers(t, f, url)
	f.Claims, f.Lacks = claimsIn(sim, func() string { return byHand(t, url, network.Dial) }), lacks
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1"
	return f
}

// lacks says what outsiders cannot try here.
var lacks = map[string]string{
	"Share":         "a load balancer serves one Service",
	"Address6":      "an address that a Service asks for is of IPv4",
	"Reserve":       "an address that a Service may ask for is of the user's own range, and no call releases it",
	"OwnershipTags": "no annotation sets tags",
	"Additions":     "a load balancer and all its parts are one object",
	"AddInterface":  "a Droplet has one interface in the public network and one in its VPC, and gets no other",
}

// unplanned says why plan does not foresee some changes of nodes.
var unplanned = map[string]string{
	"takeover/a node joins":         "a change of nodes leaves the tags to the next reconciliation of the Service, which plan is about",
	"nodes/two leave and one joins": "plan replaces all Droplets in one write, and a change of nodes adds and removes some",
}

// fixedCases are values of what counts only when a load balancer is made.
func fixedCases() map[string]func() conformance.FixedCase {
	values := conformance.FixedValues
	return map[string]func() conformance.FixedCase{
		annotationType: values(typeRegional, typeNetwork), annotationNetwork: values("", "INTERNAL"),
		annotationNetworkStack: values("IPV4", "DUALSTACK"), annotationIP: values("198.51.100.9", "198.51.100.10"),
	}
}

// claimsIn are how a Service names a load balancer, which foreign makes for somebody else.
func claimsIn(sim *digitaloceansim.Sim, foreign func() string) *conformance.Claims {
	return &conformance.Claims{
		Of:      func(s *v1.Service) string { return s.Annotations[annotationID] },
		Claim:   func(s *v1.Service, id string) { s.Annotations[annotationID] = id },
		Foreign: foreign,
		Exists: func(id string) bool {
			return slices.ContainsFunc(sim.LoadBalancers(), func(lb digitaloceansim.LoadBalancer) bool { return lb.ID == id })
		},
	}
}

// serviceCases are the Services that the suite tries.
func serviceCases(certificate string) map[string]conformance.Case {
	return map[string]conformance.Case{
		"plain": {
			Service: service("plain", nil, port("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: richService(certificate),
			Change:  func(s *v1.Service) { s.Annotations[annotationName] = "renamed" },
			Unique:  []string{annotationName, annotationIP},
		},
		"rich-network": {
			Service: networkService(),
			Change:  func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = s.Spec.LoadBalancerSourceRanges[:1] },
			Unique:  []string{annotationName},
		},
	}
}

// portableCases are values of portable annotations that the simulated cloud has, and what goes with them.
func portableCases(certificate string) map[string]conformance.PortableCase {
	return map[string]conformance.PortableCase{
		portable.Certificate: {Value: certificate},
		portable.TLSPorts:    {With: map[string]string{portable.Certificate: certificate}},
		portable.Subnet:      {Value: "5a4981aa-9653-4bd1-bef5-d6bff52042e4"},
		portable.Address:     {Value: "198.51.100.9"},
	}
}

// byHand makes a load balancer as somebody does in the control panel, and returns its ID.
func byHand(t testing.TB, url string, dial func(ctx context.Context, network, address string) (net.Conn, error)) string {
	t.Helper()
	in := testInputs(url, nil)
	in.Dial = dial
	c, err := newCloud(in)
	require.NoError(t, err)
	lb, err := c.api.createLoadBalancer(context.Background(), &godo.LoadBalancerRequest{
		Name: "by-hand", Region: "nyc3", Tag: "databases",
		ForwardingRules: []godo.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 5432, TargetProtocol: "tcp", TargetPort: 5432}},
	})
	require.NoError(t, err)
	return lb.ID
}

// snapshot prints the cloud's objects for Services, without the times and identifiers that differ from run to run.
func snapshot(t testing.TB, sim *digitaloceansim.Sim) string {
	var all strings.Builder
	for i, lb := range sim.LoadBalancers() {
		lb.ID, lb.CreatedAt, lb.IP, lb.IPv6 = strconv.Itoa(i), "", "", ""
		text, err := json.MarshalIndent(lb, "", " ")
		require.NoError(t, err)
		all.Write(text)
	}
	for _, f := range sim.Firewalls() {
		shown := map[string]any{"firewall": f.Name, "inbound": f.InboundRules, "outbound": f.OutboundRules, "tags": f.Tags}
		text, err := json.MarshalIndent(shown, "", " ")
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// richService uses everything at once that does not exclude something else.
func richService(certificate string) *v1.Service {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("rich", map[string]string{
		annotationName: "rich", annotationType: "REGIONAL", annotationNetwork: "EXTERNAL", annotationNetworkStack: "DUALSTACK",
		annotationProtocol: "tcp", annotationHTTPPorts: "80", annotationTLSPorts: "8443", annotationHTTP2Ports: "443", annotationHTTP3Port: "443",
		annotationCertificateID: certificate, annotationNoLetsEncryptDNS: "true", annotationRedirect: "true", annotationProxyProtocol: "true",
		annotationKeepalive: "true", annotationIdleTimeout: "120", annotationStickyType: "cookies", annotationStickyCookieName: "lb",
		annotationStickyCookieTTL: "300", annotationSizeUnit: "2", annotationCheckInterval: "10", annotationCheckTimeout: "7",
		annotationUnhealthyThreshold: "4", annotationHealthyThreshold: "6", annotationOverrideCheck: "", annotationCheckPath: "/ready",
		annotationIP: "198.51.100.9", annotationSubnet: "5a4981aa-9653-4bd1-bef5-d6bff52042e4", annotationHostname: "web.example.com",
		annotationCheckPort: "80", annotationCheckProtocol: "http", annotationDenyRules: "ip:192.0.2.7", annotationAllowRules: "cidr:198.51.100.0/24",
	}, port("http", 80, 30080), port("http2", 443, 30443), port("https", 8443, 30843), port("raw", 9000, 30900), udp)
	return s
}

// networkService is the richest one of the other type.
func networkService() *v1.Service {
	udp := port("quic", 443, 30443)
	udp.Protocol = v1.ProtocolUDP
	s := service("rich-network", map[string]string{
		annotationName: "rich-network", annotationType: "REGIONAL_NETWORK", annotationNetworkStack: "IPV4", annotationSizeUnit: "3",
		annotationCheckInterval: "4", annotationDenyRules: "ip:192.0.2.7",
	}, port("https", 443, 30444), udp)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/24"}
	return s
}
