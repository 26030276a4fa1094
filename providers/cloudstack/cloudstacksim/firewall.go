package cloudstacksim

import (
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// allNetworks is the network that holds all addresses.
const allNetworks = "0.0.0.0/0"

// Firewall is a firewall rule of a public address.
type Firewall struct {
	ID       string   `json:"id"`
	Address  string   `json:"address"`
	Owner    string   `json:"owner"`
	Protocol string   `json:"protocol"`
	Start    int      `json:"start"`
	End      int      `json:"end"`
	CIDRs    []string `json:"cidrs"`
	State    string   `json:"state"`
}

// RemoveFirewalls deletes all firewall rules as somebody does by hand.
func (s *Sim) RemoveFirewalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.firewalls.All() {
		s.firewalls.Remove(f.ID)
	}
}

// EditFirewall changes a firewall rule as somebody does who deletes it and makes another one.
func (s *Sim) EditFirewall(id string, change func(*Firewall)) {
	s.mu.Do(func() { change(s.firewalls.ByID[id]) })
}

// LimitRules has the router take no more firewall rules and items of lists than these; 0 ends that.
func (s *Sim) LimitRules(most int) { s.mu.Do(func() { s.mostRules = most }) }

// checkRoom refuses what was added last where the router takes no more.
func (s *Sim) checkRoom(kind string) error {
	if all := len(s.firewalls.All()) + len(s.aclItems.All()); s.mostRules > 0 && all > s.mostRules {
		return refuse(codeInternal, "Failed to create %s: the router has no room for it", kind)
	}
	return nil
}

func (c *call) listFirewallRules() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	for _, f := range simkit.Scattered(&s.order, s.firewalls.All(), func(f *Firewall) string { return f.ID }) {
		if visible(f.Owner) && c.matches("id", f.ID) && c.matches("ipaddressid", f.Address) &&
			c.matches("networkid", s.addresses.ByID[f.Address].Network) {
			list = append(list, s.shownFirewall(f))
		}
	}
	return c.page("firewallrule", list)
}

// shownFirewall has neither an account nor a project: the API does not show them here.
func (s *Sim) shownFirewall(f *Firewall) map[string]any {
	a := s.addresses.ByID[f.Address]
	m := map[string]any{
		"id": f.ID, "protocol": f.Protocol, "ipaddressid": a.ID, "ipaddress": a.Address, "networkid": a.Network,
		"cidrlist": strings.Join(f.CIDRs, ","), "state": f.State, "fordisplay": true, "tags": []any{},
	}
	if f.Protocol != "icmp" && f.Start > 0 {
		m["startport"], m["endport"] = f.Start, f.End
	}
	if s.hasJob(f.ID, "deleteFirewallRule") {
		m["state"] = "Deleting"
	}
	return m
}

func (c *call) createFirewallRule() (any, error) {
	s := c.s
	a := s.addresses.ByID[c.p["ipaddressid"]]
	list := c.p.list("cidrlist")
	if err := cidrs(list, false, "Source CIDRs formatting error %s"); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		list = []string{allNetworks}
	}
	protocol := strings.ToLower(c.p["protocol"])
	start, end, err := c.ports(protocol)
	if err != nil {
		return nil, err
	}
	if t := c.p["type"]; t != "" && !strings.EqualFold(t, "user") {
		return nil, refuse(codeParam, "Only firewall rules of the type user can be made, not %s", t)
	}
	n := s.networks.ByID[a.Network]
	if n == nil {
		return nil, refuse(codeParam, "Unable to create firewall rule ; ip with specified id is not associated with any network")
	}
	if err := s.checkOperate(c.caller, a.Owner); err != nil {
		return nil, err
	}
	if !n.offers("Firewall") {
		return nil, refuse(codeParam, "Service Firewall is not supported in the network %s", n.Name)
	}
	if err := s.firewallConflict(a.ID, protocol, start, end, list); err != nil {
		return nil, err
	}
	f := &Firewall{
		ID: s.newID("firewall"), Address: a.ID, Owner: a.Owner, Protocol: protocol, Start: start, End: end, CIDRs: list, State: ruleAdd,
	}
	s.firewalls.Put(f.ID, f)
	j := c.submit(n.ID, job{
		kind: "FirewallRule", object: f.ID, undo: func() { s.firewalls.Remove(f.ID) },
		effect: func() (any, error) {
			f.State = ruleActive
			return map[string]any{"firewallrule": s.shownFirewall(f)}, s.checkRoom("firewall rule")
		},
	})
	return jobResponse(j, f.ID), nil
}

// ports returns the ports that a request gives a rule of a protocol.
func (c *call) ports(protocol string) (start, end int, err error) {
	if !slices.Contains([]string{"tcp", "udp", "icmp", "all"}, protocol) {
		return 0, 0, refuse(codeParam, "Protocol %s is not supported", protocol)
	}
	hasStart, hasEnd := c.p["startport"] != "", c.p["endport"] != ""
	if protocol == "icmp" || protocol == "all" {
		if hasStart || hasEnd {
			return 0, 0, refuse(codeParam, "Can't specify start/end port when protocol is %s", protocol)
		}
		return 0, 0, nil
	}
	if c.p["icmptype"] != "" || c.p["icmpcode"] != "" {
		return 0, 0, refuse(codeParam, "Can specify icmpType and icmpCode for ICMP protocol only")
	}
	if !hasStart && !hasEnd {
		return 1, maxPort, nil
	}
	return c.portRange(hasStart)
}

// portRange returns the range of ports in a request.
func (c *call) portRange(hasStart bool) (start, end int, err error) {
	start = c.p.number("startport", 0)
	end = c.p.number("endport", start)
	if hasStart && (start < 1 || start > maxPort) {
		return 0, 0, refuse(codeParam, "publicPort is an invalid value: %d", start)
	}
	if end < start || end > maxPort || start < 1 {
		return 0, 0, refuse(codeParam, "Start port can't be bigger than end port, or port range is invalid: %d-%d", start, end)
	}
	return start, end, nil
}

func (s *Sim) firewallConflict(address, protocol string, start, end int, list []string) error {
	for _, f := range s.firewalls.All() {
		same := slices.ContainsFunc(list, func(cidr string) bool { return slices.Contains(f.CIDRs, cidr) })
		if f.Address == address && f.Protocol == protocol && same && f.Start <= end && start <= f.End {
			return refuse(codeConflict, "The range specified, %d-%d, conflicts with rule %s which has %d-%d", start, end, f.ID, f.Start, f.End)
		}
	}
	return nil
}

func (c *call) firewall() (*Firewall, error) {
	f := c.s.firewalls.ByID[c.p["id"]]
	if f == nil {
		return nil, refuse(codeParam, "Unable to find firewall rule by id %s", c.p["id"])
	}
	return f, c.s.checkOperate(c.caller, f.Owner)
}

func (c *call) deleteFirewallRule() (any, error) {
	f, err := c.firewall()
	if err != nil {
		return nil, err
	}
	return jobResponse(c.submit(c.s.addresses.ByID[f.Address].Network, job{
		kind: "FirewallRule", object: f.ID,
		effect: func() (any, error) {
			if c.s.firewalls.ByID[f.ID] == nil {
				return nil, refuse(codeParam, "Unable to find firewall rule by id %s", f.ID)
			}
			c.s.firewalls.Remove(f.ID)
			return success(), nil
		},
	}), ""), nil
}
