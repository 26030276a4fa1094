package ibmsim

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
)

// Rule is a rule of a security group.
type Rule struct {
	ID        string `json:"-"`
	Direction string `json:"direction"`
	Family    string `json:"ip_version,omitempty"`
	PortMin   int    `json:"port_min,omitempty"`
	PortMax   int    `json:"port_max,omitempty"`
	Protocol  string `json:"protocol"`
	Remote    Remote `json:"remote"`
}

// Remote is whom a rule is about.
type Remote struct {
	CIDR    string `json:"cidr_block,omitempty"`
	Address string `json:"address,omitempty"`
	ID      string `json:"id,omitempty"`
}

// SecurityGroup is a security group.
type SecurityGroup struct {
	ID, Name, VPC string
	Rules         []Rule
	// Others are targets that are no load balancers.
	Others []string

	isDefault bool
}

// WebGroup is a group of the user, which lets everybody reach port 80.
const WebGroup = "web"

// addFirstGroups creates each VPC's default group, and the user's WebGroup.
func (s *Sim) addFirstGroups() {
	for _, vpc := range s.vpcs {
		out := Rule{ID: s.id("r006-"), Direction: "outbound", Family: "ipv4", Protocol: "any", Remote: Remote{CIDR: "0.0.0.0/0"}}
		s.groups = append(s.groups, SecurityGroup{ID: s.id("r006-"), Name: vpc + "-default", VPC: vpc, Rules: []Rule{out}, isDefault: true})
	}
	in := Rule{ID: s.id("r006-"), Direction: "inbound", Family: "ipv4", Protocol: "tcp", PortMin: 80, PortMax: 80, Remote: Remote{CIDR: "0.0.0.0/0"}}
	s.groups = append(s.groups, SecurityGroup{ID: s.id("r006-"), Name: WebGroup, VPC: VPC, Rules: []Rule{in}})
}

// SecurityGroups returns copies of all.
func (s *Sim) SecurityGroups() []SecurityGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.groups)
	for n := range list {
		list[n].Rules = slices.Clone(list[n].Rules)
	}
	return list
}

// EditSecurityGroup changes one as somebody does by hand.
func (s *Sim) EditSecurityGroup(name string, change func(*SecurityGroup)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.groups, func(g SecurityGroup) bool { return g.Name == name })
	if at < 0 {
		return errors.New("there is no security group " + name)
	}
	s.groups[at].Rules = slices.Clone(s.groups[at].Rules)
	change(&s.groups[at])
	return nil
}

// groupNames returns the names of a load balancer's security groups.
func (s *Sim) groupNames(lb *LoadBalancer) []string {
	names := []string{}
	for _, g := range s.groups {
		if slices.Contains(lb.Groups, g.ID) {
			names = append(names, g.Name)
		}
	}
	return names
}

// GroupNames are the names of the security groups of a load balancer.
func (s *Sim) GroupNames(lb LoadBalancer) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groupNames(&lb)
}

// MadeGroups returns the groups created since the start.
func (s *Sim) MadeGroups() []SecurityGroup {
	return slices.DeleteFunc(s.SecurityGroups(), func(g SecurityGroup) bool { return g.isDefault || g.Name == WebGroup })
}

// groupsFor returns the groups of a new load balancer: the requested ones, or else the default group of the VPC.
func (s *Sim) groupsFor(a creationRequest, vpc string) ([]string, *refusal) {
	var ids []string
	for _, one := range a.Groups {
		at := slices.IndexFunc(s.groups, func(g SecurityGroup) bool { return g.ID == one.ID && g.VPC == vpc })
		if at < 0 || one.Name != "" || slices.Contains(ids, one.ID) {
			return nil, refuse(http.StatusBadRequest, "load_balancer_invalid_security_groups", "there is no security group %q, or it is there twice", one.ID)
		}
		ids = append(ids, one.ID)
	}
	if len(a.Groups) == 0 {
		at := slices.IndexFunc(s.groups, func(g SecurityGroup) bool { return g.isDefault && g.VPC == vpc })
		ids = []string{s.groups[at].ID}
	}
	return ids, nil
}

// serveGroups speaks the part of the API that is about security groups.
func (s *Sim) serveGroups(r *http.Request, rest []string) (int, any, *refusal) {
	if len(rest) == 0 {
		switch r.Method {
		case http.MethodGet:
			shown := []object{}
			for _, g := range s.listedMoment().groups {
				if v := r.URL.Query().Get("vpc.name"); v == "" || v == g.VPC {
					shown = append(shown, s.showGroup(r, g))
				}
			}
			return s.page(r, "security_groups", shown, "vpc.name")
		case http.MethodPost:
			return s.createGroup(r)
		}
		return refuseMethod()
	}
	at := slices.IndexFunc(s.groups, func(g SecurityGroup) bool { return g.ID == rest[0] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Security group not found")
	}
	switch g := &s.groups[at]; {
	case len(rest) == 1:
		return s.serveGroup(r, at)
	case len(rest) >= 2 && rest[1] == "rules":
		return s.serveRules(r, g, rest[2:])
	case len(rest) == 3 && rest[1] == "targets":
		return s.serveTarget(r, *g, rest[2])
	}
	return refuseMethod()
}

// serveGroup serves one group.
func (s *Sim) serveGroup(r *http.Request, at int) (int, any, *refusal) {
	g := s.groups[at]
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, s.showGroup(r, g), nil
	case http.MethodDelete:
		if g.isDefault || len(s.targets(r, g)) > 0 || s.isReferenced(g) {
			return 0, nil, refuse(http.StatusConflict, "security_group_in_use", "it is the default one, has targets, or is in a rule of another one")
		}
		s.groups = slices.Delete(slices.Clone(s.groups), at, at+1)
		return http.StatusNoContent, nil, nil
	}
	return refuseMethod()
}

// isReferenced reports whether a rule of another group names a group.
func (s *Sim) isReferenced(g SecurityGroup) bool {
	return slices.ContainsFunc(s.groups, func(o SecurityGroup) bool {
		return o.ID != g.ID && slices.ContainsFunc(o.Rules, func(one Rule) bool { return one.Remote.ID == g.ID })
	})
}

func (s *Sim) createGroup(r *http.Request) (int, any, *refusal) {
	var a struct {
		Name  string    `json:"name"`
		Rules []Rule    `json:"rules"`
		VPC   Reference `json:"vpc"`
		Group Reference `json:"resource_group"`
	}
	if refused := decode(r, &a); refused != nil {
		return 0, nil, refused
	}
	vpc := ""
	for _, name := range s.vpcs {
		if vpcID(name) == a.VPC.ID {
			vpc = name
		}
	}
	taken := slices.ContainsFunc(s.groups, func(g SecurityGroup) bool { return g.Name == a.Name && g.VPC == vpc })
	if refused := refuseFirst(
		check{vpc == "" || a.VPC.Name != "", "not_found", "VPC not found"},
		check{a.Group != (Reference{ID: GroupID}), "resource_group_not_found", "there is no such resource group"},
		check{!nameForm.MatchString(a.Name), "bad_field", "the name is not legal"},
		check{taken, "validation_unique_failed", "Provided Name (" + a.Name + ") is not unique"},
	); refused != nil {
		return 0, nil, refused
	}
	existing := 0
	for _, g := range s.groups {
		if g.VPC == vpc {
			existing++
		}
	}
	if err := ibmlimits.VPCGroups.CheckNumber(existing + 1); err != nil {
		return 0, nil, overLimit(err)
	}
	g := SecurityGroup{ID: s.id("r006-"), Name: a.Name, VPC: vpc}
	for _, one := range a.Rules {
		if refused := g.addRule(s, one); refused != nil {
			return 0, nil, refused
		}
	}
	s.groups = append(s.groups, g)
	return http.StatusCreated, s.showGroup(r, g), nil
}

// addRule checks and adds a rule.
func (g *SecurityGroup) addRule(s *Sim, one Rule) *refusal {
	n, err := netip.ParsePrefix(one.Remote.CIDR)
	network := one.Remote.Address == "" && one.Remote.ID == "" && err == nil && n.Masked() == n && n.Addr().Is4()
	both := (one.PortMin == 0) == (one.PortMax == 0)
	known := one
	same := func(o Rule) bool { o.ID = ""; return o == known }
	if refused := refuseFirst(
		check{!slices.Contains([]string{"inbound", "outbound"}, one.Direction), "bad_field", "the direction is not legal"},
		check{one.Family != "" && one.Family != "ipv4", "bad_field", "the version is not legal"},
		check{!slices.Contains([]string{"tcp", "udp"}, one.Protocol), "bad_field", "the protocol is not legal"},
		check{!both || one.PortMin > one.PortMax ||
			(one.PortMin != 0 && (isOutside(one.PortMin, 1, 65535) || isOutside(one.PortMax, 1, 65535))), "bad_field", "the ports are not legal"},
		check{!network, "bad_field", "the remote is no network"},
		check{slices.ContainsFunc(g.Rules, same), "security_group_rule_duplicate", "the rule is there already"},
		check{ibmlimits.Rules.CheckNumber(len(g.Rules)+1) != nil, "over_quota", "that is more than the quota allows"},
	); refused != nil {
		return refused
	}
	if one.Family == "" {
		one.Family = "ipv4"
	}
	one.ID = s.id("r006-")
	g.Rules = append(slices.Clone(g.Rules), one)
	return nil
}

func (s *Sim) serveRules(r *http.Request, g *SecurityGroup, rest []string) (int, any, *refusal) {
	switch {
	case len(rest) == 0 && r.Method == http.MethodPost:
		var one Rule
		if refused := decode(r, &one); refused != nil {
			return 0, nil, refused
		}
		if refused := g.addRule(s, one); refused != nil {
			return 0, nil, refused
		}
		return http.StatusCreated, showRule(r, *g, g.Rules[len(g.Rules)-1]), nil
	case len(rest) == 1 && r.Method == http.MethodDelete:
		at := slices.IndexFunc(g.Rules, func(o Rule) bool { return o.ID == rest[0] })
		if at < 0 {
			return 0, nil, refuse(http.StatusNotFound, "not_found", "Rule not found")
		}
		g.Rules = slices.Delete(slices.Clone(g.Rules), at, at+1)
		return http.StatusNoContent, nil, nil
	}
	return refuseMethod()
}

// serveTarget adds a load balancer to a group, or takes it away. It is busy then as after each other change.
func (s *Sim) serveTarget(r *http.Request, g SecurityGroup, id string) (int, any, *refusal) {
	at := slices.IndexFunc(s.loadBalancers, func(lb *LoadBalancer) bool { return lb.ID == id })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Target not found")
	}
	lb := s.loadBalancers[at]
	has := slices.Contains(lb.Groups, g.ID)
	if refused := lb.writable(false); refused != nil {
		return 0, nil, refused
	}
	switch {
	case r.Method == http.MethodPut && s.vpcOf(lb) != g.VPC:
		return 0, nil, refuse(http.StatusBadRequest, "bad_field", "the group is in another VPC")
	case r.Method == http.MethodPut && !has && len(lb.Groups) >= 5:
		return 0, nil, refuse(http.StatusBadRequest, "over_quota", "a load balancer has 5 security groups")
	case r.Method == http.MethodPut:
		if !has {
			lb.Groups = append(slices.Clone(lb.Groups), g.ID)
			s.setBusy(lb)
		}
		return http.StatusOK, s.showTarget(r, lb), nil
	case r.Method == http.MethodDelete && !has:
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Target not found")
	case r.Method == http.MethodDelete && len(lb.Groups) == 1:
		return 0, nil, refuse(http.StatusConflict, "security_group_last", "the target must have another security group")
	case r.Method == http.MethodDelete:
		lb.Groups = slices.DeleteFunc(slices.Clone(lb.Groups), func(o string) bool { return o == g.ID })
		s.release(lb, g.ID)
		s.setBusy(lb)
		return http.StatusNoContent, nil, nil
	}
	return refuseMethod()
}

// defaultGroup serves the default group of a VPC.
func (s *Sim) defaultGroup(r *http.Request, rest []string) (int, any, *refusal) {
	if len(rest) != 2 || rest[1] != "default_security_group" || r.Method != http.MethodGet {
		return refuseMethod()
	}
	for _, g := range s.groups {
		if g.isDefault && vpcID(g.VPC) == rest[0] {
			return http.StatusOK, s.showGroup(r, g), nil
		}
	}
	return 0, nil, refuse(http.StatusNotFound, "not_found", "VPC not found")
}

func (s *Sim) targets(r *http.Request, g SecurityGroup) []object {
	shown := []object{}
	for _, lb := range s.loadBalancers {
		if slices.Contains(lb.Groups, g.ID) {
			shown = append(shown, s.showTarget(r, lb))
		}
	}
	for _, lb := range s.stillShown(g) {
		shown = append(shown, s.showTarget(r, lb))
	}
	for _, name := range g.Others {
		shown = append(shown, merge(reference(r, "/endpoint_gateways", "r006-"+name, name), object{"resource_type": "endpoint_gateway"}))
	}
	return shown
}

func (s *Sim) showTarget(r *http.Request, lb *LoadBalancer) object {
	return merge(reference(r, "/load_balancers", lb.ID, lb.Name), object{"resource_type": "load_balancer"})
}

func (s *Sim) showGroup(r *http.Request, g SecurityGroup) object {
	rules := []object{}
	for _, one := range g.Rules {
		rules = append(rules, showRule(r, g, one))
	}
	return merge(reference(r, "/security_groups", g.ID, g.Name), object{
		"created_at": Created, "resource_group": groupReference(r), "rules": rules, "targets": s.targets(r, g), "vpc": vpcReference(r, g.VPC),
	})
}

func showRule(r *http.Request, g SecurityGroup, one Rule) object {
	remote := object{"cidr_block": one.Remote.CIDR}
	if ip, alone := strings.CutSuffix(one.Remote.CIDR, "/32"); alone { // one address may be shown as such
		remote = object{"address": ip}
	}
	if one.Remote.ID != "" { // which somebody made by hand
		remote = reference(r, "/security_groups", one.Remote.ID, "group")
	}
	o := object{
		"id": one.ID, "href": address(r, "/security_groups/"+g.ID+"/rules/"+one.ID),
		"direction": one.Direction, "ip_version": one.Family, "protocol": one.Protocol,
		"local": object{"cidr_block": "0.0.0.0/0"}, "name": "rule-" + one.ID[len(one.ID)-4:], "remote": remote, "resource_type": "security_group_rule",
	}
	if one.PortMin != 0 {
		o["port_min"], o["port_max"] = one.PortMin, one.PortMax
	}
	return o
}
