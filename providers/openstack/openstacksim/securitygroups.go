package openstacksim

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
)

// SecurityGroup holds rules.
type SecurityGroup struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Rules       []SecurityRule `json:"security_group_rules"`
	Tags        []string       `json:"tags"`
}

// SecurityRule lets traffic through.
type SecurityRule struct {
	ID        string  `json:"id"`
	GroupID   string  `json:"security_group_id"`
	Direction string  `json:"direction"`
	EtherType string  `json:"ethertype"`
	Protocol  *string `json:"protocol"`
	Min       *int    `json:"port_range_min"`
	Max       *int    `json:"port_range_max"`
	Prefix    *string `json:"remote_ip_prefix"`
}

// SecurityGroups returns all security groups.
func (s *Sim) SecurityGroups() []SecurityGroup { return copiesOf(s, &s.groups) }

// DropSecurityGroup takes a security group off all ports and deletes it.
func (s *Sim) DropSecurityGroup(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports.All() {
		if i := slices.Index(p.SecurityGroups, id); i >= 0 {
			p.SecurityGroups = slices.Delete(slices.Clone(p.SecurityGroups), i, i+1)
			p.Revision++
		}
	}
	s.groups.Remove(id)
}

// ChangeSecurityGroup changes a security group behind the API's back.
func (s *Sim) ChangeSecurityGroup(id string, change func(*SecurityGroup)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups.ByID[id]
	g.Rules = slices.Clone(g.Rules)
	change(g)
}

// AddSecurityGroup adds a security group as somebody does by hand, and returns its ID.
func (s *Sim) AddSecurityGroup(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newSecurityGroup(name).ID
}

func (s *Sim) newSecurityGroup(name string) *SecurityGroup {
	g := &SecurityGroup{ID: s.newID(0x56), Name: name, Tags: []string{}}
	for _, family := range []string{"IPv4", "IPv6"} {
		g.Rules = append(g.Rules, SecurityRule{ID: s.newID(0x5e), GroupID: g.ID, Direction: "egress", EtherType: family})
	}
	s.groups.Put(g.ID, g)
	return g
}

func (s *Sim) serveGroups(w http.ResponseWriter, r *http.Request, id, _ string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		var in struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}
		if err := decodeBody(r, "security_group", &in); err != nil {
			return err
		}
		g := s.newSecurityGroup(in.Name)
		g.Description = in.Description
		write(w, http.StatusCreated, map[string]any{"security_group": g})
		return nil
	case id == "":
		return s.listing(w, r, "security_groups", anys(s.groups.All()), equalFilter)
	}
	g := s.groups.ByID[id]
	if g == nil {
		return notFound("SecurityGroupNotFound", "Security group", id)
	}
	if r.Method == http.MethodDelete {
		if slices.ContainsFunc(s.ports.All(), func(p *Port) bool { return slices.Contains(p.SecurityGroups, id) }) {
			return failure(http.StatusConflict, "SecurityGroupInUse", "Security Group %s in use.", id)
		}
		s.groups.Remove(id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	write(w, http.StatusOK, map[string]any{"security_group": g})
	return nil
}

// rules returns the rules of all groups.
func (s *Sim) rules() []any {
	all := []any{}
	for _, g := range s.groups.All() {
		for _, rule := range g.Rules {
			all = append(all, rule)
		}
	}
	return all
}

func (s *Sim) serveRules(w http.ResponseWriter, r *http.Request, id, _ string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		var in SecurityRule
		if err := decodeBody(r, "security_group_rule", &in); err != nil {
			return err
		}
		g := s.groups.ByID[in.GroupID]
		if g == nil {
			return notFound("SecurityGroupNotFound", "Security group", in.GroupID)
		}
		if err := in.checkRule(); err != nil {
			return err
		}
		for _, have := range g.Rules {
			have.ID = in.ID
			if fmt.Sprint(attributes(have)) == fmt.Sprint(attributes(in)) {
				return failure(http.StatusConflict, "SecurityGroupRuleExists", "Security group rule already exists.")
			}
		}
		if s.overQuota("security_group_rule", len(s.rules())) {
			return failure(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['security_group_rule'].")
		}
		in.ID = s.newID(0x5e)
		g.Rules = append(g.Rules, in)
		write(w, http.StatusCreated, map[string]any{"security_group_rule": in})
		return nil
	case id == "":
		return s.listing(w, r, "security_group_rules", s.rules(), equalFilter)
	}
	for _, g := range s.groups.All() {
		if i := slices.IndexFunc(g.Rules, func(x SecurityRule) bool { return x.ID == id }); i >= 0 && r.Method == http.MethodDelete {
			g.Rules = slices.Delete(slices.Clone(g.Rules), i, i+1)
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	return notFound("SecurityGroupRuleNotFound", "Security group rule", id)
}

// protocolForm matches the protocols that rules name, or their numbers.
var protocolForm = regexp.MustCompile(`^(any|ah|dccp|egp|esp|gre|icmp|icmpv6|igmp|ipip|ipv6-(encap|frag|icmp|nonxt|opts|route)|ospf|pgm|rsvp|sctp|tcp|` +
	`udp|udplite|vrrp)$`)

// checkRule refuses the values that Neutron refuses.
func (r *SecurityRule) checkRule() error {
	bad := func(port *int) bool { return port != nil && (*port < 1 || *port > 65535) }
	number, err := strconv.Atoi(deref(r.Protocol))
	switch {
	case r.Direction != "ingress" && r.Direction != "egress":
		return failure(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for direction. Reason: '%s' is not in ['ingress', 'egress'].", r.Direction)
	case r.EtherType != "IPv4" && r.EtherType != "IPv6":
		return failure(http.StatusBadRequest, "SecurityGroupInvalidEtherType", "Security group rule for ethertype '%s' not supported.", r.EtherType)
	case r.Protocol != nil && !protocolForm.MatchString(*r.Protocol) && (err != nil || number < 0 || number > 255):
		return failure(http.StatusBadRequest, "SecurityGroupRuleInvalidProtocol", "Security group rule protocol %s not supported.", *r.Protocol)
	case bad(r.Min), bad(r.Max):
		return failure(http.StatusBadRequest, "SecurityGroupInvalidPortValue", "Invalid value for port")
	case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
		return failure(http.StatusBadRequest, "SecurityGroupInvalidPortRange", "For TCP/UDP protocols, port_range_min must be <= port_range_max")
	}
	return r.checkPrefix()
}

func (r *SecurityRule) checkPrefix() error {
	if r.Prefix == nil {
		return nil
	}
	p, err := netip.ParsePrefix(*r.Prefix)
	if err != nil || p.Addr().Is4() != (r.EtherType == "IPv4") {
		return failure(http.StatusBadRequest, "SecurityGroupRuleParameterConflict", "Conflicting value ethertype %s for CIDR %s", r.EtherType, *r.Prefix)
	}
	return nil
}
