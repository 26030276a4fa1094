package linodesim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Linode is a Linode as the API shows it.
type Linode struct {
	ID                  int            `json:"id"`
	Label               string         `json:"label"`
	Group               string         `json:"group"`
	Status              string         `json:"status"`
	Created             string         `json:"created"`
	Updated             string         `json:"updated"`
	Type                string         `json:"type"`
	IPv4                []string       `json:"ipv4"`
	IPv6                string         `json:"ipv6"`
	Image               *string        `json:"image"`
	Region              string         `json:"region"`
	SiteType            string         `json:"site_type"`
	Specs               map[string]int `json:"specs"`
	Alerts              map[string]int `json:"alerts"`
	Backups             map[string]any `json:"backups"`
	Hypervisor          string         `json:"hypervisor"`
	WatchdogEnabled     bool           `json:"watchdog_enabled"`
	Tags                []string       `json:"tags"`
	HostUUID            string         `json:"host_uuid"`
	HasUserData         bool           `json:"has_user_data"`
	PlacementGroup      *int           `json:"placement_group"`
	DiskEncryption      string         `json:"disk_encryption"`
	LKEClusterID        *int           `json:"lke_cluster_id"`
	Capabilities        []string       `json:"capabilities"`
	InterfaceGeneration string         `json:"interface_generation"`
	MaintenancePolicy   string         `json:"maintenance_policy"`

	// subnet and the addresses in it; 0 if the Linode is in no VPC.
	vpcID, subnetID, interfaceID, configID int
	vpcIPv4, vpcIPv6                       string
	vpcIPv6Public                          bool
	ranges                                 []string
}

// Spec says what a new Linode is like.
type Spec struct {
	Label, Type string
	Tags        []string
	// Private adds an address of the private network.
	Private bool
	// SubnetID puts it into a VPC.
	SubnetID int
	// LinodeInterfaces is the newer generation of interfaces.
	LinodeInterfaces bool
}

const (
	generationLinode = "linode"
	generationLegacy = "legacy_config"
)

// addresses handed out, by number: private ones of Linode's private network, public ones of the ranges for benchmarks
// and documentation, so that no real host is ever named.
func nth(base string, n int) string {
	b := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n)) //nolint:gosec // numbers are small
	return netip.AddrFrom4(b).String()
}

func nthV6(base string, n int) string {
	b := netip.MustParseAddr(base).As16()
	binary.BigEndian.PutUint32(b[12:], uint32(n)) //nolint:gosec // numbers are small
	return netip.AddrFrom16(b).String()
}

// nthNetwork is the first address of the n-th network of /64: each Linode in a VPC has one of its own.
func nthNetwork(base string, n int) string {
	b := netip.MustParseAddr(base).As16()
	binary.BigEndian.PutUint16(b[6:], uint16(n)) //nolint:gosec // numbers are small
	b[15] = 1
	return netip.AddrFrom16(b).String()
}

const (
	publicBase  = "198.18.0.0"
	privateBase = "192.168.128.0"
	v6Base      = "2001:db8::"
	vpcV6Base   = "2001:db8:ffff::"
)

// AddLinode adds a running Linode and returns its ID.
func (s *Sim) AddLinode(spec Spec) int {
	return simkit.Get(&s.mu, func() int { return s.addLinodeLocked(spec).ID })
}

func (s *Sim) addLinodeLocked(spec Spec) *Linode {
	id := s.next()
	n := id - firstID
	l := &Linode{
		ID: id, Label: spec.Label, Status: "running", Created: timeNow(), Updated: timeNow(), Type: spec.Type, Region: Region, SiteType: "core",
		IPv4: []string{nth(publicBase, n)}, IPv6: nthV6(v6Base, n) + "/128",
		Specs:  map[string]int{"disk": 81920, "memory": 4096, "vcpus": 2, "gpus": 0, "transfer": 4000, "accelerated_devices": 0},
		Alerts: map[string]int{"cpu": 180, "network_in": 10, "network_out": 10, "transfer_quota": 80, "io": 10000},
		Backups: map[string]any{
			"enabled": false, "available": false, "schedule": map[string]any{"day": nil, "window": nil}, "last_successful": nil,
		},
		Hypervisor: "kvm", WatchdogEnabled: true, Tags: append([]string{}, spec.Tags...), HostUUID: fmt.Sprintf("%040x", id),
		DiskEncryption: "enabled", Capabilities: []string{"Block Storage Encryption"}, InterfaceGeneration: generationLegacy, MaintenancePolicy: "linode/migrate",
	}
	if l.Type == "" {
		l.Type = "g6-standard-2"
	}
	if spec.Private {
		l.IPv4 = append(l.IPv4, nth(privateBase, n))
	}
	if spec.LinodeInterfaces {
		l.InterfaceGeneration = generationLinode
	}
	s.joinSubnetLocked(l, spec.SubnetID)
	s.VMs.Put(l.ID, l)
	s.changed(nil, l.ID)
	return l
}

// JoinSubnet gives a Linode an interface in a subnet of a VPC.
func (s *Sim) JoinSubnet(linode, subnet int) {
	s.mu.Do(func() { s.joinSubnetLocked(s.VMs.ByID[linode], subnet) })
}

func (s *Sim) joinSubnetLocked(l *Linode, subnet int) {
	n := l.ID - firstID
	for _, v := range s.vpcs {
		for _, sub := range v.Subnets {
			if sub.ID == subnet {
				prefix := netip.MustParsePrefix(sub.IPv4)
				l.vpcID, l.subnetID, l.interfaceID, l.configID = v.ID, sub.ID, s.next(), s.next()
				l.vpcIPv4, l.vpcIPv6, l.vpcIPv6Public = nth(prefix.Addr().String(), 1+n), nthNetwork(vpcV6Base, n), true
			}
		}
	}
}

func (l *Linode) vpcNetwork() string {
	return netip.PrefixFrom(netip.MustParseAddr(l.vpcIPv6), 64).Masked().String()
}

func (s *Sim) listLinodes(r *http.Request, _ []string) (any, error) {
	return list(s, r, shown(s, s.VMs.ByID))
}

func (s *Sim) getLinode(_ *http.Request, ids []string) (any, error) { return find(s.VMs.ByID, ids[0]) }

func (s *Sim) deleteLinode(_ *http.Request, ids []string) (any, error) {
	l, err := find(s.VMs.ByID, ids[0])
	if err != nil {
		return nil, err
	}
	s.RemoveLocked(l.ID)
	return struct{}{}, nil
}

func (s *Sim) createLinode(r *http.Request, _ []string) (any, error) {
	var in struct {
		Region    string   `json:"region"`
		Type      string   `json:"type"`
		Label     string   `json:"label"`
		Image     string   `json:"image"`
		RootPass  string   `json:"root_pass"`
		Booted    *bool    `json:"booted"`
		Tags      []string `json:"tags"`
		PrivateIP bool     `json:"private_ip"`
		Firewall  int      `json:"firewall_id"`
		Swap      int      `json:"swap_size"`
		Disk      string   `json:"disk_encryption"`
		Backups   bool     `json:"backups_enabled"`

		Interfaces []struct {
			Purpose  string          `json:"purpose"`
			SubnetID int             `json:"subnet_id"`
			IPv4     json.RawMessage `json:"ipv4"`
			Primary  bool            `json:"primary"`
		} `json:"interfaces"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Region == "" || in.Type == "" {
		return nil, invalid("region", "region and type are required")
	}
	for _, l := range s.VMs.ByID {
		if l.Label == in.Label {
			return nil, invalid("label", "Label must be unique among your linodes")
		}
	}
	spec := Spec{Label: in.Label, Type: in.Type, Tags: in.Tags, Private: in.PrivateIP}
	for _, i := range in.Interfaces {
		if i.Purpose == "vpc" {
			spec.SubnetID = i.SubnetID
		}
	}
	return s.addLinodeLocked(spec), nil
}

// address is one address of a Linode interface.
func (l *Linode) vpcInterface() map[string]any {
	return map[string]any{
		"id": l.interfaceID, "purpose": "vpc", "primary": false, "active": true,
		"vpc_id": l.vpcID, "subnet_id": l.subnetID, "ipam_address": nil, "label": nil,
		"ipv4": map[string]any{"vpc": l.vpcIPv4, "nat_1_1": nil}, "ip_ranges": append([]string{}, l.ranges...),
		"ipv6": map[string]any{
			"slaac": []any{map[string]any{"range": l.vpcNetwork(), "address": l.vpcIPv6}}, "ranges": []any{}, "is_public": l.vpcIPv6Public,
		},
	}
}

func (s *Sim) listLinodeConfigs(r *http.Request, ids []string) (any, error) {
	l, err := find(s.VMs.ByID, ids[0])
	if err != nil {
		return nil, err
	}
	interfaces := []any{}
	if l.vpcID != 0 && l.InterfaceGeneration == generationLegacy {
		interfaces = append(interfaces, l.vpcInterface())
	}
	return list(s, r, []any{map[string]any{"id": l.configID, "label": "boot", "interfaces": interfaces}})
}

func (s *Sim) listLinodeInterfaces(r *http.Request, ids []string) (any, error) {
	l, err := find(s.VMs.ByID, ids[0])
	if err != nil {
		return nil, err
	}
	interfaces := []any{}
	if l.vpcID != 0 && l.InterfaceGeneration == generationLinode {
		ranges := []any{}
		for _, one := range l.ranges {
			ranges = append(ranges, map[string]string{"range": one})
		}
		interfaces = append(interfaces, map[string]any{"id": l.interfaceID, "public": nil, "vlan": nil, "vpc": map[string]any{
			"vpc_id": l.vpcID, "subnet_id": l.subnetID,
			"ipv4": map[string]any{"addresses": []any{map[string]any{"address": l.vpcIPv4, "primary": true}}, "ranges": ranges},
			"ipv6": map[string]any{
				"slaac": []any{map[string]any{"range": l.vpcNetwork(), "address": l.vpcIPv6}}, "ranges": []any{}, "is_public": l.vpcIPv6Public,
			},
		}})
	}
	return list(s, r, interfaces)
}

func checkRanges(ranges []string) error {
	for _, one := range ranges {
		if p, err := netip.ParsePrefix(one); err != nil || !p.Addr().Is4() {
			return invalid("ip_ranges", "Must be an IPv4 range")
		}
	}
	return nil
}

func (s *Sim) updateConfigInterface(r *http.Request, ids []string) (any, error) {
	l, err := find(s.VMs.ByID, ids[0])
	if err != nil {
		return nil, err
	}
	if l.InterfaceGeneration != generationLegacy || l.configID != number(ids[1]) || l.interfaceID != number(ids[2]) {
		return nil, errNotFound
	}
	var in struct {
		Ranges *[]string `json:"ip_ranges"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Ranges != nil {
		if err := checkRanges(*in.Ranges); err != nil {
			return nil, err
		}
		l.ranges = slices.Clone(*in.Ranges)
	}
	return l.vpcInterface(), nil
}

func (s *Sim) updateLinodeInterface(r *http.Request, ids []string) (any, error) {
	l, err := find(s.VMs.ByID, ids[0])
	if err != nil {
		return nil, err
	}
	if l.InterfaceGeneration != generationLinode || l.interfaceID != number(ids[1]) {
		return nil, errNotFound
	}
	var in struct {
		VPC struct {
			IPv4 struct {
				Ranges []struct {
					Range string `json:"range"`
				} `json:"ranges"`
			} `json:"ipv4"`
		} `json:"vpc"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	ranges := []string{}
	for _, one := range in.VPC.IPv4.Ranges {
		ranges = append(ranges, one.Range)
	}
	if err := checkRanges(ranges); err != nil {
		return nil, err
	}
	l.ranges = ranges
	list := []any{}
	for _, one := range ranges {
		list = append(list, map[string]string{"range": one})
	}
	return map[string]any{
		"id": l.interfaceID, "vpc": map[string]any{"vpc_id": l.vpcID, "subnet_id": l.subnetID, "ipv4": map[string]any{"ranges": list}},
	}, nil
}

// knownAddress reports whether an address is one at which a NodeBalancer can reach something: an address of the private
// network, a public IPv6 address, or, with a subnet, one in a VPC.
func (s *Sim) knownAddress(ip netip.Addr, subnetID int) bool {
	if subnetID != 0 {
		for _, v := range s.vpcs {
			for _, sub := range v.Subnets {
				if sub.ID == subnetID {
					return netip.MustParsePrefix(sub.IPv4).Contains(ip)
				}
			}
		}
		return false
	}
	return ip.Is6() || strings.HasPrefix(ip.String(), "192.168.")
}
