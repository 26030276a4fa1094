package cloudstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
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

// parameter is a parameter of a method: the form of its values, and what is wrong with others.
type parameter struct {
	form    *regexp.Regexp
	problem string
}

var (
	textForm     = regexp.MustCompile("")
	flagForm     = regexp.MustCompile("^true$")
	modeForm     = regexp.MustCompile("^(insert|rewrite|prefix)$")
	sizeForm     = regexp.MustCompile("^[0-9]+[kmg]?$")
	durationForm = regexp.MustCompile("^[0-9]+(us|ms|[smhd])?$")
)

// parametersOf returns the parameters of a method.
func parametersOf(method string) map[string]parameter {
	if method == methodCookie {
		anyText, flag := parameter{textForm, ""}, parameter{flagForm, "is a flag; write it alone"}
		mode := parameter{modeForm, "has to be insert, rewrite or prefix"}
		return map[string]parameter{"cookie-name": anyText, "mode": mode, "domain": anyText, "nocache": flag, "indirect": flag, "postonly": flag}
	}
	return map[string]parameter{
		"tablesize": {sizeForm, `has to be a number with k, m, g or nothing behind it, such as "200k"`},
		"expire":    {durationForm, `has to be a time such as "30m"`},
	}
}

func parseParameters(method, text string) (map[string]string, error) {
	found := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return found, nil
	}
	known := parametersOf(method)
	for item := range strings.SplitSeq(text, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(item), "=")
		p, legal := known[name]
		if !given && p.form == flagForm {
			value = "true"
		}
		switch {
		case !legal:
			return nil, fmt.Errorf("holds %q, which is no parameter of %s; those are %s", name, method, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case value == "":
			return nil, fmt.Errorf("holds %q without a value; write %s=value", name, name)
		case strings.ContainsAny(value, " \t=&\"'\\#"):
			return nil, fmt.Errorf("holds %q, in whose value blanks and = & \" ' \\ # are not allowed", name)
		case !p.form.MatchString(value):
			return nil, fmt.Errorf("holds %q, which %s", name, p.problem)
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
		if known[name].form == flagForm {
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

// checkStickiness checks the requested stickiness against the network and policies created by hand.
func checkStickiness(lb *observed) (findings []services.Finding, err error) {
	methods, known := lb.network.methods()
	for port, want := range lb.settings.sticky {
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

// stickyPolicies makes the policies of rules.
type stickyPolicies struct {
	*inventories
	records *records
}

// readPolicies reads the rules' policies if the Service requests any or may have had some.
func (s *stickyPolicies) readPolicies(ctx context.Context, req services.Request, lb *observed) error {
	wanted := lb.settings.Stickiness != "" || lb.settings.Sticky || slices.ContainsFunc(lb.rules, func(found rule) bool {
		seen, _ := s.policies.Peek(found.ID)
		return len(seen.selectBy(true)) > 0
	})
	if !wanted || (req.Purpose != services.Ensure && req.Purpose != services.Plan) {
		return nil
	}
	for _, found := range lb.rules {
		p, err := s.policies.Get(ctx, found.ID, inventory.Query{MaxAge: observedMaxAge})
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
func (s *stickyPolicies) policyChanges(lb *observed, w wantedRule, ruleID string) (list []lbChange) {
	want, asked := lb.settings.sticky[w.Port]
	found := lb.policies[ruleID]
	if lb.noPolicies || (asked && len(found.selectBy(false)) > 0) {
		return nil
	}
	for _, p := range found.selectBy(true) {
		if asked && p.equals(want) {
			asked = false // duplicates are deleted
			continue
		}
		list = append(list, s.policyDeletion(ruleID, p))
	}
	if asked {
		list = append(list, s.policyCreation(w, want))
	}
	return list
}

// policyCreation creates a policy. Its rule may be new.
func (s *stickyPolicies) policyCreation(w wantedRule, want stickiness) lbChange {
	what := "stickiness policy of load balancer rule " + w.Name
	c := newChange(contract.PlanCreate, what, want.Method, nil, want, func(ctx context.Context, req *services.Request, lb *observed) error {
		found, there := lb.findRule(w)
		if !there {
			return nil // its rule was refused
		}
		if err := s.records.annotate(ctx, req, map[string]any{annotationSticky: "true"}); err != nil {
			return err
		}
		p := params{"lbruleid": found.ID, "name": w.Name, "methodname": want.Method, "description": managedPolicy}
		for n, name := range slices.Sorted(maps.Keys(want.Params)) {
			number := strconv.Itoa(n)
			p["param["+number+"].name"], p["param["+number+"].value"] = name, want.Params[name]
		}
		err := s.api.jobs.run(ctx, lb.command("creating the "+what, "createLBStickinessPolicy", p))
		s.policies.Invalidate(found.ID)
		switch {
		case isDenied(err):
			req.Report(services.Warning(eventIgnored, "annotation %s has no effect at port %d: %v", annotationStickiness, w.Port, err))
			return nil
		case isPortRefused(err):
			req.Report(services.Warning(eventRefused, "port %d has no stickiness: %v", w.Port, err))
			lb.problems = append(lb.problems, err)
			return nil
		}
		return err
	})
	c.Creates = true
	return c
}

// policyDeletion deletes a policy.
func (s *stickyPolicies) policyDeletion(ruleID string, p policy) lbChange {
	what := "stickiness policy " + p.Name
	return newChange(contract.PlanDelete, what, p.Method, p.stickiness, nil,
		func(ctx context.Context, _ *services.Request, lb *observed) error {
			err := s.api.jobs.run(ctx, lb.command("deleting the "+what, "deleteLBStickinessPolicy", params{"id": p.ID}))
			s.policies.Invalidate(ruleID)
			if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
				return err
			}
			left := lb.policies[ruleID]
			left.All = slices.DeleteFunc(slices.Clone(left.All), func(o policy) bool { return o.ID == p.ID })
			lb.policies[ruleID] = left
			return nil
		})
}

// removeAnnotation removes the annotation from a Service whose rules have no more policies of ours.
func (s *stickyPolicies) removeAnnotation(ctx context.Context, req *services.Request, lb *observed) error {
	if req.Purpose != services.Ensure || !lb.settings.Sticky || len(lb.settings.sticky) > 0 || lb.noPolicies {
		return nil
	}
	for _, p := range lb.policies {
		if len(p.selectBy(true)) > 0 {
			return nil
		}
	}
	return s.records.annotate(ctx, req, map[string]any{annotationSticky: nil})
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
