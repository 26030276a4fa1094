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
	// lookAgain is the time until a load balancer on which the cloud works is read again.
	lookAgain = 10 * time.Second
	// creationShows is the time within which the result of an unanswered creation appears.
	creationShows = 45 * time.Second
	// observedMaxAge is the maximum age of a load balancer's description. Our own writes are in it at once.
	observedMaxAge = 10 * time.Second
	// protectionMaxAge is the maximum age of the answer that nobody protects a load balancer: a read of the same operation counts.
	protectionMaxAge = time.Second
	// unlistedMaxAge lets one listing serve many new Services: nobody else creates load balancers with their names.
	unlistedMaxAge = 3 * time.Second
	// proofMaxAge is the maximum age of the proof that the user sees the network.
	proofMaxAge = 5 * time.Second
)

// observed holds the cloud's objects of a Service; those that do not exist are nil.
type observed struct {
	// settings are those of the Service; fault says why they are refused.
	settings settings
	fault    error
	lb       *loadBalancer
	// deletable is set if the load balancer was created for the Service.
	deletable bool
	// group was created for the Service. It is nil if it was not read, too.
	group *securityGroup
	// left are rules in security lists whose load balancer is gone.
	left []listPlan
	// ofOtherKind is one that a Service has which asks for this kind, and has none of it.
	ofOtherKind *loadBalancer
	// fresh is set if lb, a network load balancer, was read right after our own write.
	fresh bool
}

type change = services.Change[observed]

// reconciler implements services.Reconciler, for one kind of load balancers.
type reconciler struct {
	*loadBalancers
	kinds *kinds
}

var (
	_ services.Reconciler[observed, desired] = (*reconciler)(nil)
	_ services.Asynchronous[observed]        = (*reconciler)(nil)
	_ services.Narrower[observed]            = (*reconciler)(nil)
)

// Validate judges the Service by itself.
func (r *reconciler) Validate(req services.Request) (findings []services.Finding, err error) {
	_, warnings, err := r.kind.parse(req.Service)
	return services.Judged(warnings, err), err
}

// Observe finds the load balancer by its name. Absence is believed only of a user who still sees the network.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (o observed, err error) {
	o.settings, _, o.fault = r.kind.parse(req.Service) // Validate reports its warnings
	leaving := isLeaving(req)
	if o.lb, err = r.find(ctx, req.Service, leaving); err != nil {
		return o, err
	}
	if o.lb == nil && wants(req) {
		if o.ofOtherKind, err = r.kinds.findOther(ctx, req.Service); err != nil || o.ofOtherKind != nil {
			return o, err
		}
	}
	if o.group, err = r.observeGroup(ctx, req, o); err != nil || o.lb != nil {
		return o, err
	}
	if !leaving {
		return o, r.networks.checkVisible(ctx, observedMaxAge)
	}
	if err := r.networks.checkVisible(ctx, 0); err != nil {
		return o, err
	}
	o.left, err = r.leftRules(ctx, req.Service, o.settings)
	return o, err
}

// isLeaving reports whether the Service may be deleted.
func isLeaving(req services.Request) bool {
	return req.Purpose == services.Delete || req.Purpose == services.Lookup
}

// wants reports whether the Service asks for the load balancer.
func wants(req services.Request) bool {
	return req.Purpose == services.Ensure || req.Purpose == services.Plan
}

// observeGroup finds the network security group that was created for the Service, if its mode asks for one, its load balancer may have one,
// or it is deleted.
func (r *reconciler) observeGroup(ctx context.Context, req services.Request, o observed) (*securityGroup, error) {
	var attached []string
	if o.lb != nil {
		attached = o.lb.Groups
	}
	foreign := slices.ContainsFunc(attached, func(id string) bool { return !slices.Contains(o.settings.Groups, id) })
	leaving := isLeaving(req)
	switch {
	case req.Purpose == services.UpdateNodes:
		return nil, nil //nolint:nilnil // it is not needed
	case o.settings.mode != modeGroups && !foreign && !leaving:
		return nil, nil //nolint:nilnil // there was none
	}
	return r.groups.findManaged(ctx, req.Service, attached, leaving, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
}

// rules decide whose a load balancer is: by our tag, and by its name, which has the Service's UID. Oracle's own controller does not tag.
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

// CheckOwner implements services.Reconciler.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	if o.ofOtherKind != nil {
		findings, err := r.kinds.refuseOtherKind(req.Service, o.ofOtherKind)
		return o, findings, err
	}
	if o.lb == nil {
		return o, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, req.Service, r.objectOf(o.lb), r.rules(), func(ctx context.Context) (ownership.Targets, error) {
		return r.targets(ctx, o.lb)
	})
	if err != nil {
		return observed{}, nil, err
	}
	o.deletable = decision.Deletable
	refused := decision.Verdict == ownership.Refused
	switch {
	case refused && wants(req):
		return observed{}, services.Refused(req.Service, decision), decision.Err()
	case refused:
		return observed{settings: o.settings, fault: o.fault}, nil, nil
	}
	return o, nil, nil
}

func (r *reconciler) targets(ctx context.Context, lb *loadBalancer) (t ownership.Targets, err error) {
	reached, _, err := r.instances.withAddresses(ctx, r.instances.nodes.Nodes(), nil)
	if err != nil {
		return t, err
	}
	ours := map[string]bool{}
	for _, n := range reached {
		id, _ := parseProviderID(n.Spec.ProviderID) // "" is none of ours
		ours[ipv4Of(n)], ours[ipv6Of(n)], ours[id] = true, true, true
	}
	delete(ours, "")
	for _, b := range lb.backends() {
		t.All++
		if ours[b.ip] || ours[b.instance] {
			t.Ours++
		}
		t.Ports = append(t.Ports, b.port)
	}
	return t, nil
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observed) string {
	if o.lb == nil {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous. It waits for a load balancer that is being created or deleted; before other work it waits only
// if there are changes.
func (r *reconciler) Settle(ctx context.Context, req *services.Request, o observed) (observed, error) {
	if o.lb == nil {
		return o, nil
	}
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{MaxAge: observedMaxAge})
	if err == nil && (lb.State == stateCreating || lb.State == stateDeleting) {
		lb, err = r.waitUntilIdle(ctx, lb)
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && req.Purpose == services.Ensure:
		return observed{}, services.ErrGone
	case errors.Is(err, cloudapi.ErrNotFound):
		return observed{settings: o.settings, fault: o.fault}, nil
	case err != nil:
		return o, err
	}
	o.lb = lb
	return o, nil
}

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (d desired, findings []services.Finding, err error) {
	s := o.settings
	if o.fault != nil {
		return d, nil, o.fault
	}
	if o.lb != nil && o.lb.State == stateFailed {
		return d, []services.Finding{services.Warning(eventFailed, "%s %s (%s) has failed", r.kind.title, o.lb.Name, o.lb.ID)},
			fmt.Errorf("%s %s has failed; it is made again when it, or the Service, is deleted", r.kind.title, o.lb.Name)
	}
	refuse := func(err error) (desired, []services.Finding, error) {
		return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
	}
	if s, err = r.chooseVersions(ctx, req.Service, s, o.lb); err != nil {
		return refuse(err)
	}
	if req.Nodes, findings, err = r.instances.withAddresses(ctx, req.Nodes, backendAddresses(o.lb)); err != nil {
		return d, findings, err
	}
	d = desired{
		name: r.kind.name(req.Service), version: s.version(), listeners: s.desiredListeners(req.Service),
		sets: s.desiredSets(req.Service, req.Nodes), groups: s.groups(), ruleSets: s.ruleSets,
	}
	findings = append(findings, r.fit(d.sets, o.lb)...)
	if d.noNodes = haveNoBackends(d.sets); d.noNodes {
		findings = append(findings, r.withoutNodes(d.name))
	}
	more, err := r.desireOfKind(ctx, req.Service, s, o.lb, &d)
	if findings = append(findings, more...); err != nil {
		return refuse(err)
	}
	place, err := r.findPlacement(ctx, req.Service, s, o.lb)
	switch {
	case errors.Is(err, errPlace):
		return refuse(err)
	case err != nil:
		return d, findings, err
	}
	findings = append(findings, warnOfSingleStack(req.Service, place.ipv6 || d.version == versionBoth)...)
	if d.record = place.record(o.lb); o.lb == nil {
		if err := place.checkLoss(req.Service, r.compartments.hasSeen(d.name)); err != nil {
			return refuse(err)
		}
	}
	if err = r.groups.checkNamed(ctx, req.Service, s, o.lb); err != nil {
		return refuse(err)
	}
	more, err = r.desireRules(ctx, req, s, o, place, &d)
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
func (r *reconciler) desireCreation(s settings, lb *loadBalancer, place placement, d *desired) ([]services.Finding, error) {
	if lb != nil {
		return nil, nil
	}
	t, findings, err := s.creationTags(r.api.config.tags, place.mark)
	d.create = d.creation(s, place, t)
	return findings, err
}

// desireOfKind adds what one kind alone has, and checks the reserved address.
func (r *reconciler) desireOfKind(
	ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, d *desired,
) ([]services.Finding, error) {
	if !s.nlb {
		if err := r.desireBalancer(ctx, service, s, lb, d); err != nil {
			return nil, err
		}
	}
	kept, err := checkReserved(lb, s)
	if err != nil || kept == "" {
		return nil, err
	}
	return []services.Finding{services.Warning(eventIgnored, "%s", kept)}, nil
}

func (r *reconciler) withoutNodes(name string) services.Finding {
	return services.Warning(eventNoNodes, "no node can receive traffic; the backends of %s %s stay as they are", r.kind.title, name)
}

// Fixed implements services.Fixer.
func (r *reconciler) Fixed(ctx context.Context, _ services.Request, o observed, _ desired) ([]services.Fixed, error) {
	s := o.settings
	all := s.fixed(o.lb)
	if o.lb == nil || s.Subnet1 == "" || s.Subnet2 == "" {
		return all, nil
	}
	chosen, err := r.subnetsOf(ctx, s) // of two that are regional one alone counts
	if err != nil || !services.SameSet(chosen, o.lb.Subnets) {
		return all, err
	}
	return slices.DeleteFunc(all, func(f services.Fixed) bool { return f.Place == annotationSubnet1 || f.Place == annotationSubnet2 }), nil
}

// Complete has nothing to do: each change waits for its own work.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o observed, _ desired) (observed, error) {
	return o, nil
}

// Status implements services.Reconciler.
func (*reconciler) Status(req services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	status := o.settings.status(req.Service, o.lb)
	if len(status.Ingress) == 0 {
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("no ip addresses found for load balancer %q", o.lb.Name), lookAgain)
	}
	return status, nil
}

// status returns a load balancer's status, in the order that the Service already shows.
func (s settings) status(service *v1.Service, lb *loadBalancer) *v1.LoadBalancerStatus {
	shown := *lb
	if s.ExternalOnly && !lb.Private {
		shown.Addresses = slices.DeleteFunc(slices.Clone(shown.Addresses), func(a address) bool { return !a.Public })
	}
	return keepOrder(service, statusOf(&shown, s.IPMode))
}

// keepOrder returns a status in the order of the present one if both have the same addresses, so that nothing is written.
func keepOrder(service *v1.Service, status *v1.LoadBalancerStatus) *v1.LoadBalancerStatus {
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
func (*reconciler) Exists(_ context.Context, req services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		return &v1.LoadBalancerStatus{}, o.group != nil || len(o.left) > 0, nil
	}
	return o.settings.status(req.Service, o.lb), true, nil
}

// NodeChanges returns other backends for the backend sets that exist. Faults in annotations do not keep a node from joining or leaving.
func (r *reconciler) NodeChanges(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	if o.lb == nil || o.lb.State != stateActive && o.lb.State != stateUpdating {
		return nil, nil, nil
	}
	s := o.settings
	reached, findings, err := r.instances.withAddresses(ctx, req.Nodes, backendAddresses(o.lb))
	if err != nil {
		return nil, nil, err
	}
	want := s.inVersions(true, true).desiredSets(req.Service, reached)
	if haveNoBackends(want) {
		return nil, append(findings, r.withoutNodes(o.lb.Name)), nil
	}
	findings = append(findings, r.fit(want, o.lb)...)
	var all []change
	for _, name := range sortedKeys(want) {
		have, there := o.lb.BackendSets[name]
		if !there || len(fieldOf[[]any](want[name], "backends")) == 0 {
			continue
		}
		after, what := mergeSet(have, document{"backends": want[name]["backends"]}, false)
		if len(what) > 0 {
			all = append(all, r.planSetUpdate(name, have, after, what))
		}
	}
	rules, failed := r.nodeRules(ctx, req.Service, s.inVersion(o.lb.Version), o.lb, reached)
	return orderNodeChanges(rules, failed, r.whenIdle(o.lb, all)), findings, nil
}

// Deletions returns the changes that delete a Service's objects. Neither unreadable rules, such as those of a deleted subnet, nor faults in
// annotations delay it.
func (r *reconciler) Deletions(
	ctx context.Context, req services.Request, o observed,
) (all []change, findings []services.Finding, err error) {
	if o.lb != nil && !o.deletable {
		return nil, []services.Finding{services.Notice(eventLeft, "%s %s stays: it was not made for this Service", r.kind.title, o.lb.Name)}, nil
	}
	all, missed, err := r.leaveLists(ctx, req.Service, o)
	if err != nil {
		return nil, nil, err
	}
	if o.group != nil {
		edits, unseen, err := r.groups.planRemovals(ctx, req.Service, o.group, o.settings.BackGroups)
		if err != nil {
			return nil, nil, err
		}
		all, missed = append(all, r.groups.closings(edits)...), append(missed, unseen...)
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
		all = append(all, r.planDeletion(o.lb))
	}
	if o.group != nil {
		all = append(all, r.groups.planDeletion(o.group))
	}
	return all, findings, nil
}
