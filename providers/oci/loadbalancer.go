package oci

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// lookAgain is when a load balancer that the cloud works on is looked at again.
	lookAgain = 10 * time.Second
	// creationShows is how long a load balancer may take to show whose creation was not answered.
	creationShows = 45 * time.Second
	// observedMaxAge is how old what is known of a load balancer may be. Our own writes are in it at once.
	observedMaxAge = 10 * time.Second
	// unlistedMaxAge lets one listing serve many new Services: nobody else makes what they look for.
	unlistedMaxAge = 3 * time.Second
	// proofMaxAge is how old the proof may be that the user sees the network.
	proofMaxAge = 5 * time.Second

	tokenHeader = "Opc-Retry-Token" //nolint:gosec // the name of a header
)

// observation is what is there for a Service.
type observation struct {
	// lb is nil where there is no load balancer.
	lb *loadBalancer
	// deletable is set where the load balancer was made for the Service.
	deletable bool
	// group is the network security group that was made for the Service; nil where there is none, or nobody asks.
	group *securityGroup
	// left are rules of security lists that are left of a load balancer which is gone.
	left []listPlan
	// fresh is set where lb, a network load balancer, was read right after a write of ours.
	fresh bool
}

type change = services.Change[observation]

// reconciler implements services.Reconciler.
type reconciler struct {
	*balancers
	made *regexp.Regexp

	// settled are the load balancers on which the cloud has ended what this process began last.
	settledMu sync.Mutex
	settled   map[string]bool
}

// attempt is the creation of a load balancer: as long as nobody knows what became of it, the same request has the same token.
type attempt struct{ sum, token string }

// there is the load balancer of a Service of either kind, as far as it is known; nil is none.
func (c *cloud) there(service *v1.Service) *loadBalancer {
	if isNetworkService(service) {
		for _, lb := range c.network.known.PeekIndex(indexName, networkName(service)) {
			return lb
		}
		return nil
	}
	for _, lb := range c.reconciler.known.PeekIndex(indexName, c.reconciler.name("", service)) {
		return lb
	}
	return nil
}

// beside are the load balancers of both kinds in some subnets that are none of Services.
func (c *cloud) beside(ctx context.Context, list []*v1.Service, subnets []string) ([]*loadBalancer, error) {
	for _, of := range []*servedKind{c.loadBalancers.lb, c.loadBalancers.nlb} {
		if err := c.loadBalancers.unlessUnserved(ctx, of, of.list(ctx)); err != nil {
			return nil, err
		}
	}
	all := slices.Concat(c.reconciler.known.PeekAll(), c.network.known.PeekAll())
	return slices.DeleteFunc(all, func(lb *loadBalancer) bool {
		own := slices.ContainsFunc(list, func(s *v1.Service) bool { is := c.there(s); return is != nil && is.ID == lb.ID })
		return own || !slices.ContainsFunc(lb.Subnets, func(id string) bool { return slices.Contains(subnets, id) })
	}), nil
}

func newReconciler(a *api, i *instances, adopt registry.Adoption) *reconciler {
	prefix := ownName(a.config.Prefix, &v1.Service{})
	k := kind{
		title: "load balancer", word: typeBalancer, path: balancerPaths, workPath: "/loadBalancerWorkRequests",
		name: func(s *v1.Service) string { return ownName(a.config.Prefix, s) },
	}
	return &reconciler{
		balancers: newBalancers(newSharedParts(a, i, adopt), k), settled: map[string]bool{},
		made: regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
	}
}

var (
	_ services.Reconciler[observation, spec] = (*reconciler)(nil)
	_ services.Asynchronous[observation]     = (*reconciler)(nil)
)

// newLoadBalancers returns those of a reconciler. Names are not unique in the cloud.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[observation, spec] {
	return &services.LoadBalancer[observation, spec]{
		Reconciler: r, Name: r.name, Creations: services.Creations{Shows: creationShows}, Identify: r.instances.Identify,
	}
}

// name is that of a Service's load balancer.
func (r *reconciler) name(_ string, service *v1.Service) string {
	return ownName(r.config.Prefix, service)
}

// Validate judges the Service by itself.
func (r *reconciler) Validate(q services.Request) (findings []services.Finding, err error) {
	_, warnings, err := parseSettings(q.Service, r.config.SecurityListMode)
	return services.Judged(warnings, err), err
}

// Observe finds the load balancer by its name. That there is none is believed only of a user who still sees the network.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (o observation, err error) {
	goes := q.Purpose == services.Delete || q.Purpose == services.Lookup
	if o.lb, err = r.find(ctx, q.Service, goes); err != nil {
		return o, err
	}
	if o.group, err = r.observeGroup(ctx, q, o.lb); err != nil || o.lb != nil {
		return o, err
	}
	age := observedMaxAge
	if goes {
		age = 0
	}
	if err := r.sees(ctx, age); err != nil || age != 0 {
		return o, err
	}
	o.left, err = r.leftRules(ctx, q.Service)
	return o, err
}

// find is the load balancer of a Service's name; nil where there is none. One that works counts before those that failed.
func (r *reconciler) find(ctx context.Context, service *v1.Service, goes bool) (*loadBalancer, error) {
	name := r.name("", service)
	found, err := r.known.Find(ctx, indexName, name, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(found), func(lb *loadBalancer) bool { return lb.State == stateFailed })
	if len(live) > 1 {
		return nil, fmt.Errorf("%d load balancers have the name %s (%s, %s); delete those that nobody needs", len(live), name, live[0].ID, live[1].ID)
	}
	if live = append(live, found...); len(live) > 0 {
		return live[0], nil
	}
	return nil, r.places.doubt(service, goes)
}

// observeGroup finds the network security group that was made for the Service, where it has one by its mode, may have one of before,
// or goes.
func (r *reconciler) observeGroup(ctx context.Context, q services.Request, lb *loadBalancer) (*securityGroup, error) {
	s, _, _ := parseSettings(q.Service, r.config.SecurityListMode) // which Validate has judged
	return r.observeGroupOf(ctx, q, s, lb)
}

// observeGroupOf is the same for known settings.
func (r *reconciler) observeGroupOf(ctx context.Context, q services.Request, s settings, lb *loadBalancer) (*securityGroup, error) {
	var attached []string
	if lb != nil {
		attached = lb.Groups
	}
	foreign := slices.ContainsFunc(attached, func(id string) bool { return !slices.Contains(s.Groups, id) })
	switch {
	case q.Purpose == services.UpdateNodes:
		return nil, nil //nolint:nilnil // nobody asks
	case s.mode != modeGroups && !foreign && q.Purpose != services.Delete && q.Purpose != services.Lookup:
		return nil, nil //nolint:nilnil // there was none
	}
	goes := q.Purpose == services.Delete || q.Purpose == services.Lookup
	return r.groups.managed(ctx, q.Service, attached, goes, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
}

// rules decide whose a load balancer is: by the tag that we give it, and by its name, which is the UID of the Service. Oracle's own
// controller marks nothing, and what it made stays without a mark.
func (r *reconciler) rules() ownership.Rules {
	return ownership.Rules{
		Adopt: r.adopt, Names: func(s *v1.Service) []string { return []string{r.name("", s)} }, Made: r.made.MatchString,
	}
}

func objectOf(lb *loadBalancer) ownership.Object {
	o := ownership.Object{Title: "load balancer " + lb.Name, ID: lb.ID, Name: lb.Name}
	if mark := lb.Tags[tagCluster]; mark != "" {
		o.Marks = []string{mark}
	}
	for _, a := range lb.Addresses {
		o.Addresses = append(o.Addresses, a.IP)
	}
	return o
}

// CheckOwner decides whose the load balancer is.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, o observation) (observation, []services.Finding, error) {
	if o.lb == nil {
		return o, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, q.Service, objectOf(o.lb), r.rules(), func(ctx context.Context) (ownership.Targets, error) {
		return r.targets(ctx, o.lb)
	})
	if err != nil {
		return observation{}, nil, err
	}
	o.deletable = decision.Deletable
	refused := decision.Verdict == ownership.Refused
	wants := q.Purpose == services.Ensure || q.Purpose == services.Plan
	switch {
	case refused && wants:
		return observation{}, services.Refused(q.Service, decision), decision.Err()
	case refused:
		return observation{}, nil, nil
	}
	return o, nil, nil
}

// targets are the backends of a load balancer.
func (r *reconciler) targets(ctx context.Context, lb *loadBalancer) (t ownership.Targets, err error) {
	reached, _, err := r.instances.reached(ctx, r.instances.nodes.Nodes(), nil)
	if err != nil {
		return t, err
	}
	ours := map[string]bool{}
	for _, n := range reached {
		ours[addressOf(n)] = true
	}
	for _, set := range lb.BackendSets {
		for _, b := range listOf(set["backends"]) {
			d, _ := b.(document)
			ip, _ := d["ipAddress"].(string)
			port, _ := d["port"].(float64)
			t.All++
			if ip != "" && ours[ip] {
				t.Ours++
			}
			t.Ports = append(t.Ports, int32(port))
		}
	}
	return t, nil
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observation) string {
	if o.lb == nil {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous: it waits for a load balancer that is being made, or deleted. Other work is waited for only
// where there is something to change.
func (r *reconciler) Settle(ctx context.Context, q *services.Request, o observation) (observation, error) {
	if o.lb == nil {
		return o, nil
	}
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{MaxAge: observedMaxAge})
	if err == nil && (lb.State == stateCreating || lb.State == stateDeleting) {
		lb, err = r.until(ctx, lb, func(lb *loadBalancer) bool { return lb.State != stateCreating && lb.State != stateDeleting })
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && q.Purpose == services.Ensure:
		return observation{}, services.ErrGone
	case errors.Is(err, cloudapi.ErrNotFound):
		return observation{}, nil
	case err != nil:
		return o, err
	}
	o.lb = lb
	return o, nil
}

// Desire computes what should be there.
func (r *reconciler) Desire(ctx context.Context, q services.Request, o observation) (d spec, findings []services.Finding, err error) {
	s, _, err := parseSettings(q.Service, r.config.SecurityListMode)
	if err != nil {
		return d, nil, err
	}
	if o.lb != nil && o.lb.State == stateFailed {
		return d, []services.Finding{services.Warning(eventFailed, "load balancer %s (%s) has failed", o.lb.Name, o.lb.ID)},
			fmt.Errorf("load balancer %s has failed; it is made again when it, or the Service, is deleted", o.lb.Name)
	}
	refuse := func(err error) (spec, []services.Finding, error) {
		return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
	}
	if q.Nodes, findings, err = r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb)); err != nil {
		return d, findings, err
	}
	addresses := s.addressesOf(q.Nodes)
	d = spec{
		name: r.name("", q.Service), listeners: s.desiredListeners(q.Service), sets: s.desiredSets(q.Service, addresses), groups: s.groups(),
		noNodes: len(addresses) == 0, ruleSets: s.ruleSets,
	}
	if d.noNodes {
		findings = append(findings, services.Warning(eventNoNodes, "no node can receive traffic; the backends of load balancer %s stay as they are", d.name))
	}
	if d.shape, d.details, err = s.shapeFor(o.lb); err != nil {
		return refuse(err)
	}
	front, back, err := r.certificates(ctx, q.Service, s)
	if err != nil {
		return refuse(err)
	}
	d.speakTLS(q.Service, s, o.lb, front, back)
	d.secrets = r.secretsOf(q.Service.UID, d.secrets)
	if more, err := judgeKept(o.lb, s); err != nil {
		return refuse(err)
	} else if more != "" {
		findings = append(findings, services.Warning(eventIgnored, "%s", more))
	}
	findings = append(findings, atBirth{annotationInternal, annotationSubnet1, s.Internal, []string{s.Subnet1, s.Subnet2}}.keptFor(o.lb)...)
	place, err := r.placeFor(ctx, q.Service, s, o.lb)
	switch {
	case errors.Is(err, errPlace):
		return refuse(err)
	case err != nil:
		return d, findings, err
	}
	findings = append(append(findings, place.strays(o.lb)...), singleStack(q.Service, place.six)...)
	if d.record = place.record(o.lb); o.lb == nil {
		if err := place.lostSight(q.Service, r.places.saw(d.name)); err != nil {
			return refuse(err)
		}
	}
	more, err := r.desireRules(ctx, q, s, o, place, &d)
	if findings = append(findings, more...); err != nil {
		return d, findings, err
	}
	if o.lb == nil {
		d.create = d.creation(s, place.compartment, place.subnets, s.tagsOf(r.config.tags).marked(place.mark), place.reserved, place.six)
	}
	return d, findings, nil
}

// Complete has nothing to do: each change waits for its own work.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o observation, _ spec) (observation, error) {
	return o, nil
}

// Status is that of the Service.
func (r *reconciler) Status(q services.Request, o observation, _ spec) (*v1.LoadBalancerStatus, error) {
	s, _, _ := parseSettings(q.Service, r.config.SecurityListMode) // which Desire has judged
	status := inOrderOf(q.Service, statusOf(o.lb, s.IPMode))
	if len(status.Ingress) == 0 {
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("no ip addresses found for load balancer %q", o.lb.Name), lookAgain)
	}
	return status, nil
}

// Exists implements services.Reconciler.
func (r *reconciler) Exists(_ context.Context, q services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		left := o.group != nil || len(o.left) > 0
		return &v1.LoadBalancerStatus{}, left, nil
	}
	s, _, _ := parseSettings(q.Service, r.config.SecurityListMode) // no fault in an annotation keeps a load balancer from being deleted
	return inOrderOf(q.Service, statusOf(o.lb, s.IPMode)), true, nil
}

// NodeChanges are those that follow from the nodes alone: other backends of the backend sets that there are.
func (r *reconciler) NodeChanges(ctx context.Context, q services.Request, o observation) ([]change, []services.Finding, error) {
	if o.lb == nil || o.lb.State != stateActive {
		return nil, nil, nil
	}
	s, _, _ := parseSettings(q.Service, r.config.SecurityListMode) // a fault in an annotation keeps no node from joining or leaving
	reached, findings, err := r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb))
	if err != nil {
		return nil, nil, err
	}
	addresses := s.addressesOf(reached)
	if len(addresses) == 0 {
		return nil, append(findings, services.Warning(eventNoNodes,
			"no node can receive traffic; the backends of load balancer %s stay as they are", o.lb.Name)), nil
	}
	want := s.desiredSets(q.Service, addresses)
	var all []change
	for _, name := range sortedKeys(want) {
		have, there := o.lb.BackendSets[name]
		if !there {
			continue
		}
		after, what := mergeSet(have, document{"backends": want[name]["backends"]}, false)
		if len(what) > 0 {
			all = append(all, updatingSet(r.change, name, have, after, what))
		}
	}
	return between(r.nodeRules(ctx, q.Service, s, o.lb, reached), all), findings, nil
}

// Deletions are what is to be done when the Service goes. What rules cannot be reached, such as those of a subnet that is gone, hold up
// nothing.
func (r *reconciler) Deletions(
	ctx context.Context, q services.Request, o observation,
) (all []change, findings []services.Finding, err error) {
	if o.lb != nil && !o.deletable {
		return nil, []services.Finding{services.Notice(eventLeft, "load balancer %s stays: it was not made for this Service", o.lb.Name)}, nil
	}
	s, _, _ := parseSettings(q.Service, r.config.SecurityListMode) // no fault in an annotation keeps a load balancer from being deleted
	all, missed, err := r.leaveLists(ctx, q.Service, s, o)
	if err != nil {
		return nil, nil, err
	}
	if o.group != nil {
		more, unseen, err := r.emptying(ctx, q.Service, o.group, s.BackGroups)
		if err != nil {
			return nil, nil, err
		}
		all, missed = append(all, more...), append(missed, unseen...)
	}
	for _, err := range missed {
		findings = append(findings, services.Warning(eventRulesLeft, "rules that were made for the Service may be left: %v", err))
	}
	all = services.EachTried(all)
	if o.lb != nil {
		all = append(all, r.deleting(o.lb))
	}
	if o.group != nil {
		all = append(all, r.deletingGroup(o.group))
	}
	return all, findings, nil
}
