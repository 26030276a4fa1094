package openstacksim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Provisioning statuses of Octavia.
const (
	Active        = "ACTIVE"
	Failed        = "ERROR"
	PendingCreate = "PENDING_CREATE"
	PendingUpdate = "PENDING_UPDATE"
	PendingDelete = "PENDING_DELETE"
)

const octaviaTime = "2006-01-02T15:04:05"

// Ref names another object.
type Ref struct {
	ID string `json:"id"`
}

// AdditionalVIP is a further address of a load balancer.
type AdditionalVIP struct {
	SubnetID string `json:"subnet_id"`
	Address  string `json:"ip_address"`
}

// LoadBalancer is one of Octavia's.
type LoadBalancer struct {
	ID                 string          `json:"id"`
	Name               string          `json:"name"`
	Description        string          `json:"description"`
	ProvisioningStatus string          `json:"provisioning_status"`
	OperatingStatus    string          `json:"operating_status"`
	AdminStateUp       bool            `json:"admin_state_up"`
	VIPAddress         string          `json:"vip_address"`
	VIPPortID          string          `json:"vip_port_id"`
	VIPSubnetID        string          `json:"vip_subnet_id"`
	VIPNetworkID       string          `json:"vip_network_id"`
	Provider           string          `json:"provider"`
	FlavorID           *string         `json:"flavor_id"`
	Zone               *string         `json:"availability_zone"`
	Tags               []string        `json:"tags"`
	Listeners          []Ref           `json:"listeners"`
	Pools              []Ref           `json:"pools"`
	AdditionalVIPs     []AdditionalVIP `json:"additional_vips"`
	ProjectID          string          `json:"project_id"`
	CreatedAt          string          `json:"created_at"`
	UpdatedAt          string          `json:"updated_at"`

	ownPort bool
	ready   time.Time
	outcome string
}

// Listener is a port of a load balancer.
type Listener struct {
	ID                   string            `json:"id"`
	Name                 string            `json:"name"`
	Protocol             string            `json:"protocol"`
	ProtocolPort         int               `json:"protocol_port"`
	ConnectionLimit      int               `json:"connection_limit"`
	DefaultPoolID        *string           `json:"default_pool_id"`
	TLSRef               *string           `json:"default_tls_container_ref"`
	SNIRefs              []string          `json:"sni_container_refs"`
	InsertHeaders        map[string]string `json:"insert_headers"`
	AllowedCIDRs         []string          `json:"allowed_cidrs"`
	TimeoutClientData    int               `json:"timeout_client_data"`
	TimeoutMemberConnect int               `json:"timeout_member_connect"`
	TimeoutMemberData    int               `json:"timeout_member_data"`
	TimeoutTCPInspect    int               `json:"timeout_tcp_inspect"`
	Tags                 []string          `json:"tags"`
	LoadBalancers        []Ref             `json:"loadbalancers"`
	AdminStateUp         bool              `json:"admin_state_up"`
	ProvisioningStatus   string            `json:"provisioning_status"`
	OperatingStatus      string            `json:"operating_status"`
	ProjectID            string            `json:"project_id"`
}

// Persistence keeps clients at one member.
type Persistence struct {
	Type string `json:"type"`
}

// Pool is a set of members.
type Pool struct {
	ID                 string       `json:"id"`
	Name               string       `json:"name"`
	Protocol           string       `json:"protocol"`
	Algorithm          string       `json:"lb_algorithm"`
	Persistence        *Persistence `json:"session_persistence"`
	Listeners          []Ref        `json:"listeners"`
	LoadBalancers      []Ref        `json:"loadbalancers"`
	Members            []Ref        `json:"members"`
	MonitorID          string       `json:"healthmonitor_id"`
	Tags               []string     `json:"tags"`
	AdminStateUp       bool         `json:"admin_state_up"`
	ProvisioningStatus string       `json:"provisioning_status"`
	OperatingStatus    string       `json:"operating_status"`
	ProjectID          string       `json:"project_id"`

	members []*Member
}

// BackendMembers returns the members of a pool.
func (p Pool) BackendMembers() []Member {
	list := []Member{}
	for _, m := range p.members {
		list = append(list, *m)
	}
	return list
}

// Member is a backend.
type Member struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	Address            string   `json:"address"`
	ProtocolPort       int      `json:"protocol_port"`
	SubnetID           *string  `json:"subnet_id"`
	Weight             int      `json:"weight"`
	Backup             bool     `json:"backup"`
	MonitorAddress     *string  `json:"monitor_address"`
	MonitorPort        *int     `json:"monitor_port"`
	AdminStateUp       bool     `json:"admin_state_up"`
	Tags               []string `json:"tags"`
	ProvisioningStatus string   `json:"provisioning_status"`
	OperatingStatus    string   `json:"operating_status"`
}

// Monitor checks the members of a pool.
type Monitor struct {
	ID                 string  `json:"id"`
	Name               string  `json:"name"`
	Type               string  `json:"type"`
	Delay              int     `json:"delay"`
	Timeout            int     `json:"timeout"`
	MaxRetries         int     `json:"max_retries"`
	MaxRetriesDown     int     `json:"max_retries_down"`
	URLPath            *string `json:"url_path"`
	Method             *string `json:"http_method"`
	ExpectedCodes      *string `json:"expected_codes"`
	Pools              []Ref   `json:"pools"`
	AdminStateUp       bool    `json:"admin_state_up"`
	ProvisioningStatus string  `json:"provisioning_status"`
	OperatingStatus    string  `json:"operating_status"`
	ProjectID          string  `json:"project_id"`
}

// LoadBalancers returns all load balancers.
func (s *Sim) LoadBalancers() []LoadBalancer { return copies(s, &s.balancers) }

// Listeners returns all listeners.
func (s *Sim) Listeners() []Listener { return copies(s, &s.listeners) }

// Pools returns all pools.
func (s *Sim) Pools() []Pool { return copies(s, &s.pools) }

// Monitors returns all health monitors.
func (s *Sim) Monitors() []Monitor { return copies(s, &s.monitors) }

// SetActivation sets how long Octavia works on each change that begins from now on.
func (s *Sim) SetActivation(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activation = d
}

// SetOctaviaMinor sets the newest version of Octavia's API, 2.x.
func (s *Sim) SetOctaviaMinor(minor int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.octavia = minor
}

// FailCreations lets the next n load balancers end in ERROR.
func (s *Sim) FailCreations(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failCreates = n
}

// AllowFailover says whether the credential may order a failover, which is an administrator's right by default.
func (s *Sim) AllowFailover(allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayFailOver = allowed
}

// ChangeLoadBalancer changes a load balancer behind the API's back.
func (s *Sim) ChangeLoadBalancer(id string, change func(*LoadBalancer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	change(s.balancers.byID[id])
}

// ChangePool changes a pool behind the API's back.
func (s *Sim) ChangePool(id string, change func(*Pool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.pools.byID[id])
}

// settle lets finished work take effect.
func (s *Sim) settle() {
	now := time.Now()
	for _, lb := range s.balancers.all() {
		if !strings.HasPrefix(lb.ProvisioningStatus, "PENDING") || now.Before(lb.ready) {
			continue
		}
		if lb.ProvisioningStatus == PendingDelete {
			s.dropBalancer(lb)
			continue
		}
		lb.ProvisioningStatus, lb.OperatingStatus = lb.outcome, "ONLINE"
		for _, l := range s.listenersOf(lb.ID) {
			l.ProvisioningStatus = Active
		}
		for _, p := range s.poolsOf(lb.ID) {
			p.ProvisioningStatus = Active
		}
	}
}

func (s *Sim) begin(lb *LoadBalancer, status string) {
	lb.ProvisioningStatus, lb.outcome = status, Active
	lb.ready = time.Now().Add(s.activation)
	lb.UpdatedAt = time.Now().UTC().Format(octaviaTime)
}

// dropBalancer removes a load balancer and what belongs to it.
func (s *Sim) dropBalancer(lb *LoadBalancer) {
	for _, l := range s.listenersOf(lb.ID) {
		s.listeners.remove(l.ID)
	}
	for _, p := range s.poolsOf(lb.ID) {
		s.monitors.remove(p.MonitorID)
		s.pools.remove(p.ID)
	}
	s.balancers.remove(lb.ID)
	if lb.ownPort {
		s.removePort(lb.VIPPortID)
	}
}

func (s *Sim) listenersOf(id string) []*Listener {
	return slices.DeleteFunc(s.listeners.all(), func(l *Listener) bool { return l.LoadBalancers[0].ID != id })
}

func (s *Sim) poolsOf(id string) []*Pool {
	return slices.DeleteFunc(s.pools.all(), func(p *Pool) bool { return p.LoadBalancers[0].ID != id })
}

// show fills in the references that a load balancer carries.
func (s *Sim) show(lb *LoadBalancer) *LoadBalancer {
	shown := *lb
	shown.Listeners, shown.Pools = []Ref{}, []Ref{}
	for _, l := range s.listenersOf(lb.ID) {
		shown.Listeners = append(shown.Listeners, Ref{l.ID})
	}
	for _, p := range s.poolsOf(lb.ID) {
		shown.Pools = append(shown.Pools, Ref{p.ID})
	}
	return &shown
}

func (s *Sim) showPool(p *Pool) *Pool {
	shown := *p
	shown.Members, shown.Listeners = []Ref{}, []Ref{}
	for _, m := range p.members {
		shown.Members = append(shown.Members, Ref{m.ID})
	}
	for _, l := range s.listeners.all() {
		if deref(l.DefaultPoolID) == p.ID {
			shown.Listeners = append(shown.Listeners, Ref{l.ID})
		}
	}
	return &shown
}

// mutable refuses changes while Octavia works on the load balancer, and of broken ones.
func mutable(lb *LoadBalancer) error {
	if lb.ProvisioningStatus != Active {
		return failure(http.StatusConflict, "", "Load Balancer %s is immutable and cannot be updated.", lb.ID)
	}
	return nil
}

func octaviaNotFound(what, id string) error {
	return failure(http.StatusNotFound, "", "%s %s not found.", what, id)
}

func (s *Sim) loadBalancing(w http.ResponseWriter, r *http.Request, rest string) error {
	if rest == "" {
		versions := []any{}
		for minor := range s.octavia + 1 {
			status := "SUPPORTED"
			if minor == s.octavia {
				status = "CURRENT"
			}
			versions = append(versions, map[string]any{"id": fmt.Sprintf("v2.%d", minor), "status": status, "updated": "2026-01-01T00:00:00Z", "links": []any{map[string]string{"rel": "self", "href": "http://" + r.Host + balancerPath + "/v2"}}})
		}
		write(w, http.StatusOK, map[string]any{"versions": versions})
		return nil
	}
	rest, ok := strings.CutPrefix(rest, "v2.0/lbaas/")
	if !ok {
		return failure(http.StatusNotFound, "", "The resource could not be found.")
	}
	parts := strings.Split(rest, "/")
	id := ""
	if len(parts) > 1 {
		id = parts[1]
	}
	switch parts[0] {
	case "loadbalancers":
		return s.serveBalancers(w, r, id, parts)
	case "listeners":
		return s.serveListeners(w, r, id)
	case "pools":
		if len(parts) > 2 && parts[2] == "members" {
			return s.serveMembers(w, r, id, parts)
		}
		return s.servePools(w, r, id)
	case "healthmonitors":
		return s.serveMonitors(w, r, id)
	}
	return failure(http.StatusNotFound, "", "The resource could not be found.")
}

// octaviaFilter also knows the filter by load balancer, which listeners and pools have.
func octaviaFilter(object map[string]any, name, value string) (bool, error) {
	if name == "loadbalancer_id" {
		refs, _ := object["loadbalancers"].([]any)
		return slices.ContainsFunc(refs, func(ref any) bool { m, _ := ref.(map[string]any); return m["id"] == value }), nil
	}
	return equalFilter(object, name, value)
}

type createBalancer struct {
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

type createListener struct {
	LoadBalancerID       string            `json:"loadbalancer_id"`
	Name                 string            `json:"name"`
	Protocol             string            `json:"protocol"`
	ProtocolPort         int               `json:"protocol_port"`
	ConnectionLimit      *int              `json:"connection_limit"`
	Tags                 []string          `json:"tags"`
	TimeoutClientData    *int              `json:"timeout_client_data"`
	TimeoutMemberConnect *int              `json:"timeout_member_connect"`
	TimeoutMemberData    *int              `json:"timeout_member_data"`
	TimeoutTCPInspect    *int              `json:"timeout_tcp_inspect"`
	InsertHeaders        map[string]string `json:"insert_headers"`
	AllowedCIDRs         []string          `json:"allowed_cidrs"`
	TLSRef               string            `json:"default_tls_container_ref"`
	DefaultPool          *createPool       `json:"default_pool"`
}

type createPool struct {
	ListenerID  string         `json:"listener_id"`
	Name        string         `json:"name"`
	Protocol    string         `json:"protocol"`
	Algorithm   string         `json:"lb_algorithm"`
	Persistence *Persistence   `json:"session_persistence"`
	Members     []createMember `json:"members"`
	Monitor     *createMonitor `json:"healthmonitor"`
}

type createMember struct {
	Name         string  `json:"name"`
	Address      string  `json:"address"`
	ProtocolPort int     `json:"protocol_port"`
	SubnetID     *string `json:"subnet_id"`
	Weight       *int    `json:"weight"`
	MonitorPort  *int    `json:"monitor_port"`
}

type createMonitor struct {
	PoolID         string `json:"pool_id"`
	Name           string `json:"name"`
	Type           string `json:"type"`
	Delay          int    `json:"delay"`
	Timeout        int    `json:"timeout"`
	MaxRetries     int    `json:"max_retries"`
	MaxRetriesDown int    `json:"max_retries_down"`
	URLPath        string `json:"url_path"`
	Method         string `json:"http_method"`
	ExpectedCodes  string `json:"expected_codes"`
}

func (s *Sim) serveBalancers(w http.ResponseWriter, r *http.Request, id string, parts []string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createBalancer(w, r)
	case id == "":
		items := []any{}
		for _, lb := range s.balancers.all() {
			items = append(items, s.show(lb))
		}
		return s.listing(w, r, "loadbalancers", items, octaviaFilter)
	}
	lb := s.balancers.byID[id]
	switch {
	case lb == nil:
		return octaviaNotFound("Load Balancer", id)
	case len(parts) == 3 && parts[2] == "failover" && r.Method == http.MethodPut:
		return s.failOver(w, lb)
	case len(parts) == 3 && parts[2] == "status" && r.Method == http.MethodGet:
		write(w, http.StatusOK, map[string]any{"statuses": map[string]any{"loadbalancer": s.statusTree(lb)}})
		return nil
	case r.Method == http.MethodDelete:
		return s.deleteBalancer(w, r, lb)
	case r.Method == http.MethodPut:
		var in struct {
			Name *string   `json:"name"`
			Tags *[]string `json:"tags"`
		}
		if err := decodeBody(r, "loadbalancer", &in); err != nil {
			return err
		}
		if err := mutable(lb); err != nil {
			return err
		}
		assign(&lb.Name, in.Name)
		assign(&lb.Tags, in.Tags)
		s.begin(lb, PendingUpdate)
	}
	write(w, http.StatusOK, map[string]any{"loadbalancer": s.show(lb)})
	return nil
}

func (s *Sim) failOver(w http.ResponseWriter, lb *LoadBalancer) error {
	if !s.mayFailOver {
		return failure(http.StatusForbidden, "", "Policy does not allow this request to be performed.")
	}
	if lb.ProvisioningStatus != Active && lb.ProvisioningStatus != Failed {
		return mutable(lb)
	}
	s.begin(lb, PendingUpdate)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Sim) deleteBalancer(w http.ResponseWriter, r *http.Request, lb *LoadBalancer) error {
	if strings.HasPrefix(lb.ProvisioningStatus, "PENDING") {
		return failure(http.StatusConflict, "", "Invalid state %s of loadbalancer resource %s", lb.ProvisioningStatus, lb.ID)
	}
	if r.URL.Query().Get("cascade") != "true" && len(s.listenersOf(lb.ID))+len(s.poolsOf(lb.ID)) > 0 {
		return failure(http.StatusBadRequest, "", "Validation failure: Cannot delete Load Balancer %s - it has children", lb.ID)
	}
	s.begin(lb, PendingDelete)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// statusTree is a load balancer with the statuses of all its parts.
func (s *Sim) statusTree(lb *LoadBalancer) any {
	node := func(id, name, provisioning, operating string) map[string]any {
		return map[string]any{"id": id, "name": name, "provisioning_status": provisioning, "operating_status": operating}
	}
	listeners := []any{}
	for _, l := range s.listenersOf(lb.ID) {
		shown, pools := node(l.ID, l.Name, l.ProvisioningStatus, l.OperatingStatus), []any{}
		if p := s.pools.byID[deref(l.DefaultPoolID)]; p != nil {
			members := []any{}
			for _, m := range p.members {
				one := node(m.ID, m.Name, m.ProvisioningStatus, m.OperatingStatus)
				one["address"], one["protocol_port"] = m.Address, m.ProtocolPort
				members = append(members, one)
			}
			pool := node(p.ID, p.Name, p.ProvisioningStatus, p.OperatingStatus)
			pool["members"] = members
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
func (s *Sim) checkBalancer(in createBalancer) error {
	tooNew := (s.octavia < 5 && len(in.Tags) > 0) || (s.octavia < 26 && len(in.AdditionalVIPs) > 0) || (s.octavia < 14 && in.Zone != "") || (s.octavia < 6 && in.FlavorID != "")
	switch {
	case !slices.Contains(s.providers, in.Provider):
		return failure(http.StatusBadRequest, "", "Provider '%s' is not enabled.", in.Provider)
	case s.overQuota("loadbalancer", len(s.balancers.order)):
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

func (s *Sim) createBalancer(w http.ResponseWriter, r *http.Request) error {
	var in createBalancer
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
		s.dropBalancer(lb)
		return err
	}
	s.balancers.put(lb.ID, lb)
	s.begin(lb, PendingCreate)
	if s.failCreates > 0 {
		s.failCreates--
		lb.outcome = Failed
	}
	write(w, http.StatusCreated, map[string]any{"loadbalancer": s.show(lb)})
	return nil
}

// addListeners adds the listeners of a creation, whose pools need names of their own.
func (s *Sim) addListeners(lb *LoadBalancer, list []createListener) error {
	names := map[string]bool{}
	for _, l := range list {
		if p := l.DefaultPool; p != nil {
			if p.Name == "" || names[p.Name] {
				return failure(http.StatusBadRequest, "", "Pools must be named, and have unique names.")
			}
			names[p.Name] = true
		}
		if err := s.addListener(lb, l); err != nil {
			return err
		}
	}
	return nil
}

// placeVIP finds the port and address: a port beats a network, which beats a subnet.
func (s *Sim) placeVIP(lb *LoadBalancer, in createBalancer) error {
	if in.VIPPortID != "" {
		p := s.ports.byID[in.VIPPortID]
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
		sub := s.subnets.byID[v.SubnetID]
		if sub == nil || sub.NetworkID != subnet.NetworkID {
			return failure(http.StatusBadRequest, "", "Additional VIP subnet %s is not on the network of the VIP", v.SubnetID)
		}
		lb.AdditionalVIPs[i].Address = s.allocate(sub)
		fixed = append(fixed, FixedIP{sub.ID, lb.AdditionalVIPs[i].Address})
	}
	p := s.addPortLocked(&Port{Name: "octavia-lb-" + lb.ID, NetworkID: subnet.NetworkID, DeviceID: "lb-" + lb.ID, DeviceOwner: "Octavia", FixedIPs: fixed, PortSecurity: true})
	lb.VIPPortID, lb.VIPNetworkID, lb.VIPSubnetID, lb.VIPAddress, lb.ownPort = p.ID, subnet.NetworkID, subnet.ID, address, true
	return nil
}

// vipSubnet is the subnet of the address: that of the request, or the first of IPv4 on its network.
func (s *Sim) vipSubnet(in createBalancer) (*Subnet, error) {
	if in.VIPSubnetID != "" {
		if sub := s.subnets.byID[in.VIPSubnetID]; sub != nil {
			return sub, nil
		}
		return nil, failure(http.StatusBadRequest, "", "Subnet %s not found.", in.VIPSubnetID)
	}
	if in.VIPNetworkID == "" {
		return nil, failure(http.StatusBadRequest, "", "Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	n := s.networks.byID[in.VIPNetworkID]
	if n == nil {
		return nil, failure(http.StatusBadRequest, "", "Network %s not found.", in.VIPNetworkID)
	}
	for _, id := range n.Subnets {
		if sub := s.subnets.byID[id]; sub.IPVersion == 4 {
			return sub, nil
		}
	}
	return nil, failure(http.StatusBadRequest, "", "Validation failure: Supplied network does not contain a subnet.")
}

// poolProtocols are the protocols of pools that go with that of a listener.
func poolProtocols(listener string) []string {
	switch listener {
	case "TCP":
		return []string{"HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"}
	case "HTTP", "TERMINATED_HTTPS":
		return []string{"HTTP", "PROXY", "PROXYV2"}
	case "HTTPS":
		return []string{"HTTPS", "PROXY", "PROXYV2", "TCP"}
	case "UDP", "SCTP":
		return []string{listener}
	}
	return nil
}

// transport is the protocol of layer 4 that a listener occupies on its port.
func transport(protocol string) string {
	if protocol == "UDP" || protocol == "SCTP" {
		return protocol
	}
	return "TCP"
}

func (s *Sim) checkListener(lb *LoadBalancer, in createListener) error {
	layer7 := in.Protocol == "HTTP" || in.Protocol == "TERMINATED_HTTPS"
	switch {
	case poolProtocols(in.Protocol) == nil:
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute protocol. Value: '%s'", in.Protocol)
	case in.ProtocolPort < 1 || in.ProtocolPort > 65535:
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute protocol_port. Value: '%d'", in.ProtocolPort)
	case len(in.InsertHeaders) > 0 && !layer7:
		return failure(http.StatusBadRequest, "", "Validation failure: insert-headers is only supported on HTTP and TERMINATED_HTTPS listeners")
	case (in.TLSRef != "") != (in.Protocol == "TERMINATED_HTTPS"):
		return failure(http.StatusBadRequest, "", "Validation failure: default_tls_container_ref goes with TERMINATED_HTTPS alone, and is needed there")
	case withDefault(in.ConnectionLimit, -1) < -1:
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute connection_limit. Value: '%d'", *in.ConnectionLimit)
	}
	if err := s.checkSupport(lb, in); err != nil {
		return err
	}
	for _, t := range []*int{in.TimeoutClientData, in.TimeoutMemberConnect, in.TimeoutMemberData, in.TimeoutTCPInspect} {
		if n := withDefault(t, 0); n < 0 || n > 31536000000 {
			return failure(http.StatusBadRequest, "", "Invalid input for a timeout. Value: '%d'", n)
		}
	}
	return checkCIDRs(lb, in.AllowedCIDRs)
}

// checkSupport refuses what the provider, or the version of the API, does not know.
func (s *Sim) checkSupport(lb *LoadBalancer, in createListener) error {
	if lb.Provider == "ovn" {
		if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, in.Protocol) {
			return failure(http.StatusNotImplemented, "", "OVN provider does not support %s protocol", in.Protocol)
		}
		if in.TimeoutClientData != nil || len(in.AllowedCIDRs) > 0 {
			return failure(http.StatusNotImplemented, "", "OVN provider does not support timeouts and allowed_cidrs")
		}
	}
	if (len(in.AllowedCIDRs) > 0 && s.octavia < 12) || (in.TimeoutClientData != nil && s.octavia < 1) || (len(in.Tags) > 0 && s.octavia < 5) {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute: unknown attribute in this version")
	}
	return nil
}

func checkCIDRs(lb *LoadBalancer, cidrs []string) error {
	for _, c := range cidrs {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			return failure(http.StatusBadRequest, "", "Invalid input for field/attribute allowed_cidrs. Value: '%s'", c)
		}
		families := []string{lb.VIPAddress}
		for _, v := range lb.AdditionalVIPs {
			families = append(families, v.Address)
		}
		if !slices.ContainsFunc(families, func(a string) bool { return netip.MustParseAddr(a).Is4() == p.Addr().Is4() }) {
			return failure(http.StatusBadRequest, "", "Validation failure: CIDR %s is not of the IP version of the VIP address", c)
		}
	}
	return nil
}

func withDefault(p *int, d int) int {
	if p == nil {
		return d
	}
	return *p
}

func (s *Sim) addListener(lb *LoadBalancer, in createListener) error {
	if err := s.checkListener(lb, in); err != nil {
		return err
	}
	for _, l := range s.listenersOf(lb.ID) {
		if l.ProtocolPort == in.ProtocolPort && transport(l.Protocol) == transport(in.Protocol) {
			return failure(http.StatusConflict, "", "Another Listener on this Load Balancer is already using protocol %s and protocol_port %d", in.Protocol, in.ProtocolPort)
		}
	}
	headers := in.InsertHeaders
	if headers == nil {
		headers = map[string]string{}
	}
	l := &Listener{
		ID: s.newID(0x11), Name: in.Name, Protocol: in.Protocol, ProtocolPort: in.ProtocolPort, ConnectionLimit: withDefault(in.ConnectionLimit, -1),
		TLSRef: orNull(in.TLSRef), SNIRefs: []string{}, InsertHeaders: headers, AllowedCIDRs: in.AllowedCIDRs, Tags: append([]string{}, in.Tags...),
		TimeoutClientData: withDefault(in.TimeoutClientData, 50000), TimeoutMemberConnect: withDefault(in.TimeoutMemberConnect, 5000),
		TimeoutMemberData: withDefault(in.TimeoutMemberData, 50000), TimeoutTCPInspect: withDefault(in.TimeoutTCPInspect, 0),
		LoadBalancers: []Ref{{lb.ID}}, AdminStateUp: true, ProvisioningStatus: PendingCreate, OperatingStatus: "OFFLINE", ProjectID: Project,
	}
	if in.DefaultPool != nil {
		p, err := s.addPool(lb, l, *in.DefaultPool)
		if err != nil {
			return err
		}
		l.DefaultPoolID = &p.ID
	}
	s.listeners.put(l.ID, l)
	return nil
}

func (s *Sim) addPool(lb *LoadBalancer, l *Listener, in createPool) (*Pool, error) {
	switch {
	case !slices.Contains(poolProtocols(l.Protocol), in.Protocol), in.Protocol == "PROXYV2" && s.octavia < 22:
		return nil, failure(http.StatusBadRequest, "", "Validation failure: The pool protocol '%s' is invalid while the listener protocol is '%s'.", in.Protocol, l.Protocol)
	case !slices.Contains(algorithms(lb.Provider), in.Algorithm):
		return nil, failure(http.StatusBadRequest, "", "Invalid input for field/attribute lb_algorithm. Value: '%s'", in.Algorithm)
	case lb.Provider == "ovn" && strings.HasPrefix(in.Protocol, "PROXY"):
		return nil, failure(http.StatusNotImplemented, "", "OVN provider does not support %s protocol", in.Protocol)
	}
	p := &Pool{
		ID: s.newID(0xb0), Name: in.Name, Protocol: in.Protocol, Algorithm: in.Algorithm, Persistence: in.Persistence, LoadBalancers: []Ref{{lb.ID}},
		Tags: []string{}, AdminStateUp: true, ProvisioningStatus: PendingCreate, OperatingStatus: "OFFLINE", ProjectID: Project,
	}
	if err := s.setMembers(p, in.Members); err != nil {
		return nil, err
	}
	s.pools.put(p.ID, p)
	if in.Monitor != nil {
		if err := s.addMonitor(lb, p, *in.Monitor); err != nil {
			s.pools.remove(p.ID)
			return nil, err
		}
	}
	return p, nil
}

// setMembers makes the members of a pool be those of a complete list; equal address and port is the same member.
func (s *Sim) setMembers(p *Pool, list []createMember) error {
	var after []*Member
	seen := map[string]bool{}
	for _, in := range list {
		key := fmt.Sprint(in.Address, " ", in.ProtocolPort)
		if _, err := netip.ParseAddr(in.Address); err != nil || in.ProtocolPort < 1 || in.ProtocolPort > 65535 {
			return failure(http.StatusBadRequest, "", "Invalid input for field/attribute address or protocol_port. Value: '%s'", key)
		}
		if seen[key] {
			return failure(http.StatusBadRequest, "", "Validation failure: two members with address and port %s", key)
		}
		seen[key] = true
		if in.SubnetID != nil && s.subnets.byID[*in.SubnetID] == nil {
			return failure(http.StatusNotFound, "", "Subnet %s not found.", *in.SubnetID)
		}
		m := &Member{Address: in.Address, ProtocolPort: in.ProtocolPort, Weight: 1, AdminStateUp: true, Tags: []string{}, ProvisioningStatus: Active, OperatingStatus: "NO_MONITOR"}
		if i := slices.IndexFunc(p.members, func(have *Member) bool { return have.Address == in.Address && have.ProtocolPort == in.ProtocolPort }); i >= 0 {
			*m = *p.members[i]
		} else {
			m.ID = s.newID(0x3e)
		}
		m.Name, m.SubnetID, m.MonitorPort = in.Name, in.SubnetID, in.MonitorPort
		if in.Weight != nil {
			m.Weight = *in.Weight
		}
		after = append(after, m)
	}
	p.members = after
	return nil
}

// monitorTypes are the types of health monitors that go with the protocol of a pool.
func monitorTypes(pool string) []string {
	switch transport(pool) {
	case "UDP":
		return []string{"UDP-CONNECT", "TCP", "HTTP"}
	case "SCTP":
		return []string{"SCTP", "TCP", "HTTP", "UDP-CONNECT"}
	}
	return []string{"TCP", "HTTP", "HTTPS", "PING", "TLS-HELLO"}
}

func (s *Sim) addMonitor(lb *LoadBalancer, p *Pool, in createMonitor) error {
	switch {
	case p.MonitorID != "":
		return failure(http.StatusConflict, "", "This pool already has a health monitor")
	case !slices.Contains(monitorTypes(p.Protocol), in.Type), p.Protocol == "UDP" && in.Type != "UDP-CONNECT" && s.octavia < 16:
		return failure(http.StatusBadRequest, "", "Validation failure: The associated pool protocol is %s, so only a %s health monitor is supported.", p.Protocol, strings.Join(monitorTypes(p.Protocol), "/"))
	case lb.Provider == "ovn" && in.Type != "TCP" && in.Type != "UDP-CONNECT":
		return failure(http.StatusNotImplemented, "", "OVN provider does not support %s health monitor type", in.Type)
	}
	if err := checkMonitorNumbers(in.Delay, in.Timeout, in.MaxRetries, in.MaxRetriesDown); err != nil {
		return err
	}
	m := &Monitor{
		ID: s.newID(0x40), Name: in.Name, Type: in.Type, Delay: in.Delay, Timeout: in.Timeout, MaxRetries: in.MaxRetries, MaxRetriesDown: in.MaxRetriesDown,
		URLPath: orNull(in.URLPath), Method: orNull(in.Method), ExpectedCodes: orNull(in.ExpectedCodes), Pools: []Ref{{p.ID}}, AdminStateUp: true,
		ProvisioningStatus: Active, OperatingStatus: "ONLINE", ProjectID: Project,
	}
	if m.MaxRetriesDown == 0 {
		m.MaxRetriesDown = 3
	}
	s.monitors.put(m.ID, m)
	p.MonitorID = m.ID
	return nil
}

func checkMonitorNumbers(delay, timeout, up, down int) error {
	if delay < 1 || timeout < 1 || up < 1 || up > 10 || down < 0 || down > 10 {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute delay, timeout, max_retries or max_retries_down. Value: '%d %d %d %d'", delay, timeout, up, down)
	}
	return nil
}

func (s *Sim) serveListeners(w http.ResponseWriter, r *http.Request, id string) error {
	if id == "" && r.Method == http.MethodPost {
		var in createListener
		if err := decodeBody(r, "listener", &in); err != nil {
			return err
		}
		lb := s.balancers.byID[in.LoadBalancerID]
		if lb == nil {
			return octaviaNotFound("Load Balancer", in.LoadBalancerID)
		}
		if err := mutable(lb); err != nil {
			return err
		}
		if in.DefaultPool != nil {
			return failure(http.StatusBadRequest, "", "default_pool is not accepted here")
		}
		if err := s.addListener(lb, in); err != nil {
			return err
		}
		s.begin(lb, PendingUpdate)
		write(w, http.StatusCreated, map[string]any{"listener": s.listeners.byID[s.listeners.order[len(s.listeners.order)-1]]})
		return nil
	}
	if id == "" {
		return s.listing(w, r, "listeners", anys(s.listeners.all()), octaviaFilter)
	}
	l := s.listeners.byID[id]
	if l == nil {
		return octaviaNotFound("Listener", id)
	}
	lb := s.balancers.byID[l.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := mutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		s.listeners.remove(id)
		s.begin(lb, PendingUpdate)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := s.updateListener(r, lb, l); err != nil {
			return err
		}
		s.begin(lb, PendingUpdate)
	}
	write(w, http.StatusOK, map[string]any{"listener": l})
	return nil
}

func (s *Sim) updateListener(r *http.Request, lb *LoadBalancer, l *Listener) error {
	var in struct {
		Name                 *string            `json:"name"`
		ConnectionLimit      *int               `json:"connection_limit"`
		Tags                 *[]string          `json:"tags"`
		TimeoutClientData    *int               `json:"timeout_client_data"`
		TimeoutMemberConnect *int               `json:"timeout_member_connect"`
		TimeoutMemberData    *int               `json:"timeout_member_data"`
		TimeoutTCPInspect    *int               `json:"timeout_tcp_inspect"`
		InsertHeaders        *map[string]string `json:"insert_headers"`
		AllowedCIDRs         *[]string          `json:"allowed_cidrs"`
		TLSRef               *string            `json:"default_tls_container_ref"`
	}
	if err := decodeBody(r, "listener", &in); err != nil {
		return err
	}
	check := createListener{Protocol: l.Protocol, ProtocolPort: l.ProtocolPort, ConnectionLimit: in.ConnectionLimit, TLSRef: deref(l.TLSRef), TimeoutClientData: in.TimeoutClientData, TimeoutMemberConnect: in.TimeoutMemberConnect, TimeoutMemberData: in.TimeoutMemberData, TimeoutTCPInspect: in.TimeoutTCPInspect}
	if in.InsertHeaders != nil {
		check.InsertHeaders = *in.InsertHeaders
	}
	if in.AllowedCIDRs != nil {
		check.AllowedCIDRs = *in.AllowedCIDRs
	}
	if in.TLSRef != nil {
		check.TLSRef = *in.TLSRef
	}
	if err := s.checkListener(lb, check); err != nil {
		return err
	}
	assign(&l.Name, in.Name)
	assign(&l.ConnectionLimit, in.ConnectionLimit)
	assign(&l.Tags, in.Tags)
	assign(&l.TimeoutClientData, in.TimeoutClientData)
	assign(&l.TimeoutMemberConnect, in.TimeoutMemberConnect)
	assign(&l.TimeoutMemberData, in.TimeoutMemberData)
	assign(&l.TimeoutTCPInspect, in.TimeoutTCPInspect)
	assign(&l.InsertHeaders, in.InsertHeaders)
	assign(&l.AllowedCIDRs, in.AllowedCIDRs)
	if in.TLSRef != nil {
		l.TLSRef = in.TLSRef
	}
	return nil
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (s *Sim) servePools(w http.ResponseWriter, r *http.Request, id string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createPool(w, r)
	case id == "":
		items := []any{}
		for _, p := range s.pools.all() {
			items = append(items, s.showPool(p))
		}
		return s.listing(w, r, "pools", items, octaviaFilter)
	}
	p := s.pools.byID[id]
	if p == nil {
		return octaviaNotFound("Pool", id)
	}
	lb := s.balancers.byID[p.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := mutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		s.monitors.remove(p.MonitorID)
		s.pools.remove(id)
		for _, l := range s.listenersOf(lb.ID) {
			if deref(l.DefaultPoolID) == id {
				l.DefaultPoolID = nil
			}
		}
		s.begin(lb, PendingUpdate)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := updatePool(r, lb, p); err != nil {
			return err
		}
		s.begin(lb, PendingUpdate)
	}
	write(w, http.StatusOK, map[string]any{"pool": s.showPool(p)})
	return nil
}

func (s *Sim) createPool(w http.ResponseWriter, r *http.Request) error {
	var in createPool
	if err := decodeBody(r, "pool", &in); err != nil {
		return err
	}
	l := s.listeners.byID[in.ListenerID]
	if l == nil {
		return octaviaNotFound("Listener", in.ListenerID)
	}
	lb := s.balancers.byID[l.LoadBalancers[0].ID]
	if err := mutable(lb); err != nil {
		return err
	}
	if l.DefaultPoolID != nil {
		return failure(http.StatusConflict, "", "Listener %s already has a default pool", l.ID)
	}
	if in.Members != nil || in.Monitor != nil {
		return failure(http.StatusBadRequest, "", "members and healthmonitor are not accepted here")
	}
	p, err := s.addPool(lb, l, in)
	if err != nil {
		return err
	}
	l.DefaultPoolID = &p.ID
	s.begin(lb, PendingUpdate)
	write(w, http.StatusCreated, map[string]any{"pool": s.showPool(p)})
	return nil
}

// updatePool changes what can be changed of a pool.
func updatePool(r *http.Request, lb *LoadBalancer, p *Pool) error {
	var in struct {
		Name        *string         `json:"name"`
		Algorithm   *string         `json:"lb_algorithm"`
		Persistence json.RawMessage `json:"session_persistence"`
	}
	if err := decodeBody(r, "pool", &in); err != nil {
		return err
	}
	if in.Algorithm != nil && !slices.Contains(algorithms(lb.Provider), *in.Algorithm) {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute lb_algorithm. Value: '%s'", *in.Algorithm)
	}
	assign(&p.Algorithm, in.Algorithm)
	assign(&p.Name, in.Name)
	if len(in.Persistence) > 0 {
		p.Persistence = nil
		if err := json.Unmarshal(in.Persistence, &p.Persistence); err != nil {
			return failure(http.StatusBadRequest, "", "Invalid session_persistence")
		}
	}
	return nil
}

func algorithms(provider string) []string {
	if provider == "ovn" {
		return []string{"SOURCE_IP_PORT"}
	}
	return []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}
}

func (s *Sim) serveMembers(w http.ResponseWriter, r *http.Request, pool string, parts []string) error {
	p := s.pools.byID[pool]
	if p == nil {
		return octaviaNotFound("Pool", pool)
	}
	lb := s.balancers.byID[p.LoadBalancers[0].ID]
	if r.Method == http.MethodGet {
		return s.listing(w, r, "members", anys(p.members), octaviaFilter)
	}
	if err := mutable(lb); err != nil {
		return err
	}
	var err error
	status := http.StatusNoContent
	var body any
	switch {
	case r.Method == http.MethodPut && len(parts) == 3:
		status, err = http.StatusAccepted, s.replaceMembers(r, p)
	case r.Method == http.MethodPost:
		if err = s.addMember(r, p); err == nil {
			status, body = http.StatusCreated, map[string]any{"member": p.members[len(p.members)-1]}
		}
	case r.Method == http.MethodDelete && len(parts) == 4:
		i := slices.IndexFunc(p.members, func(m *Member) bool { return m.ID == parts[3] })
		if i < 0 {
			return octaviaNotFound("Member", parts[3])
		}
		p.members = slices.Delete(p.members, i, i+1)
	default:
		err = failure(http.StatusMethodNotAllowed, "", "not simulated")
	}
	if err != nil {
		return err
	}
	s.begin(lb, PendingUpdate)
	if body == nil {
		w.WriteHeader(status)
		return nil
	}
	write(w, status, body)
	return nil
}

// replaceMembers takes a complete list.
func (s *Sim) replaceMembers(r *http.Request, p *Pool) error {
	var body struct {
		Members *[]createMember `json:"members"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || body.Members == nil {
		return failure(http.StatusBadRequest, "", "Invalid input: the body must hold members")
	}
	return s.setMembers(p, *body.Members)
}

func (s *Sim) addMember(r *http.Request, p *Pool) error {
	var in createMember
	if err := decodeBody(r, "member", &in); err != nil {
		return err
	}
	list := []createMember{}
	for _, m := range p.members {
		if m.Address == in.Address && m.ProtocolPort == in.ProtocolPort {
			return failure(http.StatusConflict, "", "Another member on this pool is already using ip %s on protocol_port %d", in.Address, in.ProtocolPort)
		}
		list = append(list, createMember{Name: m.Name, Address: m.Address, ProtocolPort: m.ProtocolPort, SubnetID: m.SubnetID, MonitorPort: m.MonitorPort})
	}
	return s.setMembers(p, append(list, in))
}

func (s *Sim) serveMonitors(w http.ResponseWriter, r *http.Request, id string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createMonitor(w, r)
	case id == "":
		return s.listing(w, r, "healthmonitors", anys(s.monitors.all()), octaviaFilter)
	}
	m := s.monitors.byID[id]
	if m == nil {
		return octaviaNotFound("Health Monitor", id)
	}
	p := s.pools.byID[m.Pools[0].ID]
	lb := s.balancers.byID[p.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := mutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		p.MonitorID = ""
		s.monitors.remove(id)
		s.begin(lb, PendingUpdate)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := updateMonitor(r, m); err != nil {
			return err
		}
		s.begin(lb, PendingUpdate)
	}
	write(w, http.StatusOK, map[string]any{"healthmonitor": m})
	return nil
}

func (s *Sim) createMonitor(w http.ResponseWriter, r *http.Request) error {
	var in createMonitor
	if err := decodeBody(r, "healthmonitor", &in); err != nil {
		return err
	}
	p := s.pools.byID[in.PoolID]
	if p == nil {
		return octaviaNotFound("Pool", in.PoolID)
	}
	lb := s.balancers.byID[p.LoadBalancers[0].ID]
	if err := mutable(lb); err != nil {
		return err
	}
	if err := s.addMonitor(lb, p, in); err != nil {
		return err
	}
	s.begin(lb, PendingUpdate)
	write(w, http.StatusCreated, map[string]any{"healthmonitor": s.monitors.byID[p.MonitorID]})
	return nil
}

func updateMonitor(r *http.Request, m *Monitor) error {
	var in struct {
		Name           *string `json:"name"`
		Delay          *int    `json:"delay"`
		Timeout        *int    `json:"timeout"`
		MaxRetries     *int    `json:"max_retries"`
		MaxRetriesDown *int    `json:"max_retries_down"`
		URLPath        *string `json:"url_path"`
		Method         *string `json:"http_method"`
		ExpectedCodes  *string `json:"expected_codes"`
	}
	if err := decodeBody(r, "healthmonitor", &in); err != nil {
		return err
	}
	if err := checkMonitorNumbers(withDefault(in.Delay, m.Delay), withDefault(in.Timeout, m.Timeout), withDefault(in.MaxRetries, m.MaxRetries), withDefault(in.MaxRetriesDown, m.MaxRetriesDown)); err != nil {
		return err
	}
	assign(&m.Name, in.Name)
	assign(&m.Delay, in.Delay)
	assign(&m.Timeout, in.Timeout)
	assign(&m.MaxRetries, in.MaxRetries)
	assign(&m.MaxRetriesDown, in.MaxRetriesDown)
	if in.URLPath != nil {
		m.URLPath = in.URLPath
	}
	if in.ExpectedCodes != nil {
		m.ExpectedCodes = in.ExpectedCodes
	}
	return nil
}

// DropLoadBalancer removes a load balancer and its parts behind the API's back.
func (s *Sim) DropLoadBalancer(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropBalancer(s.balancers.byID[id])
}
