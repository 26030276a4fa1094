package digitalocean

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
)

const (
	typeNetwork  = godo.LoadBalancerTypeRegionalNetwork
	typeRegional = godo.LoadBalancerTypeRegional
)

func nodePortService(annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	s := service("np", annotations, ports...)
	s.Spec.Type = v1.ServiceTypeNodePort
	return s
}

func protocol(p v1.ServicePort, name v1.Protocol) v1.ServicePort {
	p.Protocol = name
	return p
}

func fromAnywhere(protocol, ports string) opening {
	return opening{protocol: protocol, ports: ports, addresses: []string{"0.0.0.0/0", "::/0"}}
}

// checkAccess is that of the health checks of the load balancer lb-1.
func checkAccess(ports string) opening {
	return opening{protocol: "tcp", ports: ports, loadBalancers: []string{"lb-1"}}
}

func changed(s *v1.Service, change func(*v1.Service)) *v1.Service {
	change(s)
	return s
}

// serviceAccessCases list the access that a Service needs, by its load balancer.
var serviceAccessCases = map[string]struct {
	service         *v1.Service
	lbType, network string
	id              string
	want            []opening
	fault           string
}{
	"NodePort": {
		service: nodePortService(nil, webPort, protocol(port("dns", 53, 30053), v1.ProtocolUDP)),
		want:    []opening{fromAnywhere("tcp", "30080"), fromAnywhere("udp", "30053")},
	},
	"NodePort, managed": {
		service: nodePortService(map[string]string{annotationFirewallManaged: "true"}, webPort),
		want:    []opening{fromAnywhere("tcp", "30080")},
	},
	"NodePort, not managed": {service: nodePortService(map[string]string{annotationFirewallManaged: "false"}, webPort)},
	"NodePort, managed is illegal": {
		service: nodePortService(map[string]string{annotationFirewallManaged: "no"}, webPort),
		want:    []opening{fromAnywhere("tcp", "30080")}, fault: `firewall-managed: "no" is not a boolean`,
	},
	"NodePort without a port yet": {service: nodePortService(nil, port("http", 80, 0))},
	"SCTP beside TCP": {
		service: nodePortService(nil, protocol(port("s", 9, 30009), v1.ProtocolSCTP), webPort),
		want:    []opening{fromAnywhere("tcp", "30080")}, fault: "port 9: a firewall of DigitalOcean knows no protocol SCTP",
	},
	"REGIONAL": {service: service("s", nil, webPort), lbType: typeRegional, network: "EXTERNAL", id: "lb-1"},
	"INTERNAL": {service: service("s", nil, webPort), lbType: typeNetwork, network: "INTERNAL", id: "lb-1"},
	"network": {
		service: service("s", nil, webPort), lbType: typeNetwork, network: "EXTERNAL", id: "lb-1",
		want: []opening{checkAccess("10256"), fromAnywhere("tcp", "80")},
	},
	"network without a load balancer": {service: service("s", nil, webPort), lbType: typeNetwork, network: "EXTERNAL", want: []opening{fromAnywhere("tcp", "80")}},
	"network, Local": {service: changed(service("s", nil, webPort), func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 31000
	}), lbType: typeNetwork, network: "EXTERNAL", id: "lb-1", want: []opening{checkAccess("31000"), fromAnywhere("tcp", "80")}},
	"network, check of its own": {
		service: service("s", map[string]string{annotationOverrideCheck: ""}, webPort), lbType: typeNetwork, network: "EXTERNAL",
		id: "lb-1", want: []opening{checkAccess("30080"), fromAnywhere("tcp", "80")},
	},
	"network, annotations in fault": {
		service: service("s", map[string]string{annotationCheckInterval: "often"}, webPort), lbType: typeNetwork,
		network: "EXTERNAL", id: "lb-1", want: []opening{checkAccess("10256"), fromAnywhere("tcp", "80")},
	},
	"network, not managed": {
		service: service("s", map[string]string{annotationFirewallManaged: "false"}, webPort), lbType: typeNetwork,
		network: "EXTERNAL", id: "lb-1",
	},
	"another controller's class": {
		service: changed(service("s", nil, webPort), func(s *v1.Service) { s.Spec.LoadBalancerClass = new("x/y") }),
		lbType:  typeNetwork, network: "EXTERNAL",
	},
	"source ranges": {service: changed(service("s", map[string]string{annotationAllowRules: "ip:192.0.2.9"}, webPort), func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.7/24", " 203.0.113.0/24", "198.51.100.0/24"}
	}), lbType: typeNetwork, network: "EXTERNAL", want: []opening{{protocol: "tcp", ports: "80", addresses: []string{"198.51.100.0/24", "203.0.113.0/24"}}}},
	"allow rules": {
		service: service("s", map[string]string{annotationAllowRules: "ip:192.0.2.9, cidr:198.51.100.0/24"}, webPort), lbType: typeNetwork, network: "EXTERNAL",
		want: []opening{{protocol: "tcp", ports: "80", addresses: []string{"192.0.2.9", "198.51.100.0/24"}}},
	},
	"allow rules of no known kind": {
		service: service("s", map[string]string{annotationAllowRules: "cdir:198.51.100.0/24,203.0.113.0/24,ip:192.0.2.300"}, webPort),
		lbType:  typeNetwork, network: "EXTERNAL", want: []opening{{protocol: "tcp", ports: "80", addresses: []string{}}},
	},
	"allow rules without any rule": {
		service: service("s", map[string]string{annotationAllowRules: ", ,"}, webPort), lbType: typeNetwork, network: "EXTERNAL",
		want: []opening{{protocol: "tcp", ports: "80", addresses: []string{}}},
	},
	"source ranges that are none": {service: changed(service("s", nil, webPort), func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"}
	}), lbType: typeNetwork, network: "EXTERNAL", want: []opening{{protocol: "tcp", ports: "80", addresses: []string{}}}},
	"ClusterIP": {service: changed(service("s", nil, webPort), func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })},
}

func TestServiceAccess(t *testing.T) {
	t.Parallel()
	for name, c := range serviceAccessCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs, faults := serviceOpenings(c.service, godo.LoadBalancer{ID: c.id, Type: c.lbType, Network: c.network}, c.id)
			assert.Equal(t, c.want, needs)
			if c.fault == "" {
				assert.Empty(t, faults)
			} else {
				require.Len(t, faults, 1)
				assert.ErrorContains(t, faults[0], c.fault)
			}
		})
	}
}

func claims(n int, needs func(i int) []opening) []claim {
	list := make([]claim, n)
	for i := range list {
		list[i] = claim{service: types.UID(fmt.Sprint("s", i)), needs: needs(i)}
	}
	return list
}

func texts(rules []opening) []string {
	list := make([]string, len(rules))
	for i, r := range rules {
		list[i] = r.protocol + " " + r.ports + " " + strings.Join(slices.Concat(r.addresses, r.loadBalancers), " ")
	}
	return list
}

func TestFirewallRulesOfManyServices(t *testing.T) {
	t.Parallel()
	open := func(ports string) opening { return opening{protocol: "tcp", ports: ports, addresses: allNetworks()} }
	few := []claim{
		{"a", []opening{{protocol: "tcp", ports: "10256", loadBalancers: []string{"lb-a"}}, open("443"), open("80")}},
		{
			"b",
			[]opening{
				{protocol: "tcp", ports: "10256", loadBalancers: []string{"lb-b"}},
				open("80"),
				{protocol: "udp", ports: "53", addresses: []string{"192.0.2.0/24"}},
			},
		},
		{
			"c",
			[]opening{
				{protocol: "udp", ports: "53", addresses: []string{"198.51.100.0/24"}},
				{protocol: "tcp", ports: "80", addresses: []string{"192.0.2.0/24"}},
				{protocol: "tcp", ports: "81"},
			},
		},
	}
	rules, leftOut := fitClaims(few, 47)
	assert.Empty(t, leftOut)
	assert.Equal(t, []string{
		"tcp 10256 lb-a", "tcp 10256 lb-b", "tcp 443 0.0.0.0/0 ::/0", "tcp 80 0.0.0.0/0 ::/0", "udp 53 192.0.2.0/24 198.51.100.0/24",
	}, texts(rules), "sorted as text; who may come in from everywhere is not listed beside it; nobody means no rule")

	rules, leftOut = fitClaims(claims(100, func(i int) []opening {
		return []opening{{protocol: "tcp", ports: "10256", loadBalancers: []string{fmt.Sprintf("lb-%03d", i)}}, open(strconv.Itoa(8000 + i)), open("80")}
	}), 47)
	assert.Empty(t, leftOut, "100 load balancers, 102 ports, 3 rules")
	require.Len(t, rules, 3)
	assert.Len(t, rules[0].loadBalancers, 100)
	assert.Equal(t, []string{"10256", "80", "8000-8099"}, []string{rules[0].ports, rules[1].ports, rules[2].ports})

	rules, leftOut = fitClaims(claims(50, func(i int) []opening { return []opening{open(strconv.Itoa(30000 + 2*i))} }), 47)
	assert.Len(t, rules, 47)
	assert.Equal(t, []types.UID{"s47", "s48", "s49"}, leftOut, "the youngest have no room")
	rules, leftOut = fitClaims(claims(50, func(i int) []opening {
		if i == 49 {
			return []opening{open("30001")} // between two neighbours: it costs no rule, but spares one
		}
		return []opening{open(strconv.Itoa(30000 + 2*i))}
	}), 47)
	assert.Len(t, rules, 46)
	assert.Equal(t, []types.UID{"s47", "s48"}, leftOut)
}

func TestFirewallComparison(t *testing.T) {
	t.Parallel()
	request := func(change func(*godo.FirewallRequest)) *godo.FirewallRequest {
		r, _ := desiredFirewall("fw", []string{"a", "b"}, []claim{{"s", []opening{
			{protocol: "tcp", ports: "80", addresses: allNetworks()}, {protocol: "tcp", ports: "10256", loadBalancers: []string{"lb"}},
		}}})
		if change != nil {
			change(r)
		}
		return r
	}
	as := func(r *godo.FirewallRequest) *godo.Firewall {
		return &godo.Firewall{
			ID: "1", Name: r.Name, Tags: r.Tags, InboundRules: r.InboundRules, OutboundRules: r.OutboundRules,
			DropletIDs: r.DropletIDs,
		}
	}
	for name, c := range map[string]struct {
		have *godo.Firewall
		want []string
	}{
		"equal":    {as(request(nil)), nil},
		"name":     {as(request(func(r *godo.FirewallRequest) { r.Name = "x" })), []string{"name"}},
		"tags":     {as(request(func(r *godo.FirewallRequest) { r.Tags = []string{"a"} })), []string{"tags"}},
		"inbound":  {as(request(func(r *godo.FirewallRequest) { r.InboundRules = r.InboundRules[:1] })), []string{"inbound_rules"}},
		"outbound": {as(request(func(r *godo.FirewallRequest) { r.OutboundRules = nil })), []string{"outbound_rules"}},
		"order": {as(request(func(r *godo.FirewallRequest) {
			r.Tags = []string{"b", "a"}
			r.InboundRules[0], r.InboundRules[1] = r.InboundRules[1], r.InboundRules[0]
		})), nil},
		"how the API says all ports": {as(request(func(r *godo.FirewallRequest) {
			r.OutboundRules[0].PortRange, r.OutboundRules[1].PortRange, r.OutboundRules[2].PortRange = "", "0", ""
		})), nil},
		"droplets do not matter": {as(request(func(r *godo.FirewallRequest) { r.DropletIDs = []int{1} })), nil},
		"sources that we never send": {as(request(func(r *godo.FirewallRequest) {
			r.InboundRules[1].Sources = &godo.Sources{
				Addresses: []string{"::/0", "0.0.0.0/0"}, Tags: []string{"x"}, DropletIDs: []int{1}, KubernetesIDs: []string{"k"},
			}
		})), nil},
		"addresses": {
			as(request(func(r *godo.FirewallRequest) { r.InboundRules[1].Sources = &godo.Sources{Addresses: []string{"::/0"}} })),
			[]string{"inbound_rules"},
		},
		"load balancers": {as(request(func(r *godo.FirewallRequest) {
			r.InboundRules[0].Sources = &godo.Sources{LoadBalancerUIDs: []string{"other"}}
		})), []string{"inbound_rules"}},
		"no sources at all": {as(request(func(r *godo.FirewallRequest) { r.InboundRules[0].Sources = nil })), []string{"inbound_rules"}},
		"an action":         {as(request(func(r *godo.FirewallRequest) { r.InboundRules[0].Action = "deny" })), []string{"inbound_rules"}},
		"the usual action":  {as(request(func(r *godo.FirewallRequest) { r.InboundRules[0].Action = "allow" })), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, firewallDifferences(c.have, request(nil)))
		})
	}
	nothing, _ := desiredFirewall("fw", nil, nil)
	assert.Empty(t, firewallDifferences(&godo.Firewall{Name: "fw", OutboundRules: nothing.OutboundRules}, nothing), "none and empty are the same")
}

// TestOpenedToPlainAddresses: allow rules of the kind ip name addresses without a mask, which count as networks of one address.
func TestOpenedToPlainAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules      string
		have, want []string
	}{
		"open to the world":          {"ip:203.0.113.9", []string{"0.0.0.0/0", "::/0"}, []string{"203.0.113.9"}},
		"of both families":           {"ip:203.0.113.9,ip:2001:db8::9", []string{"0.0.0.0/0", "::/0"}, []string{"2001:db8::9", "203.0.113.9"}},
		"beside a network":           {"ip:203.0.113.9,cidr:192.0.2.0/24", []string{"0.0.0.0/0", "::/0"}, []string{"192.0.2.0/24", "203.0.113.9"}},
		"open already":               {"ip:203.0.113.9,ip:203.0.113.10", []string{"203.0.113.9"}, []string{"203.0.113.9"}},
		"an address that goes":       {"ip:203.0.113.9", []string{"203.0.113.9", "198.51.100.7"}, []string{"203.0.113.9"}},
		"open in another notation":   {"ip:203.0.113.9", []string{"203.0.113.9/32", "198.51.100.7"}, []string{"203.0.113.9/32"}},
		"an address within networks": {"cidr:203.0.113.0/24", []string{"203.0.113.9", "198.51.100.7"}, []string{"203.0.113.9"}},
		"of which none is open":      {"ip:203.0.113.9", []string{"198.51.100.7"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service("web", map[string]string{annotationAllowRules: c.rules}, webPort)
			needs, faults := serviceOpenings(s, godo.LoadBalancer{Type: typeNetwork}, "")
			require.Empty(t, faults)
			have := &godo.Firewall{InboundRules: []godo.InboundRule{{Protocol: "tcp", PortRange: "80", Sources: &godo.Sources{Addresses: c.have}}}}
			left := keepOpenings(needs, have)
			require.Len(t, left, 1)
			assert.ElementsMatch(t, c.want, left[0].addresses)
		})
	}
}

// TestOpenToNobody: a Service whose sources cannot be read, and that has no load balancer, keeps nothing open.
func TestOpenToNobody(t *testing.T) {
	t.Parallel()
	s := service("web", map[string]string{annotationAllowRules: "nonsense"}, webPort)
	needs, faults := serviceOpenings(s, godo.LoadBalancer{Type: typeNetwork}, "")
	require.Empty(t, faults)
	require.Len(t, needs, 1)
	have := &godo.Firewall{InboundRules: []godo.InboundRule{{Protocol: "tcp", PortRange: "80", Sources: &godo.Sources{Addresses: allNetworks()}}}}
	assert.Empty(t, keepOpenings(needs, have))
}

// TestSourcesThatDoNotFit: of more sources than a rule takes, those that are open stay, and then the oldest Service's come in.
func TestSourcesThatDoNotFit(t *testing.T) {
	t.Parallel()
	most := digitaloceanlimits.RuleSources.Max
	networks := func(first, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("10.%d.%d.0/24", (first+i)/250, (first+i)%250))
		}
		return list
	}
	at80 := func(addresses []string) []opening {
		return []opening{{protocol: "tcp", ports: "80", addresses: addresses}}
	}
	have := &godo.Firewall{InboundRules: []godo.InboundRule{
		{Protocol: "tcp", PortRange: "79-80", Sources: &godo.Sources{Addresses: networks(most, 2)}},
		{Protocol: "tcp", PortRange: "443", Sources: &godo.Sources{Addresses: networks(0, 2)}},
	}}
	both := []claim{{"a", at80(networks(1, most-1))}, {"b", at80(networks(most, 3))}, {"c", []opening{fromAnywhere("tcp", "443")}}}
	faults := fitSources(both, have)
	assert.Equal(t, networks(1, most-2), both[0].needs[0].addresses)
	assert.Equal(t, networks(most, 2), both[1].needs[0].addresses, "they are open")
	assert.Equal(t, allNetworks(), both[2].needs[0].addresses)
	assert.Len(t, faults, 2)
	for _, uid := range []types.UID{"a", "b"} {
		require.Len(t, faults[uid], 1, uid)
		assert.ErrorContains(t, faults[uid][0], "port 80: a rule of a firewall would have 1002 sources, and the cloud takes at most 1000; the others stay shut out")
	}
	for name, list := range map[string][]claim{
		"twice":         {{"a", at80(networks(0, most))}, {"b", at80(networks(0, most))}},
		"and everybody": {{"a", at80(networks(0, most+1))}, {"b", []opening{fromAnywhere("tcp", "80")}}},
	} {
		assert.Empty(t, fitSources(list, nil), name)
	}
}
