package digitalocean

import (
	"embed"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// target is where a port of a Service leads: network load balancers keep the port that clients asked for.
func target(s *v1.Service, port v1.ServicePort) int32 {
	if s.Annotations[annotationType] == typeNetwork {
		return port.Port
	}
	return port.NodePort
}

// scenarios are those of the annotations that have values in the checklist, and what needs several of them.
func scenarios(sim *digitaloceansim.Sim, env map[string]string, certificate string) []conformance.Scenario {
	inPlace := map[string]string{annotationType: typeRegional}
	addPort := conformance.Step{Name: "a port is added", Do: func(p *conformance.Play) {
		p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) })
	}}
	all := []conformance.Scenario{
		{Name: "takeover", Services: []*v1.Service{conformance.Web(inPlace)}, Steps: []conformance.Step{
			{Name: "it is as DigitalOcean's own controller leaves it", Do: func(p *conformance.Play) {
				sim.ChangeLoadBalancer(sim.LoadBalancers()[0].ID, func(lb *digitaloceansim.LoadBalancer) {
					lb.Tags = slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool { return !strings.HasPrefix(tag, "k8s:") })
				})
				p.Restart()
			}},
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			addPort,
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		}},
		{Name: "regional", Services: []*v1.Service{conformance.Web(inPlace)}, Steps: []conformance.Step{
			addPort,
			{Name: "a node port changes", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 })
			}},
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		}},
		firewallScenario(sim, env), taggingScenario(sim),
	}
	for _, row := range Annotations.Rows() {
		var values []conformance.Legal
		for _, l := range checklistRows[row.Key].legal {
			with := map[string]string{}
			for key, value := range l.with {
				with[key] = strings.ReplaceAll(value, certificateOne, certificate)
			}
			values = append(values, conformance.Legal{Value: strings.ReplaceAll(l.value, certificateOne, certificate), With: with})
		}
		if len(values) > 0 {
			all = append(all, conformance.AnnotationScenario(row.Key, values, func(annotations map[string]string) *v1.Service {
				annotations[annotationType] = typeRegional // of both types the one that has all annotations
				return conformance.Web(annotations)
			}))
		}
	}
	return all
}

// during has a step wait for the loops of the provider.
func during(d time.Duration, name string, do func(p *conformance.Play)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) {
		do(p)
		p.Wait(d)
	}}
}

// firewallScenario is about the public access firewall, which lets the clients of two Services in.
func firewallScenario(sim *digitaloceansim.Sim, env map[string]string) conformance.Scenario {
	other := service("other", nil, port("smtp", 25, 30025))
	other.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	step := func(name string, do func(p *conformance.Play)) conformance.Step {
		return during(time.Minute, name, func(p *conformance.Play) {
			do(p)
			p.WaitAfterwards(time.Minute)
		})
	}
	return conformance.Scenario{
		Name: "public-firewall", Loops: true, Prepare: func() {
			sim.AddDroplet(digitaloceansim.Spec{Name: "bastion", Tags: []string{"worker"}}) // a firewall's tags exist
		},
		Steps: []conformance.Step{
			step("the program begins with a firewall", func(p *conformance.Play) {
				env[envFirewallName], env[envFirewallTags] = "public-access", "worker"
				p.Restart()
			}),
			step("a Service is created", func(p *conformance.Play) { p.Create(conformance.Web(nil)) }),
			step("another one is created", func(p *conformance.Play) { p.Create(other) }),
			step("one gets another port", func(p *conformance.Play) {
				p.Change("other", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("submission", 587, 30587)) })
			}),
			step("clients are narrowed", func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} })
			}),
			step("the ports of one are opened elsewhere", func(p *conformance.Play) { p.Annotate("other", annotationFirewallManaged, "false") }),
			during(2*firewallPeriod, "somebody changes the firewall", func(*conformance.Play) {
				sim.ChangeFirewall(sim.Firewalls()[0].ID, func(f *digitaloceansim.CloudFirewall) { f.InboundRules = nil })
			}),
			step("one is deleted", func(p *conformance.Play) { p.Delete("web") }),
			step("the other one is deleted", func(p *conformance.Play) { p.Delete("other") }),
		},
	}
}

// taggingScenario is about the tag of the cluster, which a load balancer has lost.
func taggingScenario(sim *digitaloceansim.Sim) conformance.Scenario {
	return conformance.Scenario{Name: "cluster-tag", Loops: true, Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
		during(2*taggingPeriod, "a load balancer loses its tag", func(*conformance.Play) {
			sim.ChangeLoadBalancer(sim.LoadBalancers()[0].ID, func(lb *digitaloceansim.LoadBalancer) {
				lb.Tags = slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool { return tag == clusterTag("c1") })
			})
		}),
		during(2*taggingPeriod, "nothing changes", func(*conformance.Play) {}),
	}}
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"nothing is written any more":    {annotationDisown},
	"it counts for the status alone": {annotationHostname},
}
