package oci

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

const (
	// lookAgain is when a load balancer that the cloud works on is looked at again.
	lookAgain = 10 * time.Second
	// creationShows is how long a load balancer may take to show whose creation was not answered.
	creationShows = 45 * time.Second
	// observedMaxAge is how old what is known of a load balancer may be. Our own writes are in it at once.
	observedMaxAge = 10 * time.Second
	// protectionMaxAge is how old the answer may be that nobody protects a load balancer from deletion: what the same call has read counts.
	protectionMaxAge = time.Second
	// unlistedMaxAge lets one listing serve many new Services: nobody else makes what they look for.
	unlistedMaxAge = 3 * time.Second
	// proofMaxAge is how old the proof may be that the user sees the network.
	proofMaxAge = 5 * time.Second

	tokenHeader = "Opc-Retry-Token" //nolint:gosec // the name of a header
)

// observation holds the cloud's objects of a Service.
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

// reconciler implements services.Reconciler, for one kind of load balancers.
type reconciler struct{ *balancers }

// attempt is the creation of a load balancer: as long as nobody knows what became of it, the same request has the same token.
type attempt struct{ sum, token string }

func newReconciler(parts *sharedParts, k kind) *reconciler {
	return &reconciler{newBalancers(parts, k)}
}

var (
	_ services.Reconciler[observation, spec] = (*reconciler)(nil)
	_ services.Asynchronous[observation]     = (*reconciler)(nil)
)

// newLoadBalancers returns those of a reconciler. Names are not unique in the cloud.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[observation, spec] {
	return &services.LoadBalancer[observation, spec]{
		Reconciler: r, Name: func(_ string, s *v1.Service) string { return r.kind.name(s) },
		Creations: services.Creations{Shows: creationShows}, Identify: r.instances.Identify,
	}
}

// Validate judges the Service by itself.
func (r *reconciler) Validate(q services.Request) (findings []services.Finding, err error) {
	_, warnings, err := r.kind.parse(q.Service)
	return services.Judged(warnings, err), err
}

// settings are those of a Service of which nobody asks whether something is wrong with them, or somebody has asked before.
func (r *reconciler) settings(service *v1.Service) settings {
	s, _, _ := r.kind.parse(service)
	return s
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
func (r *balancers) find(ctx context.Context, service *v1.Service, goes bool) (*loadBalancer, error) {
	name := r.kind.name(service)
	found, err := r.known.Find(ctx, indexName, name, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(found), func(lb *loadBalancer) bool { return lb.State == stateFailed })
	if len(live) > 1 {
		return nil, fmt.Errorf("%d %ss have the name %s (%s, %s); delete those that nobody needs", len(live), r.kind.title, name, live[0].ID, live[1].ID)
	}
	if live = append(live, found...); len(live) > 0 {
		return live[0], nil
	}
	return nil, r.places.doubt(service, goes)
}

// observeGroup finds the network security group that was made for the Service, where it has one by its mode, may have one of before,
// or goes.
func (r *reconciler) observeGroup(ctx context.Context, q services.Request, lb *loadBalancer) (*securityGroup, error) {
	s := r.settings(q.Service)
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

// rules decide whose a load balancer is: by the tag that we give it, and by its name, which has the UID of the Service. Oracle's own
// controller marks nothing, and what it made stays without a mark.
func (r *reconciler) rules() ownership.Rules {
	return ownership.Rules{
		Adopt: r.adopt, Names: func(s *v1.Service) []string { return []string{r.kind.name(s)} }, Made: r.kind.made.MatchString,
	}
}

func (r *reconciler) objectOf(lb *loadBalancer) ownership.Object {
	o := ownership.Object{Title: r.kind.title + " " + lb.Name, ID: lb.ID, Name: lb.Name}
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
	decision, err := r.cluster.Judge(ctx, q.Service, r.objectOf(o.lb), r.rules(), func(ctx context.Context) (ownership.Targets, error) {
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
		lb, err = r.waitUntilIdle(ctx, lb)
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
	s, _, err := r.kind.parse(q.Service)
	if err != nil {
		return d, nil, err
	}
	if o.lb != nil && o.lb.State == stateFailed {
		return d, []services.Finding{services.Warning(eventFailed, "%s %s (%s) has failed", r.kind.title, o.lb.Name, o.lb.ID)},
			fmt.Errorf("%s %s has failed; it is made again when it, or the Service, is deleted", r.kind.title, o.lb.Name)
	}
	refuse := func(err error) (spec, []services.Finding, error) {
		return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
	}
	if s, err = r.chooseVersions(ctx, q.Service, s, o.lb); err != nil {
		return refuse(err)
	}
	if q.Nodes, findings, err = r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb)); err != nil {
		return d, findings, err
	}
	d = spec{
		name: r.kind.name(q.Service), version: s.version(), listeners: s.desiredListeners(q.Service), sets: s.desiredSets(q.Service, q.Nodes),
		groups: s.groups(), ruleSets: s.ruleSets,
	}
	if d.noNodes = reachNobody(d.sets); d.noNodes {
		findings = append(findings, r.withoutNodes(d.name))
	}
	more, err := r.desireOfKind(ctx, q.Service, s, o.lb, &d)
	if findings = append(findings, more...); err != nil {
		return refuse(err)
	}
	place, err := r.placeFor(ctx, q.Service, s, o.lb)
	switch {
	case errors.Is(err, errPlace):
		return refuse(err)
	case err != nil:
		return d, findings, err
	}
	findings = append(findings, singleStack(q.Service, place.six || d.version == versionBoth)...)
	d.fixed = s.fixed(o.lb)
	if d.record = place.record(o.lb); o.lb == nil {
		if err := place.lostSight(q.Service, r.places.saw(d.name)); err != nil {
			return refuse(err)
		}
	}
	if err = r.checkGroups(ctx, q.Service, s, o.lb); err != nil {
		return refuse(err)
	}
	more, err = r.desireRules(ctx, q, s, o, place, &d)
	if findings = append(findings, more...); err != nil {
		return d, findings, err
	}
	more, err = r.desireCreation(s, o.lb, place, &d)
	if findings = append(findings, more...); err != nil {
		return refuse(err)
	}
	return d, findings, nil
}

// desireCreation adds the request for a load balancer that does not exist.
func (r *reconciler) desireCreation(s settings, lb *loadBalancer, place placement, d *spec) ([]services.Finding, error) {
	if lb != nil {
		return nil, nil
	}
	t, findings, err := s.creationTags(r.config.tags, place.mark)
	d.create = d.creation(s, place, t)
	return findings, err
}

// desireOfKind adds what one kind alone has, and judges what a load balancer keeps from its creation.
func (r *reconciler) desireOfKind(
	ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, d *spec,
) ([]services.Finding, error) {
	if !s.network {
		if err := r.desireBalancer(ctx, service, s, lb, d); err != nil {
			return nil, err
		}
	}
	kept, err := judgeKept(lb, s)
	if err != nil || kept == "" {
		return nil, err
	}
	return []services.Finding{services.Warning(eventIgnored, "%s", kept)}, nil
}

// withoutNodes is the finding about a load balancer to no node.
func (r *reconciler) withoutNodes(name string) services.Finding {
	return services.Warning(eventNoNodes, "no node can receive traffic; the backends of %s %s stay as they are", r.kind.title, name)
}

// Fixed implements services.Fixer.
func (r *reconciler) Fixed(ctx context.Context, q services.Request, o observation, d spec) ([]services.Fixed, error) {
	s := r.settings(q.Service)
	if o.lb == nil || s.Subnet1 == "" || s.Subnet2 == "" {
		return d.fixed, nil
	}
	chosen, err := r.subnetsOf(ctx, s) // of two that are regional one alone counts
	if err != nil || !services.SameSet(chosen, o.lb.Subnets) {
		return d.fixed, err
	}
	return slices.DeleteFunc(d.fixed, func(f services.Fixed) bool { return f.Place == annotationSubnet1 || f.Place == annotationSubnet2 }), nil
}

// Complete has nothing to do: each change waits for its own work.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o observation, _ spec) (observation, error) {
	return o, nil
}

// Status is that of the Service.
func (r *reconciler) Status(q services.Request, o observation, _ spec) (*v1.LoadBalancerStatus, error) {
	status := r.settings(q.Service).status(q.Service, o.lb)
	if len(status.Ingress) == 0 {
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("no ip addresses found for load balancer %q", o.lb.Name), lookAgain)
	}
	return status, nil
}

// status is the status that a load balancer gives: public addresses alone where that is asked for.
func (s settings) status(service *v1.Service, lb *loadBalancer) *v1.LoadBalancerStatus {
	shown := *lb
	if s.ExternalOnly && !lb.Private {
		shown.Addresses = slices.DeleteFunc(slices.Clone(shown.Addresses), func(a address) bool { return !a.Public })
	}
	return inOrderOf(service, statusOf(&shown, s.IPMode))
}

// inOrderOf is a status in the order that the Service shows already, where it is the same: an order is no news.
func inOrderOf(service *v1.Service, status *v1.LoadBalancerStatus) *v1.LoadBalancerStatus {
	is := service.Status.LoadBalancer.Ingress
	text := func(list []v1.LoadBalancerIngress) (all []string) {
		for _, in := range list {
			mode := ""
			if in.IPMode != nil {
				mode = string(*in.IPMode)
			}
			all = append(all, in.IP+" "+mode)
		}
		return all
	}
	if services.SameSet(text(is), text(status.Ingress)) && len(is) == len(status.Ingress) {
		status.Ingress = slices.Clone(is)
	}
	return status
}

// statusOf is the status that a load balancer gives.
func statusOf(lb *loadBalancer, mode string) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	for _, a := range lb.Addresses {
		if a.IP == "" {
			continue
		}
		in := v1.LoadBalancerIngress{IP: a.IP}
		modes := map[string]v1.LoadBalancerIPMode{"proxy": v1.LoadBalancerIPModeProxy, "vip": v1.LoadBalancerIPModeVIP}
		if known, ok := modes[strings.ToLower(mode)]; ok {
			in.IPMode = &known
		}
		status.Ingress = append(status.Ingress, in)
	}
	slices.SortFunc(status.Ingress, func(a, b v1.LoadBalancerIngress) int { return strings.Compare(a.IP, b.IP) })
	return status
}

// Exists implements services.Reconciler. No fault in an annotation keeps a load balancer from being deleted.
func (r *reconciler) Exists(_ context.Context, q services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		return &v1.LoadBalancerStatus{}, o.group != nil || len(o.left) > 0, nil
	}
	return r.settings(q.Service).status(q.Service, o.lb), true, nil
}

// NodeChanges are those that follow from the nodes alone: other backends of the backend sets that there are. A fault in an annotation keeps
// no node from joining or leaving.
func (r *reconciler) NodeChanges(ctx context.Context, q services.Request, o observation) ([]change, []services.Finding, error) {
	if o.lb == nil || o.lb.State != stateActive && o.lb.State != stateUpdating {
		return nil, nil, nil
	}
	s := r.settings(q.Service)
	reached, findings, err := r.instances.reached(ctx, q.Nodes, backendAddresses(o.lb))
	if err != nil {
		return nil, nil, err
	}
	want := s.inVersions(true, true).desiredSets(q.Service, reached)
	if reachNobody(want) {
		return nil, append(findings, r.withoutNodes(o.lb.Name)), nil
	}
	var all []change
	for _, name := range sortedKeys(want) {
		have, there := o.lb.BackendSets[name]
		if !there || len(listOf(want[name]["backends"])) == 0 {
			continue
		}
		after, what := mergeSet(have, document{"backends": want[name]["backends"]}, false)
		if len(what) > 0 {
			all = append(all, r.updatingSet(name, have, after, what))
		}
	}
	rules := r.nodeRules(ctx, q.Service, s.inVersion(o.lb.Version), o.lb, reached)
	return between(rules, r.whenIdle(o.lb, all)), findings, nil
}

// Deletions returns the changes that delete a Service's objects. Neither unreachable rules, such as those of a deleted subnet, nor faults
// in annotations delay it.
func (r *reconciler) Deletions(
	ctx context.Context, q services.Request, o observation,
) (all []change, findings []services.Finding, err error) {
	if o.lb != nil && !o.deletable {
		return nil, []services.Finding{services.Notice(eventLeft, "%s %s stays: it was not made for this Service", r.kind.title, o.lb.Name)}, nil
	}
	s := r.settings(q.Service)
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
		if len(all) > 0 || o.lb.Protected {
			if err := r.checkProtection(ctx, o.lb.ID); err != nil {
				return nil, nil, err
			}
		}
		all = append(all, r.deleting(o.lb))
	}
	if o.group != nil {
		all = append(all, r.deletingGroup(o.group))
	}
	return all, findings, nil
}
