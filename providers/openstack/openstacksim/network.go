package openstacksim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
)

// Network is a layer 2 network.
type Network struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Subnets  []string `json:"subnets"`
	External bool     `json:"router:external"`
	Shared   bool     `json:"shared"`
	Tenant   string   `json:"tenant_id"`
	Status   string   `json:"status"`
}

// Subnet is a block of addresses.
type Subnet struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	NetworkID string   `json:"network_id"`
	CIDR      string   `json:"cidr"`
	IPVersion int      `json:"ip_version"`
	Gateway   string   `json:"gateway_ip"`
	Tags      []string `json:"tags"`
	Tenant    string   `json:"tenant_id"`

	next netip.Addr
	full bool
}

// FixedIP is an address of a port.
type FixedIP struct {
	SubnetID string `json:"subnet_id"`
	Address  string `json:"ip_address"`
}

// AddressPair is an address besides its own from which a port may send.
type AddressPair struct {
	Address string `json:"ip_address"`
	MAC     string `json:"mac_address,omitempty"`
}

// SubPort is a port inside a trunk.
type SubPort struct {
	PortID string `json:"port_id"`
	ID     int    `json:"segmentation_id"`
	Type   string `json:"segmentation_type"`
	MAC    string `json:"mac_address"`
}

// Trunk is the trunk_details field of a parent port.
type Trunk struct {
	ID       string    `json:"trunk_id"`
	SubPorts []SubPort `json:"sub_ports"`
}

// Port is a connection of a device to a network.
type Port struct {
	ID             string        `json:"id"`
	Name           string        `json:"name"`
	NetworkID      string        `json:"network_id"`
	Status         string        `json:"status"`
	DeviceID       string        `json:"device_id"`
	DeviceOwner    string        `json:"device_owner"`
	MAC            string        `json:"mac_address"`
	FixedIPs       []FixedIP     `json:"fixed_ips"`
	SecurityGroups []string      `json:"security_groups"`
	AddressPairs   []AddressPair `json:"allowed_address_pairs"`
	PortSecurity   bool          `json:"port_security_enabled"`
	Tags           []string      `json:"tags"`
	Revision       int           `json:"revision_number"`
	Trunk          *Trunk        `json:"trunk_details,omitempty"`
	Tenant         string        `json:"tenant_id"`
}

// Route is a static route of a router.
type Route struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

// Router connects networks.
type Router struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Routes   []Route `json:"routes"`
	Revision int     `json:"revision_number"`
	Tenant   string  `json:"tenant_id"`

	external string
}

// AddNetwork adds a network without subnets and returns its ID.
func (s *Sim) AddNetwork(name string, external bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID(0x0e)
	s.networks.Put(id, &Network{ID: id, Name: name, Subnets: []string{}, External: external, Tenant: Project, Status: "ACTIVE"})
	return id
}

// AddSubnet adds a subnet to a network and returns its ID.
func (s *Sim) AddSubnet(network, name, cidr string, tags ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := netip.MustParsePrefix(cidr)
	version := 4
	if prefix.Addr().Is6() {
		version = 6
	}
	id := s.newID(0x5b)
	gateway := prefix.Masked().Addr().Next()
	s.subnets.Put(
		id,
		&Subnet{
			ID: id, Name: name, NetworkID: network, CIDR: cidr, IPVersion: version, Gateway: gateway.String(), Tags: append([]string{}, tags...),
			Tenant: Project, next: gateway.Next(),
		},
	)
	n := s.networks.ByID[network]
	n.Subnets = append(n.Subnets, id)
	return id
}

// ExhaustSubnet lets a subnet have no address left.
func (s *Sim) ExhaustSubnet(id string) { s.mu.Do(func() { s.subnets.ByID[id].full = true }) }

// AddRouter connects an external network with others and returns the router's ID.
func (s *Sim) AddRouter(name, external string, networks ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID(0x70)
	s.routers.Put(id, &Router{ID: id, Name: name, Routes: []Route{}, Revision: 1, Tenant: Project, external: external})
	for _, n := range networks {
		for _, sub := range s.subnets.All() {
			if sub.NetworkID == n {
				s.addPortLocked(&Port{NetworkID: n, DeviceID: id, DeviceOwner: "network:router_interface", FixedIPs: []FixedIP{{sub.ID, sub.Gateway}}})
			}
		}
	}
	return id
}

// AddPort adds a port and returns its ID.
func (s *Sim) AddPort(p Port) string {
	return simkit.Get(&s.mu, func() string { return s.addPortLocked(&p).ID })
}

func (s *Sim) addPortLocked(p *Port) *Port {
	p.ID, p.Tenant, p.Revision = s.newID(0x9a), Project, 1
	p.MAC = fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", s.serial>>16&0xff, s.serial>>8&0xff, s.serial&0xff)
	if p.Status == "" {
		p.Status = "ACTIVE"
	}
	p.SecurityGroups, p.Tags = append([]string{}, p.SecurityGroups...), append([]string{}, p.Tags...)
	p.AddressPairs = append([]AddressPair{}, p.AddressPairs...)
	if p.FixedIPs == nil {
		p.FixedIPs = []FixedIP{}
	}
	s.ports.Put(p.ID, p)
	return p
}

// ChangePort changes a port behind the API's back.
func (s *Sim) ChangePort(id string, change func(*Port)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.ports.ByID[id])
	s.ports.ByID[id].Revision++
}

// Ports returns all ports.
func (s *Sim) Ports() []Port { return copiesOf(s, &s.ports) }

// Routers returns all routers.
func (s *Sim) Routers() []Router { return copiesOf(s, &s.routers) }

// Networks returns all networks.
func (s *Sim) Networks() []Network { return copiesOf(s, &s.networks) }

// Subnets returns all subnets.
func (s *Sim) Subnets() []Subnet { return copiesOf(s, &s.subnets) }

func copiesOf[T any](s *Sim, t *simkit.Table[string, T]) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	list := []T{}
	for _, v := range t.All() {
		list = append(list, *v)
	}
	return list
}

// ChangeRouter changes a router behind the API's back.
func (s *Sim) ChangeRouter(id string, change func(*Router)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.routers.ByID[id])
	s.routers.ByID[id].Revision++
}

// SetExtensions says which extensions Neutron has.
func (s *Sim) SetExtensions(aliases ...string) { s.mu.Do(func() { s.extensions = aliases }) }

// SetPageLimit bounds the pages of all listings, as pagination_max_limit does; 0 is without a bound.
func (s *Sim) SetPageLimit(n int) { s.mu.Do(func() { s.pageLimit = n }) }

// allocate takes the next free address of a subnet; "" if there is none.
func (s *Sim) allocate(sub *Subnet) string {
	prefix := netip.MustParsePrefix(sub.CIDR)
	for ; prefix.Contains(sub.next) && !sub.full; sub.next = sub.next.Next() {
		if !s.inUse(sub.next.String()) {
			taken := sub.next.String()
			sub.next = sub.next.Next()
			return taken
		}
	}
	return ""
}

func (s *Sim) inUse(address string) bool {
	return slices.ContainsFunc(s.ports.All(), func(p *Port) bool {
		return slices.ContainsFunc(p.FixedIPs, func(f FixedIP) bool { return f.Address == address })
	}) || slices.ContainsFunc(s.floating.All(), func(f *FloatingIP) bool { return f.Address == address })
}

// removePort deletes a port; a floating address that it had becomes free.
func (s *Sim) removePort(id string) {
	s.ports.Remove(id)
	for _, f := range s.floating.All() {
		if deref(f.PortID) == id {
			f.PortID, f.FixedIP, f.RouterID, f.Status = nil, nil, nil, "DOWN"
		}
	}
}

func (s *Sim) network(w http.ResponseWriter, r *http.Request, rest string) error {
	if rest == "" {
		write(
			w, http.StatusOK,
			map[string]any{
				"versions": []any{
					map[string]any{
						"id": "v2.0", "status": "CURRENT",
						"links": []any{map[string]string{"rel": "self", "href": "http://" + r.Host + networkPath + "/v2.0/"}},
					},
				},
			},
		)
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(rest, "v2.0/"), "/")
	kind, id, action := parts[0], "", ""
	if len(parts) > 1 {
		id = parts[1]
	}
	if len(parts) > 2 {
		action = parts[2]
	}
	handler := map[string]func(http.ResponseWriter, *http.Request, string, string) error{
		"extensions": s.serveExtensions, "networks": s.serveNetworks, "subnets": s.serveSubnets, "ports": s.servePorts, "floatingips": s.serveFloatingIPs,
		"security-groups": s.serveGroups, "security-group-rules": s.serveRules, "routers": s.serveRouters,
	}[kind]
	if handler == nil {
		return failure(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	return handler(w, r, id, action)
}

func (s *Sim) serveExtensions(w http.ResponseWriter, _ *http.Request, _, _ string) error {
	list := []any{}
	for _, alias := range s.extensions {
		list = append(list, map[string]any{"alias": alias, "name": alias, "description": "", "updated": "2026-01-01T00:00:00-00:00", "links": []any{}})
	}
	write(w, http.StatusOK, map[string]any{"extensions": list})
	return nil
}

func (s *Sim) serveNetworks(w http.ResponseWriter, r *http.Request, id, _ string) error {
	if id == "" {
		return s.listing(w, r, "networks", anys(s.networks.All()), equalFilter)
	}
	n := s.networks.ByID[id]
	if n == nil {
		return notFound("NetworkNotFound", "Network", id)
	}
	write(w, http.StatusOK, map[string]any{"network": n})
	return nil
}

func (s *Sim) serveSubnets(w http.ResponseWriter, r *http.Request, id, _ string) error {
	if id == "" {
		return s.listing(w, r, "subnets", anys(s.subnets.All()), tagFilter)
	}
	sub := s.subnets.ByID[id]
	if sub == nil {
		return notFound("SubnetNotFound", "Subnet", id)
	}
	write(w, http.StatusOK, map[string]any{"subnet": sub})
	return nil
}

// tagFilter knows the filters by tag, with the meaning that the API reference of Neutron gives them.
func tagFilter(object map[string]any, name, value string) (bool, error) {
	if !strings.HasSuffix(name, "tags") && !strings.HasSuffix(name, "tags-any") {
		return equalFilter(object, name, value)
	}
	have, _ := object["tags"].([]any)
	found := 0
	wanted := strings.Split(value, ",")
	for _, t := range wanted {
		if slices.Contains(have, any(t)) {
			found++
		}
	}
	switch name {
	case "tags":
		return found == len(wanted), nil
	case "tags-any":
		return found > 0, nil
	case "not-tags":
		return found < len(wanted), nil
	default:
		return found == 0, nil
	}
}

func portFilter(object map[string]any, name, value string) (bool, error) {
	list, _ := object[name].([]any)
	switch name {
	case "fixed_ips":
		key, want, _ := strings.Cut(value, "=")
		return slices.ContainsFunc(list, func(f any) bool { m, _ := f.(map[string]any); return m[key] == want }), nil
	case "security_groups":
		return slices.Contains(list, any(value)), nil
	}
	return equalFilter(object, name, value)
}

// checkRevision honours If-Match: revision_number=N.
func checkRevision(r *http.Request, revision int) error {
	if text := r.Header.Get("If-Match"); text != "" && text != fmt.Sprintf("revision_number=%d", revision) {
		return failure(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed",
			"Constrained to %s, but current revision is %d", strings.TrimPrefix(text, "revision_number="), revision)
	}
	return nil
}

func (s *Sim) servePorts(w http.ResponseWriter, r *http.Request, id, _ string) error {
	if id == "" {
		return s.listing(w, r, "ports", anys(s.ports.All()), portFilter)
	}
	p := s.ports.ByID[id]
	if p == nil {
		return notFound("PortNotFound", "Port", id)
	}
	if r.Method == http.MethodPut {
		var in struct {
			SecurityGroups *[]string      `json:"security_groups"`
			AddressPairs   *[]AddressPair `json:"allowed_address_pairs"`
		}
		if err := decodeBody(r, "port", &in); err != nil {
			return err
		}
		if err := checkRevision(r, p.Revision); err != nil {
			return err
		}
		if !p.PortSecurity && ((in.SecurityGroups != nil && len(*in.SecurityGroups) > 0) ||
			(in.AddressPairs != nil && len(*in.AddressPairs) > 0)) {
			return failure(http.StatusConflict, "AddressPairAndPortSecurityRequired", "Port Security must be enabled in order to have allowed address pairs or security groups on a port.")
		}
		if in.SecurityGroups != nil {
			for _, g := range *in.SecurityGroups {
				if s.groups.ByID[g] == nil {
					return notFound("SecurityGroupNotFound", "Security group", g)
				}
			}
			p.SecurityGroups = append([]string{}, *in.SecurityGroups...)
		}
		if in.AddressPairs != nil {
			p.AddressPairs = append([]AddressPair{}, *in.AddressPairs...)
		}
		p.Revision++
	}
	write(w, http.StatusOK, map[string]any{"port": p})
	return nil
}

// SetQuota bounds how many objects of a kind, such as "floatingip" or "loadbalancer", the project may have.
func (s *Sim) SetQuota(kind string, n int) { s.mu.Do(func() { s.quotas[kind] = n }) }

func (s *Sim) overQuota(kind string, have int) bool {
	most, set := s.quotas[kind]
	return set && have >= most
}

func (s *Sim) serveRouters(w http.ResponseWriter, r *http.Request, id, action string) error {
	if id == "" {
		return s.listing(w, r, "routers", anys(s.routers.All()), equalFilter)
	}
	router := s.routers.ByID[id]
	if router == nil {
		return notFound("RouterNotFound", "Router", id)
	}
	if r.Method == http.MethodPut {
		var in struct {
			Routes []Route `json:"routes"`
		}
		if err := decodeBody(r, "router", &in); err != nil {
			return err
		}
		if err := checkRevision(r, router.Revision); err != nil {
			return err
		}
		routes := in.Routes
		switch action {
		case "add_extraroutes":
			routes = slices.Clone(router.Routes)
			for _, one := range in.Routes {
				if !slices.Contains(routes, one) {
					routes = append(routes, one)
				}
			}
		case "remove_extraroutes":
			routes = slices.DeleteFunc(slices.Clone(router.Routes), func(one Route) bool { return slices.Contains(in.Routes, one) })
		}
		if err := s.checkRoutes(router, routes); err != nil {
			return err
		}
		router.Routes = append([]Route{}, routes...)
		router.Revision++
	}
	write(w, http.StatusOK, map[string]any{"router": router})
	return nil
}

func (s *Sim) checkRoutes(router *Router, routes []Route) error {
	limit := openstacklimits.Routes.Max
	if n, ok := s.quotas["routes"]; ok {
		limit = n
	}
	if len(routes) > limit {
		return failure(http.StatusBadRequest, "RoutesExhausted", "Unable to complete operation for %s. The number of routes exceeds the maximum quota.", router.ID)
	}
	for _, route := range routes {
		hop, err := netip.ParseAddr(route.NextHop)
		connected := err == nil && slices.ContainsFunc(s.ports.All(), func(p *Port) bool {
			return p.DeviceID == router.ID && slices.ContainsFunc(p.FixedIPs, func(f FixedIP) bool {
				return netip.MustParsePrefix(s.subnets.ByID[f.SubnetID].CIDR).Contains(hop)
			})
		})
		if !connected {
			return failure(http.StatusBadRequest, "InvalidRoutes", "Invalid format for routes: %s, the nexthop is not connected with router", route.NextHop)
		}
	}
	return nil
}

// HideNetwork takes a network, by name, out of what the project may see.
func (s *Sim) HideNetwork(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.networks.All() {
		if n.Name == name {
			s.networks.Remove(n.ID)
		}
	}
}
