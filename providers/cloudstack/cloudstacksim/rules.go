package cloudstacksim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Rule is a load balancer rule.
type Rule struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	// Address is the ID of the public address.
	Address     string `json:"address"`
	Network     string `json:"network"`
	Owner       string `json:"owner"`
	PublicPort  int    `json:"publicport"`
	PrivatePort int    `json:"privateport"`
	Protocol    string `json:"protocol"`
	Algorithm   string `json:"algorithm"`
	// CIDRs is the list as it is stored, with blanks or commas in it.
	CIDRs string `json:"cidrlist"`
	// State is Add until it was applied, and Active then.
	State   string   `json:"state"`
	Members []Member `json:"members"`
	// Opened is the firewall rule that was made together with it.
	Opened string `json:"opened"`
}

// Member is a virtual machine that a rule leads to.
type Member struct {
	VM string `json:"vm"`
	IP string `json:"ip"`
}

// Forward is a port forwarding rule, which only tests make.
type Forward struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// statsPort is the public port that the router's HAProxy has for itself, and dnsPort that of its resolver.
const (
	statsPort = 8081
	dnsPort   = 53
	maxPort   = 65535
)

const (
	ruleAdd    = "Add"
	ruleActive = "Active"
)

// EditRule changes a load balancer rule behind the API's back.
func (s *Sim) EditRule(id string, change func(*Rule)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rules.ByID[id]; r != nil {
		change(r)
	}
}

// RemoveRules removes all load balancer rules as a user does, and leaves addresses, firewall rules and ACL items.
func (s *Sim) RemoveRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	for _, r := range s.rules.All() {
		s.removeRule(r)
	}
}

// AddForward makes a port forwarding rule on an address, by its ID.
func (s *Sim) AddForward(address string, port int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID("forward")
	s.forwards.Put(id, &Forward{ID: id, Address: address, Port: port})
	return id
}

// Forwards returns the port forwarding rules.
func (s *Sim) Forwards() []Forward { return clone(s, &s.forwards) }

func (c *call) listPortForwardingRules() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	for _, f := range s.forwards.All() {
		a := s.addresses.ByID[f.Address]
		if !visible(a.Owner) || !c.matches("id", f.ID) || !c.matches("ipaddressid", a.ID) || !c.matches("networkid", a.Network) {
			continue
		}
		port := strconv.Itoa(f.Port)
		list = append(list, map[string]any{
			"id": f.ID, "protocol": "tcp", "publicport": port, "publicendport": port, "privateport": port, "privateendport": port,
			"ipaddressid": a.ID, "ipaddress": a.Address, "networkid": a.Network, "state": ruleActive, "cidrlist": "", "tags": []any{},
			"fordisplay": true,
		})
	}
	return c.page("portforwardingrule", list)
}

func (s *Sim) removeRule(r *Rule) {
	s.rules.Remove(r.ID)
	for _, p := range s.policies.All() {
		if p.Rule == r.ID {
			s.policies.Remove(p.ID)
		}
	}
	if f := s.firewalls.ByID[r.Opened]; f != nil {
		s.firewalls.Remove(f.ID)
	}
	// An address of a VPC goes back to it after its last rule.
	a := s.addresses.ByID[r.Address]
	left := slices.ContainsFunc(s.rules.All(), func(other *Rule) bool { return other.Address == r.Address })
	if a != nil && a.VPC != "" && !left {
		a.Network = ""
	}
}

func (c *call) listLoadBalancerRules() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	for _, r := range simkit.Scattered(&s.order, s.rules.All(), func(r *Rule) string { return r.ID }) {
		on := c.p["virtualmachineid"]
		leads := on == "" || slices.ContainsFunc(r.Members, func(m Member) bool { return m.VM == on })
		if visible(r.Owner) && leads && c.matches("id", r.ID) && c.matches("name", r.Name) && c.matches("publicipid", r.Address) &&
			c.matches("networkid", r.Network) && c.matches("zoneid", s.zone.ID) && c.keyword(r.Name, r.Description) {
			list = append(list, s.shownRule(r))
		}
	}
	return c.page("loadbalancerrule", list)
}

func (s *Sim) shownRule(r *Rule) map[string]any {
	m := s.withOwner(map[string]any{
		"id": r.ID, "name": r.Name, "publicipid": r.Address, "publicip": s.addresses.ByID[r.Address].Address, "networkid": r.Network,
		"publicport": strconv.Itoa(r.PublicPort), "privateport": strconv.Itoa(r.PrivatePort), "algorithm": r.Algorithm, "protocol": r.Protocol,
		"cidrlist": r.CIDRs, "state": r.State, "zoneid": s.zone.ID, "zonename": s.zone.Name, "fordisplay": true,
		"tags": []any{},
	}, r.Owner)
	if r.Description != "" {
		m["description"] = r.Description
	}
	if s.hasJob(r.ID, "deleteLoadBalancerRule") {
		m["state"] = "Deleting"
	}
	return s.withJob(m, r.ID)
}

func algorithms() []string { return []string{"source", "roundrobin", "leastconn"} }

// checkRule refuses values that no load balancer rule has.
func (c *call) checkRule() error {
	for _, name := range []string{"publicport", "privateport"} {
		text, given := c.p[name]
		if n, err := strconv.Atoi(text); given && (err != nil || n < 1 || n > maxPort) {
			shown := strings.Replace(name, "port", "Port", 1)
			return refuse(codeParam, "%s is an invalid value: %s", shown, text)
		}
	}
	if a := c.p["algorithm"]; a != "" && !slices.Contains(algorithms(), a) {
		return refuse(codeParam, "Invalid algorithm: %s", a)
	}
	protocol := strings.ToLower(c.p["protocol"])
	if protocol != "" && !slices.Contains([]string{"tcp", "udp", "tcp-proxy", "ssl"}, protocol) {
		return refuse(codeParam, "Protocol is invalid: %s", c.p["protocol"])
	}
	return nil
}

func (c *call) createLoadBalancerRule() (any, error) {
	s := c.s
	if err := c.checkRule(); err != nil {
		return nil, err
	}
	if err := cidrs(c.p.list("cidrlist"), true, "CIDR [%s] is invalid."); err != nil {
		return nil, err
	}
	a := s.addresses.ByID[c.p["publicipid"]]
	if a == nil {
		return nil, refuse(codeParam, "Unable to create load balance rule; can't find/allocate source IP")
	}
	if err := s.checkOperate(c.caller, a.Owner); err != nil && a.State != stateFree {
		return nil, err
	}
	n, err := c.networkOfRule(a)
	if err != nil {
		return nil, err
	}
	if err := c.conflicts(a, n); err != nil {
		return nil, err
	}
	r := &Rule{
		ID: s.newID("rule"), Name: c.p["name"], Description: c.p["description"], Address: a.ID, Network: n.ID, Owner: a.Owner,
		PublicPort: c.p.number("publicport", 0), PrivatePort: c.p.number("privateport", 0), Algorithm: c.p["algorithm"],
		Protocol: strings.ToLower(cmp.Or(c.p["protocol"], "tcp")), CIDRs: strings.Join(c.p.list("cidrlist"), " "), State: ruleAdd,
		Members: []Member{},
	}
	s.rules.Put(r.ID, r)
	a.Network = n.ID
	opens := n.VPC == "" && c.p.boolean("openfirewall", true) && n.offers("Firewall")
	if opens {
		f := &Firewall{
			ID: s.newID("firewall"), Address: a.ID, Owner: a.Owner, Protocol: "tcp", Start: r.PublicPort, End: r.PublicPort,
			CIDRs: []string{allNetworks}, State: ruleActive,
		}
		s.firewalls.Put(f.ID, f)
		r.Opened = f.ID
	}
	j := c.submit(n.ID, job{
		kind: "FirewallRule", object: r.ID, undo: func() { s.removeRule(r) },
		effect: func() (any, error) { return map[string]any{"loadbalancer": s.shownRule(r)}, nil },
	})
	return jobResponse(j, r.ID), nil
}

// networkOfRule is the network that a rule on an address is for.
func (c *call) networkOfRule(a *Address) (*Network, error) {
	s := c.s
	n := s.networks.ByID[a.Network]
	wanted := s.networks.ByID[c.p["networkid"]]
	switch {
	case a.StaticNAT != "":
		return nil, refuse(codeConflict, "Can't do load balance on ip address: %s", a.Address)
	case a.State == stateFree:
		return nil, refuse(codeParam, "Unable to create load balance rule; can't find/allocate source IP")
	case a.State != stateAllocated || s.hasJob(a.ID, "disassociateIpAddress"):
		return nil, refuse(codeParam, "Unable to create load balancer rule, invalid IP address id specified")
	case n != nil && wanted != nil && n.ID != wanted.ID:
		if a.VPC != "" {
			return nil, refuse(codeConflict, "New rule is for a different network than what's specified in rule on the IP address %s", a.Address)
		}
		return nil, refuse(codeParam, "Ip address %s is not assigned to the network %s", a.Address, wanted.Name)
	case n == nil && (wanted == nil || wanted.VPC != a.VPC):
		return nil, refuse(codeParam, "Ip address is not assigned to any network and networkId is not passed")
	}
	if n == nil {
		n = wanted
	}
	return n, c.checkFits(a, n)
}

// checkFits refuses a rule that a network cannot have.
func (c *call) checkFits(a *Address, n *Network) error {
	protocol := strings.ToLower(c.p["protocol"])
	router := n.Provider == "VirtualRouter" || n.Provider == "VpcVirtualRouter"
	port := c.p.number("publicport", 0)
	switch {
	case n.VPC != "" && c.p.boolean("openfirewall", false):
		return refuse(codeParam, "Can't have openFirewall=true when IP address belongs to VPC")
	case !n.offers("Lb"):
		return refuse(codeParam, "LB service is not supported in specified network id")
	case router && (protocol == "udp" || port == statsPort):
		return refuse(codeParam, "LB service provider cannot support this rule")
	case a.SourceNAT && port == dnsPort && n.offers("Dns"):
		return refuse(codeParam, "Error adding load balancer rule, cannot add port 53 with network service provider DNS on a source NAT IP")
	}
	return nil
}

// conflicts refuses a rule whose public port another one on the address has, whatever the protocols.
func (c *call) conflicts(a *Address, n *Network) error {
	port := c.p.number("publicport", 0)
	const text = "The range specified, %d-%d, conflicts with rule %s which has %d-%d"
	for _, r := range c.s.rules.All() {
		switch {
		case r.Address != a.ID:
		case r.Network != n.ID:
			return refuse(codeConflict, "New rule is for a different network than what's specified in rule %s", r.ID)
		case r.PublicPort == port:
			return refuse(codeConflict, text, port, port, r.ID, port, port)
		}
	}
	for _, f := range c.s.forwards.All() {
		if f.Address == a.ID && f.Port == port {
			return refuse(codeConflict, text, port, port, f.ID, port, port)
		}
	}
	return nil
}

// rule returns the rule that a parameter names, if the caller may change it.
func (c *call) rule(parameter string) (*Rule, error) {
	r := c.s.rules.ByID[c.p[parameter]]
	if r == nil {
		return nil, refuse(codeParam, "Unable to find lb rule by id=%s", c.p[parameter])
	}
	return r, c.s.checkOperate(c.caller, r.Owner)
}

func (c *call) updateLoadBalancerRule() (any, error) {
	s := c.s
	r, err := c.rule("id")
	if err == nil {
		err = c.checkRule()
	}
	if err != nil {
		return nil, err
	}
	list := c.p.list("cidrlist")
	if !s.version.atLeast(22, 0) {
		list = nil
	}
	if err := cidrs(list, false, "Invalid CIDR list: %s"); err != nil {
		return nil, err
	}
	changed := *r
	for to, from := range map[*string]string{
		&changed.Algorithm: c.p["algorithm"], &changed.Name: c.p["name"], &changed.Description: c.p["description"],
		&changed.Protocol: strings.ToLower(c.p["protocol"]),
	} {
		*to = cmp.Or(from, *to)
	}
	if _, given := c.p["cidrlist"]; given && s.version.atLeast(22, 0) {
		changed.CIDRs = strings.Join(list, ",")
	}
	router := s.networks.ByID[r.Network].Provider
	if strings.HasSuffix(router, "VirtualRouter") && changed.Protocol == "udp" {
		return nil, refuse(codeParam, "Modifications in lb rule %s are not supported.", r.ID)
	}
	return jobResponse(c.submit(r.Network, job{
		kind: "FirewallRule", object: r.ID,
		effect: func() (any, error) {
			if s.rules.ByID[r.ID] == nil {
				return nil, refuse(codeParam, "Unable to find lb rule by id=%s", r.ID)
			}
			r.Algorithm, r.Protocol, r.CIDRs = changed.Algorithm, changed.Protocol, changed.CIDRs
			r.Name, r.Description = changed.Name, changed.Description
			if len(r.Members) > 0 {
				r.State = ruleActive
			}
			return map[string]any{"loadbalancer": s.shownRule(r)}, nil
		},
		// The server takes back what it wrote where the router does not follow, but for the protocol.
		undo: func() { r.Protocol = changed.Protocol },
	}), ""), nil
}

func (c *call) deleteLoadBalancerRule() (any, error) {
	r, err := c.rule("id")
	if err != nil {
		return nil, err
	}
	return jobResponse(c.submit(r.Network, job{
		kind: "FirewallRule", object: r.ID,
		effect: func() (any, error) {
			if c.s.rules.ByID[r.ID] == nil {
				return nil, refuse(codeParam, "Unable to find lb rule by id=%s", r.ID)
			}
			c.s.removeRule(r)
			return success(), nil
		},
	}), ""), nil
}
