package ibm

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// This file finds the load balancer of a Service, and tells whether it is the Service's.

// Observe finds the load balancer by its name, in the VPC of the cluster: other VPCs may have one of the same name. That there is none is
// believed only of a credential that still sees the VPC.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (observed, error) {
	deletes := req.Purpose == services.Delete
	o, err := r.finder.observe(ctx, req, deletes || req.Purpose == services.Lookup)
	if err == nil && (deletes || req.Purpose == services.Lookup && o.lb == nil) { // the deletion follows a look that finds a load balancer
		o.group, err = r.security.findToDelete(ctx, req.Service, o.settings)
	}
	return o, err
}

// CheckOwner decides whose the load balancer is.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	if o.lb == nil {
		return o, nil, nil
	}
	rules := r.finder.rules(o.lb)
	decision, err := r.finder.cluster.Judge(ctx, req.Service, objectOf(o.lb), rules, func(ctx context.Context) (ownership.Targets, error) {
		return r.finder.targets(ctx, req, o.lb)
	})
	if err != nil {
		return observed{}, nil, err
	}
	if decision.Verdict == ownership.Adopted || o.settings.isRecorded(recordAdopted+o.lb.ID) {
		r.kept.Store(o.lb.ID, struct{}{})
	}
	_, kept := r.kept.Load(o.lb.ID)
	o.deletable = decision.Deletable && !kept
	refused := decision.Verdict == ownership.Refused
	wants := req.Purpose == services.Ensure || req.Purpose == services.Plan
	switch {
	case refused && wants:
		return observed{}, services.Refused(req.Service, decision), decision.Err()
	case refused && decision.Owner == nil:
		return observed{settings: o.settings, group: o.group, left: o.left, unproved: o.lb, foreign: true}, nil, nil
	case refused:
		return observed{settings: o.settings, group: o.group, left: o.left, foreign: true}, nil, nil
	case decision.Verdict == ownership.Owned:
		r.finder.proved.Store(o.lb.ID, req.Service.UID)
	}
	if req.Purpose == services.Plan {
		o.lb, o.parts, err = r.partsOf(ctx, o.lb)
	}
	return o, nil, err
}

// finder finds load balancers, and knows whose they are.
type finder struct {
	*balancers
	records *records
	adopt   registry.Adoption
	cluster ownership.Cluster
	// made are the whole names of load balancers of Services of this cluster, alike those that were cut as well.
	made, alike *regexp.Regexp
	// proved are the UIDs of the Services whose load balancers this process has made, or seen to be theirs, by the ID of the load
	// balancer: Kubernetes takes away what shows it when a Service becomes one of another type.
	proved sync.Map
	// deleted are the host names of load balancers that this process deleted.
	deleted sync.Map
}

// observe finds the load balancer; goes says that the Service goes.
func (f *finder) observe(ctx context.Context, req services.Request, goes bool) (o observed, err error) {
	o.settings, _, _ = parseSettings(req.Service) // Validate tells of faults; they hinder neither a deletion nor nodes
	found, err := f.known.Find(ctx, indexName, f.records.name(req.Cluster, req.Service),
		inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err == nil && goes {
		o.left, err = f.formerLoadBalancers(ctx, req.Service, true)
	}
	if err != nil {
		return o, err
	}
	for _, lb := range found {
		ours, err := f.instances.inVPC(ctx, lb)
		if err != nil {
			return o, err
		}
		if ours && lb.Provisioning == stateDeleting {
			if lb, err = f.readDeleting(ctx, req, lb); err != nil || lb == nil {
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
		o.missing = f.missingNames(req.Service)
	}
	return o, f.instances.seesVPC(ctx, age)
}

// readDeleting looks at a load balancer that is being deleted: nil is one that has gone.
func (f *finder) readDeleting(ctx context.Context, req services.Request, lb *loadBalancer) (*loadBalancer, error) {
	now, err := f.known.Get(ctx, lb.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil, nil //nolint:nilnil // nil is a load balancer that does not exist
	case err != nil:
		return nil, err
	case now.Provisioning == stateDeleting && req.Purpose == services.Ensure:
		return nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" of before is being deleted", lookAgain)
	}
	return now, nil
}

// rules decide whose a load balancer is, by its name alone: it takes no mark. A name that was cut so far that others may have it counts
// together with the host name in the status, or with the nodes behind it. What has a name that an annotation chooses may be anybody's.
func (f *finder) rules(lb *loadBalancer) ownership.Rules {
	whole := ibmlimits.Name.Max-len(namePrefix)-1-len(f.api.config.Cluster) >= leastUID
	names := func(s *v1.Service) []string { return []string{ownName(f.api.config.Cluster, s)} }
	rules := ownership.Rules{
		Adopt: f.adopt, Unmarked: true, Made: f.alike.MatchString,
		Chosen:   func(s *v1.Service) []string { return words(f.records.chosenName(s)) },
		Recorded: func(s *v1.Service) bool { return slices.Contains(f.records.madeNames(s), f.records.chosenName(s)) },
		Proved:   func(s *v1.Service) bool { return f.records.proves(s, lb) }, Copied: f.records.isCopied,
		Names: func(s *v1.Service) (list []string) {
			if uid, known := f.proved.Load(lb.ID); known && uid == s.UID {
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

// targets are the members of a load balancer, as far as they tell whose it is: those on node ports of a Service, or on those that it had,
// which lead to what the instances of this cluster's nodes have. What a Node says of itself proves nothing.
func (f *finder) targets(ctx context.Context, req services.Request, lb *loadBalancer) (t ownership.Targets, err error) {
	lb, d, err := f.partsOf(ctx, lb)
	if err != nil {
		return t, err
	}
	others, err := f.cluster.Services(ctx)
	if err != nil {
		return t, err
	}
	nodes, all, members := map[target]bool{}, slices.Concat(req.Nodes, f.instances.nodes.Nodes()), currentTargets(d)
	// That something of before the records leads to somebody else's nodes alone is also believed of what the Nodes say.
	told := slices.ContainsFunc(all, func(n *v1.Node) bool { return members[reportedTarget(n, lb.isNetwork())] })
	if told && shows(req.Service, lb) {
		return t, nil
	}
	t.Strange = !told && len(members) > 0
	for _, n := range all {
		if !f.api.config.OwnWorkers() {
			break
		}
		one, _, err := f.instances.findTarget(ctx, n, lb.isNetwork(), len(req.Nodes))
		if err != nil {
			return t, err
		}
		nodes[one] = one != target{}
		t.Strange = t.Strange && !members[one]
	}
	t.Made = isMadeFor(req.Service, others, d)
	had := t.Made && req.Service.Spec.Type != v1.ServiceTypeLoadBalancer
	for _, p := range d.pools {
		for _, m := range p.Members {
			t.All++
			serves := slices.ContainsFunc(req.Service.Spec.Ports, func(p v1.ServicePort) bool { return int(p.NodePort) == m.Port })
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

// shows reports whether the status of a Service shows a load balancer.
func shows(service *v1.Service, lb *loadBalancer) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return in.Hostname != "" && strings.EqualFold(in.Hostname, lb.Hostname)
	})
}

// missingNames are host names that the status of a Service shows, and no load balancer has, nor had before this process deleted it. That
// somebody deleted it by hand is one reason; that the credential may not see load balancers any more is another, and no answer tells.
func (f *finder) missingNames(service *v1.Service) (names []string) {
	all := f.known.PeekAll()
	for _, in := range service.Status.LoadBalancer.Ingress {
		name := strings.ToLower(in.Hostname)
		_, deleted := f.deleted.Load(name)
		if name != "" && !deleted && !slices.ContainsFunc(all, func(lb *loadBalancer) bool { return strings.EqualFold(lb.Hostname, name) }) {
			names = append(names, name)
		}
	}
	return names
}

// formerLoadBalancers are load balancers in the VPC that a Service had under other names: its status or its record tells, or, where own is
// set, the name that holds its UID. What another Service has is not among them.
func (f *finder) formerLoadBalancers(ctx context.Context, service *v1.Service, own bool) (list []*loadBalancer, err error) {
	names := f.records.madeNames(service)
	if own && f.made.MatchString(ownName(f.api.config.Cluster, service)) {
		names = append(names, ownName(f.api.config.Cluster, service))
	}
	for _, lb := range f.known.PeekAll() {
		had := slices.Contains(names, lb.Name) || shows(service, lb)
		if !had || lb.Name == f.records.name("", service) || lb.Provisioning == stateDeleting {
			continue
		}
		ours, err := f.instances.inVPC(ctx, lb)
		if err != nil {
			return nil, err
		}
		others, err := f.cluster.Services(ctx)
		if err != nil {
			return nil, err
		}
		if ours && !slices.ContainsFunc(others, func(s *v1.Service) bool { return s.UID != service.UID && f.holds(s, lb) }) {
			list = append(list, lb)
		}
	}
	slices.SortFunc(list, func(a, b *loadBalancer) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// holds reports whether a Service has a load balancer, or may: whatever its annotations say, the name of one holds its UID.
func (f *finder) holds(s *v1.Service, lb *loadBalancer) bool {
	return lb.Name == ownName(f.api.config.Cluster, s) || ownership.Holds(s, objectOf(lb), f.rules(lb))
}

// findLost tells of what a Service shows, or had, and is not its load balancer any more.
func (f *finder) findLost(
	ctx context.Context, service *v1.Service, name string, o observed,
) (findings []services.Finding, err error) {
	left, err := f.formerLoadBalancers(ctx, service, o.lb == nil)
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
