package ibmsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Target is where a member sends its traffic.
type Target struct {
	Address string `json:"address,omitempty"`
	ID      string `json:"id,omitempty"`
}

// Member is a member of a pool.
type Member struct {
	ID     string `json:"-"`
	Port   int    `json:"port"`
	Target Target `json:"target"`
}

// Monitor is the health check of a pool.
type Monitor struct {
	Delay   int    `json:"delay"`
	Retries int    `json:"max_retries"`
	Port    *int   `json:"port,omitempty"`
	Timeout int    `json:"timeout"`
	Type    string `json:"type"`
	Path    string `json:"url_path,omitempty"`
}

// Pool is a pool.
type Pool struct {
	ID        string   `json:"-"`
	Algorithm string   `json:"algorithm"`
	Monitor   *Monitor `json:"health_monitor"`
	Members   []Member `json:"members"`
	Name      string   `json:"name"`
	Protocol  string   `json:"protocol"`
	Proxy     string   `json:"proxy_protocol"`
}

// Reference names an object by one of these.
type Reference struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Listener is a listener.
type Listener struct {
	ID       string     `json:"-"`
	Limit    *int       `json:"connection_limit,omitempty"`
	Pool     *Reference `json:"default_pool,omitempty"`
	Idle     *int       `json:"idle_connection_timeout,omitempty"`
	Port     int        `json:"port,omitempty"`
	PortMin  int        `json:"port_min,omitempty"`
	PortMax  int        `json:"port_max,omitempty"`
	Protocol string     `json:"protocol"`
}

// DNS is the zone that registers a load balancer.
type DNS struct {
	Instance struct {
		CRN string `json:"crn"`
	} `json:"instance"`
	Zone Reference `json:"zone"`
}

// LoadBalancer is a load balancer.
type LoadBalancer struct {
	ID, Name, Hostname string
	Public, Network    bool
	Subnets            []string
	// Groups are security groups, by ID. NoGroups is set where it takes none.
	Groups    []string
	NoGroups  bool
	Listeners []Listener
	Pools     []Pool
	DNS       *DNS
	// Provisioning is a status that stays, such as failed; "" follows from the time.
	Provisioning string

	number   int
	ready    bool
	deleting bool
	// began is when the cloud began to work on it, and busy when that ends.
	began, busy time.Time
}

// balancing holds the simulator's load balancers and security groups.
type balancing struct {
	loadBalancers []*LoadBalancer
	groups        []SecurityGroup
	lag           time.Duration
	past          []moment
	lags          lags
}

// LoadBalancers returns copies of all.
func (s *Sim) LoadBalancers() []LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	list := make([]LoadBalancer, len(s.loadBalancers))
	for n, lb := range s.loadBalancers {
		list[n] = *lb
	}
	return list
}

// EditLoadBalancer changes one as somebody does by hand.
func (s *Sim) EditLoadBalancer(name string, change func(*LoadBalancer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lb := range s.loadBalancers {
		if lb.Name == name {
			change(lb)
			return nil
		}
	}
	return errors.New("there is no load balancer " + name)
}

// RemoveLoadBalancers deletes all load balancers, as somebody does by hand.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadBalancers = nil
	s.recordMoment()
}

// FailDeletion ends a deletion that the cloud works on: the load balancer has failed, and stays.
func (s *Sim) FailDeletion(name string) error {
	return s.EditLoadBalancer(name, func(lb *LoadBalancer) { lb.deleting, lb.Provisioning = false, "failed" })
}

// finishWork ends work whose time has passed.
func (s *Sim) finishWork() {
	now := time.Now()
	before := len(s.loadBalancers)
	s.loadBalancers = slices.DeleteFunc(s.loadBalancers, func(lb *LoadBalancer) bool {
		gone := lb.deleting && !now.Before(lb.busy)
		if gone {
			s.release(lb, lb.Groups...)
		}
		return gone
	})
	if len(s.loadBalancers) != before {
		s.recordMoment()
	}
	for _, lb := range s.loadBalancers {
		lb.ready = lb.ready || !now.Before(lb.busy)
	}
}

func (lb *LoadBalancer) provisioning() string {
	switch busy := time.Now().Before(lb.busy); {
	case lb.deleting:
		return "delete_pending"
	case lb.Provisioning != "":
		return lb.Provisioning
	case busy && !lb.ready:
		return "create_pending"
	case busy:
		return "update_pending"
	}
	return "active"
}

// setBusy keeps a load balancer busy for a while.
func (s *Sim) setBusy(lb *LoadBalancer) {
	lb.began = time.Now()
	lb.busy = lb.began.Add(s.activation)
}

func refuseMethod() (int, any, *refusal) {
	return 0, nil, refuse(http.StatusMethodNotAllowed, "method_not_allowed", "there is no such call")
}

// serveBalancing speaks the part of the API that is about load balancers.
func (s *Sim) serveBalancing(r *http.Request, segments []string) (int, any, *refusal) {
	s.finishWork()
	if r.Method != http.MethodGet {
		defer s.recordMoment()
	}
	if segments[0] == "security_groups" {
		return s.serveGroups(r, segments[1:])
	}
	if account := r.Header.Get("X-Instance-Account-Id"); account != "" && account != Account {
		return 0, nil, refuse(http.StatusForbidden, "not_authorized", "the account of the instances is not yours")
	}
	if len(segments) == 1 {
		switch r.Method {
		case http.MethodGet:
			shown := []object{}
			for _, lb := range s.listedMoment().balancers {
				shown = append(shown, s.showLoadBalancer(r, lb))
			}
			return s.page(r, "load_balancers", shown)
		case http.MethodPost:
			return s.create(r)
		}
		return refuseMethod()
	}
	at := slices.IndexFunc(s.loadBalancers, func(lb *LoadBalancer) bool { return lb.ID == segments[1] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "load_balancer_not_found", "The load balancer with ID %s cannot be found.", segments[1])
	}
	lb := s.loadBalancers[at]
	if r.Method != http.MethodGet {
		if refused := lb.writable(r.Method == http.MethodDelete && len(segments) == 2); refused != nil {
			return 0, nil, refused
		}
	}
	return s.serveLoadBalancer(r, lb, segments[2:])
}

// serveLoadBalancer serves one load balancer, and what belongs to it.
func (s *Sim) serveLoadBalancer(r *http.Request, lb *LoadBalancer, rest []string) (int, any, *refusal) {
	if len(rest) == 0 {
		switch r.Method {
		case http.MethodGet:
			shown := s.showLoadBalancer(r, lb)
			return http.StatusOK, tagged{tagOf(shown), shown}, nil
		case http.MethodPatch:
			return s.patch(r, lb)
		case http.MethodDelete:
			lb.deleting = true
			s.setBusy(lb)
			s.finishWork()
			return http.StatusAccepted, nil, nil
		}
		return refuseMethod()
	}
	switch rest[0] {
	case "listeners":
		return s.serveListeners(r, lb, rest[1:])
	case "pools":
		return s.servePools(r, lb, rest[1:])
	}
	return 0, nil, refuse(http.StatusNotFound, "not_found", "there is no such path")
}

// tagged is a document with its ETag.
type tagged struct {
	tag string
	object
}

// MarshalJSON implements json.Marshaler.
func (t tagged) MarshalJSON() ([]byte, error) { return json.Marshal(t.object) }

// tagOf differs where documents do.
func tagOf(o object) string {
	text, _ := json.Marshal(o) // it is made of plain values
	return fmt.Sprintf("W/%x", sha256.Sum256(text))[:18]
}

// patch changes the subnets of an application load balancer, which takes its ETag.
func (s *Sim) patch(r *http.Request, lb *LoadBalancer) (int, any, *refusal) {
	var a struct {
		Subnets []Reference `json:"subnets"`
	}
	if refused := decode(r, &a); refused != nil {
		return 0, nil, refused
	}
	vpc := s.vpcOf(lb)
	var ids []string
	for _, one := range a.Subnets {
		known := slices.ContainsFunc(s.subnets, func(n Subnet) bool { return n.ID == one.ID && n.VPC == vpc })
		if !known || one.Name != "" || slices.Contains(ids, one.ID) {
			return 0, nil, refuse(http.StatusBadRequest, "load_balancer_subnet_not_found", "there is no subnet %q in the VPC, or it is there twice", one.ID)
		}
		ids = append(ids, one.ID)
	}
	if refused := refuseFirst(
		check{r.Header.Get("If-Match") == "", "missing_if_match", "an array needs If-Match"},
		check{len(ids) == 0, "load_balancer_missing_subnets", "subnets are required"},
		check{lb.Network, "load_balancer_invalid_subnets", "the subnet of a network load balancer cannot be changed"},
	); refused != nil {
		return 0, nil, refused
	}
	if r.Header.Get("If-Match") != tagOf(s.showLoadBalancer(r, lb)) {
		return 0, nil, refuse(http.StatusPreconditionFailed, "precondition_failed", "the load balancer has changed")
	}
	lb.Subnets = ids
	s.setBusy(lb)
	return http.StatusOK, s.showLoadBalancer(r, lb), nil
}

// writable refuses writes while the cloud works.
func (lb *LoadBalancer) writable(deletion bool) *refusal {
	switch p := lb.provisioning(); {
	case p == "active", p == "failed" && deletion:
		return nil
	case deletion:
		return refuse(http.StatusConflict, "load_balancer_delete_conflict", "The load balancer with ID %s cannot be deleted because its status is %s.", lb.ID, p)
	default:
		return refuse(http.StatusConflict, "load_balancer_update_conflict", "The load balancer with ID %s cannot be updated because its status is %s.", lb.ID, p)
	}
}

// decode reads a body, strictly.
func decode(r *http.Request, out any) *refusal {
	want := "application/json"
	if r.Method == http.MethodPatch {
		want = "application/merge-patch+json"
	}
	if got := r.Header.Get("Content-Type"); got != want {
		return refuse(http.StatusUnsupportedMediaType, "unsupported_media_type", "the content is %q instead of %q", got, want)
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(out)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "bad_field", "the body cannot be read: %v", err)
	}
	return nil
}

type creationRequest struct {
	Public    *bool       `json:"is_public"`
	Listeners []Listener  `json:"listeners"`
	Name      string      `json:"name"`
	Pools     []Pool      `json:"pools"`
	Profile   *Reference  `json:"profile"`
	Group     *Reference  `json:"resource_group"`
	Subnets   []Reference `json:"subnets"`
	DNS       *DNS        `json:"dns"`
	Groups    []Reference `json:"security_groups"`
}

func (s *Sim) create(r *http.Request) (int, any, *refusal) {
	var a creationRequest
	if refused := decode(r, &a); refused != nil {
		return 0, nil, refused
	}
	if refused := s.checkCreation(a); refused != nil {
		return 0, nil, refused
	}
	own := 0 // those of AddLoadBalancer come with a quota of their own
	for _, lb := range s.loadBalancers {
		if lb.number > 0 {
			own++
		}
	}
	if err := ibmlimits.LoadBalancers.CheckNumber(own + 1); err != nil {
		return 0, nil, overLimit(err)
	}
	s.number++
	lb := &LoadBalancer{
		ID: s.id("r006-"), Name: a.Name, Public: *a.Public,
		Network: a.Profile != nil && a.Profile.Name == "network-fixed", DNS: a.DNS, number: s.number,
	}
	lb.Hostname = fmt.Sprintf("%s-%s.lb.appdomain.cloud", lb.ID[5:13], Region)
	for _, n := range a.Subnets {
		lb.Subnets = append(lb.Subnets, n.ID)
	}
	var refused *refusal
	if lb.Groups, refused = s.groupsFor(a, s.vpcOf(lb)); refused != nil {
		return 0, nil, refused
	}
	for _, p := range a.Pools {
		if refused := s.checkPool(lb, p, ""); refused != nil {
			return 0, nil, refused
		}
		lb.Pools = append(lb.Pools, s.newPool(p))
	}
	for _, l := range a.Listeners {
		if l.Pool != nil { // which is named, because it has no ID yet
			at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return p.Name == l.Pool.Name && l.Pool.ID == "" })
			if at < 0 {
				return 0, nil, refuse(http.StatusBadRequest, "listener_pool_not_found", "there is no pool %q", l.Pool.Name)
			}
			l.Pool = &Reference{ID: lb.Pools[at].ID}
		}
		if refused := checkListener(lb, l, ""); refused != nil {
			return 0, nil, refused
		}
		lb.Listeners = append(lb.Listeners, s.newListener(lb, l))
	}
	s.setBusy(lb)
	s.loadBalancers = append(s.loadBalancers, lb)
	s.finishWork()
	return http.StatusCreated, s.showLoadBalancer(r, lb), nil
}

func (s *Sim) checkCreation(a creationRequest) *refusal {
	if refused := refuseFirst(
		check{a.Public == nil, "load_balancer_missing_is_public", "is_public is required"},
		check{!nameForm.MatchString(a.Name), "load_balancer_invalid_name", "the name is not legal"},
		check{len(a.Subnets) == 0, "load_balancer_missing_subnets", "subnets are required"},
		check{a.Group != nil && *a.Group != (Reference{ID: GroupID}), "resource_group_not_found", "there is no such resource group"},
		check{a.Profile != nil && a.Profile.Name != "network-fixed", "load_balancer_invalid_profile", "there is no such profile"},
		check{a.Profile != nil && len(a.Subnets) != 1, "load_balancer_invalid_subnets", "a network load balancer has one subnet"},
		check{a.DNS != nil && !a.DNS.isLegal(a), "load_balancer_invalid_dns", "the DNS zone is not legal"},
	); refused != nil {
		return refused
	}
	return s.checkSubnetsAndName(a)
}

// isLegal reports whether a zone may register a load balancer.
func (d *DNS) isLegal(a creationRequest) bool {
	private := a.Public != nil && !*a.Public && a.Profile == nil
	return private && strings.HasPrefix(d.Instance.CRN, "crn:v1:") && dnsForm.MatchString(d.Zone.ID) && d.Zone.Name == ""
}

// checkSubnetsAndName checks a new load balancer's subnets, and its name in their VPC.
func (s *Sim) checkSubnetsAndName(a creationRequest) *refusal {
	bad := func(code, format string, args ...any) *refusal {
		return refuse(http.StatusBadRequest, code, format, args...)
	}
	vpc := ""
	seen := map[string]bool{}
	for _, one := range a.Subnets {
		at := slices.IndexFunc(s.subnets, func(n Subnet) bool { return n.ID == one.ID })
		if at < 0 || one.Name != "" || seen[one.ID] {
			return bad("load_balancer_subnet_not_found", "there is no subnet %q, or it is there twice", one.ID)
		}
		if n := s.subnets[at]; vpc != "" && n.VPC != vpc {
			return bad("load_balancer_invalid_subnets", "the subnets are of several VPCs")
		}
		vpc, seen[one.ID] = s.subnets[at].VPC, true
	}
	for _, lb := range s.loadBalancers {
		if lb.Name == a.Name && s.vpcOf(lb) == vpc {
			return bad("load_balancer_duplicate_name", "the name %s is taken", a.Name)
		}
	}
	return nil
}

func (s *Sim) vpcOf(lb *LoadBalancer) string {
	for _, n := range s.subnets {
		if slices.Contains(lb.Subnets, n.ID) {
			return n.VPC
		}
	}
	return ""
}

// AddLoadBalancer makes one as somebody else does, in the first subnet of a VPC, and returns its ID.
func (s *Sim) AddLoadBalancer(name, vpc string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.subnets, func(n Subnet) bool { return n.VPC == vpc })
	lb := &LoadBalancer{ID: s.id("r006-"), Name: name, Hostname: name + ".lb.appdomain.cloud", Public: true, Subnets: []string{s.subnets[at].ID}, ready: true}
	lb.Groups, _ = s.groupsFor(creationRequest{}, vpc)
	s.loadBalancers = append(s.loadBalancers, lb)
	return lb.ID
}

func (s *Sim) newPool(p Pool) Pool {
	p.ID = s.id("r006-")
	if p.Proxy == "" {
		p.Proxy = "disabled"
	}
	s.number++
	p.Members = s.newMembers(p.Members)
	return p
}

func (s *Sim) newMembers(list []Member) []Member {
	list = slices.Clone(list)
	for n := range list {
		list[n].ID = s.id("r006-")
	}
	return list
}

func (s *Sim) checkMembers(lb *LoadBalancer, list []Member) *refusal {
	seen := map[string]bool{}
	for _, m := range list {
		key := fmt.Sprint(m.Port, m.Target)
		_, bad := netip.ParseAddr(m.Target.Address)
		switch {
		case m.Port < 1 || m.Port > 65535:
			return refuse(http.StatusBadRequest, "member_invalid_port", "the port is out of range")
		case !lb.Network && (bad != nil || m.Target.ID != ""):
			return refuse(http.StatusBadRequest, "member_invalid_target", "the target is no address")
		case lb.Network && (m.Target.Address != "" || s.VMs.ByID[m.Target.ID] == nil):
			return refuse(http.StatusBadRequest, "member_invalid_target", "the target is no instance")
		case seen[key]:
			return refuse(http.StatusBadRequest, "member_duplicate_address_and_port", "a member is there twice")
		}
		seen[key] = true
	}
	return nil
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	shown := []object{}
	for _, lb := range s.loadBalancers {
		shown = append(shown, object{
			"id": lb.ID, "name": lb.Name, "hostname": lb.Hostname, "is_public": lb.Public, "provisioning_status": lb.provisioning(),
			"family": family(lb), "listeners": lb.Listeners, "pools": lb.Pools, "subnets": lb.Subnets, "dns": lb.DNS,
			"security_groups": s.groupNames(lb),
		})
	}
	groups := []object{}
	for _, g := range s.groups {
		groups = append(groups, object{"id": g.ID, "name": g.Name, "vpc": g.VPC, "rules": g.Rules})
	}
	return simkit.Snapshot(map[string]any{"instances": s.VMs.All(), "load_balancers": shown, "security_groups": groups, "subnets": s.subnets})
}

func family(lb *LoadBalancer) string {
	if lb.Network {
		return "network"
	}
	return "application"
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	lines := []string{}
	for _, lb := range s.LoadBalancers() {
		members := map[Target]bool{}
		for _, p := range lb.Pools {
			for _, m := range p.Members {
				members[m.Target] = true
			}
		}
		ports := []string{}
		for _, l := range lb.Listeners {
			ports = append(ports, fmt.Sprintf("%s/%d", l.Protocol, l.Port))
		}
		slices.Sort(ports)
		lines = append(lines, fmt.Sprintf("%s load balancer %s, host name %s, %s, %d nodes", family(&lb), lb.Name, lb.Hostname, strings.Join(ports, ", "),
			len(members)))
	}
	return lines
}

// InOrder implements simkit.Refusals: a load balancer that is busy, a name that is taken.
func (*Sim) InOrder(status int, body []byte) bool {
	taken := bytes.Contains(body, []byte("duplicate_name")) || bytes.Contains(body, []byte("validation_unique_failed"))
	return status == http.StatusNotFound || status == http.StatusConflict || taken
}
