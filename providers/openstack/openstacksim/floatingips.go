package openstacksim

import (
	"net/http"
	"net/netip"
	"slices"
)

// FloatingIP is an address of an external network that can be attached to a port.
type FloatingIP struct {
	ID          string   `json:"id"`
	Address     string   `json:"floating_ip_address"`
	NetworkID   string   `json:"floating_network_id"`
	PortID      *string  `json:"port_id"`
	FixedIP     *string  `json:"fixed_ip_address"`
	RouterID    *string  `json:"router_id"`
	Status      string   `json:"status"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// FloatingIPs returns all floating addresses.
func (s *Sim) FloatingIPs() []FloatingIP { return copiesOf(s, &s.floating) }

type floatingRequest struct {
	NetworkID   string  `json:"floating_network_id"`
	PortID      *string `json:"port_id"`
	Description string  `json:"description"`
	SubnetID    string  `json:"subnet_id"`
	Address     string  `json:"floating_ip_address"`
}

func (s *Sim) serveFloatingIPs(w http.ResponseWriter, r *http.Request, id, _ string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createFloatingIP(w, r)
	case id == "":
		return s.listing(w, r, "floatingips", anys(s.floating.All()), equalFilter)
	}
	f := s.floating.ByID[id]
	if f == nil {
		return notFound("FloatingIPNotFound", "Floating IP", id)
	}
	switch r.Method {
	case http.MethodDelete:
		s.floating.Remove(id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		var in map[string]any
		if err := decodeBody(r, "floatingip", &in); err != nil {
			return err
		}
		port, given := in["port_id"]
		if text, _ := port.(string); given && text != "" {
			if err := s.attach(f, text); err != nil {
				return err
			}
		} else if given || len(in) == 0 {
			f.PortID, f.FixedIP, f.RouterID, f.Status = nil, nil, nil, "DOWN"
		}
	}
	write(w, http.StatusOK, map[string]any{"floatingip": f})
	return nil
}

func (s *Sim) createFloatingIP(w http.ResponseWriter, r *http.Request) error {
	var in floatingRequest
	if err := decodeBody(r, "floatingip", &in); err != nil {
		return err
	}
	n := s.networks.ByID[in.NetworkID]
	switch {
	case n == nil:
		return notFound("NetworkNotFound", "Network", in.NetworkID)
	case !n.External:
		return failure(http.StatusBadRequest, "BadRequest", "Network %s is not a valid external network", in.NetworkID)
	case s.overQuota("floatingip", len(s.floating.Order)):
		return failure(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['floatingip'].")
	}
	f := &FloatingIP{NetworkID: in.NetworkID, Description: in.Description, Status: "DOWN", Tags: []string{}}
	if in.Address != "" {
		if s.inUse(in.Address) {
			return failure(http.StatusConflict, "IpAddressInUse", "Unable to complete operation for network %s. The IP address %s is in use.", in.NetworkID, in.Address)
		}
		f.Address = in.Address
	}
	for _, sub := range s.subnets.All() {
		if f.Address == "" && sub.NetworkID == in.NetworkID && sub.IPVersion == 4 && (in.SubnetID == "" || in.SubnetID == sub.ID) {
			f.Address = s.allocate(sub)
		}
	}
	if f.Address == "" {
		return failure(http.StatusConflict, "IpAddressGenerationFailure", "No more IP addresses available on network %s.", in.NetworkID)
	}
	if p := deref(in.PortID); p != "" {
		if err := s.attach(f, p); err != nil {
			return err
		}
	}
	f.ID = s.newID(0xf1)
	s.floating.Put(f.ID, f)
	write(w, http.StatusCreated, map[string]any{"floatingip": f})
	return nil
}

func (s *Sim) attach(f *FloatingIP, port string) error {
	p := s.ports.ByID[port]
	if p == nil {
		return notFound("PortNotFound", "Port", port)
	}
	i := slices.IndexFunc(p.FixedIPs, func(x FixedIP) bool { return netip.MustParseAddr(x.Address).Is4() })
	if i < 0 {
		return failure(http.StatusBadRequest, "BadRequest", "Bad floatingip request: Port %s does not have fixed IPv4 address.", port)
	}
	for _, other := range s.floating.All() {
		if other != f && deref(other.PortID) == port && other.NetworkID == f.NetworkID {
			return failure(http.StatusConflict, "FloatingIPPortAlreadyAssociated", "Cannot associate floating IP %s with port %s using fixed IP %s, as that fixed IP already has a floating IP on external network %s.", f.Address, port, p.FixedIPs[i].Address, f.NetworkID)
		}
	}
	for _, router := range s.routers.All() {
		reaches := router.external == f.NetworkID && slices.ContainsFunc(s.ports.All(), func(q *Port) bool {
			return q.DeviceID == router.ID && slices.ContainsFunc(q.FixedIPs, func(x FixedIP) bool { return x.SubnetID == p.FixedIPs[i].SubnetID })
		})
		if reaches {
			f.PortID, f.FixedIP, f.RouterID, f.Status = &p.ID, &p.FixedIPs[i].Address, &router.ID, "ACTIVE"
			return nil
		}
	}
	return failure(http.StatusNotFound, "ExternalGatewayForFloatingIPNotFound", "External network %s is not reachable from subnet %s. Therefore, cannot associate Port %s with a Floating IP.", f.NetworkID, p.FixedIPs[i].SubnetID, port)
}

// AddFloatingIP reserves an address that is attached to nothing.
func (s *Sim) AddFloatingIP(network, address, description string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID(0xf1)
	s.floating.Put(id, &FloatingIP{ID: id, NetworkID: network, Address: address, Description: description, Status: "DOWN", Tags: []string{}})
	return id
}

// AttachFloatingIP attaches a floating address to a port.
func (s *Sim) AttachFloatingIP(id, port string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attach(s.floating.ByID[id], port)
}
