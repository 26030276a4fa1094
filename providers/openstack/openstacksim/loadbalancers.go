package openstacksim

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

type createLoadBalancer struct {
	Name           string           `json:"name"`
	Description    string           `json:"description"`
	Provider       string           `json:"provider"`
	Tags           []string         `json:"tags"`
	VIPSubnetID    string           `json:"vip_subnet_id"`
	VIPNetworkID   string           `json:"vip_network_id"`
	VIPPortID      string           `json:"vip_port_id"`
	VIPAddress     string           `json:"vip_address"`
	FlavorID       string           `json:"flavor_id"`
	Zone           string           `json:"availability_zone"`
	AdminStateUp   *bool            `json:"admin_state_up"`
	Listeners      []createListener `json:"listeners"`
	AdditionalVIPs []AdditionalVIP  `json:"additional_vips"`
}

func (s *Sim) serveLoadBalancers(w http.ResponseWriter, r *http.Request, id string, parts []string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createLoadBalancer(w, r)
	case id == "":
		items := []any{}
		for _, lb := range s.loadBalancers.All() {
			items = append(items, s.withReferences(lb))
		}
		return s.listing(w, r, "loadbalancers", items, octaviaFilter)
	}
	lb := s.loadBalancers.ByID[id]
	switch {
	case lb == nil:
		return octaviaNotFound("Load Balancer", id)
	case len(parts) == 3 && parts[2] == "failover" && r.Method == http.MethodPut:
		return s.failOver(w, lb)
	case len(parts) == 3 && parts[2] == "status" && r.Method == http.MethodGet:
		write(w, http.StatusOK, map[string]any{"statuses": map[string]any{"loadbalancer": s.statusTree(lb)}})
		return nil
	case r.Method == http.MethodDelete:
		return s.deleteLoadBalancer(w, r, lb)
	case r.Method == http.MethodPut:
		var in struct {
			Name *string   `json:"name"`
			Tags *[]string `json:"tags"`
		}
		if err := decodeBody(r, "loadbalancer", &in); err != nil {
			return err
		}
		if lb.ProvisioningStatus != Active {
			return checkIdle(lb)
		}
		assign(&lb.Name, in.Name)
		assign(&lb.Tags, in.Tags)
		s.startWork(lb, PendingUpdate)
	}
	write(w, http.StatusOK, map[string]any{"loadbalancer": s.withReferences(lb)})
	return nil
}

func (s *Sim) failOver(w http.ResponseWriter, lb *LoadBalancer) error {
	if !s.mayFailOver {
		return failure(http.StatusForbidden, "", "Policy does not allow this request to be performed.")
	}
	if lb.ProvisioningStatus != Active && lb.ProvisioningStatus != Failed {
		return checkMutable(lb)
	}
	s.startWork(lb, PendingUpdate)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Sim) deleteLoadBalancer(w http.ResponseWriter, r *http.Request, lb *LoadBalancer) error {
	if strings.HasPrefix(lb.ProvisioningStatus, "PENDING") {
		return checkIdle(lb)
	}
	if r.URL.Query().Get("cascade") != "true" && len(s.listenersOf(lb.ID))+len(s.poolsOf(lb.ID)) > 0 {
		return failure(http.StatusBadRequest, "", "Validation failure: Cannot delete Load Balancer %s - it has children", lb.ID)
	}
	s.startWork(lb, PendingDelete)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkIdle refuses a change of the load balancer itself; those of its parts are refused in other words.
func checkIdle(lb *LoadBalancer) error {
	return failure(http.StatusConflict, "", "Invalid state %s of loadbalancer resource %s", lb.ProvisioningStatus, lb.ID)
}

// statusTree is a load balancer with the statuses of all its parts.
func (s *Sim) statusTree(lb *LoadBalancer) any {
	node := func(id, name, provisioning, operating string) map[string]any {
		return map[string]any{"id": id, "name": name, "provisioning_status": provisioning, "operating_status": operating}
	}
	listeners := []any{}
	for _, l := range s.listenersOf(lb.ID) {
		shown, pools := node(l.ID, l.Name, l.ProvisioningStatus, l.OperatingStatus), []any{}
		if p := s.pools.ByID[deref(l.DefaultPoolID)]; p != nil {
			members := []any{}
			for _, m := range s.shownMembers(p) {
				one := node(m.ID, m.Name, m.ProvisioningStatus, m.OperatingStatus)
				one["address"], one["protocol_port"] = m.Address, m.ProtocolPort
				members = append(members, one)
			}
			pool := node(p.ID, p.Name, p.ProvisioningStatus, p.OperatingStatus)
			pool["members"] = members
			if m := s.monitors.ByID[p.MonitorID]; m != nil {
				shown := node(m.ID, m.Name, m.ProvisioningStatus, m.OperatingStatus)
				shown["type"] = m.Type
				pool["health_monitor"] = shown
			}
			pools = append(pools, pool)
		}
		shown["pools"] = pools
		listeners = append(listeners, shown)
	}
	tree := node(lb.ID, lb.Name, lb.ProvisioningStatus, lb.OperatingStatus)
	tree["listeners"] = listeners
	return tree
}

// checkBalancer refuses what Octavia refuses before it builds anything.
func (s *Sim) checkBalancer(in createLoadBalancer) error {
	tooNew := (s.octavia < 5 && len(in.Tags) > 0) || (s.octavia < 26 && len(in.AdditionalVIPs) > 0) || (s.octavia < 14 && in.Zone != "") ||
		(s.octavia < 6 && in.FlavorID != "")
	switch {
	case !slices.Contains(s.providers, in.Provider):
		return failure(http.StatusBadRequest, "", "Provider '%s' is not enabled.", in.Provider)
	case s.overQuota("loadbalancer", len(s.loadBalancers.Order)):
		return failure(http.StatusForbidden, "", "Quota has been met for resources: Load Balancer")
	case tooNew:
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute: unknown attribute in this version")
	case in.Zone != "" && in.Zone != "nova":
		return failure(http.StatusBadRequest, "", "Validation failure: Availability zone %s does not exist", in.Zone)
	case in.FlavorID != "" && !identifier.MatchString(in.FlavorID):
		return failure(http.StatusBadRequest, "", "Validation failure: Invalid flavor_id.")
	}
	return nil
}

func (s *Sim) createLoadBalancer(w http.ResponseWriter, r *http.Request) error {
	var in createLoadBalancer
	if err := decodeBody(r, "loadbalancer", &in); err != nil {
		return err
	}
	in.Provider = cmp.Or(in.Provider, "amphora")
	if err := s.checkBalancer(in); err != nil {
		return err
	}
	lb := &LoadBalancer{
		ID: s.newID(0x1b), Name: in.Name, Description: in.Description, OperatingStatus: "OFFLINE", AdminStateUp: true, Provider: in.Provider,
		FlavorID: orNull(in.FlavorID), Zone: orNull(in.Zone), Tags: append([]string{}, in.Tags...), ProjectID: Project,
		CreatedAt: time.Now().UTC().Format(octaviaTime), AdditionalVIPs: append([]AdditionalVIP{}, in.AdditionalVIPs...),
	}
	if err := s.placeVIP(lb, in); err != nil {
		return err
	}
	if err := s.addListeners(lb, in.Listeners); err != nil {
		s.dropLoadBalancer(lb)
		return err
	}
	s.loadBalancers.Put(lb.ID, lb)
	s.startWork(lb, PendingCreate)
	if s.failCreates > 0 {
		s.failCreates--
		lb.outcome = Failed
	}
	write(w, http.StatusCreated, map[string]any{"loadbalancer": s.withReferences(lb)})
	return nil
}

// placeVIP finds the port and address: a port beats a network, which beats a subnet.
func (s *Sim) placeVIP(lb *LoadBalancer, in createLoadBalancer) error {
	if in.VIPPortID != "" {
		p := s.ports.ByID[in.VIPPortID]
		if p == nil {
			return failure(http.StatusBadRequest, "", "Port %s not found.", in.VIPPortID)
		}
		lb.VIPPortID, lb.VIPNetworkID, lb.VIPSubnetID, lb.VIPAddress = p.ID, p.NetworkID, p.FixedIPs[0].SubnetID, p.FixedIPs[0].Address
		return nil
	}
	subnet, err := s.vipSubnet(in)
	if err != nil {
		return err
	}
	address := in.VIPAddress
	if address == "" {
		address = s.allocate(subnet)
	} else if a, err := netip.ParseAddr(address); err != nil || !netip.MustParsePrefix(subnet.CIDR).Contains(a) || s.inUse(address) {
		return failure(http.StatusBadRequest, "", "IP address %s is not usable in subnet %s", address, subnet.ID)
	}
	if address == "" {
		return failure(http.StatusConflict, "", "No more IP addresses available on network %s.", subnet.NetworkID)
	}
	fixed := []FixedIP{{subnet.ID, address}}
	for i, v := range lb.AdditionalVIPs {
		sub := s.subnets.ByID[v.SubnetID]
		if sub == nil || sub.NetworkID != subnet.NetworkID {
			return failure(http.StatusBadRequest, "", "Additional VIP subnet %s is not on the network of the VIP", v.SubnetID)
		}
		lb.AdditionalVIPs[i].Address = s.allocate(sub)
		fixed = append(fixed, FixedIP{sub.ID, lb.AdditionalVIPs[i].Address})
	}
	p := s.addPortLocked(&Port{
		Name: "octavia-lb-" + lb.ID, NetworkID: subnet.NetworkID, DeviceID: "lb-" + lb.ID, DeviceOwner: "Octavia", FixedIPs: fixed,
		PortSecurity: true,
	})
	lb.VIPPortID, lb.VIPNetworkID, lb.VIPSubnetID, lb.VIPAddress, lb.ownPort = p.ID, subnet.NetworkID, subnet.ID, address, true
	return nil
}

// vipSubnet is the subnet of the address: that of the request, or the first of IPv4 on its network.
func (s *Sim) vipSubnet(in createLoadBalancer) (*Subnet, error) {
	if in.VIPSubnetID != "" {
		if sub := s.subnets.ByID[in.VIPSubnetID]; sub != nil {
			return sub, nil
		}
		return nil, failure(http.StatusBadRequest, "", "Subnet %s not found.", in.VIPSubnetID)
	}
	if in.VIPNetworkID == "" {
		return nil, failure(http.StatusBadRequest, "", "Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	n := s.networks.ByID[in.VIPNetworkID]
	if n == nil {
		return nil, failure(http.StatusBadRequest, "", "Network %s not found.", in.VIPNetworkID)
	}
	for _, id := range n.Subnets {
		if sub := s.subnets.ByID[id]; sub.IPVersion == 4 {
			return sub, nil
		}
	}
	return nil, failure(http.StatusBadRequest, "", "Validation failure: Supplied network does not contain a subnet.")
}

// DropLoadBalancer removes a load balancer and its parts behind the API's back.
func (s *Sim) DropLoadBalancer(id string) {
	s.mu.Do(func() { s.dropLoadBalancer(s.loadBalancers.ByID[id]) })
}

// RemoveLoadBalancers removes all load balancers and their parts, as somebody does by hand; floating addresses come free by that.
func (s *Sim) RemoveLoadBalancers() {
	for _, lb := range s.LoadBalancers() {
		s.DropLoadBalancer(lb.ID)
	}
}

// AddLoadBalancer makes a load balancer as a user would by hand, without any tag.
func (s *Sim) AddLoadBalancer(name, subnet string) LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	lb := &LoadBalancer{
		ID: s.newID(0x1b), Name: name, OperatingStatus: "ONLINE", AdminStateUp: true, Provider: "amphora", Tags: []string{}, ProjectID: Project,
		CreatedAt: time.Now().UTC().Format(octaviaTime), ProvisioningStatus: Active,
	}
	if err := s.placeVIP(lb, createLoadBalancer{VIPSubnetID: subnet}); err != nil {
		panic(err) // a mistake in a test
	}
	s.loadBalancers.Put(lb.ID, lb)
	return *lb
}
