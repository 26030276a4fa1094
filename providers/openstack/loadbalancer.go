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
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are in it at once;
	// the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
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
)

// Reasons of the events that the provider writes on Services. Those that begin with LoadBalancer and are listed in the
// manual of OpenStack's own controller have its names.
const (
	eventConfigError     = "LoadBalancerConfigError"
	eventIgnored         = "LoadBalancerAnnotationIgnored"
	eventFixed           = "LoadBalancerAnnotationFixed"
	eventNotOurs         = "LoadBalancerNotOurs"
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
	works     works
	locks     keylock.Locks
	// looked has the IDs of load balancers whose parts were read before.
	looked sync.Map

	// Set by Initialize, before any call of the framework.
	kube   kubernetes.Interface
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

const (
	indexPort    = "port"
	indexAddress = "address"
)

func newLoadBalancers(c Config, a *api, n *networks, i *instances) *loadBalancers {
	l := &loadBalancers{
		config: c, api: a, networks: n, instances: i, cluster: &ownership.Cluster{}, works: works{since: map[string]time.Time{}, failovers: map[string]time.Time{}},
		balancers: inventory.New(inventory.Source[string, *balancer]{
			Kind: "load balancer", ID: func(b *balancer) string { return b.ID }, List: a.listBalancers, Get: a.getBalancer,
			Indexes: map[string]func(*balancer) []string{indexName: func(b *balancer) []string { return []string{b.Name} }},
		}),
		floating: newFloatingInventory(a), groups: newGroupInventory(a), monitors: newMonitorInventory(a),
	}
	l.parts = inventory.New(inventory.Source[string, *details]{
		Kind: "load balancer detail", ID: func(d *details) string { return d.balancerID }, Get: l.readParts,
	})
	return l
}

// again is the answer while Octavia works.
func (l *loadBalancers) again(lb *balancer, doing string) error {
	l.works.begin(lb.ID)
	return cloudproviderapi.NewRetryError(fmt.Sprintf("load balancer %s: %s", lb.ID, doing), l.works.next(lb.ID))
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

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, make one change, and come back.
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
	lb, err := l.find(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	l.reportUnsupported(service, s, lb, f)
	if err := l.checkCertificates(ctx, service, s); err != nil {
		return nil, err
	}
	if lb == nil {
		return nil, l.create(ctx, cluster, service, s, f, nodes)
	}
	r, err := l.roleOf(ctx, cluster, service, lb)
	if err == nil && !r.owner {
		err = l.checkShare(service, s, lb, r, f)
	}
	if err != nil {
		l.event(service, eventNotOurs, err.Error())
		return nil, err
	}
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return nil, fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	if err := l.record(ctx, service, map[string]any{annotationID: lb.ID}); err != nil {
		return nil, err
	}
	if done, err := l.settled(ctx, service, lb, r); !done {
		return nil, err
	}
	return l.converge(ctx, cluster, service, s, f, lb, r, nodes)
}

// failed keeps the answer "not yet" out of the count of failures.
func failed(err error) error {
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return nil
	}
	return err
}

// settled reports whether a load balancer can be changed now, and otherwise what is done about it.
func (l *loadBalancers) settled(ctx context.Context, service *v1.Service, lb *balancer, r role) (bool, error) {
	switch {
	case lb.pending():
		return false, l.again(lb, "waiting for "+lb.Status+" to end")
	case lb.Status == statusError:
		return false, l.mend(ctx, service, lb, r)
	case lb.Status != statusActive:
		return false, fmt.Errorf("load balancer %s has the provisioning status %s, in which nothing can be done about it", lb.ID, lb.Status)
	}
	if l.works.end(lb.ID) {
		l.adoptTime(ctx, lb)
	}
	return true, nil
}

// adoptTime notes that what we wrote is what the load balancer was changed by.
func (l *loadBalancers) adoptTime(ctx context.Context, lb *balancer) {
	d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: updatePartsMaxAge, MaxMissAge: updatePartsMaxAge})
	if err == nil && d.asOf == "" {
		after := d.clone()
		after.asOf = lb.UpdatedAt
		l.parts.Amend(after)
	}
}

// observe returns the parts of a load balancer. They are read anew where it was changed after they were read.
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

// converge brings a load balancer that can be changed to the wanted state, one change a call.
func (l *loadBalancers) converge(ctx context.Context, cluster string, service *v1.Service, s settings, f features, lb *balancer, r role, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	d, err := l.observe(ctx, lb)
	if err != nil {
		return nil, err
	}
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
	l.wantIdentity(service, lb, r, f, &want)
	steps, err := plan(lb, d, want, r)
	if err != nil {
		l.event(service, eventConfigError, err.Error())
		return nil, err
	}
	if len(steps) > 0 {
		if err := l.apply(ctx, service, lb, d, steps[0]); err != nil {
			return nil, err
		}
		return nil, l.again(lb, fmt.Sprintf("%s (%s), then %d more changes", steps[0].kind, steps[0].reason, len(steps)-1))
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

// apply makes the call of a step. Whatever fails may have taken effect, so the next look reads everything again.
func (l *loadBalancers) apply(ctx context.Context, service *v1.Service, lb *balancer, d *details, st step) error {
	if st.kind == updateMonitor || st.kind == deleteMonitor {
		l.monitors.Invalidate(st.id)
	}
	klog.InfoS("Changing load balancer", "service", klog.KObj(service), "loadBalancer", lb.ID, "step", st.kind, "object", st.id, "reason", st.reason)
	err := l.api.do(ctx, st)
	switch {
	case cloudapi.NotSent(err):
		return err
	case err != nil:
		l.balancers.Invalidate(lb.ID)
		l.parts.Invalidate(lb.ID)
		if errors.Is(err, cloudapi.ErrConflict) {
			// Octavia works on it already, for somebody else or for a call of ours whose answer was lost.
			return errors.Join(l.again(lb, err.Error()), err)
		}
		if errors.Is(err, cloudapi.ErrInvalid) {
			l.event(service, eventConfigError, err.Error())
		}
		return notAbsence(err)
	}
	busy := *lb
	busy.Status = statusPendingUpdate
	l.balancers.Amend(&busy)
	l.works.begin(lb.ID)
	if after := d.after(st); after != nil {
		l.parts.Amend(after)
	} else {
		l.parts.Invalidate(lb.ID) // new objects have IDs that must be read
	}
	return nil
}

// after returns the parts as a step leaves them, or nil where it made something that must be read.
func (d *details) after(st step) *details {
	after := d.clone()
	after.asOf = ""
	switch st.kind {
	case updateBalancer:
		return after
	case deletePool:
		after.pools = slices.DeleteFunc(after.pools, func(p pool) bool { return p.ID == st.id })
		for i := range after.listeners {
			if after.listeners[i].DefaultPoolID == st.id {
				after.listeners[i].DefaultPoolID = ""
			}
		}
		return after
	case deleteListener:
		after.listeners = slices.DeleteFunc(after.listeners, func(l listener) bool { return l.ID == st.id })
		return after
	case setMembers, removeMember, deleteMonitor:
		for i := range after.pools {
			after.pools[i].change(st)
		}
		return after
	case createListener, updateListener, createPool, updatePool, addMember, createMonitor, updateMonitor:
	}
	return nil
}

// change makes of a pool what a step makes of it, if the step is about the pool.
func (p *pool) change(st step) {
	switch {
	case st.kind == deleteMonitor && p.MonitorID == st.id:
		p.MonitorID, p.monitor = "", nil
	case st.kind == removeMember && p.ID == st.id:
		p.members = slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return m.ID == st.member })
	case st.kind == setMembers && p.ID == st.id:
		p.members = nil
		for _, m := range st.members {
			p.members = append(p.members, member{Name: m.Name, Address: m.Address, Port: m.Port, SubnetID: m.SubnetID, MonitorPort: m.MonitorPort})
		}
	}
}

// errNoNodes keeps a Service without any usable node from losing all its members at once.
var errNoNodes = errors.New("no node has an address for the load balancer; its members stay as they are")

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the members alone, one batch a pool and only where they differ.
// Where Octavia is busy, the framework reconciles the Service until it is done.
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
	if done, err := l.settled(ctx, service, lb, r); !done {
		return err
	}
	d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: updatePartsMaxAge})
	if err != nil {
		return notAbsence(err)
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
	steps := planMembers(d, want, r)
	if len(steps) > 0 {
		if err := l.apply(ctx, service, lb, d, steps[0]); err != nil {
			return err
		}
	}
	if err := l.ensureSecurityGroup(ctx, service, s, subnetID, members); err != nil {
		return err
	}
	if len(steps) > 1 {
		return l.again(lb, fmt.Sprintf("%d more changes of members", len(steps)-1))
	}
	return nil
}

// mend deals with a load balancer in ERROR. One that never served is made anew; one that did is failed over, which keeps
// its address.
func (l *loadBalancers) mend(ctx context.Context, service *v1.Service, lb *balancer, r role) error {
	l.works.end(lb.ID)
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	if fresh && r.owner && madeByController(lb, service) && !shared(lb, r) {
		l.event(service, eventRecreated, fmt.Sprintf("Octavia could not build load balancer %s; it is deleted and made anew", lb.ID))
		if err := l.api.deleteBalancer(ctx, lb.ID, true); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			l.balancers.Invalidate(lb.ID)
			return err
		}
		going := *lb
		going.Status = statusPendingDelete
		l.balancers.Amend(&going)
		l.works.begin(lb.ID)
		if err := l.record(ctx, service, map[string]any{annotationID: nil, annotationMade: nil}); err != nil {
			return err
		}
		return l.again(lb, "it failed in Octavia and is made anew")
	}
	return l.failOver(ctx, service, lb)
}

// failOver orders a failover of a load balancer in ERROR, or tells who can do that. It always returns an error: the load
// balancer is not mended yet.
func (l *loadBalancers) failOver(ctx context.Context, service *v1.Service, lb *balancer) error {
	advice := fmt.Sprintf("load balancer %s is in ERROR: it may go on serving, but Octavia changes nothing of it. Ask an administrator of the cloud to run \"openstack loadbalancer failover %s\"", lb.ID, lb.ID)
	if l.works.mayFailOver(lb.ID) {
		err := l.api.failOver(ctx, lb.ID)
		if err == nil {
			l.event(service, eventFailover, fmt.Sprintf("load balancer %s is in ERROR; a failover was ordered, which keeps its address", lb.ID))
			l.balancers.Invalidate(lb.ID)
			return l.again(lb, "it failed in Octavia and is failed over")
		}
		klog.InfoS("Octavia refused a failover", "loadBalancer", lb.ID, "reason", err.Error())
		l.event(service, eventBroken, advice)
	}
	return cloudproviderapi.NewRetryError(advice, time.Minute)
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
