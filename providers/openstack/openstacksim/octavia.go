package openstacksim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
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

// Stamp is a time of change; null until something has changed.
type Stamp string

// MarshalJSON implements json.Marshaler.
func (s Stamp) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(s))
}

// row points to the columns that all of Octavia's tables share: a change of the status sets the time of change too.
type row struct {
	status  *string
	updated **string
}

func (l *Listener) row() row { return row{&l.ProvisioningStatus, &l.UpdatedAt} }
func (p *Pool) row() row     { return row{&p.ProvisioningStatus, &p.UpdatedAt} }
func (m *Member) row() row   { return row{&m.ProvisioningStatus, &m.UpdatedAt} }
func (m *Monitor) row() row  { return row{&m.ProvisioningStatus, &m.UpdatedAt} }

// touch changes the time of a row.
func (r row) touch(at time.Time) {
	*r.updated = new(at.UTC().Format(octaviaTime))
}

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
	UpdatedAt          Stamp           `json:"updated_at"`

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
	UpdatedAt            *string           `json:"updated_at"`
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
	UpdatedAt          *string      `json:"updated_at"`
	ProjectID          string       `json:"project_id"`

	members []*Member
	// redirects are the listeners with policies that lead to it.
	redirects []Ref
}

// RedirectFrom has a policy of a listener lead to a pool.
func (p *Pool) RedirectFrom(listener string) { p.redirects = append(p.redirects, Ref{listener}) }

// BackendMembers returns the members of a pool.
func (p Pool) BackendMembers() []Member {
	list := []Member{}
	for _, m := range p.members {
		list = append(list, *m)
	}
	return list
}

// DropMembers takes all members out of a pool.
func (p *Pool) DropMembers() { p.members = nil }

// FillMembers gives a pool so many members, at addresses of a network that no test uses.
func (p *Pool) FillMembers(n int) {
	p.members = make([]*Member, n)
	for i := range p.members {
		p.members[i] = &Member{
			ID:      fmt.Sprintf("3f%06x-0000-4000-8000-%012x", i, i),
			Address: netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String(), ProtocolPort: 30000,
			Weight: 1, AdminStateUp: true, Tags: []string{}, ProvisioningStatus: Active, OperatingStatus: "NO_MONITOR",
		}
	}
}

// ReplaceMember puts another member in the place of the one with an ID, with the same name, address and port but another weight.
func (p *Pool) ReplaceMember(id, by string, weight int) {
	for i, m := range p.members {
		if m.ID == id {
			one := *m
			one.ID, one.Weight = by, weight
			p.members[i] = &one
		}
	}
}

// Swap takes the member with an ID out of a pool, and puts one at an address of nobody's in.
func (p *Pool) Swap(id, by string) {
	p.RenameMember(id, "")
	p.members = append(p.members, &Member{
		ID: by, Address: "10.201.0.1", ProtocolPort: 30999, Weight: 1, AdminStateUp: true, Tags: []string{}, ProvisioningStatus: Active,
		OperatingStatus: "NO_MONITOR",
	})
}

// RenameMember gives another name to the member with an ID, or takes it away where that is "".
func (p *Pool) RenameMember(id, name string) {
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m *Member) bool { return m.ID == id && name == "" })
	for i, m := range p.members {
		if m.ID == id {
			one := *m
			one.Name = name
			p.members[i] = &one
		}
	}
}

// CheckMembersAt has the members of a pool checked at a port of their own.
func (p *Pool) CheckMembersAt(port int) {
	for _, m := range p.members {
		m.MonitorPort = &port
	}
}

// MoveMembers puts all members of a pool on another subnet.
func (p *Pool) MoveMembers(subnet string) {
	for _, m := range p.members {
		m.SubnetID = &subnet
	}
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
	UpdatedAt          *string  `json:"updated_at"`
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
	UpdatedAt          *string `json:"updated_at"`
	ProjectID          string  `json:"project_id"`
}

// LoadBalancers returns all load balancers.
func (s *Sim) LoadBalancers() []LoadBalancer { return copiesOf(s, &s.loadBalancers) }

// Listeners returns all listeners.
func (s *Sim) Listeners() []Listener { return copiesOf(s, &s.listeners) }

// Pools returns all pools.
func (s *Sim) Pools() []Pool { return copiesOf(s, &s.pools) }

// Monitors returns all health monitors.
func (s *Sim) Monitors() []Monitor { return copiesOf(s, &s.monitors) }

// How long a real Octavia works that builds load balancers from machines.
const (
	minWork, maxWork         = 500 * time.Millisecond, 3 * time.Second
	minCreation, maxCreation = 5 * time.Second, 60 * time.Second
)

// RealTime has Octavia work from now on as long as real ones do: 5 to 60 s for a new load balancer, 0.5 to 3 s for every other change.
func (s *Sim) RealTime() { s.mu.Do(func() { s.real = true }) }

// SetActivation sets how long Octavia works on a change that begins from now on, half of it more or less.
func (s *Sim) SetActivation(d time.Duration) { s.mu.Do(func() { s.activation, s.real = d, false }) }

// WorkDurations returns how long Octavia has worked on each change so far, in order.
func (s *Sim) WorkDurations() []time.Duration {
	return simkit.Get(&s.mu, func() []time.Duration { return slices.Clone(s.works) })
}

// SetOctaviaMinor sets the newest version of Octavia's API, 2.x.
func (s *Sim) SetOctaviaMinor(minor int) { s.mu.Do(func() { s.octavia = minor }) }

// FailCreations lets the next n load balancers end in ERROR.
func (s *Sim) FailCreations(n int) { s.mu.Do(func() { s.failCreates = n }) }

// AllowFailover says whether the credential may order a failover, which is an administrator's right by default.
func (s *Sim) AllowFailover(allowed bool) { s.mu.Do(func() { s.mayFailOver = allowed }) }

// ChangeLoadBalancer changes a load balancer behind the API's back.
func (s *Sim) ChangeLoadBalancer(id string, change func(*LoadBalancer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	change(s.loadBalancers.ByID[id])
}

// ChangeListener changes a listener behind the API's back.
func (s *Sim) ChangeListener(id string, change func(*Listener)) {
	s.mu.Do(func() { change(s.listeners.ByID[id]) })
}

// ChangePool changes a pool behind the API's back.
func (s *Sim) ChangePool(id string, change func(*Pool)) { s.mu.Do(func() { change(s.pools.ByID[id]) }) }

// DropPool removes a pool behind the API's back.
func (s *Sim) DropPool(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.Remove(id)
	for _, l := range s.listeners.All() {
		if deref(l.DefaultPoolID) == id {
			l.DefaultPoolID = nil
		}
	}
}

// CopyPool makes so many copies of a pool.
func (s *Sim) CopyPool(id string, copies int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range copies {
		p := *s.pools.ByID[id]
		p.ID = s.newID(0x3d)
		s.pools.Put(p.ID, &p)
	}
}

// ChangeAfterWork has somebody else change a pool as soon as the work on its load balancer that is under way, or comes next, is
// done, before anybody sees that. Octavia works on that change, too.
func (s *Sim) ChangeAfterWork(id string, change func(*Pool)) {
	s.mu.Do(func() { s.after = append(s.after, laterChange{id, change}) })
}

type laterChange struct {
	pool   string
	change func(*Pool)
}

// makeLaterChanges makes the changes that wait for the work on a load balancer.
func (s *Sim) makeLaterChanges(lb *LoadBalancer) {
	s.after = slices.DeleteFunc(s.after, func(c laterChange) bool {
		p := s.pools.ByID[c.pool]
		if p == nil || p.LoadBalancers[0].ID != lb.ID {
			return false
		}
		c.change(p)
		s.startWork(lb, PendingUpdate)
		return true
	})
}

// finishWork lets finished work take effect.
func (s *Sim) finishWork() {
	now := time.Now()
	for _, lb := range s.loadBalancers.All() {
		if !strings.HasPrefix(lb.ProvisioningStatus, "PENDING") || now.Before(lb.ready) {
			continue
		}
		if lb.ProvisioningStatus == PendingDelete {
			s.dropLoadBalancer(lb)
			continue
		}
		lb.ProvisioningStatus, lb.OperatingStatus = lb.outcome, "ONLINE"
		lb.UpdatedAt = Stamp(lb.ready.UTC().Format(octaviaTime)) // Octavia's worker changes it, too, when it is done
		if lb.outcome == Active {                                // the parts of one that failed stay as they were
			s.finishParts(lb)
		}
		s.makeLaterChanges(lb)
	}
}

// finishParts ends the work on the parts of a load balancer: what was to go has gone, and what was worked on has a time of its own.
func (s *Sim) finishParts(lb *LoadBalancer) {
	done := func(r row) {
		if strings.HasPrefix(*r.status, "PENDING") {
			*r.status = Active
			r.touch(lb.ready)
		}
	}
	for _, p := range s.poolsOf(lb.ID) {
		p.members = slices.DeleteFunc(slices.Clone(p.members), func(m *Member) bool { return m.ProvisioningStatus == PendingDelete })
		for _, m := range p.members {
			done(m.row())
		}
		if m := s.monitors.ByID[p.MonitorID]; m != nil && (m.ProvisioningStatus == PendingDelete || p.ProvisioningStatus == PendingDelete) {
			s.monitors.Remove(m.ID)
			p.MonitorID = ""
			for _, member := range p.members { // whose operating status becomes another one
				member.row().touch(lb.ready)
			}
		} else if m != nil {
			done(m.row())
		}
		if p.ProvisioningStatus == PendingDelete {
			s.pools.Remove(p.ID)
			for _, l := range s.listenersOf(lb.ID) {
				if deref(l.DefaultPoolID) == p.ID {
					l.DefaultPoolID = nil
				}
			}
			continue
		}
		done(p.row())
	}
	for _, l := range s.listenersOf(lb.ID) {
		if l.ProvisioningStatus == PendingDelete {
			s.listeners.Remove(l.ID)
			continue
		}
		done(l.row())
	}
}

// startWork has Octavia work on a load balancer and on the given rows: those that a change is about, and those above them. How long the
// work takes varies, in every run alike.
func (s *Sim) startWork(lb *LoadBalancer, status string, rows ...row) {
	now := time.Now()
	lb.ProvisioningStatus, lb.outcome = status, Active
	lb.ready = now.Add(s.duration(status))
	s.works = append(s.works, lb.ready.Sub(now))
	if status != PendingCreate {
		lb.UpdatedAt = Stamp(now.UTC().Format(octaviaTime))
	}
	for _, r := range rows {
		if *r.status == Active {
			*r.status = PendingUpdate
		}
		if *r.status != PendingCreate {
			r.touch(now)
		}
	}
}

// duration is how long Octavia works on a change.
func (s *Sim) duration(status string) time.Duration {
	least, most := s.activation/2, s.activation+s.activation/2
	switch {
	case s.real && status == PendingCreate:
		least, most = minCreation, maxCreation
	case s.real:
		least, most = minWork, maxWork
	case s.steady:
		return s.activation
	}
	return least + time.Duration(s.dice.Int64N(int64(most-least)+1))
}

// poolAndListeners are a pool and the listeners that lead to it.
func (s *Sim) poolAndListeners(p *Pool) []row {
	rows := []row{p.row()}
	for _, l := range s.listeners.All() {
		if deref(l.DefaultPoolID) == p.ID {
			rows = append(rows, l.row())
		}
	}
	return rows
}

// dropLoadBalancer removes a load balancer and what belongs to it.
func (s *Sim) dropLoadBalancer(lb *LoadBalancer) {
	for _, l := range s.listenersOf(lb.ID) {
		s.listeners.Remove(l.ID)
	}
	for _, p := range s.poolsOf(lb.ID) {
		s.monitors.Remove(p.MonitorID)
		s.pools.Remove(p.ID)
	}
	s.loadBalancers.Remove(lb.ID)
	if lb.ownPort {
		s.removePort(lb.VIPPortID)
	}
}

func (s *Sim) listenersOf(id string) []*Listener {
	return slices.DeleteFunc(s.listeners.All(), func(l *Listener) bool { return l.LoadBalancers[0].ID != id })
}

func (s *Sim) poolsOf(id string) []*Pool {
	return slices.DeleteFunc(s.pools.All(), func(p *Pool) bool { return p.LoadBalancers[0].ID != id })
}

// withReferences fills in the references that a load balancer carries.
func (s *Sim) withReferences(lb *LoadBalancer) *LoadBalancer {
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
	for _, l := range s.listeners.All() {
		if deref(l.DefaultPoolID) == p.ID {
			shown.Listeners = append(shown.Listeners, Ref{l.ID})
		}
	}
	shown.Listeners = append(shown.Listeners, p.redirects...)
	return &shown
}

// checkMutable refuses changes while Octavia works on the load balancer, and of broken ones.
func checkMutable(lb *LoadBalancer) error {
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
			versions = append(
				versions,
				map[string]any{
					"id": fmt.Sprintf("v2.%d", minor), "status": status, "updated": "2026-01-01T00:00:00Z",
					"links": []any{map[string]string{"rel": "self", "href": "http://" + r.Host + loadBalancerPath + "/v2"}},
				},
			)
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
		return s.serveLoadBalancers(w, r, id, parts)
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

func withDefault(p *int, d int) int {
	if p == nil {
		return d
	}
	return *p
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
