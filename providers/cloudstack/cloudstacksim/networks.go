package cloudstacksim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Network is a guest network, or a tier of a VPC.
type Network struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Type is Isolated, Shared or L2.
	Type  string `json:"type"`
	Owner string `json:"owner"`
	// VPC is set on a tier, and ACL is its list then.
	VPC   string `json:"vpc"`
	ACL   string `json:"acl"`
	State string `json:"state"`
	// Services are those that its offering has, such as Lb, Firewall and NetworkACL, and Stickiness the methods of its load balancer.
	Services   []string `json:"services"`
	Provider   string   `json:"provider"`
	Stickiness []string `json:"stickiness"`

	prefix string
	hosts  int
}

// VPC is a virtual private cloud.
type VPC struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

// NetworkSpec describes a network to add. Empty fields are filled in.
type NetworkSpec struct {
	Name, Type, Owner string
	// VPC makes it a tier, and ACL is its list; empty means default_allow.
	VPC, ACL string
	// Services replace those of an isolated network, or of a tier.
	Services []string
	// Provider is that of its load balancer; empty means VirtualRouter or VpcVirtualRouter.
	Provider string
}

func (n *Network) gateway() string { return n.prefix + ".0.1" }

func (n *Network) offers(service string) bool { return slices.Contains(n.Services, service) }

// AddNetwork adds a network; an isolated one has a public address for source NAT.
func (s *Sim) AddNetwork(spec NetworkSpec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &Network{
		ID: s.newID("network"), Name: spec.Name, Type: cmp.Or(spec.Type, "Isolated"), Owner: cmp.Or(spec.Owner, s.accountNamed(User).id),
		VPC: spec.VPC, ACL: spec.ACL, State: "Implemented", Services: spec.Services, Provider: cmp.Or(spec.Provider, "VirtualRouter"),
		Stickiness: []string{"LbCookie", "AppCookie", "SourceBased"},
		prefix:     fmt.Sprintf("10.%d", len(s.networks.Order)+10),
	}
	if n.Services == nil {
		n.Services = []string{"Dhcp", "Dns", "Firewall", "Lb", "PortForwarding", "SourceNat", "StaticNat", "UserData", "Vpn"}
	}
	s.networks.Put(n.ID, n)
	if n.VPC != "" {
		s.makeTier(n, n.VPC, spec.Services)
		return n.ID
	}
	if n.offers("SourceNat") {
		a := s.freeAddress("")
		s.assignTo(a, stateAllocated, n.Owner)
		a.Network, a.SourceNAT = n.ID, true
	}
	return n.ID
}

// makeTier makes a network a tier of a VPC.
func (s *Sim) makeTier(n *Network, vpc string, services []string) {
	n.VPC, n.Owner, n.Provider = vpc, s.vpcs.ByID[vpc].Owner, "VpcVirtualRouter"
	n.ACL = cmp.Or(n.ACL, s.aclListNamed(listAllow).ID)
	if n.Services = services; services == nil {
		n.Services = []string{"Dhcp", "Dns", "Lb", "NetworkACL", "PortForwarding", "SourceNat", "StaticNat", "UserData"}
	}
}

func (s *Sim) addVPC(name, owner string) *VPC {
	v := s.vpcs.Put(s.newID("vpc"), &VPC{Name: name, Owner: owner})
	v.ID = s.vpcs.Order[len(s.vpcs.Order)-1]
	a := s.freeAddress("")
	s.assignTo(a, stateAllocated, owner)
	a.VPC, a.SourceNAT = v.ID, true
	return v
}

// MakeTier makes the network that every simulator has a tier of a new VPC, with a list of ACLs of its own.
func (s *Sim) MakeTier() (vpc, list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.networks.ByID[s.seedNet]
	v := s.addVPC("vpc", n.Owner)
	for _, a := range s.addresses.All() {
		if a.Network == n.ID && a.SourceNAT {
			s.release(a)
		}
	}
	own := s.addACLList("own", v.ID)
	n.ACL = own.ID
	s.makeTier(n, v.ID, nil)
	return v.ID, own.ID
}

// MoveToProject gives the network that every simulator has, its machines, its VPC and its addresses to the project.
func (s *Sim) MoveToProject() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.projects[0].ID
	n := s.networks.ByID[s.seedNet]
	n.Owner = owner
	if v := s.vpcs.ByID[n.VPC]; v != nil {
		v.Owner = owner
	}
	for _, v := range s.VMs.All() {
		if len(v.NICs) > 0 && v.NICs[0].Network == n.ID {
			v.Owner = owner
		}
	}
	for _, a := range s.addresses.All() {
		if a.State != stateFree && (a.Network == n.ID || (a.VPC != "" && a.VPC == n.VPC)) {
			a.Owner = owner
		}
	}
	return owner
}

// SeedNetwork returns the ID of the network that every simulator has.
func (s *Sim) SeedNetwork() string { return simkit.Get(&s.mu, func() string { return s.seedNet }) }

// EditNetwork changes a network behind the API's back.
func (s *Sim) EditNetwork(id string, change func(*Network)) {
	s.mu.Do(func() { change(s.networks.ByID[id]) })
}

func (c *call) listNetworks() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	if f := c.p["networkfilter"]; f != "" && !slices.Contains([]string{"account", "domain", "accountdomain", "shared", "all"}, strings.ToLower(f)) {
		return nil, refuse(codeParam, "Invalid networkfilter %s", f)
	}
	var list []map[string]any
	for _, n := range simkit.Scattered(&s.order, s.networks.All(), func(n *Network) string { return n.ID }) {
		hasAll := !slices.ContainsFunc(c.p.list("supportedservices"), func(service string) bool { return !n.offers(service) })
		inVPC := c.p["forvpc"] == "" || c.p.boolean("forvpc", false) == (n.VPC != "")
		if visible(n.Owner) && hasAll && inVPC && c.matches("id", n.ID) && c.matches("vpcid", n.VPC) && c.matches("zoneid", s.zone.ID) &&
			(c.p["type"] == "" || strings.EqualFold(c.p["type"], n.Type)) && c.keyword(n.Name) {
			list = append(list, s.shownNetwork(n))
		}
	}
	return c.page("network", list)
}

func (s *Sim) shownNetwork(n *Network) map[string]any {
	m := s.withOwner(map[string]any{
		"id": n.ID, "name": n.Name, "displaytext": n.Name, "type": n.Type, "zoneid": s.zone.ID, "zonename": s.zone.Name, "state": n.State,
		"cidr": n.prefix + ".0.0/16", "gateway": n.gateway(), "netmask": "255.255.0.0", "traffictype": "Guest", "issystem": false,
		"isdefault": false, "restartrequired": false, "specifyipranges": n.Type == "Shared", "canusefordeploy": true, "ispersistent": false,
		"acltype": "Account", "networkofferingid": "c2d1a6f0-0000-4000-8000-000000000003", "networkofferingname": "offering",
		"broadcastdomaintype": "Vlan", "dns1": "192.0.2.53", "strechedl2subnet": false, "redundantrouter": false, "related": n.ID,
		"tags": []any{}, "created": created,
	}, n.Owner)
	services := []any{}
	for _, name := range n.Services {
		service := map[string]any{"name": name, "provider": []any{map[string]any{"name": n.Provider}}}
		if name == "Lb" {
			service["capability"] = s.balancerCapabilities(n)
		}
		services = append(services, service)
	}
	m["service"] = services
	if n.VPC != "" {
		m["vpcid"], m["vpcname"] = n.VPC, s.vpcs.ByID[n.VPC].Name
		list := s.aclLists.ByID[n.ACL]
		m["aclid"], m["aclname"] = list.ID, list.Name
	}
	return m
}

func (*Sim) balancerCapabilities(n *Network) []any {
	var methods []string
	for _, name := range n.Stickiness {
		methods = append(methods, `{"methodname":"`+name+`","paramlist":[],"description":""}`)
	}
	one := func(name, value string) any {
		return map[string]any{"name": name, "value": value, "canchooseservicecapability": false}
	}
	return []any{
		one("SupportedLBAlgorithms", "roundrobin,leastconn,source"), one("SupportedLBIsolation", "dedicated"),
		one("SupportedProtocols", "tcp,tcp-proxy,ssl"), one("LbSchemes", "Public"), one("AutoScaleCounters", "[]"),
		one("SupportedStickinessMethods", "["+strings.Join(methods, ",")+"]"),
	}
}
