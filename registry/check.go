package registry

import (
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// CheckServiceOf judges a Service of type LoadBalancer as the provider's controller would, without any network: what is
// wrong with it (err), and what is ignored, deprecated or probably misspelt (warnings). Both are made of problems that
// schema.Problems takes apart.
func CheckServiceOf(p Provider, in Inputs, service *v1.Service) (warnings, err error) {
	_, common, commonErr := guard.Annotations.Parse(service.Annotations)
	warned, refused := []error{common}, []error{commonErr}
	if p.CheckService != nil {
		w, e := p.CheckService(in, service)
		warned, refused = append(warned, w), append(refused, e)
	}
	table := slices.Concat(p.Annotations, guard.Annotations.Rows())
	return errors.Join(append(warned, misspelt(table, service.Annotations), deprecated(table, service.Annotations))...), errors.Join(refused...)
}

// misspelt reports annotations that are in no table, though they begin as those of the provider do or look like one.
func misspelt(table []schema.AnnotationRow, given map[string]string) error {
	keys := make([]string, len(table))
	families := map[string]bool{}
	for i, row := range table {
		keys[i] = row.Key
		if f := family(row.Key); f != "" {
			families[f] = true
		}
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if slices.ContainsFunc(keys, func(known string) bool {
			many, ok := strings.CutSuffix(known, schema.Numbered)
			return known == key || (ok && strings.HasPrefix(key, many))
		}) {
			continue
		}
		near := schema.Nearest(key, keys)
		if near == "" && !families[family(key)] {
			continue
		}
		p := &schema.Problem{Place: "annotation " + key, Reason: "is unknown and has no effect", Warning: true}
		if near != "" {
			p.Reason += "; did you mean " + near + "?"
		}
		problems = append(problems, p)
	}
	return errors.Join(problems...)
}

// family is the domain of a key with the first word of its name: "service.beta.kubernetes.io/do-". A domain that many
// share says nothing without that word. It is empty where there is no second word.
func family(key string) string {
	domain, name, ok := strings.Cut(key, "/")
	if word, _, more := strings.Cut(name, "-"); ok && more {
		return domain + "/" + word + "-"
	}
	return ""
}

// deprecated reports annotations that still work and have a successor.
func deprecated(table []schema.AnnotationRow, given map[string]string) error {
	var problems []error
	for _, row := range table {
		if _, present := given[row.Key]; present && row.Deprecated != "" {
			problems = append(problems, &schema.Problem{Place: "annotation " + row.Key, Reason: "is deprecated: " + row.Deprecated, Warning: true})
		}
	}
	return errors.Join(problems...)
}

// anyNodePort stands for the port that the API server will choose.
const anyNodePort = 30000

// AsStored fills in what the API server would: controllers never see a Service without it.
func AsStored(s *v1.Service) {
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = v1.ProtocolTCP
		}
		if port.NodePort == 0 && (s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts) {
			port.NodePort = anyNodePort + int32(i)
		}
	}
	if s.Spec.ExternalTrafficPolicy == "" {
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyCluster
	}
	if s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = anyNodePort - 1
	}
}
