package openstacksim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

type createPool struct {
	ListenerID     string         `json:"listener_id"`
	LoadBalancerID string         `json:"loadbalancer_id"`
	Name           string         `json:"name"`
	Protocol       string         `json:"protocol"`
	Algorithm      string         `json:"lb_algorithm"`
	Persistence    *Persistence   `json:"session_persistence"`
	Members        []createMember `json:"members"`
	Monitor        *createMonitor `json:"healthmonitor"`
	Tags           []string       `json:"tags"`
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

// checkProtocols refuses a protocol of a pool that does not go with that of its listener.
func checkProtocols(listener, pool string) error {
	if slices.Contains(poolProtocols(listener), pool) {
		return nil
	}
	return failure(http.StatusBadRequest, "", "Validation failure: The pool protocol '%s' is invalid while the listener protocol is '%s'.", pool, listener)
}

func (s *Sim) addPool(lb *LoadBalancer, in createPool) (*Pool, error) {
	switch {
	case !slices.Contains([]string{"HTTP", "HTTPS", "PROXY", "PROXYV2", "SCTP", "TCP", "UDP"}, in.Protocol),
		in.Protocol == "PROXYV2" && s.octavia < 22:
		return nil, failure(http.StatusBadRequest, "", "Invalid input for field/attribute protocol. Value: '%s'", in.Protocol)
	case !slices.Contains(algorithms(lb.Provider), in.Algorithm):
		return nil, failure(http.StatusBadRequest, "", "Invalid input for field/attribute lb_algorithm. Value: '%s'", in.Algorithm)
	case lb.Provider == "ovn" && strings.HasPrefix(in.Protocol, "PROXY"):
		return nil, failure(http.StatusNotImplemented, "", "OVN provider does not support %s protocol", in.Protocol)
	case len(in.Tags) > 0 && s.octavia < 5:
		return nil, failure(http.StatusBadRequest, "", "Invalid input for field/attribute: unknown attribute in this version")
	case s.overQuota("pool", len(s.pools.Order)):
		return nil, failure(http.StatusForbidden, "", "Quota has been met for resources: Pool")
	}
	if err := checkPersistence(in.Persistence); err != nil {
		return nil, err
	}
	p := &Pool{
		ID: s.newID(0xb0), Name: in.Name, Protocol: in.Protocol, Algorithm: in.Algorithm, Persistence: in.Persistence,
		LoadBalancers: []Ref{{lb.ID}},
		Tags:          append([]string{}, in.Tags...),
		AdminStateUp:  true, ProvisioningStatus: PendingCreate, OperatingStatus: "OFFLINE", ProjectID: Project,
	}
	if err := s.setMembers(p, in.Members); err != nil {
		return nil, err
	}
	s.pools.Put(p.ID, p)
	if in.Monitor != nil {
		if err := s.addMonitor(lb, p, *in.Monitor); err != nil {
			s.pools.Remove(p.ID)
			return nil, err
		}
	}
	return p, nil
}

// shownMembers are the members of a pool with the status that checks give them: nothing but a check by HTTP answers at a port of its own.
func (s *Sim) shownMembers(p *Pool) []*Member {
	shown := make([]*Member, len(p.members))
	monitor := s.monitors.ByID[p.MonitorID]
	for i, m := range p.members {
		one := *m
		switch {
		case monitor == nil:
			one.OperatingStatus = "NO_MONITOR"
		case monitor.Type != "HTTP" && m.MonitorPort != nil:
			one.OperatingStatus = "ERROR"
		default:
			one.OperatingStatus = "ONLINE"
		}
		shown[i] = &one
	}
	return shown
}

// checkMember refuses what Octavia refuses of a member alone.
func (s *Sim) checkMember(in createMember) error {
	if _, err := netip.ParseAddr(in.Address); err != nil || in.ProtocolPort < 1 || in.ProtocolPort > 65535 {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute address or protocol_port. Value: '%s %d'", in.Address, in.ProtocolPort)
	}
	if port := in.MonitorPort; port != nil && (*port < 1 || *port > 65535) {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute monitor_port. Value: '%d'", *port)
	}
	if in.SubnetID != nil && s.subnets.ByID[*in.SubnetID] == nil {
		return failure(http.StatusNotFound, "", "Subnet %s not found.", *in.SubnetID)
	}
	return nil
}

// setMembers makes the members of a pool be those of a complete list; equal address and port is the same member.
func (s *Sim) setMembers(p *Pool, list []createMember) error {
	var after []*Member
	seen := map[string]bool{}
	for _, in := range list {
		key := fmt.Sprint(in.Address, " ", in.ProtocolPort)
		if seen[key] {
			return failure(http.StatusBadRequest, "", "Validation failure: two members with address and port %s", key)
		}
		seen[key] = true
		if err := s.checkMember(in); err != nil {
			return err
		}
		m := &Member{
			Address: in.Address, ProtocolPort: in.ProtocolPort, Weight: 1, AdminStateUp: true, Tags: []string{}, ProvisioningStatus: PendingCreate,
			OperatingStatus: "NO_MONITOR",
		}
		if i := slices.IndexFunc(
			p.members, func(have *Member) bool { return have.Address == in.Address && have.ProtocolPort == in.ProtocolPort },
		); i >= 0 {
			*m = *p.members[i]
			m.ProvisioningStatus = PendingUpdate
		} else if s.overQuota("member", s.countMembers()) {
			return failure(http.StatusForbidden, "", "Quota has been met for resources: Member")
		} else {
			m.ID = s.newID(0x3e)
		}
		if m.ProvisioningStatus == PendingUpdate {
			m.row().touch(time.Now())
		}
		m.Name, m.SubnetID, m.MonitorPort = in.Name, in.SubnetID, in.MonitorPort
		if in.Weight != nil {
			m.Weight = *in.Weight
		}
		after = append(after, m)
	}
	for _, m := range p.members { // what is not named goes, and is there until Octavia has done it
		if !seen[fmt.Sprint(m.Address, " ", m.ProtocolPort)] {
			m.ProvisioningStatus = PendingDelete
			m.row().touch(time.Now())
			after = append(after, m)
		}
	}
	p.members = after
	return nil
}

func (s *Sim) countMembers() (all int) {
	for _, p := range s.pools.All() {
		all += len(p.members)
	}
	return all
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
	if s.overQuota("healthmonitor", len(s.monitors.Order)) {
		return failure(http.StatusForbidden, "", "Quota has been met for resources: Health Monitor")
	}
	if err := checkMonitorNumbers(in.Delay, in.Timeout, in.MaxRetries, in.MaxRetriesDown); err != nil {
		return err
	}
	if err := checkMonitorTexts(in.URLPath, in.Method, in.ExpectedCodes); err != nil {
		return err
	}
	m := &Monitor{
		ID: s.newID(0x40), Name: in.Name, Type: in.Type, Delay: in.Delay, Timeout: in.Timeout, MaxRetries: in.MaxRetries,
		MaxRetriesDown: in.MaxRetriesDown,
		URLPath:        orNull(in.URLPath), Method: orNull(in.Method), ExpectedCodes: orNull(in.ExpectedCodes), Pools: []Ref{{p.ID}},
		AdminStateUp:       true,
		ProvisioningStatus: PendingCreate, OperatingStatus: "ONLINE", ProjectID: Project,
	}
	if m.MaxRetriesDown == 0 {
		m.MaxRetriesDown = 3
	}
	s.monitors.Put(m.ID, m)
	p.MonitorID = m.ID
	return nil
}

func checkMonitorNumbers(delay, timeout, up, down int) error {
	if delay < 1 || timeout < 1 || up < 1 || up > 10 || down < 0 || down > 10 {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute delay, timeout, max_retries or max_retries_down. Value: '%d %d %d %d'", delay, timeout, up, down)
	}
	return nil
}

var (
	// urlPath and statusCodes are the forms of what an HTTP check asks for and expects; empty is not given.
	urlPath     = regexp.MustCompile(`^(/[!-~]*)?$`)
	httpMethod  = regexp.MustCompile(`^(GET|HEAD|POST|PUT|DELETE|TRACE|OPTIONS|PATCH|CONNECT)?$`)
	statusCodes = regexp.MustCompile(`^([0-9]{3}(\s*,\s*[0-9]{3})*|[0-9]{3}-[0-9]{3})?$`)
)

func checkMonitorTexts(path, method, codes string) error {
	switch {
	case !urlPath.MatchString(path):
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute url_path. Value: '%s'", path)
	case !httpMethod.MatchString(method):
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute http_method. Value: '%s'", method)
	case !statusCodes.MatchString(codes):
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute expected_codes. Value: '%s'", codes)
	}
	return nil
}

func (s *Sim) servePools(w http.ResponseWriter, r *http.Request, id string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createPool(w, r)
	case id == "":
		items := []any{}
		for _, p := range s.pools.All() {
			items = append(items, s.showPool(p))
		}
		return s.listing(w, r, "pools", items, octaviaFilter)
	}
	p := s.pools.ByID[id]
	if p == nil {
		return octaviaNotFound("Pool", id)
	}
	lb := s.loadBalancers.ByID[p.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := checkMutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		p.ProvisioningStatus = PendingDelete
		s.startWork(lb, PendingUpdate, s.poolAndListeners(p)...)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := updatePool(r, lb, p); err != nil {
			return err
		}
		s.startWork(lb, PendingUpdate, s.poolAndListeners(p)...)
	}
	write(w, http.StatusOK, map[string]any{"pool": s.showPool(p)})
	return nil
}

func (s *Sim) createPool(w http.ResponseWriter, r *http.Request) error {
	var in createPool
	if err := decodeBody(r, "pool", &in); err != nil {
		return err
	}
	l, lb := s.listeners.ByID[in.ListenerID], s.loadBalancers.ByID[in.LoadBalancerID]
	switch {
	case in.ListenerID != "" && l == nil:
		return octaviaNotFound("Listener", in.ListenerID)
	case l != nil:
		lb = s.loadBalancers.ByID[l.LoadBalancers[0].ID]
	case in.LoadBalancerID == "":
		return failure(http.StatusBadRequest, "", "Validation failure: Must provide at least one of: listener_id, loadbalancer_id")
	case lb == nil:
		return octaviaNotFound("Load Balancer", in.LoadBalancerID)
	}
	if err := checkMutable(lb); err != nil {
		return err
	}
	if l != nil && l.DefaultPoolID != nil {
		return failure(http.StatusConflict, "", "Listener %s already has a default pool", l.ID)
	}
	if l != nil {
		if err := checkProtocols(l.Protocol, in.Protocol); err != nil {
			return err
		}
	}
	if in.Members != nil || in.Monitor != nil {
		return failure(http.StatusBadRequest, "", "members and healthmonitor are not accepted here")
	}
	p, err := s.addPool(lb, in)
	if err != nil {
		return err
	}
	var rows []row
	if l != nil {
		l.DefaultPoolID, rows = &p.ID, []row{l.row()}
	}
	s.startWork(lb, PendingUpdate, rows...)
	write(w, http.StatusCreated, map[string]any{"pool": s.showPool(p)})
	return nil
}

func checkPersistence(p *Persistence) error {
	if p != nil && !slices.Contains([]string{"SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE"}, p.Type) {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute session_persistence.type. Value: '%s'", p.Type)
	}
	return nil
}

// updatePool changes what can be changed of a pool.
func updatePool(r *http.Request, lb *LoadBalancer, p *Pool) error {
	var in struct {
		Name        *string         `json:"name"`
		Algorithm   *string         `json:"lb_algorithm"`
		Persistence json.RawMessage `json:"session_persistence"`
		Tags        *[]string       `json:"tags"`
	}
	if err := decodeBody(r, "pool", &in); err != nil {
		return err
	}
	if in.Algorithm != nil && !slices.Contains(algorithms(lb.Provider), *in.Algorithm) {
		return failure(http.StatusBadRequest, "", "Invalid input for field/attribute lb_algorithm. Value: '%s'", *in.Algorithm)
	}
	assign(&p.Algorithm, in.Algorithm)
	assign(&p.Name, in.Name)
	assign(&p.Tags, in.Tags)
	if len(in.Persistence) > 0 {
		var persistence *Persistence
		if err := json.Unmarshal(in.Persistence, &persistence); err != nil {
			return failure(http.StatusBadRequest, "", "Invalid session_persistence")
		}
		if err := checkPersistence(persistence); err != nil {
			return err
		}
		p.Persistence = persistence
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
	p := s.pools.ByID[pool]
	if p == nil {
		return octaviaNotFound("Pool", pool)
	}
	lb := s.loadBalancers.ByID[p.LoadBalancers[0].ID]
	if r.Method == http.MethodGet {
		return s.listing(w, r, "members", anys(s.shownMembers(p)), octaviaFilter)
	}
	if err := checkMutable(lb); err != nil {
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
		p.members[i].ProvisioningStatus = PendingDelete
		p.members[i].row().touch(time.Now())
	default:
		err = failure(http.StatusMethodNotAllowed, "", "not simulated")
	}
	if err != nil {
		return err
	}
	s.startWork(lb, PendingUpdate, s.poolAndListeners(p)...)
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
	for _, m := range p.members {
		if m.Address == in.Address && m.ProtocolPort == in.ProtocolPort {
			return failure(http.StatusConflict, "", "Another member on this pool is already using ip %s on protocol_port %d", in.Address, in.ProtocolPort)
		}
	}
	one := &Pool{}
	if err := s.setMembers(one, []createMember{in}); err != nil {
		return err
	}
	p.members = append(slices.Clone(p.members), one.members...) // the others are left alone, unlike by a batch
	return nil
}

func (s *Sim) serveMonitors(w http.ResponseWriter, r *http.Request, id string) error {
	switch {
	case id == "" && r.Method == http.MethodPost:
		return s.createMonitor(w, r)
	case id == "":
		return s.listing(w, r, "healthmonitors", anys(s.monitors.All()), octaviaFilter)
	}
	m := s.monitors.ByID[id]
	if m == nil {
		return octaviaNotFound("Health Monitor", id)
	}
	p := s.pools.ByID[m.Pools[0].ID]
	lb := s.loadBalancers.ByID[p.LoadBalancers[0].ID]
	if r.Method != http.MethodGet {
		if err := checkMutable(lb); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodDelete:
		m.ProvisioningStatus = PendingDelete
		s.startWork(lb, PendingUpdate, append(s.poolAndListeners(p), m.row())...)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut:
		if err := updateMonitor(r, m); err != nil {
			return err
		}
		s.startWork(lb, PendingUpdate, append(s.poolAndListeners(p), m.row())...)
	}
	write(w, http.StatusOK, map[string]any{"healthmonitor": m})
	return nil
}

func (s *Sim) createMonitor(w http.ResponseWriter, r *http.Request) error {
	var in createMonitor
	if err := decodeBody(r, "healthmonitor", &in); err != nil {
		return err
	}
	p := s.pools.ByID[in.PoolID]
	if p == nil {
		return octaviaNotFound("Pool", in.PoolID)
	}
	lb := s.loadBalancers.ByID[p.LoadBalancers[0].ID]
	if err := checkMutable(lb); err != nil {
		return err
	}
	if err := s.addMonitor(lb, p, in); err != nil {
		return err
	}
	s.startWork(lb, PendingUpdate, s.poolAndListeners(p)...)
	write(w, http.StatusCreated, map[string]any{"healthmonitor": s.monitors.ByID[p.MonitorID]})
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
	if err := checkMonitorNumbers(
		withDefault(in.Delay, m.Delay), withDefault(in.Timeout, m.Timeout), withDefault(in.MaxRetries, m.MaxRetries),
		withDefault(in.MaxRetriesDown, m.MaxRetriesDown),
	); err != nil {
		return err
	}
	if err := checkMonitorTexts(deref(in.URLPath), deref(in.Method), deref(in.ExpectedCodes)); err != nil {
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
	if in.Method != nil {
		m.Method = in.Method
	}
	if in.ExpectedCodes != nil {
		m.ExpectedCodes = in.ExpectedCodes
	}
	return nil
}
