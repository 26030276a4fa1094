package azure

import (
	"embed"
	"encoding/json"
	"maps"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// tryTranscripts says how the suite tells what goes over the wire. config has further keys of azure.json.
func tryTranscripts(t testing.TB, sim *azuresim.Sim, f *conformance.Fixture, config map[string]any) {
	t.Helper()
	f.PlannedWrites, f.ReadAgain = plannedWrites, readAgain
	f.Transcripts, f.Secrets, f.Unplanned = transcripts, []string{testSecret}, unplannedSteps()
	f.Interrupts, f.Unserved = interruptedSteps(), map[string]string{
		"annotation-azure-load-balancer-enable-high-availability-ports/it is true": "one rule serves all ports",
		"annotation-azure-disable-load-balancer-nsg-rule/it is true":               "the rules of the security group are the user's then",
		"annotation-port_80_health-probe_interval/it is 30":                        "an annotation leaves the port out",
	}
	for _, step := range []string{"a Service with an endpoint", "one goes", "none is left"} {
		f.Unserved["local-pool/"+step] = "the Service has nodes with an endpoint alone, and keeps the last ones where there is none"
	}
	f.Documents, f.Names = shownDocuments(sim), func() map[string]string { return transcriptNames(sim) }
	f.Scenarios, f.Untranscribed = scenarios(t, sim, config), untranscribed
}

// shownDocuments give what a write changes. What Azure fills in is left out; machines and scale sets keep what a write does not mention.
func shownDocuments(sim *azuresim.Sim) func(path string, sent map[string]any) (before, after any) {
	return func(path string, sent map[string]any) (before, after any) {
		have := sim.Shown(path)
		if strings.Contains(strings.ToLower(path), "microsoft.compute") {
			return services.Within(have, sent), sent
		}
		return withoutDerived(have, false), withoutDerived(sent, false)
	}
}

// withoutDerived is a document without what Azure fills in. Parts have a name, and references have an ID alone.
func withoutDerived(v any, isPart bool) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			switch key {
			case "etag", "type", "provisioningState", "resourceGuid", "defaultSecurityRules", "backendIPConfigurations":
				continue
			case "ipAddress", "ipConfiguration": // of a public address
				if v["publicIPAllocationMethod"] != nil {
					continue
				}
			case "id", "loadBalancingRules":
				if isPart {
					continue
				}
			}
			all[key] = withoutDerived(value, isPart && key == "properties")
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			part, _ := v[i].(map[string]any)
			all[i] = withoutDerived(v[i], part["name"] != nil)
		}
		return all
	}
	return v
}

// transcriptNames name resources and their parts by kind and parent, machines by their nodes, and addresses by the resource.
func transcriptNames(sim *azuresim.Sim) map[string]string {
	names := map[string]string{}
	var state map[string]any
	if json.Unmarshal(sim.State(), &state) != nil {
		return names
	}
	for id := range state {
		shown := sim.Shown(id)
		label := shortID(str(shown, "id"))
		if name := str(shown, "properties", "osProfile", "computerName"); name != "" {
			label = "virtualMachines/" + name
			names[path.Base(id)+" of scale set "+path.Base(path.Dir(path.Dir(id)))] = name
		}
		nameAs(names, str(shown, "id"), label)
		if ip := str(shown, "properties", "ipAddress"); ip != "" {
			names[ip] = "ip(" + str(shown, "name") + ")"
		}
		for _, kind := range []string{"frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "ipConfigurations", "subnets", "securityRules"} {
			for _, p := range docs(shown, "properties", kind) {
				nameAs(names, str(p, "id"), shortID(str(p, "id")))
				if ip := str(p, "properties", "privateIPAddress"); ip != "" && kind == "frontendIPConfigurations" {
					names[ip] = "ip(" + str(p, "name") + ")"
				}
			}
		}
	}
	for _, group := range []string{"k8s-rg", "K8S-RG", "k8s-RG"} {
		names["/subscriptions/"+azuresim.Subscription+"/resourceGroups/"+group+"/providers"] = "/"
	}
	return names
}

// nameAs names an ID in each of the cases that Azure answers it in.
func nameAs(names map[string]string, id, name string) {
	for _, group := range []string{"k8s-rg", "K8S-RG", "k8s-RG"} {
		names[strings.Replace(id, "/resourceGroups/"+azuresim.Group+"/", "/resourceGroups/"+group+"/", 1)] = name
	}
	names[id], names[strings.ToLower(id)] = name, name
}

// shortID is an ID from its kind on.
func shortID(id string) string {
	_, at, _ := strings.Cut(id, "/providers/")
	_, short, _ := strings.Cut(at, "/")
	return short
}

// unplannedSteps are those in which a node leaves, and one that needs endpoints.
func unplannedSteps() map[string]string {
	const reason = "members of pools carry no mark: a machine leaves a pool if it was a node since the program began, which a plan does not know"
	steps := map[string]string{}
	for _, step := range []string{
		"nodes/one leaves", "nodes/two leave and one joins", "two-services/a node leaves", "restart/a node leaves after it",
		"without-floating-ip/a node leaves",
	} {
		steps[step] = reason
	}
	steps["local-pool/a Service with an endpoint"] = "the program of a plan does not follow the API server here, and knows no endpoints"
	return steps
}

// interruptedSteps are those in which the security group follows the load balancer, in one write that opens and closes.
func interruptedSteps() map[string]string {
	const reason = "the load balancer leads to another address or port before the rule of the security group, which is replaced in one write, lets it in"
	steps := map[string]string{}
	for _, step := range []string{
		"own-address/one that is made for it", "own-address/the user's again", "without-floating-ip/a node port changes",
		"annotation-azure-disable-load-balancer-floating-ip/it is true", "annotation-azure-disable-load-balancer-floating-ip/it is removed",
	} {
		steps[step] = reason
	}
	for _, step := range []string{"internal/it becomes public", "internal/and internal again"} {
		steps[step] = "the port at the former address ends when the one at the new address serves"
	}
	return steps
}

// webStep changes the Service "web".
func webStep(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

func joinStep(name string) conformance.Step {
	return conformance.Step{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes(name) }}
}

func leaveStep(name string) conformance.Step {
	return conformance.Step{Name: "a node leaves", Do: func(p *conformance.Play) { p.RemoveNodes(name) }}
}

func deleteStep(service string) conformance.Step {
	return conformance.Step{Name: service + " is deleted", Do: func(p *conformance.Play) { p.Delete(service) }}
}

func annotateStep(name, key, value string) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Annotate("web", key, value) }}
}

func addPort(s *v1.Service) {
	s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
}

// scenarios are those of Azure. config has further keys of azure.json.
func scenarios(t testing.TB, sim *azuresim.Sim, config map[string]any) []conformance.Scenario {
	web := func(annotations map[string]string) *v1.Service {
		return conformance.Service("web", annotations, conformance.Port("http", 80, 30080))
	}
	link := map[string]string{annotationInternal: "true", annotationPrivateLink: "true", annotationLinkName: "shop"}
	taken := leftWeb()
	all := []conformance.Scenario{
		{Name: "internal", Services: []*v1.Service{web(map[string]string{annotationInternal: "true"})}, Steps: []conformance.Step{
			webStep("a port is added", addPort),
			webStep("it becomes public", func(s *v1.Service) { delete(s.Annotations, annotationInternal) }),
			annotateStep("and internal again", annotationInternal, "true"), deleteStep("web"),
		}},
		{Name: "shared-address", Services: []*v1.Service{web(nil)}, Steps: []conformance.Step{
			{Name: "another Service has the same address", Do: func(p *conformance.Play) {
				first, err := p.Kube().CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
				require.NoError(t, err)
				ip := first.Status.LoadBalancer.Ingress[0].IP
				s := conformance.Service("other", map[string]string{annotationIPv4: ip}, conformance.Port("smtp", 25, 30025))
				s.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
				p.Create(s)
			}},
			webStep("one gets another port", addPort),
			webStep("the clients of one are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }),
			deleteStep("web"), deleteStep("other"),
		}},
		{Name: "without-floating-ip", Services: []*v1.Service{web(map[string]string{annotationNoFloating: "true"})}, Steps: []conformance.Step{
			webStep("a node port changes", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 }),
			joinStep("worker-3"), leaveStep("worker-1"),
		}},
		{Name: "own-address", Services: []*v1.Service{web(map[string]string{annotationName: "reserved"})}, Steps: []conformance.Step{
			webStep("one that is made for it", func(s *v1.Service) { delete(s.Annotations, annotationName) }),
			annotateStep("the user's again", annotationName, "reserved"), deleteStep("web"),
		}},
		{Name: "private-link", Prepare: func() { sim.LetLinksIn(azuresim.Subnet) }, Services: []*v1.Service{web(link)}, Steps: []conformance.Step{
			annotateStep("with the PROXY protocol", annotationLinkProxy, "true"),
			webStep("with names, for some", func(s *v1.Service) {
				s.Annotations[annotationLinkFQDNs], s.Annotations[annotationLinkVisible] = "a.example.com", azuresim.Subscription
				s.Annotations[annotationLinkApproved] = azuresim.Subscription
			}),
			webStep("without a link", func(s *v1.Service) { delete(s.Annotations, annotationPrivateLink) }),
		}},
		{
			Name: "members-by-address", Prepare: func() { config["loadBalancerBackendPoolConfigurationType"] = "nodeIP" },
			Services: []*v1.Service{web(nil)}, Steps: []conformance.Step{joinStep("worker-3"), leaveStep("worker-1"), deleteStep("web")},
		},
		{Name: "takeover", Steps: []conformance.Step{
			{Name: "it is taken over", Do: func(p *conformance.Play) { p.Leave(taken.describe(sim)) }},
			webStep("a port is added", addPort), joinStep("worker-3"),
			webStep("source ranges", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }), deleteStep("web"),
		}},
	}
	return append(append(all, localPoolScenario(t, config, web(nil))), annotationScenarios(web)...)
}

// localPoolScenario is about a Service with local traffic, whose pool follows its endpoints where there are several load balancers.
func localPoolScenario(t testing.TB, config map[string]any, s *v1.Service) conformance.Scenario {
	localTraffic(s)
	have := func(p *conformance.Play, nodes ...string) {
		slice, all := endpointsOn(nodes...)[0], p.Kube().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
		_, err := all.Update(t.Context(), slice, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = all.Create(t.Context(), slice, metav1.CreateOptions{})
		}
		require.NoError(t, err)
		p.Wait(time.Minute)
	}
	endpoints := func(name string, nodes ...string) conformance.Step {
		return conformance.Step{Name: name, Do: func(p *conformance.Play) { have(p, nodes...) }}
	}
	return conformance.Scenario{Name: "local-pool", Loops: true, Prepare: func() { maps.Copy(config, lbs()) }, Steps: []conformance.Step{
		{Name: "a Service with an endpoint", Do: func(p *conformance.Play) {
			have(p, "worker-1")
			p.Create(s)
		}},
		endpoints("another endpoint", "worker-1", "worker-2"), endpoints("one goes", "worker-2"), endpoints("none is left"), deleteStep("web"),
	}}
}

// annotationScenarios are those of the annotations whose writes differ in kind; others change a field of the same writes.
func annotationScenarios(web func(map[string]string) *v1.Service) (all []conformance.Scenario) {
	legal := func(values ...string) (list []conformance.Legal) {
		for _, v := range values {
			list = append(list, conformance.Legal{Value: v})
		}
		return list
	}
	for key, values := range map[string][]conformance.Legal{
		annotationIdle: legal("10"), annotationNoReset: legal("true"), annotationNoFloating: legal("true"), annotationNoSecurity: legal("true"),
		annotationProbeProtocol: {{Value: "http", With: map[string]string{annotationProbePath: "/healthz"}}},
		annotationLabel:         legal("shop", "store"), annotationTags: legal("team=web"), annotationServiceTags: legal("AzureFrontDoor.Backend"),
		annotationAllowedRanges: legal("192.0.2.0/24", "198.51.100.0/24"),
		annotationDenyAll:       {{Value: "true", With: map[string]string{annotationAllowedRanges: "192.0.2.0/24"}}},
		annotationAdditional:    legal("20.60.9.9"),
		annotationIPTags:        legal("RoutingPreference=Internet", "FirstPartyUsage=/x"),
		annotationProbeInterval: {
			{Value: "10", With: map[string]string{annotationProbeProtocol: "http", annotationProbePath: "/healthz", annotationProbeNumber: "3"}},
			{Value: "20", With: map[string]string{annotationProbeProtocol: "https", annotationProbePath: "/ready"}},
		},
		keyOfPort(80, "health-probe_interval"): {
			{Value: "10", With: map[string]string{
				keyOfPort(80, "health-probe_protocol"): "http", keyOfPort(80, "health-probe_port"): "10256",
				keyOfPort(80, "health-probe_request-path"): "/healthz", keyOfPort(80, "health-probe_num-of-probe"): "3",
			}},
			{Value: "20", With: map[string]string{keyOfPort(80, "no_probe_rule"): "true"}},
			{Value: "30", With: map[string]string{keyOfPort(80, "no_lb_rule"): "true"}},
		},
	} {
		all = append(all, conformance.AnnotationScenario(key, values, web))
	}
	return append(all, conformance.AnnotationScenario(annotationAllPorts, legal("true"), func(annotations map[string]string) *v1.Service {
		annotations[annotationInternal] = "true"
		return web(annotations)
	}))
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it has no effect": {annotationMode},
	"it chooses one of several load balancers, whose writes are the same": {annotationConfigs},
	"it names an address or where one is, in a field of the write that azure-load-balancer-ipv4, azure-pip-name and internal have": {
		annotationIPv6, annotationName6, annotationSubnet, annotationGroup, annotationPrefixID, annotationPrefixID6,
	},
	"its changes are written as those of spec.loadBalancerSourceRanges": {annotationSourceRanges},
	"it changes a field of the write that azure-pls-fqdns and the proxy protocol change": {
		annotationLinkGroup, annotationLinkSubnet, annotationLinkCount, annotationLinkIPs,
	},
}
