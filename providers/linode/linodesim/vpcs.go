package linodesim

import (
	"net/http"
	"regexp"
)

// VPC is a VPC as the API shows it.
type VPC struct {
	ID          int       `json:"id"`
	Label       string    `json:"label"`
	Description string    `json:"description"`
	Region      string    `json:"region"`
	IPv6        []any     `json:"ipv6"`
	Subnets     []*Subnet `json:"subnets"`
	Created     string    `json:"created"`
	Updated     string    `json:"updated"`
}

// Subnet is a subnet of a VPC.
type Subnet struct {
	ID            int    `json:"id"`
	Label         string `json:"label"`
	IPv4          string `json:"ipv4"`
	IPv6          []any  `json:"ipv6"`
	Linodes       []any  `json:"linodes"`
	Databases     []any  `json:"databases"`
	NodeBalancers []any  `json:"nodebalancers"`
	Created       string `json:"created"`
	Updated       string `json:"updated"`
}

func newSubnet(id int, label, ipv4 string) *Subnet {
	return &Subnet{
		ID: id, Label: label, IPv4: ipv4, Linodes: []any{}, Databases: []any{}, NodeBalancers: []any{}, Created: timeNow(), Updated: timeNow(),
	}
}

// AddVPC adds a VPC with one subnet for each label and network, and returns its ID and theirs.
func (s *Sim) AddVPC(label string, subnets ...[2]string) (int, []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &VPC{ID: s.next(), Label: label, Region: Region, Created: timeNow(), Updated: timeNow()}
	var ids []int
	for _, sub := range subnets {
		id := s.next()
		ids = append(ids, id)
		v.Subnets = append(v.Subnets, newSubnet(id, sub[0], sub[1]))
	}
	s.vpcs[v.ID] = v
	return v.ID, ids
}

// AddSubnet adds a subnet to a VPC and returns its ID.
func (s *Sim) AddSubnet(vpc int, label, ipv4 string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := newSubnet(s.next(), label, ipv4)
	s.vpcs[vpc].Subnets = append(s.vpcs[vpc].Subnets, sub)
	return sub.ID
}

// RemoveSubnets takes all subnets out of a VPC.
func (s *Sim) RemoveSubnets(vpc int) { s.mu.Do(func() { s.vpcs[vpc].Subnets = []*Subnet{} }) }

// RemoveVPC destroys a VPC.
func (s *Sim) RemoveVPC(id int) { s.mu.Do(func() { delete(s.vpcs, id) }) }

func (s *Sim) createVPC(r *http.Request, _ []string) (any, error) {
	var in struct {
		Label       string `json:"label"`
		Description string `json:"description"`
		Region      string `json:"region"`
		Subnets     []struct {
			Label string `json:"label"`
			IPv4  string `json:"ipv4"`
		} `json:"subnets"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Region != Region {
		return nil, invalid("region", "region is not valid")
	}
	if !vpcLabel.MatchString(in.Label) {
		return nil, invalid("label", "Must only use ASCII letters, numbers, and dashes")
	}
	for _, other := range s.vpcs {
		if other.Label == in.Label {
			return nil, invalid("label", "Label must be unique among your VPCs")
		}
	}
	v := &VPC{
		ID: s.next(), Label: in.Label, Description: in.Description, Region: Region, Created: timeNow(), Updated: timeNow(), Subnets: []*Subnet{},
	}
	for _, sub := range in.Subnets {
		v.Subnets = append(v.Subnets, newSubnet(s.next(), sub.Label, sub.IPv4))
	}
	s.vpcs[v.ID] = v
	return v, nil
}

func (s *Sim) deleteVPC(_ *http.Request, ids []string) (any, error) {
	v, err := find(s.vpcs, ids[0])
	if err != nil {
		return nil, err
	}
	for _, l := range s.VMs.ByID {
		if l.vpcID == v.ID {
			return nil, invalid("", "The VPC is in use")
		}
	}
	for _, nb := range s.nodeBalancers {
		for _, b := range nb.backendVPCs {
			if s.vpcOfSubnet(b.SubnetID) == v.ID {
				return nil, invalid("", "The VPC is in use")
			}
		}
	}
	delete(s.vpcs, v.ID)
	return struct{}{}, nil
}

var vpcLabel = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)

func (s *Sim) listVPCs(r *http.Request, _ []string) (any, error) { return list(s, r, sorted(s.vpcs)) }

func (s *Sim) getVPC(_ *http.Request, ids []string) (any, error) { return find(s.vpcs, ids[0]) }

func (s *Sim) listSubnets(r *http.Request, ids []string) (any, error) {
	v, err := find(s.vpcs, ids[0])
	if err != nil {
		return nil, err
	}
	return list(s, r, v.Subnets)
}

func (s *Sim) getSubnet(_ *http.Request, ids []string) (any, error) {
	v, err := find(s.vpcs, ids[0])
	if err != nil {
		return nil, err
	}
	for _, sub := range v.Subnets {
		if sub.ID == number(ids[1]) {
			return sub, nil
		}
	}
	return nil, errNotFound
}

// vpcIP is an entry of the listings of addresses in a VPC.
type vpcIP struct {
	Address      *string `json:"address"`
	AddressRange *string `json:"address_range"`
	VPCID        int     `json:"vpc_id"`
	SubnetID     int     `json:"subnet_id"`
	Region       string  `json:"region"`
	LinodeID     *int    `json:"linode_id"`
	ConfigID     *int    `json:"config_id"`
	InterfaceID  *int    `json:"interface_id"`
	NodeBalancer *int    `json:"nodebalancer_id"`
	Active       bool    `json:"active"`
	Gateway      string  `json:"gateway"`
	Prefix       int     `json:"prefix"`
	SubnetMask   string  `json:"subnet_mask"`
	NAT1To1      *string `json:"nat_1_1"`

	IPv6Range     *string        `json:"ipv6_range,omitempty"`
	IPv6IsPublic  *bool          `json:"ipv6_is_public,omitempty"`
	IPv6Addresses []slaacAddress `json:"ipv6_addresses,omitempty"`
}

type slaacAddress struct {
	Address string `json:"slaac_address"`
}

func (l *Linode) vpcEntry() vpcIP {
	e := vpcIP{VPCID: l.vpcID, SubnetID: l.subnetID, Region: l.Region, LinodeID: new(l.ID), InterfaceID: new(l.interfaceID), Active: true}
	if l.InterfaceGeneration == generationLegacy {
		e.ConfigID = new(l.configID)
	}
	return e
}

func (s *Sim) listVPCIPs(r *http.Request, ids []string) (any, error) {
	v, err := find(s.vpcs, ids[0])
	if err != nil {
		return nil, err
	}
	entries := []vpcIP{}
	for _, l := range s.VMs.All() {
		if l.vpcID != v.ID {
			continue
		}
		e := l.vpcEntry()
		e.Address = new(l.vpcIPv4)
		entries = append(entries, e)
		for _, one := range l.ranges {
			e := l.vpcEntry()
			e.AddressRange = new(one)
			entries = append(entries, e)
		}
	}
	for _, nb := range sorted(s.nodeBalancers) {
		for _, b := range nb.backendVPCs {
			if s.vpcOfSubnet(b.SubnetID) == v.ID {
				entries = append(
					entries,
					vpcIP{VPCID: v.ID, SubnetID: b.SubnetID, Region: Region, NodeBalancer: new(nb.ID), AddressRange: new(b.IPv4Range), Active: true},
				)
			}
		}
	}
	return list(s, r, entries)
}

func (s *Sim) listVPCIPv6s(r *http.Request, ids []string) (any, error) {
	v, err := find(s.vpcs, ids[0])
	if err != nil {
		return nil, err
	}
	entries := []vpcIP{}
	for _, l := range s.VMs.All() {
		if l.vpcID == v.ID && l.vpcIPv6 != "" {
			e := l.vpcEntry()
			e.IPv6Range, e.IPv6IsPublic, e.IPv6Addresses = new(l.vpcNetwork()), new(l.vpcIPv6Public), []slaacAddress{{l.vpcIPv6}}
			entries = append(entries, e)
		}
	}
	return list(s, r, entries)
}

func (s *Sim) vpcOfSubnet(id int) int {
	for _, v := range s.vpcs {
		for _, sub := range v.Subnets {
			if sub.ID == id {
				return v.ID
			}
		}
	}
	return 0
}
