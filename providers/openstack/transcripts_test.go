package openstack

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// names maps the IDs of load balancers and their parts to stable names for transcripts.
func names(sim *openstacksim.Sim) map[string]string {
	all, servers := map[string]string{}, map[string]string{}
	for _, s := range sim.List() {
		servers[s.ID] = s.Name
	}
	for _, lb := range sim.LoadBalancers() {
		all[lb.ID], all[lb.VIPAddress], all[lb.VIPPortID] = "loadbalancer/"+lb.Name, "vip/"+lb.Name, "port/"+lb.Name
		servers["lb-"+lb.ID] = lb.Name
	}
	for _, p := range sim.Ports() {
		if name := servers[p.DeviceID]; name != "" {
			all[p.ID] = "port/" + name
		}
	}
	namePools(sim, all)
	for _, f := range sim.FloatingIPs() {
		if port := all[deref(f.PortID)]; port != "" {
			all[f.ID] = "floatingip/" + strings.TrimPrefix(port, "port/")
			all[f.Address] = "floating-address/" + strings.TrimPrefix(port, "port/")
		}
	}
	for _, g := range sim.SecurityGroups() {
		for _, r := range g.Rules {
			all[r.ID] = strings.TrimSuffix(fmt.Sprint("rule/", r.Direction, "/", r.EtherType, "/", deref(r.Protocol), "-", deref(r.Min)), "/-0")
		}
	}
	return all
}

// namePools names listeners, pools, members and monitors by the port that they serve.
func namePools(sim *openstacksim.Sim, all map[string]string) {
	ports, byName := map[string]string{}, map[string]string{} // by pool
	for _, l := range sim.Listeners() {
		port := strconv.Itoa(l.ProtocolPort)
		if l.Protocol == protocolUDP {
			port = "udp-" + port
		}
		all[l.ID], ports[deref(l.DefaultPoolID)] = "listener/"+port, port
	}
	for _, p := range sim.Pools() {
		byName[p.Name] = cmp.Or(ports[p.ID], byName[p.Name])
	}
	for _, p := range sim.Pools() {
		port := ports[p.ID]
		if beside := byName[p.Name]; port == "" && beside != "" {
			port = beside + "/" + strings.ToLower(p.Protocol)
		}
		if port == "" {
			continue // it is named when its listener has it, or by its name
		}
		all[p.ID], all[p.MonitorID] = "pool/"+port, "monitor/"+port
		for _, m := range p.BackendMembers() {
			all[m.ID] = "member/" + port + "/" + m.Name
		}
	}
}

// Why ports lead nowhere for a moment, and what plan leaves out.
const (
	listenerIsMadeAgain = "the protocol of a listener is fixed, and a port has one listener: the old one is deleted, and a new one is made"
	laterAddress        = "plan tells of a floating address where the load balancer is created, and not of one that comes or goes later"
)

// interrupts are steps in which a port leads nowhere for a moment.
var interrupts = map[string]string{
	"annotation-x-forwarded-for/it is true": listenerIsMadeAgain, "annotation-x-forwarded-for/it is false": listenerIsMadeAgain,
	"certificate/it gets one": listenerIsMadeAgain, "certificate/it has none": listenerIsMadeAgain,
}

// unplanned are steps that write what plan did not say.
var unplanned = map[string]string{"internal/it is to be public": laterAddress, "internal/it is internal again": laterAddress}

// scenarios are those that OpenStack has besides the common ones.
func scenarios(sim *openstacksim.Sim, url string) []conformance.Scenario {
	items := map[string]conformance.Checked{}
	for key, item := range checklistRows { // the same value may be checked in several fields
		item.Legal = slices.CompactFunc(slices.Clone(item.Legal), func(a, b conformance.Legal) bool {
			return a.Value == b.Value && maps.Equal(a.With, b.With)
		})
		items[key] = item
	}
	all := conformance.Checklist{Rows: Annotations.Rows(), Items: items, Service: func(annotations map[string]string) *v1.Service {
		return service("web", annotations, servicePort("http", 80, 30080))
	}}.Scenarios()
	return append(
		all, internalScenario(), sharingScenario(sim), takeoverScenario(sim), certificateScenario(sim, url), healthScenario(sim),
		floatingScenario(sim),
	)
}

// changed is a step that changes the Service.
func changed(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

// annotates is a step that sets an annotation of the Service, or removes it where the value is empty.
func annotates(name, key, value string) conformance.Step {
	return changed(name, func(s *v1.Service) {
		s.Annotations[key] = value
		if value == "" {
			delete(s.Annotations, key)
		}
	})
}

// internalScenario is about a load balancer without a floating address.
func internalScenario() conformance.Scenario {
	return conformance.Scenario{
		Name: "internal", Services: []*v1.Service{service("web", annotated(annotationInternal, textTrue), servicePort("http", 80, 30080))},
		Steps: []conformance.Step{
			annotates("it is to be public", annotationInternal, ""),
			annotates("it is internal again", annotationInternal, textTrue),
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		},
	}
}

// sharingScenario is about a Service that shares the load balancer of another one.
func sharingScenario(sim *openstacksim.Sim) conformance.Scenario {
	return conformance.Scenario{
		Name: "sharing", Services: []*v1.Service{service("web", nil, servicePort("http", 80, 30080))}, Steps: []conformance.Step{
			{Name: "another one joins", Do: func(p *conformance.Play) {
				other := service("other", annotated(annotationID, sim.LoadBalancers()[0].ID), servicePort("smtp", 25, 30025))
				other.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
				p.Create(other)
			}},
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			changed("one gets another port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, servicePort("alt", 8080, 30081)) }),
			changed("the clients of one are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }),
			{Name: "the first one is deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
			{Name: "the last one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
		},
	}
}

// takeoverScenario is about a load balancer that OpenStack's own controller made: it has no marks, and its Service has no record.
func takeoverScenario(sim *openstacksim.Sim) conformance.Scenario {
	return conformance.Scenario{
		Name: "takeover", Services: []*v1.Service{service("web", annotated(annotationInternal, textTrue), servicePort("http", 80, 30080))},
		Steps: []conformance.Step{
			{Name: "it is as OpenStack's own controller leaves it", Do: func(p *conformance.Play) {
				sim.ChangeLoadBalancer(sim.LoadBalancers()[0].ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = []string{lb.Name} })
				p.Change("web", func(s *v1.Service) { delete(s.Annotations, annotationMade) })
				p.Restart()
			}},
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			changed("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, servicePort("alt", 8080, 30081)) }),
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		},
	}
}

// certificateScenario is about a listener that gets a certificate, another one, and none.
func certificateScenario(sim *openstacksim.Sim, url string) conformance.Scenario {
	container := func(name string) conformance.Step {
		return changed(name, func(s *v1.Service) {
			s.Annotations[annotationTLSContainerRef] = sim.AddContainer("containers", url+"/key-manager")
		})
	}
	return conformance.Scenario{
		Name: "certificate", Services: []*v1.Service{service("web", nil, servicePort("https", 443, 30443))}, Brief: true, Steps: []conformance.Step{
			container("it gets one"), container("it gets another one"), annotates("it has none", annotationTLSContainerRef, ""),
		},
	}
}

// healthScenario is about a load balancer that breaks while nothing of its Service changes: once, again soon, and where an administrator
// alone may start a failover.
func healthScenario(sim *openstacksim.Sim) conformance.Scenario {
	breaks := func(name string, may bool, d time.Duration) conformance.Step {
		return conformance.Step{Name: name, Do: func(p *conformance.Play) {
			sim.AllowFailover(may)
			sim.ChangeLoadBalancer(sim.LoadBalancers()[0].ID, breakDown)
			p.Wait(d)
		}}
	}
	return conformance.Scenario{
		Name: "health", Loops: true, Services: []*v1.Service{service("web", nil, servicePort("http", 80, 30080))}, Steps: []conformance.Step{
			breaks("it breaks", true, healthPeriod), breaks("it breaks again soon", true, 0),
			{Name: "after a while", Do: func(p *conformance.Play) { p.Wait(healthPeriod) }},
			{Name: "ten minutes after the first time", Do: func(p *conformance.Play) { p.Wait(healthPeriod) }},
			breaks("it breaks, and may not be failed over", false, 2*healthPeriod),
		},
	}
}

// floatingScenario is about the subnet of a floating address, which counts when the load balancer is made, and about what becomes of the
// address.
func floatingScenario(sim *openstacksim.Sim) conformance.Scenario {
	return conformance.Scenario{
		Name: "floating-address", Prepare: func() { withFloatingSubnets(sim) },
		Services: []*v1.Service{service("web", annotated(annotationFloatingSubnet, "ext-g*"), servicePort("http", 80, 30080))},
		Steps: []conformance.Step{
			annotates("another subnet is asked for", annotationFloatingSubnet, "~ext-silver"),
			annotates("none is asked for", annotationFloatingSubnet, ""),
			annotates("clients are told a name", annotationHostname, "web.example.com"),
			annotates("the address is to stay", annotationKeepFloatingIP, textTrue),
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		},
	}
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it says who may share a load balancer, and is sent nowhere":   {annotationShareWith},
	"it chooses nodes, which come and go as in the scenario nodes": {annotationNodeSelector},
	"it counts when the floating address is made, as floating-subnet does": {
		annotationFloatingNetworkID, annotationFloatingSubnetID, annotationFloatingSubnetTags,
	},
	"it stands for several settings that have annotations of their own": {annotationClass},
	"it is a field of the load balancer's only write":                   {annotationPortID},
}
