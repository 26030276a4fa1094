package oci

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file says which security rules a Service needs when: in security lists, or in network security groups.

// desireRules adds the changes of security rules.
func (r *common) desireRules(
	ctx context.Context, req services.Request, s settings, o observed, place placement, d *desired,
) ([]services.Finding, error) {
	asked, err := accessOf(req.Service, s.preserve)
	if err != nil {
		return nil, err
	}
	if err := r.desireGroup(ctx, req, s, asked, o, place, d); err != nil || o.lb == nil || len(o.lb.Addresses) == 0 {
		return nil, err
	}
	there := presentAccess(o.lb, asked.sources)
	request := s.ruleRequest(req.Service, o.lb, asked, there, s.eligible(req.Nodes))
	switch {
	case s.mode == modeAll || s.mode == modeFrontend:
		switch {
		case !d.noNodes:
		case req.Purpose == services.Plan:
			return nil, nil
		default: // no node is known, so that everything open stays
			return r.lists.findUnproved(ctx, request, nil)
		}
	case r.lists.hasRules(req.Service.UID):
		request.leaving, request.nodes = true, nil
	case s.mode == modeGroups:
		d.lists, err = r.lists.sweep(ctx, req.Service, o.lb)
		return nil, err
	default:
		return nil, nil
	}
	d.lists, _, err = r.lists.plan(ctx, request)
	d.former = there.portsLeft(asked)
	if err != nil || request.leaving {
		return nil, err
	}
	return r.lists.findUnproved(ctx, request, d.lists)
}

// desireGroup adds the changes of the Service's network security group.
func (r *common) desireGroup(
	ctx context.Context, req services.Request, s settings, asked access, o observed, place placement, d *desired,
) (err error) {
	switch {
	case s.mode != modeGroups && o.group == nil:
		return nil
	case s.mode != modeGroups: // it is not wanted any more
		var missed []error
		d.group.obsolete = o.group
		d.group.edits, missed, err = r.groups.planRemovals(ctx, req.Service, o.group, nil)
		missed = slices.DeleteFunc(missed, func(err error) bool { return errors.Is(err, cloudapi.ErrNotFound) })
		return errors.Join(append(missed, err)...)
	case o.lb == nil && req.Purpose != services.Plan && !isServed(req.Service):
		r.lists.noteSweep(req.Service.UID, true) // it never had rules in lists
	}
	backs := slices.Compact(slices.Sorted(slices.Values(s.BackGroups)))
	create := creationOfGroup(req.Service, place.compartment, place.vcn, place.mark)
	if d.group, err = r.groups.plan(ctx, req.Service, asked, create, o.group, backs); err == nil && o.group != nil {
		d.groups = append(d.groups, o.group.ID)
	}
	return err
}

// orderNodeChanges puts changes of backends after those of security lists, which let health checks reach nodes that join. A failed change
// of a list does not keep a node from joining or leaving: it is reported when the backends are done.
func orderNodeChanges(rules []change, failed error, backends []change) []change {
	if len(rules) == 0 && failed == nil {
		return backends
	}
	failures := []error{failed}
	all := make([]change, 0, len(rules)+len(backends)+1)
	for _, c := range rules {
		do := c.Make
		c.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			after, err := do(ctx, req, o)
			if err == nil || errors.Is(err, services.ErrGone) {
				return after, err
			}
			failures = append(failures, err)
			return o, nil
		}
		all = append(all, c)
	}
	return append(append(all, backends...), change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "security lists"}, Wait: true,
		Make: func(_ context.Context, _ *services.Request, o observed) (observed, error) {
			return o, errors.Join(failures...)
		},
	})
}

// nodeRules returns the changes of security lists for other nodes, at the ports that the load balancer has.
func (r *common) nodeRules(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, nodes []*v1.Node) ([]change, error) {
	sources, err := sourcesOf(service)
	if err != nil || s.mode != modeAll || len(lb.Addresses) == 0 {
		return nil, nil //nolint:nilerr // a fault in the Service keeps no node from joining
	}
	plans, _, err := r.lists.plan(ctx, s.ruleRequest(service, lb, presentAccess(lb, sources), access{}, s.eligible(nodes)))
	return r.lists.changes(service, plans), err
}

// leaveLists returns the changes by which a deleted Service leaves the security lists.
func (r *common) leaveLists(ctx context.Context, service *v1.Service, o observed) (all []change, missed []error, err error) {
	plans, s := o.left, o.settings
	r.lists.noteSweep(service.UID, false)
	switch {
	case o.lb != nil && !s.managesLists() && !r.lists.hasRules(service.UID):
		plans, _, err = r.lists.leftOfBefore(ctx, service, o.lb)
	case o.lb != nil:
		asked, unread := accessOf(service, s.preserve)
		if unread != nil {
			asked.sources = []string{everybody}
		}
		plans, missed, err = r.lists.plan(ctx, r.lists.requestRemoval(service, asked, s, o.lb))
	}
	return r.lists.changes(service, plans), missed, err
}

// leftOfBefore plans the removal of rules that an earlier process made in another mode; they bear the cluster's mark. Who may not see the
// lists has made none.
func (b *securityLists) leftOfBefore(
	ctx context.Context, service *v1.Service, lb *loadBalancer,
) (plans []listPlan, missed []error, err error) {
	if isUnmarked(lb) {
		return nil, nil, nil
	}
	return b.plan(ctx, ruleRequest{service: service, balancers: lb.Subnets, nodes: b.instances.nodes.Nodes(), leaving: true})
}

// sweep plans the removal of rules that an earlier process left in lists, for a Service that has a group now. It does so once, unless
// something cannot be read at the moment.
func (b *securityLists) sweep(ctx context.Context, service *v1.Service, lb *loadBalancer) ([]listPlan, error) {
	if b.hasSwept(service.UID) {
		return nil, nil
	}
	plans, missed, err := b.leftOfBefore(ctx, service, lb)
	missed = slices.DeleteFunc(append(missed, err), func(err error) bool { return err == nil || isLastingRefusal(err) })
	if len(plans)+len(missed) == 0 {
		b.noteSweep(service.UID, true)
	}
	if isLastingRefusal(err) {
		err = nil
	}
	return plans, err
}

// isUnmarked reports whether a load balancer was made by Oracle's own controller, which marks nothing and describes no rule.
func isUnmarked(lb *loadBalancer) bool { return lb.Tags[tagCluster] == "" }

func (s settings) managesLists() bool { return s.mode == modeAll || s.mode == modeFrontend }

// ruleRequest returns the needs of an existing load balancer.
func (s settings) ruleRequest(service *v1.Service, lb *loadBalancer, asked, former access, nodes []*v1.Node) ruleRequest {
	return ruleRequest{
		service: service, access: asked, former: former, frontend: s.mode == modeFrontend, balancers: lb.Subnets,
		nodes: nodes, ipv4: !s.ipv6Only, ipv6: s.ipv6, unmarked: isUnmarked(lb),
	}
}

// requestRemoval returns the request that removes a load balancer's rules from security lists.
func (b *securityLists) requestRemoval(service *v1.Service, asked access, s settings, lb *loadBalancer) ruleRequest {
	request := s.ruleRequest(service, lb, asked, presentAccess(lb, asked.sources), b.instances.nodes.Nodes())
	request.leaving = true
	for _, b := range lb.backends() {
		request.addresses = append(request.addresses, b.ip)
	}
	return request
}

// leftRules plans the removal of rules that a load balancer has left behind: those with the cluster's mark that no Service needs. It looks
// where the Service asks for a load balancer of this kind.
func (r *reconciler) leftRules(ctx context.Context, service *v1.Service, s settings) ([]listPlan, error) {
	if isNLBService(service) != s.nlb {
		return nil, nil
	}
	where := placement{}
	if err := r.placeInSubnets(ctx, service, s, &where); err != nil {
		if !isUnreachable(err) && !errors.Is(err, errPlace) {
			return nil, err
		}
		where.subnets = nil
	}
	// Whatever the mode: rules that others made stay as long as a Service has their port.
	if mark, err := r.cluster.Mark(ctx); err != nil || mark == "" && !r.lists.hasRules(service.UID) {
		return nil, err
	}
	plans, _, err := r.lists.plan(ctx, ruleRequest{
		service: service, balancers: where.subnets, nodes: r.instances.nodes.Nodes(), ipv4: !s.ipv6Only, ipv6: s.ipv6, leaving: true,
		frontend: s.mode == modeFrontend,
	})
	return plans, err
}
