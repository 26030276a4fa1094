package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// logDefaults is the verbosity at which events about defaults are logged.
const logDefaults = 4

// translate converts a Service's portable annotations to the provider's own.
func (f Facts) translate(service *v1.Service) portable.Translation {
	if f.Translate == nil {
		return portable.Translation{Service: service}
	}
	return f.Translate(service)
}

// findIneffective returns problems for annotations without effect.
func (f Facts) findIneffective(service *v1.Service) []error {
	if f.FindIneffective == nil {
		return nil
	}
	return schema.Problems(f.FindIneffective(service))
}

// translateAll returns Services as the provider sees them.
func (f Facts) translateAll(services []*v1.Service) []*v1.Service {
	if f.Translate == nil {
		return services
	}
	all := make([]*v1.Service, len(services))
	for i, s := range services {
		all[i] = f.translate(s).Service
	}
	return all
}

// reportTranslation writes the events about the translation of a Service, and returns its error.
func (l *loadBalancers) reportTranslation(service *v1.Service, t portable.Translation) error {
	for _, w := range slices.Concat(t.Warnings, l.facts.findIneffective(service)) {
		l.reports.writeEvent(service, v1.EventTypeWarning, contract.EventAnnotationIgnored, w.Error())
	}
	if len(t.Defaults) > 0 && klog.V(logDefaults).Enabled() {
		l.reports.writeEvent(service, v1.EventTypeNormal, contract.EventDefaulted, "this Service has "+defaultsOf(t))
	}
	if t.Err != nil {
		l.reports.writeEvent(service, v1.EventTypeWarning, contract.EventConfigError, oneLine(t.Err))
	}
	return t.Err
}

// oneLine joins the problems of an error for an event.
func oneLine(err error) string {
	problems := schema.Problems(err)
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "; ")
}

// defaultsOf lists the annotations that a Service has by the defaults of its class.
func defaultsOf(t portable.Translation) string {
	texts := make([]string, 0, len(t.Defaults))
	for _, key := range slices.Sorted(maps.Keys(t.Defaults)) {
		texts = append(texts, fmt.Sprintf("%s: %q", key, t.Defaults[key]))
	}
	return strings.Join(texts, ", ") + " by the defaults of " + className(t.Class)
}

func className(class string) string {
	if class == "" {
		return "Services without a class"
	}
	return "the class " + class
}

// translationFindings reports a translation in a plan, with the origin of each value.
func translationFindings(t portable.Translation, misspelt []error) []contract.Finding {
	var all []contract.Finding
	for _, key := range slices.Sorted(maps.Keys(t.Defaults)) {
		all = append(all, contract.Finding{Reason: contract.EventDefaulted, Message: fmt.Sprintf("annotation %s: %q comes from the defaults of %s", key, t.Defaults[key], className(t.Class))})
	}
	for _, own := range slices.Sorted(maps.Keys(t.From)) {
		what, value := "annotation "+own, t.Service.Annotations[own]
		if own == portable.FieldLoadBalancerIP {
			what, value = own, t.Service.Spec.LoadBalancerIP
		}
		all = append(all, contract.Finding{Reason: "LoadBalancerTranslated", Message: fmt.Sprintf("%s: %q comes from %s", what, value, t.From[own])})
	}
	for _, w := range slices.Concat(t.Warnings, misspelt) {
		all = append(all, contract.Finding{Reason: contract.EventAnnotationIgnored, Message: w.Error(), Warning: true})
	}
	for _, p := range schema.Problems(t.Err) {
		all = append(all, contract.Finding{Reason: contract.EventConfigError, Message: p.Error(), Warning: true})
	}
	return all
}

// callsWithSelector returns the latest call for each Service with a selector.
func (t *serviceStates) callsWithSelector() []nodeUpdate {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.callsByService))
}

// rememberCallLocked keeps the call for a Service with a selector, for later changes of labels.
func (t *serviceStates) rememberCallLocked(want nodeUpdate, selects bool) {
	if !selects {
		delete(t.callsByService, want.service.UID)
		return
	}
	if t.callsByService == nil {
		t.callsByService = map[types.UID]nodeUpdate{}
	}
	if want.all {
		want.nodes = nil // outdated later, and would keep old copies in memory for each Service
	}
	t.callsByService[want.service.UID] = want
}

// forgetCall drops the call for a Service with a selector, unless there is a newer one.
func (t *serviceStates) forgetCall(want nodeUpdate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callsByService[want.service.UID].number == want.number {
		delete(t.callsByService, want.service.UID)
	}
}

// hasSelector reports whether a Service has a selector.
func (l *loadBalancers) hasSelector(service *v1.Service) bool {
	return portable.Selects(l.facts.translate(service).Service.Annotations)
}

// matchSelector returns the Nodes that the selector of a Service matches, by their current labels. If there are none, it is an error: a
// load balancer never loses all its backends to a selector. An invalid selector is an error as well.
func (l *loadBalancers) matchSelector(service *v1.Service, nodes []*v1.Node) ([]*v1.Node, error) {
	selector, err := portable.Selector(service.Annotations)
	if err != nil {
		return nil, err
	}
	if selector == nil || len(nodes) == 0 {
		return nodes, nil
	}
	left := slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool {
		if now, known, err := l.ownership.nodeByName(n.Name); known && err == nil {
			n = now
		}
		return !selector.Matches(labelSet(n.Labels))
	})
	if len(left) > 0 {
		return left, nil
	}
	return nil, &schema.Problem{
		Place: "annotation " + portable.BackendSelector, Value: service.Annotations[portable.BackendSelector],
		Reason: fmt.Sprintf(
			"matches none of the %d nodes that may receive traffic, so that the load balancer stays as it is; change it, or label nodes", len(nodes)),
	}
}

// labelSet adapts labels for selectors.
type labelSet map[string]string

// Has implements labels.Labels.
func (s labelSet) Has(label string) bool { _, has := s[label]; return has }

// Get implements labels.Labels.
func (s labelSet) Get(label string) string { return s[label] }

// Lookup implements labels.Labels.
func (s labelSet) Lookup(label string) (string, bool) { value, has := s[label]; return value, has }

// followLabels applies a change of a Node's labels to the load balancers with a selector on them: the framework reports only Nodes that are
// added or removed.
func (l *loadBalancers) followLabels(before, now *v1.Node) {
	if maps.Equal(before.Labels, now.Labels) {
		return
	}
	for _, w := range l.states.callsWithSelector() {
		if !l.mayWrite(w.service) {
			l.states.forgetCall(w)
			continue
		}
		selector, err := portable.Selector(l.facts.translate(w.service).Service.Annotations)
		listed := w.all && l.set.Load().contains(now)
		listed = listed || slices.ContainsFunc(w.nodes, func(n *v1.Node) bool { return n.Name == now.Name })
		if err != nil || selector == nil || !listed || selector.Matches(labelSet(before.Labels)) == selector.Matches(labelSet(now.Labels)) {
			continue
		}
		l.updateForLabels(w.service)
	}
}

// updateForLabels applies the latest call for a Service with a selector again, because labels of Nodes have changed. The loop retries
// failures, because nobody else does.
func (l *loadBalancers) updateForLabels(service *v1.Service) {
	t := &l.states
	t.mu.Lock()
	defer t.mu.Unlock()
	want, ok := t.callsByService[service.UID]
	if !ok {
		return
	}
	if want.all {
		want.nodes, _ = l.set.Load().current()
	}
	s, _ := t.noteLocked(want, true)
	s.newest.labelChanges++
	l.proceedLocked(service, s)
}

// labelHandler watches changes of labels.
func (l *loadBalancers) labelHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, now any) {
		a, okA := before.(*v1.Node)
		b, okB := now.(*v1.Node)
		if okA && okB {
			l.followLabels(a, b)
		}
	}}
}
