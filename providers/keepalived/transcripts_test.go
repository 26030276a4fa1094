package keepalived

import (
	"embed"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts
var transcripts embed.FS

// scenarios cover the other announcers, takeovers, requested addresses and keepalived's file. Prepare changes env, the environment of the
// fixture.
func scenarios(api *conformance.KubeAPI, env map[string]string) []conformance.Scenario {
	start := func(with map[string]string, configMaps ...*v1.ConfigMap) func() {
		return func() {
			clear(env)
			maps.Copy(env, with)
			for _, cm := range configMaps {
				api.Put(cm)
			}
		}
	}
	second := conformance.Step{Name: "a second one is created", Do: func(p *conformance.Play) { p.Create(otherService()) }}
	deleted := conformance.Step{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }}
	entry := fmt.Sprintf(`{"services":[{"uid":%q,"ip":"10.210.38.70","serviceNamespace":"default","serviceName":"web","forwardMethod":"DR"}]}`, webService().UID)
	marked := webService()
	marked.Labels, marked.Spec.LoadBalancerIP = map[string]string{labelImplementation: implementation}, "10.0.0.4"
	marked.Annotations = map[string]string{annotationIPs: "10.0.0.4"}
	return []conformance.Scenario{
		{Name: "file-of-keepalived", Steps: []conformance.Step{
			{Name: "created after a start that saw the nodes", Do: func(p *conformance.Play) {
				p.Restart()
				p.Create(webService())
			}},
			{Name: "a second one is created, after a start that saw one more node", Do: func(p *conformance.Play) {
				p.AddNodes("worker-3")
				p.Restart()
				p.Create(otherService())
			}},
			{Name: "one is deleted, after a start that saw a node less", Do: func(p *conformance.Play) {
				p.RemoveNodes("worker-1")
				p.Restart()
				p.Delete("web")
			}},
		}},
		{Name: "requested-address", Services: []*v1.Service{webService(), otherService()}, Steps: []conformance.Step{
			askFor("of the pool", "203.0.113.77"), askFor("of no pool", "192.0.2.7"), askFor("that the other one has", "203.0.113.2"), askFor("none", ""),
		}},
		{Name: "kube-keepalived-vip", Prepare: start(vipEnv, vips("", nil)), Services: []*v1.Service{webService()}, Steps: []conformance.Step{
			annotate("it is forwarded by DR", annotationMethod, "DR"), annotate("as by default", annotationMethod, ""), second, deleted,
		}},
		{
			Name:    "kube-keepalived-vip-takeover",
			Prepare: start(vipEnv, vips(entry, map[string]string{"10.210.38.70": "default/web:DR", "10.210.38.66": "mine/own"})),
			Steps: []conformance.Step{
				{Name: "its Service is there, and has an entry", Do: func(p *conformance.Play) {
					s := webService()
					s.Annotations = map[string]string{annotationMethod: "DR"}
					p.Create(s)
				}},
				second, annotate("it is forwarded by NAT", annotationMethod, "NAT"), deleted,
			},
		},
		{Name: "kube-vip", Prepare: start(kubeVIPEnv, kubeVIPPools("interface-global", "eth1")), Services: []*v1.Service{webService()}, Steps: []conformance.Step{
			askFor("it asks for an address", "10.0.0.5"), second, deleted,
		}},
		{Name: "kube-vip-takeover", Prepare: start(kubeVIPEnv, kubeVIPPools()), Services: []*v1.Service{marked}, Steps: []conformance.Step{
			second, restarted, askFor("it asks for an address", "10.0.0.5"), deleted,
		}},
	}
}

var restarted = conformance.Step{Name: "a restart", Do: func(p *conformance.Play) { p.Restart() }}

func webService() *v1.Service {
	return conformance.Service("web", nil, conformance.Port("http", 80, 30080))
}

func otherService() *v1.Service {
	s := conformance.Service("other", nil, conformance.Port("smtp", 25, 30025))
	s.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return s
}

// askFor is a step in which the Service requests an address, or none.
func askFor(name, address string) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) {
		p.Change("web", func(s *v1.Service) { s.Spec.LoadBalancerIP = address })
	}}
}

// annotate is a step that sets an annotation, or removes it.
func annotate(name, key, value string) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) {
		p.Change("web", func(s *v1.Service) {
			if delete(s.Annotations, key); value != "" {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value)
			}
		})
	}}
}
