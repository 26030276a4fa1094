package ibm

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
)

// This file computes the desired state, without calls.

const (
	proxyOff, proxyV1 = "disabled", "v1"
	algorithm         = "round_robin"
	connectionLimit   = 15000
	labelDedicated    = "dedicated"
	edge              = "edge"
	labelInstance     = labelPrefix + "instance-id"
	labelVPCInstance  = labelPrefix + "vpc-instance-id"
	namePrefix        = "kube-"
	minUIDDigits      = 17
	uidDigits         = 32
)

// ownName returns the name of a Service's load balancer, as IBM's own controller forms it.
func ownName(cluster string, service *v1.Service) string {
	name := namePrefix + cluster + "-" + strings.ReplaceAll(string(service.UID), "-", "")
	return ibmlimits.Name.Cut(name)
}

// controllerNameForm matches the names that controllers give: prefix, ID of a cluster, UID of a Service, perhaps truncated.
var controllerNameForm = regexp.MustCompile(`^` + namePrefix + `.+-[0-9a-f]{1,32}$`)

// isControllerName reports whether a chosen name may be that of another Service's load balancer, in this or another cluster of the VPC.
func isControllerName(name string) bool {
	end := name[strings.LastIndex(name, "-")+1:]
	return controllerNameForm.MatchString(name) && (len(end) == uidDigits || len(name) == ibmlimits.Name.Max)
}

// port is a port of a Service, or a range of ports.
type port struct {
	protocol  string
	port, max int
	nodePort  int
	monitor   monitor
}

// poolName returns the name of the port's pool.
func (p port) poolName() string {
	front := strconv.Itoa(p.port)
	if p.max > p.port {
		front += "x" + strconv.Itoa(p.max)
	}
	return p.protocol + "-" + front + "-" + strconv.Itoa(p.nodePort)
}

// portKey identifies a port: no two ports of a load balancer have the same one.
type portKey struct {
	protocol  string
	port, max int
}

func (p port) key() portKey { return portKey{p.protocol, p.port, p.max} }

func (l listener) key() portKey {
	from, to := cmp.Or(l.PortMin, l.Port), cmp.Or(l.PortMax, l.Port)
	return portKey{strings.ToLower(l.Protocol), from, to}
}

// desired is the wanted state of a load balancer.
type desired struct {
	name     string
	public   bool
	network  bool
	settings settings
	ports    []port
	members  []target
	access   access
	// subnets replace those of an existing load balancer; nil keeps them.
	subnets []reference
	// create holds the settings for creating a load balancer that does not exist.
	create *creation
}

func (d desired) proxy() string {
	if d.settings.hasProxy() {
		return proxyV1
	}
	return proxyOff
}

// ports returns the ports of a Service with their health checks. Only network load balancers have ranges.
func (s settings) ports(service *v1.Service, network bool) []port {
	var ranges map[int32]int32
	if network {
		ranges, _ = s.ranges(service) // Validate has judged them
	}
	var list []port
	for _, p := range service.Spec.Ports {
		one := port{
			protocol: cmp.Or(strings.ToLower(string(p.Protocol)), protocolTCP),
			port:     int(p.Port), max: int(p.Port), nodePort: int(p.NodePort),
		}
		if last := ranges[p.Port]; last > p.Port {
			one.max = int(last)
		}
		one.monitor = s.monitor(service, one)
		list = append(list, one)
	}
	return list
}

// monitor returns the health check of a port.
func (s settings) monitor(service *v1.Service, p port) monitor {
	m := monitor{Delay: s.delay(), Timeout: s.timeout(), Retries: s.retries(), Type: protocolTCP, Port: p.nodePort}
	switch {
	case isLocal(service) && (s.CheckProtocol == "" || p.protocol == protocolUDP):
		m.Type, m.Port, m.Path = protocolHTTP, int(service.Spec.HealthCheckNodePort), rootPath
		return m
	case p.protocol == protocolUDP: // its node port answers no health check
		m.Type, m.Port = cmp.Or(s.CheckProtocol, protocolTCP), s.CheckUDP
	case s.CheckProtocol != "":
		m.Type, m.Port = s.CheckProtocol, cmp.Or(s.CheckPort, p.nodePort)
	}
	if m.Type != protocolTCP {
		m.Path = cmp.Or(s.CheckPath, rootPath)
	}
	return m
}

// mergeMonitor returns the health check that a pool needs, and whether it differs. Values that the Service does not set stay, because
// somebody may have set them by hand.
func (s settings) mergeMonitor(have *monitor, want monitor) (after monitor, differs bool) {
	if have == nil {
		return want, true
	}
	after = want
	keep := func(asked int, key string, at *int, has int) {
		if asked == 0 && !s.isRecorded(key) && has != 0 {
			*at = has
		}
	}
	keep(s.Delay, annotationCheckDelay, &after.Delay, have.Delay)
	keep(s.Timeout, annotationCheckTimeout, &after.Timeout, have.Timeout)
	keep(s.Retries, annotationCheckRetries, &after.Retries, have.Retries)
	if after.Timeout >= after.Delay { // a kept value does not fit the requested one
		after.Delay, after.Timeout = want.Delay, want.Timeout
	}
	if s.CheckPath == "" && !s.isRecorded(annotationCheckPath) && have.Path != "" && after.Path != "" {
		after.Path = have.Path
	}
	if after.Type == protocolTCP { // a remaining path does no harm
		return after, after != monitor{after.Delay, after.Retries, have.Port, after.Timeout, have.Type, ""} ||
			after.Delay != have.Delay || after.Retries != have.Retries || after.Timeout != have.Timeout
	}
	return after, after != *have
}

// listenerOf returns the request for a port's listener.
func (d desired) listenerOf(p port, pool reference) listener {
	l := listener{Pool: &pool, Protocol: p.protocol}
	if p.max > p.port {
		l.PortMin, l.PortMax = p.port, p.max
	} else {
		l.Port = p.port
	}
	if !d.network {
		l.Limit, l.Idle = connectionLimit, d.settings.Idle
	}
	return l
}

// poolOf returns the request for a port's pool.
func (d desired) poolOf(p port) pool {
	m := p.monitor
	made := pool{Algorithm: algorithm, Monitor: &m, Members: d.membersOf(p), Name: p.poolName(), Protocol: p.protocol}
	if !d.network {
		made.Proxy = d.proxy()
	}
	return made
}

func (d desired) membersOf(p port) []member {
	list := make([]member, len(d.members))
	for n, t := range d.members {
		list[n] = member{Port: p.nodePort, Target: t}
	}
	return list
}

// creation returns the request for the whole load balancer.
func (d desired) creation(group string, subnets []string) *creation {
	c := &creation{
		Public: d.public, Name: d.name, ResourceGroup: reference{ID: group},
		Subnets: references(subnets), Groups: references(idsOf(d.access.wanted)),
	}
	for _, p := range d.ports {
		c.Pools = append(c.Pools, d.poolOf(p))
		c.Listeners = append(c.Listeners, d.listenerOf(p, reference{Name: p.poolName()}))
	}
	if d.network {
		c.Profile = &reference{Name: profileNetwork}
	}
	if d.settings.DNSInstance != "" {
		c.DNS = &dnsRequest{Zone: reference{ID: d.settings.DNSZone}}
		c.DNS.Instance.CRN = d.settings.DNSInstance
	}
	return c
}

// zoneOf returns the zone of a node, by either label.
func zoneOf(n *v1.Node) string {
	return cmp.Or(n.Labels[labelZone], n.Labels[v1.LabelTopologyZone])
}

// receivingNodes returns the nodes that receive traffic: those with the label of the annotation, or else the edge nodes of its zone, or
// else all of its zone.
func (s settings) receivingNodes(nodes []*v1.Node) []*v1.Node {
	only := func(keep func(*v1.Node) bool) []*v1.Node {
		return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool { return !keep(n) })
	}
	if key, value, _ := s.selector(); key != "" {
		return only(func(n *v1.Node) bool { return n.Labels[key] == value })
	}
	if zone := s.zone(); zone != "" {
		nodes = only(func(n *v1.Node) bool { return zoneOf(n) == zone })
	}
	if edges := only(func(n *v1.Node) bool { return n.Labels[labelDedicated] == edge }); len(edges) > 0 {
		return edges
	}
	return nodes
}

func (s settings) zone() string { return strings.Join(strings.Fields(s.Zone), "") }

// reportedTarget returns the instance or address that a Node itself reports; empty if it reports none.
func reportedTarget(n *v1.Node, network bool) target {
	if network {
		_, _, worker, _ := splitProviderID(n.Spec.ProviderID)
		for _, id := range []string{worker, n.Labels[labelInstance], n.Labels[labelVPCInstance]} {
			if instanceID.MatchString(id) {
				return target{ID: id}
			}
		}
		return target{}
	}
	reported := []string{n.Labels[labelInternalIP]}
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			reported = append(reported, a.Address)
		}
	}
	for _, text := range reported {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() && !ip.IsUnspecified() {
			return target{Address: ip.String()}
		}
	}
	return target{}
}

// targets returns the members' targets, and how many do not fit into a pool. Existing members take precedence.
func (s settings) targets(service *v1.Service, receivers []receiver, current map[target]bool) (list []target, dropped int) {
	byZone := map[string][]target{}
	for _, m := range receivers {
		if zone := zoneOf(m.node); !slices.Contains(byZone[zone], m.target) {
			byZone[zone] = append(byZone[zone], m.target)
		}
	}
	order := func(a, b target) int {
		if current[a] != current[b] {
			return map[bool]int{true: -1, false: 1}[current[a]]
		}
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID))
	}
	quota := s.quota()
	for _, zone := range slices.Sorted(maps.Keys(byZone)) {
		all := slices.SortedFunc(slices.Values(byZone[zone]), order)
		if quota > 0 && !isLocal(service) {
			all = all[:min(len(all), quota)]
		}
		list = append(list, all...)
	}
	slices.SortFunc(list, order)
	list = slices.Compact(list)
	if len(list) > ibmlimits.Members.Max {
		dropped = len(list) - ibmlimits.Members.Max
		list = list[:ibmlimits.Members.Max]
	}
	slices.SortFunc(list, func(a, b target) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID)) })
	return list, dropped
}

// portPool is a port with its existing pool and listener, or nil.
type portPool struct {
	port
	pool     *pool
	listener *listener
}

// assignPools finds each port's pool and listener, and returns the surplus ones. A pool is found by its name, by the protocol and port in
// its name, or by its listener.
func assignPools(d *parts, ports []port) (list []portPool, pools []pool, listeners []listener) {
	taken := map[string]bool{}
	list = make([]portPool, len(ports))
	find := func(n int, is func(pool) bool) {
		at := slices.IndexFunc(d.pools, func(p pool) bool { return !taken[p.ID] && strings.EqualFold(p.Protocol, ports[n].protocol) && is(p) })
		if list[n].pool == nil && at >= 0 {
			list[n].pool = &d.pools[at]
			taken[d.pools[at].ID] = true
		}
	}
	for n, p := range ports {
		list[n].port = p
		if at := slices.IndexFunc(d.listeners, func(l listener) bool { return l.key() == p.key() }); at >= 0 {
			list[n].listener = &d.listeners[at]
		}
	}
	for n, p := range ports {
		find(n, func(o pool) bool { return o.Name == p.poolName() })
	}
	for n, p := range ports {
		front := p.poolName()[:strings.LastIndex(p.poolName(), "-")+1]
		find(n, func(o pool) bool {
			return strings.HasPrefix(o.Name, front) && !strings.Contains(o.Name[len(front):], "-")
		})
	}
	for n := range ports {
		l := list[n].listener
		find(n, func(o pool) bool { return l != nil && l.Pool != nil && l.Pool.ID == o.ID })
	}
	pools = slices.DeleteFunc(slices.Clone(d.pools), func(p pool) bool { return taken[p.ID] })
	listeners = slices.DeleteFunc(slices.Clone(d.listeners), func(l listener) bool {
		return slices.ContainsFunc(ports, func(p port) bool { return p.key() == l.key() })
	})
	return list, pools, listeners
}

// servesAny reports whether a listener that stays leads to a pool.
func (p pool) servesAny(all, going []listener) bool {
	return slices.ContainsFunc(all, func(l listener) bool {
		return l.Pool != nil && l.Pool.ID == p.ID && !slices.ContainsFunc(going, func(g listener) bool { return g.ID == l.ID })
	})
}

// step is a pending change of a port. With detach set, its listener is removed from its present pool.
type step struct {
	portPool
	detach bool
}

// orderSteps orders the ports so that each listener can get its pool: two listeners may not share one. If they exchange pools in a circle,
// one listener is detached first.
func orderSteps(list []portPool) (steps []step) {
	pending := slices.Clone(list)
	for len(pending) > 0 {
		at := slices.IndexFunc(pending, func(p portPool) bool { return !slices.ContainsFunc(pending, p.waitsFor) })
		if at >= 0 {
			steps = append(steps, step{portPool: pending[at]})
			pending = slices.Delete(pending, at, at+1)
			continue
		}
		at = slices.IndexFunc(pending, func(p portPool) bool { return p.listener != nil && p.listener.Pool != nil })
		steps = append(steps, step{portPool: pending[at], detach: true})
		free := *pending[at].listener
		free.Pool = nil
		pending[at].listener = &free
	}
	return steps
}

// waitsFor reports whether another port's listener still has this port's pool.
func (p portPool) waitsFor(o portPool) bool {
	return p.pool != nil && p.key() != o.key() && o.listener != nil && o.listener.Pool != nil && o.listener.Pool.ID == p.pool.ID
}

// currentTargets returns the targets of existing members.
func currentTargets(d *parts) map[target]bool {
	set := map[target]bool{}
	if d != nil {
		for _, p := range d.pools {
			for _, m := range p.Members {
				set[m.Target] = true
			}
		}
	}
	return set
}

// subnetsFor returns the IDs of a new load balancer's subnets: those of the annotation, or else the cluster's in the requested zone.
func (s settings) subnetsFor(all []subnet, names []string) ([]string, error) {
	if s.Subnets != "" {
		return s.namedSubnets(all, names)
	}
	var ids []string
	for _, n := range clusterSubnets(all, names) {
		if s.zone() == "" || n.Zone.Name == s.zone() {
			ids = append(ids, n.ID)
		}
	}
	switch {
	case len(ids) == 0 && s.zone() != "":
		return nil, refuseFor(annotationZone, s.Zone, "the cluster has no subnet in this zone")
	case len(ids) == 0:
		return nil, fmt.Errorf("the VPC has none of the subnets %s; correct g2VpcSubnetNames in the cloud config", strings.Join(names, ","))
	}
	return ids, nil
}

// clusterSubnets returns the configured subnets, in that order.
func clusterSubnets(all []subnet, names []string) []subnet {
	var list []subnet
	for _, name := range names {
		for _, n := range all {
			if n.Name == strings.TrimSpace(name) {
				list = append(list, n)
			}
		}
	}
	return list
}

func (s settings) namedSubnets(all []subnet, names []string) ([]string, error) {
	var ids []string
	for one := range strings.SplitSeq(strings.Join(strings.Fields(s.Subnets), ""), ",") {
		at := slices.IndexFunc(all, func(n subnet) bool { return one != "" && (n.ID == one || n.Name == one || n.CIDR == one) })
		if at < 0 {
			return nil, refuseFor(annotationSubnets, s.Subnets, "names %q, which is no subnet in the VPC of the cluster", one)
		}
		if s.isNetwork() && s.isPrivate() && slices.Contains(names, all[at].Name) {
			return nil, refuseFor(annotationSubnets, s.Subnets, "has nodes of the cluster, which the subnet of a private network load balancer must not have")
		}
		if !slices.Contains(ids, all[at].ID) {
			ids = append(ids, all[at].ID)
		}
	}
	return ids, nil
}

// defaultIdle is IBM Cloud's idle timeout of listeners.
const defaultIdle = 50

// idleTimeout returns the idle timeout of listeners; 0 leaves it as it is.
func (s settings) idleTimeout() int {
	if s.Idle == 0 && s.isRecorded(annotationIdle) {
		return defaultIdle
	}
	return s.Idle
}
