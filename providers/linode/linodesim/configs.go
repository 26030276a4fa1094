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
)

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
		{c.UDPCheckPort < 1 || c.UDPCheckPort > 65535, "udp_check_port", "Must be between 1 and 65535"},
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
