package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// networkReconciler implements services.Reconciler for network load balancers. It shares with the one of load balancers what is the same.
type networkReconciler struct {
	*balancers
	lb *reconciler
}

var (
	_ services.Reconciler[observation, networkSpec] = (*networkReconciler)(nil)
	_ services.Asynchronous[observation]            = (*networkReconciler)(nil)
)

func newNetworkReconciler(lb *reconciler) *networkReconciler {
	return &networkReconciler{lb: lb, balancers: newBalancers(lb.sharedParts, kind{
		title: "network load balancer", word: typeNetwork, path: networkPaths, workPath: "/workRequests", errorsApart: true, name: networkName,
	})}
}

// networkMade are the names that are given to network load balancers.
var networkMade = regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9.-]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Validate judges the Service by itself.
func (r *networkReconciler) Validate(q services.Request) (findings []services.Finding, err error) {
	_, warnings, err := parseNetwork(q.Service)
	return services.Judged(warnings, err), err
}

// Observe finds the network load balancer by its name. That there is none is believed only of a user who still sees the network.
func (r *networkReconciler) Observe(ctx context.Context, q services.Request) (o observation, err error) {
	goes := q.Purpose == services.Delete || q.Purpose == services.Lookup
	if o.lb, err = r.find(ctx, q.Service, goes); err != nil {
		return o, err
	}
	s, _, _ := parseNetwork(q.Service) // which Validate has judged
	o.group, err = r.lb.observeGroupOf(ctx, q, s.plain(q.Service, true, true), o.lb)
	if err != nil || o.lb != nil {
		return o, err
	}
	age := observedMaxAge
	if goes {
		age = 0
	}
	if err := r.sees(ctx, age); err != nil || age != 0 || !isNetworkService(q.Service) {
		return o, err
	}
	four, six := families(q.Service)
	o.left, err = r.lb.leftRulesIn(ctx, q.Service, s.plain(q.Service, four, six), []string{r.subnetFor(s)})
	return o, err
}

// subnetFor is the subnet of a new network load balancer; "" is none.
func (r *networkReconciler) subnetFor(s networkSettings) string {
	return cmp.Or(s.Subnet, r.config.Subnet1)
}

// find is the network load balancer of a Service's name; nil where there is none. One that works counts before those that failed.
func (r *networkReconciler) find(ctx context.Context, service *v1.Service, goes bool) (*loadBalancer, error) {
	name := networkName(service)
	found, err := r.known.Find(ctx, indexName, name, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err != nil {
		return nil, err
	}
	failed := func(lb *loadBalancer) bool { return lb.State == stateFailed }
	live := slices.DeleteFunc(slices.Clone(found), failed)
	if len(live) > 1 {
		return nil, fmt.Errorf("%d network load balancers have the name %s (%s, %s); delete those that nobody needs", len(live), name, live[0].ID, live[1].ID)
	}
	if live = append(live, found...); len(live) > 0 {
		return live[0], nil
	}
	return nil, r.places.doubt(service, goes)
}

// rules decide whose a network load balancer is: by the tag that we give it, and by its name, which has the UID of the Service. Oracle's
// own controller marks nothing, and what it made stays without a mark.
func (r *networkReconciler) rules() ownership.Rules {
	return ownership.Rules{
		Adopt: r.adopt, Names: func(s *v1.Service) []string { return []string{networkName(s)} }, Made: networkMade.MatchString,
	}
}

func networkObject(lb *loadBalancer) ownership.Object {
	o := objectOf(lb)
	o.Title = "network load balancer " + lb.Name
	return o
}

// CheckOwner decides whose the network load balancer is.
func (r *networkReconciler) CheckOwner(
	ctx context.Context, q services.Request, o observation,
) (observation, []services.Finding, error) {
	if o.lb == nil {
		return o, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, q.Service, networkObject(o.lb), r.rules(), func(ctx context.Context) (ownership.Targets, error) {
		return r.targets(ctx, o.lb)
	})
	if err != nil {
		return observation{}, nil, err
	}
	o.deletable = decision.Deletable
	refused := decision.Verdict == ownership.Refused
	switch {
	case refused && (q.Purpose == services.Ensure || q.Purpose == services.Plan):
		return observation{}, services.Refused(q.Service, decision), decision.Err()
	case refused:
		return observation{}, nil, nil
	}
	return o, nil, nil
}

// targets are the backends of a network load balancer.
func (r *networkReconciler) targets(ctx context.Context, lb *loadBalancer) (t ownership.Targets, err error) {
	reached, _, err := r.instances.reached(ctx, r.instances.nodes.Nodes(), nil)
	if err != nil {
		return t, err
	}
	ours := map[string]bool{}
	for _, n := range reached {
		id, _ := parseProviderID(n.Spec.ProviderID) // "" is none of ours
		ours[addressOf(n)], ours[sixOf(n)], ours[id] = true, true, true
	}
	delete(ours, "")
	for _, set := range lb.BackendSets {
		for _, b := range listOf(set["backends"]) {
			d, _ := b.(document)
			ip, _ := d["ipAddress"].(string)
			id, _ := d["targetId"].(string)
			port, _ := d["port"].(float64)
			t.All++
			if ours[ip] || ours[id] {
				t.Ours++
			}
			t.Ports = append(t.Ports, int32(port))
		}
	}
	return t, nil
}

// Key implements services.Asynchronous.
func (*networkReconciler) Key(_ services.Request, o observation) string {
	if o.lb == nil {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous: it waits for a network load balancer that is being made, or deleted. Other work is waited for
// only where there is something to change.
func (r *networkReconciler) Settle(ctx context.Context, q *services.Request, o observation) (observation, error) {
	if o.lb == nil {
		return o, nil
	}
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{MaxAge: observedMaxAge})
	if err == nil && (lb.State == stateCreating || lb.State == stateDeleting) {
		lb, err = r.rest(ctx, lb.ID)
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
func (r *networkReconciler) Desire(
	ctx context.Context, q services.Request, o observation,
) (d networkSpec, findings []services.Finding, err error) {
	s, _, err := parseNetwork(q.Service)
	if err != nil {
		return d, nil, err
	}
	if o.lb != nil && o.lb.State == stateFailed {
		return d, []services.Finding{services.Warning(eventFailed, "network load balancer %s (%s) has failed", o.lb.Name, o.lb.ID)},
			fmt.Errorf("network load balancer %s has failed; it is made again when it, or the Service, is deleted", o.lb.Name)
	}
	at := r.subnetFor(s)
	if o.lb != nil {
		at = o.lb.subnet()
	}
	four, six, err := r.versions(ctx, q.Service, at)
	if err != nil {
		return d, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	if q.Nodes, findings, err = r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb)); err != nil {
		return d, findings, err
	}
	targets := s.targetsOf(q.Nodes)
	d = networkSpec{
		name: networkName(q.Service), version: versionFor(four, six), listeners: s.listeners(q.Service, four, six),
		sets: s.sets(q.Service, targets, four, six), groups: s.groups(), noNodes: !reachable(targets, four, six),
	}
	if d.noNodes {
		findings = append(findings, services.Warning(eventNoNodes,
			"no node can receive traffic; the backends of network load balancer %s stay as they are", d.name))
	}
	findings = append(findings, singleStack(q.Service, four && six)...)
	more, err := r.desirePlace(ctx, q, s, o, at, &d)
	return d, append(findings, more...), err
}

// desirePlace adds what is read: where a network load balancer is, its address, and its security rules.
func (r *networkReconciler) desirePlace(
	ctx context.Context, q services.Request, s networkSettings, o observation, at string, d *networkSpec,
) (findings []services.Finding, err error) {
	there := o.lb
	common := s.plain(q.Service, d.version != versionIPv6, d.version != versionIPv4)
	if notice, err := judgeKept(there, common); err != nil {
		return []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	} else if notice != "" {
		findings = append(findings, services.Warning(eventIgnored, "%s", notice))
	}
	findings = append(findings, atBirth{networkInternal, networkSubnet, s.Internal, []string{s.Subnet}}.keptFor(there)...)
	where := loadBalancer{Subnets: []string{at}, IPMode: modeSix} // whose place is known
	if there != nil {
		where = *there
	} else {
		found, err := r.api.location(ctx)
		if err != nil {
			return findings, cloudapi.Describe(err, "finding the compartment of the cluster")
		}
		where.Compartment = cmp.Or(s.Compartment, found.compartment)
	}
	place, err := r.lb.placeFor(ctx, q.Service, common, &where)
	if err != nil {
		return findings, err
	}
	findings = append(findings, place.strays(there)...)
	d.rules = spec{groups: d.groups, noNodes: d.noNodes, record: place.record(there)}
	if there == nil {
		if err := place.lostSight(q.Service, r.places.saw(d.name)); err != nil {
			return append(findings, services.Warning(eventConfigError, "%v", err)), err
		}
	}
	more, err := r.lb.desireRules(ctx, q, common, observation{lb: there, group: o.group}, place, &d.rules)
	if findings = append(findings, more...); err != nil {
		return findings, err
	}
	d.groups = d.rules.groups
	if o.lb != nil {
		return findings, nil
	}
	reserved := []any{}
	if common.Address != "" {
		id, err := r.lb.reservedAddress(ctx, common)
		if errors.Is(err, errPlace) {
			findings = append(findings, services.Warning(eventConfigError, "%v", err))
		}
		if err != nil {
			return findings, err
		}
		reserved = append(reserved, document{"id": id})
	}
	d.create = d.creation(s, place.compartment, at, reserved, s.tagsOf(r.config.tags).marked(place.mark))
	return findings, nil
}

var errNoNetworkSubnet = errors.New("a network load balancer needs a subnet; set loadBalancer.subnet1, or the annotation " + networkSubnet)

// versions are the versions of IP that a network load balancer is to have: those of the Service that its subnet has. A subnet is read
// only where the Service asks for more than IPv4.
func (r *networkReconciler) versions(ctx context.Context, service *v1.Service, id string) (four, six bool, err error) {
	four, six = families(service)
	if id == "" {
		return false, false, errNoNetworkSubnet
	}
	if !six {
		return four, six, nil
	}
	found, err := r.subnets.Get(ctx, id, inventory.Query{MaxAge: subnetMaxAge})
	if err != nil {
		return false, false, cloudapi.NotAbsence(err)
	}
	hasFour, hasSix := len(found.networks(true, false)) > 0, len(found.networks(false, true)) > 0
	policy := service.Spec.IPFamilyPolicy
	prefers := policy != nil && *policy == v1.IPFamilyPolicyPreferDualStack
	switch {
	case !hasFour && !hasSix:
		return false, false, fmt.Errorf("subnet %s: subnet does not have IPv4 or IPv6 cidr, can't create loadbalancer", id)
	case !hasSix && (!prefers || !four):
		return false, false, fmt.Errorf("subnet with id %s does not have an ipv6 cidr block", id)
	case four && !hasFour && !prefers:
		return false, false, fmt.Errorf("subnet with id %s does not have an ipv4 cidr block", id)
	}
	return four && hasFour, six && hasSix, nil
}

// Complete has nothing to do: each change waits for its own work.
func (*networkReconciler) Complete(
	_ context.Context, _ *services.Request, o observation, _ networkSpec,
) (observation, error) {
	return o, nil
}

// Status is that of the Service.
func (*networkReconciler) Status(q services.Request, o observation, _ networkSpec) (*v1.LoadBalancerStatus, error) {
	s, _, _ := parseNetwork(q.Service) // which Desire has judged
	status := s.status(q.Service, o.lb)
	if len(status.Ingress) == 0 {
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("no ip addresses found for load balancer %q", o.lb.Name), lookAgain)
	}
	return status, nil
}

// Exists implements services.Reconciler.
func (*networkReconciler) Exists(_ context.Context, q services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		return &v1.LoadBalancerStatus{}, o.group != nil || len(o.left) > 0, nil
	}
	s, _, _ := parseNetwork(q.Service) // no fault in an annotation keeps a load balancer from being deleted
	return s.status(q.Service, o.lb), true, nil
}

// NodeChanges are those that follow from the nodes alone: other backends of the backend sets that there are.
func (r *networkReconciler) NodeChanges(
	ctx context.Context, q services.Request, o observation,
) ([]change, []services.Finding, error) {
	if o.lb == nil || o.lb.State != stateActive && o.lb.State != stateUpdating {
		return nil, nil, nil
	}
	s, _, _ := parseNetwork(q.Service) // a fault in an annotation keeps no node from joining or leaving
	reached, findings, err := r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb))
	if err != nil {
		return nil, nil, err
	}
	targets := s.targetsOf(reached)
	if !reachable(targets, true, true) {
		return nil, append(findings, services.Warning(eventNoNodes,
			"no node can receive traffic; the backends of network load balancer %s stay as they are", o.lb.Name)), nil
	}
	want := s.sets(q.Service, targets, true, true)
	var all []change
	for _, name := range sortedKeys(want) {
		have, there := o.lb.BackendSets[name]
		if !there || len(listOf(want[name]["backends"])) == 0 {
			continue
		}
		after, what := mergeNetworkSet(have, document{"backends": want[name]["backends"]}, false)
		if len(what) > 0 {
			all = append(all, updatingSet(r.change, name, have, after, what))
		}
	}
	four, six := o.lb.Version != versionIPv6, o.lb.Version != versionIPv4
	rules := r.lb.nodeRules(ctx, q.Service, s.plain(q.Service, four, six), o.lb, reached)
	return between(rules, r.whenIdle(o.lb, all)), findings, nil
}

// Deletions are what is to be done when the Service goes.
// What rules cannot be reached, such as those of a subnet that is gone, hold up nothing.
func (r *networkReconciler) Deletions(
	ctx context.Context, q services.Request, o observation,
) (all []change, findings []services.Finding, err error) {
	if o.lb != nil && !o.deletable {
		return nil, []services.Finding{services.Notice(eventLeft, "network load balancer %s stays: it was not made for this Service", o.lb.Name)}, nil
	}
	s, _, _ := parseNetwork(q.Service) // no fault in an annotation keeps a load balancer from being deleted
	four, six := families(q.Service)
	rules, missed, err := r.lb.leaveLists(ctx, q.Service, s.plain(q.Service, four, six), observation{lb: o.lb, left: o.left})
	if err != nil {
		return nil, nil, err
	}
	if o.group != nil {
		more, unseen, err := r.lb.emptying(ctx, q.Service, o.group, s.BackGroups)
		if err != nil {
			return nil, nil, err
		}
		rules, missed = append(rules, more...), append(missed, unseen...)
	}
	for _, err := range missed {
		findings = append(findings, services.Warning(eventRulesLeft, "rules that were made for the Service may be left: %v", err))
	}
	all = services.EachTried(rules)
	if o.lb != nil {
		all = append(all, r.deleting(o.lb))
	}
	if o.group != nil {
		all = append(all, r.lb.deletingGroup(o.group))
	}
	return all, findings, nil
}
