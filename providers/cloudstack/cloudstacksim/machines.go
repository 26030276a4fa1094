package cloudstacksim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// VM is a virtual machine.
type VM struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	DisplayName  string `json:"displayname"`
	InstanceName string `json:"instancename"`
	State        string `json:"state"`
	// Owner is the ID of the account or project.
	Owner    string `json:"owner"`
	Offering string `json:"offering"`
	// Host is the name of the hypervisor's host, which root admins see as "hostname".
	Host string `json:"host"`
	Zone string `json:"zone"`
	// PublicIP is an address whose static NAT leads to it.
	PublicIP string `json:"publicip"`
	NICs     []NIC  `json:"nics"`
	// Tags are resource tags.
	Tags map[string]string `json:"tags,omitempty"`
	// VNF is set on a virtual network function appliance, whose document holds objects where clients expect texts.
	VNF bool `json:"vnf"`
}

// NIC is a network interface.
type NIC struct {
	ID        string   `json:"id"`
	Network   string   `json:"network"`
	IP        string   `json:"ip"`
	IP6       string   `json:"ip6"`
	Default   bool     `json:"default"`
	Secondary []string `json:"secondary"`
}

// Spec describes a virtual machine to add. Empty fields are filled in.
type Spec struct {
	Name, DisplayName, Offering, State, Zone string
	// Owner is the ID of an account or a project; empty means that of the first network, and else the account User.
	Owner string
	// Networks are the networks of its interfaces; nil means the one that every simulator has. The one at Default is the default one.
	Networks []string
	Default  int
	// IP6 gives each interface an IPv6 address as well.
	IP6 bool
	VNF bool
}

// AddVM adds a virtual machine and returns its ID.
func (s *Sim) AddVM(spec Spec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &VM{
		ID: s.newID("vm"), Name: spec.Name, DisplayName: cmp.Or(spec.DisplayName, spec.Name), State: cmp.Or(spec.State, "Running"),
		Offering: cmp.Or(spec.Offering, "Small Instance"), Zone: cmp.Or(spec.Zone, s.zone.Name), Host: "hypervisor-3.example.net",
		VNF: spec.VNF, NICs: []NIC{},
	}
	v.InstanceName = fmt.Sprintf("i-2-%d-VM", s.serial)
	if spec.Networks == nil {
		spec.Networks = []string{s.seedNet}
	}
	for i, id := range spec.Networks {
		n := s.networks.ByID[id]
		v.Owner = cmp.Or(v.Owner, n.Owner)
		n.hosts++
		nic := NIC{
			ID: s.newID("nic"), Network: id, IP: fmt.Sprintf("%s.%d.%d", n.prefix, n.hosts/200+1, n.hosts%200+10), Default: i == spec.Default,
			Secondary: []string{},
		}
		if spec.IP6 {
			nic.IP6 = fmt.Sprintf("2001:db8:%x::%x", len(s.networks.Order), n.hosts+16)
		}
		v.NICs = append(v.NICs, nic)
	}
	v.Owner = cmp.Or(spec.Owner, v.Owner, s.accountNamed(User).id)
	s.VMs.Put(v.ID, v)
	return v.ID
}

func (v *VM) shownTags() []any {
	list := []any{}
	for key, value := range v.Tags {
		list = append(list, map[string]any{"key": key, "value": value, "resourcetype": "UserVm", "resourceid": v.ID})
	}
	return list
}

func vmStates() []string {
	return []string{
		"Starting", "Running", "Stopping", "Stopped", "Destroyed", "Expunging", "Migrating", "Error", "Unknown", "Shutdown", "Restoring",
	}
}

// machineRemoved takes a virtual machine that is gone out of all rules.
func (s *Sim) machineRemoved(v *VM) {
	for _, r := range s.rules.All() {
		r.Members = slices.DeleteFunc(r.Members, func(m Member) bool { return m.VM == v.ID })
	}
	for _, a := range s.addresses.All() {
		if a.StaticNAT == v.ID {
			a.StaticNAT = ""
		}
	}
}

// vmDetails are the groups of fields that can be asked for.
func vmDetails() []string {
	return []string{
		"all", "group", "nics", "stats", "secgrp", "tmpl", "servoff", "diskoff", "backoff", "iso", "volume", "min", "affgrp", "vnfnics", "userdata",
	}
}

func (c *call) listVirtualMachines() (any, error) {
	s := c.s
	if c.p["id"] != "" && c.p["ids"] != "" {
		return nil, refuse(codeParam, "Specify either id or ids but not both parameters")
	}
	for _, d := range c.p.list("details") {
		if !slices.Contains(vmDetails(), d) {
			return nil, refuse(codeParam, "The details parameter contains a non permitted value. The allowed values are %s", strings.Join(vmDetails(), ", "))
		}
	}
	if state := c.p["state"]; state != "" && !slices.Contains(append(vmStates(), "Present", "Expunged"), state) {
		return nil, refuse(codeParam, "Unrecognized state %s", state)
	}
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	for _, v := range simkit.Scattered(&s.order, s.VMs.All(), func(v *VM) string { return v.ID }) {
		if visible(v.Owner) && c.matchesVM(v) {
			list = append(list, s.shownVM(v, c.p.list("details"), c.caller.admin))
		}
	}
	if c.p.boolean("retrieveonlyresourcecount", false) {
		return map[string]any{"count": len(list)}, nil
	}
	return c.page("virtualmachine", list)
}

// matchesVM reports whether a virtual machine passes the filters.
func (c *call) matchesVM(v *VM) bool {
	if !c.showsState(v.State) {
		return false
	}
	on := func(parameter string, of func(NIC) string) bool {
		return c.p[parameter] == "" || slices.ContainsFunc(v.NICs, func(n NIC) bool { return of(n) == c.p[parameter] })
	}
	ids := c.p.list("ids")
	return c.matches("id", v.ID) && (len(ids) == 0 || slices.Contains(ids, v.ID)) &&
		(c.p["name"] == "" || strings.EqualFold(c.p["name"], v.Name)) &&
		c.keyword(v.Name, v.DisplayName, v.InstanceName, v.State) &&
		on("networkid", func(n NIC) string { return n.Network }) &&
		on("vpcid", func(n NIC) string { return c.s.networks.ByID[n.Network].VPC })
}

// showsState reports whether virtual machines of a state are shown.
func (c *call) showsState(state string) bool {
	gone := state == "Destroyed" || state == "Expunging"
	if gone && !c.caller.admin {
		return false
	}
	switch c.p["state"] {
	case "", state:
		return true
	case "Present":
		return !gone
	}
	return false
}

// shownVM is a virtual machine with the groups of fields that are asked for; none means all but statistics.
func (s *Sim) shownVM(v *VM, details []string, admin bool) map[string]any {
	has := func(group string) bool {
		return len(details) == 0 || slices.Contains(details, "all") || slices.Contains(details, group)
	}
	m := s.withOwner(map[string]any{
		"id": v.ID, "name": v.Name, "displayname": v.DisplayName, "state": v.State, "zoneid": s.zone.ID, "zonename": v.Zone,
		"created": created, "haenable": false, "hypervisor": "KVM", "passwordenabled": false, "displayvm": true, "isdynamicallyscalable": false,
		"cpunumber": 2, "cpuspeed": 2000, "memory": 2048, "rootdeviceid": 0, "rootdevicetype": "ROOT",
		"affinitygroup": []any{}, "tags": v.shownTags(), "userid": s.accountNamed(User).userID, "username": User,
	}, v.Owner)
	if v.PublicIP != "" {
		m["publicip"] = v.PublicIP
	}
	if admin {
		m["instancename"], m["hostname"], m["hostid"] = v.InstanceName, v.Host, "7a6c3b52-1f0e-4b58-8b4b-0a61c1f9e0a1"
		if v.State == "Stopped" {
			delete(m, "hostname")
			delete(m, "hostid")
		}
	}
	if has("servoff") {
		m["serviceofferingid"], m["serviceofferingname"] = "c2d1a6f0-0000-4000-8000-000000000001", v.Offering
	}
	if has("tmpl") {
		m["templateid"], m["templatename"] = "c2d1a6f0-0000-4000-8000-000000000002", "debian-13"
	}
	if has("secgrp") {
		m["securitygroup"] = []any{}
	}
	if has("nics") {
		nics := []any{}
		for _, n := range v.NICs {
			nics = append(nics, s.shownNIC(n))
		}
		m["nic"] = nics
	}
	if v.VNF && has("vnfnics") {
		m["vnfnics"] = []any{map[string]any{"deviceid": 0, "name": "management", "required": true, "management": true}}
	}
	return m
}

func (s *Sim) shownNIC(n NIC) map[string]any {
	network := s.networks.ByID[n.Network]
	m := map[string]any{
		"id": n.ID, "networkid": network.ID, "networkname": network.Name, "ipaddress": n.IP, "netmask": "255.255.0.0",
		"gateway": network.gateway(), "isdefault": n.Default, "traffictype": "Guest", "type": network.Type,
		"macaddress": "02:01:00:ce:00:07", "secondaryip": []any{}, "extradhcpoption": []any{},
	}
	if n.IP6 != "" {
		m["ip6address"], m["ip6gateway"], m["ip6cidr"] = n.IP6, "2001:db8::1", "2001:db8::/64"
	}
	if n.IP == "" {
		delete(m, "ipaddress")
	}
	var more []any
	for i, ip := range n.Secondary {
		more = append(more, map[string]any{"id": fmt.Sprintf("%s%02x", n.ID[:34], i), "ipaddress": ip})
	}
	if len(more) > 0 {
		m["secondaryip"] = more
	}
	if network.VPC != "" {
		m["vpcid"], m["vpcname"] = network.VPC, s.vpcs.ByID[network.VPC].Name
	}
	return m
}
