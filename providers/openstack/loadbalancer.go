package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/internal/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are in it at once;
	// the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
	// backendMaxAge is for the ports of the servers behind the nodes.
	backendMaxAge = 10 * time.Minute
	// partsMaxAge is for listeners, pools and members: our own writes keep them true, and a load balancer tells when it was
	// changed last, so that a change of somebody else is seen at the next look all the same.
	partsMaxAge = 10 * time.Minute
	// updatePartsMaxAge is for them when nodes change.
	updatePartsMaxAge = 24 * time.Hour
	// floatingMaxAge is how old the knowledge of an attached floating address may be.
	floatingMaxAge = 60 * time.Second
	// newMaxAge lets one listing serve many new Services: nobody else makes what they look for.
	newMaxAge = 3 * time.Second

	// annotationMade is ours: the load balancer that we made for the Service. Unlike load-balancer-id, users do not set it.
	annotationMade = "anyccm.io/openstack-load-balancer-id"
	// annotationShareWith is ours, on the Service that a load balancer was made for.
	annotationShareWith = "anyccm.io/openstack-share-with-namespaces"
)

// Reasons of the events that the provider writes on Services. Those that begin with LoadBalancer and are listed in the
// manual of OpenStack's own controller have its names.
const (
	eventConfigError     = "LoadBalancerConfigError"
	eventIgnored         = "LoadBalancerAnnotationIgnored"
	eventFixed           = "LoadBalancerAnnotationFixed"
	eventNotOurs         = ownership.EventNotOurs
	eventForcedInternal  = "LoadBalancerForcedInternal"
	eventRangesIgnored   = "LoadBalancerSourceRangesIgnored"
	eventZoneIgnored     = "LoadBalancerAvailabilityZonesIgnored"
	eventFloatingSkipped = "LoadBalancerFloatingIPSkipped"
	eventRename          = "LoadBalancerRename"
	eventRecreated       = "LoadBalancerRecreated"
	eventFailover        = "LoadBalancerFailover"
	eventBroken          = "LoadBalancerError"
	eventNoMonitor       = "LoadBalancerHealthMonitorMissing"
	eventSingleStack     = "LoadBalancerSingleStack"
	eventShared          = "LoadBalancerShared"
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	config    Config
	api       *api
	instances *instances
	networks  *networks
	balancers *inventory.Inventory[string, *balancer]
	parts     *inventory.Inventory[string, *details]
	floating  *inventory.Inventory[string, floatingIP]
	groups    *inventory.Inventory[string, securityGroup]
	monitors  *inventory.Inventory[string, *monitor]
	cluster   *ownership.Cluster
	adopt     registry.Adoption
	// room is where everybody waits for Octavia.
	room      *waiting.Room[string, *balancer]
	failovers failovers
	locks     keylock.Locks
	// looked has the IDs of load balancers whose parts were read before.
	looked sync.Map

	// Set by Initialize, before any call of the framework.
	kube   kubernetes.Interface
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

// pace is how often is looked at what Octavia works on: most changes take it a second or two, and there are many in a row.
var pace = waiting.Pace{Least: 700 * time.Millisecond, Most: 3 * time.Second}

const (
	indexPort    = "port"
	indexAddress = "address"
)

func newLoadBalancers(c Config, a *api, n *networks, i *instances, adopt registry.Adoption) *loadBalancers {
	l := &loadBalancers{
		config: c, adopt: adopt, api: a, networks: n, instances: i, cluster: &ownership.Cluster{}, failovers: failovers{last: map[string]time.Time{}},
		balancers: inventory.New(inventory.Source[string, *balancer]{
			Kind: "load balancer", ID: func(b *balancer) string { return b.ID }, List: a.listBalancers, Get: a.getBalancer,
			Indexes: map[string]func(*balancer) []string{indexName: func(b *balancer) []string { return []string{b.Name} }},
		}),
		floating: newFloatingInventory(a), groups: newGroupInventory(a), monitors: newMonitorInventory(a),
	}
	l.room = waiting.New(l.balancers.Look, pace)
	l.parts = inventory.New(inventory.Source[string, *details]{
		Kind: "load balancer detail", ID: func(d *details) string { return d.balancerID }, Get: l.readParts,
	})
	return l
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancerName(_ context.Context, cluster string, service *v1.Service) string {
	return balancerName(cluster, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	lb, r, err := l.findOurs(ctx, cluster, service)
	if err != nil {
		return nil, false, err
	}
	if lb == nil || !l.served(lb, r) {
		left, err := l.leftovers(ctx, cluster, service)
		return &v1.LoadBalancerStatus{}, left, err
	}
	s, _, _ := parseSettings(service, l.config) // a fault in other annotations does not hide what is there
	address := lb.VIPAddress
	if f, err := l.attached(ctx, lb, inventory.Query{MaxAge: floatingMaxAge, MaxMissAge: floatingMaxAge, MaxUnlistedAge: floatingMaxAge}); err != nil {
		return nil, false, err
	} else if f != nil {
		address = f.Address
	}
	return statusOf(address, furtherAddresses(lb), s, l.config.LoadBalancer), true, nil
}

// served reports whether a Service has a part in a load balancer. One that it would share, and has not joined, is none.
func (l *loadBalancers) served(lb *balancer, r role) bool {
	return r.owner || slices.Contains(lb.Tags, r.name)
}

func furtherAddresses(lb *balancer) []string {
	var list []string
	for _, v := range lb.AdditionalVIPs {
		if v.Address != "" {
			list = append(list, v.Address)
		}
	}
	return list
}

// mostBirths bounds how often one call makes a load balancer, where the former one turns out to be going or broken.
const mostBirths = 3

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, make one change after another. What Octavia
// does meanwhile is waited for inside, for the framework warns of every other answer.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (status *v1.LoadBalancerStatus, err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_ensure", began, failed(err)) }(time.Now())
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("there are no available nodes for LoadBalancer service %s/%s", service.Namespace, service.Name)
	}
	f, err := l.api.octavia(ctx)
	if err != nil {
		return nil, err
	}
	for range mostBirths {
		lb, err := l.find(ctx, cluster, service)
		if err != nil {
			return nil, err
		}
		l.reportUnsupported(service, s, lb, f)
		if err := l.checkCertificates(ctx, service, s); err != nil {
			return nil, err
		}
		if lb == nil {
			if lb, err = l.create(ctx, cluster, service, s, f, nodes); err != nil {
				return nil, err
			}
			service = recorded(service, map[string]string{annotationID: lb.ID, annotationMade: lb.ID})
		}
		status, gone, err := l.ensure(ctx, cluster, service, s, f, lb, nodes)
		if err == nil && !gone {
			err = l.leavePrevious(ctx, cluster, service, s, lb)
		}
		if err != nil || !gone {
			return status, err
		}
		service = recorded(service, map[string]string{annotationID: "", annotationMade: ""})
	}
	return nil, errors.New("the load balancer of the Service went away as often as it was made; look into Octavia's log")
}

// recorded returns a Service with annotations that were written meanwhile; "" stands for one that was removed.
func recorded(service *v1.Service, annotations map[string]string) *v1.Service {
	service = service.DeepCopy()
	for key, value := range annotations {
		if value == "" {
			delete(service.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, key, value)
	}
	return service
}

// ensure brings the load balancer of a Service to the wanted state. gone means that it has gone, and another one is due.
func (l *loadBalancers) ensure(ctx context.Context, cluster string, service *v1.Service, s settings, f features, lb *balancer, nodes []*v1.Node) (status *v1.LoadBalancerStatus, gone bool, err error) {
	r, err := l.admit(ctx, cluster, service, s, lb, f, nodes)
	if err != nil {
		return nil, false, err
	}
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return nil, false, fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	if err := l.record(ctx, service, map[string]any{annotationID: lb.ID}); err != nil {
		return nil, false, err
	}
	if lb, err = l.settled(ctx, service, lb, r); err != nil || lb == nil {
		return nil, lb == nil && err == nil, err
	}
	status, err = l.converge(ctx, cluster, service, s, f, lb, r, nodes)
	return status, false, err
}

// failed keeps the answer "not yet" out of the count of failures.
func failed(err error) error {
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return nil
	}
	return err
}

// idle waits until Octavia works on a load balancer no longer; nil means that it has gone.
func (l *loadBalancers) idle(ctx context.Context, id, doing string) (*balancer, error) {
	lb, err := l.room.Until(ctx, id, fmt.Sprintf("load balancer %s: %s", id, doing), func(b *balancer) bool { return !b.pending() })
	if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && lb.Status == statusDeleted) {
		l.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return lb, err
}

// settled waits until a load balancer can be changed, and has one mended that broke; nil means that it has gone.
func (l *loadBalancers) settled(ctx context.Context, service *v1.Service, lb *balancer, r role) (after *balancer, err error) {
	if lb.pending() {
		if lb, err = l.idle(ctx, lb.ID, lb.Status); err != nil || lb == nil {
			return lb, err
		}
	}
	if lb.Status == statusError {
		if lb, err = l.mend(ctx, service, lb, r); err != nil || lb == nil {
			return lb, err
		}
	}
	if lb.Status != statusActive {
		return nil, fmt.Errorf("load balancer %s has the provisioning status %s, in which nothing can be done about it", lb.ID, lb.Status)
	}
	return lb, nil
}

// observe returns the parts of a load balancer. They are read anew where it was changed after they were read, be it by us:
// somebody else may have changed it right after that, and the time of the change does not tell whose it was.
func (l *loadBalancers) observe(ctx context.Context, lb *balancer) (*details, error) {
	d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.asOf != "" && d.asOf != lb.UpdatedAt {
		d, err = l.parts.Get(ctx, lb.ID, inventory.Query{})
	}
	if err != nil {
		return nil, notAbsence(err)
	}
	if d.asOf != lb.UpdatedAt {
		d = d.clone()
		d.asOf = lb.UpdatedAt
		l.parts.Amend(d)
	}
	return d, nil
}

// mostRounds bounds how often a load balancer is looked at after our own work, and mended again, in one call.
const mostRounds = 5

// work makes the steps that a plan has, one after another, each planned anew from what the former ones have made. When they
// are done it looks once at what is there, for somebody else may have changed it meanwhile. It returns the load balancer as it
// then is; nil means that it has gone.
func (l *loadBalancers) work(ctx context.Context, service *v1.Service, lb *balancer, next func(*balancer, *details) ([]step, error)) (*balancer, error) {
	var busy error
	for range mostRounds {
		d, err := l.observe(ctx, lb)
		if err != nil {
			return nil, err
		}
		worked := false
		for {
			steps, err := next(lb, d)
			if err != nil {
				return nil, err
			}
			if len(steps) == 0 {
				break
			}
			worked = true
			after, parts, err := l.apply(ctx, service, lb, d, steps[0], len(steps)-1)
			if errors.Is(err, errBusy) {
				busy = err
				break
			}
			if err != nil || after == nil {
				return nil, err
			}
			lb, d, busy = after, parts, nil
		}
		if !worked {
			return lb, nil
		}
		if busy != nil { // it was changed by somebody else, and is as it is
			if lb, err = l.balancers.Get(ctx, lb.ID, inventory.Query{}); err != nil {
				return nil, notAbsence(err)
			}
		}
	}
	if busy != nil {
		return nil, busy
	}
	return nil, fmt.Errorf("load balancer %s was changed by somebody else as often as it was set right; find out who does that", lb.ID)
}

// converge brings a load balancer that can be changed to the wanted state.
func (l *loadBalancers) converge(ctx context.Context, cluster string, service *v1.Service, s settings, f features, lb *balancer, r role, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	subnetID := memberSubnet(s, l.config.LoadBalancer, lb.VIPSubnetID)
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return nil, err
	}
	want, err := l.want(service, s, r, lb, subnetID, f, members)
	if err != nil {
		l.event(service, eventConfigError, err.Error())
		return nil, err
	}
	if r.owner {
		l.reportFixed(service, s, lb, f)
	}
	lb, err = l.work(ctx, service, lb, func(lb *balancer, d *details) ([]step, error) {
		l.wantIdentity(service, lb, r, f, &want)
		steps, err := plan(lb, d, want, r)
		if err != nil {
			l.event(service, eventConfigError, err.Error())
		}
		return steps, err
	})
	switch {
	case err != nil:
		return nil, err
	case lb == nil:
		return nil, errors.New("the load balancer went away while it was changed; it is made anew")
	}
	address, err := l.publish(ctx, cluster, service, s, lb, r)
	if err != nil {
		return nil, err
	}
	if err := l.ensureSecurityGroup(ctx, service, s, subnetID, members); err != nil {
		return nil, err
	}
	if err := l.record(ctx, service, map[string]any{annotationAddress: address}); err != nil {
		return nil, err
	}
	return statusOf(address, furtherAddresses(lb), s, l.config.LoadBalancer), nil
}

// want computes the ports that a Service wants. lb is nil before there is one.
func (l *loadBalancers) want(service *v1.Service, s settings, r role, lb *balancer, subnetID string, f features, backends []backend) (desired, error) {
	want := desired{serial: l.config.LoadBalancer.Serial}
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	preferIPv6 := familyOf(service) == v1.IPv6Protocol
	var err error
	if f.acl(provider) {
		s.cidrs, err = ofFamilies(s.cidrs, service, lb)
	}
	for i := range service.Spec.Ports {
		w := wantPort(service, i, s, r, backends, subnetID, provider, f, preferIPv6)
		if lb != nil && len(lb.AdditionalVIPs) > 0 && len(s.cidrs) == 0 && len(w.listener.AllowedCIDRs) > 0 {
			w.listener.AllowedCIDRs = []string{"0.0.0.0/0", "::/0"}
		}
		want.ports = append(want.ports, w)
	}
	return want, err
}

// errBusy: Octavia worked for somebody else, and does no longer; the step is to be planned anew.
var errBusy = errors.New("the load balancer was busy")

// apply makes the call of a step, waits until Octavia has done it, and returns what is there then, as far as we know. A nil
// load balancer means that it has gone.
func (l *loadBalancers) apply(ctx context.Context, service *v1.Service, lb *balancer, d *details, st step, more int) (*balancer, *details, error) {
	if st.kind == updateMonitor || st.kind == deleteMonitor {
		l.monitors.Invalidate(st.id)
	}
	klog.InfoS("Changing load balancer", "service", klog.KObj(service), "loadBalancer", lb.ID, "step", st.kind, "object", st.id, "reason", st.reason, "more", more)
	doing := fmt.Sprintf("%s (%s), then %d more changes", st.kind, st.reason, more)
	made, err := l.order(ctx, lb, st)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) {
			l.event(service, eventConfigError, err.Error())
		}
		return nil, nil, notAbsence(err)
	}
	after := d.after(st, made)
	l.parts.Amend(after)
	busy := *lb
	busy.Status = statusPendingUpdate
	l.balancers.Amend(&busy)
	idle, err := l.idle(ctx, lb.ID, doing)
	if err != nil || idle == nil {
		return nil, nil, err
	}
	if idle.Status != statusActive {
		l.parts.Invalidate(lb.ID)
		return nil, nil, fmt.Errorf("load balancer %s has the provisioning status %s after: %s", lb.ID, idle.Status, doing)
	}
	return idle, after, nil
}

// order makes the call of a step, and returns the ID of what it made. Whatever fails may have taken effect, so the next look
// reads everything again. Where Octavia works on the load balancer already, for somebody else or for a call of ours whose
// answer was lost, the end of that is waited for: the step is planned anew then.
func (l *loadBalancers) order(ctx context.Context, lb *balancer, st step) (made string, err error) {
	made, err = l.api.do(ctx, st)
	if err == nil || cloudapi.NotSent(err) {
		return made, err
	}
	l.balancers.Invalidate(lb.ID)
	l.parts.Invalidate(lb.ID)
	if !errors.Is(err, cloudapi.ErrConflict) {
		return "", err
	}
	if _, lookErr := l.idle(ctx, lb.ID, "the work of somebody else"); lookErr != nil {
		return "", errors.Join(err, lookErr)
	}
	return "", fmt.Errorf("%w: %w", errBusy, err)
}

// after returns the parts as a step leaves them; made is the ID of what it made. They have no time: when all is done, they are
// read once.
func (d *details) after(st step, made string) *details {
	after := d.clone()
	after.asOf = ours
	switch st.kind {
	case deletePool:
		after.dropPool(st.id)
	case deleteListener:
		after.listeners = slices.DeleteFunc(after.listeners, func(l listener) bool { return l.ID == st.id })
		for i := range after.pools {
			after.pools[i].Listeners = slices.DeleteFunc(slices.Clone(after.pools[i].Listeners), func(r reference) bool { return r.ID == st.id })
		}
	case createListener:
		if request, ok := st.body.(listenerRequest); ok {
			after.listeners = append(after.listeners, request.made(made))
		}
	case updateListener:
		for i := range after.listeners {
			if u, ok := st.body.(listenerUpdate); ok && after.listeners[i].ID == st.id {
				after.listeners[i].change(u)
			}
		}
	case createPool:
		if request, ok := st.body.(poolRequest); ok {
			after.pools = append(after.pools, pool{ID: made, Name: request.Name, Protocol: request.Protocol, Method: request.Method, Persistence: request.Persistence, Listeners: []reference{{st.id}}})
		}
	case updatePool, setMembers, addMember, removeMember, createMonitor, updateMonitor, deleteMonitor:
		for i := range after.pools {
			after.pools[i].change(st, made)
		}
	case updateBalancer:
	}
	return after
}

func (d *details) dropPool(id string) {
	d.pools = slices.DeleteFunc(d.pools, func(p pool) bool { return p.ID == id })
	for i := range d.listeners {
		if d.listeners[i].DefaultPoolID == id {
			d.listeners[i].DefaultPoolID = ""
		}
	}
}

// made returns the listener that a request makes.
func (r listenerRequest) made(id string) listener {
	return listener{
		ID: id, Name: r.Name, Protocol: r.Protocol, Port: r.Port, ConnectionLimit: r.ConnectionLimit, TLSContainerRef: r.TLSContainerRef, InsertHeaders: r.InsertHeaders,
		AllowedCIDRs: r.AllowedCIDRs, ClientData: valueOf(r.ClientData), MemberConnect: valueOf(r.MemberConnect), MemberData: valueOf(r.MemberData), TCPInspect: valueOf(r.TCPInspect), Tags: r.Tags,
	}
}

// change makes of a listener what an update makes of it.
func (l *listener) change(u listenerUpdate) {
	set(&l.Name, u.Name)
	set(&l.ConnectionLimit, u.ConnectionLimit)
	set(&l.Tags, u.Tags)
	set(&l.ClientData, u.ClientData)
	set(&l.MemberConnect, u.MemberConnect)
	set(&l.MemberData, u.MemberData)
	set(&l.TCPInspect, u.TCPInspect)
	set(&l.InsertHeaders, u.InsertHeaders)
	set(&l.AllowedCIDRs, u.AllowedCIDRs)
	set(&l.TLSContainerRef, u.TLSContainerRef)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// change makes of a pool what a step makes of it, if the step is about the pool.
func (p *pool) change(st step, made string) {
	switch {
	case st.kind == deleteMonitor && p.MonitorID == st.id:
		p.MonitorID, p.monitor = "", nil
	case st.kind == updateMonitor && p.MonitorID == st.id:
		if r, ok := st.body.(monitorRequest); ok {
			after := r.made(st.id)
			after.Type = p.monitor.Type
			p.monitor = after
		}
	case p.ID != st.id:
	case st.kind == createMonitor:
		if r, ok := st.body.(monitorRequest); ok {
			p.MonitorID, p.monitor = made, r.made(made)
		}
	case st.kind == removeMember:
		p.members = slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return m.ID == st.member })
	case st.kind == addMember:
		if m, ok := st.body.(memberRequest); ok {
			p.members = append(slices.Clone(p.members), m.made(made))
		}
	case st.kind == setMembers:
		p.members = nil
		for _, m := range st.members {
			p.members = append(p.members, m.made(""))
		}
	case st.kind == updatePool:
		if u, ok := st.body.(map[string]any); ok {
			p.update(u)
		}
	}
}

func (p *pool) update(u map[string]any) {
	if method, ok := u["lb_algorithm"].(string); ok {
		p.Method = method
	}
	if kept, ok := u["session_persistence"].(*persistence); ok {
		p.Persistence = kept
	}
	if name, ok := u["name"].(string); ok {
		p.Name = name
	}
}

func (m memberRequest) made(id string) member {
	return member{ID: id, Name: m.Name, Address: m.Address, Port: m.Port, SubnetID: m.SubnetID, MonitorPort: m.MonitorPort}
}

func (r monitorRequest) made(id string) *monitor {
	return &monitor{
		ID: id, Name: r.Name, Type: r.Type, Delay: r.Delay, Timeout: r.Timeout, MaxRetries: r.MaxRetries, MaxRetriesDown: r.MaxRetriesDown, URLPath: r.URLPath, Codes: r.Codes,
	}
}

// errNoNodes keeps a Service without any usable node from losing all its members at once.
var errNoNodes = errors.New("no node has an address for the load balancer; its members stay as they are")

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the members alone, one batch a pool and only where they differ.
// What is there besides is looked at by the next reconciliation.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_update", began, failed(err)) }(time.Now())
	lb, r, err := l.findOurs(ctx, cluster, service)
	if err != nil || lb == nil || !l.served(lb, r) {
		return err
	}
	s, _, err := parseSettings(service, l.config)
	if err := concerning(err, annotationNodeSelector, annotationProxyProtocol, annotationForwardedFor, annotationTLSContainerRef); err != nil {
		return err
	}
	f, err := l.api.octavia(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return errNoNodes
	}
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	if lb, err = l.settled(ctx, service, lb, r); err != nil || lb == nil {
		return err
	}
	subnetID := memberSubnet(s, l.config.LoadBalancer, lb.VIPSubnetID)
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return err
	}
	want, err := l.want(service, s, r, lb, subnetID, f, members)
	if err != nil {
		return err
	}
	if err := l.ensureSecurityGroup(ctx, service, s, subnetID, members); err != nil {
		return err
	}
	return l.workMembers(ctx, service, lb, want, r)
}

// workMembers makes the changes of members that a change of nodes needs.
func (l *loadBalancers) workMembers(ctx context.Context, service *v1.Service, lb *balancer, want desired, r role) error {
	var last error
	id := lb.ID
	for range mostRounds {
		d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: updatePartsMaxAge})
		if err != nil {
			return notAbsence(err)
		}
		for steps := planMembers(d, want, r); len(steps) > 0; steps = planMembers(d, want, r) {
			if lb, d, err = l.apply(ctx, service, lb, d, steps[0], len(steps)-1); err != nil || lb == nil {
				break
			}
		}
		if last = err; !errors.Is(err, errBusy) {
			return err
		}
		if lb, err = l.balancers.Get(ctx, id, inventory.Query{}); err != nil {
			return notAbsence(err)
		}
	}
	return last
}

// mend deals with a load balancer in ERROR, and returns it when it can be changed again. One that never served is deleted, to
// be made anew, and nil is returned; one that did is failed over, which keeps its address.
func (l *loadBalancers) mend(ctx context.Context, service *v1.Service, lb *balancer, r role) (*balancer, error) {
	if l.renewable(service, lb, r) {
		l.event(service, eventRecreated, fmt.Sprintf("Octavia could not build load balancer %s; it is deleted and made anew", lb.ID))
		if err := l.remove(ctx, lb, true); err != nil {
			return nil, err
		}
		return nil, l.record(ctx, service, map[string]any{annotationID: nil, annotationMade: nil})
	}
	ordered, err := l.failOver(ctx, service, lb)
	if !ordered {
		return nil, err
	}
	after, err := l.idle(ctx, lb.ID, "a failover, for it was in ERROR")
	if err == nil && after != nil && after.Status == statusError {
		return nil, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
	}
	return after, err
}

// renewable reports whether a load balancer is this Service's alone and never served.
func (*loadBalancers) renewable(service *v1.Service, lb *balancer, r role) bool {
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	return fresh && r.owner && madeByController(lb, service) && !shared(lb, r)
}

// remove deletes a load balancer, and waits until it has gone.
func (l *loadBalancers) remove(ctx context.Context, lb *balancer, cascade bool) error {
	for range mostRounds {
		err := l.api.deleteBalancer(ctx, lb.ID, cascade)
		if errors.Is(err, cloudapi.ErrNotFound) {
			l.forget(lb.ID)
			return nil
		}
		l.balancers.Invalidate(lb.ID)
		if err != nil && !errors.Is(err, cloudapi.ErrConflict) {
			return err
		}
		if err == nil {
			going := *lb
			going.Status = statusPendingDelete
			l.balancers.Amend(&going)
		}
		now, err := l.idle(ctx, lb.ID, "its deletion")
		switch {
		case err != nil || now == nil:
			return err
		case now.Status == statusError:
			return fmt.Errorf("load balancer %s is in ERROR after its deletion; it is tried again", lb.ID)
		}
		lb = now // it was busy, and is no longer
	}
	return fmt.Errorf("load balancer %s is still there after several deletions", lb.ID)
}

func adviceFor(lb *balancer) string {
	return fmt.Sprintf("load balancer %s is in ERROR: it may go on serving, but Octavia changes nothing of it. Ask an administrator of the cloud to run \"openstack loadbalancer failover %s\"", lb.ID, lb.ID)
}

// failOver orders a failover of a load balancer in ERROR, or tells who can do that.
func (l *loadBalancers) failOver(ctx context.Context, service *v1.Service, lb *balancer) (ordered bool, err error) {
	if l.failovers.may(lb.ID) {
		err := l.api.failOver(ctx, lb.ID)
		if err == nil {
			l.event(service, eventFailover, fmt.Sprintf("load balancer %s is in ERROR; a failover was ordered, which keeps its address", lb.ID))
			l.balancers.Invalidate(lb.ID)
			return true, nil
		}
		klog.InfoS("Octavia refused a failover", "loadBalancer", lb.ID, "reason", err.Error())
		l.event(service, eventBroken, adviceFor(lb))
	}
	return false, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
}

// settings reads the annotations and tells the Service what is wrong with them.
func (l *loadBalancers) settings(service *v1.Service) (settings, error) {
	s, warnings, err := parseSettings(service, l.config)
	for _, w := range schema.Problems(warnings) {
		l.event(service, eventIgnored, w.Error())
	}
	if err != nil {
		l.event(service, eventConfigError, err.Error())
	}
	return s, err
}

// reportUnsupported tells of wishes that this Octavia, or its provider, cannot fulfil.
func (l *loadBalancers) reportUnsupported(service *v1.Service, s settings, lb *balancer, f features) {
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	if len(s.cidrs) > 0 && !f.acl(provider) && (provider != providerOVN || !l.config.LoadBalancer.ManageSecurityGroups) {
		l.event(service, eventRangesIgnored, fmt.Sprintf("the source ranges of the Service have no effect: this Octavia with provider %s cannot restrict who comes in", provider))
	}
	if s.Zone != "" && !f.zones(provider) {
		l.event(service, eventZoneIgnored, fmt.Sprintf("the availability zone %q has no effect: this Octavia with provider %s knows none", s.Zone, provider))
	}
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && !s.monitor {
		l.event(service, eventNoMonitor, fmt.Sprintf("with externalTrafficPolicy Local and without health monitors, connections to nodes that run no pod of the Service are lost; set %s or the option create-monitor to true", annotationMonitor))
	}
}

// reportFixed tells of wishes that came too late.
func (l *loadBalancers) reportFixed(service *v1.Service, s settings, lb *balancer, f features) {
	networkID, subnetID := vipNetworks(s, loadBalancerConfig{})
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	for _, one := range []struct {
		key, wanted, have string
		applies           bool
	}{
		{annotationPortID, s.PortID, lb.VIPPortID, true},
		{annotationSubnetID, subnetID, lb.VIPSubnetID, s.PortID == ""},
		{annotationNetworkID, networkID, lb.VIPNetworkID, s.PortID == "" && subnetID == ""},
		{annotationFlavorID, s.FlavorID, lb.FlavorID, f.flavors(provider)},
		{annotationZone, s.Zone, lb.Zone, f.zones(provider)},
	} {
		if service.Annotations[one.key] != "" && one.applies && one.wanted != "" && one.wanted != one.have {
			l.event(service, eventFixed, fmt.Sprintf("annotation %s: %q has no effect, it stays %q: it is fixed when the load balancer is created; delete and create the Service to change it", one.key, one.wanted, one.have))
		}
	}
}

// checkCertificates asks the key manager whether a reference exists.
func (l *loadBalancers) checkCertificates(ctx context.Context, service *v1.Service, s settings) error {
	if s.TLSContainerRef == "" || l.config.LoadBalancer.ContainerStore != storeBarbican {
		return nil
	}
	kind, id, err := splitReference(s.TLSContainerRef)
	if err != nil {
		return err
	}
	_, err = request[json.RawMessage](ctx, l.api, keyManager, "reading the certificates "+s.TLSContainerRef, http.MethodGet, kind+"/"+id, nil, "status", http.StatusOK)
	if errors.Is(err, cloudapi.ErrNotFound) {
		problem := &schema.Problem{Place: "annotation " + annotationTLSContainerRef, Value: s.TLSContainerRef, Reason: "is not in the key manager, or its access list does not let the project read it"}
		l.event(service, eventConfigError, problem.Error())
		return problem
	}
	return err
}

// record writes annotations on the Service where they differ; nil removes one.
func (l *loadBalancers) record(ctx context.Context, service *v1.Service, wanted map[string]any) error {
	changes := map[string]any{}
	for key, value := range wanted {
		if have, present := service.Annotations[key]; (value == nil && present) || (value != nil && have != value) {
			changes[key] = value
		}
	}
	if len(changes) == 0 || l.kube == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("recording the load balancer on the Service: %w", err)
	}
	if _, err := l.kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("recording the load balancer on the Service: %w", err)
	}
	return nil
}

func (l *loadBalancers) event(service *v1.Service, reason, message string) {
	if l.events != nil {
		l.events.Event(service, v1.EventTypeWarning, reason, message)
	}
}
