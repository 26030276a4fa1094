package cloudstacksim

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Policy is a stickiness policy of a load balancer rule.
type Policy struct {
	ID          string            `json:"id"`
	Rule        string            `json:"rule"`
	Name        string            `json:"name"`
	Method      string            `json:"method"`
	Params      map[string]string `json:"params"`
	Description string            `json:"description"`
}

// methodParams are the parameters of each stickiness method, and whether one has to be given.
func methodParams() map[string]map[string]bool {
	return map[string]map[string]bool{
		"LbCookie": {
			"cookie-name": false, "mode": false, "nocache": false, "indirect": false, "postonly": false, "domain": false,
		},
		"AppCookie": {
			"cookie-name": false, "length": false, "holdtime": false, "request-learn": false, "prefix": false, "mode": false,
		},
		"SourceBased": {"tablesize": false, "expire": false},
	}
}

var (
	sizeFormat = regexp.MustCompile(`^[0-9]+[kmg]?$`)
	timeFormat = regexp.MustCompile(`^[0-9]+(us|ms|s|m|h|d)?$`)
)

func (c *call) listLBStickinessPolicies() (any, error) {
	s := c.s
	ruleID := c.p["lbruleid"]
	if p := s.policies.ByID[c.p["id"]]; p != nil && ruleID == "" {
		ruleID = p.Rule
	}
	r := s.rules.ByID[ruleID]
	if r == nil {
		if c.p["lbruleid"] == "" && c.p["id"] == "" {
			return nil, refuse(codeParam, "load balancer rule Id or stickiness policy Id is required")
		}
		return c.page("stickinesspolicies", nil)
	}
	if err := s.checkOperate(c.caller, r.Owner); err != nil {
		return nil, err
	}
	var policies []any
	for _, p := range simkit.Shuffled(&s.order, s.policies.All()) {
		if p.Rule == r.ID && c.matches("id", p.ID) {
			policies = append(policies, shownPolicy(p))
		}
	}
	if len(policies) == 0 {
		policies = []any{}
	}
	return c.page("stickinesspolicies", []map[string]any{s.shownPolicies(r, policies)})
}

func (s *Sim) shownPolicies(r *Rule, policies []any) map[string]any {
	return s.withOwner(map[string]any{
		"lbruleid": r.ID, "zoneid": s.zone.ID, "stickinesspolicy": policies, "state": r.State,
	}, r.Owner)
}

func shownPolicy(p *Policy) map[string]any {
	m := map[string]any{
		"id": p.ID, "name": p.Name, "methodname": p.Method, "params": maps.Clone(p.Params), "state": ruleActive, "fordisplay": true,
	}
	if p.Description != "" {
		m["description"] = p.Description
	}
	return m
}

func (c *call) createLBStickinessPolicy() (any, error) {
	s := c.s
	r, err := c.rule("lbruleid")
	if err != nil {
		return nil, err
	}
	p := &Policy{Rule: r.ID, Name: c.p["name"], Method: c.p["methodname"], Params: map[string]string{}, Description: c.p["description"]}
	for _, pair := range c.p.maps("param") {
		if pair["name"] == "" || len(pair) > 2 {
			return nil, refuse(codeParam, "Unable to execute API command createlbstickinesspolicy due to a param without a name")
		}
		p.Params[pair["name"]] = pair["value"]
	}
	if err := s.checkPolicy(r, p); err != nil {
		return nil, err
	}
	p.ID = s.newID("policy")
	s.policies.Put(p.ID, p)
	return jobResponse(c.submit(r.Network, job{
		kind: "LoadBalancerRule", object: p.ID, undo: func() { s.policies.Remove(p.ID) },
		effect: func() (any, error) {
			if s.rules.ByID[r.ID] == nil {
				return nil, refuse(codeParam, "Unable to find lb rule by id=%s", r.ID)
			}
			return map[string]any{"stickinesspolicies": s.shownPolicies(r, []any{shownPolicy(p)})}, nil
		},
	}), p.ID), nil
}

func (s *Sim) checkPolicy(r *Rule, p *Policy) error {
	i := slices.IndexFunc(s.networks.ByID[r.Network].Stickiness, func(name string) bool { return strings.EqualFold(name, p.Method) })
	if i < 0 {
		return refuse(codeParam, "Failed to match Stickiness method name for LB rule:%s", r.ID)
	}
	p.Method = s.networks.ByID[r.Network].Stickiness[i]
	for name := range p.Params {
		if _, known := methodParams()[p.Method][name]; !known {
			return refuse(codeParam, "Failed : Stickiness policy does not support param name :%s", name)
		}
	}
	if size := p.Params["tablesize"]; size != "" && !sizeFormat.MatchString(size) {
		return refuse(codeParam, "Failed LB in validation rule id: %s Cause: tablesize is not in size format: %s", r.ID, size)
	}
	if expire := p.Params["expire"]; expire != "" && !timeFormat.MatchString(expire) {
		return refuse(codeParam, "Failed LB in validation rule id: %s Cause: expire is not in timeformat: %s", r.ID, expire)
	}
	attached := 0
	for _, other := range s.policies.All() {
		if other.Rule == r.ID {
			attached++
		}
	}
	if attached > 1 {
		return refuse(codeParam, "Failed to create Stickiness policy: Already two policies attached %s", r.ID)
	}
	return nil
}

func (c *call) deleteLBStickinessPolicy() (any, error) {
	s := c.s
	p := s.policies.ByID[c.p["id"]]
	if p == nil {
		return nil, refuse(codeParam, "Unable to find the stickiness policy %s", c.p["id"])
	}
	r := s.rules.ByID[p.Rule]
	if err := s.checkOperate(c.caller, r.Owner); err != nil {
		return nil, err
	}
	return jobResponse(c.submit(r.Network, job{
		kind: "LoadBalancerRule", object: p.ID,
		effect: func() (any, error) {
			s.policies.Remove(p.ID)
			return success(), nil
		},
	}), ""), nil
}
