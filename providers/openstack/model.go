package openstack

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Names, tags and descriptions follow OpenStack's own controller.
const (
	namePrefix          = "kube_service_"
	floatingDescription = "Floating IP for Kubernetes external service"
	forwardedFor        = "X-Forwarded-For"
	healthPath          = "/healthz"
	groupPrefix         = "lb-sg-"
)

// loadBalancerName returns the name of a Service's load balancer, which is also the tag of its parts.
func loadBalancerName(cluster string, s *v1.Service) string {
	return openstacklimits.Name.Cut(fmt.Sprintf("%s%s_%s_%s", namePrefix, cluster, s.Namespace, s.Name))
}

// legacyName returns the name used before release 1.16.
func legacyName(s *v1.Service) string {
	name := "a" + strings.ReplaceAll(string(s.UID), "-", "")
	return name[:min(len(name), 32)]
}

func loadBalancerDescription(cluster string, s *v1.Service) string {
	return openstacklimits.Description.Cut(fmt.Sprintf("Kubernetes external service %s/%s from cluster %s", s.Namespace, s.Name, cluster))
}

func floatingIPDescription(cluster string, s *v1.Service) string {
	return openstacklimits.Description.Cut(wholeDescription(cluster, s))
}

func wholeDescription(cluster string, s *v1.Service) string {
	return fmt.Sprintf("%s %s/%s from cluster %s", floatingDescription, s.Namespace, s.Name, cluster)
}

// markedDescription describes a Service's floating address. The mark distinguishes clusters of the same name; OpenStack's own controller
// reads only the beginning.
func markedDescription(cluster string, s *v1.Service, marks bool) string {
	limit, whole, mark := openstacklimits.Description, wholeDescription(cluster, s), fmt.Sprintf(" (%s)", ownership.ServiceMark(s.UID))
	if !marks || limit.CheckText(whole) == nil && limit.CheckText(whole+mark) != nil {
		return limit.Cut(whole)
	}
	limit.Max -= utf8.RuneCountInString(mark)
	return limit.Cut(whole) + mark
}

func securityGroupName(s *v1.Service) string {
	return openstacklimits.Name.Cut(fmt.Sprintf("%s%s-%s-%s", groupPrefix, s.UID, s.Namespace, s.Name))
}

func partName(part string, index int, loadBalancer string) string {
	return openstacklimits.Name.Cut(fmt.Sprintf("%s_%d_%s", part, index, loadBalancer))
}

// role is a Service's relation to its load balancer: whether it owns it or shares it.
type role struct {
	// name is the Service's name for its load balancer, and the tag of its listeners.
	name string
	// former is the name under the cluster's former name, or "".
	former string
	// mark is the cluster's mark, or ""; serviceMark is the Service's.
	mark, serviceMark string
	// owner is set if the load balancer was created for the Service; others share it.
	owner bool
	// isForeign is set if the tag with the name belongs to a Service of another cluster.
	isForeign bool
}

// hasJoined reports whether the Service already shares the load balancer.
func (r role) hasJoined(lb *loadBalancer) bool {
	return slices.Contains(lb.Tags, r.name) && !r.isForeign
}

// ownsListener reports whether a listener belongs to the Service.
func (r role) ownsListener(l listener) bool {
	if len(l.Tags) == 0 {
		return r.owner
	}
	for _, t := range l.Tags {
		if strings.HasPrefix(t, markPrefix) && r.mark != "" && t != r.mark {
			return false // another cluster of the same name shares the load balancer
		}
	}
	return slices.Contains(l.Tags, r.name) || (r.former != "" && slices.Contains(l.Tags, r.former))
}

// ownsPool reports whether a pool without listener belongs to the Service. The name alone may also match another cluster, so without a mark
// it counts only for the owner.
func (r role) ownsPool(p *pool) bool {
	number, _, _ := strings.Cut(strings.TrimPrefix(p.Name, "pool_"), "_")
	if index, err := strconv.Atoi(number); err != nil || p.Name != partName("pool", index, r.name) {
		return false
	}
	for _, t := range p.Tags {
		if strings.HasPrefix(t, markPrefix) {
			return t == r.mark
		}
	}
	return r.owner || r.mark == ""
}

// Prefixes of the tags that mark clusters and Services.
var markPrefix, servicePrefix = ownership.ClusterMark(""), ownership.ServiceMark("")

// wantedPort is a desired port of the load balancer.
type wantedPort struct {
	listener listenerRequest
	pool     poolRequest // with its members
	monitor  *monitorRequest
	// tags are for a pool that is temporarily without listener.
	tags []string
}

// wantedState is the desired state of a load balancer.
type wantedState struct {
	ports []wantedPort
	// name and tags belong to the load balancer; nil leaves them unchanged.
	name *string
	tags []string
	// serial is set if members are changed one by one, crowded if the quota does not allow a second pool.
	serial, poolQuotaUsedUp bool
}

func (r listenerRequest) key() string { return fmt.Sprintf("%s/%d", transportOf(r.Protocol), r.Port) }

// assignToPort assigns steps to a port of the Service.
func assignToPort(port string, steps []step) []step {
	for i := range steps {
		steps[i].port = port
	}
	return steps
}

// transportOf returns the layer 4 protocol of a listener.
func transportOf(protocol string) string {
	if protocol == protocolUDP || protocol == protocolSCTP {
		return protocol
	}
	return "TCP"
}

// listenerProtocol returns the protocol of the listener for a port. TLS and headers need TCP.
func listenerProtocol(p v1.ServicePort, s settings) string {
	switch {
	case p.Protocol != v1.ProtocolTCP && p.Protocol != "":
		return string(p.Protocol)
	case s.TLSContainerRef != "":
		return protocolTerminatedHTTPS
	case s.forwardedFor:
		return protocolHTTP
	}
	return string(v1.ProtocolTCP)
}

func poolProtocol(listener string, s settings) string {
	switch {
	case transportOf(listener) != "TCP":
		return listener
	case s.proxy() != "":
		return s.proxy()
	case listener == protocolTerminatedHTTPS:
		return protocolHTTP
	}
	return listener
}

func checksHealthPort(service *v1.Service, s settings, protocol string, f features) bool {
	return s.monitor && service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort > 0 &&
		f.hasHTTPMonitor(transportOf(protocol))
}

// desirePorts computes a Service's ports.
func desirePorts(service *v1.Service, o observed, members []backend, c loadBalancerConfig) (wantedState, error) {
	want := wantedState{serial: c.Serial, poolQuotaUsedUp: o.poolQuotaUsedUp}
	var err error
	if o.features.hasACL() {
		o.settings.sources, err = rangesOfFamilies(o.settings.sources, service, o.lb)
	}
	members = o.openBackends(members)
	for i := range service.Spec.Ports {
		w := desirePort(service, i, o, members, memberSubnet(o.settings, c, o.lb.VIPSubnetID))
		if len(o.lb.AdditionalVIPs) > 0 && o.settings.sources.Everybody() && len(w.listener.AllowedCIDRs) > 0 {
			w.listener.AllowedCIDRs = []string{allAddresses(false), allAddresses(true)}
		}
		want.ports = append(want.ports, w)
	}
	return want, err
}

func desirePort(service *v1.Service, index int, o observed, backends []backend, subnetID string) wantedPort {
	p, s, f, r := service.Spec.Ports[index], o.settings, o.features, o.role
	protocol := listenerProtocol(p, s)
	l := listenerRequest{Name: partName("listener", index, r.name), Protocol: protocol, Port: int(p.Port), ConnectionLimit: s.ConnectionLimit}
	l.Tags = listenerTags(f, r)
	if f.hasTimeouts() {
		l.ClientData, l.MemberConnect, l.MemberData, l.TCPInspect = &s.ClientData, &s.MemberConnect, &s.MemberData, &s.TCPInspect
	}
	if protocol == protocolTerminatedHTTPS {
		l.TLSContainerRef = s.TLSContainerRef
	}
	if s.forwardedFor && (protocol == protocolHTTP || protocol == protocolTerminatedHTTPS) {
		l.InsertHeaders = map[string]string{forwardedFor: textTrue}
	}
	if f.hasACL() {
		l.AllowedCIDRs = s.sources.Texts(allAddresses(familyOf(service) == v1.IPv6Protocol))
	}
	byHealthPort := checksHealthPort(service, s, protocol, f)
	w := wantedPort{listener: l, pool: poolRequest{Name: partName("pool", index, r.name), Protocol: poolProtocol(protocol, s), Method: s.Method}}
	if f.hasTags() && r.mark != "" {
		w.tags = []string{r.name, r.mark}
	}
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		w.pool.Persistence = &persistence{Type: "SOURCE_IP"}
	}
	for _, b := range backends {
		if p.NodePort == 0 {
			break
		}
		m := memberRequest{Name: b.name, Address: b.address, Port: int(p.NodePort), SubnetID: subnetID}
		if byHealthPort {
			m.MonitorPort = int(service.Spec.HealthCheckNodePort)
		}
		w.pool.Members = append(w.pool.Members, m)
	}
	if s.monitor {
		w.monitor = desiredMonitor(partName("monitor", index, r.name), s, protocol, byHealthPort)
	}
	return w
}

// listenerTags mark a listener with the name of its Service, and where the Service shares a load balancer, as the cluster's.
func listenerTags(f features, r role) []string {
	switch {
	case !f.hasTags():
		return nil
	case !r.owner && r.mark != "":
		return []string{r.name, r.mark}
	}
	return []string{r.name}
}

// desiredMonitor returns the health monitor of a pool. It checks the health check node port or the members' own port.
func desiredMonitor(name string, s settings, protocol string, byHealthPort bool) *monitorRequest {
	m := &monitorRequest{
		Name: name, Type: monitorType(protocol), Delay: s.Delay, Timeout: s.Timeout, MaxRetries: s.Retries, MaxRetriesDown: s.RetriesDown,
	}
	if byHealthPort {
		m.Type, m.URLPath, m.Method, m.Codes = protocolHTTP, healthPath, "GET", "200"
	}
	return m
}

func monitorType(protocol string) string {
	if t := transportOf(protocol); t != protocolUDP {
		return t
	}
	return "UDP-CONNECT"
}

// allAddresses returns the network of all addresses of a family.
func allAddresses(v6 bool) string {
	if v6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// plan compares a load balancer with the desired state and returns ordered steps. Steps that need an object yet to be created are left for
// the next plan.
func plan(lb *loadBalancer, d *details, want wantedState, r role) ([]step, error) {
	kept := map[string]bool{}
	var creates, changes []step
	for _, w := range want.ports {
		port := w.listener.key()
		n := slices.IndexFunc(d.listeners, func(l listener) bool {
			return l.Port == w.listener.Port && transportOf(l.Protocol) == transportOf(w.listener.Protocol)
		})
		if n >= 0 && !r.ownsListener(d.listeners[n]) {
			return nil, &schema.Problem{Place: fmt.Sprintf("port %d", w.listener.Port), Reason: fmt.Sprintf(
				"the listener port %d already exists on load balancer %s and is not this Service's; choose another port or another load balancer", w.listener.Port, lb.ID)}
		}
		if n < 0 || d.listeners[n].Protocol != w.listener.Protocol {
			// A listener's protocol cannot be changed, and its port is occupied: the old listener is deleted first.
			request := w.listener
			request.LoadBalancerID = lb.ID
			creates = append(creates, step{kind: createListener, id: lb.ID, body: request, reason: "missing", port: port})
			continue
		}
		l := d.listeners[n]
		kept[l.ID] = true
		if u, reason := listenerChanges(l, w.listener); reason != "" {
			changes = append(changes, step{kind: updateListener, id: l.ID, body: u, reason: reason, port: port})
		}
		changes = append(changes, assignToPort(port, poolSteps(lb, d, l, w, want, r))...)
		if next := d.replacementPool(l, w.pool, r); next != nil {
			kept[next.ID] = true
		}
	}
	steps := slices.Concat(removals(d, r, kept), creates, changes)
	if u, reason := loadBalancerChanges(lb, want); reason != "" {
		st := step{kind: updateLoadBalancer, id: lb.ID, body: u, reason: reason}
		if u.Name != nil {
			return append(steps, st), nil // until then the old name shows that parts need renaming
		}
		// The tag of a joining Service comes first, so that other users see it.
		steps = slices.Insert(steps, 0, st)
	}
	return steps, nil
}

// removals returns the deletions of the Service's listeners with their pools, and of its pools that no listener uses. kept holds the IDs
// of those that stay.
func removals(d *details, r role, kept map[string]bool) (steps []step) {
	for _, l := range d.listeners {
		if kept[l.ID] || !r.ownsListener(l) {
			continue
		}
		if p := d.poolOf(l); p != nil {
			steps = append(steps, step{kind: deletePool, id: p.ID, reason: "its listener goes"})
		}
		steps = append(steps, step{kind: deleteListener, id: l.ID, reason: "not wanted"})
	}
	for i := range d.pools {
		p := &d.pools[i]
		used := slices.ContainsFunc(d.listeners, func(l listener) bool { return d.poolOf(l) == p })
		if r.ownsPool(p) && !used && !kept[p.ID] && len(p.Listeners) == 0 {
			steps = append(steps, step{kind: deletePool, id: p.ID, reason: "without a listener"})
		}
	}
	return steps
}

// planLeave returns the steps that remove a Service from a shared load balancer.
func planLeave(lb *loadBalancer, d *details, r role) []step {
	steps := removals(d, r, nil)
	if tags := slices.DeleteFunc(slices.Clone(lb.Tags), func(t string) bool {
		return t == r.name || (t != "" && t == r.former) || ((t == r.mark || t == r.serviceMark) && r.owner)
	}); len(tags) != len(lb.Tags) {
		if len(tags) == 0 {
			tags = []string{""} // like OpenStack's own controller, instead of an empty list
		}
		steps = append(steps, step{kind: updateLoadBalancer, id: lb.ID, body: loadBalancerUpdate{Tags: &tags}, reason: "the Service leaves"})
	}
	return steps
}

// planMembers returns only the steps needed after a change of nodes.
func planMembers(d *details, want wantedState, r role, refused bool) []step {
	var steps []step
	for _, w := range want.ports {
		for _, l := range d.listeners {
			same := l.Protocol == w.listener.Protocol || (refused && transportOf(l.Protocol) == transportOf(w.listener.Protocol))
			if l.Port != w.listener.Port || !same || !r.ownsListener(l) {
				continue
			}
			if p := d.poolOf(l); p != nil {
				steps = append(steps, assignToPort(w.listener.key(), memberSteps(p, w.pool.Members, want.serial))...)
			}
		}
	}
	return steps
}

func loadBalancerChanges(lb *loadBalancer, want wantedState) (loadBalancerUpdate, string) {
	var u loadBalancerUpdate
	var reasons []string
	if want.name != nil && *want.name != lb.Name {
		u.Name = want.name
		reasons = append(reasons, "name")
	}
	if want.tags != nil && !services.SameSet(want.tags, lb.Tags) {
		u.Tags = &want.tags
		reasons = append(reasons, "tags")
	}
	return u, strings.Join(reasons, ", ")
}

// listenerChanges returns the fields that differ, and their names.
func listenerChanges(l listener, w listenerRequest) (listenerUpdate, string) {
	var u listenerUpdate
	var reasons []string
	number := func(name string, have int, want *int, at **int) {
		if want != nil && have != *want {
			*at = want
			reasons = append(reasons, name)
		}
	}
	number("connection_limit", l.ConnectionLimit, &w.ConnectionLimit, &u.ConnectionLimit)
	number("timeout_client_data", l.ClientData, w.ClientData, &u.ClientData)
	number("timeout_member_connect", l.MemberConnect, w.MemberConnect, &u.MemberConnect)
	number("timeout_member_data", l.MemberData, w.MemberData, &u.MemberData)
	number("timeout_tcp_inspect", l.TCPInspect, w.TCPInspect, &u.TCPInspect)
	if missing := slices.DeleteFunc(slices.Clone(w.Tags), func(t string) bool { return slices.Contains(l.Tags, t) }); len(missing) > 0 {
		tags := renamedTags(l, w.Tags[0], missing)
		u.Tags = &tags
		reasons = append(reasons, "tags")
	}
	if l.Name != w.Name && clusterDiffers(l.Name, w.Name) {
		u.Name = &w.Name
		reasons = append(reasons, "name")
	}
	if w.TLSContainerRef != l.TLSContainerRef && w.Protocol == protocolTerminatedHTTPS {
		u.TLSContainerRef = &w.TLSContainerRef
		reasons = append(reasons, "default_tls_container_ref")
	}
	if w.Protocol == protocolHTTP || w.Protocol == protocolTerminatedHTTPS {
		if l.InsertHeaders[forwardedFor] != w.InsertHeaders[forwardedFor] {
			headers := maps.Clone(l.InsertHeaders)
			if headers == nil {
				headers = map[string]string{}
			}
			delete(headers, forwardedFor)
			maps.Copy(headers, w.InsertHeaders)
			u.InsertHeaders = &headers
			reasons = append(reasons, "insert_headers")
		}
	}
	if w.AllowedCIDRs != nil && !services.SameSet(w.AllowedCIDRs, l.AllowedCIDRs) {
		u.AllowedCIDRs = &w.AllowedCIDRs
		reasons = append(reasons, "allowed_cidrs")
	}
	return u, strings.Join(reasons, ", ")
}

// renamedTags keeps the tags of others, and drops the Service's former name.
func renamedTags(l listener, name string, missing []string) []string {
	tags := slices.DeleteFunc(slices.Clone(l.Tags), func(t string) bool { return t == "" || (t != name && clusterDiffers(t, name)) })
	return append(tags, missing...)
}

// clusterDiffers reports whether two names differ only in the cluster's name, which may have been changed.
func clusterDiffers(have, want string) bool {
	haveCluster, haveRest := splitName(have)
	wantCluster, wantRest := splitName(want)
	return haveCluster != "" && wantCluster != "" && haveCluster != wantCluster && haveRest == wantRest
}

// splitName splits a name such as listener_0_kube_service_<cluster>_<namespace>_<service> into the cluster's name, which alone may contain
// underscores, and the rest. It returns "" for other and for truncated names.
func splitName(name string) (cluster, rest string) {
	part, body, found := strings.Cut(name, namePrefix)
	if !found || len(name) >= openstacklimits.Name.Max {
		return "", ""
	}
	end := len(body)
	for range 2 {
		if end = strings.LastIndexByte(body[:end], '_'); end < 0 {
			return "", ""
		}
	}
	return body[:end], part + body[end:]
}

// replacementPool returns the pool prepared to replace a listener's pool, whose protocol cannot be changed; nil if there is none.
func (d *details) replacementPool(l listener, w poolRequest, r role) (next *pool) {
	if p := d.poolOf(l); p == nil || p.Protocol == w.Protocol {
		return nil
	}
	for i := range d.pools {
		p := &d.pools[i]
		free := len(p.Listeners) == 0 && !slices.ContainsFunc(d.listeners, func(l listener) bool { return l.DefaultPoolID == p.ID })
		if free && r.ownsPool(p) && p.Name == w.Name && p.Protocol == w.Protocol && (next == nil || p.ID < next.ID) {
			next = p
		}
	}
	return next
}

// poolSteps returns the steps for a listener's pool. A pool of another protocol serves until its replacement is complete, if the quota
// allows both.
func poolSteps(lb *loadBalancer, d *details, l listener, w wantedPort, want wantedState, r role) []step {
	request := w.pool
	request.Members, request.Monitor = nil, nil
	p := d.poolOf(l)
	if p == nil {
		request.ListenerID = l.ID
		return []step{{kind: createPool, id: l.ID, body: request, reason: "missing"}}
	}
	if p.Protocol == w.pool.Protocol {
		return poolChanges(p, w, want.serial)
	}
	next := d.replacementPool(l, w.pool, r)
	switch {
	case next == nil && want.poolQuotaUsedUp:
		return []step{{kind: deletePool, id: p.ID, reason: "protocol, and no room for another pool beside it"}}
	case next == nil:
		request.LoadBalancerID, request.Tags = lb.ID, w.tags
		return []step{{kind: createPool, id: lb.ID, body: request, reason: "protocol", forReplacement: true}}
	}
	var steps []step
	if !want.poolQuotaUsedUp {
		steps = poolChanges(next, w, want.serial)
		for i := range steps {
			steps[i].forReplacement = true
		}
	}
	if !r.ownsPool(p) { // makes it recognizable once no listener uses it
		former := map[string]any{"name": w.pool.Name}
		tags := slices.DeleteFunc(slices.Clone(p.Tags), func(t string) bool { return t == "" || strings.HasPrefix(t, markPrefix) })
		if tags = append(tags, w.tags...); !services.SameSet(tags, p.Tags) {
			former["tags"] = tags
		}
		steps = append(steps, step{kind: updatePool, id: p.ID, body: former, reason: "name and tags, before it goes"})
	}
	return append(steps, step{kind: updateListener, id: l.ID, body: listenerUpdate{DefaultPoolID: &next.ID}, reason: "default_pool_id"})
}

// poolChanges returns the steps that turn a pool into the desired one.
func poolChanges(p *pool, w wantedPort, serial bool) []step {
	var steps []step
	update := map[string]any{}
	var reasons []string
	if p.Method != w.pool.Method {
		update["lb_algorithm"] = w.pool.Method
		reasons = append(reasons, "lb_algorithm")
	}
	if kindOf(p.Persistence) != kindOf(w.pool.Persistence) && (kindOf(p.Persistence) == "" || kindOf(p.Persistence) == "SOURCE_IP") {
		update["session_persistence"] = w.pool.Persistence
		reasons = append(reasons, "session_persistence")
	}
	if clusterDiffers(p.Name, w.pool.Name) {
		update["name"] = w.pool.Name
		reasons = append(reasons, "name")
	}
	if len(update) > 0 {
		steps = append(steps, step{kind: updatePool, id: p.ID, body: update, reason: strings.Join(reasons, ", ")})
	}
	steps = append(steps, memberSteps(p, w.pool.Members, serial)...)
	return append(steps, monitorSteps(p, w.monitor)...)
}

func kindOf(p *persistence) string {
	if p == nil {
		return ""
	}
	return p.Type
}

// memberSteps compares members by name, address and ports. A different subnet alone changes nothing: OpenStack's own controller finds it
// in two ways, which may disagree.
func memberSteps(p *pool, want []memberRequest, serial bool) []step {
	key := func(name, address string, port, monitorPort int) memberKey {
		if serial {
			name, monitorPort = "", 0
		}
		return memberKey{name, address, port, monitorPort}
	}
	have := map[memberKey]member{}
	for _, m := range p.members.list() {
		have[key(m.Name, m.Address, m.Port, m.MonitorPort)] = m
	}
	wanted := make(map[memberKey]memberRequest, len(want))
	for _, m := range want {
		wanted[key(m.Name, m.Address, m.Port, m.MonitorPort)] = m
	}
	same := len(have) == len(wanted)
	var steps []step
	var lacking memberRequest
	for _, k := range slices.SortedFunc(keysMissing(wanted, have), compareKeys) {
		same = false
		m := wanted[k]
		lacking = m
		m.Name, m.SubnetID, m.MonitorPort = openstacklimits.Name.Cut(fmt.Sprintf("member_%s_%s_%d", m.Name, m.Address, m.Port)), "", 0
		steps = append(steps, step{kind: addMember, id: p.ID, body: m, reason: "missing"})
	}
	for _, k := range slices.SortedFunc(keysMissing(have, wanted), compareKeys) {
		same = false
		steps = append(steps, step{kind: removeMember, id: p.ID, member: have[k], reason: "not wanted"})
	}
	switch {
	case same:
		return nil
	case serial:
		return steps
	case len(steps) == 1 && steps[0].kind == addMember:
		// Octavia processes all members of a batch, changed or not.
		return []step{{kind: addMember, id: p.ID, body: lacking, reason: "missing"}}
	case len(steps) == 1 && (steps[0].member.ID != "" || p.members.idsDropped): // IDs of members from a batch are unknown
		return steps
	}
	return []step{{kind: setMembers, id: p.ID, members: want, reason: strconv.Itoa(len(steps)) + " of " + strconv.Itoa(len(want)) + " members differ"}}
}

func monitorSteps(p *pool, want *monitorRequest) []step {
	have := p.monitor
	create := func() step {
		request := *want
		request.PoolID = p.ID
		return step{kind: createMonitor, id: p.ID, body: request, reason: "missing"}
	}
	switch {
	case have == nil && p.MonitorID == "" && want == nil:
		return nil
	case want == nil:
		return []step{{kind: deleteMonitor, id: p.MonitorID, reason: "not wanted"}}
	case have == nil:
		return []step{create()}
	case have.Type != want.Type:
		return []step{{kind: deleteMonitor, id: have.ID, reason: "type"}, create()}
	}
	differs := have.Name != want.Name || have.Delay != want.Delay || have.Timeout != want.Timeout ||
		have.MaxRetries != want.MaxRetries || have.MaxRetriesDown != want.MaxRetriesDown ||
		(want.URLPath != "" && have.URLPath != want.URLPath) || (want.Codes != "" && have.Codes != want.Codes)
	if !differs {
		return nil
	}
	request := *want
	request.Type, request.Method = "", ""
	return []step{{kind: updateMonitor, id: have.ID, body: request, reason: "settings"}}
}

func statusOf(address string, more []string, s settings, c loadBalancerConfig) *v1.LoadBalancerStatus {
	switch {
	case s.Hostname != "":
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: s.Hostname}}}
	case s.proxy() != "" && c.IngressHostname:
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: address + "." + c.HostnameSuffix}}}
	}
	mode := v1.LoadBalancerIPModeVIP
	if s.proxy() != "" {
		mode = v1.LoadBalancerIPModeProxy
	}
	status := &v1.LoadBalancerStatus{}
	for _, ip := range append([]string{address}, more...) {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: ip, IPMode: &mode})
	}
	return status
}
