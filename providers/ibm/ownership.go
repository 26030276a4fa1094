package ibm

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file finds the load balancer of a Service, and tells whether it is the Service's.

// Observe finds the load balancer by its name, in the VPC of the cluster: other VPCs may have one of the same name. That there is none is
// believed only of a credential that still sees the VPC.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (observation, error) {
	deletes := q.Purpose == services.Delete
	o, err := r.observe(ctx, q, deletes || q.Purpose == services.Lookup)
	if err == nil && (deletes || q.Purpose == services.Lookup && o.lb == nil) { // the deletion follows a look that finds a load balancer
		o.group, err = r.groupToDelete(ctx, q.Service)
	}
	return o, err
}

// observe finds the load balancer; goes says that the Service goes.
func (r *reconciler) observe(ctx context.Context, q services.Request, goes bool) (o observation, err error) {
	found, err := r.known.Find(ctx, indexName, r.name(q.Cluster, q.Service),
		inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err == nil && goes {
		o.left, err = r.formerLoadBalancers(ctx, q.Service, true)
	}
	if err != nil {
		return o, err
	}
	for _, lb := range found {
		ours, err := r.inVPC(ctx, lb)
		if err != nil {
			return o, err
		}
		if ours && lb.Provisioning == stateDeleting {
			if lb, err = r.readDeleting(ctx, q, lb); err != nil || lb == nil {
				return o, err
			}
		}
		if ours {
			o.lb = lb
			return o, nil
		}
	}
	age := observedMaxAge
	if goes {
		age = 0
		o.missing = r.missingNames(q.Service)
	}
	return o, r.sees(ctx, age)
}

// readDeleting looks at a load balancer that is being deleted: nil is one that has gone.
func (r *reconciler) readDeleting(ctx context.Context, q services.Request, lb *loadBalancer) (*loadBalancer, error) {
	now, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil, nil //nolint:nilnil // nil is a load balancer that does not exist
	case err != nil:
		return nil, err
	case now.Provisioning == stateDeleting && q.Purpose == services.Ensure:
		return nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" of before is being deleted", lookAgain)
	}
	return now, nil
}

// inVPC reports whether a load balancer is in the VPC of the cluster.
func (r *reconciler) inVPC(ctx context.Context, lb *loadBalancer) (bool, error) {
	for _, age := range []time.Duration{subnetsMaxAge, observedMaxAge} {
		all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: age})
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(lb.Subnets, func(n reference) bool {
			return slices.ContainsFunc(all, func(s subnet) bool { return s.ID == n.ID })
		}) {
			return true, nil
		}
	}
	return false, nil
}

// rules decide whose a load balancer is, by its name alone: it takes no mark. A name that was cut so far that others may have it counts
// together with the host name in the status, or with the nodes behind it. What has a name that an annotation chooses may be anybody's.
func (r *reconciler) rules(lb *loadBalancer) ownership.Rules {
	whole := ibmlimits.Name.Max-len(namePrefix)-1-len(r.config.Cluster) >= leastUID
	names := func(s *v1.Service) []string { return []string{ownName(r.config.Cluster, s)} }
	rules := ownership.Rules{
		Adopt: r.adopt, Unmarked: true, Made: r.alike.MatchString,
		Chosen:   func(s *v1.Service) []string { return words(r.chosenName(s)) },
		Recorded: func(s *v1.Service) bool { return slices.Contains(r.madeNames(s), r.chosenName(s)) },
		Proved:   func(s *v1.Service) bool { return r.proves(s, lb) }, Copied: r.isCopied,
		Names: func(s *v1.Service) (list []string) {
			if uid, known := r.proved.Load(lb.ID); known && uid == s.UID {
				list = append(list, lb.Name)
			}
			if whole {
				list = append(list, names(s)...)
			}
			return list
		},
	}
	if !whole {
		rules.Likely = names
	}
	return rules
}

func objectOf(lb *loadBalancer) ownership.Object {
	return ownership.Object{Title: "load balancer " + lb.Name, ID: lb.ID, Name: lb.Name, Addresses: []string{lb.Hostname}}
}

// CheckOwner decides whose the load balancer is.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, o observation) (observation, []services.Finding, error) {
	if o.lb == nil {
		return o, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, q.Service, objectOf(o.lb), r.rules(o.lb), func(ctx context.Context) (ownership.Targets, error) {
		return r.targets(ctx, q, o.lb)
	})
	if err != nil {
		return observation{}, nil, err
	}
	s, _, _ := parseSettings(q.Service)
	if decision.Verdict == ownership.Adopted || s.isRecorded(recordAdopted+o.lb.ID) {
		r.kept.Store(o.lb.ID, struct{}{})
	}
	_, kept := r.kept.Load(o.lb.ID)
	o.deletable = decision.Deletable && !kept
	refused := decision.Verdict == ownership.Refused
	wants := q.Purpose == services.Ensure || q.Purpose == services.Plan
	switch {
	case refused && wants:
		return observation{}, services.Refused(q.Service, decision), decision.Err()
	case refused && decision.Owner == nil:
		return observation{group: o.group, left: o.left, unproved: o.lb, foreign: true}, nil, nil
	case refused:
		return observation{group: o.group, left: o.left, foreign: true}, nil, nil
	case decision.Verdict == ownership.Owned:
		r.proved.Store(o.lb.ID, q.Service.UID)
	}
	if q.Purpose == services.Plan {
		o.lb, o.parts, err = r.partsOf(ctx, o.lb)
	}
	return o, nil, err
}

// targets are the members of a load balancer, as far as they tell whose it is: those on node ports of a Service, or on those that it had,
// which lead to what the instances of this cluster's nodes have. What a Node says of itself proves nothing.
func (r *reconciler) targets(ctx context.Context, q services.Request, lb *loadBalancer) (t ownership.Targets, err error) {
	lb, d, err := r.partsOf(ctx, lb)
	if err != nil {
		return t, err
	}
	others, err := r.cluster.Services(ctx)
	if err != nil {
		return t, err
	}
	nodes, all, members := map[target]bool{}, slices.Concat(q.Nodes, r.instances.nodes.Nodes()), currentTargets(d)
	// That something of before the records leads to somebody else's nodes alone is also believed of what the Nodes say.
	told := slices.ContainsFunc(all, func(n *v1.Node) bool { return members[reportedTarget(n, lb.isNetwork())] })
	if told && shows(q.Service, lb) {
		return t, nil
	}
	t.Strange = !told && len(members) > 0
	for _, n := range all {
		if !r.config.OwnWorkers() {
			break
		}
		one, err := r.instances.target(ctx, n, lb.isNetwork(), len(q.Nodes))
		if err != nil {
			return t, err
		}
		nodes[one] = one != target{}
		t.Strange = t.Strange && !members[one]
	}
	t.Made = isMadeFor(q.Service, others, d)
	had := t.Made && q.Service.Spec.Type != v1.ServiceTypeLoadBalancer
	for _, p := range d.pools {
		for _, m := range p.Members {
			t.All++
			serves := slices.ContainsFunc(q.Service.Spec.Ports, func(p v1.ServicePort) bool { return int(p.NodePort) == m.Port })
			if nodes[m.Target] && (serves || had) {
				t.Ours++
			}
			t.Ports = append(t.Ports, int32(m.Port)) //nolint:gosec // a port
		}
	}
	return t, nil
}

// poolForm is that of the names that controllers give to pools: protocol, port or ports, and node port.
var poolForm = regexp.MustCompile(`^(tcp|udp)-([0-9]+)(?:x[0-9]+)?-([0-9]+)$`)

// isMadeFor reports whether pools are what a controller makes for a Service: each has the name of a port and of the node port that all its
// members have, at least one of them of the Service, and no node port is another Service's. Kubernetes takes the node ports from a Service
// that becomes one of another type.
func isMadeFor(service *v1.Service, others []*v1.Service, d *details) bool {
	own := false
	for _, p := range d.pools {
		name := poolForm.FindStringSubmatch(p.Name)
		if name == nil {
			return false
		}
		nodePort, _ := strconv.Atoi(name[3]) // digits
		has := func(s *v1.Service) bool {
			return slices.ContainsFunc(s.Spec.Ports, func(sp v1.ServicePort) bool { return int(sp.NodePort) == nodePort })
		}
		if nodePort == 0 || slices.ContainsFunc(p.Members, func(m member) bool { return m.Port != nodePort }) ||
			slices.ContainsFunc(others, func(s *v1.Service) bool { return s.UID != service.UID && has(s) }) {
			return false
		}
		own = own || slices.ContainsFunc(service.Spec.Ports, func(sp v1.ServicePort) bool {
			had := sp.NodePort == 0 && service.Spec.Type != v1.ServiceTypeLoadBalancer
			return strings.EqualFold(string(sp.Protocol), name[1]) && strconv.Itoa(int(sp.Port)) == name[2] && (int(sp.NodePort) == nodePort || had)
		})
	}
	return own
}

// maxDisagreements bounds how often a load balancer and its listings are read again where they do not show the same.
const maxDisagreements = 2

// partsOf reads listeners, pools and members, unless what is known of them still is what the load balancer shows. Where that shows others
// even when both are read again, somebody changes it just now, or one of the answers is old: nothing is computed from either.
func (r *reconciler) partsOf(ctx context.Context, lb *loadBalancer) (*loadBalancer, *details, error) {
	d, err := r.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	for try := 0; err == nil && d.summary() != lb.shownParts(); try++ {
		if try == maxDisagreements {
			return lb, nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" and its listings show different listeners or pools", lookAgain)
		}
		if d, err = r.parts.Get(ctx, lb.ID, inventory.Query{}); err != nil || d.summary() == lb.shownParts() {
			break
		}
		now, readErr := r.known.Get(ctx, lb.ID, inventory.Query{})
		switch {
		case errors.Is(readErr, cloudapi.ErrNotFound):
			return lb, nil, services.ErrGone
		case readErr != nil:
			return lb, nil, readErr
		}
		lb = now
	}
	return lb, d, cloudapi.NotAbsence(err)
}

// shows reports whether the status of a Service shows a load balancer.
func shows(service *v1.Service, lb *loadBalancer) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return in.Hostname != "" && strings.EqualFold(in.Hostname, lb.Hostname)
	})
}

// missingNames are host names that the status of a Service shows, and no load balancer has, nor had before this process deleted it. That
// somebody deleted it by hand is one reason; that the credential may not see load balancers any more is another, and no answer tells.
func (r *reconciler) missingNames(service *v1.Service) (names []string) {
	all := r.known.PeekAll()
	for _, in := range service.Status.LoadBalancer.Ingress {
		name := strings.ToLower(in.Hostname)
		_, deleted := r.deleted.Load(name)
		if name != "" && !deleted && !slices.ContainsFunc(all, func(lb *loadBalancer) bool { return strings.EqualFold(lb.Hostname, name) }) {
			names = append(names, name)
		}
	}
	return names
}

// formerLoadBalancers are load balancers in the VPC that a Service had under other names: its status or its record tells, or, where own is
// set, the name that holds its UID. What another Service has is not among them.
func (r *reconciler) formerLoadBalancers(ctx context.Context, service *v1.Service, own bool) (list []*loadBalancer, err error) {
	names := r.madeNames(service)
	if own && r.made.MatchString(ownName(r.config.Cluster, service)) {
		names = append(names, ownName(r.config.Cluster, service))
	}
	for _, lb := range r.known.PeekAll() {
		if lb.Name == r.name("", service) || lb.Provisioning == stateDeleting || (!slices.Contains(names, lb.Name) && !shows(service, lb)) {
			continue
		}
		ours, err := r.inVPC(ctx, lb)
		if err != nil {
			return nil, err
		}
		others, err := r.cluster.Services(ctx)
		if err != nil {
			return nil, err
		}
		if ours && !slices.ContainsFunc(others, func(s *v1.Service) bool { return s.UID != service.UID && r.holds(s, lb) }) {
			list = append(list, lb)
		}
	}
	slices.SortFunc(list, func(a, b *loadBalancer) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// findLost tells of what a Service shows, or had, and is not its load balancer any more.
func (r *reconciler) findLost(
	ctx context.Context, service *v1.Service, name string, o observation,
) (findings []services.Finding, err error) {
	left, err := r.formerLoadBalancers(ctx, service, o.lb == nil)
	for _, lb := range left {
		findings = append(findings, services.Warning(eventLeft, "load balancer %s (%s) stays, and %s takes its place; delete it if nobody needs it", lb.Name, lb.ID, name))
	}
	if err != nil || len(left) > 0 || o.lb != nil {
		return findings, err
	}
	for _, in := range service.Status.LoadBalancer.Ingress {
		if in.Hostname != "" {
			return []services.Finding{services.Warning(eventGone, "load balancer %s with the host name %s is there no longer; it is made again, with another host name", name, in.Hostname)}, nil
		}
	}
	return nil, nil
}
