package linode

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// names maps the IDs of NodeBalancers, firewalls and their parts to stable names for transcripts.
func names(sim *linodesim.Sim, renewed *[2]*v1.Secret) map[string]string {
	all := map[string]string{}
	for i, secret := range renewed {
		all[fingerprint(string(secret.Data[v1.TLSCertKey]))] = fmt.Sprint("certificate/", i+1)
	}
	for _, nb := range sim.NodeBalancers() {
		all[strconv.Itoa(nb.ID)], all[nb.IPv4], all[nb.IPv6] = "nodebalancer/"+nb.Label, "ipv4/"+nb.Label, "ipv6/"+nb.Label
		all[nb.Hostname] = "hostname/" + nb.Label
		for _, c := range nb.Configs() {
			port := fmt.Sprint(c.Protocol, "-", c.Port)
			if c.Protocol != protocolUDP {
				port = strconv.Itoa(c.Port)
			}
			all[strconv.Itoa(c.ID)] = "config/" + port
			for _, n := range c.Nodes() {
				all[strconv.Itoa(n.ID)] = "node/" + port + "/" + n.Label
			}
		}
	}
	for _, f := range sim.Firewalls() {
		all[strconv.Itoa(f.ID)] = "firewall/" + f.Label
		for _, id := range f.Attachments() {
			all[strconv.Itoa(id)] = "device/" + f.Label
		}
	}
	return all
}

// unplanned are steps that write something else than plan says.
var unplanned = map[string]string{
	"takeover/a node joins": "a change of nodes leaves the marks to the next reconciliation of the Service, which plan is about",
}

// unserved are steps that end with ports other than the Service's.
var unserved = map[string]string{
	"annotation-linode-loadbalancer-default-protocol/it is udp":                                "the annotation makes a port of TCP one of UDP, as on Linode's own controller",
	"annotation-linode-loadbalancer-udp-check-port/it is 53":                                   "default-protocol makes a port of TCP one of UDP",
	`annotation-linode-loadbalancer-port-80/it is {"protocol": "udp", "udp-check-port": "53"}`: "the annotation makes a port of TCP one of UDP",
	"preserved/deleted": "the annotation preserve leaves the NodeBalancer to the user, with what it serves",
}

// annotationScenarios are those of the annotations with values that are sent. What balances UDP in other ways is tried with one annotation.
func annotationScenarios() []conformance.Scenario {
	items := maps.Clone(checklistRows)
	delete(items, annotationOldProxyProtocol) // another name
	for key, item := range items {
		if key != annotationUDPCheckPort {
			item.Legal = slices.DeleteFunc(slices.Clone(item.Legal), func(l conformance.Legal) bool {
				return l.With[annotationProtocol] == protocolUDP
			})
			items[key] = item
		}
	}
	return conformance.Checklist{Rows: Annotations.Rows(), Items: items, Service: func(annotations map[string]string) *v1.Service {
		return service("web", annotations, port("http", 80, 30080))
	}}.Scenarios()
}

// scenarios are those that Linode has besides the common ones. renewed are a certificate
// and the one after it; inVPC has the cluster and its Linodes in a VPC.
func scenarios(t testing.TB, sim *linodesim.Sim, renewed *[2]*v1.Secret, inVPC func()) []conformance.Scenario {
	return append(
		annotationScenarios(),
		takeoverScenario(sim), firewallScenario(sim), sharedFirewallScenario(sim), renewalScenario(t, renewed),
		conformance.Scenario{
			Name: "private", Prepare: inVPC,
			Services: []*v1.Service{conformance.Web(annotated(annotationFrontendVPC, "cluster", annotationFrontendSubnet, "default"))},
			Steps: []conformance.Step{
				{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
				changed("its clients are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} }),
				changed("it is to be public", func(s *v1.Service) {
					delete(s.Annotations, annotationFrontendVPC)
					delete(s.Annotations, annotationFrontendSubnet)
				}),
				{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
			},
		},
		conformance.Scenario{Name: "preserved", Services: []*v1.Service{conformance.Web(annotated(annotationPreserve, "true"))}, Steps: []conformance.Step{
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		}},
	)
}

// changed is a step that changes the Service.
func changed(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

// takeoverScenario is about a NodeBalancer that Linode's own controller made: it has no marks, and its Service has no record.
func takeoverScenario(sim *linodesim.Sim) conformance.Scenario {
	return conformance.Scenario{Name: "takeover", Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
		{Name: "it is as Linode's own controller leaves it", Do: func(p *conformance.Play) {
			sim.ChangeNodeBalancer(sim.NodeBalancers()[0].ID, func(nb *linodesim.NodeBalancer) { nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", []string{"kubernetes"} })
			p.Change("web", func(s *v1.Service) { delete(s.Annotations, annotationRecord) })
			p.Restart()
		}},
		{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
		changed("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }),
		changed("its clients are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }),
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// addOpenFirewall adds a firewall of the user's that lets everybody in.
func addOpenFirewall(sim *linodesim.Sim) int {
	id := sim.AddFirewall("users-own")
	sim.ChangeFirewall(id, func(f *linodesim.Firewall) { f.Rules.InboundPolicy = "ACCEPT" })
	return id
}

// firewallScenario goes through all that a Service can say about its firewall.
func firewallScenario(sim *linodesim.Sim) conformance.Scenario {
	users := 0
	ask := func(name string, key string, value func() string) conformance.Step {
		return changed(name, func(s *v1.Service) {
			delete(s.Annotations, annotationFirewallACL)
			delete(s.Annotations, annotationFirewallID)
			if key != "" {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value())
			}
		})
	}
	return conformance.Scenario{
		Name: "firewalls", Services: []*v1.Service{conformance.Web(nil)}, Prepare: func() { users = addOpenFirewall(sim) },
		Steps: []conformance.Step{
			ask("some may connect", annotationFirewallACL, func() string { return allowACL }),
			changed("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }),
			ask("all but some may", annotationFirewallACL, func() string { return denyACL }),
			ask("the user's decides", annotationFirewallID, func() string { return strconv.Itoa(users) }),
			ask("some may again", annotationFirewallACL, func() string { return allowACL }),
			ask("all may", "", nil),
		},
	}
}

// sharedFirewallScenario is about two Services that have a firewall of the user's.
func sharedFirewallScenario(sim *linodesim.Sim) conformance.Scenario {
	web, other := conformance.Web(nil), conformance.Service("other", nil, port("smtp", 25, 30025))
	other.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return conformance.Scenario{
		Name: "shared-firewall", Services: []*v1.Service{web, other}, Prepare: func() {
			web.Annotations[annotationFirewallID] = strconv.Itoa(addOpenFirewall(sim))
			other.Annotations[annotationFirewallID] = web.Annotations[annotationFirewallID]
		},
		Steps: []conformance.Step{
			changed("one gets another port", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }),
			{Name: "one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
			changed("the other one leaves it", func(s *v1.Service) { delete(s.Annotations, annotationFirewallID) }),
			{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
		},
	}
}

// renewalScenario is about a certificate in a Secret, which is renewed, and of which then nothing is left.
func renewalScenario(t testing.TB, renewed *[2]*v1.Secret) conformance.Scenario {
	broken := renewed[1].DeepCopy()
	broken.ResourceVersion, broken.Data[v1.TLSCertKey] = "3", []byte("nonsense")
	update := func(name string, secret *v1.Secret) conformance.Step {
		return conformance.Step{Name: name, Do: func(p *conformance.Play) {
			p.Wait(time.Hour) // the loop watches it by then
			_, err := p.Kube().CoreV1().Secrets("default").Update(t.Context(), secret, metav1.UpdateOptions{})
			require.NoError(t, err)
			p.Wait(time.Minute)
		}}
	}
	return conformance.Scenario{Name: "tls-renewed", Loops: true, Services: []*v1.Service{conformance.Web(nil)}, Steps: []conformance.Step{
		{Name: "a port gets a certificate", Do: func(p *conformance.Play) {
			_, err := p.Kube().CoreV1().Secrets("default").Create(t.Context(), renewed[0], metav1.CreateOptions{})
			require.NoError(t, err)
			p.Annotate("web", annotationPort+"443", `{"protocol": "https", "tls-secret-name": "web-tls"}`)
		}},
		update("the Secret is renewed", renewed[1]), update("the Secret holds no certificate any more", broken),
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// addTranscripts says what the part Transcripts of the suite needs; inVPC puts the nodes into a VPC.
func addTranscripts(t testing.TB, f *conformance.Fixture, sim *linodesim.Sim, inVPC func()) {
	t.Helper()
	renewed := &[2]*v1.Secret{newSecret(t, "web-tls", 1), newSecret(t, "web-tls", 2)}
	f.PlannedWrites, f.Unplanned, f.ReadAgain, f.Untranscribed = plannedWrites, unplanned, readAgain, untranscribed
	f.Transcripts, f.Scenarios, f.Serves, f.Unserved = transcripts, scenarios(t, sim, renewed, inVPC), sim.Serves, unserved
	f.Secrets = []string{testToken, string(renewed[0].Data[v1.TLSPrivateKeyKey]), string(renewed[1].Data[v1.TLSPrivateKeyKey])}
	f.Names = func() map[string]string { return names(sim, renewed) }
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it is another name": {annotationOldProxyProtocol},
	"it names a NodeBalancer that is there, which is then changed as any other": {annotationID},
	"it counts for the status alone":                                            {annotationHostnameOnly},
	"it says what is deleted with a NodeBalancer, as preserve does":             {annotationRetainReservedIPv4},
	"they count when the NodeBalancer is made, in fields of its only write": {
		annotationBackendRange, annotationBackendVPC, annotationBackendSubnet, annotationBackendSubnetID, annotationFrontendSubnetID,
		annotationFrontendRangeV4, annotationFrontendRangeV6,
	},
}
