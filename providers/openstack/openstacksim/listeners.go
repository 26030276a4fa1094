package openstacksim

import (
	"net/http"
	"net/netip"
	"slices"
	"time"
)

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
		ID: s.newID(0x11), Name: in.Name, Protocol: in.Protocol, ProtocolPort: in.ProtocolPort,
		ConnectionLimit: withDefault(in.ConnectionLimit, -1),
		TLSRef:          orNull(in.TLSRef), SNIRefs: []string{}, InsertHeaders: headers, AllowedCIDRs: in.AllowedCIDRs,
		Tags:              append([]string{}, in.Tags...),
		TimeoutClientData: withDefault(in.TimeoutClientData, 50000), TimeoutMemberConnect: withDefault(in.TimeoutMemberConnect, 5000),
		TimeoutMemberData: withDefault(in.TimeoutMemberData, 50000), TimeoutTCPInspect: withDefault(in.TimeoutTCPInspect, 0),
		LoadBalancers: []Ref{{lb.ID}}, AdminStateUp: true, ProvisioningStatus: PendingCreate, OperatingStatus: "OFFLINE", ProjectID: Project,
	}
	if in.DefaultPool != nil {
		if err := checkProtocols(l.Protocol, in.DefaultPool.Protocol); err != nil {
			return err
		}
		p, err := s.addPool(lb, *in.DefaultPool)
		if err != nil {
			return err
		}
		l.DefaultPoolID = &p.ID
		l.row().touch(time.Now()) // it is made first, and then changed
	}
	s.listeners.Put(l.ID, l)
	return nil
}

func (s *Sim) serveListeners(w http.ResponseWriter, r *http.Request, id string) error {
	if id == "" && r.Method == http.MethodPost {
		var in createListener
		if err := decodeBody(r, "listener", &in); err != nil {
			return err
		}
		lb := s.loadBalancers.ByID[in.LoadBalancerID]
		if lb == nil {
			return octaviaNotFound("Load Balancer", in.LoadBalancerID)
		}
		if err := checkMutable(lb); err != nil {
			return err
		}
		if in.DefaultPool != nil {
			return failure(http.StatusBadRequest, "", "default_pool is not accepted here")
		}
		if err := s.addListener(lb, in); err != nil {
			return err
		}
		s.startWork(lb, PendingUpdate)
		write(w, http.StatusCreated, map[string]any{"listener": s.listeners.ByID[s.listeners.Order[len(s.listeners.Order)-1]]})
		return nil
	}
	if id == "" {
		return s.listing(w, r, "listeners", anys(s.listeners.All()), octaviaFilter)
	}
	l := s.listeners.ByID[id]
	if l == nil {
		return octaviaNotFound("Listener", id)
	}
	lb := s.loadBalancers.ByID[l.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := checkMutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		l.ProvisioningStatus = PendingDelete
		s.startWork(lb, PendingUpdate, l.row())
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := s.updateListener(r, lb, l); err != nil {
			return err
		}
		s.startWork(lb, PendingUpdate, l.row())
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
		DefaultPoolID        *string            `json:"default_pool_id"`
	}
	if err := decodeBody(r, "listener", &in); err != nil {
		return err
	}
	if in.DefaultPoolID != nil {
		p := s.pools.ByID[*in.DefaultPoolID]
		if p == nil || p.LoadBalancers[0].ID != lb.ID {
			return octaviaNotFound("Pool", *in.DefaultPoolID)
		}
		if err := checkProtocols(l.Protocol, p.Protocol); err != nil {
			return err
		}
	}
	check := createListener{
		Protocol: l.Protocol, ProtocolPort: l.ProtocolPort, ConnectionLimit: in.ConnectionLimit, TLSRef: deref(l.TLSRef),
		TimeoutClientData: in.TimeoutClientData, TimeoutMemberConnect: in.TimeoutMemberConnect, TimeoutMemberData: in.TimeoutMemberData,
		TimeoutTCPInspect: in.TimeoutTCPInspect,
	}
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
	if in.DefaultPoolID != nil {
		l.DefaultPoolID = in.DefaultPoolID
	}
	return nil
}
