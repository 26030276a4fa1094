package gce

import (
	"embed"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// interrupts are steps of scenarios in which a port is unavailable for a while.
func interrupts() map[string]string {
	steps := map[string]string{
		"internal/all clients of the network": "the forwarding rule is deleted and made again at its address, as Google's own controller does",
		"internal/it becomes external":        "all of an internal load balancer goes before the other kind is made: both have the same names",
	}
	for _, step := range []string{"internal/a port is added", "internal/six ports", "internal-shared/one gets another port"} {
		steps[step] = "the API cannot change the ports of a forwarding rule, which is deleted and made again at its address"
	}
	for _, step := range []string{
		"ports/one is added", "ports/one is removed", "ports/one moves", "bad-annotation/the annotation is removed",
		"two-services/one gets another port", "restart/a port was added meanwhile", "take-over/a port is added",
	} {
		steps[step] = "the API cannot change the range of ports of a forwarding rule, which is deleted and made again at its address"
	}
	for _, step := range []string{"by the client's address", "it shares no more"} {
		steps["backend-share/"+step] = "the API cannot change the backend service of a forwarding rule, which is deleted and made again at its address"
	}
	for _, step := range []string{"it is Standard", "it is Premium"} {
		steps["annotation-network-tier/"+step] = "an address belongs to one tier: the forwarding rule is made again with another one"
	}
	for _, step := range []string{"it is backend", "it is removed"} {
		steps["annotation-internal-load-balancer-subnet/"+step] = "an address belongs to one subnet: the forwarding rule is made again with another one"
	}
	steps["address/one that is reserved"] = "the API cannot change the address of a forwarding rule, which is deleted and made again"
	return steps
}

// unplanned are steps whose writes differ from the plan.
var unplanned = map[string]string{
	"internal-shared/a node joins":  "both Services plan the instance group of a new zone, which the first one makes",
	"internal-shared/a node leaves": "the instance group of a zone without nodes goes when the last of several Services has let go of it",
	"backend-share/a node joins":    "both Services plan the instance group of a new zone and the backend service, which the first one changes",
	"internal/it becomes external":  "plan ends at the deletion of the other kind: both have the same names",
}

// fingerprints vary after each change.
func fingerprints(sim *gcesim.Sim) map[string]string {
	names := map[string]string{}
	for _, kind := range []string{"backendServices", "forwardingRules"} {
		for _, o := range sim.Objects(kind) {
			for _, key := range []string{"fingerprint", "labelFingerprint"} {
				if text, ok := o[key].(string); ok {
					names[text] = "<" + key + ">"
				}
			}
		}
	}
	return names
}

// changeWeb is a step that changes the Service "web".
func changeWeb(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

// scenarios are specific to this cloud.
func scenarios(sim *gcesim.Sim) []conformance.Scenario {
	internal := func(annotations map[string]string) *v1.Service {
		annotations[annotationType] = "Internal"
		return conformance.Web(annotations)
	}
	second := internalService("other")
	second.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	second.Spec.Ports[0].Port = 25
	subnets := conformance.AnnotationScenario(annotationSubnet, []conformance.Legal{{Value: "backend"}}, internal)
	subnets.Prepare = func() { sim.AddNetwork(gcesim.Project, "cluster", "backend", "10.140.0.0/20") }
	sharing, sharingToo := internal(map[string]string{annotationShare: "true"}), second.DeepCopy()
	sharingToo.Annotations[annotationShare] = "true"
	return []conformance.Scenario{
		{Name: "backend-share", Services: []*v1.Service{sharing, sharingToo}, Steps: []conformance.Step{
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			changeWeb("by the client's address", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }),
			{Name: "one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
			changeWeb("it shares no more", func(s *v1.Service) { delete(s.Annotations, annotationShare) }),
			{Name: "the other one is deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		}},
		internalScenario(internal(map[string]string{})), takeOver(sim), rejoinScenario(sim, second.DeepCopy()), subnets,
		{Name: "internal-shared", Services: []*v1.Service{internal(map[string]string{}), second}, Steps: []conformance.Step{
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			changeWeb("one gets another port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			changeWeb("the clients of one are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }),
			{Name: "one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
			{Name: "a node leaves", Do: func(p *conformance.Play) { p.RemoveNodes("worker-3") }},
			{Name: "the other one is deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		}},
		conformance.AnnotationScenario(annotationTier, []conformance.Legal{{Value: "Standard"}, {Value: "Premium"}}, conformance.Web),
		{Name: "address", Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
			changeWeb("one that is reserved", func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }),
			changeWeb("one that is not there", func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.201" }),
			changeWeb("none", func(s *v1.Service) { s.Spec.LoadBalancerIP = "" }),
		}},
	}
}

// rejoinScenario is about an instance that is recreated under its name while its Node stays, behind a load balancer of each kind.
func rejoinScenario(sim *gcesim.Sim, internal *v1.Service) conformance.Scenario {
	later := func(p *conformance.Play) {
		p.Wait(5 * time.Minute)
		p.LookAtNodes()
		p.Wait(time.Minute)
	}
	return conformance.Scenario{
		Name: "recreated-instance", Loops: true, Services: []*v1.Service{conformance.Web(nil), internal}, Steps: []conformance.Step{
			{Name: "nothing changes", Do: later},
			{Name: "an instance is recreated", Do: func(p *conformance.Play) {
				for _, i := range sim.Instances() {
					if id, err := parseProviderID(i.ProviderID); err == nil && id.name == "worker-2" {
						sim.RemoveInstanceByID(i.ProviderID)
						sim.AddInstance(gcesim.Spec{Name: id.name, Zone: id.zone})
					}
				}
				later(p)
			}},
		},
	}
}

// internalScenario covers the changes of an internal load balancer.
func internalScenario(s *v1.Service) conformance.Scenario {
	return conformance.Scenario{Name: "internal", Services: []*v1.Service{s}, Steps: []conformance.Step{
		changeWeb("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
		changeWeb("by the client's address", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }),
		changeWeb("Local", func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
		}),
		changeWeb("all clients of the network", func(s *v1.Service) { s.Annotations[annotationGlobalAccess] = "true" }),
		changeWeb("six ports", func(s *v1.Service) {
			for i := range int32(3) {
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("p", 9000+i, 31000+i))
			}
		}),
		changeWeb("it becomes external", func(s *v1.Service) { delete(s.Annotations, annotationType) }),
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// leftExternal creates the objects that Google's own controller leaves for a Service with local traffic, except those with the cluster's ID
// in their name.
func leftExternal(sim *gcesim.Sim) conformance.Left {
	const of, region = `{"kubernetes.io/service-name":"default/web"`, "regions/us-central1/"
	firewall := func(ip, name, port string, from ...any) {
		sim.Put("global/firewalls/"+name, map[string]any{
			"description": of + `, "kubernetes.io/service-ip":"` + ip + `"}`, "network": "global/networks/cluster", "priority": 1000.0,
			"direction": "INGRESS", "sourceRanges": from, "destinationRanges": []any{ip}, "targetTags": []any{"node"},
			"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{port}}},
		})
	}
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		instances := []any{}
		for _, n := range nodes {
			_, zone, _ := strings.Cut(strings.TrimPrefix(n.Spec.ProviderID, providerIDPrefix), "/")
			zone, name, _ := strings.Cut(zone, "/")
			instances = append(instances, "zones/"+zone+"/instances/"+name)
		}
		sim.Put("global/httpHealthChecks/"+testLB, map[string]any{
			"description": `{"kubernetes.io/service-name":"` + testLB + `"}`, "port": 32000.0, "requestPath": "/healthz",
			"checkIntervalSec": 8.0, "timeoutSec": 1.0, "healthyThreshold": 1.0, "unhealthyThreshold": 3.0,
		})
		sim.Put(region+"targetPools/"+testLB, map[string]any{
			"description": of + "}", "sessionAffinity": "NONE", "healthChecks": []any{"global/httpHealthChecks/" + testLB},
			"instances": instances,
		})
		sim.Put(region+"forwardingRules/"+testLB, map[string]any{
			"description": of + "}", "IPProtocol": "TCP", "portRange": "80-80", "networkTier": "PREMIUM",
			"loadBalancingScheme": "EXTERNAL", "target": region + "targetPools/" + testLB,
		})
		ip := sim.Objects("forwardingRules")[0]["IPAddress"].(string)
		firewall(ip, "k8s-fw-"+testLB, "80", "0.0.0.0/0")
		firewall(ip, "k8s-"+testLB+"-http-hc", "32000", "130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22")
		s := testService("web", conformance.Port("http", 80, 30080))
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: ip}}
		return s
	}}
}

// takeOver takes over that Service.
func takeOver(sim *gcesim.Sim) conformance.Scenario {
	return conformance.Scenario{Name: "take-over", Steps: []conformance.Step{
		{Name: "what Google's own controller made", Do: func(p *conformance.Play) { p.Leave(leftExternal(sim)) }},
		changeWeb("source ranges are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }),
		changeWeb("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it is another name":                                                {annotationOldType, annotationAlphaShare},
	"it asks for what is not made, and is told":                         {annotationRBS},
	"its changes are written as those of spec.loadBalancerSourceRanges": {annotationSourceRanges},
}
