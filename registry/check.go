package registry

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// CheckServiceOf checks a Service of type LoadBalancer like the provider's controller, without network access: err holds faults, warnings
// hold ignored, deprecated or probably misspelt settings. schema.Problems splits both into problems.
func CheckServiceOf(p Provider, in Inputs, service *v1.Service) (warnings, err error) {
	t := Translate(p, in, service)
	_, common, commonErr := contract.Annotations.Parse(t.Service.Annotations)
	warned, refused := append([]error{common}, t.Warnings...), []error{commonErr, t.Err}
	if p.CheckService != nil {
		w, e := p.CheckService(in, t.Service)
		warned, refused = append(warned, prefixProblems(t, w)...), append(refused, prefixProblems(t, e)...)
	}
	table := p.table()
	return errors.Join(append(warned, FindIneffective(p, in, service), findDeprecated(table, service.Annotations))...), errors.Join(refused...)
}

// prefixProblems adds to each problem the portable annotation that it comes from.
func prefixProblems(t portable.Translation, err error) []error {
	problems := schema.Problems(err)
	for i := range problems {
		problems[i] = t.Named(problems[i])
	}
	return problems
}

// Translate converts the portable annotations of a Service, and the defaults of its class, to the provider's own. Without either, the
// Service is returned unchanged.
func Translate(p Provider, in Inputs, service *v1.Service) portable.Translation {
	class := defaults.ClassOf(service)
	given := in.Defaults.Of(class)
	if len(given) == 0 && !portable.Asks(service.Annotations) {
		return portable.Translation{Service: service}
	}
	cloud := p.Cloud()
	with, added := portable.WithDefaults(cloud, service, given)
	if p.Leaves(in, with) {
		return portable.Translation{Service: with}
	}
	t := portable.Translate(cloud, with)
	t.Defaults, t.Class = added, class
	if p.Unserved != nil && portable.Asks(with.Annotations) {
		t.Err = errors.Join(t.Err, p.Unserved(in, t.Service))
	}
	return t
}

// Leaves reports whether the provider leaves a Service to another controller.
func (p Provider) Leaves(in Inputs, s *v1.Service) bool {
	return (p.LeavesAlone != nil && p.LeavesAlone(in)(s)) || (p.ServedElsewhere != nil && p.ServedElsewhere.Holds(s.Annotations))
}

// CheckDefaults returns the faults of default annotations. Faults that depend on a Service's ports are found at its reconciliation.
func CheckDefaults(p Provider, in Inputs, annotations map[string]string) error {
	in.Defaults = nil
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "defaults", Annotations: annotations},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
		},
	}
	AsStored(service)
	_, err := CheckServiceOf(p, in, service)
	problems := append(schema.Problems(err), schema.Problems(p.findMisspelt(annotations, nil))...)
	return errors.Join(slices.DeleteFunc(problems, func(one error) bool {
		problem, ok := errors.AsType[*schema.Problem](one)
		return !ok || strings.Contains(problem.Place, portable.TLSPorts) || !strings.Contains(problem.Place, "annotation")
	})...)
}

// Cloud describes the provider to the translation of portable annotations.
func (p Provider) Cloud() portable.Cloud {
	title := p.Title
	if title == "" {
		title = p.Name
	}
	return portable.Cloud{Title: title, Rows: slices.Concat(p.Annotations, p.Fields)}
}

// table returns all annotations that a Service may have on the provider's cloud.
func (p Provider) table() []schema.AnnotationRow {
	rows := slices.Concat(p.Annotations, contract.Annotations.Rows(), portable.Annotations.Rows())
	for _, key := range p.Records {
		rows = append(rows, schema.AnnotationRow{Key: key})
	}
	return rows
}

// FindIneffective returns problems for annotations of a Service that have no effect: unknown ones that look like one of the provider's, and
// those that need another one, unless CheckService tells of it. A Service that is left to another controller has none.
func FindIneffective(p Provider, in Inputs, service *v1.Service) error {
	if p.Leaves(in, service) {
		return nil
	}
	effective := Translate(p, in, service).Service.Annotations
	return errors.Join(p.findMisspelt(service.Annotations, &service.Spec), schema.Unmet(p.Annotations, service.Annotations, effective, false))
}

// findMisspelt reports unknown annotations that are in a domain of the provider's, begin like one of its own or resemble one, and those for
// a port that the Service does not have; spec is nil without a Service.
func (p Provider) findMisspelt(given map[string]string, spec *v1.ServiceSpec) error {
	var problems []error
	table := p.table()
	for _, key := range slices.Sorted(maps.Keys(given)) {
		known, port := findKey(table, key)
		if known {
			if port != 0 && spec != nil && port != spec.HealthCheckNodePort &&
				!slices.ContainsFunc(spec.Ports, func(p v1.ServicePort) bool { return p.Port == port }) {
				problems = append(problems, &schema.Problem{
					Place: "annotation " + key, Reason: fmt.Sprintf("has no effect: the Service has no port %d", port), Warning: true,
				})
			}
			continue
		}
		keys, families := keysLike(table, key)
		near := schema.Nearest(key, keys)
		domain, _, _ := strings.Cut(key, "/")
		hint, foreign := p.Foreign[key]
		if near == "" && !foreign && !families[family(key)] && !slices.Contains(p.Domains, domain) {
			continue
		}
		problem := &schema.Problem{Place: "annotation " + key, Reason: "is unknown and has no effect", Warning: true}
		switch {
		case foreign:
			problem.Reason = "has no effect here: " + hint
		case near != "":
			problem.Reason += "; did you mean " + near + "?"
		}
		problems = append(problems, problem)
	}
	return errors.Join(problems...)
}

// findKey reports whether a key is in the table, and its port; 0 is none.
func findKey(table []schema.AnnotationRow, key string) (known bool, port int32) {
	for _, row := range table {
		if n, ok := row.Port(key); ok {
			return true, n
		}
		known = known || row.Key == key
	}
	return known, 0
}

var portNumber = regexp.MustCompile(`[0-9]+`)

// keysLike returns the keys of the table, with the number of the given one, and their families.
func keysLike(table []schema.AnnotationRow, given string) (keys []string, families map[string]bool) {
	keys, families = make([]string, len(table)), map[string]bool{}
	for i, row := range table {
		keys[i] = row.Key
		if n := portNumber.FindString(given); n != "" {
			keys[i] = strings.Replace(row.Key, schema.Numbered, n, 1)
		}
		if f := family(keys[i]); f != "" {
			families[f] = true
		}
	}
	return keys, families
}

// family returns the domain of a key with the first word of its name: "service.beta.kubernetes.io/do-". Many clouds share a domain, so the
// domain alone identifies none. It is "" without a second word.
func family(key string) string {
	domain, name, ok := strings.Cut(key, "/")
	if word, _, more := strings.Cut(name, "-"); ok && more {
		return domain + "/" + word + "-"
	}
	return ""
}

// findDeprecated reports annotations that still work and have a successor.
func findDeprecated(table []schema.AnnotationRow, given map[string]string) error {
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

// AsStored fills in defaults like the API server: controllers never see a Service without them.
func AsStored(s *v1.Service) {
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = v1.ProtocolTCP
		}
		if port.NodePort == 0 && (s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts) {
			port.NodePort = anyNodePort + int32(i)
			if first := slices.IndexFunc(s.Spec.Ports, func(o v1.ServicePort) bool { return o.Port == port.Port }); first < i {
				port.NodePort = s.Spec.Ports[first].NodePort // two protocols of one port share it
			}
		}
	}
	if s.Spec.ExternalTrafficPolicy == "" {
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyCluster
	}
	if s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = anyNodePort - 1
	}
}
