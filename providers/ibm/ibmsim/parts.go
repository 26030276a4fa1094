package ibmsim

import (
	"net/http"
	"regexp"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
)

var (
	nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsForm  = regexp.MustCompile(`^[a-z0-9-]{0,127}[a-z0-9]$`)
	pathForm = regexp.MustCompile(`^/[!-~]*$`)
)

func isOutside(n, least, most int) bool { return n < least || n > most }

// check is a requirement that a request breaks.
type check struct {
	broken        bool
	code, message string
}

// refuseFirst refuses a request by the first broken check.
func refuseFirst(checks ...check) *refusal {
	for _, f := range checks {
		if f.broken {
			return refuse(http.StatusBadRequest, f.code, "%s", f.message)
		}
	}
	return nil
}

// protocols returns the protocols that a load balancer supports.
func (lb *LoadBalancer) protocols() []string {
	if lb.Network {
		return []string{"tcp", "udp"}
	}
	return []string{"tcp", "http", "https"}
}

// checkPool judges a pool; own is the ID of the one that it replaces.
func (s *Sim) checkPool(lb *LoadBalancer, p Pool, own string) *refusal {
	taken := slices.ContainsFunc(lb.Pools, func(o Pool) bool { return o.Name == p.Name && o.ID != own })
	sends := p.Proxy != "" && p.Proxy != "disabled"
	if refused := refuseFirst(
		check{!nameForm.MatchString(p.Name), "pool_invalid_name", "the name is not legal"},
		check{taken, "pool_duplicate_name", "the name is taken"},
		check{own == "" && ibmlimits.Pools.CheckNumber(len(lb.Pools)+1) != nil, "pool_over_quota", "that is more than the quota allows"},
		check{!slices.Contains([]string{"round_robin", "weighted_round_robin", "least_connections"}, p.Algorithm), "pool_invalid_algorithm", "there is no such algorithm"},
		check{!slices.Contains(lb.protocols(), p.Protocol), "pool_invalid_protocol", "the protocol is not legal for this load balancer"},
		check{sends && p.Proxy != "v1" && p.Proxy != "v2", "pool_invalid_proxy_protocol", "there is no such version"},
		check{sends && lb.Network, "pool_invalid_proxy_protocol", "a network load balancer sends no header"},
		check{p.Monitor == nil, "pool_missing_health_monitor", "a health monitor is required"},
	); refused != nil {
		return refused
	}
	if refused := checkMonitor(p.Monitor); refused != nil {
		return refused
	}
	return s.checkMembers(lb, p.Members)
}

// checkMonitor judges a health check.
func checkMonitor(m *Monitor) *refusal {
	times := isOutside(m.Delay, 2, 60) || isOutside(m.Timeout, 1, 59) || m.Timeout >= m.Delay || isOutside(m.Retries, 1, 10)
	return refuseFirst(
		check{times, "pool_invalid_health_monitor", "delay, timeout or retries are out of range"},
		check{m.Port != nil && isOutside(*m.Port, 1, 65535), "pool_invalid_health_monitor_port", "the port is out of range"},
		check{!slices.Contains([]string{"tcp", "http", "https"}, m.Type), "pool_invalid_health_monitor_type", "there is no such type"},
		check{m.Type != "tcp" && !pathForm.MatchString(m.Path), "pool_invalid_health_monitor_url_path", "the path is not legal"},
	)
}

// span are the ports of a listener.
func (l Listener) span() (from, to int) {
	if l.Port != 0 {
		return l.Port, l.Port
	}
	return l.PortMin, l.PortMax
}

// newListener is a listener with what the cloud fills in.
func (s *Sim) newListener(lb *LoadBalancer, l Listener) Listener {
	l.ID = s.id("r006-")
	if !lb.Network && l.Limit == nil {
		l.Limit = new(15000)
	}
	if !lb.Network && l.Idle == nil {
		l.Idle = new(50)
	}
	return l
}

func (l Listener) badPorts() bool {
	from, to := l.span()
	return isOutside(from, 1, 65535) || isOutside(to, 1, 65535) || from > to || (l.Port != 0 && (l.PortMin != 0 || l.PortMax != 0))
}

func (l Listener) badLimits() bool {
	return (l.Limit != nil && isOutside(*l.Limit, 1, 15000)) || (l.Idle != nil && isOutside(*l.Idle, 50, 7200))
}

// checkListener judges a listener, whose pool is known by its ID; own is the ID of the one that it replaces.
func checkListener(lb *LoadBalancer, l Listener, own string) *refusal {
	from, to := l.span()
	ports, limits := l.badPorts(), l.badLimits()
	if refused := refuseFirst(
		check{!slices.Contains(lb.protocols(), l.Protocol), "listener_invalid_protocol", "the protocol is not legal for this load balancer"},
		check{ports, "listener_invalid_port", "the port is out of range"},
		check{from != to && (!lb.Network || !lb.Public), "listener_invalid_port_range", "ranges are for public network load balancers"},
		check{!lb.Network && from >= 56500 && from <= 56520, "listener_reserved_port_conflict", "the port is reserved"},
		check{own == "" && ibmlimits.Listeners.CheckNumber(len(lb.Listeners)+1) != nil, "listener_over_quota", "that is more than the quota allows"},
		check{(l.Limit != nil || l.Idle != nil) && lb.Network, "listener_invalid_connection_limit", "a network load balancer has neither a limit nor a timeout"},
		check{limits, "listener_invalid_connection_limit", "the limit or the timeout is out of range"},
	); refused != nil {
		return refused
	}
	if refused := checkOtherListeners(lb, l, own); refused != nil {
		return refused
	}
	return checkPoolOf(lb, l)
}

// checkOtherListeners refuses a listener that conflicts with others.
func checkOtherListeners(lb *LoadBalancer, l Listener, own string) *refusal {
	from, to := l.span()
	for _, o := range lb.Listeners {
		a, b := o.span()
		overlap := (o.Protocol == "udp") == (l.Protocol == "udp") && from <= b && a <= to
		shared := l.Pool != nil && o.Pool != nil && o.Pool.ID == l.Pool.ID
		if refused := refuseFirst(
			check{o.ID != own && overlap, "listener_duplicate_port", "the port is taken"},
			check{o.ID != own && shared, "listener_pool_conflict", "the pool is another listener's"},
		); refused != nil {
			return refused
		}
	}
	return nil
}

// checkPoolOf judges the pool of a listener.
func checkPoolOf(lb *LoadBalancer, l Listener) *refusal {
	if l.Pool == nil {
		return nil
	}
	at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return p.ID == l.Pool.ID && l.Pool.Name == "" })
	return refuseFirst(
		check{at < 0, "listener_pool_not_found", "there is no such pool"},
		check{at >= 0 && lb.Pools[max(at, 0)].Protocol != l.Protocol, "listener_pool_protocols_conflict", "the pool has another protocol"},
	)
}

func (s *Sim) serveListeners(r *http.Request, lb *LoadBalancer, rest []string) (int, any, *refusal) {
	if len(rest) == 0 && r.Method == http.MethodGet {
		shown := []object{}
		for _, l := range lb.Listeners {
			shown = append(shown, s.showListener(r, lb, l))
		}
		return http.StatusOK, object{"listeners": shown}, nil
	}
	if len(rest) == 0 && r.Method == http.MethodPost {
		var l Listener
		if refused := decode(r, &l); refused != nil {
			return 0, nil, refused
		}
		if refused := checkListener(lb, l, ""); refused != nil {
			return 0, nil, refused
		}
		l = s.newListener(lb, l)
		lb.Listeners = append(lb.Listeners, l)
		s.setBusy(lb)
		return http.StatusCreated, s.showListener(r, lb, l), nil
	}
	if len(rest) != 1 {
		return refuseMethod()
	}
	at := slices.IndexFunc(lb.Listeners, func(l Listener) bool { return l.ID == rest[0] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "listener_not_found", "there is no such listener")
	}
	switch r.Method {
	case http.MethodPatch:
		l := lb.Listeners[at]
		if l.Pool != nil { // or a request that is refused would change it
			l.Pool = new(*l.Pool)
		}
		if refused := decode(r, &l); refused != nil {
			return 0, nil, refused
		}
		if refused := checkListener(lb, l, l.ID); refused != nil {
			return 0, nil, refused
		}
		lb.Listeners[at] = l
		s.setBusy(lb)
		return http.StatusOK, s.showListener(r, lb, l), nil
	case http.MethodDelete:
		lb.Listeners = slices.Delete(slices.Clone(lb.Listeners), at, at+1)
		s.setBusy(lb)
		return http.StatusAccepted, nil, nil
	}
	return refuseMethod()
}

func (s *Sim) servePools(r *http.Request, lb *LoadBalancer, rest []string) (int, any, *refusal) {
	if len(rest) == 0 && r.Method == http.MethodGet {
		shown := []object{}
		for _, p := range lb.Pools {
			shown = append(shown, s.showPool(r, lb, p))
		}
		return http.StatusOK, object{"pools": shown}, nil
	}
	if len(rest) == 0 && r.Method == http.MethodPost {
		var p Pool
		if refused := decode(r, &p); refused != nil {
			return 0, nil, refused
		}
		if refused := s.checkPool(lb, p, ""); refused != nil {
			return 0, nil, refused
		}
		p = s.newPool(p)
		lb.Pools = append(lb.Pools, p)
		s.setBusy(lb)
		return http.StatusCreated, s.showPool(r, lb, p), nil
	}
	if len(rest) == 0 {
		return refuseMethod()
	}
	at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return p.ID == rest[0] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "pool_not_found", "there is no such pool")
	}
	switch {
	case len(rest) == 2 && rest[1] == "members":
		return s.serveMembers(r, lb, at)
	case len(rest) == 3 && rest[1] == "members":
		return s.serveMember(r, lb, at, rest[2])
	}
	if len(rest) != 1 {
		return refuseMethod()
	}
	return s.servePool(r, lb, at)
}

func (s *Sim) servePool(r *http.Request, lb *LoadBalancer, at int) (int, any, *refusal) {
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, s.showPool(r, lb, lb.Pools[at]), nil
	case http.MethodPatch:
		return s.patchPool(r, lb, at)
	case http.MethodDelete:
		if slices.ContainsFunc(lb.Listeners, func(l Listener) bool { return l.Pool != nil && l.Pool.ID == lb.Pools[at].ID }) {
			return 0, nil, refuse(http.StatusConflict, "pool_delete_conflict", "a listener uses the pool")
		}
		lb.Pools = slices.Delete(slices.Clone(lb.Pools), at, at+1)
		s.setBusy(lb)
		return http.StatusAccepted, nil, nil
	}
	return refuseMethod()
}

func (s *Sim) patchPool(r *http.Request, lb *LoadBalancer, at int) (int, any, *refusal) {
	p := lb.Pools[at]
	var patch struct {
		Algorithm *string  `json:"algorithm"`
		Monitor   *Monitor `json:"health_monitor"`
		Name      *string  `json:"name"`
		Protocol  *string  `json:"protocol"`
		Proxy     *string  `json:"proxy_protocol"`
	}
	if refused := decode(r, &patch); refused != nil {
		return 0, nil, refused
	}
	for field, value := range map[*string]*string{
		&p.Algorithm: patch.Algorithm, &p.Name: patch.Name, &p.Protocol: patch.Protocol, &p.Proxy: patch.Proxy,
	} {
		if value != nil {
			*field = *value
		}
	}
	if patch.Monitor != nil {
		path := p.Monitor.Path
		p.Monitor = patch.Monitor
		if p.Monitor.Path == "" { // what a patch leaves out stays
			p.Monitor.Path = path
		}
	}
	members := p.Members // which may have lost their instances meanwhile
	p.Members = nil
	if refused := s.checkPool(lb, p, p.ID); refused != nil {
		return 0, nil, refused
	}
	p.Members = members
	lb.Pools[at] = p
	s.setBusy(lb)
	return http.StatusOK, s.showPool(r, lb, p), nil
}

func (s *Sim) serveMembers(r *http.Request, lb *LoadBalancer, at int) (int, any, *refusal) {
	p := &lb.Pools[at]
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		var m Member
		if refused := decode(r, &m); refused != nil {
			return 0, nil, refused
		}
		if refused := s.checkMembers(lb, append(slices.Clone(p.Members), m)); refused != nil {
			return 0, nil, refused
		}
		m.ID = s.id("r006-")
		p.Members = append(slices.Clone(p.Members), m)
		s.setBusy(lb)
		return http.StatusCreated, s.showMember(r, lb, *p, m), nil
	case http.MethodPut:
		var all struct {
			Members []Member `json:"members"`
		}
		if refused := decode(r, &all); refused != nil {
			return 0, nil, refused
		}
		if refused := s.checkMembers(lb, all.Members); refused != nil {
			return 0, nil, refused
		}
		p.Members = s.newMembers(all.Members)
		s.setBusy(lb)
	default:
		return refuseMethod()
	}
	shown := []object{}
	for _, m := range p.Members {
		shown = append(shown, s.showMember(r, lb, *p, m))
	}
	return http.StatusOK, object{"members": shown}, nil
}

// serveMember serves one member of a pool.
func (s *Sim) serveMember(r *http.Request, lb *LoadBalancer, at int, id string) (int, any, *refusal) {
	p := &lb.Pools[at]
	n := slices.IndexFunc(p.Members, func(m Member) bool { return m.ID == id })
	switch {
	case n < 0:
		return 0, nil, refuse(http.StatusNotFound, "member_not_found", "there is no such member")
	case r.Method == http.MethodGet:
		return http.StatusOK, s.showMember(r, lb, *p, p.Members[n]), nil
	case r.Method == http.MethodDelete:
		p.Members = slices.Delete(slices.Clone(p.Members), n, n+1)
		s.setBusy(lb)
		return http.StatusAccepted, nil, nil
	}
	return refuseMethod()
}
