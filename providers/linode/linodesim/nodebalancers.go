package linodesim

import (
	"crypto/sha1" //nolint:gosec // the API tells certificates apart by it
	"encoding/hex"
	"encoding/pem"
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

	configs     map[int]*Config
	backendVPCs []vpcOptions
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
		ID: id, Label: fmt.Sprintf("balancer%d", id), Region: in.Region, Type: "common", Created: now(), Updated: now(), Tags: []string{},
		Transfer: map[string]any{"in": nil, "out": nil, "total": nil}, FrontendType: "public", configs: map[int]*Config{},
		backendVPCs: append(in.BackendVPCs, in.VPCs...),
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
	n := nb.ID - 1000
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
			if len(t) < 3 || len(t) > 50 {
				return invalid("tags", "Tags must be between 3 and 50 characters")
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
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.nodeBalancers[id])
}

// newConfig adds a port. Nodes in the request are not stored here.
func (s *Sim) newConfig(nb *NodeBalancer, in configRequest, place string) (*Config, error) {
	c := &Config{
		ID: s.next(), Port: 80, Protocol: "http", Algorithm: "roundrobin", Check: "none", CheckInterval: 5, CheckTimeout: 3, CheckAttempts: 3,
		CheckPassive:  true,
		ProxyProtocol: "none", CipherSuite: "recommended", NodeBalancerID: nb.ID, NodesStatus: map[string]int{"up": 0, "down": 0},
		UDPCheckPort: 80, UDPTimeout: 16,
		nodes: map[int]*Node{},
	}
	if in.Protocol != nil && *in.Protocol == "udp" {
		c.CheckPassive, c.CipherSuite = false, "none"
	}
	if err := setConfig(nb, c, in, place, true); err != nil {
		return nil, err
	}
	nb.configs[c.ID] = c
	return c, nil
}

// setConfig takes over a request, and checks the outcome as the API does.
func setConfig(nb *NodeBalancer, c *Config, in configRequest, place string, isNew bool) error {
	n := *c
	for _, f := range []struct {
		into *string
		from *string
	}{
		{&n.Protocol, in.Protocol},
		{&n.Algorithm, in.Algorithm},
		{&n.Check, in.Check},
		{&n.CheckPath, in.CheckPath},
		{&n.CheckBody, in.CheckBody},
		{&n.ProxyProtocol, in.ProxyProtocol},
		{&n.CipherSuite, in.CipherSuite},
	} {
		if f.from != nil {
			*f.into = *f.from
		}
	}
	for _, f := range []struct{ into, from *int }{
		{&n.Port, in.Port},
		{&n.CheckInterval, in.CheckInterval},
		{&n.CheckTimeout, in.CheckTimeout},
		{&n.CheckAttempts, in.CheckAttempts},
		{&n.UDPCheckPort, in.UDPCheckPort},
		{&n.UDPTimeout, in.UDPTimeout},
	} {
		if f.from != nil {
			*f.into = *f.from
		}
	}
	if in.CheckPassive != nil {
		n.CheckPassive = *in.CheckPassive
	}
	switch {
	case in.Stickiness != nil:
		n.Stickiness = *in.Stickiness
	case isNew || n.Protocol != c.Protocol:
		n.Stickiness = map[string]string{"http": "table", "https": "table", "udp": "session", "tcp": "none"}[n.Protocol]
	}
	if in.SSLCert != nil && *in.SSLCert != "" {
		block, _ := pem.Decode([]byte(*in.SSLCert))
		if block == nil || in.SSLKey == nil || *in.SSLKey == "" {
			return invalid(place+"ssl_cert", "Unable to read certificate")
		}
		sum := sha1.Sum(block.Bytes) //nolint:gosec // see the import
		n.SSLFingerprint = strings.TrimSuffix(strings.ToUpper(regexp.MustCompile(`(..)`).ReplaceAllString(hex.EncodeToString(sum[:]), "$1:")), ":")
		n.SSLCommonName, n.SSLCert, n.SSLKey = "www.example.com", redacted(), redacted()
	}
	if err := checkConfig(nb, &n, place); err != nil {
		return err
	}
	*c = n
	return nil
}

func checkConfig(nb *NodeBalancer, c *Config, place string) error {
	among := func(field, value string, legal ...string) error {
		if !slices.Contains(legal, value) {
			return invalid(place+field, "%s is not valid", value)
		}
		return nil
	}
	algorithms, stickiness := []string{"roundrobin", "leastconn", "source"}, []string{"none", "table", "http_cookie"}
	if c.Protocol == "udp" {
		algorithms, stickiness = []string{"roundrobin", "leastconn", "ring_hash"}, []string{"none", "session", "source_ip"}
	}
	for _, err := range []error{
		among("protocol", c.Protocol, "http", "https", "tcp", "udp"), among("algorithm", c.Algorithm, algorithms...),
		among("stickiness", c.Stickiness, stickiness...), among("check", c.Check, "none", "connection", "http", "http_body"),
		among("proxy_protocol", c.ProxyProtocol, "none", "v1", "v2"),
	} {
		if err != nil {
			return err
		}
	}
	if err := checkFields(c, place); err != nil {
		return err
	}
	for _, other := range nb.configs {
		if other.ID != c.ID && other.Port == c.Port && (other.Protocol == "udp") == (c.Protocol == "udp") {
			return invalid(place+"port", "Port must be unique")
		}
	}
	return nil
}

func checkFields(c *Config, place string) error {
	for _, rule := range []struct {
		broken        bool
		field, reason string
	}{
		{c.Port < 1 || c.Port > 65535, "port", "Must be between 1 and 65535"},
		{c.CheckInterval < 2 || c.CheckInterval > 3600 || c.CheckInterval <= c.CheckTimeout, "check_interval", "Must be 2 to 3600 and greater than check_timeout"},
		{c.CheckTimeout < 1 || c.CheckTimeout > 30, "check_timeout", "Must be between 1 and 30"},
		{c.CheckAttempts < 1 || c.CheckAttempts > 30, "check_attempts", "Must be between 1 and 30"},
		{c.Protocol == "udp" && c.CheckPassive, "check_passive", "Must be false for udp"},
		{c.Protocol == "udp" && c.ProxyProtocol != "none", "proxy_protocol", "Must be none for udp"},
		{c.Protocol == "https" && c.SSLCert == nil, "ssl_cert", "ssl_cert and ssl_key are required for https"},
		{c.Check == "http_body" && c.CheckBody == "", "check_body", "check_body is required"},
		{!regexp.MustCompile(`^[a-zA-Z0-9/\-%?&=.]*$`).MatchString(c.CheckPath), "check_path", "check_path is not valid"},
	} {
		if rule.broken {
			return invalid(place+rule.field, "%s", rule.reason)
		}
	}
	return nil
}

var nodeLabelRule = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,32}$`)

func (s *Sim) newNode(nb *NodeBalancer, c *Config, in nodeRequest, place string) (*Node, error) {
	address, err := netip.ParseAddrPort(in.Address)
	switch {
	case err != nil || address.Port() == 0 || !s.knownAddress(address.Addr(), in.SubnetID):
		return nil, invalid(place+"address", "Must be in address:port format")
	case in.SubnetID != 0 && !slices.ContainsFunc(
		nb.backendVPCs, func(b vpcOptions) bool { return s.vpcOfSubnet(b.SubnetID) == s.vpcOfSubnet(in.SubnetID) },
	):
		return nil, invalid(place+"subnet_id", "The NodeBalancer is not in this VPC")
	case !nodeLabelRule.MatchString(in.Label):
		return nil, invalid(place+"label", "Label must be 3 to 32 characters")
	case in.Weight < 0 || in.Weight > 255:
		return nil, invalid(place+"weight", "Must be between 1 and 255")
	case c.Protocol == "udp" && in.Mode != "" && in.Mode != "none", c.Protocol != "udp" && !slices.Contains(
		[]string{"", "accept", "reject", "drain", "backup"}, in.Mode,
	):
		return nil, invalid(place+"mode", "mode is not valid")
	}
	n := &Node{
		ID: in.ID, Address: in.Address, Label: in.Label, Status: "Unknown", Weight: max(in.Weight, 1), Mode: in.Mode, ConfigID: c.ID,
		NodeBalancerID: nb.ID,
	}
	if n.Mode == "" {
		n.Mode = map[bool]string{true: "none", false: "accept"}[c.Protocol == "udp"]
	}
	if in.SubnetID != 0 {
		n.VPCConfigID = new(in.SubnetID)
	}
	return n, nil
}

// setNodes makes the nodes of a port those of a rebuild: with an ID kept, without added, absent removed.
func (s *Sim) setNodes(nb *NodeBalancer, c *Config, in []nodeRequest, place string) error {
	after := map[int]*Node{}
	for i, one := range in {
		n, err := s.newNode(nb, c, one, fmt.Sprintf("%snodes[%d].", place, i))
		if err != nil {
			return err
		}
		if n.ID != 0 && c.nodes[n.ID] == nil {
			return invalid(fmt.Sprintf("%snodes[%d].id", place, i), "Node not found")
		}
		for _, other := range after {
			if other.Address == n.Address {
				return invalid(fmt.Sprintf("%snodes[%d].address", place, i), "Address must be unique")
			}
		}
		if n.ID == 0 {
			n.ID = s.next()
		}
		after[n.ID] = n
	}
	c.nodes = after
	return nil
}

func (s *Sim) config(ids []string) (*NodeBalancer, *Config, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, nil, err
	}
	c, err := find(nb.configs, ids[1])
	return nb, c, err
}

func (s *Sim) listConfigs(r *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	return list(s, r, sorted(nb.configs))
}

func (s *Sim) createConfig(r *http.Request, ids []string) (any, error) {
	nb, err := find(s.nodeBalancers, ids[0])
	if err != nil {
		return nil, err
	}
	var in configRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return s.newConfig(nb, in, "")
}

func (s *Sim) getConfig(_ *http.Request, ids []string) (any, error) {
	_, c, err := s.config(ids)
	return c, err
}

func (s *Sim) updateConfig(r *http.Request, ids []string) (any, error) {
	nb, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	var in configRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return c, setConfig(nb, c, in, "", false)
}

func (s *Sim) deleteConfig(_ *http.Request, ids []string) (any, error) {
	nb, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	delete(nb.configs, c.ID)
	return struct{}{}, nil
}

func (s *Sim) rebuildConfig(r *http.Request, ids []string) (any, error) {
	nb, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	var in configRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Nodes == nil {
		return nil, invalid("nodes", "nodes is required")
	}
	before := *c
	if err := setConfig(nb, c, in, "", false); err != nil {
		return nil, err
	}
	if err := s.setNodes(nb, c, *in.Nodes, ""); err != nil {
		*c = before
		return nil, err
	}
	return c, nil
}

func (s *Sim) listNodes(r *http.Request, ids []string) (any, error) {
	_, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	return list(s, r, sorted(c.nodes))
}

func (s *Sim) getNode(_ *http.Request, ids []string) (any, error) {
	_, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	return find(c.nodes, ids[2])
}

func (s *Sim) createNode(r *http.Request, ids []string) (any, error) {
	nb, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	var in nodeRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	in.ID = 0
	n, err := s.newNode(nb, c, in, "")
	if err != nil {
		return nil, err
	}
	for _, other := range c.nodes {
		if other.Address == n.Address {
			return nil, invalid("address", "Address must be unique")
		}
	}
	n.ID = s.next()
	c.nodes[n.ID] = n
	return n, nil
}

func (s *Sim) updateNode(r *http.Request, ids []string) (any, error) {
	nb, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	old, err := find(c.nodes, ids[2])
	if err != nil {
		return nil, err
	}
	in := nodeRequest{Address: old.Address, Label: old.Label, Weight: old.Weight, Mode: old.Mode}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	in.ID = old.ID
	n, err := s.newNode(nb, c, in, "")
	if err != nil {
		return nil, err
	}
	c.nodes[n.ID] = n
	return n, nil
}

func (s *Sim) deleteNode(_ *http.Request, ids []string) (any, error) {
	_, c, err := s.config(ids)
	if err != nil {
		return nil, err
	}
	n, err := find(c.nodes, ids[2])
	if err != nil {
		return nil, err
	}
	delete(c.nodes, n.ID)
	return struct{}{}, nil
}
