package openstack

import (
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// fields returns the Service fields that portable annotations set.
func fields() []schema.AnnotationRow {
	return []schema.AnnotationRow{{
		Key: portable.FieldLoadBalancerIP, Spec: schema.Spec{Kind: schema.KindString, Rules: []schema.Rule{
			schema.Must(`^\s*(?:`+schema.IPv4Pattern+`|`+schema.IPv6Pattern+`)\s*$`, "is not one IP address, which is all that OpenStack takes"),
		}},
		Serves: []schema.Serves{{Portable: portable.Address, Only: "one"}},
	}}
}

// withMonitor enables the health check, so that its settings take effect.
var withMonitor = map[string]string{annotationMonitor: textTrue}

// sameProxy compares protocols: v1 has two names.
func sameProxy(own, translated string) bool {
	return settings{Proxy: own}.proxy() == settings{Proxy: translated}.proxy()
}

// everyPort refuses a certificate for some of the TCP ports, because in Octavia's settings it applies to all.
var everyPort = schema.Rule{
	Needs: []schema.Term{{EveryPort: true}},
	Words: "leaves out TCP ports of the Service, and on OpenStack a certificate is for all of them; remove it, or use two Services",
}

// checkInternalOnly refuses a public load balancer if the option internal-lb is set.
func checkInternalOnly(in registry.Inputs, service *v1.Service) error {
	scheme := service.Annotations[portable.Scheme]
	if scheme != portable.SchemePublic {
		return nil
	}
	if c, _, _ := parseConfig(in); !c.LoadBalancer.Internal {
		return nil
	}
	return &schema.Problem{
		Place: "annotation " + portable.Scheme, Value: scheme, Reason: portable.Refusal("OpenStack") + "; the option internal-lb makes all load balancers internal",
	}
}
