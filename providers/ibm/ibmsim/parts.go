package ibmsim

import (
	"net/http"
	"regexp"
	"slices"
)

var (
	nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsForm  = regexp.MustCompile(`^[a-z0-9-]{0,127}[a-z0-9]$`)
	pathForm = regexp.MustCompile(`^/[!-~]*$`)
)

func out(n, least, most int) bool { return n < least || n > most }

// checkPool judges a pool; own is the ID of the one that it replaces.
func (s *Sim) checkPool(lb *LoadBalancer, p Pool, own string) *refusal {
	bad := func(code, format string, args ...any) *refusal {
		return refuse(http.StatusBadRequest, code, format, args...)
	}
	protocols := []string{"tcp", "http", "https"}
	if lb.Network {
		protocols = []string{"tcp", "udp"}
	}
	switch {
	case !nameForm.MatchString(p.Name):
		return bad("pool_invalid_name", "the name is not legal")
	case slices.ContainsFunc(lb.Pools, func(o Pool) bool { return o.Name == p.Name && o.ID != own }):
		return bad("pool_duplicate_name", "the name is taken")
	case own == "" && len(lb.Pools) >= 10:
		return bad("pool_over_quota", "a load balancer has 10 pools")
	case !slices.Contains([]string{"round_robin", "weighted_round_robin", "least_connections"}, p.Algorithm):
		return bad("pool_invalid_algorithm", "there is no such algorithm")
	case !slices.Contains(protocols, p.Protocol):
		return bad("pool_invalid_protocol", "the protocol is not legal for this load balancer")
	case !slices.Contains([]string{"", "disabled", "v1", "v2"}, p.Proxy) || (lb.Network && p.Proxy != "" && p.Proxy != "disabled"):
		return bad("pool_invalid_proxy_protocol", "the PROXY protocol is not legal for this load balancer")
	case p.Monitor == nil:
		return bad("pool_missing_health_monitor", "a health monitor is required")
	}
	m := p.Monitor
	switch {
	case out(m.Delay, 2, 60) || out(m.Timeout, 1, 59) || m.Timeout >= m.Delay || out(m.Retries, 1, 10):
		return bad("pool_invalid_health_monitor", "delay, timeout or retries are out of range")
	case m.Port != nil && out(*m.Port, 1, 65535):
		return bad("pool_invalid_health_monitor_port", "the port is out of range")
	case !slices.Contains([]string{"tcp", "http", "https"}, m.Type):
		return bad("pool_invalid_health_monitor_type", "there is no such type")
	case m.Type != "tcp" && !pathForm.MatchString(m.Path):
		return bad("pool_invalid_health_monitor_url_path", "the path is not legal")
	}
	return s.checkMembers(lb, p.Members)
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

// checkListener judges a listener, whose pool is known by its ID; own is the ID of the one that it replaces.
func checkListener(lb *LoadBalancer, l Listener, own string) *refusal {
	bad := func(code, format string, args ...any) *refusal {
		return refuse(http.StatusBadRequest, code, format, args...)
	}
	protocols := []string{"tcp", "http", "https"}
	if lb.Network {
		protocols = []string{"tcp", "udp"}
	}
	from, to := l.span()
	switch {
	case !slices.Contains(protocols, l.Protocol):
		return bad("listener_invalid_protocol", "the protocol is not legal for this load balancer")
	case out(from, 1, 65535) || out(to, 1, 65535) || from > to || (l.Port != 0 && (l.PortMin != 0 || l.PortMax != 0)):
		return bad("listener_invalid_port", "the port is out of range")
	case from != to && (!lb.Network || !lb.Public):
		return bad("listener_invalid_port_range", "ranges are for public network load balancers")
	case !lb.Network && from >= 56500 && from <= 56520:
		return bad("listener_reserved_port_conflict", "the port is reserved")
	case own == "" && len(lb.Listeners) >= 10:
		return bad("listener_over_quota", "a load balancer has 10 listeners")
	case (l.Limit != nil || l.Idle != nil) && lb.Network:
		return bad("listener_invalid_connection_limit", "a network load balancer has neither a limit nor a timeout")
	case (l.Limit != nil && out(*l.Limit, 1, 15000)) || (l.Idle != nil && out(*l.Idle, 50, 7200)):
		return bad("listener_invalid_connection_limit", "the limit or the timeout is out of range")
	}
	for _, o := range lb.Listeners {
		a, b := o.span()
		if o.ID != own && (o.Protocol == "udp") == (l.Protocol == "udp") && from <= b && a <= to {
			return bad("listener_duplicate_port", "the port is taken")
		}
		if o.ID != own && l.Pool != nil && o.Pool != nil && o.Pool.ID == l.Pool.ID {
			return bad("listener_pool_conflict", "the pool is another listener's")
		}
	}
	if l.Pool == nil {
		return nil
	}
	at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return p.ID == l.Pool.ID && l.Pool.Name == "" })
	switch {
	case at < 0:
		return bad("listener_pool_not_found", "there is no such pool")
	case lb.Pools[at].Protocol != l.Protocol:
		return bad("listener_pool_protocols_conflict", "the pool has another protocol")
	}
	return nil
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
		s.work(lb)
		return http.StatusCreated, s.showListener(r, lb, l), nil
	}
	if len(rest) != 1 {
		return none()
	}
	at := slices.IndexFunc(lb.Listeners, func(l Listener) bool { return l.ID == rest[0] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "listener_not_found", "there is no such listener")
	}
	switch r.Method {
	case http.MethodPatch:
		l := lb.Listeners[at]
		if refused := decode(r, &l); refused != nil {
			return 0, nil, refused
		}
		if refused := checkListener(lb, l, l.ID); refused != nil {
			return 0, nil, refused
		}
		lb.Listeners[at] = l
		s.work(lb)
		return http.StatusOK, s.showListener(r, lb, l), nil
	case http.MethodDelete:
		lb.Listeners = slices.Delete(slices.Clone(lb.Listeners), at, at+1)
		s.work(lb)
		return http.StatusAccepted, nil, nil
	}
	return none()
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
		s.work(lb)
		return http.StatusCreated, s.showPool(r, lb, p), nil
	}
	if len(rest) == 0 {
		return none()
	}
	at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return p.ID == rest[0] })
	if at < 0 {
		return 0, nil, refuse(http.StatusNotFound, "pool_not_found", "there is no such pool")
	}
	if len(rest) == 2 && rest[1] == "members" {
		return s.serveMembers(r, lb, at)
	}
	if len(rest) != 1 {
		return none()
	}
	switch r.Method {
	case http.MethodPatch:
		return s.patchPool(r, lb, at)
	case http.MethodDelete:
		if slices.ContainsFunc(lb.Listeners, func(l Listener) bool { return l.Pool != nil && l.Pool.ID == rest[0] }) {
			return 0, nil, refuse(http.StatusConflict, "pool_delete_conflict", "a listener uses the pool")
		}
		lb.Pools = slices.Delete(slices.Clone(lb.Pools), at, at+1)
		s.work(lb)
		return http.StatusAccepted, nil, nil
	}
	return none()
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
	for field, value := range map[*string]*string{&p.Algorithm: patch.Algorithm, &p.Name: patch.Name, &p.Protocol: patch.Protocol, &p.Proxy: patch.Proxy} {
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
	s.work(lb)
	return http.StatusOK, s.showPool(r, lb, p), nil
}

func (s *Sim) serveMembers(r *http.Request, lb *LoadBalancer, at int) (int, any, *refusal) {
	p := &lb.Pools[at]
	switch r.Method {
	case http.MethodGet:
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
		s.work(lb)
	default:
		return none()
	}
	shown := []object{}
	for _, m := range p.Members {
		shown = append(shown, s.showMember(r, lb, *p, m))
	}
	return http.StatusOK, object{"members": shown}, nil
}
