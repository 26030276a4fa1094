package nsx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
)

// This file is pure: it computes the desired objects of a Service, and the differences.

// appName is the name of the cloud's own controller: the owner in the tags of its objects, and part of descriptions.
const appName = "vsphere-cloud-controller-manager"

// Scopes of tags.
const (
	scopeOwner   = "owner"
	scopeCluster = "cluster"
	scopeService = "service"
	scopePort    = "port"
	scopePool    = "ippoolid"
	scopeClass   = "lbclass"
	// scopeMark is ours: the marks that distinguish clusters with the same name.
	scopeMark = "anyccm"
	// scopeSet is ours: annotations define the object's settings, which return to NSX's defaults when these are removed. Objects without it
	// may have manual settings, which stay.
	scopeSet = "anyccm-set"
	// scopeWas is ours: the mark of the cluster from which an object was handed over.
	scopeWas = "anyccm-was"
)

// Kinds of address translation.
const (
	snatAutoMap  = "LBSnatAutoMap"
	snatDisabled = "LBSnatDisabled"
)

const memberEnabled = "ENABLED"

// holder is the Service of an object, by the object's tags, all of which must match. Load balancer services have none, but a cluster.
type holder struct{ owner, cluster, service string }

func holderOf(x object) holder {
	c := x.common()
	return holder{c.tag(scopeOwner), c.tag(scopeCluster), c.tag(scopeService)}
}

// key is unambiguous, because a tag contains no NUL.
func (h holder) key() string { return h.owner + "\x00" + h.cluster + "\x00" + h.service }

// id identifies a load balancer in orphans and handovers.
func (h holder) id() string { return h.cluster + "/" + h.service }

// name is the display name of the objects.
func (h holder) name() string { return "cluster:" + h.cluster + ":" + h.service }

// marking holds the tags of a Service's objects.
type marking struct {
	holder
	// extra are the configured tags; marks are ours.
	extra map[string]string
	marks []string
}

func (l loadBalancerConfig) owner() string { return cmp.Or(l.Tags[scopeOwner], appName) }

// tags returns the tags of an object, in the order of their scopes. The object's own tags override configured ones.
func (m marking) tags(own map[string]string) []tag {
	all := map[string]string{}
	maps.Copy(all, m.extra)
	all[scopeOwner], all[scopeCluster] = m.owner, m.cluster
	if m.service != "" {
		all[scopeService] = m.service
	}
	maps.Copy(all, own)
	var list []tag
	for _, scope := range slices.Sorted(maps.Keys(all)) {
		list = append(list, tag{Scope: scope, Tag: all[scope]})
	}
	return m.addMarks(list)
}

// addMarks adds missing marks, if there is room. Marks of a deleted Service are replaced.
func (m marking) addMarks(tags []tag) []tag {
	if len(m.marks) == 0 {
		return tags
	}
	kept := slices.DeleteFunc(slices.Clone(tags), func(t tag) bool { return t.Scope == scopeMark })
	if len(kept)+len(m.marks) > nsxlimits.Tags.Max {
		return tags
	}
	for _, mark := range m.marks {
		kept = append(kept, tag{Scope: scopeMark, Tag: mark})
	}
	return kept
}

// marksOf returns our marks on an object.
func marksOf(o object) []string {
	var marks []string
	for _, t := range o.common().Tags {
		if t.Scope == scopeMark {
			marks = append(marks, t.Tag)
		}
	}
	return marks
}

// serviceKey returns the value of a Service's tag.
func serviceKey(service *v1.Service) string { return service.Namespace + "/" + service.Name }

// loadBalancerName is the display name of the objects of a Service.
func loadBalancerName(cluster string, service *v1.Service) string {
	return holder{cluster: cluster, service: serviceKey(service)}.name()
}

// objectID returns the ID for an object of a Service: always the same, so that a creation without a response is not repeated. It has the
// form of a UUID, as with the cloud's own controller.
func objectID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Collections of objects.
const (
	pathServices    = "/infra/lb-services"
	pathServers     = "/infra/lb-virtual-servers"
	pathPools       = "/infra/lb-pools"
	pathMonitors    = "/infra/lb-monitor-profiles"
	pathAppProfiles = "/infra/lb-app-profiles"
	pathIPPools     = "/infra/ip-pools"
)

// servicePort is a port of a Service.
type servicePort struct {
	Protocol       v1.Protocol
	Port, NodePort int32
	// Profile is the path of the application profile.
	Profile string
}

// key returns the value of a port's tag.
func (p servicePort) key() string { return fmt.Sprintf("%s/%d", p.Protocol, p.Port) }

func (p servicePort) number() string { return strconv.Itoa(int(p.Port)) }

func (p servicePort) nodePort() string { return strconv.Itoa(int(p.NodePort)) }

// member is a node behind a load balancer. Its address is "" while it is unknown.
type member struct{ name, address string }

// members returns the nodes with their first internal addresses, in the order of their names. The error lists nodes whose addresses are
// unknown now: these keep theirs.
func (n Nodes) members(ctx context.Context, cluster string, nodes []*v1.Node) (list []member, unread error) {
	for _, node := range nodes {
		if node.Spec.ProviderID == "" {
			continue // not initialized yet; the framework retries then
		}
		addresses, err := n.Addresses(ctx, node)
		if err != nil && unread == nil {
			unread = err
		}
		list = append(list, member{name: cluster + ":" + node.Name, address: internalAddress(addresses)})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return list, unread
}

func internalAddress(addresses []v1.NodeAddress) string {
	for _, a := range addresses {
		if a.Type != v1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			return ip.String()
		}
	}
	return ""
}

// mergeMembers returns the desired members of a pool: present ones in their order, then new ones. A node without an address at the moment
// keeps its former one. changed is false if they equal the present ones.
func mergeMembers(existing []poolMember, wanted []member) (merged []poolMember, changed bool) {
	addresses, unknown := map[string]string{}, map[string]bool{}
	for _, m := range wanted {
		if m.address == "" {
			unknown[m.name] = true
			continue
		}
		if _, twice := addresses[m.address]; !twice {
			addresses[m.address] = m.name
		}
	}
	for _, m := range existing {
		if _, stays := addresses[m.IPAddress]; !stays && !unknown[m.DisplayName] {
			changed = true
			continue
		}
		delete(addresses, m.IPAddress)
		merged = append(merged, m)
	}
	for _, m := range wanted {
		if m.address == "" || addresses[m.address] != m.name {
			continue
		}
		delete(addresses, m.address)
		merged, changed = append(merged, poolMember{AdminState: memberEnabled, DisplayName: m.name, IPAddress: m.address}), true
	}
	return merged, changed
}

// observed holds the NSX objects of a Service.
type observed struct {
	allocations []*ipAllocation
	servers     []*virtualServer
	pools       []*serverPool
	monitors    []*monitorProfile
	// address is that of the virtual servers, or of the allocation before there are any.
	address string
}

func (o observed) isEmpty() bool {
	return len(o.allocations)+len(o.servers)+len(o.pools)+len(o.monitors) == 0
}

// objects returns all observed objects, those that refer to others first.
func (o observed) objects() []object {
	return slices.Concat(asObjects(o.servers), asObjects(o.pools), asObjects(o.monitors), asObjects(o.allocations))
}

func asObjects[T object](list []T) []object {
	all := make([]object, len(list))
	for i, x := range list {
		all[i] = x
	}
	return all
}

// filter returns the objects that satisfy a condition.
func (o observed) filter(is func(object) bool) observed {
	return observed{
		allocations: filterObjects(o.allocations, is), servers: filterObjects(o.servers, is),
		pools: filterObjects(o.pools, is), monitors: filterObjects(o.monitors, is),
	}.withAddress()
}

func filterObjects[T object](list []T, is func(object) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !is(x) })
}

// withAddress sets the address to that of the realized virtual servers.
func (o observed) withAddress() observed {
	o.address = ""
	if len(o.servers) > 0 {
		o.address = o.servers[0].IPAddress
	} else if len(o.allocations) > 0 {
		o.address = o.allocations[0].address()
	}
	return o
}

// addresses are those of all virtual servers and allocations.
func (o observed) addresses() (list []string) {
	for _, s := range o.servers {
		list = append(list, s.IPAddress)
	}
	for _, a := range o.allocations {
		list = append(list, a.address())
	}
	return list
}

// findServer returns the virtual server of a port, by its tag and port.
func (o observed) findServer(p servicePort) *virtualServer {
	return firstOf(o.servers, func(s *virtualServer) bool {
		return s.tag(scopePort) == p.key() && len(s.Ports) == 1 && s.Ports[0] == p.number()
	})
}

// findPool returns the pool of a port: that of its virtual server, if it has its tag, else another one with its tag.
func (o observed) findPool(p servicePort) *serverPool {
	var used []string
	if s := o.findServer(p); s != nil {
		used = []string{s.PoolPath}
	}
	return findTagged(o.pools, p, used)
}

// findMonitor returns the health check of a port, in the same way.
func (o observed) findMonitor(p servicePort) *monitorProfile {
	var used []string
	if x := o.findPool(p); x != nil {
		used = x.Monitors
	}
	return findTagged(o.monitors, p, used)
}

// findTagged returns the object with the tag of a port: among several the first one in use.
func findTagged[T interface {
	comparable
	object
}](list []T, p servicePort, used []string) T {
	tagged := func(x T) bool { return x.common().tag(scopePort) == p.key() }
	return cmp.Or(firstOf(list, func(x T) bool { return tagged(x) && slices.Contains(used, pathOf(x)) }), firstOf(list, tagged))
}

func firstOf[T object](list []T, is func(T) bool) (none T) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return none
}

// desired is the desired state of a Service.
type desired struct {
	uid, name string
	// class and poolID are those of the address, which stays when the annotation changes.
	class, poolID string
	// settings are the annotations; moved is set if the pool of their class differs from the address's.
	settings settings
	moved    bool
	ports    []servicePort
	members  []member
	// unread is why the addresses of some members cannot be read now; nil if all are known.
	unread  error
	snat    string
	marking marking
	// shown are the addresses in the status of the Service.
	shown []string
	// service is the path of the load balancer service for new virtual servers; newService is one that must be created first.
	service    string
	newService *lbService
}

// tagsOf returns the tags of an object of a port.
func (d desired) tagsOf(p servicePort) []tag {
	return d.marking.tags(map[string]string{scopePort: p.key()})
}

func (d desired) newMonitor(p servicePort) *monitorProfile {
	m := &monitorProfile{commonFields: commonFields{
		ID: objectID(d.uid, "monitor", p.key()), ResourceType: typeTCPMonitor,
		DisplayName: fmt.Sprintf("%s:%d", d.name, p.NodePort), Tags: d.tagsOf(p),
		Description: fmt.Sprintf("tcp monitor for cluster %s, service %s, port %d created by %s", d.marking.cluster, d.marking.service, p.NodePort, appName),
	}}
	_ = monitorChange{int(p.NodePort), d.settings.Check}.apply(m)
	return m
}

func (d desired) newPool(p servicePort, monitors []string) *serverPool {
	x := &serverPool{SNAT: &snatTranslation{Type: d.snat}, commonFields: commonFields{
		ID: objectID(d.uid, "pool", p.key()), ResourceType: typePool, DisplayName: d.name, Tags: d.tagsOf(p),
		Description: fmt.Sprintf("pool for cluster %s, service %s created by %s", d.marking.cluster, d.marking.service, appName),
	}}
	_ = poolChange{d.members, &monitors, &d.settings.Algorithm}.apply(x)
	return x
}

func (d desired) newServer(p servicePort, address, pool string) *virtualServer {
	return &virtualServer{
		Enabled: new(true), IPAddress: address, Ports: []string{p.number()}, MemberPorts: []string{p.nodePort()},
		ApplicationProfile: p.Profile, PoolPath: pool, ServicePath: d.service, commonFields: commonFields{
			ID: objectID(d.uid, "virtual server", p.key()), ResourceType: typeVirtualServer, DisplayName: d.name,
			Description: fmt.Sprintf("virtual server for cluster %s, service %s created by %s", d.marking.cluster, d.marking.service, appName),
			Tags:        d.marking.tags(map[string]string{scopePort: p.key(), scopePool: d.poolID, scopeClass: d.class}),
		},
	}
}

// update is a change of one object, by the change of its kind.
type update struct {
	before, after object
	// reason names the differences.
	reason  string
	server  serverChange
	pool    poolChange
	monitor monitorChange
}

// applyToCopy returns an object after a change, and the reason for it; "" if nothing differs.
func applyToCopy[V any, T objectOf[V]](before T, apply func(T) (reason string)) (after T, reason string) {
	after = T(new(V))
	*after = *before
	return after, apply(after)
}

// serverChange holds the desired fields of a virtual server.
type serverChange struct {
	port servicePort
	// pool is the path of the pool.
	pool string
}

// poolChange holds the desired fields of a pool; monitors and algorithm are nil if they stay.
type poolChange struct {
	members   []member
	monitors  *[]string
	algorithm *string
}

// monitorChange holds the desired fields of a health check.
type monitorChange struct {
	port     int
	settings checkSettings
}

// checkSettings are the settings of a health check, 0 for NSX's default.
type checkSettings struct{ Interval, Timeout, Rise, Fall int }

// NSX's own settings of pools and health checks.
const defaultAlgorithm = "ROUND_ROBIN"

var defaultCheck = checkSettings{Interval: 5, Timeout: 5, Rise: 3, Fall: 3}

// usableAllocation returns the allocation for a load balancer without virtual servers, nil if there is none: one with an address in the
// Service's status, else one of the class's pool. Others, of a class that the Service had for a moment, count if the status has an address.
func (d desired) usableAllocation(list []*ipAllocation) *ipAllocation {
	rank := func(a *ipAllocation) int {
		switch {
		case a.address() != "" && slices.Contains(d.shown, a.address()):
			return 0
		case a.pool == d.poolID:
			return 1
		}
		return 2
	}
	list = slices.SortedStableFunc(slices.Values(list), func(a, b *ipAllocation) int { return rank(a) - rank(b) })
	if len(list) == 0 || (rank(list[0]) == 2 && len(d.shown) == 0) {
		return nil
	}
	return list[0]
}

// choosePool selects the pool of the address, if there are no virtual servers yet.
func choosePool(o observed, d desired) (observed, desired) {
	if len(o.servers) > 0 {
		return o, d
	}
	o.address = ""
	if a := d.usableAllocation(o.allocations); a != nil {
		o.address, d.poolID = a.address(), a.pool
	}
	return o, d
}

// plan lists the changes for a Service, in the order in which they are made.
type plan struct {
	allocate bool
	create   []object
	update   []update
	remove   []object
}

// diff computes the changes from the observed to the desired state.
func diff(o observed, d desired) plan {
	var p plan
	kept := map[string]bool{}
	for _, port := range d.ports {
		var monitors []string
		if port.Protocol == v1.ProtocolTCP {
			monitors = []string{p.planMonitor(o, d, port, kept)}
		}
		pool := p.planPool(o, d, port, monitors, kept)
		p.planServer(o, d, port, pool, kept)
	}
	for _, x := range o.objects() {
		if _, address := x.(*ipAllocation); !address && !kept[x.common().ID] {
			p.remove = append(p.remove, x)
		}
	}
	for _, a := range o.allocations {
		used := slices.ContainsFunc(o.servers, func(s *virtualServer) bool { return kept[s.ID] && s.IPAddress == a.address() })
		unshown := a.address() == "" && a.pool != d.poolID && len(o.servers)+len(d.shown) == 0
		if o.address != "" && !used && (unshown || (a.address() != "" && a.address() != o.address)) {
			p.remove = append(p.remove, a) // unused: the class was changed, or two tries created one each
		}
	}
	return p
}

// createsPools reports whether pools are to be created, which need all members: a retry for missing ones is not guaranteed.
func (p *plan) createsPools() bool {
	return slices.ContainsFunc(p.create, func(x object) bool { return kindOf(x) == kindPool })
}

// planMonitor plans the health check of a port, and returns its path.
func (p *plan) planMonitor(o observed, d desired, port servicePort, kept map[string]bool) string {
	want := monitorChange{int(port.NodePort), d.settings.Check}
	m := o.findMonitor(port)
	if m == nil {
		m = d.newMonitor(port)
		p.create = append(p.create, m)
	} else if after, reason := applyToCopy(m, want.apply); reason != "" {
		p.update = append(p.update, update{before: m, after: after, reason: reason, monitor: want})
	}
	kept[m.ID] = true
	return pathOf(m)
}

// planPool plans the pool of a port, and returns its path.
func (p *plan) planPool(o observed, d desired, port servicePort, monitors []string, kept map[string]bool) string {
	want := poolChange{d.members, &monitors, &d.settings.Algorithm}
	x := o.findPool(port)
	if x == nil {
		x = d.newPool(port, monitors)
		p.create = append(p.create, x)
	} else if after, reason := applyToCopy(x, want.apply); reason != "" {
		p.update = append(p.update, update{before: x, after: after, reason: reason, pool: want})
	}
	kept[x.ID] = true
	return pathOf(x)
}

// planServer plans the virtual server of a port, and the address and the load balancer service that a new one needs.
func (p *plan) planServer(o observed, d desired, port servicePort, pool string, kept map[string]bool) {
	s := o.findServer(port)
	switch {
	case s != nil:
		want := serverChange{port, pool}
		if after, reason := applyToCopy(s, want.apply); reason != "" {
			p.update = append(p.update, update{before: s, after: after, reason: reason, server: want})
		}
	case o.address == "":
		p.allocate = true
		return
	default:
		if d.newService != nil && !slices.Contains(p.create, object(d.newService)) {
			p.create = append(p.create, d.newService)
		}
		s = d.newServer(port, o.address, pool)
		p.create = append(p.create, s)
	}
	kept[s.ID] = true
}

// apply changes a pool, and its algorithm if annotations set it, now or formerly. It returns what differed.
func (c poolChange) apply(x *serverPool) string {
	var reasons []string
	if merged, differ := mergeMembers(x.Members, c.members); differ {
		reasons = append(reasons, fmt.Sprintf("%d members instead of %d", len(merged), len(x.Members)))
		x.Members = merged
	}
	if c.monitors != nil && !services.SameSet(x.Monitors, *c.monitors) {
		reasons = append(reasons, "its health check")
		x.Monitors = *c.monitors
	}
	if c.algorithm != nil {
		before := *x
		if x.claimSettings(*c.algorithm != "") {
			x.Algorithm = cmp.Or(*c.algorithm, defaultAlgorithm)
		}
		if x.Algorithm != before.Algorithm || x.tag(scopeSet) != before.tag(scopeSet) {
			reasons = append(reasons, "algorithm "+x.Algorithm)
		}
	}
	return strings.Join(reasons, ", ")
}

// claimSettings records on an object whether annotations define its settings, and reports whether they do now or did formerly.
func (o *commonFields) claimSettings(set bool) bool {
	had := o.tag(scopeSet) != ""
	if had != set {
		o.Tags = slices.DeleteFunc(slices.Clone(o.Tags), func(t tag) bool { return t.Scope == scopeSet })
		if set {
			o.Tags = append(o.Tags, tag{Scope: scopeSet, Tag: "by annotations"})
		}
	}
	return had || set
}

// apply changes a health check, and its settings if annotations define them, now or formerly. It returns what differed.
func (c monitorChange) apply(m *monitorProfile) string {
	before, s := *m, c.settings
	m.MonitorPort = c.port
	if m.claimSettings(s != checkSettings{}) {
		m.Interval, m.Timeout = cmp.Or(s.Interval, defaultCheck.Interval), cmp.Or(s.Timeout, defaultCheck.Timeout)
		m.RiseCount, m.FallCount = cmp.Or(s.Rise, defaultCheck.Rise), cmp.Or(s.Fall, defaultCheck.Fall)
	}
	var reasons []string
	if before.MonitorPort != m.MonitorPort {
		reasons = append(reasons, fmt.Sprintf("check node port %d instead of %d", m.MonitorPort, before.MonitorPort))
	}
	settings := func(m *monitorProfile) checkSettings {
		return checkSettings{m.Interval, m.Timeout, m.RiseCount, m.FallCount}
	}
	if settings(&before) != settings(m) || before.tag(scopeSet) != m.tag(scopeSet) {
		reasons = append(reasons, fmt.Sprintf("check every %d s, at most %d s, %d to take in, %d to leave out",
			m.Interval, m.Timeout, m.RiseCount, m.FallCount))
	}
	return strings.Join(reasons, ", ")
}

// apply changes a virtual server. It returns what differed.
func (c serverChange) apply(s *virtualServer) string {
	var reasons []string
	if len(s.MemberPorts) != 1 || s.MemberPorts[0] != c.port.nodePort() {
		reasons = append(reasons, fmt.Sprintf("node port %d", c.port.NodePort))
		s.MemberPorts = []string{c.port.nodePort()}
	}
	if s.PoolPath != c.pool {
		reasons = append(reasons, "its pool")
		s.PoolPath = c.pool
	}
	if s.ApplicationProfile != c.port.Profile {
		reasons = append(reasons, "application profile "+c.port.Profile)
		s.ApplicationProfile = c.port.Profile
	}
	return strings.Join(reasons, ", ")
}
