package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Field is a feature that the spec of a Service may request.
type Field string

// The fields of Services, in the order of the documentation.
const (
	FieldAddress      Field = "spec.loadBalancerIP"
	FieldIPv6         Field = "spec.ipFamilies: [IPv6]"
	FieldPreferBoth   Field = "spec.ipFamilyPolicy: PreferDualStack"
	FieldRequireBoth  Field = "spec.ipFamilyPolicy: RequireDualStack"
	FieldNoNodePorts  Field = "spec.allocateLoadBalancerNodePorts: false"
	FieldAffinity     Field = "spec.sessionAffinity: ClientIP"
	FieldLocal        Field = "spec.externalTrafficPolicy: Local"
	FieldSourceRanges Field = "spec.loadBalancerSourceRanges"
	FieldSCTP         Field = "SCTP"
	FieldUDP          Field = "UDP"
	// FieldMixed is TCP and UDP in one Service.
	FieldMixed Field = "TCP and UDP"
	// FieldShared and FieldApart are both protocols at one port, with one node port or with two.
	FieldShared Field = "TCP and UDP at one port, with one node port"
	FieldApart  Field = "TCP and UDP at one port, with two node ports"
)

// AllFields returns the fields, in the order of the documentation.
func AllFields() []Field {
	return []Field{
		FieldAddress, FieldIPv6, FieldPreferBoth, FieldRequireBoth, FieldNoNodePorts, FieldAffinity, FieldLocal, FieldSourceRanges,
		FieldSCTP, FieldUDP, FieldMixed, FieldShared, FieldApart,
	}
}

// within returns the more general field, or "". If that is refused, this field is not reported as well.
func (f Field) within() Field {
	return map[Field]Field{FieldMixed: FieldUDP, FieldShared: FieldMixed, FieldApart: FieldMixed}[f]
}

// ask returns the place and value with which a Service requests the field.
func (f Field) ask(s *v1.Service) (place, value string, asks bool) {
	spec := s.Spec
	switch f {
	case FieldAddress:
		return string(f), spec.LoadBalancerIP, spec.LoadBalancerIP != ""
	case FieldIPv6:
		return "spec.ipFamilies", string(v1.IPv6Protocol), slices.Equal(spec.IPFamilies, []v1.IPFamily{v1.IPv6Protocol})
	case FieldPreferBoth, FieldRequireBoth:
		required := spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == v1.IPFamilyPolicyRequireDualStack
		if required || f == FieldRequireBoth {
			return "spec.ipFamilyPolicy", string(v1.IPFamilyPolicyRequireDualStack), required && f == FieldRequireBoth
		}
		return "spec.ipFamilies", "IPv4 and IPv6", len(spec.IPFamilies) > 1
	case FieldAffinity:
		return "spec.sessionAffinity", string(spec.SessionAffinity), spec.SessionAffinity == v1.ServiceAffinityClientIP
	case FieldLocal:
		return "spec.externalTrafficPolicy", "Local", spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	case FieldSourceRanges:
		return string(f), strings.Join(spec.LoadBalancerSourceRanges, ","), len(spec.LoadBalancerSourceRanges) > 0
	}
	for i, p := range spec.Ports {
		if f.isAskedBy(spec.Ports, i) {
			place, value = "spec.ports", strconv.Itoa(int(p.Port))+"/"+string(protocolOf(p))
			if f == FieldNoNodePorts {
				place, value = "spec.allocateLoadBalancerNodePorts", "false"
			}
			return place, value, true
		}
	}
	return "", "", false
}

// isAskedBy reports whether one of the ports of a Service asks for the field.
func (f Field) isAskedBy(ports []v1.ServicePort, i int) bool {
	p := ports[i]
	beside := func(fits func(o v1.ServicePort) bool) bool {
		isTCP := func(o v1.ServicePort) bool { return protocolOf(o) == v1.ProtocolTCP && fits(o) }
		return protocolOf(p) == v1.ProtocolUDP && slices.ContainsFunc(ports, isTCP)
	}
	switch f {
	case FieldNoNodePorts:
		return p.NodePort == 0
	case FieldSCTP, FieldUDP:
		return string(protocolOf(p)) == string(f)
	case FieldMixed:
		return beside(func(v1.ServicePort) bool { return true })
	case FieldShared:
		return beside(func(o v1.ServicePort) bool { return o.Port == p.Port && o.NodePort == p.NodePort })
	case FieldApart:
		return beside(func(o v1.ServicePort) bool { return o.Port == p.Port && o.NodePort != p.NodePort })
	default:
		return false
	}
}

func protocolOf(p v1.ServicePort) v1.Protocol {
	if p.Protocol == "" {
		return v1.ProtocolTCP
	}
	return p.Protocol
}

// Outcome says how a setting of a Service is handled.
type Outcome string

// Outcomes of a field.
const (
	Served Outcome = "served"
	// Told fields have no effect, or a weaker one: an event says so, and the Service is served.
	Told Outcome = "told"
	// Refused fields prevent serving the Service: nothing is created or changed for it.
	Refused Outcome = "refused"
)

// FieldRow says how a cloud handles a field.
type FieldRow struct {
	Field   Field   `json:"field"`
	Becomes Outcome `json:"becomes"`
	// With are conditions of the row on annotations, or options by their names: each has the value, or contains it in its list. The first
	// row of a field whose conditions hold decides.
	With map[string]string `json:"with,omitempty"`
	// Words give the reason and the alternative: they follow the value.
	Words string `json:"words,omitempty"`
	// Only says when it is served, if the cloud or several settings together decide: the provider then warns, or refuses, itself.
	Only string `json:"only,omitempty"`
	// Later is the outcome for an existing load balancer, if it differs: the provider reports it itself.
	Later Outcome `json:"later,omitempty"`
	// Anyway is set if each load balancer serves it, so that there is nothing to see.
	Anyway bool `json:"-"`
	// Silent is set if the provider itself reports the outcome, because it has to do more.
	Silent bool `json:"-"`
}

// Fields lists how a cloud handles each field.
type Fields []FieldRow

// Row returns the row that applies to a Service with some annotations. known are parsed settings, which override the annotations.
func (t Fields) Row(f Field, given, known map[string]string) (FieldRow, bool) {
	i := slices.IndexFunc(t, func(r FieldRow) bool { return r.Field == f && r.counts(given, known) })
	if i < 0 {
		return FieldRow{}, false
	}
	return t[i], true
}

func (r FieldRow) counts(given, known map[string]string) bool {
	for key, want := range r.With {
		value, ok := known[key]
		if !ok {
			value = given[key]
		}
		if value != want && !slices.Contains(strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' }), want) {
			return false
		}
	}
	return true
}

// Judge returns warnings and errors about the fields of a Service; known is as for Row.
func (t Fields) Judge(s *v1.Service, known map[string]string) (warnings, err error) {
	refused := map[Field]bool{}
	for _, f := range AllFields() {
		row, _ := t.Row(f, s.Annotations, known)
		refused[f] = refused[f.within()] || row.Becomes == Refused && !row.Silent
		place, value, asks := f.ask(s)
		if !asks || row.Silent || refused[f.within()] {
			continue
		}
		problem := &Problem{Place: place, Value: value, Reason: row.Words, Warning: row.Becomes == Told}
		switch row.Becomes {
		case Told:
			warnings = errors.Join(warnings, problem)
		case Refused:
			err = errors.Join(err, problem)
		case Served:
		}
	}
	return warnings, err
}

// Check returns the faults of a table: each field needs a row without conditions, with words if it is not served.
func (t Fields) Check() error {
	var problems []error
	whole, final := map[Field]bool{}, map[Field]FieldRow{}
	for _, f := range AllFields() {
		var last FieldRow
		for _, row := range t {
			if row.Field != f {
				continue
			}
			if last.Field == f && len(last.With) == 0 {
				problems = append(problems, fmt.Errorf("%s: no row after the one that always counts has an effect", f))
			}
			if last = row; (row.Becomes == Served) == (row.Words != "") && !row.Silent {
				problems = append(problems, fmt.Errorf("%s: %s, with the words %q", f, row.Becomes, row.Words))
			}
			whole[f] = whole[f] || row.Becomes != Refused || row.Silent
		}
		if (last.Field != f || len(last.With) > 0) && (f.within() == "" || whole[f.within()]) {
			problems = append(problems, fmt.Errorf("%s: no row says what becomes of it", f))
		}
		if final[f] = last; last.Becomes == Served && final[f.within()].Becomes == Refused {
			problems = append(problems, fmt.Errorf("%s: is served where %s is refused", f, f.within()))
		}
	}
	return errors.Join(problems...)
}

// ServedFields returns rows of fields that are always served.
func ServedFields(list ...Field) (rows Fields) {
	for _, f := range list {
		rows = append(rows, FieldRow{Field: f, Becomes: Served})
	}
	return rows
}

// OnlyWith returns rows of fields that are served under conditions, and refused otherwise.
func OnlyWith(with map[string]string, words string, list ...Field) (rows Fields) {
	for _, f := range list {
		rows = append(rows, FieldRow{Field: f, With: with, Becomes: Served}, FieldRow{Field: f, Becomes: Refused, Words: words})
	}
	return rows
}
