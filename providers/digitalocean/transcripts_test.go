package digitalocean

import (
	"embed"
	"slices"
	"strings"

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
func scenarios(sim *digitaloceansim.Sim, certificate string) []conformance.Scenario {
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
