package cloudstacksim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// States of public addresses.
const (
	stateFree       = "Free"
	stateAllocating = "Allocating"
	stateAllocated  = "Allocated"
	stateReleasing  = "Releasing"
)

// publicAddresses is how many there are.
const publicAddresses = 120

func publicAddress(n int) string { return fmt.Sprintf("203.0.113.%d", n+10) }

// Address is a public address.
type Address struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
	// Owner is the account or project that has it; a free one has none.
	Owner string `json:"owner"`
	// Network is the one that it is associated with. An address of a VPC has none until a rule needs it.
	Network   string `json:"network"`
	VPC       string `json:"vpc"`
	SourceNAT bool   `json:"sourcenat"`
	// Allocated is when it was taken.
	Allocated string `json:"allocated"`
	// StaticNAT is the virtual machine that it leads to.
	StaticNAT string `json:"staticnat"`
	// Quarantined is set while nobody but its former owner may have it.
	Quarantined bool `json:"quarantined"`
}

func (s *Sim) addAddress(text string) *Address {
	id := s.newID("ip")
	return s.addresses.Put(id, &Address{ID: id, Address: text, State: stateFree})
}

// freeAddress returns an address that nobody has, or the wanted one where it is free; nil where there is none.
func (s *Sim) freeAddress(wanted string) *Address {
	for _, a := range s.addresses.All() {
		if a.State == stateFree && (wanted == "" || a.Address == wanted) && (!a.Quarantined || wanted != "") {
			return a
		}
	}
	return nil
}

// assignTo gives an address to an owner.
func (*Sim) assignTo(a *Address, state, owner string) {
	a.State, a.Owner, a.Allocated = state, owner, timeText(time.Now())
}

// release gives an address back.
func (s *Sim) release(a *Address) {
	*a = Address{ID: a.ID, Address: a.Address, State: stateFree}
}

// EditAddress changes a public address behind the API's back.
func (s *Sim) EditAddress(text string, change func(*Address)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.addresses.All() {
		if a.Address == text {
			change(a)
		}
	}
}

// Reserve gives a free address to the network that every simulator has, as a user does who means to use it; it returns its ID.
func (s *Sim) Reserve(text string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.freeAddress(text)
	if a == nil {
		return "", fmt.Errorf("%s is not free", text)
	}
	n := s.networks.ByID[s.seedNet]
	s.assignTo(a, stateAllocated, n.Owner)
	if a.VPC = n.VPC; n.VPC == "" {
		a.Network = n.ID
	}
	return a.ID, nil
}

// TakeAddresses makes all addresses that are free another account's.
func (s *Sim) TakeAddresses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.addresses.All() {
		if a.State == stateFree {
			s.assignTo(a, stateAllocated, s.accountNamed(Other).id)
		}
	}
}

func (c *call) listPublicIPAddresses() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	state := c.p["state"]
	known := []string{stateFree, stateAllocating, stateAllocated, stateReleasing, "Reserved"}
	if state != "" && !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, state) }) {
		return nil, refuse(codeParam, "Invalid state: %s", state)
	}
	var list []map[string]any
	for _, a := range simkit.Scattered(&s.order, s.addresses.All(), func(a *Address) string { return a.ID }) {
		if c.matchesAddress(a, visible) && (state == "" || strings.EqualFold(state, a.State)) {
			list = append(list, s.shownAddress(a))
		}
	}
	if c.p.boolean("retrieveonlyresourcecount", false) {
		return map[string]any{"count": len(list)}, nil
	}
	return c.page("publicipaddress", list)
}

// matchesAddress reports whether an address passes the filters, but for that of its state.
func (c *call) matchesAddress(a *Address, visible func(owner string) bool) bool {
	if a.State != stateFree && !visible(a.Owner) {
		return false
	}
	if a.State == stateFree && (c.p.boolean("allocatedonly", true) || c.p["associatednetworkid"] != "") {
		return false
	}
	for parameter, value := range map[string]string{
		"id": a.ID, "ipaddress": a.Address, "associatednetworkid": a.Network, "vpcid": a.VPC, "networkid": c.s.source, "zoneid": c.s.zone.ID,
	} {
		if !c.matches(parameter, value) {
			return false
		}
	}
	return c.matchesFlag("issourcenat", a.SourceNAT) && c.matchesFlag("isstaticnat", a.StaticNAT != "") && c.keyword(a.Address)
}

// matchesFlag reports whether a thing passes a filter of true or false that may be missing.
func (c *call) matchesFlag(parameter string, value bool) bool {
	return c.p[parameter] == "" || c.p.boolean(parameter, false) == value
}

func (s *Sim) shownAddress(a *Address) map[string]any {
	m := map[string]any{
		"id": a.ID, "ipaddress": a.Address, "zoneid": s.zone.ID, "zonename": s.zone.Name, "state": s.stateOf(a), "networkid": s.source,
		"physicalnetworkid": "c2d1a6f0-0000-4000-8000-000000000004", "issourcenat": a.SourceNAT, "isstaticnat": a.StaticNAT != "",
		"issystem": false, "isportable": false, "forvirtualnetwork": true, "fordisplay": true, "hasrules": s.hasRules(a.ID),
		"tags": []any{},
	}
	if a.State == stateFree {
		return m
	}
	s.withOwner(m, a.Owner)
	m["allocated"] = a.Allocated
	if n := s.networks.ByID[a.Network]; n != nil {
		m["associatednetworkid"], m["associatednetworkname"] = n.ID, n.Name
	}
	if v := s.vpcs.ByID[a.VPC]; v != nil {
		m["vpcid"], m["vpcname"] = v.ID, v.Name
	}
	if v := s.VMs.ByID[a.StaticNAT]; v != nil {
		m["virtualmachineid"], m["virtualmachinename"] = v.ID, v.Name
	}
	return s.withJob(m, a.ID)
}

func (s *Sim) stateOf(a *Address) string {
	if s.hasJob(a.ID, "disassociateIpAddress") && !a.SourceNAT {
		return stateReleasing
	}
	return a.State
}

func (s *Sim) hasRules(address string) bool {
	on := func(of string) bool { return of == address }
	return slices.ContainsFunc(s.rules.All(), func(r *Rule) bool { return on(r.Address) }) ||
		slices.ContainsFunc(s.forwards.All(), func(f *Forward) bool { return on(f.Address) }) ||
		slices.ContainsFunc(s.firewalls.All(), func(f *Firewall) bool { return on(f.Address) })
}

func (c *call) associateIPAddress() (any, error) {
	s := c.s
	n, v, owner, err := c.networkOrVPC()
	if err != nil {
		return nil, err
	}
	if err := s.checkOperate(c.caller, owner); err != nil {
		return nil, err
	}
	wanted := c.p["ipaddress"]
	if _, err := netip.ParseAddr(wanted); wanted != "" && err != nil {
		return nil, refuse(codeParam, "Invalid ip address: %s", wanted)
	}
	if limit, limited := s.quota[owner]; limited {
		have := 0
		for _, a := range s.addresses.All() {
			if a.Owner == owner {
				have++
			}
		}
		if have >= limit {
			return nil, refuse(codeAllocation, "Maximum number of resources of type 'public_ip' for account name=%s in domain id=%s has been exceeded.", c.caller.name, domainID)
		}
	}
	a := s.freeAddress(wanted)
	switch {
	case a == nil && wanted != "":
		return nil, refuse(codeCapacity, "Unable to find available public IP addresses")
	case a == nil:
		return nil, refuse(codeCapacity, "Insufficient address capacity")
	case a.Quarantined:
		return nil, refuse(codeCapacity, "Failed to allocate public IP address [%s] as it is in quarantine.", wanted)
	}
	s.assignTo(a, stateAllocating, owner)
	var sync string
	if v != nil {
		a.VPC, sync = v.ID, v.ID
	} else {
		sync = n.ID
	}
	j := c.submit(sync, job{
		kind: "IpAddress", object: a.ID, undo: func() { s.release(a) },
		effect: func() (any, error) {
			a.State = stateAllocated
			if n != nil && v == nil {
				a.Network = n.ID
			}
			return map[string]any{"ipaddress": s.shownAddress(a)}, nil
		},
	})
	return jobResponse(j, a.ID), nil
}

// networkOrVPC is the network or VPC that an address is wanted for, and who owns it.
func (c *call) networkOrVPC() (*Network, *VPC, string, error) {
	s := c.s
	if v := s.vpcs.ByID[c.p["vpcid"]]; v != nil {
		return nil, v, v.Owner, nil
	}
	if n := s.networks.ByID[c.p["networkid"]]; n != nil {
		if n.Type != "Isolated" {
			return nil, nil, "", refuse(codeParam, "IP address can't be associated with the network %s", n.Name)
		}
		return n, s.vpcs.ByID[n.VPC], n.Owner, nil
	}
	if c.p["vpcid"] != "" || c.p["networkid"] != "" {
		return nil, nil, "", refuse(codeParam, "Unable to find the network or VPC that is specified")
	}
	if c.p["zoneid"] == "" {
		return nil, nil, "", refuse(codeParam, "Unable to figure out zone to assign ip to. Please specify either zoneId, or networkId, or vpcId in the call")
	}
	owner := c.caller.id
	if c.p["projectid"] != "" {
		owner = c.p["projectid"]
	}
	var own []*Network
	for _, n := range s.networks.All() {
		if n.Owner == owner && n.Type == "Isolated" && n.VPC == "" {
			own = append(own, n)
		}
	}
	switch len(own) {
	case 0:
		return nil, nil, "", refuse(codeParam, "Unable to find an isolated network of the account in the zone")
	case 1:
		return own[0], nil, owner, nil
	}
	return nil, nil, "", refuse(codeParam, "Account has more than one isolated network in the zone")
}

func (c *call) disassociateIPAddress() (any, error) {
	s := c.s
	a := s.addresses.ByID[c.p["id"]]
	if text := c.p["ipaddress"]; a == nil && text != "" {
		if _, err := netip.ParseAddr(text); err != nil {
			return nil, refuse(codeParam, "Invalid ip address: %s", text)
		}
		for _, other := range s.addresses.All() {
			if other.Address == text {
				a = other
			}
		}
	}
	if a == nil {
		return nil, refuse(codeParam, "Unable to find ip address by id")
	}
	if a.State != stateFree {
		if err := s.checkOperate(c.caller, a.Owner); err != nil {
			return nil, err
		}
	}
	sync := a.Network
	if sync == "" {
		sync = a.VPC
	}
	return jobResponse(c.submit(sync, job{
		kind: "IpAddress", object: a.ID,
		effect: func() (any, error) {
			switch {
			case a.State == stateFree:
				return success(), nil
			case a.SourceNAT:
				return nil, refuse(codeInternal, "ip address is used for source nat purposes and can not be disassociated.")
			}
			s.removeRulesAt(a.ID)
			s.release(a)
			return success(), nil
		},
	}), ""), nil
}

// removeRulesAt takes every rule of an address away, whoever made it.
func (s *Sim) removeRulesAt(address string) {
	for _, r := range s.rules.All() {
		if r.Address == address {
			s.removeRule(r)
		}
	}
	for _, f := range s.forwards.All() {
		if f.Address == address {
			s.forwards.Remove(f.ID)
		}
	}
	for _, f := range s.firewalls.All() {
		if f.Address == address {
			s.firewalls.Remove(f.ID)
		}
	}
}
