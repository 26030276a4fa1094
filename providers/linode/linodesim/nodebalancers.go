package linodesim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// NodeBalancer is a NodeBalancer as the API shows it.
type NodeBalancer struct {
	ID                 int            `json:"id"`
	Label              string         `json:"label"`
	Region             string         `json:"region"`
	Type               string         `json:"type"`
	Hostname           string         `json:"hostname"`
	IPv4               string         `json:"ipv4"`
	IPv6               string         `json:"ipv6"`
	Created            string         `json:"created"`
	Updated            string         `json:"updated"`
	ClientConnThrottle int            `json:"client_conn_throttle"`
	ClientUDPThrottle  int            `json:"client_udp_sess_throttle"`
	LKECluster         *int           `json:"lke_cluster"`
	Tags               []string       `json:"tags"`
	Transfer           map[string]any `json:"transfer"`
	FrontendType       string         `json:"frontend_address_type"`
	FrontendSubnetID   *int           `json:"frontend_vpc_subnet_id"`

	configs                   map[int]*Config
	backendVPCs, frontendVPCs []vpcOptions
}

// Config is a port of a NodeBalancer.
type Config struct {
	ID             int            `json:"id"`
	Port           int            `json:"port"`
	Protocol       string         `json:"protocol"`
	Algorithm      string         `json:"algorithm"`
	Stickiness     string         `json:"stickiness"`
	Check          string         `json:"check"`
	CheckInterval  int            `json:"check_interval"`
	CheckTimeout   int            `json:"check_timeout"`
	CheckAttempts  int            `json:"check_attempts"`
	CheckPath      string         `json:"check_path"`
	CheckBody      string         `json:"check_body"`
	CheckPassive   bool           `json:"check_passive"`
	ProxyProtocol  string         `json:"proxy_protocol"`
	CipherSuite    string         `json:"cipher_suite"`
	NodeBalancerID int            `json:"nodebalancer_id"`
	SSLCommonName  string         `json:"ssl_commonname"`
	SSLFingerprint string         `json:"ssl_fingerprint"`
	SSLCert        *string        `json:"ssl_cert"`
	SSLKey         *string        `json:"ssl_key"`
	NodesStatus    map[string]int `json:"nodes_status"`
	UDPCheckPort   int            `json:"udp_check_port"`
	UDPTimeout     int            `json:"udp_session_timeout"`

	nodes map[int]*Node
}

// Node is a backend of a port.
type Node struct {
	ID             int    `json:"id"`
	Address        string `json:"address"`
	Label          string `json:"label"`
	Status         string `json:"status"`
	Weight         int    `json:"weight"`
	Mode           string `json:"mode"`
	ConfigID       int    `json:"config_id"`
	NodeBalancerID int    `json:"nodebalancer_id"`
	VPCConfigID    *int   `json:"vpc_config_id"`
}

type vpcOptions struct {
	SubnetID   int    `json:"subnet_id"`
	IPv4Range  string `json:"ipv4_range"`
	IPv6Range  string `json:"ipv6_range"`
	AutoAssign bool   `json:"ipv4_range_auto_assign"`
}

type nodeBalancerRequest struct {
	Label        *string         `json:"label"`
	Region       string          `json:"region"`
	Type         string          `json:"type"`
	Throttle     *int            `json:"client_conn_throttle"`
	UDPThrottle  *int            `json:"client_udp_sess_throttle"`
	Tags         *[]string       `json:"tags"`
	IPv4         *string         `json:"ipv4"`
	FirewallID   int             `json:"firewall_id"`
	VPCs         []vpcOptions    `json:"vpcs"`
	BackendVPCs  []vpcOptions    `json:"backend_vpcs"`
	FrontendVPCs []vpcOptions    `json:"frontend_vpcs"`
	Configs      []configRequest `json:"configs"`
}

// configRequest is a config in a request; absent fields take their default, or stay.
type configRequest struct {
	Port          *int           `json:"port"`
	Protocol      *string        `json:"protocol"`
	Algorithm     *string        `json:"algorithm"`
	Stickiness    *string        `json:"stickiness"`
	Check         *string        `json:"check"`
	CheckInterval *int           `json:"check_interval"`
	CheckTimeout  *int           `json:"check_timeout"`
	CheckAttempts *int           `json:"check_attempts"`
	CheckPath     *string        `json:"check_path"`
	CheckBody     *string        `json:"check_body"`
	CheckPassive  *bool          `json:"check_passive"`
	ProxyProtocol *string        `json:"proxy_protocol"`
	CipherSuite   *string        `json:"cipher_suite"`
	SSLCert       *string        `json:"ssl_cert"`
	SSLKey        *string        `json:"ssl_key"`
	UDPCheckPort  *int           `json:"udp_check_port"`
	UDPTimeout    *int           `json:"udp_session_timeout"`
	Nodes         *[]nodeRequest `json:"nodes"`
}

type nodeRequest struct {
	ID       int    `json:"id"`
	Address  string `json:"address"`
	Label    string `json:"label"`
	Weight   int    `json:"weight"`
	Mode     string `json:"mode"`
	SubnetID int    `json:"subnet_id"`
}

var labelRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{3,32}$`)

func redacted() *string { return new("<REDACTED>") }

func (s *Sim) createNodeBalancer(r *http.Request, _ []string) (any, error) {
	var in nodeBalancerRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Region != Region {
		return nil, invalid("region", "region is not valid")
	}
	id := s.next()
	nb := &NodeBalancer{
		ID: id, Label: fmt.Sprintf("balancer%d", id), Region: in.Region, Type: "common", Created: timeNow(), Updated: timeNow(), Tags: []string{},
		Transfer: map[string]any{"in": nil, "out": nil, "total": nil}, FrontendType: "public", configs: map[int]*Config{},
		backendVPCs: append(in.BackendVPCs, in.VPCs...), frontendVPCs: in.FrontendVPCs,
	}
	if in.Type != "" {
		if !slices.Contains([]string{"common", "premium", "premium_40gb"}, in.Type) {
			return nil, invalid("type", "type is not valid")
		}
		nb.Type = in.Type
	}
	if err := s.setNodeBalancer(nb, &in); err != nil {
		return nil, err
	}
	if err := s.address(nb, &in); err != nil {
		return nil, err
	}
	for i, c := range in.Configs {
		made, err := s.newConfig(nb, c, fmt.Sprintf("configs[%d].", i))
		if err != nil {
			return nil, err
		}
		if c.Nodes != nil {
			if err := s.setNodes(nb, made, *c.Nodes, fmt.Sprintf("configs[%d].", i)); err != nil {
				return nil, err
			}
		}
	}
	if in.FirewallID != 0 {
		f := s.firewalls[in.FirewallID]
		if f == nil {
			return nil, invalid("firewall_id", "Firewall not found")
		}
		f.devices[s.next()] = Entity{ID: nb.ID, Type: "nodebalancer"}
	}
	s.nodeBalancers[nb.ID] = nb
	s.changed(nil, nb.ID)
	return s.nodeBalancerView(nb), nil
}

// address gives a NodeBalancer its addresses: public ones, a reserved one, or private ones of a VPC.
func (s *Sim) address(nb *NodeBalancer, in *nodeBalancerRequest) error {
	n := nb.ID - firstID
	nb.IPv4, nb.IPv6 = nth("198.19.0.0", n), nthV6("2001:db8:1::", n)
	if in.IPv4 != nil {
		if ip, err := netip.ParseAddr(*in.IPv4); err != nil || !ip.Is4() {
			return invalid("", "Invalid IPv4 address")
		}
		if s.reserved[*in.IPv4] == nil {
			return invalid("", "IPv4 address is not reserved")
		}
		for _, other := range s.nodeBalancers {
			if other.IPv4 == *in.IPv4 {
				return invalid("", "IPv4 address is in use")
			}
		}
		nb.IPv4 = *in.IPv4
	}
	for _, f := range in.FrontendVPCs {
		if s.vpcOfSubnet(f.SubnetID) == 0 {
			return invalid("frontend_vpcs[0].subnet_id", "Subnet not found")
		}
		nb.FrontendType, nb.FrontendSubnetID, nb.IPv4, nb.IPv6 = "vpc", new(f.SubnetID), nth("10.250.0.0", n), ""
	}
	for i, b := range nb.backendVPCs {
		if s.vpcOfSubnet(b.SubnetID) == 0 {
			return invalid("backend_vpcs[0].subnet_id", "Subnet not found")
		}
		if b.IPv4Range == "" || b.AutoAssign {
			nb.backendVPCs[i].IPv4Range = nth("10.251.0.0", 4*n) + "/30"
		}
	}
	nb.Hostname = strings.ReplaceAll(nb.IPv4, ".", "-") + ".ip.linodeusercontent.com"
	return nil
}

// setNodeBalancer takes over what can be changed.
func (s *Sim) setNodeBalancer(nb *NodeBalancer, in *nodeBalancerRequest) error {
	if in.Label != nil {
		if !labelRule.MatchString(*in.Label) {
			return invalid("label", "Label must be 3 to 32 ASCII letters, numbers, dashes and underscores")
		}
		for _, other := range s.nodeBalancers {
			if other.ID != nb.ID && other.Label == *in.Label {
				return invalid("label", "Label must be unique among your NodeBalancers")
			}
		}
		nb.Label = *in.Label
	}
	if in.Throttle != nil {
		if *in.Throttle < 0 || *in.Throttle > 20 {
			return invalid("client_conn_throttle", "Must be between 0 and 20")
		}
		nb.ClientConnThrottle = *in.Throttle
	}
	if in.Tags != nil {
		for _, t := range *in.Tags {
			if len(t) < 3 {
				return invalid("tags", "Tags have at least 3 characters")
			}
		}
		nb.Tags = append([]string{}, *in.Tags...)
	}
	return nil
}

func (s *Sim) listNodeBalancers(r *http.Request, _ []string) (any, error) {
	views := []*NodeBalancer{}
	for _, nb := range shown(s, s.nodeBalancers) {
		views = append(views, s.nodeBalancerView(nb))
	}
	return list(s, r, views)
}

// nodeBalancerView is a NodeBalancer as an answer shows it: tags come in any order.
func (s *Sim) nodeBalancerView(nb *NodeBalancer) *NodeBalancer {
	view := *nb
	view.Tags = simkit.Shuffled(&s.disorder, nb.Tags)
	return &view
}

func (s *Sim) getNodeBalancer(_ *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	return s.nodeBalancerView(nb), nil
}

func (s *Sim) updateNodeBalancer(r *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	var in nodeBalancerRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Region != "" || in.Type != "" || in.IPv4 != nil || in.Configs != nil || in.FirewallID != 0 {
		return nil, invalid("", "only label, client_conn_throttle and tags can change")
	}
	if err := s.setNodeBalancer(nb, &in); err != nil {
		return nil, err
	}
	return s.nodeBalancerView(nb), nil
}

func (s *Sim) deleteNodeBalancer(_ *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	s.removeNodeBalancerLocked(nb)
	return struct{}{}, nil
}

func (s *Sim) listNodeBalancerVPCs(r *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	entries := []any{}
	add := func(o vpcOptions, network string) {
		entries = append(entries, map[string]any{
			"id": nb.ID*10 + len(entries), "nodebalancer_id": nb.ID, "vpc_id": s.vpcOfSubnet(o.SubnetID), "subnet_id": o.SubnetID,
			"ipv4_range": network, "ipv6_range": o.IPv6Range,
		})
	}
	for _, o := range nb.frontendVPCs {
		add(o, cmp.Or(o.IPv4Range, nb.IPv4+"/32"))
	}
	for _, o := range nb.backendVPCs {
		add(o, o.IPv4Range)
	}
	return list(s, r, entries)
}

func (s *Sim) listNodeBalancerFirewalls(r *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	attached := []any{}
	for _, f := range sorted(s.firewalls) {
		for _, e := range f.devices {
			if e.Type == "nodebalancer" && e.ID == nb.ID {
				attached = append(attached, s.firewallView(f))
			}
		}
	}
	return list(s, r, attached)
}

// NodeBalancers returns copies of all NodeBalancers in order of creation.
func (s *Sim) NodeBalancers() []NodeBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []NodeBalancer{}
	for _, nb := range sorted(s.nodeBalancers) {
		all = append(all, *nb)
	}
	return all
}

// Configs returns copies of the ports of a NodeBalancer, in order of creation, each with its nodes.
func (nb NodeBalancer) Configs() []Config {
	all := []Config{}
	for _, c := range sorted(nb.configs) {
		all = append(all, *c)
	}
	return all
}

// Nodes returns copies of the nodes of a port, in order of creation.
func (c Config) Nodes() []Node {
	all := []Node{}
	for _, n := range sorted(c.nodes) {
		all = append(all, *n)
	}
	return all
}

// ChangeNodeBalancer changes a NodeBalancer behind the API's back.
func (s *Sim) ChangeNodeBalancer(id int, change func(*NodeBalancer)) {
	s.mu.Do(func() { change(s.nodeBalancers[id]) })
}
