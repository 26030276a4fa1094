package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

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

// reconciler implements cloudprovider.LoadBalancer; services.LoadBalancer defines the order of steps.
type reconciler struct {
	services.LoadBalancer[observed, desired]

	config         Config
	api            *api
	instances      *instances
	networks       *networks
	cluster        *ownership.Cluster
	loadBalancers  *inventory.Inventory[string, *loadBalancer]
	certificates   *inventory.Inventory[string, certificate]
	parts          *partsReader
	finder         *finder
	writer         *writer
	floatingIPs    *floatingIPs
	securityGroups *securityGroups

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// observed holds a Service's cloud objects, and its settings for them.
type observed struct {
	// lb is nil if there is none, or none that the Service uses.
	lb   *loadBalancer
	role role
	// parts are read when the load balancer can be changed.
	parts    *details
	features features
	// settings are valid only if settingsErr is nil. A change of nodes and a deletion use them nevertheless.
	settings    settings
	settingsErr error
	// problem is an invalid load-balancer-id.
	problem error
	// readBefore is set if the parts were read before this run.
	readBefore bool
	// settled is set after the wait for Octavia; changedByUs is set if our own changes were there before this run.
	settled, changedByUs bool
	// changed is set if we or others have changed the parts, which are then read again.
	changed bool
	// failures are those of this run; crowded is set if the quota does not allow another pool.
	failures        []blockingFailure
	poolQuotaUsedUp bool
	// conflicts counts consecutive conflicts with changes by others.
	conflicts int
	// address is the address for the Service's status.
	address string
}

// setLoadBalancer sets the load balancer, and what depends on its provider: the features and the settings. Without a load balancer, the
// provider is that of new ones.
func (o *observed) setLoadBalancer(lb *loadBalancer, service *v1.Service, c Config) {
	o.lb, o.features.provider = lb, c.LoadBalancer.Provider
	if lb != nil {
		o.features.provider = cmp.Or(lb.Provider, c.LoadBalancer.Provider)
	}
	o.settings, _, o.settingsErr = parseSettings(service, c, o.features.provider)
}

// desired is the desired state of a Service.
type desired struct {
	// request and role are for a load balancer to be created; ports describes its ports in plans.
	request *loadBalancerRequest
	role    role
	ports   []string
	// steps are the changes of an existing one; groups are security group changes before and after them.
	steps  []step
	groups groupChanges
	// renew is set if it is in ERROR and must be created again.
	renew bool
}

type change = services.Change[observed]

var (
	_ cloudprovider.LoadBalancer        = (*reconciler)(nil)
	_ services.Asynchronous[observed]   = (*reconciler)(nil)
	_ services.Narrower[observed]       = (*reconciler)(nil)
	_ services.Fixer[observed, desired] = (*reconciler)(nil)
)

// pace is the polling interval. Most changes take Octavia a second or two, and there are many in a row.
var pace = waiting.Pace{Least: 700 * time.Millisecond, Most: 3 * time.Second}

// creationShows is how long a creation may continue after a proxy has given up. Octavia waits for Neutron's ports, and accepts duplicate
// names.
const creationShows = 45 * time.Second

// withinAge returns the query for a present or missing object that may have been read up to that long ago.
func withinAge(age time.Duration) inventory.Query {
	return inventory.Query{MaxAge: age, MaxMissAge: age, MaxUnlistedAge: age}
}

const (
	indexPort    = "port"
	indexAddress = "address"
	indexMark    = "mark"
)

func newReconciler(c Config, a *api, n *networks, i *instances, adopt registry.Adoption) *reconciler {
	cluster := &ownership.Cluster{}
	loadBalancers := inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: "load balancer", ID: func(b *loadBalancer) string { return b.ID }, List: a.listLoadBalancers, Get: a.getLoadBalancer,
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(b *loadBalancer) []string { return []string{b.Name} }},
	})
	parts := newPartsReader(a, loadBalancers, cluster, i)
	ips := newFloatingIPs(c, a, n, cluster)
	r := &reconciler{
		config: c, api: a, networks: n, instances: i, cluster: cluster, loadBalancers: loadBalancers, parts: parts, floatingIPs: ips,
		certificates: newCertificateInventory(a), securityGroups: newSecurityGroups(c.LoadBalancer, a, n, i),
		writer: &writer{
			api: a, loadBalancers: loadBalancers, parts: parts, room: waiting.New(loadBalancers.Look, pace),
			failovers: failovers{last: map[string]time.Time{}},
		},
		finder: &finder{
			config: c, adopt: adopt, cluster: cluster, instances: i, loadBalancers: loadBalancers, parts: parts, floatingIPs: ips,
		},
	}
	r.Identify = i.Identify
	r.Reconciler, r.Name, r.LookAgain, r.Creations = r, loadBalancerName, true, &services.Creations{Shows: creationShows}
	return r
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. It waits for Octavia itself, because the framework writes a warning for any
// other result.
func (r *reconciler) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (status *v1.LoadBalancerStatus, err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_ensure", began, err) }(time.Now())
	return r.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (r *reconciler) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_update", began, err) }(time.Now())
	r.parts.updating.Add(1)
	defer r.parts.updating.Add(-1)
	return r.LoadBalancer.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Objects of other users stay.
func (r *reconciler) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_delete", began, err) }(time.Now())
	return r.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

// PlanLoadBalancer implements contract.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (contract.Plan, error) {
	return c.reconciler.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// configFinding returns a warning about an unusable configuration.
func configFinding(err error) services.Finding {
	return services.Warning(eventConfigError, "%s", err)
}

func (r *reconciler) Validate(req services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(req.Service, r.config, r.config.LoadBalancer.expectedProvider(req.Service))
	findings := services.Judged(warnings, err)
	if err == nil && req.Purpose == services.Ensure && len(req.Nodes) == 0 {
		err = fmt.Errorf("no node can be a member of Service %s/%s", req.Service.Namespace, req.Service.Name)
	}
	return findings, err
}

func (r *reconciler) Observe(ctx context.Context, req services.Request) (o observed, err error) {
	if asked, _ := sources.ForService(req.Service, annotationSourceRanges); req.Purpose == services.Narrow && !asked.Restricts() {
		return o, nil
	}
	switch req.Purpose {
	case services.Ensure, services.Plan, services.Narrow:
		if o.features.minor, err = r.api.octaviaMinor(ctx); err != nil {
			return o, err
		}
	case services.UpdateNodes, services.Delete, services.Lookup:
	}
	lb, err := r.finder.find(ctx, req.Cluster, req.Service)
	if problem, wrong := errors.AsType[*schema.Problem](err); wrong && req.Purpose == services.Narrow {
		lb, err = r.finder.findByName(ctx, req.Cluster, req.Service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge})
	} else if wrong {
		o.problem, err = problem, nil
	}
	o.setLoadBalancer(lb, req.Service, r.config)
	return o, err
}

func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	wants := req.Purpose == services.Ensure || req.Purpose == services.Plan
	switch {
	case o.problem != nil && wants:
		return o, []services.Finding{configFinding(o.problem)}, o.problem
	case o.lb == nil:
		return o, nil, nil // the recorded one is gone
	case wants:
		role, findings, err := r.finder.admit(ctx, req, o)
		o.role = role
		_, o.readBefore = r.parts.readBefore.Load(o.lb.ID)
		if err == nil && req.Purpose == services.Plan && o.lb.Status == statusActive {
			o.parts, err = r.parts.readCurrent(ctx, o.lb)
		}
		return o, findings, err
	}
	role, ours, err := r.finder.findRole(ctx, req.Cluster, req.Service, o.lb)
	if err != nil || !ours {
		o.lb = nil
		return o, nil, err
	}
	o.role = role
	if req.Purpose == services.UpdateNodes {
		o.features.minor, err = r.checkUpdate(ctx, req, o)
	}
	return o, nil, err
}

// errNoNodes prevents the removal of all members at once.
var errNoNodes = errors.New("no node has an address for the load balancer; its members stay as they are")

// checkUpdate refuses a change of nodes if the desired members are uncertain. It returns the version of Octavia's API.
func (r *reconciler) checkUpdate(ctx context.Context, req services.Request, o observed) (minor int, err error) {
	if err := problemsAbout(o.settingsErr, annotationNodeSelector, annotationProxyProtocol, annotationForwardedFor, annotationTLSContainerRef,
		annotationClass, annotationMemberSubnetID, annotationSubnetID); err != nil {
		return 0, err
	}
	if minor, err = r.api.octaviaMinor(ctx); err == nil && len(req.Nodes) == 0 {
		err = errNoNodes
	}
	return minor, err
}

func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (desired, []services.Finding, error) {
	d, findings, err := r.desire(ctx, req, o)
	if _, wrong := errors.AsType[*schema.Problem](err); wrong {
		findings = append(findings, configFinding(err))
	}
	return d, findings, err
}

func (r *reconciler) desire(ctx context.Context, req services.Request, o observed) (d desired, findings []services.Finding, err error) {
	if o.settingsErr != nil {
		return d, nil, o.settingsErr
	}
	findings = unsupportedSettings(req.Service, o.settings, o.features, r.config.LoadBalancer)
	if err := r.checkCertificate(ctx, o.settings); err != nil {
		return d, findings, err
	}
	renew := false
	if o.lb != nil && o.lb.Status == statusError {
		if renew, err = r.finder.isRenewable(ctx, req.Service, o.lb, o.role); err != nil || !renew || req.Purpose != services.Plan {
			return desired{renew: renew}, findings, err
		}
	}
	var found []services.Finding
	switch {
	case o.lb == nil || renew:
		d, found, err = r.desireNew(ctx, req, o)
		d.renew = renew
	case o.parts != nil:
		d, found, err = r.desireExisting(ctx, req, o)
	}
	return d, append(findings, found...), err
}

// desireExisting computes the desired state of an existing load balancer, and the steps towards it.
func (r *reconciler) desireExisting(
	ctx context.Context, req services.Request, o observed,
) (d desired, findings []services.Finding, err error) {
	members, err := r.instances.backends(ctx, req.Service, req.Nodes, o.settings)
	if err != nil {
		return d, nil, err
	}
	want, err := desirePorts(req.Service, o, members, r.config.LoadBalancer)
	if err != nil {
		return d, nil, err
	}
	if len(req.Service.Spec.IPFamilies) > 1 && len(o.lb.AdditionalVIPs) == 0 {
		findings = append(findings, singleStackFinding(familyOf(req.Service)))
	}
	findings = append(findings, addIdentity(o, r.config.OwnershipTag, &want)...)
	if d.steps, err = plan(o.lb, o.parts, want, o.role); err != nil {
		return d, findings, err
	}
	d.steps = o.dropBlocked(d.steps)
	d.groups, err = r.securityGroups.plan(ctx, req.Service, o, members)
	return d, findings, err
}

// Changes implements services.Reconciler. Each step is planned again after the previous one.
func (r *reconciler) Changes(req services.Request, o observed, d desired) ([]change, error) {
	switch {
	case o.lb == nil:
		return r.creation(req.Service, o.settings, d), nil
	case o.lb.isPending():
		return nil, fmt.Errorf("load balancer %s is in %s; what there is to do shows when that has ended", o.lb.ID, o.lb.Status)
	case o.lb.Status == statusError && d.request != nil: // for plan alone
		return append(r.repairs(o.lb, d.renew), r.creation(req.Service, o.settings, d)...), nil
	case o.lb.Status == statusError:
		return r.repairs(o.lb, d.renew), nil
	}
	return d.groups.wrap(r.writer.stepChanges(o.lb, o.parts, d.steps, len(o.failures))), unexpectedStatus(o.lb)
}

// unexpectedStatus returns an error for an unexpected provisioning status.
func unexpectedStatus(lb *loadBalancer) error {
	if lb.Status == statusActive {
		return nil
	}
	return fmt.Errorf("load balancer %s has the provisioning status %s, in which nothing can be done about it", lb.ID, lb.Status)
}

// Complete implements services.Reconciler: it publishes the address and leaves the previous load balancer.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, o observed, _ desired) (observed, error) {
	var err error
	if o.address, err = r.floatingIPs.publish(ctx, req, o); err != nil {
		return o, err
	}
	if err := r.record(ctx, req, map[string]string{annotationAddress: o.address}); err != nil {
		return o, err
	}
	return o, r.leavePrevious(ctx, req, o)
}

func (r *reconciler) Status(_ services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	return statusOf(o.address, furtherAddresses(o.lb), o.settings, r.config.LoadBalancer), nil
}

// NodeChanges implements services.Reconciler: only members, one batch for each pool that differs. If anything was changed, other
// differences are corrected as well; otherwise they wait for the next reconciliation.
func (r *reconciler) NodeChanges(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	switch {
	case o.lb == nil:
		return nil, nil, nil
	case o.lb.Status == statusError:
		renew, err := r.finder.isRenewable(ctx, req.Service, o.lb, o.role)
		if err != nil {
			return nil, nil, err
		}
		return r.repairs(o.lb, renew), nil, nil
	case o.parts == nil:
		return nil, nil, unexpectedStatus(o.lb)
	}
	members, err := r.instances.backends(ctx, req.Service, req.Nodes, o.settings)
	if err != nil {
		return nil, nil, err
	}
	want, rangesErr := desirePorts(req.Service, o, members, r.config.LoadBalancer)
	steps := planMembers(o.parts, want, o.role, portable.Refused(ctx))
	if o.changed && o.settingsErr == nil && rangesErr == nil && !portable.Refused(ctx) {
		addIdentity(o, r.config.OwnershipTag, &want)
		if whole, err := plan(o.lb, o.parts, want, o.role); err == nil { // the next reconciliation reports errors
			steps = whole
		}
	}
	groups, err := r.securityGroups.plan(ctx, req.Service, o, members)
	return groups.wrap(r.writer.stepChanges(o.lb, o.parts, o.dropBlocked(steps), len(o.failures))), nil, err
}

// Exists implements services.Reconciler. Invalid annotations do not hide a load balancer.
func (r *reconciler) Exists(ctx context.Context, req services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		left, err := r.hasLeftovers(ctx, req, o)
		return &v1.LoadBalancerStatus{}, left, err
	}
	address := o.lb.VIPAddress
	f, err := r.floatingIPs.findAt(ctx, o.lb, withinAge(floatingMaxAge))
	if err != nil {
		return nil, false, err
	}
	if f != nil {
		address = f.Address
	}
	return statusOf(address, furtherAddresses(o.lb), o.settings, r.config.LoadBalancer), true, nil
}

// hasLeftovers reports whether objects of the Service remain without a load balancer.
func (r *reconciler) hasLeftovers(ctx context.Context, req services.Request, o observed) (bool, error) {
	left, err := r.floatingIPs.findUnattached(ctx, req.Cluster, req.Service, withinAge(ensureMaxAge))
	if err != nil || (len(left) > 0 && !o.settings.keepFloatingIP) {
		return true, err
	}
	groups, err := r.securityGroups.findFor(ctx, req.Service, ensureMaxAge)
	return len(groups) > 0, err
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
