package cloudstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file handles stickiness policies of rules, which keep clients on one node.

// managedPolicy is the description of policies by CloudStack's own controller and by us.
const managedPolicy = "Managed by the CloudStack Kubernetes Provider"

// Stickiness methods as the API spells them.
const (
	methodCookie = "LbCookie"
	methodSource = "SourceBased"
)

type stickiness struct {
	Method string            `json:"methodname"`
	Params map[string]string `json:"params"`
}

type policy struct {
	stickiness

	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

type policies struct {
	RuleID string
	All    []policy
}

func (p policies) selectBy(ours bool) (list []policy) {
	for _, found := range p.All {
		if (found.Description == managedPolicy) == ours {
			list = append(list, found)
		}
	}
	return list
}

type kind int

const (
	anyText kind = iota
	flag
	mode
	size
	duration
)

// parametersOf returns the parameters of a method.
func parametersOf(method string) map[string]kind {
	if method == methodCookie {
		return map[string]kind{"cookie-name": anyText, "mode": mode, "domain": anyText, "nocache": flag, "indirect": flag, "postonly": flag}
	}
	return map[string]kind{"tablesize": size, "expire": duration}
}

// problemWith returns what is wrong with a value, or "".
func (k kind) problemWith(value string) string {
	unit := strings.TrimLeft(value, "0123456789")
	number := len(unit) < len(value)
	switch {
	case k == flag && value != "true":
		return "is a flag; write it alone"
	case k == mode && !slices.Contains([]string{"insert", "rewrite", "prefix"}, value):
		return "has to be insert, rewrite or prefix"
	case k == size && (!number || !slices.Contains([]string{"", "k", "m", "g"}, unit)):
		return `has to be a number with k, m, g or nothing behind it, such as "200k"`
	case k == duration && (!number || !slices.Contains([]string{"", "us", "ms", "s", "m", "h", "d"}, unit)):
		return `has to be a time such as "30m"`
	}
	return ""
}

func parseParameters(method, text string) (map[string]string, error) {
	found := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return found, nil
	}
	known := parametersOf(method)
	for item := range strings.SplitSeq(text, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(item), "=")
		k, legal := known[name]
		if !given && k == flag {
			value = "true"
		}
		switch {
		case !legal:
			return nil, fmt.Errorf("holds %q, which is no parameter of %s; those are %s", name, method, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case value == "":
			return nil, fmt.Errorf("holds %q without a value; write %s=value", name, name)
		case strings.ContainsAny(value, " \t=&\"'\\#"):
			return nil, fmt.Errorf("holds %q, in whose value blanks and = & \" ' \\ # are not allowed", name)
		case k.problemWith(value) != "":
			return nil, fmt.Errorf("holds %q, which %s", name, k.problemWith(value))
		}
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("holds %q twice", name)
		}
		found[name] = value
	}
	return found, nil
}

// stickinessOf returns the stickiness that a Service requests for its ports; nil for none.
func stickinessOf(service *v1.Service, s settings) (map[int]stickiness, error) {
	method := map[string]string{"lbcookie": methodCookie, "sourcebased": methodSource}[strings.ToLower(s.Stickiness)]
	if method == "" {
		return nil, nil //nolint:nilnil // none requested
	}
	place := "annotation " + annotationStickinessParams
	parameters, err := parseParameters(method, s.StickinessParams)
	if err != nil {
		return nil, &schema.Problem{Place: place, Value: s.StickinessParams, Reason: err.Error()}
	}
	wanted := map[int]stickiness{}
	for _, p := range service.Spec.Ports {
		web := p.AppProtocol != nil && strings.EqualFold(*p.AppProtocol, "http")
		if p.Protocol != v1.ProtocolUDP && (method == methodSource || web) {
			wanted[int(p.Port)] = stickiness{Method: method, Params: parameters}
		}
	}
	if len(wanted) == 0 {
		return nil, &schema.Problem{
			Place: "annotation " + annotationStickiness, Value: s.Stickiness,
			Reason: "needs a port with appProtocol: http, which tells where cookies can be; add it, or use SourceBased",
		}
	}
	return wanted, nil
}

// equals compares two policies. A flag counts as set if present.
func (p stickiness) equals(o stickiness) bool {
	return strings.EqualFold(p.Method, o.Method) && maps.Equal(p.normalizedParams(), o.normalizedParams())
}

// normalizedParams gives all flags the same value.
func (p stickiness) normalizedParams() map[string]string {
	known, plain := parametersOf(p.Method), maps.Clone(p.Params)
	for name := range plain {
		if known[name] == flag {
			plain[name] = "true"
		}
	}
	return plain
}

// methods returns the stickiness methods of a network; known is false if the network does not list them.
func (n network) methods() (list []string, known bool) {
	for _, s := range n.Services {
		for _, c := range s.Capabilities {
			if s.Name != serviceLB || c.Name != "SupportedStickinessMethods" {
				continue
			}
			var found []struct {
				Name string `json:"methodname"`
			}
			if json.Unmarshal([]byte(c.Value), &found) != nil {
				return nil, false
			}
			for _, m := range found {
				list = append(list, m.Name)
			}
			return list, true
		}
	}
	return nil, false
}

// judgeStickiness checks the requested stickiness against the network and policies created by hand.
func judgeStickiness(d *spec, lb *loadBalancer) (findings []services.Finding, err error) {
	methods, known := lb.network.methods()
	for port, want := range d.sticky {
		if known && !slices.ContainsFunc(methods, func(m string) bool { return strings.EqualFold(m, want.Method) }) {
			problem := &schema.Problem{Place: "annotation " + annotationStickiness, Value: want.Method, Reason: fmt.Sprintf(
				"is not supported on network %s, whose load balancer has %s", lb.network.Name, strings.Join(methods, ", "))}
			return []services.Finding{services.Warning(eventConfigError, "%v", problem)}, problem
		}
		at := slices.IndexFunc(lb.rules, func(r rule) bool { return r.port() == port })
		if at < 0 {
			continue
		}
		switch found := lb.policies[lb.rules[at].ID]; {
		case lb.noPolicies:
			findings = append(findings, services.Warning(eventIgnored, "annotation %s has no effect at port %d: the role of the user may not "+
				"listLBStickinessPolicies", annotationStickiness, port))
		case len(found.selectBy(false)) > 0:
			findings = append(findings, services.Warning(eventIgnored, "annotation %s has no effect at port %d: the rule has the stickiness policy %s, "+
				"which somebody made; delete it for the annotation to count", annotationStickiness, port, found.selectBy(false)[0].Name))
		}
	}
	return findings, nil
}

// readPolicies reads the rules' policies if the Service requests any or may have had some.
func (r *reconciler) readPolicies(ctx context.Context, q services.Request, lb *loadBalancer) error {
	s, _, _ := parseSettings(q.Service)
	wanted := s.Stickiness != "" || s.Sticky || slices.ContainsFunc(lb.rules, func(found rule) bool {
		seen, _ := r.policies.Peek(found.ID)
		return len(seen.selectBy(true)) > 0
	})
	if !wanted || (q.Purpose != services.Ensure && q.Purpose != services.Plan) {
		return nil
	}
	for _, found := range lb.rules {
		p, err := r.policies.Get(ctx, found.ID, inventory.Query{MaxAge: observedMaxAge})
		if isDenied(err) {
			lb.noPolicies = true
			return nil
		}
		if err != nil {
			return err
		}
		lb.policies[found.ID] = p
	}
	return nil
}

// policyChanges returns the changes of a rule's policies. Policies created by hand stay, and none are added to them.
func (r *reconciler) policyChanges(lb *loadBalancer, d spec, w wantedRule, ruleID string) (list []lbChange) {
	want, asked := d.sticky[w.Port]
	found := lb.policies[ruleID]
	if lb.noPolicies || (asked && len(found.selectBy(false)) > 0) {
		return nil
	}
	for _, p := range found.selectBy(true) {
		if asked && p.equals(want) {
			asked = false // duplicates are deleted
			continue
		}
		list = append(list, r.policyDeletion(d, ruleID, p))
	}
	if asked {
		list = append(list, r.policyCreation(d, w, want))
	}
	return list
}

// policyCreation creates a policy. Its rule may be new.
func (r *reconciler) policyCreation(d spec, w wantedRule, want stickiness) lbChange {
	what := "stickiness policy of load balancer rule " + w.Name
	c := newChange(contract.PlanCreate, what, want.Method, func(ctx context.Context, q *services.Request, lb *loadBalancer) error {
		at := slices.IndexFunc(lb.rules, func(found rule) bool {
			return found.port() == w.Port && lb.address != nil && found.AddressID == lb.address.ID
		})
		if lb.isRefused(w.Port) || at < 0 {
			return nil // its rule was refused
		}
		if err := r.annotate(ctx, q, map[string]any{annotationSticky: "true"}); err != nil {
			return err
		}
		p := params{"lbruleid": lb.rules[at].ID, "name": w.Name, "methodname": want.Method, "description": managedPolicy}
		for n, name := range slices.Sorted(maps.Keys(want.Params)) {
			number := strconv.Itoa(n)
			p["param["+number+"].name"], p["param["+number+"].value"] = name, want.Params[name]
		}
		c := change{network: d.network.key(), owner: d.name, what: "creating the " + what, command: "createLBStickinessPolicy", params: p}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) })
		r.policies.Invalidate(lb.rules[at].ID)
		if isDenied(err) {
			q.Report(services.Warning(eventIgnored, "annotation %s has no effect at port %d: %v", annotationStickiness, w.Port, err))
			return nil
		}
		if isPortRefused(err) {
			q.Report(services.Warning(eventRefused, "port %d has no stickiness: %v", w.Port, err))
			lb.problems = append(lb.problems, err)
			return nil
		}
		return err
	})
	c.Creates = true
	return withCompare(c, nil, want)
}

// policyDeletion deletes a policy.
func (r *reconciler) policyDeletion(d spec, ruleID string, p policy) lbChange {
	what := "stickiness policy " + p.Name
	c := newChange(contract.PlanDelete, what, p.Method, func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
		c := change{network: d.network.key(), owner: d.name, what: "deleting the " + what, command: "deleteLBStickinessPolicy", params: params{"id": p.ID}}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) })
		r.policies.Invalidate(ruleID)
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
		left := lb.policies[ruleID]
		left.All = slices.DeleteFunc(slices.Clone(left.All), func(o policy) bool { return o.ID == p.ID })
		lb.policies[ruleID] = left
		return nil
	})
	return withCompare(c, p.stickiness, nil)
}

// removeStickyAnnotation removes the annotation from a Service whose rules have no more policies of ours.
func (r *reconciler) removeStickyAnnotation(ctx context.Context, q *services.Request, lb *loadBalancer, d spec) error {
	s, _, _ := parseSettings(q.Service)
	if q.Purpose != services.Ensure || !s.Sticky || len(d.sticky) > 0 || lb.noPolicies {
		return nil
	}
	for _, p := range lb.policies {
		if len(p.selectBy(true)) > 0 {
			return nil
		}
	}
	return r.annotate(ctx, q, map[string]any{annotationSticky: nil})
}

func (a *api) policiesOf(ctx context.Context, ruleID string) (policies, error) {
	l := listing{what: "listing the stickiness policies of load balancer rule " + ruleID, command: "listLBStickinessPolicies", key: "stickinesspolicies"}
	type ofRule struct {
		RuleID   string   `json:"lbruleid"`
		Policies []policy `json:"stickinesspolicy"`
	}
	found, _, err := listOnce(ctx, a, l, params{"lbruleid": ruleID}, func(p ofRule) string { return p.RuleID })
	if err != nil {
		return policies{}, cloudapi.NotAbsence(err)
	}
	all := policies{RuleID: ruleID}
	for _, p := range found {
		if p.RuleID != ruleID {
			return policies{}, cloudapi.Unclear(l.what, "the answer is about something else")
		}
		all.All = append(all.All, p.Policies...)
	}
	return all, nil
}
