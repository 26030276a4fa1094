package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	providerIDPrefix = "openstack://"

	// statusShutOff is Nova's only status for a powered-off server.
	statusShutOff = "SHUTOFF"
	portActive    = "ACTIVE"

	// callPrice and minAge limit the cost of nodes that are not ready: all share one listing.
	callPrice = 5 * time.Second
	minAge    = 15 * time.Second
	// missMaxAge bounds the age of a proof that a port or network is missing.
	missMaxAge = nodes.MissMaxAge
	// readPatience bounds how long nodes wait for a single read, because one attempt may take a minute.
	readPatience = 5 * time.Second
	// networksMaxAge is for objects that only administrators change: networks, subnets, flavors.
	networksMaxAge = 10 * time.Minute

	indexName   = "name"
	indexDevice = "device"
	indexGroup  = "security group"
)

type address struct {
	network, ip string
	floating    bool
}

// server keeps the fields that are needed after a listing.
type server struct {
	id, name, status, zone string
	flavorID, flavorName   string
	accessIPv4, accessIPv6 string
	metadata               map[string]string
	addresses              []address
}

// serverBody is Nova's representation of a server.
type serverBody struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Zone       string            `json:"OS-EXT-AZ:availability_zone"`
	AccessIPv4 string            `json:"accessIPv4"`
	AccessIPv6 string            `json:"accessIPv6"`
	Metadata   map[string]string `json:"metadata"`
	Flavor     struct {
		ID           string `json:"id"`
		OriginalName string `json:"original_name"`
	} `json:"flavor"`
	Addresses map[string][]struct {
		Addr string `json:"addr"`
		Type string `json:"OS-EXT-IPS:type"`
	} `json:"addresses"`
}

func newServer(b serverBody) server {
	kept := server{
		id: b.ID, name: b.Name, status: b.Status, zone: b.Zone, flavorID: b.Flavor.ID, flavorName: b.Flavor.OriginalName,
		accessIPv4: b.AccessIPv4, accessIPv6: b.AccessIPv6, metadata: b.Metadata,
	}
	for _, name := range slices.Sorted(maps.Keys(b.Addresses)) {
		for _, a := range b.Addresses[name] {
			kept.addresses = append(kept.addresses, address{network: name, ip: a.Addr, floating: a.Type == "floating"})
		}
	}
	return kept
}

// port is a Neutron port.
type port struct {
	ID             string        `json:"id"`
	NetworkID      string        `json:"network_id"`
	Status         string        `json:"status"`
	DeviceID       string        `json:"device_id"`
	FixedIPs       []fixedIP     `json:"fixed_ips"`
	SecurityGroups []string      `json:"security_groups"`
	AddressPairs   []addressPair `json:"allowed_address_pairs"`
	PortSecurity   *bool         `json:"port_security_enabled"`
	Revision       int           `json:"revision_number"`
	Trunk          *struct {
		SubPorts []struct {
			PortID string `json:"port_id"`
		} `json:"sub_ports"`
	} `json:"trunk_details"`
}

type fixedIP struct {
	SubnetID string `json:"subnet_id"`
	Address  string `json:"ip_address"`
}

type addressPair struct {
	Address string `json:"ip_address"`
	MAC     string `json:"mac_address,omitempty"`
}

// hasPortSecurity reports whether security groups apply. Without the extension Neutron omits the field, and they apply.
func (p *port) hasPortSecurity() bool { return p.PortSecurity == nil || *p.PortSecurity }

// subnetOf returns the subnet of one of the port's addresses, or "".
func (p *port) subnetOf(ip string) string {
	for _, f := range p.FixedIPs {
		if f.Address == ip {
			return f.SubnetID
		}
	}
	return ""
}

// isSame reports whether both are the same port, as it may be at different times.
func (p *port) isSame(other *port) bool { return p.ID == other.ID }

func (p *port) hasAddress(ip string) bool { return p.subnetOf(ip) != "" }

// instances describes nodes by their servers and ports.
type instances struct {
	*nodes.Instances[string, server]
	config   Config
	api      *api
	servers  *inventory.Inventory[string, server]
	ports    *inventory.Inventory[string, *port]
	networks *networks
	nodes    *nodecount.Counter

	// flavors holds names by ID. A flavor's name never changes.
	flavors sync.Map
}

func newInstances(c Config, a *api, n *networks) *instances {
	i := &instances{
		config: c, api: a, networks: n, nodes: &nodecount.Counter{},
		servers: inventory.New(inventory.Source[string, server]{
			Kind: "server", Patience: readPatience, ID: func(s server) string { return s.id }, List: a.listServers, Get: a.getServer,
			Indexes: nodes.NameIndexes(func(s server) string { return s.name }),
		}),
	}
	ports := sourceOf(a, network, "port", "ports", func(p *port) string { return p.ID })
	ports.Patience = readPatience
	ports.Indexes = map[string]func(*port) []string{
		indexDevice: func(p *port) []string { return []string{p.DeviceID} },
		indexGroup:  func(p *port) []string { return p.SecurityGroups },
	}
	i.ports = inventory.New(ports)
	i.Instances = nodes.New(nodes.Cloud[string, server]{
		Kind: "server", Inventory: i.servers, Nodes: i.nodes, Price: callPrice, MinAge: minAge,
		Form: providerIDPrefix + "/<server ID>", Parse: c.parseProviderID, Print: i.providerID,
		Search: i.search, State: server.state, Metadata: i.describe, Verify: i.verify, Attested: server.attested,
		Tags: func(s server) map[string]string { return s.metadata },
	})
	return i
}

func (a *api) listServers(ctx context.Context) ([]server, int, error) {
	bodies, pages, err := withoutMicroversion(ctx, a, func() ([]serverBody, int, error) {
		return listAll[serverBody](ctx, a, compute, "servers/detail", "servers", listQuery())
	})
	list := make([]server, len(bodies))
	for i, b := range bodies {
		list[i] = newServer(b)
	}
	return list, pages, err
}

func (a *api) getServer(ctx context.Context, id string) (server, error) {
	b, _, err := withoutMicroversion(ctx, a, func() (*serverBody, int, error) {
		b, err := get(ctx, a, compute, "reading server "+id, "servers/"+id, "server", func(b *serverBody) bool { return b.ID == id })
		return b, 1, err
	})
	if err != nil {
		return server{}, err
	}
	return newServer(*b), nil
}

// withoutMicroversion repeats a call without embedded flavors if Nova is too old.
func withoutMicroversion[T any](ctx context.Context, a *api, read func() (T, int, error)) (T, int, error) {
	v, pages, err := read()
	if e, ok := errors.AsType[*cloudapi.Error](err); !ok || e.Status != http.StatusNotAcceptable {
		return v, pages, err
	}
	client, serviceErr := a.service(ctx, compute)
	if serviceErr != nil {
		return v, pages, serviceErr
	}
	a.mu.Lock()
	a.noMicroversion = true
	without := *client
	without.Microversion = ""
	a.services[compute] = &without
	a.mu.Unlock()
	return read()
}

// search finds a server by name.
func (*instances) search(_ context.Context, node *v1.Node) (nodes.Search[string, server], error) {
	return nodes.Search[string, server]{Keys: nodes.NameKeys[server](node)}, nil
}

func (s server) state() (nodes.State, error) {
	if s.status == statusShutOff {
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

// attested leaves out accessIPv4, accessIPv6 and metadata, because users can set them freely.
func (s server) attested() contract.Attested {
	a := contract.Attested{Names: []string{s.name}}
	for _, one := range s.addresses {
		a.Addresses = append(a.Addresses, contract.AttestedAddresses(one.ip)...)
	}
	return a
}

func (i *instances) providerID(s server) string {
	if i.config.Regional {
		return providerIDPrefix + i.config.Global.Region + "/" + s.id
	}
	return providerIDPrefix + "/" + s.id
}

// verify compares names, ignoring case.
func (*instances) verify(_ context.Context, node *v1.Node, s server) (why string, err error) {
	if !strings.EqualFold(s.name, node.Name) {
		return fmt.Sprintf("server %s is named %q and not like the Node", s.id, s.name), nil
	}
	return "", nil
}

func (i *instances) describe(ctx context.Context, _ *v1.Node, s server, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	ports, err := i.portsOf(ctx, s.id, q)
	if err != nil {
		return nil, err
	}
	trunked, err := i.trunkAddresses(ctx, ports, q)
	if err != nil {
		return nil, err
	}
	flavor, err := i.flavor(ctx, s)
	if err != nil {
		return nil, err
	}
	m := &cloudprovider.InstanceMetadata{
		InstanceType: flavor, Zone: sanitize(s.zone), Region: i.config.Global.Region,
		NodeAddresses: nodeAddresses(s, ports, trunked, i.config.Networking),
	}
	if len(m.NodeAddresses) == 0 {
		return nil, &nodes.Incomplete{Reason: "its server has no usable address yet; check its ports, and internal-network-name", Metadata: m}
	}
	return m, nil
}

// portsOf returns a server's ports sorted by ID, because Neutron's order varies.
func (i *instances) portsOf(ctx context.Context, serverID string, q inventory.Query) ([]*port, error) {
	q.MaxMissAge = max(q.MaxMissAge, missMaxAge)
	found, err := i.ports.Find(ctx, indexDevice, serverID, q)
	slices.SortFunc(found, func(a, b *port) int { return strings.Compare(a.ID, b.ID) })
	return found, err
}

// trunkAddresses returns the addresses of ports inside trunks, with the names of their networks.
func (i *instances) trunkAddresses(ctx context.Context, ports []*port, q inventory.Query) ([]address, error) {
	var list []address
	for _, p := range ports {
		if p.Trunk == nil {
			continue
		}
		for _, sub := range p.Trunk.SubPorts {
			inner, err := i.ports.Get(ctx, sub.PortID, q)
			if errors.Is(err, cloudapi.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			n, err := i.networks.network(ctx, inner.NetworkID)
			if err != nil {
				return nil, err
			}
			for _, f := range inner.FixedIPs {
				list = append(list, address{network: n.Name, ip: f.Address})
			}
		}
	}
	return list, nil
}

// flavor returns the instance type: the flavor's name, or its ID if the name is no valid label value.
func (i *instances) flavor(ctx context.Context, s server) (string, error) {
	if validLabel(s.flavorName) {
		return s.flavorName, nil
	}
	key := cmp.Or(s.flavorID, "name "+s.flavorName)
	stored, _ := i.flavors.Load(key)
	if name, _ := stored.(string); name != "" {
		return name, nil
	}
	type body struct{ ID, Name string }
	found := body{ID: s.flavorID}
	if s.flavorID != "" {
		b, err := get(ctx, i.api, compute, "reading flavor "+s.flavorID, "flavors/"+s.flavorID, "flavor", func(b *body) bool { return b.ID == s.flavorID })
		switch {
		case err == nil:
			found = *b
		case !errors.Is(err, cloudapi.ErrNotFound):
			return "", err
		}
	} else {
		all, _, err := listAll[body](ctx, i.api, compute, "flavors/detail", "flavors", listQuery())
		if err != nil {
			return "", err
		}
		if n := slices.IndexFunc(all, func(b body) bool { return b.Name == s.flavorName }); n >= 0 {
			found = all[n]
		}
	}
	kind := found.Name
	for _, other := range []string{found.ID, sanitize(cmp.Or(found.Name, s.flavorName))} {
		if !validLabel(kind) {
			kind = other // a deleted flavor has at most an ID
		}
	}
	i.flavors.Store(key, kind)
	return kind, nil
}

func validLabel(v string) bool { return v != "" && len(validation.IsValidLabelValue(v)) == 0 }

var outsideLabels = regexp.MustCompile(`[^-a-zA-Z0-9_.]+`)

// sanitize turns any text into a label value.
func sanitize(v string) string {
	v = strings.Trim(outsideLabels.ReplaceAllString(v, "-"), "-_.")
	return strings.TrimRight(v[:min(len(v), validation.LabelValueMaxLength)], "-_.")
}

// nodeAddresses follows the rules of OpenStack's own controller.
func nodeAddresses(s server, ports []*port, trunked []address, c networking) []v1.NodeAddress {
	var list []v1.NodeAddress
	add := func(kind v1.NodeAddressType, ip string) {
		a := v1.NodeAddress{Type: kind, Address: ip}
		if ip != "" && !slices.Contains(list, a) && (!c.IPv6Disabled || kind == v1.NodeHostName || !isIPv6(ip)) {
			list = append(list, a)
		}
	}
	remove := func(ip string) {
		list = slices.DeleteFunc(list, func(a v1.NodeAddress) bool { return a.Address == ip })
	}
	for _, p := range ports {
		for _, f := range p.FixedIPs {
			if p.Status == portActive {
				add(v1.NodeInternalIP, f.Address)
			}
		}
	}
	add(v1.NodeExternalIP, s.accessIPv4)
	add(v1.NodeExternalIP, s.accessIPv6)
	add(v1.NodeHostName, s.metadata["hostname"])
	all := slices.Concat(s.addresses, trunked)
	slices.SortStableFunc(all, func(a, b address) int { return strings.Compare(a.network, b.network) })
	for _, a := range all {
		switch {
		case a.floating:
			add(v1.NodeExternalIP, a.ip)
		case slices.Contains(c.PublicNetworks, a.network):
			remove(a.ip)
			add(v1.NodeExternalIP, a.ip)
		case len(c.InternalNetworks) == 0 || slices.Contains(c.InternalNetworks, a.network):
			add(v1.NodeInternalIP, a.ip)
		default:
			remove(a.ip)
		}
	}
	return sortAddresses(list, c.SortOrder)
}

func isIPv6(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is6() && !a.Is4In6()
}

// sortAddresses sorts addresses by the configured networks, and by number within each. Others keep their order at the end.
func sortAddresses(list []v1.NodeAddress, order string) []v1.NodeAddress {
	var prefixes []netip.Prefix
	for _, one := range splitOrder(order) {
		if p, err := netip.ParsePrefix(one); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	rank := func(a v1.NodeAddress) (int, netip.Addr) {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			return len(prefixes), ip
		}
		for n, p := range prefixes {
			if p.Contains(ip) {
				return n, ip
			}
		}
		return len(prefixes), ip
	}
	slices.SortStableFunc(list, func(a, b v1.NodeAddress) int {
		rankA, ipA := rank(a)
		rankB, ipB := rank(b)
		if rankA != rankB || rankA == len(prefixes) {
			return rankA - rankB
		}
		return ipA.Compare(ipB)
	})
	return list
}

var providerIDForm = regexp.MustCompile(`^openstack://([^/]*)/([^/]+)$`)

// instanceKey returns the server ID of a provider ID in any form, "" for another cloud, and a malformed provider ID unchanged.
func instanceKey(text string) string {
	full := text
	if !strings.Contains(text, "://") {
		full = providerIDPrefix + text
	}
	if m := providerIDForm.FindStringSubmatch(full); m != nil {
		return m[2]
	}
	if strings.HasPrefix(text, providerIDPrefix) {
		return text
	}
	return ""
}

// parseProviderID returns the server ID of a provider ID. Early kubelets omitted the scheme.
func (c Config) parseProviderID(text string) (string, error) {
	full := text
	if !strings.Contains(text, "://") && strings.Contains(text, "/") {
		full = providerIDPrefix + text
	}
	m := providerIDForm.FindStringSubmatch(full)
	switch {
	case m == nil:
		return "", fmt.Errorf("provider ID %q does not have the form %sregion/server-ID, with the region or without it", text, providerIDPrefix)
	case m[1] != "" && m[1] != c.Global.Region:
		return "", fmt.Errorf("provider ID %q is of region %s; this controller serves region %q", text, m[1], c.Global.Region)
	}
	if !identifier.MatchString(m[2]) {
		return "", fmt.Errorf("provider ID %q does not end with the ID of a server, which is a UUID", text)
	}
	return m[2], nil
}
