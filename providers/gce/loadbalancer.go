package gce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

type observation struct {
	name, cluster string
	// identified: the cluster's ID is known. It may be empty.
	identified bool
	rule       *compute.ForwardingRule
	pool       *compute.TargetPool
	// nextPool serves while the pool is made again.
	nextPool *compute.TargetPool
	firewall *compute.Firewall
	// narrowed: this reconciliation has narrowed the firewall rule.
	narrowed bool
	// local and shared are the health checks, with their firewall rules.
	local, shared                 *compute.HttpHealthCheck
	localFirewall, sharedFirewall *compute.Firewall
	// Internal load balancers only.
	// backend is the backend service named backendName, ruleBackend the one in the present forwarding rule. obsoleteBackends are to be
	// deleted; unneededNames are those of shared ones that no other Service needs. ownCheck and nodeCheck are what local and shared are to
	// external load balancers.
	backend, ruleBackend                *compute.BackendService
	obsoleteBackends                    []*compute.BackendService
	backendName                         string
	unneededNames                       []string
	ownCheck, nodeCheck                 *compute.HealthCheck
	ownCheckFirewall, nodeCheckFirewall *compute.Firewall
	// groupZones are the zones whose instance group only this Service needs, if it is deleted.
	groupZones []string
	// address has the load balancer's name; replacedIP is that of a forwarding rule that was deleted to be made again.
	address    *compute.Address
	replacedIP string
	// deny is the firewall rule of Google's own controller that denies everything else.
	deny *compute.Firewall
}

// reconciler implements services.Reconciler for external passthrough load balancers on target pools and internal ones on instance groups.
type reconciler struct {
	config    Config
	api       *api
	instances *instances
	identity  *identity
	adopt     registry.Adoption
	lock      func(ctx context.Context, key string) (func(), error)
	kube      kubernetes.Interface
	// unmarked: the credential may not label forwarding rules.
	unmarked atomic.Bool
	networks networks
	told     reportedMessages
	// onceNodes are the paths of the instances that were nodes: this program may remove them from instance groups.
	onceNodes sync.Map
}

type change = services.Change[observation]

var (
	_ services.Reconciler[observation, spec] = (*reconciler)(nil)
	_ services.Asynchronous[observation]     = (*reconciler)(nil)
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	services.LoadBalancer[observation, spec]
	reconciler *reconciler
}

func newLoadBalancers(c Config, a *api, i *instances, adopt registry.Adoption) *loadBalancers {
	r := &reconciler{config: c, api: a, instances: i, identity: &identity{}, adopt: adopt}
	l := &loadBalancers{reconciler: r}
	l.Reconciler, l.Name, r.lock = r, loadBalancerName, l.Lock
	l.Creations, l.Identify = services.Creations{Shows: creationShows, Repeat: true}, i.Identify
	return l
}

// Validate implements services.Reconciler.
func (b *reconciler) Validate(r services.Request) ([]services.Finding, error) {
	if isLeftAlone(r.Service, b.config) {
		return nil, cloudprovider.ImplementedElsewhere
	}
	warnings, err := checkService(registry.Inputs{}, r.Service)
	findings := services.Judged(warnings, err)
	if hasMixedProtocols(r.Service) {
		findings = services.Judged(warnings, nil)
		if !arePortsRefused(r.Service) { // else it was reported when the condition was written
			findings = append(findings, services.Warning(eventMixed, "The load balancer serves TCP or UDP, and the Service has ports of both: make two Services."))
		}
	}
	if err == nil && r.Purpose == services.Ensure && len(r.Nodes) == 0 {
		err = fmt.Errorf("no node can be a backend of Service %s", fullName(r.Service))
	}
	return findings, err
}

// Observe implements services.Reconciler.
func (b *reconciler) Observe(ctx context.Context, r services.Request) (o observation, err error) {
	o.name = loadBalancerName(r.Cluster, r.Service)
	if r.Purpose != services.Ensure && r.Purpose != services.Plan && isLeftAlone(r.Service, b.config) {
		return observation{}, nil // another controller serves it, so nothing is written
	}
	q := ensureQuery
	if r.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
	}
	if o.cluster, o.identified, err = b.identity.clusterID(ctx, r.Purpose == services.Ensure); err != nil {
		return o, err
	}
	s := b.api.stores
	reads := []func() error{readInto(ctx, s.rules, o.name, q, &o.rule)}
	if b.readsFirewalls(r) {
		reads = append(reads, readInto(ctx, s.firewalls, firewallName(o.name), q, &o.firewall))
	}
	if r.Purpose != services.UpdateNodes && r.Purpose != services.Narrow {
		reads = append(reads, readInto(ctx, s.addresses, o.name, q, &o.address))
	}
	if err := readAll(reads); err != nil || r.Purpose == services.Narrow {
		return o, err
	}
	external, internal := wantedOrPresent(r, o)
	if external {
		err = b.observeExternal(ctx, r, q, &o)
	}
	if err == nil && internal {
		err = b.observeInternal(ctx, r, q, &o)
	}
	return o, err
}

// readsFirewalls reports whether firewall rules are needed: they hold the tags of joining nodes, unless all nodes have the same tags.
func (b *reconciler) readsFirewalls(r services.Request) bool {
	return r.Purpose != services.UpdateNodes || len(b.config.NodeTags) == 0
}

func readAll(reads []func() error) error {
	for _, read := range reads {
		if err := read(); err != nil {
			return cloudapi.NotAbsence(err)
		}
	}
	return nil
}

// wantedOrPresent returns the kinds of load balancer that a Service wants or may still have: its annotation may have changed, and older
// releases wrote no finalizer.
func wantedOrPresent(r services.Request, o observation) (external, internal bool) {
	has := func(f string) bool { return slices.Contains(r.Service.Finalizers, f) }
	external, internal = has(finalizerNetLB), has(finalizerILB)
	if o.rule != nil {
		is := o.rule.LoadBalancingScheme == schemeInternal
		external, internal = external || !is, internal || is
	}
	if r.Purpose == services.Ensure || r.Purpose == services.Plan || (!external && !internal) {
		is := isInternal(r.Service)
		external, internal = external || !is, internal || is
	}
	return external, internal
}

func (b *reconciler) observeExternal(ctx context.Context, r services.Request, q inventory.Query, o *observation) error {
	s := b.api.stores
	reads := []func() error{readInto(ctx, s.pools, o.name, q, &o.pool)}
	if r.Purpose != services.UpdateNodes {
		reads = append(reads,
			readInto(ctx, s.pools, nextPoolName(o.name), q, &o.nextPool), readInto(ctx, s.checks, o.name, q, &o.local),
			readInto(ctx, s.firewalls, denyFirewallName(o.name), q, &o.deny))
		if o.identified {
			reads = append(reads, readInto(ctx, s.checks, sharedCheckName(o.cluster), q, &o.shared))
		}
	}
	if b.readsFirewalls(r) {
		reads = append(reads, readInto(ctx, s.firewalls, localFirewallName(o.name), q, &o.localFirewall))
		if o.identified {
			reads = append(reads, readInto(ctx, s.firewalls, sharedFirewallName(o.cluster), q, &o.sharedFirewall))
		}
	}
	return readAll(reads)
}

func readInto[T any](ctx context.Context, s *store[T], name string, q inventory.Query, at *T) func() error {
	return func() (err error) {
		*at, err = find(ctx, s, name, q)
		return err
	}
}

// CheckOwner implements services.Reconciler. Names hold the UID of the Service, but a forwarding rule may have the mark of another cluster
// restored from the same backup, or belong to ingress-gce.
func (b *reconciler) CheckOwner(ctx context.Context, r services.Request, o observation) (observation, []services.Finding, error) {
	wants := r.Purpose == services.Ensure || r.Purpose == services.Plan
	if o.rule == nil {
		return o, nil, nil
	}
	if o.rule.BackendService != "" && o.rule.LoadBalancingScheme != schemeInternal {
		if wants {
			return o, nil, cloudprovider.ImplementedElsewhere
		}
		return observation{}, nil, nil
	}
	object := ownership.Object{Title: "forwarding rule " + o.name, ID: o.name, Name: o.name, Addresses: []string{o.rule.IPAddress}}
	if uid := o.rule.Labels[labelCluster]; uid != "" {
		object.Marks = []string{ownership.ClusterMark(uid)}
	}
	d, err := b.identity.Judge(ctx, r.Service, object, b.rules(), nil)
	if err != nil || d.Verdict != ownership.Refused {
		return o, nil, err
	}
	if wants {
		return o, services.Refused(r.Service, d), d.Err()
	}
	return observation{}, nil, nil
}

func (b *reconciler) rules() ownership.Rules {
	return ownership.Rules{Adopt: b.adopt, Names: func(s *v1.Service) []string { return []string{loadBalancerName("", s)} }}
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observation) string { return o.name }

// Settle implements services.Asynchronous: it waits for operations that nobody waits for any more.
func (b *reconciler) Settle(ctx context.Context, r *services.Request, o observation) (observation, error) {
	if o.name == "" {
		return o, nil
	}
	at, err := b.api.places.get(ctx)
	if err != nil {
		return o, err
	}
	waited := false
	for _, path := range b.pathsOf(at, o.name, o.backendName) {
		if b.api.operations.pendingOn(path) == "" {
			continue
		}
		if err := b.api.operations.waitForPending(ctx, path, "waiting for "+lastPart(path)); err != nil {
			return o, err
		}
		waited = true
	}
	if !waited {
		return o, nil
	}
	b.forget(o.name)
	b.api.stores.backends.Invalidate(o.backendName)
	if o, err = b.Observe(ctx, *r); err != nil {
		return o, err
	}
	o, _, err = b.CheckOwner(ctx, *r, o)
	return o, err
}

// pathsOf returns the paths of all objects of a load balancer.
func (*reconciler) pathsOf(at place, name, backend string) []string {
	return []string{
		at.regional("forwardingRules", name), at.regional("targetPools", name), at.regional("targetPools", nextPoolName(name)),
		at.regional("addresses", name), at.httpCheck(name), at.firewall(firewallName(name)), at.firewall(localFirewallName(name)),
		at.backend(name), at.backend(backend), at.healthCheck(name), at.firewall(ownCheckFirewallName(name)), at.firewall(denyFirewallName(name)),
	}
}

func (b *reconciler) forget(name string) {
	s := b.api.stores
	s.rules.Invalidate(name)
	s.pools.Invalidate(name)
	s.pools.Invalidate(nextPoolName(name))
	s.addresses.Invalidate(name)
	s.checks.Invalidate(name)
	s.firewalls.Invalidate(firewallName(name))
	s.firewalls.Invalidate(localFirewallName(name))
	s.backends.Invalidate(name)
	s.nodeChecks.Invalidate(name)
	s.firewalls.Invalidate(ownCheckFirewallName(name))
	s.firewalls.Invalidate(denyFirewallName(name))
}

// Desire implements services.Reconciler.
func (b *reconciler) Desire(ctx context.Context, r services.Request, o observation) (d spec, findings []services.Finding, err error) {
	if d.settings, _, err = parseSettings(r.Service); err != nil {
		return d, nil, err
	}
	at, err := b.api.places.get(ctx)
	if err != nil {
		return d, nil, err
	}
	d.name, d.cluster, d.network, d.sources = o.name, o.cluster, at.network, b.config.Sources
	if !o.identified && r.Purpose == services.Plan {
		d.cluster = "<new ID>"
	}
	d.desirePorts(r.Service)
	if d.mark, err = b.identity.Mark(ctx); err != nil {
		return d, nil, err
	}
	m, err := b.members(ctx, r.Nodes, at)
	if err != nil {
		return d, nil, err
	}
	if len(m.known) == 0 && r.Purpose == services.Ensure {
		return d, nil, errNoInstance
	}
	if isInternal(r.Service) {
		if findings, err = b.desireInternal(ctx, o, &d, at, m); err != nil {
			return d, findings, err
		}
	}
	d.members = m.keep(m.paths(), membersOf(o.pool))
	findings = append(findings, b.waitFindings(r, m)...)
	d.tags = b.config.NodeTags
	if len(d.tags) == 0 {
		var problem string
		if d.tags, problem = tagsOf(m.known); problem != "" {
			findings = append(findings, services.Warning(eventConfigError, "%s", problem))
		}
		if len(d.tags) == 0 {
			return d, findings, errors.New("no firewall rule can be made, for the nodes have no network tags that are known: " + problem)
		}
	}
	found, err := b.desireAddress(ctx, r.Service, o, &d)
	return d, append(append(findings, found...), planFindings(r, o)...), err
}

// planFindings reports what a plan cannot show: the objects deleted and created by a change of kind have the same names.
func planFindings(r services.Request, o observation) []services.Finding {
	isInternal := isInternal(r.Service)
	if r.Purpose != services.Plan || o.rule == nil || (o.rule.LoadBalancingScheme == schemeInternal) == isInternal {
		return nil
	}
	next := "an external"
	if isInternal {
		next = "an internal"
	}
	return []services.Finding{services.Warning("PlanIncomplete", "once all this is deleted, %s load balancer is made, with another address; the plan does not show it", next)}
}

// Complete implements services.Reconciler.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o observation, _ spec) (observation, error) {
	return o, nil
}

// Status implements services.Reconciler.
func (*reconciler) Status(_ services.Request, o observation, _ spec) (*v1.LoadBalancerStatus, error) {
	return statusOf(o.rule), nil
}

func statusOf(rule *compute.ForwardingRule) *v1.LoadBalancerStatus {
	if rule == nil {
		return &v1.LoadBalancerStatus{}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: rule.IPAddress}}}
}

// Exists implements services.Reconciler. Shared objects are ignored if no load balancer uses them.
func (b *reconciler) Exists(_ context.Context, r services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	left := o.name != "" && (o.rule != nil || o.pool != nil || o.nextPool != nil || o.firewall != nil || o.localFirewall != nil ||
		o.deny != nil || o.local != nil || slices.Contains(r.Service.Finalizers, finalizerNetLB) || b.isSharedCheckUnused(o) ||
		b.hasInternalParts(r, o))
	return statusOf(o.rule), left, nil
}
