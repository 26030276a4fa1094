package linode

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // the API tells certificates apart by it
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file computes the desired NodeBalancer and the calls towards it, without making calls.

const (
	labelDigits = 12
	nodeWeight  = 100
	modeAccept  = "accept"

	fieldCertificate = "ssl_cert"
)

// backend is a node as a NodeBalancer sees it.
type backend struct {
	node string
	// address is the destination of the NodeBalancer's connections; subnetID is set if it is an address in a VPC.
	address  netip.Addr
	subnetID int
}

// errNoBackends is part of the error for a Service without any usable node.
var errNoBackends = errors.New("no node can be a backend: every node is excluded, is being deleted, or has no address yet")

// label returns the label of a Service's NodeBalancer and firewall, in the form of Linode's own controller. It is the same at every try,
// so that a creation whose response was lost is found again and cannot be repeated.
func label(prefix string, service *v1.Service) string {
	digits := strings.ReplaceAll(string(service.UID), "-", "")
	return prefix + "-" + digits[:min(labelDigits, len(digits))]
}

// isMadeByController reports whether a label has the form that this program and Linode's own controller give.
func isMadeByController(prefix, text string) bool {
	rest, ok := strings.CutPrefix(text, prefix+"-")
	return ok && regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(rest)
}

// secret is the certificate and key of a port.
type secret struct {
	Cert string
	Key  privateKey
}

// privateKey is a text that no format verb prints.
type privateKey string

// Format implements fmt.Formatter.
func (privateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "<hidden>") }

// desire computes the NodeBalancer of a Service. secrets holds certificates by the names of their Secrets.
func desire(service *v1.Service, s settings, tags []string, nodes wantedNodes, secrets map[string]secret) (*desired, error) {
	configs, err := desireConfigs(service, s, nodes, secrets)
	if nodes.isEmpty() {
		err = errors.Join(err, errNoBackends)
	}
	return &desired{throttle: s.Throttle, tags: tags, configs: configs}, err
}

func desireConfigs(service *v1.Service, s settings, nodes wantedNodes, secrets map[string]secret) (configs []configFields, err error) {
	var problems []error
	for _, port := range service.Spec.Ports {
		c, err := desireConfig(port, s, secrets)
		if err != nil {
			problems = append(problems, fmt.Errorf("port %d: %w", port.Port, err))
			continue
		}
		c.Nodes = nodes.atPort(c.Protocol, port.NodePort)
		configs = append(configs, c)
	}
	return configs, errors.Join(problems...)
}

// checkService implements registry.Provider.CheckService. Named Secrets count as existing.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	c, _ := Options.Parse(in.Sources) // a missing token does not affect Services
	s, warnings, err := parseSettings(service, c)
	if err != nil {
		return warnings, err
	}
	secrets := map[string]secret{}
	for _, port := range s.ports {
		if port.TLSSecret != "" {
			secrets[port.TLSSecret] = secret{}
		}
	}
	_, err = desireConfigs(service, s, wantedNodes{}, secrets)
	if s.ACL != nil {
		_, aclErr := firewallRules(s.ACL, service, "")
		err = errors.Join(err, aclErr)
	}
	return warnings, err
}

// nodeLabel makes a node's name a label of 3 to 32 characters.
func nodeLabel(name string) string {
	if len(name) < 3 {
		name = "node-" + name
	}
	return linodelimits.NodeLabel.Cut(name)
}

// firstSet returns the first value that is set, in lower case.
func firstSet(own, fallback, builtIn string) string {
	return strings.ToLower(cmp.Or(own, fallback, builtIn))
}

func checkOneOf(place, value string, legal ...string) error {
	if slices.Contains(legal, value) {
		return nil
	}
	return &schema.Problem{Place: place, Value: value, Reason: "is not one of " + strings.Join(legal, ", ")}
}

// algorithmsOf returns the algorithms of UDP, or of the other protocols.
func algorithmsOf(udp bool) []string {
	if udp {
		return []string{algorithmRoundRobin, "leastconn", "ring_hash"}
	}
	return []string{algorithmRoundRobin, "leastconn", "source"}
}

func desireConfig(port v1.ServicePort, s settings, secrets map[string]secret) (configFields, error) {
	own := s.ports[port.Port]
	servicePort := strings.ToLower(string(port.Protocol))
	c := configFields{
		Port: int(port.Port), Protocol: firstSet(own.Protocol, s.Protocol, servicePort),
		ProxyProtocol: firstSet(own.ProxyProtocol, s.ProxyProtocol, proxyNone),
		Algorithm:     firstSet(own.Algorithm, s.Algorithm, algorithmRoundRobin),
		Check:         s.CheckType, CheckInterval: s.CheckInterval, CheckTimeout: s.CheckTimeout, CheckAttempts: s.CheckTries,
		CheckPassive: s.CheckPassive,
	}
	udp := c.Protocol == protocolUDP
	if port.NodePort == 0 {
		return c, errors.New("there is no node port; set spec.allocateLoadBalancerNodePorts to true")
	}
	if err := errors.Join(
		checkOneOf("protocol", c.Protocol, protocols()...),
		checkOneOf("proxy protocol", c.ProxyProtocol, proxies()...),
		checkOneOf("algorithm of "+c.Protocol, c.Algorithm, algorithmsOf(udp)...),
	); err != nil {
		return c, err
	}
	if udp && c.ProxyProtocol != proxyNone {
		return c, errors.New("the PROXY protocol does not go with udp")
	}
	if c.Check == "" {
		c.Check = checkConnection
		if port.Protocol == v1.ProtocolUDP {
			c.Check = checkNone
		}
	}
	if c.Check == checkHTTP || c.Check == checkHTTPBody {
		c.CheckPath = cmp.Or(s.CheckPath, "/")
	}
	if c.Check == checkHTTPBody {
		c.CheckBody = s.CheckBody
	}
	var err error
	switch c.Protocol {
	case protocolUDP:
		c.CheckPassive = false
		c.Stickiness = firstSet(own.Stickiness, s.Stickiness, "session")
		c.UDPCheckPort, err = udpCheckPort(own.UDPCheckPort, s.UDPCheckPort)
		err = errors.Join(err, checkOneOf("stickiness of udp", c.Stickiness, "none", "session", "source_ip"))
		if own.TLSSecret != "" {
			err = errors.Join(err, errors.New("a TLS secret does not go with udp"))
		}
	case protocolHTTP, protocolHTTPS:
		c.Stickiness = firstSet(own.Stickiness, s.Stickiness, "table")
		err = checkOneOf("stickiness of "+c.Protocol, c.Stickiness, "none", "table", "http_cookie")
	}
	if c.Protocol == protocolHTTPS {
		found, ok := secrets[own.TLSSecret]
		if !ok {
			err = errors.Join(err, errors.New("https needs the name of a TLS secret: set tls-secret-name in the annotation "+annotationPort+strconv.Itoa(int(port.Port))))
		}
		c.Cert, c.Key = found.Cert, found.Key
	}
	return c, err
}

func udpCheckPort(own string, fallback int) (int, error) {
	if own == "" {
		return cmp.Or(fallback, defaultUDPCheckPort), nil
	}
	n, err := strconv.ParseUint(own, 10, 16)
	if err != nil || n == 0 {
		return 0, &schema.Problem{Place: "udp-check-port", Value: own, Reason: "is not a port, which is 1 to 65535"}
	}
	return int(n), nil
}

// fingerprint is how the API shows a certificate: the SHA-1 of its DER form, in pairs of digits.
func fingerprint(cert string) string {
	block, _ := pem.Decode([]byte(cert))
	if block == nil {
		return ""
	}
	sum := sha1.Sum(block.Bytes) //nolint:gosec // see the import
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}

// step is one call to the API.
type step struct {
	kind   stepKind
	config config
	// fields are the desired values of the config; set for all changes and creations.
	fields configFields
	add    nodeOptions
	remove nodeOptions
	update nodeBalancerUpdate
	// reasons names the fields that differ.
	reasons []string
}

type stepKind string

const (
	updateBalancer stepKind = "update"
	deletePort     stepKind = "delete port"
	createPort     stepKind = "create port"
	updatePort     stepKind = "update port"
	rebuildPort    stepKind = "rebuild port"
	addNode        stepKind = "add node"
	removeNode     stepKind = "remove node"
)

// title names a step with its port.
func (s step) title() string {
	port := cmp.Or(s.fields.Port, s.config.Port)
	switch s.kind {
	case updateBalancer:
		return string(s.kind)
	case addNode:
		return fmt.Sprintf("%s to port %d", s.kind, port)
	case removeNode:
		return fmt.Sprintf("%s from port %d", s.kind, port)
	case deletePort, createPort, updatePort, rebuildPort:
	}
	return fmt.Sprintf("%s %d", s.kind, port)
}

// plan returns the calls from the observed to the desired NodeBalancer. Deletions of ports come first: a new one may take the number of an
// old one.
func plan(nb *nodeBalancer, have *details, want *desired) []step {
	var steps []step
	if reasons := balancerDifferences(nb, want); len(reasons) > 0 {
		update := nodeBalancerUpdate{Label: nb.Label, Throttle: want.throttle, Tags: withMarks(want.tags, nb.Tags)}
		steps = append(steps, step{kind: updateBalancer, reasons: reasons, update: update})
	}
	var later []step
	matched := map[int]bool{}
	for _, fields := range want.configs {
		i := slices.IndexFunc(have.configs, func(c config) bool { return !matched[c.ID] && samePort(c, fields) })
		if i < 0 {
			later = append(later, step{kind: createPort, fields: fields})
			continue
		}
		matched[have.configs[i].ID] = true
		later = append(later, planPort(have.configs[i], fields)...)
	}
	for _, c := range have.configs {
		if !matched[c.ID] {
			steps = append(steps, step{kind: deletePort, config: c})
		}
	}
	return append(steps, later...)
}

// keepObserved returns the present fields of a config, with the desired nodes, UDP check port and certificate.
func keepObserved(c config, f configFields) configFields {
	kept := configFields{
		Port: c.Port, Protocol: string(c.Protocol), ProxyProtocol: string(c.ProxyProtocol),
		Algorithm: string(c.Algorithm), Stickiness: string(c.Stickiness),
		Check: string(c.Check), CheckInterval: c.CheckInterval, CheckTimeout: c.CheckTimeout, CheckAttempts: c.CheckAttempts,
		CheckPassive: c.CheckPassive, CheckPath: c.CheckPath, CheckBody: c.CheckBody, UDPCheckPort: f.UDPCheckPort,
		Cert: f.Cert, Key: f.Key, Nodes: f.Nodes,
	}
	if kept.Protocol != protocolUDP {
		kept.UDPCheckPort = 0
	}
	return kept
}

// samePort reports whether a config is that of a desired port. A port number may have two configs, one of them for UDP.
func samePort(c config, f configFields) bool {
	return c.Port == f.Port && (c.Protocol == linodego.ProtocolUDP) == (f.Protocol == protocolUDP)
}

// planPort returns at most one call for a port: adding or removing a single node, changing the config, or a rebuild with all nodes.
func planPort(c config, f configFields) []step {
	reasons := configDifferences(c, f)
	d := c.nodes.compareWith(f.Nodes)
	switch changes := d.count(); {
	case changes == 0 && len(reasons) == 0:
		return nil
	case changes == 0:
		return []step{{kind: updatePort, config: c, fields: f, reasons: reasons}}
	case changes == 1 && len(reasons) == 0 && len(d.add) == 1:
		return []step{{kind: addNode, config: c, fields: f, add: f.Nodes.nodeAt(d.add[0]), reasons: []string{"nodes"}}}
	case changes == 1 && len(reasons) == 0 && len(d.remove) == 1:
		return []step{{kind: removeNode, config: c, fields: f, remove: c.nodes.nodeAt(d.remove[0]), reasons: []string{"nodes"}}}
	}
	return []step{{kind: rebuildPort, config: c, fields: withIDs(c, f), reasons: append(reasons, "nodes")}}
}

// withIDs adds the IDs of existing nodes, so that their connections survive the rebuild.
func withIDs(c config, f configFields) configFields {
	known := map[string]int{}
	for n := range c.nodes.entries() {
		known[n.Address] = n.ID
	}
	f.Nodes.ids = make([]int, len(f.Nodes.rows))
	for i := range f.Nodes.ids {
		f.Nodes.ids[i] = known[f.Nodes.nodeAt(i).Address]
	}
	return f
}

// configDifferences names the differing fields of a config except its nodes.
func configDifferences(c config, f configFields) []string {
	var fields []string
	differ := func(field string, different bool) {
		if different {
			fields = append(fields, field)
		}
	}
	udp := f.Protocol == protocolUDP
	differ("protocol", string(c.Protocol) != f.Protocol)
	differ("proxy_protocol", f.Protocol == protocolTCP && cmp.Or(string(c.ProxyProtocol), proxyNone) != f.ProxyProtocol)
	differ("algorithm", string(c.Algorithm) != f.Algorithm)
	differ("stickiness", f.Stickiness != "" && string(c.Stickiness) != f.Stickiness)
	differ("check", string(c.Check) != f.Check)
	differ("check_interval", c.CheckInterval != f.CheckInterval)
	differ("check_timeout", c.CheckTimeout != f.CheckTimeout)
	differ("check_attempts", c.CheckAttempts != f.CheckAttempts)
	differ("check_passive", c.CheckPassive != f.CheckPassive)
	differ("check_path", f.CheckPath != "" && c.CheckPath != f.CheckPath)
	differ("check_body", f.CheckBody != "" && c.CheckBody != f.CheckBody)
	differ("udp_check_port", udp && c.UDPCheckPort != f.UDPCheckPort)
	differ(fieldCertificate, f.Protocol == protocolHTTPS && f.Cert != "" && !strings.EqualFold(c.SSLFingerprint, fingerprint(f.Cert)))
	return fields
}

func balancerDifferences(nb *nodeBalancer, want *desired) []string {
	var fields []string
	if nb.Throttle != want.throttle {
		fields = append(fields, "client_conn_throttle")
	}
	if !services.SameSet(nb.Tags, withMarks(want.tags, nb.Tags)) {
		fields = append(fields, "tags")
	}
	return fields
}

// withMarks returns tags, and the marks among the tags that an object has.
func withMarks(tags, have []string) []string {
	all := slices.Clone(tags)
	for _, t := range have {
		if ownership.IsMark(t) && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// tagsOf returns the tags of a NodeBalancer in the order of Linode's own controller.
func tagsOf(cluster string, c Config, s settings) []string {
	if cluster == "" {
		return slices.Concat(c.Tags, s.Tags)
	}
	return slices.Concat([]string{cluster}, c.Tags, s.Tags)
}

// status returns the addresses for the status of the Service.
func status(nb *nodeBalancer, s settings) *v1.LoadBalancerStatus {
	if s.HostnameOnly {
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: nb.Hostname}}}
	}
	st := &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: nb.Hostname, IP: nb.IPv4}}}
	if s.IPv6Ingress && nb.IPv6 != "" {
		st.Ingress = append(st.Ingress, v1.LoadBalancerIngress{Hostname: nb.Hostname, IP: nb.IPv6})
	}
	return st
}
