package linode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

const testToken = "linode-test-token"

// testInputs are the options of a provider that talks to the simulator.
func testInputs(url string, flags, more map[string]string) registry.Inputs {
	env := map[string]string{"LINODE_API_TOKEN": testToken, "LINODE_URL": url, "LINODE_REGION": linodesim.Region}
	maps.Copy(env, more)
	return conformance.Inputs(flags, env)
}

const reservedIP = "198.19.200.7"

// The Services that the tests try.
var (
	service = conformance.Service
	port    = conformance.Port
)

// firstAddress is why the addresses of an instance keep their order.
const firstAddress = "the first address of a kind is the one that the instance was made with, and the Node's primary one"

// anyText is why a field takes any value.
const anyText = "a text for people, of which the API looks at the length alone"

// resize changes the type of a Linode.
func resize(l *linodesim.Linode) { l.Type = "g6-standard-8" }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := linodesim.New(linodesim.Options{Token: testToken})
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	sim.Reserve(reservedIP)
	flags, subnet := map[string]string(nil), 0
	inVPC := func(second ...[2]string) []int {
		_, subnets := sim.AddVPC("cluster", append([][2]string{{"default", "10.0.0.0/16"}}, second...)...)
		flags, subnet = map[string]string{"vpc-names": "cluster"}, subnets[0]
		return subnets
	}
	number := func(providerID string) int { return linodeID(t, providerID) }
	f := &conformance.Fixture{
		OnlyThere: []string{`is not the ID of a NodeBalancer that the token may read`},
		Limited:   func() { server.Configure(func(c *simkit.Settings) { c.PerOperation = true }) },
		Sim:       server, Network: network, Lag: sim.SetListingLag,
		Provider: Description(), Everybody: []string{openToAll, anyIPv4, anyIPv6}, Filters: []string{"POST /v4/networking/firewalls"},
		SourceRanges: conformance.FeatureCase{ClosesLater: "a NodeBalancer without its firewall is open to everybody", Scope: scopeOf(sim)},
		Inputs:       func() registry.Inputs { return testInputs(url, flags, nil) },
		Routes: func() {
			inVPC()
			flags["enable-route-controller"] = "true"
		},
		AddInstance: func(name string) string {
			return providerIDPrefix + strconv.Itoa(sim.AddLinode(linodesim.Spec{Label: name, Private: true, SubnetID: subnet}))
		},
		RemoveInstance:  func(id string) { sim.Remove(number(id)) },
		PowerOff:        func(id string) { require.NoError(t, sim.SetStatus(number(id), "offline")) },
		Resize:          func(id string) { sim.Edit(number(id), resize) },
		Tag:             func(id string, tags map[string]string) { sim.Edit(number(id), tagged(tags)) },
		InstanceListing: "GET /v4/linode/instances", RefuseAccount: func() { sim.SetToken("another") },

		RemoveLoadBalancers: sim.RemoveLoadBalancers,
		OtherAccount:        sim.RemoveAll,
		Strictness: conformance.Strictness{
			Free: map[string]string{
				"rules.inbound[].label": anyText, "inbound[].label": anyText, "rules.inbound[].description": anyText, "inbound[].description": anyText,
				"tags[]": anyText, "configs[].check_body": "a regular expression", "check_body": "a regular expression",
			},
			Ordered: map[string]string{"ipv4": firstAddress, "data[].ipv4": firstAddress}, LimitsElsewhere: limitsElsewhere(), Unlimited: unlimited(),
		},
		UDP:                  conformance.FeatureCase{Shows: `"udp"`},
		DualStack:            conformance.FeatureCase{With: map[string]string{annotationIPv6Ingress: "true"}, Shows: `"ip":"2001:db8:1:`},
		StateWithoutInstance: func(state, _ string) string { return state },
		MalformedIDs: []string{
			providerIDPrefix, providerIDPrefix + "12x", providerIDPrefix + "-1", providerIDPrefix + "0", providerIDPrefix + "007",
			providerIDPrefix + "+7", providerIDPrefix + "../../account", providerIDPrefix + "7?page=1",
		},
		Services: serviceCases(),
		Portable: portableCases(t, sim), Snapshot: func() string { return snapshot(t, sim) }, Fixed: fixedCases(sim, inVPC),
	}
	f.TakenOver = leftNodeBalancers(t, f, url)
	f.Claims = claimsIn(sim, func() string { return byHand(t, url, network.Dial) })
	addTranscripts(t, f, sim, func() { inVPC() })
	return tryOthers(t, sim, f)
}

func linodeID(t testing.TB, providerID string) int {
	t.Helper()
	id, err := parseProviderID(providerID)
	require.NoError(t, err)
	return id
}

// claimsIn are how a Service names a NodeBalancer, which foreign makes for somebody else.
func claimsIn(sim *linodesim.Sim, foreign func() string) *conformance.Claims {
	return &conformance.Claims{
		Of:      func(s *v1.Service) string { return s.Annotations[annotationRecord] },
		Claim:   func(s *v1.Service, id string) { s.Annotations[annotationID] = id },
		Foreign: foreign,
		Exists: func(id string) bool {
			return slices.ContainsFunc(sim.NodeBalancers(), func(nb linodesim.NodeBalancer) bool { return strconv.Itoa(nb.ID) == id })
		},
	}
}

// serviceCases are the Services that the suite tries.
func serviceCases() map[string]conformance.Case {
	return map[string]conformance.Case{
		"plain": {
			Service: service("plain", nil, port("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: richService(), Unique: []string{annotationReservedIPv4},
			Change: func(s *v1.Service) {
				s.Annotations[annotationThrottle] = "5"
				s.Annotations[annotationPort+"80"] = `{"protocol": "tcp", "proxy-protocol": "v1"}`
				s.Annotations[annotationFirewallACL] = `{"denyList": {"ipv4": ["192.0.2.0/24"]}}`
				s.Spec.Ports = s.Spec.Ports[:2]
			},
		},
	}
}

// byHand makes a NodeBalancer as somebody does in the Cloud Manager, and returns its ID.
func byHand(t testing.TB, url string, dial func(ctx context.Context, network, address string) (net.Conn, error)) string {
	t.Helper()
	in := testInputs(url, nil, nil)
	in.Dial = dial
	c, err := newCloud(in)
	require.NoError(t, err)
	nb, err := c.api.createNodeBalancer(context.Background(), &nodeBalancerRequest{
		Label: "by-hand", Region: linodesim.Region, Type: "common", Tags: []string{},
		Configs: []configFields{{Port: 5432, Protocol: "tcp", Algorithm: "roundrobin", Check: "none", CheckInterval: 5, CheckTimeout: 3, CheckAttempts: 2}},
	})
	require.NoError(t, err)
	return strconv.Itoa(nb.ID)
}

// openToAll is how a snapshot says that a NodeBalancer has no firewall.
const openToAll = "everybody may connect"

// snapshot prints the cloud's objects for Services, without the times and identifiers that differ from run to run.
func snapshot(t testing.TB, sim *linodesim.Sim) string {
	var all strings.Builder
	show := func(v any) {
		text, err := json.MarshalIndent(v, "", " ")
		require.NoError(t, err)
		all.Write(text)
	}
	for i, nb := range sim.NodeBalancers() {
		if !slices.ContainsFunc(sim.Firewalls(), func(f linodesim.Firewall) bool { return slices.Contains(f.Devices(), nb.ID) }) {
			show(openToAll)
		}
		for _, c := range nb.Configs() {
			nodes := []string{}
			for _, n := range c.Nodes() {
				nodes = append(nodes, fmt.Sprint(n.Address, " ", n.Label, " ", n.Weight, " ", n.Mode))
			}
			c.ID, c.NodeBalancerID = 0, 0
			show(c)
			show(nodes)
		}
		nb.ID, nb.Created, nb.Updated, nb.IPv6, nb.Hostname = i, "", "", "", ""
		if nb.IPv4 != reservedIP {
			nb.IPv4 = ""
		}
		nb.Tags = slices.Sorted(slices.Values(nb.Tags)) // the API promises no order
		show(nb)
	}
	for i, f := range sim.Firewalls() {
		f.ID, f.Created, f.Updated, f.Rules.Version, f.Rules.Fingerprint = i, "", "", 0, ""
		f.Tags = slices.Sorted(slices.Values(f.Tags))
		show(f)
		show(len(f.Devices()))
	}
	return all.String()
}

// richService uses everything at once that does not exclude something else.
func richService() *v1.Service {
	udp := port("quic", 443, 30443)
	udp.Protocol = v1.ProtocolUDP
	return service("rich", map[string]string{
		annotationProtocol: "HTTP", annotationAlgorithm: "leastconn", annotationStickiness: "http_cookie", annotationCheckType: "http_body",
		annotationCheckPath: "/ready", annotationCheckBody: "ok", annotationCheckInterval: "10", annotationCheckTimeout: "7",
		annotationCheckAttempts: "4",
		annotationCheckPassive:  "false", annotationThrottle: "10", annotationType: "premium", annotationIPv6Ingress: "true", annotationTags: "one, two and more",
		annotationReservedIPv4: reservedIP, annotationFirewallACL: `{"allowList": {"ipv4": ["198.51.100.0/24"], "ipv6": ["2001:db8:7::/48"]}}`,
		annotationPort + "443": `{"protocol": "udp", "algorithm": "ring_hash", "stickiness": "source_ip", "udp-check-port": "8080"}`,
		annotationPort + "80":  `{"protocol": "tcp", "proxy-protocol": "v2", "algorithm": "source"}`,
	}, port("tcp", 80, 30080), port("http", 8080, 30081), udp)
}

// tagged gives a Linode tags.
func tagged(tags map[string]string) func(*linodesim.Linode) {
	return func(l *linodesim.Linode) { l.Tags = slices.Sorted(maps.Keys(tags)) }
}
