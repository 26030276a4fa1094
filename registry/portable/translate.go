package portable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// FieldLoadBalancerIP is the key of a row for the field of a Service that requests an address on some clouds.
const FieldLoadBalancerIP = "spec.loadBalancerIP"

// Cloud describes a cloud to the translation.
type Cloud struct {
	// Title is the cloud's name in prose.
	Title string
	// Rows are its annotations, and fields of Services with which it serves portable ones.
	Rows []schema.AnnotationRow
}

// Translation is a Service with a cloud's own annotations.
type Translation struct {
	// Service is passed to the cloud. Without portable annotations it is the original. If Err is set it has what could be translated,
	// enough to find the load balancer and change its nodes.
	Service *v1.Service
	// Warnings are about annotations without effect, and those overruled by the cloud's own.
	Warnings []error
	// Err is set if the Service is refused: nothing may be created or changed because of its annotations.
	Err error
	// From maps the cloud's own annotations in Service to the portable ones they come from.
	From map[string]string
	// Defaults are the annotations from the defaults of the Service's class, which is Class.
	Defaults map[string]string
	Class    string
	// Hostname is shown in the status instead of the addresses, if the cloud has no annotation of its own for that.
	Hostname string
}

// Asks reports whether there are portable annotations.
func Asks(annotations map[string]string) bool {
	for key, value := range annotations {
		if value != "" && isPortable(key) {
			return true
		}
	}
	return false
}

// isPortable reports whether an annotation is a portable one.
func isPortable(key string) bool {
	isKey := func(a schema.Annotation[settings]) bool { return a.Key == key }
	return strings.HasPrefix(key, Prefix) && slices.ContainsFunc(Annotations, isKey)
}

// Translate converts the portable annotations of a Service to a cloud's own.
func Translate(cloud Cloud, service *v1.Service) Translation {
	if !Asks(service.Annotations) {
		return Translation{Service: service}
	}
	t := &translator{
		cloud: cloud, given: service.Annotations, own: maps.Clone(service.Annotations), from: map[string]string{},
		requested: map[string]string{}, ports: portsOf(service),
	}
	t.check()
	for _, a := range Annotations {
		t.choose(a.Key)
	}
	for _, a := range Annotations {
		t.translate(a.Key)
	}
	return t.result(service)
}

func portsOf(service *v1.Service) []schema.Port {
	ports := make([]schema.Port, len(service.Spec.Ports))
	for i, p := range service.Spec.Ports {
		ports[i] = schema.Port{Name: p.Name, Number: p.Port, NodePort: p.NodePort, TCP: p.Protocol == v1.ProtocolTCP || p.Protocol == ""}
	}
	return ports
}

type translator struct {
	cloud Cloud
	// given are the annotations of the Service, own those with the translated ones.
	given, own map[string]string
	// requested are the portable annotations with legal values.
	requested map[string]string
	from      map[string]string
	ports     []schema.Port
	warnings  []error
	problems  []error
	hostname  string
	// contradicted are the reported pairs of annotations.
	contradicted map[string]bool
	// address is the value for spec.loadBalancerIP.
	address string
}

// check separates legal portable annotations from faults.
func (t *translator) check() {
	_, _, err := Annotations.Parse(t.given)
	t.problems = schema.Problems(err)
	for _, a := range Annotations {
		value := t.given[a.Key]
		if value == "" || slices.ContainsFunc(t.problems, func(one error) bool {
			p, ok := errors.AsType[*schema.Problem](one)
			return ok && p.Place == place(a.Key)
		}) {
			continue
		}
		t.requested[a.Key] = value
	}
	t.checkTLSPorts()
}

// checkTLSPorts compares the ports of the certificate with those of the Service.
func (t *translator) checkTLSPorts() {
	list, ok := t.requested[TLSPorts]
	if !ok || len(t.pairs(TLSPorts)) == 0 {
		return // if they cannot be served at all, only that is reported
	}
	asked := t.view()
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if one != "" && len(asked.PortsNamed(one)) == 0 {
			t.refuse(TLSPorts, fmt.Sprintf("holds %q, which is no TCP port of the Service", one))
			delete(t.requested, TLSPorts)
			return
		}
	}
	if t.requested[Certificate] == "" && t.given[Certificate] == "" && !t.hasOwn(Certificate) {
		t.refuse(TLSPorts, "needs "+Certificate)
		delete(t.requested, TLSPorts)
	}
}

// hasOwn reports whether the Service has an annotation of the cloud's own for a portable one.
func (t *translator) hasOwn(key string) bool {
	return slices.ContainsFunc(t.pairs(key), func(p Pair) bool {
		return t.given[p.Row.Key] != "" || slices.ContainsFunc(p.Serves.Rivals, func(k string) bool { return t.given[k] != "" })
	})
}

func place(key string) string { return "annotation " + key }

func (t *translator) view() schema.Asked {
	return schema.Asked{Portable: t.requested, Own: t.own, Ports: t.ports}
}

func (t *translator) refuse(key, reason string) {
	t.problems = append(t.problems, &schema.Problem{Place: place(key), Value: t.given[key], Reason: reason})
}

func (t *translator) warn(key, reason string) {
	t.warnings = append(t.warnings, &schema.Problem{Place: place(key), Value: t.given[key], Reason: reason, Warning: true})
}

// Pair is a row of the cloud with one of its portable annotations.
type Pair struct {
	Row    schema.AnnotationRow
	Serves schema.Serves
}

func (t *translator) pairs(key string) []Pair { return t.cloud.Pairs(key) }

// Pairs returns the rows that serve a portable annotation, each perhaps for Services of another kind.
func (c Cloud) Pairs(key string) []Pair {
	var all []Pair
	for _, r := range c.Rows {
		for _, s := range r.Serves {
			if s.Portable == key {
				all = append(all, Pair{r, s})
			}
		}
	}
	return all
}

func (p Pair) isMet(own map[string]string) bool {
	return p.Row.Where.Holds(own) && p.Serves.Where.Holds(own)
}

// Choice returns the condition that a Service may be made to satisfy.
func (p Pair) Choice() *schema.Where {
	switch {
	case !p.Serves.Choose:
		return nil
	case p.Serves.Where != nil:
		return p.Serves.Where
	}
	return p.Row.Where
}

// translateValue returns the cloud's own annotations for a portable value.
func (p Pair) translateValue(title, value string, asked schema.Asked) (map[string]string, error) {
	s := p.Serves
	switch {
	case s.Translate != nil:
		return s.Translate(value, asked)
	case s.Values != nil:
		own, ok := s.Values[value]
		if !ok {
			return nil, errors.New(ValuesWords(p, title))
		}
		return map[string]string{p.Row.Key: own}, nil
	case s.Unit != 0:
		own, err := s.InUnit(p.Row.Spec, value)
		return map[string]string{p.Row.Key: own}, err
	case p.Row.Kind == schema.KindInt && (s.Min != nil || s.Max != nil):
		return map[string]string{p.Row.Key: value}, s.Whole(p.Row.Spec, value)
	}
	return map[string]string{p.Row.Key: value}, nil
}

// ValuesWords lists the values that a row serves, in the order of the table.
func ValuesWords(p Pair, title string) string {
	var legal []string
	for _, a := range Annotations {
		if a.Key != p.Serves.Portable {
			continue
		}
		for _, c := range a.Choices {
			if _, ok := p.Serves.Values[c]; ok {
				legal = append(legal, strconv.Quote(c))
			}
		}
	}
	return "is not one of " + strings.Join(legal, ", ") + " on " + title
}

// translateAndCheck returns a row's translation of a value, checked by the row.
func (t *translator) translateAndCheck(p Pair, value string) (map[string]string, error) {
	if r, broken := schema.FirstBroken(p.Serves.Rules, value, t.newAsker()); broken && r.NoEffect {
		return nil, schema.NoEffect(r.Words)
	} else if broken {
		return nil, errors.New(r.Words)
	}
	out, err := p.translateValue(t.cloud.Title, value, t.view())
	if err != nil {
		return nil, err
	}
	for key, own := range out {
		spec, ok := t.specOf(p, key)
		if own == "" || !ok {
			continue
		}
		if err := spec.Legal(own); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newAsker returns the original Service as input of rules, like the admission policy's, with the chosen kind.
func (t *translator) newAsker() schema.Asker {
	return schema.Asker{Value: func(key string) string { return t.own[key] }, Ports: t.ports}
}

// specOf returns the legal values of an annotation of the cloud.
func (t *translator) specOf(p Pair, key string) (schema.Spec, bool) {
	if p.Row.Key == key {
		return p.Row.Spec, true
	}
	for _, r := range t.cloud.Rows {
		if _, numbered := r.Port(key); r.Key == key || numbered {
			return r.Spec, true
		}
	}
	return schema.Spec{}, false
}

// choose selects the kind of load balancer that can serve the Service, if it names none.
func (t *translator) choose(key string) {
	value, ok := t.requested[key]
	if !ok {
		return
	}
	pairs := t.pairs(key)
	for _, p := range pairs {
		if _, err := t.translateAndCheck(p, value); p.isMet(t.own) && err == nil {
			return
		}
	}
	for _, p := range pairs {
		where := p.Choice()
		if where == nil || len(where.OneOf) == 0 || t.own[where.Key] != "" {
			continue
		}
		before := t.own
		t.own = maps.Clone(before)
		t.own[where.Key] = where.OneOf[0]
		if _, err := t.translateAndCheck(p, value); p.isMet(t.own) && err == nil {
			t.from[where.Key] = key
			return
		}
		t.own = before
	}
}

// translate serves one portable annotation, or reports why it cannot.
func (t *translator) translate(key string) {
	value, ok := t.requested[key]
	if !ok {
		return
	}
	pairs := t.pairs(key)
	holding := slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return !p.isMet(t.own) })
	switch {
	case len(holding) == 0 && key == Hostname:
		t.hostname = value
		return
	case len(holding) == 0 && Shared(key):
		return
	case len(holding) == 0 && t.whyNotChosen(pairs, value) != nil:
		t.refuse(key, t.whyNotChosen(pairs, value).Error())
		return
	case len(holding) == 0 && Essential(key):
		t.refuse(key, Refusal(t.cloud.Title)+t.adviseOnConflict(pairs))
		return
	case len(holding) == 0:
		t.warn(key, Effectless(t.cloud.Title)+t.adviseOnConflict(pairs))
		return
	}
	for _, p := range holding {
		out, err := t.translateAndCheck(p, value)
		if reason, none := errors.AsType[schema.NoEffect](err); none {
			t.warn(key, "has no effect on "+t.cloud.Title+": "+string(reason))
			continue
		}
		if err != nil {
			t.refuse(key, err.Error())
			return
		}
		for _, ownKey := range slices.Sorted(maps.Keys(out)) {
			t.set(p, ownKey, out[ownKey])
		}
	}
}

// whyNotChosen returns why the kind that serves a portable annotation was not chosen for a Service that names none.
func (t *translator) whyNotChosen(pairs []Pair, value string) error {
	for _, p := range pairs {
		if where := p.Choice(); where != nil && t.own[where.Key] == "" {
			if _, err := t.translateAndCheck(p, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Refusal and Effectless are the messages about missing features of a cloud.
func Refusal(title string) string {
	return "cannot be served on " + title + ", so that nothing is created or changed; remove it"
}

// Effectless is the warning about an annotation that a cloud cannot serve.
func Effectless(title string) string { return "has no effect on " + title + "; remove it" }

// adviseOnConflict names the annotation of the cloud that conflicts with the rows that could serve.
func (t *translator) adviseOnConflict(pairs []Pair) string {
	for _, p := range pairs {
		for _, w := range []*schema.Where{p.Serves.Where, p.Row.Where} {
			switch {
			case w == nil || w.Holds(t.own):
			case len(w.OneOf) > 0:
				return ", or set " + w.Key + " to " + w.OneOf[0]
			default:
				return ", or change " + w.Key + ", which is " + strconv.Quote(t.own[w.Key])
			}
		}
	}
	return ""
}

// set writes an annotation of the cloud, unless the Service has its own.
func (t *translator) set(p Pair, ownKey, value string) {
	key := p.Serves.Portable
	if ownKey == FieldLoadBalancerIP {
		t.address, t.from[FieldLoadBalancerIP] = strings.TrimSpace(value), key
		return
	}
	spec, _ := t.specOf(p, ownKey)
	if have := t.given[ownKey]; have != "" || t.refusesEmpty(ownKey) {
		if p.Serves.Merge != nil && have != "" {
			merged, contradict := p.Serves.Merge(have, value)
			t.own[ownKey] = merged
			if contradict {
				t.reportContradiction(key, ownKey)
			}
			return
		}
		if !equalValues(p.Serves, spec, have, value) {
			t.reportContradiction(key, ownKey)
		}
		return
	}
	for _, rival := range p.Serves.Rivals {
		if have, present := t.given[rival]; present && have != "" {
			if !equalValues(p.Serves, spec, have, value) {
				t.reportContradiction(key, rival)
			}
			return
		}
	}
	if value == "" {
		return
	}
	t.own[ownKey], t.from[ownKey] = value, key
	for k, v := range p.Serves.Also {
		also, _ := t.specOf(p, k)
		switch have := t.given[k]; {
		case have == "":
			t.own[k], t.from[k] = v, key
		case !equalValues(schema.Serves{}, also, have, v):
			t.reportContradiction(key, k) // otherwise the translated annotation would have no effect
		}
	}
}

// reportContradiction reports a portable annotation and the cloud's own, which has precedence.
func (t *translator) reportContradiction(key, own string) {
	if t.contradicted == nil {
		t.contradicted = map[string]bool{}
	}
	if t.contradicted[key+" "+own] {
		return
	}
	t.contradicted[key+" "+own] = true
	t.warnings = append(t.warnings, &schema.Problem{
		Place: "annotations " + key + " and " + own, Warning: true,
		Reason: fmt.Sprintf("contradict: %q and %q; the latter is the cloud's own and wins, remove one of them", t.given[key], t.given[own]),
	})
}

// refusesEmpty reports whether the Service has an empty value for an annotation of the cloud that refuses empty values. Any other empty
// annotation is ignored, and does not prevent a portable one.
func (t *translator) refusesEmpty(key string) bool {
	_, present := t.given[key]
	counts := func(r schema.AnnotationRow) bool { return r.Key == key && (r.RefuseEmpty || r.PresenceOnly) }
	return present && slices.ContainsFunc(t.cloud.Rows, counts)
}

// isCaseSensitive reports whether a portable annotation's values are case-sensitive on every cloud.
func isCaseSensitive(key string) bool {
	return key == Name || key == CheckPath || key == Certificate || key == Tags
}

// equalValues reports whether two values of a row mean the same.
func equalValues(s schema.Serves, row schema.Spec, own, translated string) bool {
	if s.Same != nil {
		return s.Same(own, translated)
	}
	own = strings.TrimSpace(own)
	if own == translated || (!isCaseSensitive(s.Portable) && strings.EqualFold(own, translated)) {
		return true
	}
	if row.Kind == schema.KindInt {
		a, errA := strconv.Atoi(own)
		b, errB := strconv.Atoi(translated)
		return errA == nil && errB == nil && a == b
	}
	a, errA := strconv.ParseBool(own)
	b, errB := strconv.ParseBool(translated)
	if errA == nil && errB == nil {
		return a == b
	}
	return slices.Equal(items(own), items(translated))
}

func items(list string) []string {
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

func (t *translator) result(service *v1.Service) Translation {
	r := Translation{Service: service, Warnings: t.warnings, Err: errors.Join(t.problems...), From: t.from, Hostname: t.hostname}
	_, address := t.requested[Address]
	if len(t.from) == 0 && !address && maps.Equal(t.own, t.given) {
		return r
	}
	r.Service = service.DeepCopy()
	r.Service.Annotations = t.own
	if address {
		r.Service.Spec.LoadBalancerIP = t.address
	}
	return r
}

// Explain adds to an error about the cloud's own annotations the portable ones that they come from.
func (t Translation) Explain(err error) error {
	if err == nil || len(t.From) == 0 {
		return err
	}
	text := err.Error()
	var said []string
	for _, own := range slices.Sorted(maps.Keys(t.From)) {
		if strings.Contains(text, own) {
			said = append(said, own+" comes from "+t.From[own])
		}
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(said, ", "))
}

// Named replaces the place of a problem by the portable annotation that the cloud's own comes from.
func (t Translation) Named(err error) error {
	p, ok := errors.AsType[*schema.Problem](err)
	if !ok {
		return err
	}
	best := ""
	for own := range t.From {
		if len(own) > len(best) && strings.Contains(p.Place, own) {
			best = own
		}
	}
	if best == "" {
		return err
	}
	named := *p
	named.Place = strings.Replace(p.Place, best, t.From[best], 1) + ", which is " + best
	return &named
}

// NodePortAlone returns the rules of the health check's port on a cloud that checks only the node port. who is the subject of the messages.
func NodePortAlone(who string) []schema.Rule {
	return []schema.Rule{{
		Needs: []schema.Term{{Matches: `^` + NodePort + `$`}}, NoEffect: true, Words: who + " the node port alone; use " + NodePort + ", or remove it",
	}}
}

// NotSecret returns the rule of certificates on a cloud that accepts no Secrets. instead is the alternative.
func NotSecret(title, instead string) schema.Rule {
	return schema.MustNot(`^`+SecretPrefix, "is a Secret, which "+title+" does not take; use "+instead)
}

// Nothing is the translation of a value that is the cloud's own behaviour, or follows from another annotation.
func Nothing(string, schema.Asked) (map[string]string, error) { return map[string]string{}, nil }
