package gce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// ensureMaxAge is the maximum age of the observed state in a reconciliation. It always includes our own writes.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge is for changes of nodes. Changes by others are seen in the next reconciliation.
	updateMaxAge = 24 * time.Hour
	// memberMaxAge is the maximum age of the listing of instances.
	memberMaxAge = 60 * time.Second
	// creationShows is how long the API may continue a creation after a proxy gave up. Names are unique.
	creationShows = 45 * time.Second
)

// ensureQuery reads objects that a reconciliation may change.
var ensureQuery = inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}

// errNoInstance prevents emptying a load balancer.
var errNoInstance = errors.New("no node has an instance of this region that is known; the instances of the load balancer stay as they are")

// observed holds the cloud's objects of a Service.
type observed struct {
	at       location
	settings settings
	name     string
	// cluster is the cluster's ID, which may be empty; identified: it is known.
	cluster    string
	identified bool
	rule       *compute.ForwardingRule
	// address has the load balancer's name; replacedIP is that of a forwarding rule that was deleted to be made again.
	address    *compute.Address
	replacedIP string
	// firewall lets clients in; narrowed: this reconciliation has narrowed it. denyFirewall is the rule of Google's own controller that denies
	// everything else.
	firewall, denyFirewall *compute.Firewall
	narrowed               bool

	// External load balancers only. nextPool serves while the pool is made again.
	pool, nextPool *compute.TargetPool
	poolChecks     checks

	// Internal load balancers only. backend is the backend service named backendName, ruleBackend the one in the present forwarding rule.
	// obsoleteBackends are to be deleted; unneededNames are those of shared ones that no other Service needs.
	backend, ruleBackend *compute.BackendService
	backendName          string
	obsoleteBackends     []*compute.BackendService
	unneededNames        []string
	backendChecks        checks
	// groupZones are the zones whose instance group only this Service needs, if it is deleted.
	groupZones []string
}

// reconciler implements services.Reconciler for external passthrough load balancers on target pools and internal ones on instance groups.
// It knows the order of changes; the types for each kind of object make them.
type reconciler struct {
	*writer

	config   Config
	identity *identity
	adopt    registry.Adoption
	kube     kubernetes.Interface

	rules                     *forwardingRules
	addresses                 *addresses
	firewalls                 *firewalls
	pools                     *targetPools
	backends                  *backendServices
	groups                    *instanceGroups
	poolChecks, backendChecks *healthChecks
}

type change = services.Change[observed]

var (
	_ services.Reconciler[observed, desired] = (*reconciler)(nil)
	_ services.Asynchronous[observed]        = (*reconciler)(nil)
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	services.LoadBalancer[observed, desired]
	reconciler *reconciler
}

func newLoadBalancers(c Config, a *api, i *instances, adopt registry.Adoption) *loadBalancers {
	l := &loadBalancers{}
	w := &writer{api: a, instances: i, locks: &l.LoadBalancer}
	r := &reconciler{
		writer: w, config: c, identity: &identity{}, adopt: adopt,
		rules: &forwardingRules{writer: w}, addresses: &addresses{w}, firewalls: &firewalls{writer: w}, pools: &targetPools{w},
		groups: &instanceGroups{writer: w},
	}
	r.backends = &backendServices{w, r.identity, r.groups}
	r.poolChecks = &healthChecks{writer: w, store: a.stores.httpChecks, firewalls: r.firewalls}
	r.backendChecks = &healthChecks{writer: w, store: a.stores.checks, firewalls: r.firewalls, internal: true}
	l.reconciler, l.Reconciler, l.Name = r, r, loadBalancerName
	l.Creations, l.Identify = &services.Creations{Shows: creationShows, Repeat: true}, i.Identify
	return l
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. It also updates the condition of the Service's ports.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	if err := l.reconciler.setPortsCondition(ctx, service); err != nil {
		return nil, err
	}
	return l.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes) //nolint:wrapcheck // it is the same call
}

// Validate implements services.Reconciler.
func (r *reconciler) Validate(req services.Request) ([]services.Finding, error) {
	if isLeftAlone(req.Service, r.config) {
		return nil, cloudprovider.ImplementedElsewhere
	}
	warnings, err := checkService(registry.Inputs{}, req.Service)
	findings := services.Judged(warnings, err)
	if hasMixedProtocols(req.Service) {
		findings = services.Judged(warnings, nil)
		if !arePortsRefused(req.Service) { // else it was reported when the condition was written
			findings = append(findings, services.Warning(eventMixed, "The load balancer serves TCP or UDP, and the Service has ports of both: make two Services."))
		}
	}
	if err == nil && req.Purpose == services.Ensure && len(req.Nodes) == 0 {
		err = fmt.Errorf("no node can be a backend of Service %s", fullName(req.Service))
	}
	return findings, err
}

// Observe implements services.Reconciler.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (o observed, err error) {
	if req.Purpose != services.Ensure && req.Purpose != services.Plan && isLeftAlone(req.Service, r.config) {
		return o, nil // another controller serves it, so nothing is written
	}
	o.name = loadBalancerName(req.Cluster, req.Service)
	o.settings, _, _ = parseSettings(req.Service) // Validate reports the faults
	if o.cluster, o.identified, err = r.identity.clusterID(ctx, req.Purpose == services.Ensure); err != nil {
		return o, err
	}
	if o.at, err = r.api.locator.get(ctx); err != nil {
		return o, err
	}
	rd := &reader{query: ensureQuery, onlyNodes: req.Purpose == services.UpdateNodes}
	rd.firewalls = !rd.onlyNodes || len(r.config.NodeTags) == 0
	if rd.onlyNodes {
		rd.query = inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
	}
	s := r.api.stores
	o.rule = read(ctx, rd, s.rules, o.name)
	if rd.firewalls {
		o.firewall = read(ctx, rd, s.firewalls, firewallName(o.name))
	}
	if req.Purpose == services.Narrow {
		return o, rd.err
	}
	if !rd.onlyNodes {
		o.address = read(ctx, rd, s.addresses, o.name)
	}
	if rd.err != nil {
		return o, rd.err
	}
	external, internal := wantedOrPresent(req, o)
	if external {
		r.observeExternal(ctx, rd, &o)
	}
	if internal {
		r.observeInternal(ctx, req, rd, &o)
	}
	return o, rd.err
}

// reader reads the objects of a load balancer, up to the first error.
type reader struct {
	query inventory.Query
	// onlyNodes: only what a change of nodes needs is read. firewalls: firewall rules are read. They hold the tags of joining nodes, unless
	// all nodes have the same tags.
	onlyNodes, firewalls bool
	err                  error
}

// read returns the object of this name, or the zero value if there is none or a read has failed.
func read[T any](ctx context.Context, rd *reader, s *store[T], name string) (v T) {
	if rd.err == nil {
		v, rd.err = find(ctx, s, name, rd.query)
		rd.err = cloudapi.NotAbsence(rd.err)
	}
	return v
}

// wantedOrPresent returns the kinds of load balancer that a Service wants or may still have: its annotation may have changed, and older
// releases wrote no finalizer.
func wantedOrPresent(req services.Request, o observed) (external, internal bool) {
	has := func(f string) bool { return slices.Contains(req.Service.Finalizers, f) }
	external, internal = has(finalizerNetLB), has(finalizerILB)
	if o.rule != nil {
		isInternal := o.rule.LoadBalancingScheme == schemeInternal
		external, internal = external || !isInternal, internal || isInternal
	}
	if req.Purpose == services.Ensure || req.Purpose == services.Plan || (!external && !internal) {
		isInternal := isInternal(req.Service)
		external, internal = external || !isInternal, internal || isInternal
	}
	return external, internal
}

func (r *reconciler) observeExternal(ctx context.Context, rd *reader, o *observed) {
	o.pool = read(ctx, rd, r.api.stores.pools, o.name)
	if !rd.onlyNodes {
		o.nextPool = read(ctx, rd, r.api.stores.pools, nextPoolName(o.name))
		o.denyFirewall = read(ctx, rd, r.api.stores.firewalls, denyFirewallName(o.name))
	}
	r.poolChecks.observe(ctx, rd, o)
}

func (r *reconciler) observeInternal(ctx context.Context, req services.Request, rd *reader, o *observed) {
	o.nameBackend(req)
	o.backend = read(ctx, rd, r.api.stores.backends, o.backendName)
	if !rd.onlyNodes && o.identified {
		r.backends.findObsolete(ctx, rd, o)
	}
	r.backendChecks.observe(ctx, rd, o)
	if o.rule != nil {
		o.ruleBackend, _ = r.api.stores.backends.Peek(lastPart(o.rule.BackendService))
	}
	isLeaving := req.Purpose == services.Delete || req.Purpose == services.Lookup || !isInternal(req.Service)
	if isLeaving && !rd.onlyNodes && rd.err == nil {
		rd.err = r.groups.findUnused(ctx, o)
	}
}

// CheckOwner implements services.Reconciler. Names hold the UID of the Service, but a forwarding rule may have the mark of another cluster
// restored from the same backup, or belong to ingress-gce.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	wants := req.Purpose == services.Ensure || req.Purpose == services.Plan
	if o.rule == nil {
		return o, nil, nil
	}
	if o.rule.BackendService != "" && o.rule.LoadBalancingScheme != schemeInternal {
		if wants {
			return o, nil, cloudprovider.ImplementedElsewhere
		}
		return observed{}, nil, nil
	}
	object := ownership.Object{Title: "forwarding rule " + o.name, ID: o.name, Name: o.name, Addresses: []string{o.rule.IPAddress}}
	if uid := o.rule.Labels[labelCluster]; uid != "" {
		object.Marks = []string{ownership.ClusterMark(uid)}
	}
	names := func(s *v1.Service) []string { return []string{loadBalancerName("", s)} }
	d, err := r.identity.Judge(ctx, req.Service, object, ownership.Rules{Adopt: r.adopt, Names: names}, nil)
	if err != nil || d.Verdict != ownership.Refused {
		return o, nil, err
	}
	if wants {
		return o, services.Refused(req.Service, d), d.Err()
	}
	return observed{}, nil, nil
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observed) string { return o.name }

// Settle implements services.Asynchronous: it waits for operations that nobody waits for any more.
func (r *reconciler) Settle(ctx context.Context, req *services.Request, o observed) (observed, error) {
	if o.name == "" {
		return o, nil
	}
	waited := false
	for _, path := range o.at.objectPaths(o.name, o.backendName) {
		if r.api.operations.pendingOn(path) == "" {
			continue
		}
		if err := r.api.operations.waitForPending(ctx, path, "waiting for "+lastPart(path)); err != nil {
			return o, err
		}
		waited = true
	}
	if !waited {
		return o, nil
	}
	r.api.stores.forget(o.name)
	r.api.stores.backends.Invalidate(o.backendName)
	o, err := r.Observe(ctx, *req)
	if err != nil {
		return o, err
	}
	o, _, err = r.CheckOwner(ctx, *req, o)
	return o, err
}

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (d desired, findings []services.Finding, err error) {
	d = desired{settings: o.settings, at: o.at, name: o.name, cluster: o.cluster, sources: r.config.Sources, internal: isInternal(req.Service)}
	if !o.identified && req.Purpose == services.Plan {
		d.cluster = "<new ID>"
	}
	d.setPorts(req.Service)
	mark, err := r.identity.Mark(ctx)
	if err != nil {
		return d, nil, err
	}
	d.clusterUID, _ = ownership.Marked([]string{mark})
	m, err := r.instances.members(ctx, req.Nodes, o.at)
	if err != nil {
		return d, nil, err
	}
	if len(m.known) == 0 && req.Purpose == services.Ensure {
		return d, nil, errNoInstance
	}
	if d.internal {
		if findings, err = r.desireInternal(ctx, o, &d, m); err != nil {
			return d, findings, err
		}
	}
	d.members = r.instances.poolMembers(ctx, m, membersOf(o.pool))
	findings = append(findings, r.instances.unknownZoneFindings(req, m)...)
	d.tags = r.config.NodeTags
	if len(d.tags) == 0 {
		var problem string
		if d.tags, problem = tagsOf(m.known); problem != "" {
			findings = append(findings, services.Warning(eventConfigError, "%s", problem))
		}
		if len(d.tags) == 0 {
			return d, findings, errors.New("no firewall rule can be made, for the nodes have no network tags that are known: " + problem)
		}
	}
	found, err := r.addresses.desire(ctx, req.Service, o, &d)
	return d, append(append(findings, found...), planFindings(req, o)...), err
}

// desireInternal sets the fields of internal load balancers.
func (r *reconciler) desireInternal(ctx context.Context, o observed, d *desired, m membership) (findings []services.Finding, err error) {
	d.globalAccess, d.tier, d.backend = d.settings.GlobalAccess == annotationOn, tierPremium, d.name
	if d.settings.sharesBackend() && !d.ownCheck {
		d.backend = sharedBackendName(d.cluster, d.protocol, d.affinity)
	}
	if d.subnet, d.legacy, err = r.api.subnetOf(ctx, d.settings.Subnet, o.at); err != nil {
		return nil, err
	}
	if d.legacy && (d.globalAccess || d.settings.Subnet != "") {
		d.globalAccess = false
		findings = append(findings, services.Warning(eventOptionsIgnored, "Options of internal load balancers have no effect: the network is a legacy one, without subnets."))
	}
	d.groups, err = r.groups.desiredGroups(ctx, o, d.cluster, m)
	return append(findings, groupFindings(d.groups)...), err
}

// planFindings reports what a plan cannot show: the objects deleted and created by a change of kind have the same names.
func planFindings(req services.Request, o observed) []services.Finding {
	isInternal := isInternal(req.Service)
	if req.Purpose != services.Plan || o.rule == nil || (o.rule.LoadBalancingScheme == schemeInternal) == isInternal {
		return nil
	}
	next := "an external"
	if isInternal {
		next = "an internal"
	}
	return []services.Finding{services.Warning("PlanIncomplete", "once all this is deleted, %s load balancer is made, with another address; the plan does not show it", next)}
}

// Complete implements services.Reconciler.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o observed, _ desired) (observed, error) {
	return o, nil
}

// Status implements services.Reconciler.
func (*reconciler) Status(_ services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	return statusOf(o.rule), nil
}

func statusOf(rule *compute.ForwardingRule) *v1.LoadBalancerStatus {
	if rule == nil {
		return &v1.LoadBalancerStatus{}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: rule.IPAddress}}}
}

// Exists implements services.Reconciler. Shared objects are ignored if no load balancer uses them.
func (r *reconciler) Exists(ctx context.Context, req services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	deletions, _, err := r.Deletions(ctx, req, o)
	return statusOf(o.rule), len(deletions) > 0, err
}
