package conformance

import (
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// change is a step that changes the Service "web".
func change(name string, change func(*v1.Service)) Step {
	return Step{name, func(p *Play) { p.Change("web", change) }}
}

// listCommon returns the scenarios of every cloud.
func (f *Fixture) listCommon() []Scenario {
	all := append(append(f.portScenarios(), f.featureScenarios()...), lifeScenarios()...)
	for i := range all {
		all[i].plain = all[i].Name != "create" && all[i].Prepare == nil && reflect.DeepEqual(all[i].Services[0], Web(nil))
	}
	return all
}

// portScenarios are about the ports of a Service.
func (f *Fixture) portScenarios() []Scenario {
	all := []Scenario{
		{Name: "create", Services: []*v1.Service{Web(nil)}, Nodes: 3, Steps: []Step{
			{"nothing changes", func(p *Play) { p.ReconcileAgain("web") }},
			{"deleted", func(p *Play) { p.Delete("web") }},
			{"created again", func(p *Play) { p.Create(Web(nil)) }},
			{"deleted again", func(p *Play) { p.Delete("web") }},
		}},
		{Name: "ports", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			change("one is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("alt", 8080, 30081)) }),
			change("one is removed", func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }),
			change("one moves", func(s *v1.Service) { s.Spec.Ports[0].Port = movedPort }),
			change("all are others", func(s *v1.Service) {
				s.Spec.Ports = []v1.ServicePort{Port("a", 8001, 30801), Port("b", 8002, 30802)}
			}),
		}},
		{Name: "node-ports", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			change("one changes", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 }),
			change("they are swapped", func(s *v1.Service) {
				ports := s.Spec.Ports
				ports[0].NodePort, ports[1].NodePort = ports[1].NodePort, ports[0].NodePort
			}),
		}},
	}
	if f.Provider.Features.UDP == registry.Done {
		udp := Port("dns", 53, 30053)
		udp.Protocol = v1.ProtocolUDP
		both := Web(maps.Clone(f.UDP.With))
		both.Spec.Ports = append(both.Spec.Ports, udp)
		all = append(all, Scenario{
			Name: "tcp-and-udp", Prepare: f.UDP.Prepare, Services: []*v1.Service{both},
			Steps: []Step{{"deleted", func(p *Play) { p.Delete("web") }}},
		}, Scenario{
			Name: "protocol", Prepare: f.UDP.Prepare, Services: []*v1.Service{Service("web", maps.Clone(f.UDP.With), Port("dns", 53, 30053))},
			Steps: []Step{
				change("TCP becomes UDP", func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }),
				change("TCP at the same port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("dns-tcp", 53, 30054)) }),
				change("TCP alone", func(s *v1.Service) { s.Spec.Ports = []v1.ServicePort{Port("dns-tcp", 53, 30054)} }),
			},
		})
	}
	return all
}

// featureScenarios are about what else a Service asks for.
func (f *Fixture) featureScenarios() []Scenario {
	ranges := func(name string, ranges ...string) Step {
		return change(name, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
	}
	all := []Scenario{
		{Name: "session-affinity", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			change("by the client's address", func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(int32(600))}}
			}),
			change("none", func(s *v1.Service) {
				s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = v1.ServiceAffinityNone, nil
			}),
		}},
		{Name: "traffic-policy", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			change("Local", func(s *v1.Service) {
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
			}),
			change("another health check", func(s *v1.Service) { s.Spec.HealthCheckNodePort = 32001 }),
			change("Cluster", func(s *v1.Service) {
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyCluster, 0
			}),
		}},
	}
	if f.Provider.Features.SourceRanges == registry.Done {
		all = append(all, Scenario{
			Name: "source-ranges", Prepare: f.SourceRanges.Prepare, Services: []*v1.Service{Web(maps.Clone(f.SourceRanges.With))},
			Steps: []Step{
				ranges("narrowed", sourceRange), ranges("widened", sourceRange, "198.51.100.0/24"),
				ranges("narrowed again", "198.51.100.0/24"), ranges("removed"),
			},
		})
	}
	if f.Provider.Features.DualStack == registry.Done {
		families := func(policy v1.IPFamilyPolicy, families ...v1.IPFamily) func(*v1.Service) {
			return func(s *v1.Service) { s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = families, &policy }
		}
		single := Web(maps.Clone(f.DualStack.With))
		families(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)(single)
		all = append(all, Scenario{
			Name: "families", Prepare: f.DualStack.Prepare, Services: []*v1.Service{single}, Steps: []Step{
				change("both", families(v1.IPFamilyPolicyRequireDualStack, v1.IPv4Protocol, v1.IPv6Protocol)),
				change("IPv4 alone", families(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)),
			},
		})
	}
	return all
}

// lifeScenarios are about nodes, about several Services, and about what goes wrong.
func lifeScenarios() []Scenario {
	return []Scenario{
		{Name: "nodes", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			{"one joins", func(p *Play) { p.AddNodes("worker-3") }},
			{"two join", func(p *Play) { p.AddNodes("worker-4", "worker-5") }},
			{"one is not ready", func(p *Play) {
				p.ChangeNode("worker-1", func(n *v1.Node) {
					n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}
				})
			}},
			{"one leaves", func(p *Play) { p.RemoveNodes("worker-1") }},
			{"two leave and one joins", func(p *Play) {
				p.RemoveNodes("worker-2", "worker-3")
				p.AddNodes("worker-6")
			}},
		}},
		badAnnotationScenario(),
		{Name: "two-services", Services: []*v1.Service{Web(nil), makeOther(nil)}, Steps: []Step{
			{"a node joins", func(p *Play) { p.AddNodes("worker-3") }},
			{"one gets another port", func(p *Play) {
				p.Change("other", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("submission", 587, 30587)) })
			}},
			{"one is deleted", func(p *Play) { p.Delete("other") }},
			{"a node leaves", func(p *Play) { p.RemoveNodes("worker-3") }},
			{"the other one is deleted", func(p *Play) { p.Delete("web") }},
		}},
		{Name: "restart", Services: []*v1.Service{Web(nil)}, Steps: []Step{
			{"nothing changed", func(p *Play) { p.Restart() }},
			{"a port was added meanwhile", func(p *Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("alt", 8080, 30081)) })
				p.Restart()
			}},
			{"a node joined meanwhile", func(p *Play) {
				p.AddNodes("worker-3")
				p.Restart()
			}},
			{"a node leaves after it", func(p *Play) { p.RemoveNodes("worker-1") }},
			{"deleted after another restart", func(p *Play) {
				p.Restart()
				p.Delete("web")
			}},
		}},
		{Name: "orphans", Services: []*v1.Service{Web(nil), makeOther(nil)}, Steps: []Step{
			{"a Service goes without its finalizer", func(p *Play) { p.Abandon("web") }},
			{"nothing changes of the other one", func(p *Play) { p.ReconcileAgain("other") }},
			{"the other one is deleted", func(p *Play) { p.Delete("other") }},
		}},
	}
}

// badAnnotationScenario is about an annotation of all clouds, and one of the cloud's own, that are illegal while nodes come and go.
func badAnnotationScenario() Scenario {
	return Scenario{Name: "bad-annotation", Services: []*v1.Service{Web(nil)}, Steps: []Step{
		{"an annotation is illegal", func(p *Play) { p.Annotate("web", portable.Hostname, "Not a name") }},
		{"a node joins", func(p *Play) { p.AddNodes("worker-3") }},
		change("a port is added, the annotation still illegal", func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, Port("alt", 8080, 30081))
		}),
		change("the annotation is removed", func(s *v1.Service) { delete(s.Annotations, portable.Hostname) }),
		{"an annotation of the cloud is illegal", func(p *Play) {
			key, value := p.w.findIllegal()
			p.Annotate("web", key, value)
		}},
		{"a node leaves", func(p *Play) { p.RemoveNodes("worker-3") }},
		{"the annotation of the cloud is removed", func(p *Play) {
			key, _ := p.w.findIllegal()
			p.Change("web", func(s *v1.Service) { delete(s.Annotations, key) })
		}},
		{"deleted", func(p *Play) { p.Delete("web") }},
	}}
}

// findIllegal returns an annotation of the cloud, and a value for which it refuses a Service; where it refuses none, a value that it
// warns of.
func (f *Fixture) findIllegal() (key, value string) {
	for _, row := range f.Provider.Annotations {
		for _, tried := range []string{"not legal", "-1"} {
			warned, refused := registry.CheckServiceOf(f.Provider, f.Inputs(), Web(map[string]string{row.Key: tried}))
			if refused != nil {
				return row.Key, tried
			}
			if warned != nil && key == "" {
				key, value = row.Key, tried
			}
		}
	}
	return key, value
}
