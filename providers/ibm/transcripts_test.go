package ibm

import (
	"embed"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// identities are the parts of load balancers and security groups, which the state of the simulator does not name.
func identities(sim *ibmsim.Sim) map[string]string {
	names := map[string]string{}
	for _, lb := range sim.LoadBalancers() {
		for _, p := range lb.Pools {
			names[p.ID] = "pool/" + p.Name
		}
		for _, l := range lb.Listeners {
			names[l.ID] = fmt.Sprintf("listener/%s-%d", l.Protocol, max(l.Port, l.PortMin))
		}
	}
	for _, g := range sim.SecurityGroups() {
		names[g.VPC] = "vpc"
		for _, r := range g.Rules {
			names[r.ID] = fmt.Sprintf("rule/%s-%s-%d-%s", r.Direction, r.Protocol, r.PortMin, r.Remote.CIDR)
		}
	}
	return names
}

// values are annotations whose changes are written in different ways.
func values() map[string][]conformance.Legal {
	of := func(key string) []conformance.Legal { return checklistRows[key].Legal }
	legal := func(values ...string) (all []conformance.Legal) {
		for _, v := range values {
			all = append(all, conformance.Legal{Value: v})
		}
		return all
	}
	return map[string][]conformance.Legal{
		annotationIPType: of(annotationIPType), annotationFeatures: of(annotationFeatures), annotationName: of(annotationName),
		annotationCheckProtocol: of(annotationCheckProtocol), annotationIdle: of(annotationIdle),
		annotationPortRange: of(annotationPortRange)[:1],
		annotationCheckPath: {
			{Value: "/healthz", With: map[string]string{
				annotationCheckProtocol: protocolHTTP, annotationCheckPort: "10256", annotationCheckDelay: "7",
				annotationCheckTimeout: "4", annotationCheckRetries: "3",
			}},
			{Value: "/ready", With: map[string]string{annotationCheckProtocol: protocolHTTP, annotationCheckPort: "10256"}},
		},
		annotationDNSZone: of(annotationDNSZone),
		annotationSubnets: legal("lb-subnet", ibmsim.Cluster+"-subnet-1"),
		annotationQuota:   legal("1"), annotationGroups: legal(ibmsim.WebGroup, defaults),
	}
}

// notToAll are the steps in which a port leads to fewer nodes, or is one of several, because an annotation says so.
func notToAll() map[string]string {
	const (
		quota = "the annotation is a limit for the nodes that receive traffic"
		zone  = "the annotation chooses the nodes of a zone"
		ports = "the annotation asks for a listener of several ports, of which the Service names the first"
		users = "the rules of a group that is named are the user's: this one lets in to port 80 alone"
	)
	return map[string]string{
		"annotation-ibm-load-balancer-cloud-provider-vpc-member-quota/it is 1":     quota,
		"annotation-ibm-load-balancer-cloud-provider-vpc-security-group/it is web": users, "group-of-its-own/a group is named instead": users,
		"watched/it has failed": "a load balancer that has failed serves nothing", "watched/somebody deletes it": "it is made again when its Service changes",
		"zone/a zone is named": zone, "zone/another zone is named": zone,
		"port-range/a port becomes a range": ports, "port-range/the range grows": ports,
	}
}

// interrupts are the steps in which a port leads nowhere for a while.
func interrupts() map[string]string {
	const overlap = "two listeners may not have a port in common: the old one goes first"
	return map[string]string{
		"port-range/a port becomes a range": overlap, "port-range/the range grows": overlap, "port-range/it is a port again": overlap,
	}
}

// scenarios are those of annotations, and those of the two kinds of load balancers and of what Services have of their own.
func scenarios(t testing.TB, sim *ibmsim.Sim) []conformance.Scenario {
	t.Helper()
	addPort := conformance.Step{Name: "a port is added", Do: func(p *conformance.Play) {
		p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) })
	}}
	join := conformance.Step{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }}
	deleted := conformance.Step{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }}
	all := []conformance.Scenario{
		{Name: "takeover", Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
			// IBM's own controller makes the same, without a mark, and looks at nothing that somebody sets by hand.
			{Name: "it is as IBM's own controller leaves it, with settings by hand", Do: func(p *conformance.Play) {
				require.NoError(t, sim.EditLoadBalancer(sim.LoadBalancers()[0].Name, func(lb *ibmsim.LoadBalancer) {
					for i := range lb.Pools {
						lb.Pools[i].Algorithm, lb.Pools[i].Monitor.Delay = "least_connections", 10
					}
				}))
				p.Change("web", func(s *v1.Service) { delete(s.Annotations, annotationRecord) })
				p.Restart()
			}},
			addPort, join, deleted,
		}},
		{Name: "network", Services: []*v1.Service{conformance.Web(map[string]string{annotationFeatures: featureNLB})}, Steps: []conformance.Step{
			addPort, join,
			{Name: "a node port changes", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 })
			}},
			{Name: "a port is removed, and one moves", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) {
					s.Spec.Ports = s.Spec.Ports[:2]
					s.Spec.Ports[1].Port = 8443
				})
			}},
			deleted,
		}},
		networkLifeScenario(), watchScenario(t, sim),
		{Name: "port-range", Services: []*v1.Service{conformance.Web(map[string]string{annotationFeatures: featureNLB})}, Steps: []conformance.Step{
			{Name: "a port becomes a range", Do: func(p *conformance.Play) { p.Annotate("web", annotationPortRange, "80-82") }},
			{Name: "the range grows", Do: func(p *conformance.Play) { p.Annotate("web", annotationPortRange, "80-83") }},
			{Name: "it is a port again", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { delete(s.Annotations, annotationPortRange) })
			}},
		}},
		zoneScenario(),

		{Name: "private", Services: []*v1.Service{conformance.Web(map[string]string{annotationIPType: typePrivate})}, Steps: []conformance.Step{
			join, deleted,
		}},
		groupScenario(sim, addPort, deleted),
	}
	return append(all, annotationScenarios()...)
}

// networkLifeScenario has a network load balancer found by a program that begins, and left behind by its Service.
func networkLifeScenario() conformance.Scenario {
	return conformance.Scenario{
		Name: "network-restart", Services: []*v1.Service{conformance.Web(map[string]string{annotationFeatures: featureNLB})}, Steps: []conformance.Step{
			{Name: "nothing changed", Do: func(p *conformance.Play) { p.Restart() }},
			{Name: "a port was removed and a node joined meanwhile", Do: func(p *conformance.Play) {
				p.Change("web", func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[1:] })
				p.AddNodes("worker-3")
				p.Restart()
			}},
			{Name: "its Service goes without its finalizer", Do: func(p *conformance.Play) { p.Abandon("web") }},
		},
	}
}

// watchScenario is about what a load balancer comes into while nothing of its Service changes: it is told, and nothing is written.
func watchScenario(t testing.TB, sim *ibmsim.Sim) conformance.Scenario {
	t.Helper()
	become := func(name, status string) conformance.Step {
		return conformance.Step{Name: name, Do: func(p *conformance.Play) {
			require.NoError(t, sim.EditLoadBalancer(sim.LoadBalancers()[0].Name, func(lb *ibmsim.LoadBalancer) { lb.Provisioning = status }))
			p.Wait(3 * monitorPeriod)
		}}
	}
	return conformance.Scenario{Name: "watched", Loops: true, Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
		become("it has failed", "failed"), become("it is in order again", ""),
		{Name: "somebody deletes it", Do: func(p *conformance.Play) {
			sim.RemoveLoadBalancers()
			p.Wait(3 * monitorPeriod)
		}},
	}}
}

// zoneScenario has the zone of a load balancer named, changed and named no more.
func zoneScenario() conformance.Scenario {
	return conformance.Scenario{Name: "zone", Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
		{Name: "a zone is named", Do: func(p *conformance.Play) {
			for node, zone := range map[string]string{"worker-1": "us-south-1", "worker-2": "us-south-2"} {
				p.ChangeNode(node, func(n *v1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1.LabelTopologyZone, zone) })
			}
			p.Annotate("web", annotationZone, "us-south-1")
		}},
		{Name: "another zone is named", Do: func(p *conformance.Play) { p.Annotate("web", annotationZone, "us-south-2") }},
		{Name: "none is named", Do: func(p *conformance.Play) {
			p.Change("web", func(s *v1.Service) { delete(s.Annotations, annotationZone) })
		}},
	}}
}

// groupScenario has a load balancer with a security group of its own, and with one that is named instead.
func groupScenario(sim *ibmsim.Sim, addPort, deleted conformance.Step) conformance.Scenario {
	return conformance.Scenario{Name: "group-of-its-own", Services: []*v1.Service{ranged("web", "192.0.2.0/24")}, Steps: []conformance.Step{
		addPort,
		{Name: "somebody deletes the load balancer", Do: func(p *conformance.Play) {
			sim.RemoveLoadBalancers()
			p.ReconcileAgain("web")
		}},
		{Name: "a group is named instead", Do: func(p *conformance.Play) {
			p.Change("web", func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = nil
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationGroups, ibmsim.WebGroup)
			})
		}},
		{Name: "ranges again, and a restart", Do: func(p *conformance.Play) {
			p.Change("web", func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
				delete(s.Annotations, annotationGroups)
			})
			p.Restart()
		}},
		deleted,
	}}
}

func annotationScenarios() (all []conformance.Scenario) {
	for _, row := range Annotations.Rows() {
		if legal := values()[row.Key]; len(legal) > 0 {
			all = append(all, conformance.AnnotationScenario(row.Key, legal, conformance.Web))
		}
	}
	return all
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it chooses nodes, whose writes are those of the zone": {annotationNodeSelector},
}
