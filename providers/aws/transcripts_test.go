package aws

import (
	"embed"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// transcriptNames are the names of what has no name in the state of the simulator.
func transcriptNames(sim *awssim.Sim) map[string]string {
	names := map[string]string{extraGroup: "securityGroup/extra"}
	for _, n := range sim.Subnets() {
		names[n.ID] = subnetName(n)
	}
	for _, lb := range sim.Classics() {
		names[lb.DNSName] = "host/" + lb.Name
	}
	for _, lb := range sim.Networks() {
		names[lb.DNSName] = "host/" + lb.Name
	}
	return names
}

// subnetName is the name of a subnet by its tag.
func subnetName(n awssim.Subnet) string { return "subnet/" + n.Tags["Name"] }

const replacedListener = "the API cannot change a listener of a classic load balancer, and refuses a second one for the same port: " +
	"the former one is deleted, and the new one is created right after it"

// interrupts are the steps in which a port leads nowhere for a moment.
func interruptedSteps() map[string]string {
	steps := map[string]string{}
	for _, step := range []string{
		"node-ports/one changes", "node-ports/they are swapped",
		"annotation-aws-load-balancer-backend-protocol/it is http", "annotation-aws-load-balancer-backend-protocol/it is removed",
		"annotation-aws-load-balancer-ssl-negotiation-policy/it is " + somePolicy, "annotation-aws-load-balancer-ssl-negotiation-policy/it is removed",
	} {
		steps[step] = replacedListener
	}
	return steps
}

// unserved are the steps after which a port does not lead to all nodes.
func unservedSteps() map[string]string {
	const labelled = "the annotation chooses nodes by their labels"
	return map[string]string{
		"network-nodes/nodes are chosen by a label": labelled, "network-nodes/a node gets the label": labelled,
	}
}

// webStep changes the Service "web".
func webStep(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

// joinStep adds a node, and deleteStep deletes a Service.
func joinStep(name string) conformance.Step {
	return conformance.Step{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes(name) }}
}

func deleteStep(service string) conformance.Step {
	return conformance.Step{Name: service + " is deleted", Do: func(p *conformance.Play) { p.Delete(service) }}
}

func rangesStep(name string, ranges ...string) conformance.Step {
	return webStep(name, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
}

// secondService is another Service than "web".
func secondService(annotations map[string]string) *v1.Service {
	s := conformance.Service("other", annotations, conformance.Port("smtp", 25, 30025))
	s.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return s
}

// scenarios are those of AWS. unmanaged has network load balancers get no security groups.
func scenarios(sim *awssim.Sim, unmanaged func()) []conformance.Scenario {
	return slices.Concat(
		networkScenarios(), networkLifeScenarios(), groupScenarios(unmanaged), takeoverScenarios(sim, unmanaged), annotationScenarios(),
	)
}

// networkScenarios are the common scenarios with a network load balancer.
func networkScenarios() []conformance.Scenario {
	web := func() *v1.Service {
		return conformance.Service("web", onNetwork(), conformance.Port("http", 80, 30080))
	}
	return []conformance.Scenario{
		{Name: "network-ports", Services: []*v1.Service{conformance.Web(onNetwork())}, Steps: []conformance.Step{
			webStep("one is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			webStep("one is removed", func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }),
			webStep("one moves", func(s *v1.Service) { s.Spec.Ports[0].Port = 8087 }),
			webStep("a node port changes", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 }),
			webStep("node ports are swapped", func(s *v1.Service) {
				ports := s.Spec.Ports
				ports[0].NodePort, ports[1].NodePort = ports[1].NodePort, ports[0].NodePort
			}),
			webStep("UDP at the port of TCP", func(s *v1.Service) {
				udp := s.Spec.Ports[0]
				udp.Name, udp.Protocol = "udp", v1.ProtocolUDP
				s.Spec.Ports = append(s.Spec.Ports, udp)
			}),
			deleteStep("web"),
		}},
		{Name: "network-nodes", Services: []*v1.Service{web()}, Steps: []conformance.Step{
			joinStep("worker-3"),
			{Name: "one leaves", Do: func(p *conformance.Play) { p.RemoveNodes("worker-1") }},
			{Name: "all are others", Do: func(p *conformance.Play) {
				p.RemoveNodes("worker-2", "worker-3")
				p.AddNodes("worker-4", "worker-5")
			}},
			webStep("nodes are chosen by a label", func(s *v1.Service) { s.Annotations[annotationNodeLabels] = "pool=edge" }),
			{Name: "a node gets the label", Do: func(p *conformance.Play) {
				p.ChangeNode("worker-4", func(n *v1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "pool", "edge") })
			}},
			webStep("all nodes", func(s *v1.Service) { delete(s.Annotations, annotationNodeLabels) }),
		}},
		{Name: "network-traffic-policy", Services: []*v1.Service{web()}, Steps: []conformance.Step{
			webStep("Local", func(s *v1.Service) {
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
			}),
			webStep("another health check", func(s *v1.Service) { s.Spec.HealthCheckNodePort = 32001 }),
			webStep("Cluster", func(s *v1.Service) {
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyCluster, 0
			}),
		}},
	}
}

// networkLifeScenarios have several network load balancers, one that is left behind, and one that a program finds which begins.
func networkLifeScenarios() []conformance.Scenario {
	web := conformance.Service("web", onNetwork(), conformance.Port("http", 80, 30080))
	return []conformance.Scenario{
		{Name: "network-two-services", Services: []*v1.Service{web.DeepCopy(), secondService(onNetwork())}, Steps: []conformance.Step{
			joinStep("worker-3"),
			webStep("one gets another port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			{Name: "one goes without its finalizer", Do: func(p *conformance.Play) { p.Abandon("web") }},
			deleteStep("other"),
		}},
		{Name: "network-restart", Services: []*v1.Service{web.DeepCopy()}, Steps: []conformance.Step{
			{Name: "nothing changed", Do: func(p *conformance.Play) { p.Restart() }},
			{Name: "a port was added and a node joined meanwhile", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) })
				p.AddNodes("worker-3")
				p.Restart()
			}},
			{Name: "deleted after another restart", Do: func(p *conformance.Play) {
				p.Restart()
				p.Delete("web")
			}},
		}},
	}
}

// groupScenarios are about security groups: those of users, and network load balancers without any.
func groupScenarios(unmanaged func()) []conformance.Scenario {
	named := func() map[string]string { return onClassic(annotationGroups, extraGroup) }
	return []conformance.Scenario{
		{Name: "internal", Services: []*v1.Service{
			conformance.Service("web", onClassic(annotationInternal, "true"), conformance.Port("http", 80, 30080)),
		}, Steps: []conformance.Step{
			webStep("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			webStep("the annotation is removed", func(s *v1.Service) { delete(s.Annotations, annotationInternal) }),
			deleteStep("web"),
		}},
		{Name: "shared-security-group", Services: []*v1.Service{conformance.Web(named()), secondService(named())}, Steps: []conformance.Step{
			webStep("one gets another port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			webStep("one gets a group of its own", func(s *v1.Service) { delete(s.Annotations, annotationGroups) }),
			webStep("and shares again", func(s *v1.Service) { s.Annotations[annotationGroups] = extraGroup }),
			deleteStep("web"), deleteStep("other"),
		}},
		{
			Name: "network-without-security-group", Prepare: unmanaged,
			Services: []*v1.Service{conformance.Service("web", onNetwork(), conformance.Port("http", 80, 30080)), secondService(onNetwork())},
			Steps: []conformance.Step{
				rangesStep("source ranges", "203.0.113.0/24"), rangesStep("others", "198.51.100.0/24"),
				deleteStep("web"), deleteStep("other"),
			},
		},
	}
}

// takeoverScenarios are about what AWS's own controller left: it is taken over, changes and goes.
func takeoverScenarios(sim *awssim.Sim, unmanaged func()) (all []conformance.Scenario) {
	for _, name := range []string{"classic", "network"} {
		all = append(all, conformance.Scenario{Name: "takeover-" + name, Nodes: 1, Prepare: unmanaged, Steps: []conformance.Step{
			{Name: "it is taken over", Do: func(p *conformance.Play) { p.Leave(takenCases()[name].describe(sim)) }},
			webStep("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			joinStep("worker-2"), rangesStep("other source ranges", "203.0.113.0/24"), deleteStep("web"),
		}})
	}
	return all
}

// annotationScenarios set, change and remove the annotations whose writes differ in kind, each on one kind of load balancers; others
// change a field of the same writes.
func annotationScenarios() (all []conformance.Scenario) {
	for kind, keys := range map[string][]string{
		"": {
			annotationProxyProtocol, annotationDraining, annotationAccessLog, annotationBackendProtocol, annotationTLSPolicy, annotationTags,
			annotationExtraGroups, annotationSubnets,
		},
		typeNLB: {annotationCertificate, annotationCheckProtocol, annotationTargetAttributes, annotationCrossZone, annotationGroups},
	} {
		for _, key := range keys {
			var values []conformance.Legal
			for _, v := range checklistRows[key].Legal {
				if v.With[annotationType] == kind {
					values = append(values, v)
				}
			}
			s := conformance.AnnotationScenario(key, values, func(annotations map[string]string) *v1.Service {
				if kind != "" {
					annotations[annotationType] = kind
				}
				return conformance.Service("web", annotations, conformance.Port("http", 80, 30080))
			})
			s.Nodes, s.Name = 1, strings.TrimSuffix(s.Name+"-"+kind, "-")
			all = append(all, s)
		}
	}
	return append(all, settingScenarios()...)
}

// settingScenarios set, change and remove the numbers of the health check and of the attributes of a classic load balancer.
func settingScenarios() []conformance.Scenario {
	web := func(annotations map[string]string) *v1.Service {
		return conformance.Service("web", annotations, conformance.Port("http", 80, 30080))
	}
	return []conformance.Scenario{
		conformance.AnnotationScenario(annotationCheckPath, []conformance.Legal{
			{Value: "/healthz", With: onClassic(
				annotationCheckProtocol, "http", annotationCheckPort, "8081", annotationCheckInterval, "20", annotationCheckTimeout, "7",
				annotationHealthyThreshold, "4", annotationUnhealthyThreshold, "3",
			)},
			{Value: "/ready", With: onClassic(annotationCheckProtocol, "https", annotationCheckInterval, "30")},
		}, web),
		conformance.AnnotationScenario(annotationIdleTimeout, []conformance.Legal{
			{Value: "600", With: onClassic(
				annotationDraining, "true", annotationDrainingTimeout, "30", annotationAccessLog, "true", annotationAccessLogBucket, "logs",
				annotationAccessLogPrefix, "web", annotationAccessLogInterval, "5",
			)},
			{Value: "900", With: onClassic(annotationDraining, "true", annotationDrainingTimeout, "60")},
		}, web),
	}
}

// addTranscripts says what the part Transcripts of the suite needs; leaveGroups has security groups left to the user.
func addTranscripts(f *conformance.Fixture, sim *awssim.Sim, leaveGroups func()) {
	f.PlannedWrites, f.ReadAgain = plannedWrites, readAgain
	f.Serves, f.Transcripts, f.Secrets = sim.Serves, transcripts, []string{awssim.Key, testSecret}
	f.Names = func() map[string]string { return transcriptNames(sim) }
	f.Scenarios, f.TakenOver = scenarios(sim, leaveGroups), leftCases(sim, leaveGroups)
	f.Interrupts, f.Unserved, f.Untranscribed = interruptedSteps(), unservedSteps(), untranscribed
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"they count when a network load balancer is made, in its only write":            {annotationEIPs, annotationPrivateAddresses},
	"its changes are written as those of spec.loadBalancerSourceRanges":             {annotationSourceRanges},
	"it says which listeners have the certificate, which is written as ssl-cert is": {annotationTLSPorts},
}
