package cloudstack

import (
	"cmp"
	"embed"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// identities maps objects without a short name in the simulator's state to stable names.
func identities(sim *cloudstacksim.Sim) map[string]string {
	names, rules := map[string]string{}, map[string]string{}
	for _, a := range sim.Addresses() {
		names[a.ID] = "address/" + a.Address
	}
	for _, r := range sim.Rules() {
		rules[r.ID] = r.Name
	}
	for _, f := range sim.Firewalls() {
		names[f.ID] = fmt.Sprintf("firewall/%s-%d-%s", f.Protocol, f.Start, strings.Join(f.CIDRs, ","))
	}
	for _, i := range sim.ACLItems() {
		names[i.ID] = fmt.Sprintf("acl-item/%s-%d-%s", i.Protocol, i.Start, strings.Join(i.CIDRs, ","))
	}
	for _, p := range sim.Policies() {
		names[p.ID] = "policy/" + cmp.Or(rules[p.Rule], p.Name)
	}
	return names
}

// worldOn is somebody else on the same cloud.
func worldOn(t testing.TB, sim *cloudstacksim.Sim, network *simkit.Network, url string) *world {
	t.Helper()
	test, ok := t.(*testing.T)
	require.True(t, ok)
	w := &world{Bench: conformance.NewBench(test), sim: sim, network: network, url: url}
	w.restart()
	return w
}

// values are the legal values of annotations, and what goes with them.
var values = map[string][]conformance.Legal{
	annotationProxyProtocol: {{Value: "true"}},
	annotationHostname:      {{Value: "www.example.com"}},
	annotationSourceCIDRs:   {{Value: "10.0.0.0/8"}, {Value: "10.0.0.0/8,192.0.2.0/24"}},
	annotationAddress:       {{Value: "203.0.113.77"}},
	annotationStickiness:    {{Value: "SourceBased"}, {Value: "LbCookie"}},
	annotationStickinessParams: {
		{Value: "expire=30m", With: map[string]string{annotationStickiness: "SourceBased"}},
		{Value: "expire=60m", With: map[string]string{annotationStickiness: "SourceBased"}},
	},
}

// interrupts are the steps in which a port leads nowhere for a while.
func interrupts() map[string]string {
	const portIsFixed = "CloudStack changes no private port of a rule and has one rule for a public port: the rule is made again"
	return map[string]string{"node-ports/one changes": portIsFixed, "node-ports/they are swapped": portIsFixed}
}

// scenarios are those of annotations, of a tier of a VPC, of an address that two Services share, and of what others leave. theirWorld is
// somebody else who works in the same account.
func scenarios(sim *cloudstacksim.Sim, theirWorld func() *world) []conformance.Scenario {
	addPort := conformance.Step{Name: "a port is added", Do: func(p *conformance.Play) {
		p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) })
	}}
	ranges := func(name string, ranges ...string) conformance.Step {
		return conformance.Step{Name: name, Do: func(p *conformance.Play) {
			p.Change("web", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
		}}
	}
	deleted := conformance.Step{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }}
	one := func() *v1.Service { return service("web", nil, port("http", 80, 30080)) }
	at := func(s *v1.Service) *v1.Service {
		s.Spec.LoadBalancerIP = "203.0.113.90"
		return s
	}
	takeover := func(name, version string) conformance.Scenario {
		return conformance.Scenario{Name: name, Steps: []conformance.Step{
			{Name: "its Service is there, and so is what was made for it", Do: func(p *conformance.Play) { p.Leave(leftRules(theirWorld)[version]) }},
			addPort, deleted,
		}}
	}
	all := []conformance.Scenario{
		{
			Name: "tier-of-a-vpc", Services: []*v1.Service{one()},
			Prepare: func() { sim.MakeTier() },
			Steps:   []conformance.Step{ranges("narrowed", "192.0.2.0/24"), ranges("moved", "198.51.100.0/24"), addPort, deleted},
		},
		{
			Name: "shared-address", Services: []*v1.Service{at(one()), at(another(service("other", nil, port("https", 443, 30443))))},
			Steps: []conformance.Step{
				{Name: "the one that took it is deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
				{Name: "the other one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
			},
		},
		{
			Name: "kept-address", Services: []*v1.Service{service("web", map[string]string{annotationKeepIP: "true"}, port("http", 80, 30080))},
			Steps: []conformance.Step{deleted},
		},
		takeover("takeover", "1.2"), takeover("takeover-from-kubernetes", "of Kubernetes"),
	}
	for _, row := range Annotations.Rows() {
		if legal := values[row.Key]; len(legal) > 0 {
			all = append(all, conformance.AnnotationScenario(row.Key, legal, func(annotations map[string]string) *v1.Service {
				web := port("http", 80, 30080)
				web.AppProtocol = new("http")
				return service("web", annotations, web)
			}))
		}
	}
	return all
}
