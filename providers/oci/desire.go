package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file has the parts of what is desired that are read: where a load balancer is, its address, and its security rules.

// errPlace is returned if the load balancer cannot be created where the Service requests it.
var errPlace = errors.New("the load balancer cannot be made as the Service asks for it")

func misplaced(err error) error { return fmt.Errorf("%w: %w", errPlace, err) }

// placement is where a load balancer is, or is to be.
type placement struct {
	compartment, vcn, mark string
	// asked is the compartment that the Service asks for, which counts when a load balancer is made.
	asked string
	// configured is that of the cloud config, and recorded the one that the Service has on record.
	configured, recorded string
	subnets              []string
	// reserved is the ID of the public address that is to be used; "" is none.
	reserved string
	six      bool
}

const byAddressPath = "/publicIps/actions/getByIpAddress"

// judgeKept compares what cannot be changed after the creation with what the Service asks for. notice says what stays different without
// harm.
func judgeKept(lb *loadBalancer, s settings) (notice string, err error) {
	if lb == nil {
		return "", nil
	}
	reserved := slices.IndexFunc(lb.Addresses, func(a address) bool { return a.Reserved != nil })
	has := slices.ContainsFunc(lb.Addresses, func(a address) bool { return a.IP == s.Address })
	switch {
	case s.Address != "" && !has && len(lb.Addresses) > 0:
		return "", s.refuseAddress("The Load Balancer service reserved IP cannot be updated after the Load Balancer is created.")
	case s.Address == "" && reserved >= 0:
		return fmt.Sprintf("load balancer %s keeps its reserved address %s until it is made again", lb.Name, lb.Addresses[reserved].IP), nil
	}
	return "", nil
}

// fixed lists settings that count only at creation, for an existing load balancer.
func (s settings) fixed(lb *loadBalancer) []services.Fixed {
	if lb == nil {
		return nil
	}
	own, internal, subnet, free, defined := s.ownTags(), annotationInternal, annotationSubnet1, annotationFreeform, annotationDefined
	if s.network {
		internal, subnet, free, defined = networkInternal, networkSubnet, networkNewFreeform, networkNewDefined
	}
	if s.OldFreeform != "" && s.Freeform == s.OldFreeform {
		free = networkFreeform
	}
	if s.OldDefined != "" && s.Defined == s.OldDefined {
		defined = networkDefined
	}
	all := []services.Fixed{
		services.Single(annotationCompartment, s.OwnCompartment, cmp.Or(lb.Compartment, s.OwnCompartment)),
		lb.fixedSubnet(subnet, s.Subnet1), lb.fixedSubnet(annotationSubnet2, s.Subnet2),
		fixedTags(free, own.Freeform, lb.Tags), fixedTags(defined, flatTags(own.Defined), flatTags(lb.Defined)),
		lb.fixedAddress(networkPrivateIPv4, s.PrivateIPv4, netip.Addr.Is4), lb.fixedAddress(networkIPv6, s.IPv6, netip.Addr.Is6),
	}
	if len(lb.Addresses) > 0 {
		private := !slices.ContainsFunc(lb.Addresses, func(a address) bool { return a.Public })
		all = append(all, services.Single(internal, strconv.FormatBool(s.Internal), strconv.FormatBool(private)))
	}
	return all
}

// fixedAddress is an address of a family, of which a load balancer may have several; one that has none says nothing.
func (lb *loadBalancer) fixedAddress(key, asked string, family func(netip.Addr) bool) services.Fixed {
	wanted, _ := netip.ParseAddr(asked)
	var has []string
	for _, a := range lb.Addresses {
		if ip, err := netip.ParseAddr(a.IP); err == nil && family(ip) {
			if has = append(has, a.IP); ip == wanted {
				return services.Matching(key, asked, "", true)
			}
		}
	}
	return services.Matching(key, asked, strings.Join(has, ","), len(has) == 0)
}

// fixedSubnet is a subnet that a load balancer may have, beside others.
func (lb *loadBalancer) fixedSubnet(key, asked string) services.Fixed {
	return services.Matching(key, asked, strings.Join(lb.Subnets, ","), slices.Contains(lb.Subnets, asked))
}

// fixedTags are those that a load balancer was made with, as far as they are asked for.
func fixedTags(key string, asked, has map[string]string) services.Fixed {
	f := services.Fixed{Place: key}
	for _, name := range sortedKeys(asked) {
		f.Asked = append(f.Asked, name+"="+asked[name])
		if v, there := has[name]; there {
			f.Has = append(f.Has, name+"="+v)
		}
	}
	return f
}

// flatTags are defined tags, each with its namespace.
func flatTags(defined map[string]map[string]any) map[string]string {
	all := map[string]string{}
	for namespace, tags := range defined {
		for name, v := range tags {
			all[namespace+"."+name] = fmt.Sprint(v)
		}
	}
	return all
}

// wantsSix is how much a Service wants IPv6 beside IPv4; "" is not at all.
func wantsSix(service *v1.Service) v1.IPFamilyPolicy {
	policy := service.Spec.IPFamilyPolicy
	if policy == nil || !slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) || *policy == v1.IPFamilyPolicySingleStack {
		return ""
	}
	return *policy
}

// singleStack tells of a Service that asks for two families and gets one.
func singleStack(service *v1.Service, both bool) []services.Finding {
	if both || wantsSix(service) == "" {
		return nil
	}
	return []services.Finding{services.Warning(services.EventSingleStack, "spec.ipFamilies: the load balancer has addresses of one family alone: its subnets lack "+
		"the other one, or lacked it when it was made")}
}

// placeFor finds where the load balancer of a Service is, or is to be.
func (r *reconciler) placeFor(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) (p placement, err error) {
	where, err := r.api.location(ctx)
	if err != nil {
		return p, cloudapi.Describe(err, "finding the compartment of the cluster")
	}
	p.compartment, p.configured, p.vcn = where.compartment, where.compartment, r.config.VCN
	p.recorded = service.Annotations[annotationPlaced]
	if s.OwnCompartment != "" {
		p.compartment = s.OwnCompartment
	}
	p.asked = p.compartment
	if p.mark, err = r.cluster.Mark(ctx); err != nil {
		return p, err
	}
	if lb != nil {
		p.subnets, p.compartment, p.six = lb.Subnets, lb.Compartment, lb.IPMode == versionIPv6
	} else if err := r.choosePlace(ctx, service, s, &p); err != nil {
		return p, cloudapi.NotAbsence(err)
	}
	if p.vcn == "" && s.mode == modeGroups && len(p.subnets) > 0 {
		found, err := r.subnets.Get(ctx, p.subnets[0], inventory.Query{MaxAge: subnetMaxAge})
		if err != nil {
			return p, cloudapi.NotAbsence(err)
		}
		p.vcn = found.VCN
	}
	return p, nil
}

// choosePlace is where a new load balancer is to be.
func (r *reconciler) choosePlace(ctx context.Context, service *v1.Service, s settings, p *placement) (err error) {
	if err := r.chooseSubnets(ctx, service, s, p); err != nil || s.Address == "" {
		return err // "not found" is told apart where it matters
	}
	p.reserved, err = r.reservedAddress(ctx, s)
	return err
}

// subnetsOf are the subnets of a new load balancer of a Service.
func (r *reconciler) subnetsOf(ctx context.Context, s settings) ([]string, error) {
	return s.chooseSubnets(r.config.Subnet1, r.config.Subnet2, func(id string) (bool, error) {
		found, err := r.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		return found.Domain == "", err
	})
}

// chooseSubnets is where a new load balancer is to be, and whether it has addresses of IPv6 as well.
func (r *reconciler) chooseSubnets(ctx context.Context, service *v1.Service, s settings, p *placement) (err error) {
	if s.network {
		p.subnets = []string{cmp.Or(s.Subnet1, r.config.Subnet1)}
		return nil
	}
	p.subnets, err = r.subnetsOf(ctx, s)
	if errors.Is(err, errNoSubnet) {
		return misplaced(err)
	}
	policy := wantsSix(service)
	if err != nil || policy == "" {
		return err
	}
	p.six = true
	for _, id := range p.subnets {
		found, err := r.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		p.six = p.six && len(found.networks(false, true)) > 0
		if !p.six && policy == v1.IPFamilyPolicyRequireDualStack {
			return misplaced(fmt.Errorf("subnet %s has no network of IPv6", id))
		}
	}
	return nil
}

// desireBalancer adds the shape and the certificates, which network load balancers do not have.
func (r *reconciler) desireBalancer(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, d *spec) (err error) {
	if d.shape, d.details, err = s.shapeFor(lb); err != nil {
		return err
	}
	front, back, err := r.certificates(ctx, service, s)
	if err != nil {
		return err
	}
	d.speakTLS(service, s, lb, front, back)
	d.secrets = r.secretsOf(service.UID, d.secrets)
	return nil
}

// refuseAddress returns an error about the reserved address that a Service requests.
func (s settings) refuseAddress(format string, args ...any) error {
	return &schema.Problem{Place: s.addressPlace, Value: s.Address, Reason: fmt.Sprintf(format, args...)}
}

// reservedAddress finds the ID of a reserved public address that is free.
func (r *sharedParts) reservedAddress(ctx context.Context, s settings) (string, error) {
	ip := s.Address
	var found struct {
		ID      string `json:"id"`
		Address string `json:"ipAddress"`
		State   string `json:"lifecycleState"`
	}
	what := "looking for the reserved address " + ip
	_, err := r.api.call(ctx, what, http.MethodPost, byAddressPath, document{"ipAddress": ip}, &found, "")
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", misplaced(s.refuseAddress("there is no such reserved public address, or the policies of the user hide it"))
	case err != nil:
		return "", err
	case found.ID == "" || found.Address != ip:
		return "", cloudapi.Unclear(what, "the answer is about another one")
	case found.State != "AVAILABLE":
		return "", misplaced(s.refuseAddress("is not free: the address is %s", found.State))
	}
	return found.ID, nil
}

// desireRules adds what is to become of security rules.
func (r *sharedParts) desireRules(
	ctx context.Context, q services.Request, s settings, o observation, place placement, d *spec,
) ([]services.Finding, error) {
	asked, err := accessOf(q.Service, s.preserve)
	if err != nil {
		return nil, err
	}
	if err := r.desireGroup(ctx, q, s, asked, o, place, d); err != nil || o.lb == nil || len(o.lb.Addresses) == 0 {
		return nil, err
	}
	there := accessThere(o.lb, asked.sources)
	request := ruleRequest{
		service: q.Service, access: asked, former: there, frontend: s.mode == modeFrontend, balancers: o.lb.Subnets,
		nodes: s.eligible(q.Nodes), four: !s.sixAlone, six: s.six, unmarked: unmarked(o.lb),
	}
	switch {
	case s.mode == modeAll || s.mode == modeFrontend:
		switch {
		case !d.noNodes:
		case q.Purpose == services.Plan:
			return nil, nil
		default: // nothing is known of where nodes are: what is open stays
			return r.book.unproved(ctx, request, nil)
		}
	case r.book.holds(q.Service.UID):
		request.leaving, request.nodes = true, nil
	case s.mode == modeGroups:
		d.lists, err = r.sweep(ctx, q.Service, o.lb)
		return nil, err
	default:
		return nil, nil
	}
	d.lists, _, err = r.book.plan(ctx, request)
	d.former = there.leftFor(asked)
	if err != nil || request.leaving {
		return nil, err
	}
	return r.book.unproved(ctx, request, d.lists)
}

// desireGroup adds what is to become of the network security group of a Service.
func (r *sharedParts) desireGroup(
	ctx context.Context, q services.Request, s settings, asked access, o observation, place placement, d *spec,
) (err error) {
	switch {
	case s.mode != modeGroups && o.group == nil:
		return nil
	case s.mode != modeGroups:
		return r.desireNoGroup(ctx, q.Service, o.group, d)
	case o.lb == nil && q.Purpose != services.Plan && !isServed(q.Service):
		r.book.noteSweep(q.Service.UID, true) // it never had rules in lists
	}
	backs := slices.Compact(slices.Sorted(slices.Values(s.BackGroups)))
	create := creationOfGroup(q.Service, place.compartment, place.vcn, place.mark)
	if d.group, err = r.groups.plan(ctx, q.Service, asked, create, o.group, backs); err == nil && o.group != nil {
		d.groups = append(d.groups, o.group.ID)
	}
	return err
}

// desireNoGroup ends what a group was for that is not wanted any more.
func (r *sharedParts) desireNoGroup(ctx context.Context, service *v1.Service, group *securityGroup, d *spec) error {
	front, err := r.groups.rules.Get(ctx, group.ID, inventory.Query{MaxAge: observedMaxAge})
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	d.group.obsolete = group
	for _, id := range backsOf(front.Rules, service) {
		there, err := r.groups.rules.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			continue
		case err != nil:
			return err
		}
		e := groupEdit{id: id}
		if _, e.remove = ruleDifference(there.Rules, nil, service); len(e.remove) > 0 {
			d.group.edits = append(d.group.edits, e)
		}
	}
	return nil
}

// between puts changes of backends behind those of security lists, which let health checks reach nodes that join. What is wrong with
// security lists keeps no node from joining or leaving: it is told when the backends are done.
func between(rules, backends []change) []change {
	if len(rules) == 0 {
		return backends
	}
	var failures []error
	all := make([]change, 0, len(rules)+len(backends)+1)
	for _, c := range rules {
		do := c.Make
		c.Make = func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			after, err := do(ctx, q, o)
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
		Make: func(_ context.Context, _ *services.Request, o observation) (observation, error) {
			return o, errors.Join(failures...)
		},
	})
}

// nodeRules are the changes of security lists that other nodes need: the ports are those that the load balancer has.
func (r *sharedParts) nodeRules(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, nodes []*v1.Node) []change {
	sources, err := sourcesOf(service)
	if err != nil || s.mode != modeAll || len(lb.Addresses) == 0 {
		return nil // a fault in the Service keeps no node from joining
	}
	plans, _, err := r.book.plan(ctx, ruleRequest{
		service: service, access: accessThere(lb, sources), balancers: lb.Subnets, nodes: s.eligible(nodes), four: !s.sixAlone, six: s.six,
		unmarked: unmarked(lb),
	})
	if err != nil {
		return []change{{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "security lists"}, Wait: true,
			Make: func(_ context.Context, _ *services.Request, o observation) (observation, error) { return o, err },
		}}
	}
	return ruleChanges(r.book, service, plans)
}

// leaveLists are the changes by which a Service that goes leaves the security lists.
func (r *sharedParts) leaveLists(
	ctx context.Context, service *v1.Service, s settings, o observation,
) (all []change, missed []error, err error) {
	plans := o.left
	r.book.noteSweep(service.UID, false)
	switch {
	case o.lb != nil && !s.managesLists() && !r.book.holds(service.UID):
		plans, _, err = r.leftOfBefore(ctx, service, o.lb)
		return ruleChanges(r.book, service, plans), nil, err
	case o.lb != nil:
		asked, err := accessOf(service, s.preserve)
		if err != nil {
			asked.sources = []string{everybody}
		}
		if plans, missed, err = r.book.plan(ctx, r.leaving(service, asked, s, o.lb)); err != nil {
			return nil, nil, err
		}
	}
	return ruleChanges(r.book, service, plans), missed, nil
}

// leftOfBefore are rules that a process before this one made in a mode of before: this cluster has marked them. Who may not see the
// lists has made none.
func (r *sharedParts) leftOfBefore(
	ctx context.Context, service *v1.Service, lb *loadBalancer,
) (plans []listPlan, missed []error, err error) {
	if unmarked(lb) {
		return nil, nil, nil
	}
	return r.book.plan(ctx, ruleRequest{service: service, balancers: lb.Subnets, nodes: r.instances.nodes.Nodes(), leaving: true})
}

// sweep plans the removal of what a process before this one left in lists of a Service that has a group: once, unless something cannot be
// read for now.
func (r *sharedParts) sweep(ctx context.Context, service *v1.Service, lb *loadBalancer) ([]listPlan, error) {
	if r.book.hasSwept(service.UID) {
		return nil, nil
	}
	plans, missed, err := r.leftOfBefore(ctx, service, lb)
	missed = slices.DeleteFunc(append(missed, err), func(err error) bool { return err == nil || isLasting(err) })
	if len(plans)+len(missed) == 0 {
		r.book.noteSweep(service.UID, true)
	}
	if isLasting(err) {
		err = nil
	}
	return plans, err
}

// unmarked reports whether a load balancer was made by Oracle's own controller, which marks nothing and describes no rule.
func unmarked(lb *loadBalancer) bool { return lb.Tags[tagCluster] == "" }

func (s settings) managesLists() bool { return s.mode == modeAll || s.mode == modeFrontend }

// leaving returns the request that removes a load balancer's rules from security lists.
func (r *sharedParts) leaving(service *v1.Service, asked access, s settings, lb *loadBalancer) ruleRequest {
	request := ruleRequest{
		service: service, access: asked, former: accessThere(lb, asked.sources), frontend: s.mode == modeFrontend, balancers: lb.Subnets,
		nodes: r.instances.nodes.Nodes(), four: !s.sixAlone, six: s.six, leaving: true, unmarked: unmarked(lb),
	}
	for _, set := range lb.BackendSets {
		for _, v := range listOf(set["backends"]) {
			backend, _ := v.(document)
			ip, _ := backend["ipAddress"].(string)
			request.addresses = append(request.addresses, ip)
		}
	}
	return request
}

// leftRules are the rules that are left of a load balancer which is gone: those that this cluster has marked, and that nobody needs. They
// are looked for where the Service asks for a load balancer of this kind.
func (r *reconciler) leftRules(ctx context.Context, service *v1.Service) ([]listPlan, error) {
	if isNetworkService(service) != (r.kind.word == typeNetwork) {
		return nil, nil
	}
	s, where := r.settings(service), placement{}
	if err := r.chooseSubnets(ctx, service, s, &where); err != nil {
		if !unreachable(err) && !errors.Is(err, errPlace) {
			return nil, err
		}
		where.subnets = nil
	}
	// Whatever the mode: rules that others made stay as long as a Service has their port.
	if mark, err := r.cluster.Mark(ctx); err != nil || mark == "" && !r.book.holds(service.UID) {
		return nil, err
	}
	plans, _, err := r.book.plan(ctx, ruleRequest{
		service: service, balancers: where.subnets, nodes: r.instances.nodes.Nodes(), four: !s.sixAlone, six: s.six, leaving: true,
		frontend: s.mode == modeFrontend,
	})
	return plans, err
}
