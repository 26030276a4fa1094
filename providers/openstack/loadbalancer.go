package openstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are visible at once; the age only
	// delays the sight of changes by others.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge is for changes of nodes, which affect all load balancers at about the same time.
	updateMaxAge = 60 * time.Second
	// backendMaxAge is for the ports of the nodes' servers.
	backendMaxAge = 10 * time.Minute
	// partsMaxAge is for listeners, pools and members. Our own writes are visible at once, and updated_at reveals changes by others.
	partsMaxAge = 10 * time.Minute
	// updatePartsMaxAge is for the same parts when nodes change.
	updatePartsMaxAge = 24 * time.Hour
	// floatingMaxAge is for attached floating addresses.
	floatingMaxAge = 60 * time.Second
	// newMaxAge lets many new Services share one listing.
	newMaxAge = 3 * time.Second

	// annotationMade records the load balancer created for the Service. Unlike load-balancer-id, users do not set it.
	annotationMade = "anyccm.io/openstack-load-balancer-id"
	// annotationShareWith is set on the Service that the load balancer was created for.
	annotationShareWith = "anyccm.io/openstack-share-with-namespaces"
)

// loadBalancers implements cloudprovider.LoadBalancer; services.LoadBalancer defines the order of steps.
type loadBalancers struct {
	services.LoadBalancer[observation, desired]

	config       Config
	api          *api
	instances    *instances
	networks     *networks
	observed     *inventory.Inventory[string, *loadBalancer]
	parts        *inventory.Inventory[string, *details]
	partPages    *partPages
	listedParts  *inventory.Inventory[string, *partsListing]
	floating     *inventory.Inventory[string, floatingIP]
	groups       *inventory.Inventory[string, securityGroup]
	monitors     *inventory.Inventory[string, *monitor]
	memberLists  *inventory.Lists[memberRow]
	certificates *inventory.Inventory[string, certificate]
	cluster      *ownership.Cluster
	adopt        registry.Adoption
	// room polls Octavia for all callers.
	room      *waiting.Room[string, *loadBalancer]
	failovers failovers
	// looked holds the IDs of load balancers whose parts were read before.
	looked sync.Map
	// singly holds the IDs of load balancers whose parts never come from listings, because all details are needed.
	singly sync.Map
	trees  treeSupport
	// proved holds, by load balancer ID, the UID of the Service that owns it although its name is ambiguous.
	proved sync.Map
	// updating is the number of load balancers whose members are being changed.
	updating atomic.Int64
	// clusterName is the cluster's name as last passed by the framework.
	clusterName atomic.Value

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// observation holds a Service's cloud objects.
type observation struct {
	// lb is nil if there is none, or none that the Service uses.
	lb   *loadBalancer
	role role
	// parts are read when the load balancer can be changed.
	parts    *details
	features features
	// problem is an invalid load-balancer-id.
	problem error
	// seen is set where its parts were read before.
	seen bool
	// settled is set after the wait for Octavia; again is set if our own changes were already there.
	settled, again bool
	// changed is set if we or others have changed the parts, which are then read again.
	changed bool
	// setbacks are the failures of this run; crowded is set if the quota does not allow another pool.
	setbacks []blockingFailure
	crowded  bool
	// conflicts counts consecutive conflicts with changes by others.
	conflicts int
	// address is the address for the Service's status.
	address string
}

// desired is the desired state of a Service.
type desired struct {
	settings settings
	members  []backend
	// request and role are for a load balancer to be created.
	request *loadBalancerRequest
	role    role
	ports   []wantedPort
	// steps are the changes of an existing one; groups are security group changes before and after them.
	steps  []step
	groups groupChanges
	// renew is set if it is in ERROR and must be created again.
	renew bool
}

type change = services.Change[observation]

var (
	_ cloudprovider.LoadBalancer         = (*loadBalancers)(nil)
	_ services.Asynchronous[observation] = (*loadBalancers)(nil)
)

// pace is the polling interval. Most changes take Octavia a second or two, and there are many in a row.
var pace = waiting.Pace{Least: 700 * time.Millisecond, Most: 3 * time.Second}

// creationShows is how long a creation may continue after a proxy has given up. Octavia waits for Neutron's ports, and accepts duplicate
// names.
const creationShows = 45 * time.Second

const (
	indexPort    = "port"
	indexAddress = "address"
	indexMark    = "mark"
)

func newLoadBalancers(c Config, a *api, n *networks, i *instances, adopt registry.Adoption) *loadBalancers {
	l := &loadBalancers{
		config: c, adopt: adopt, api: a, networks: n, instances: i, cluster: &ownership.Cluster{},
		failovers: failovers{last: map[string]time.Time{}},
		observed: inventory.New(inventory.Source[string, *loadBalancer]{
			Kind: "load balancer", ID: func(b *loadBalancer) string { return b.ID }, List: a.listLoadBalancers, Get: a.getLoadBalancer,
			Indexes: map[string]func(*loadBalancer) []string{indexName: func(b *loadBalancer) []string { return []string{b.Name} }},
		}),
		floating: newFloatingInventory(a), groups: newGroupInventory(a), monitors: newMonitorInventory(a),
		certificates: newCertificateInventory(a), memberLists: inventory.NewLists[memberRow](),
	}
	l.partPages = &partPages{api: a, nodes: func() int { return i.nodes.Counts().All }}
	l.listedParts = newListedPartsInventory(l.partPages, l.observed)
	l.room = waiting.New(l.observed.Look, pace)
	l.parts = inventory.New(inventory.Source[string, *details]{
		Kind: "load balancer detail", ID: func(d *details) string { return d.loadBalancerID }, Get: l.readParts,
	})
	l.Identify = i.Identify
	l.Reconciler, l.Name, l.LookAgain, l.Creations = l, loadBalancerName, true, services.Creations{Shows: creationShows}
	return l
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. It waits for Octavia itself, because the framework writes a warning for any
// other result.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (status *v1.LoadBalancerStatus, err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_ensure", began, failureToCount(err)) }(time.Now())
	return l.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_update", began, failureToCount(err)) }(time.Now())
	l.updating.Add(1)
	defer l.updating.Add(-1)
	return l.LoadBalancer.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Objects of other users stay.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_delete", began, failureToCount(err)) }(time.Now())
	return l.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

// PlanLoadBalancer implements contract.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (contract.Plan, error) {
	return c.loadBalancers.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// failureToCount excludes retry hints from the count of failures.
func failureToCount(err error) error {
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return nil
	}
	return err
}

// configFinding returns a warning for an unusable configuration, with the error itself.
func configFinding(err error) ([]services.Finding, error) {
	if err == nil {
		return nil, nil
	}
	return []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
}

// Validate implements services.Reconciler.
func (l *loadBalancers) Validate(r services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(r.Service, l.config, l.config.LoadBalancer.expectedProvider(r.Service))
	findings := services.Judged(warnings, err)
	if err == nil && r.Purpose == services.Ensure && len(r.Nodes) == 0 {
		err = fmt.Errorf("no node can be a member of Service %s/%s", r.Service.Namespace, r.Service.Name)
	}
	return findings, err
}

// Observe implements services.Reconciler.
func (l *loadBalancers) Observe(ctx context.Context, r services.Request) (o observation, err error) {
	if asked, _ := sources.ForService(r.Service, annotationSourceRanges); r.Purpose == services.Narrow && !asked.Restricts() {
		return o, nil
	}
	switch r.Purpose {
	case services.Ensure, services.Plan, services.Narrow:
		if o.features, err = l.api.octavia(ctx); err != nil {
			return o, err
		}
	case services.Delete:
		_, err := l.settings(r.Service, nil)
		if err := problemsAbout(err, annotationKeepFloatingIP); err != nil {
			return o, err // when in doubt nothing is deleted
		}
	case services.UpdateNodes, services.Lookup:
	}
	o.lb, err = l.find(ctx, r.Cluster, r.Service)
	if problem, wrong := errors.AsType[*schema.Problem](err); wrong && r.Purpose == services.Narrow {
		o.lb, err = l.findByName(ctx, r.Cluster, r.Service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge})
	} else if wrong {
		return observation{problem: problem}, nil
	}
	return o, err
}

// CheckOwner implements services.Reconciler.
func (l *loadBalancers) CheckOwner(ctx context.Context, r services.Request, o observation) (observation, []services.Finding, error) {
	wants := r.Purpose == services.Ensure || r.Purpose == services.Plan
	switch {
	case o.problem != nil && wants:
		findings, err := configFinding(o.problem)
		return o, findings, err
	case o.lb == nil:
		return observation{features: o.features}, nil, nil // the recorded one is gone
	case wants:
		role, findings, err := l.admit(ctx, r, o)
		o.role = role
		_, o.seen = l.looked.Load(o.lb.ID)
		if err == nil && r.Purpose == services.Plan && o.lb.Status == statusActive {
			o.parts, err = l.observe(ctx, o.lb)
		}
		return o, findings, err
	}
	role, ours, err := l.roleIn(ctx, r.Cluster, r.Service, o.lb)
	if err != nil || !ours {
		return observation{}, nil, err
	}
	o.role = role
	if r.Purpose == services.UpdateNodes {
		o.features, err = l.checkUpdate(ctx, r, o.lb)
	}
	return o, nil, err
}

// errNoNodes prevents the removal of all members at once.
var errNoNodes = errors.New("no node has an address for the load balancer; its members stay as they are")

// checkUpdate refuses a change of nodes if the desired members are uncertain.
func (l *loadBalancers) checkUpdate(ctx context.Context, r services.Request, lb *loadBalancer) (f features, err error) {
	_, err = l.settings(r.Service, lb)
	if err := problemsAbout(err, annotationNodeSelector, annotationProxyProtocol, annotationForwardedFor, annotationTLSContainerRef,
		annotationClass, annotationMemberSubnetID, annotationSubnetID); err != nil {
		return f, err
	}
	if f, err = l.api.octavia(ctx); err == nil && len(r.Nodes) == 0 {
		err = errNoNodes
	}
	return f, err
}

// Desire implements services.Reconciler.
func (l *loadBalancers) Desire(ctx context.Context, r services.Request, o observation) (desired, []services.Finding, error) {
	s, err := l.settings(r.Service, o.lb)
	if err != nil {
		findings, err := configFinding(err)
		return desired{}, findings, err
	}
	findings := l.unsupportedSettings(r.Service, s, o.lb, o.features)
	if found, err := l.checkCertificates(ctx, s); err != nil {
		return desired{}, append(findings, found...), err
	}
	if o.lb == nil {
		d, found, err := l.desireNew(ctx, r, s, o.features)
		return d, append(findings, found...), err
	}
	if o.lb.Status == statusError {
		d := desired{settings: s}
		if d.renew, err = l.isRenewable(ctx, r.Service, o.lb, o.role); err != nil || !d.renew || r.Purpose != services.Plan {
			return d, findings, err
		}
		d, found, err := l.desireNew(ctx, r, s, o.features)
		d.renew = true
		return d, append(findings, found...), err
	}
	if o.parts == nil {
		return desired{settings: s}, findings, nil
	}
	d, found, err := l.desire(ctx, r, s, o)
	return d, append(findings, found...), err
}

// settings parses the annotations for the given load balancer, if any. Validate has already reported warnings.
func (l *loadBalancers) settings(service *v1.Service, lb *loadBalancer) (settings, error) {
	s, _, err := parseSettings(service, l.config, lb.providerOr(l.config.LoadBalancer.Provider))
	return s, err
}

// desire computes the desired state of an existing load balancer, and the steps towards it.
func (l *loadBalancers) desire(ctx context.Context, r services.Request, s settings, o observation) (desired, []services.Finding, error) {
	d, subnetID := desired{settings: s}, memberSubnet(s, l.config.LoadBalancer, o.lb.VIPSubnetID)
	var err error
	if d.members, err = l.backends(ctx, r.Service, r.Nodes, s); err != nil {
		return d, nil, err
	}
	want, err := l.desirePorts(r.Service, s, o.role, o.lb, subnetID, o.features, o.openBackends(d.members))
	want.crowded = o.crowded
	if err != nil {
		findings, err := configFinding(err)
		return d, findings, err
	}
	var findings []services.Finding
	if len(r.Service.Spec.IPFamilies) > 1 && len(o.lb.AdditionalVIPs) == 0 {
		findings = append(findings, singleStack(familyOf(r.Service)))
	}
	findings = append(findings, l.wantIdentity(o.lb, o.role, o.features, &want)...)
	d.ports = want.ports
	d.steps, err = plan(o.lb, o.parts, want, o.role)
	if more, err := configFinding(err); err != nil {
		return d, append(findings, more...), err
	}
	d.steps = o.dropBlocked(d.steps)
	d.groups, err = l.planGroups(ctx, r.Service, o, s, subnetID, d.members)
	return d, findings, err
}

// desirePorts computes a Service's ports. lb is nil before the creation.
func (l *loadBalancers) desirePorts(
	service *v1.Service, s settings, r role, lb *loadBalancer, subnetID string, f features, backends []backend,
) (wantedState, error) {
	want := wantedState{serial: l.config.LoadBalancer.Serial}
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	preferIPv6 := familyOf(service) == v1.IPv6Protocol
	var err error
	if f.hasACL(provider) {
		s.sources, err = ofFamilies(s.sources, service, lb)
	}
	for i := range service.Spec.Ports {
		w := wantPort(service, i, s, r, backends, subnetID, provider, f, preferIPv6)
		if lb != nil && len(lb.AdditionalVIPs) > 0 && s.sources.Everybody() && len(w.listener.AllowedCIDRs) > 0 {
			w.listener.AllowedCIDRs = []string{"0.0.0.0/0", "::/0"}
		}
		want.ports = append(want.ports, w)
	}
	return want, err
}

// Changes implements services.Reconciler. Each step is planned again after the previous one.
func (l *loadBalancers) Changes(r services.Request, o observation, d desired) ([]change, error) {
	switch {
	case o.lb == nil:
		return l.creation(r.Service, d), nil
	case o.lb.isPending():
		return nil, fmt.Errorf("load balancer %s is in %s; what there is to do shows when that has ended", o.lb.ID, o.lb.Status)
	case o.lb.Status == statusError:
		return append(l.repairs(o.lb, d.renew), l.creationAfter(r.Service, d)...), nil
	}
	return d.groups.wrap(l.stepChanges(o.lb, o.parts, d.steps, len(o.setbacks))), unexpectedStatus(o.lb)
}

// unexpectedStatus returns an error for an unexpected provisioning status.
func unexpectedStatus(lb *loadBalancer) error {
	if lb.Status == statusActive {
		return nil
	}
	return fmt.Errorf("load balancer %s has the provisioning status %s, in which nothing can be done about it", lb.ID, lb.Status)
}

// Complete implements services.Reconciler: it publishes the address and leaves the previous load balancer.
func (l *loadBalancers) Complete(ctx context.Context, r *services.Request, o observation, d desired) (observation, error) {
	var err error
	if o.address, err = l.publish(ctx, r, d.settings, o.lb, o.role); err != nil {
		return o, err
	}
	if err := l.record(ctx, r, map[string]string{annotationAddress: o.address}); err != nil {
		return o, err
	}
	return o, l.leavePrevious(ctx, r, d.settings, o.lb)
}

// Status implements services.Reconciler.
func (l *loadBalancers) Status(_ services.Request, o observation, d desired) (*v1.LoadBalancerStatus, error) {
	return statusOf(o.address, furtherAddresses(o.lb), d.settings, l.config.LoadBalancer), nil
}

// NodeChanges implements services.Reconciler: only members, one batch for each pool that differs. If anything was changed, other
// differences are corrected as well; otherwise they wait for the next reconciliation.
func (l *loadBalancers) NodeChanges(ctx context.Context, r services.Request, o observation) ([]change, []services.Finding, error) {
	switch {
	case o.lb == nil:
		return nil, nil, nil
	case o.lb.Status == statusError:
		renew, err := l.isRenewable(ctx, r.Service, o.lb, o.role)
		if err != nil {
			return nil, nil, err
		}
		return l.repairs(o.lb, renew), nil, nil
	case o.parts == nil:
		return nil, nil, unexpectedStatus(o.lb)
	}
	s, settingsErr := l.settings(r.Service, o.lb)
	members, err := l.backends(ctx, r.Service, r.Nodes, s)
	if err != nil {
		return nil, nil, err
	}
	subnetID := memberSubnet(s, l.config.LoadBalancer, o.lb.VIPSubnetID)
	want, rangesErr := l.desirePorts(r.Service, s, o.role, o.lb, subnetID, o.features, o.openBackends(members))
	want.crowded = o.crowded
	steps := planMembers(o.parts, want, o.role, portable.Refused(ctx))
	if o.changed && settingsErr == nil && rangesErr == nil && !portable.Refused(ctx) {
		l.wantIdentity(o.lb, o.role, o.features, &want)
		if whole, err := plan(o.lb, o.parts, want, o.role); err == nil { // the next reconciliation reports errors
			steps = whole
		}
	}
	groups, err := l.planGroups(ctx, r.Service, o, s, subnetID, members)
	return groups.wrap(l.stepChanges(o.lb, o.parts, o.dropBlocked(steps), len(o.setbacks))), nil, err
}

// Exists implements services.Reconciler.
func (l *loadBalancers) Exists(ctx context.Context, r services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		left, err := l.hasLeftovers(ctx, r.Cluster, r.Service)
		return &v1.LoadBalancerStatus{}, left, err
	}
	s, _ := l.settings(r.Service, o.lb) // invalid annotations do not hide the load balancer
	address := o.lb.VIPAddress
	f, err := l.floatingIPOf(ctx, o.lb, inventory.Query{MaxAge: floatingMaxAge, MaxMissAge: floatingMaxAge, MaxUnlistedAge: floatingMaxAge})
	if err != nil {
		return nil, false, err
	}
	if f != nil {
		address = f.Address
	}
	return statusOf(address, furtherAddresses(o.lb), s, l.config.LoadBalancer), true, nil
}

func furtherAddresses(lb *loadBalancer) []string {
	var list []string
	for _, v := range lb.AdditionalVIPs {
		if v.Address != "" {
			list = append(list, v.Address)
		}
	}
	return list
}

// writeFindings writes findings from outside a reconciliation.
func (l *loadBalancers) writeFindings(service *v1.Service, findings []services.Finding) {
	if l.Events == nil {
		return
	}
	for _, f := range findings {
		l.Events.Event(service, v1.EventTypeWarning, f.Reason, f.Message)
	}
}

// logLeftAlone logs why a Service does not use the load balancer that its annotation or name suggests.
func logLeftAlone(service *v1.Service, reason error) {
	klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(service), "reason", reason.Error())
}
