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

// This file finds the load balancer of a Service, and decides whether it is the Service's.

// Observe finds the load balancer by its name, in the VPC of the cluster: other VPCs may have one of the same name. It counts as missing
// only if the credential still sees the VPC.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (observed, error) {
	deletes := req.Purpose == services.Delete
	o, err := r.finder.observe(ctx, req, deletes || req.Purpose == services.Lookup)
	if err == nil && (deletes || req.Purpose == services.Lookup && o.lb == nil) { // a lookup that finds a load balancer precedes its deletion
		o.group, err = r.security.findToDelete(ctx, req.Service, o.settings)
	}
	return o, err
}

// CheckOwner decides whose the load balancer is.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	if o.lb == nil {
		return o, o.missing, nil
	}
	rules := r.finder.rules(o.lb)
	decision, err := r.finder.cluster.Judge(ctx, req.Service, objectOf(o.lb), rules, func(ctx context.Context) (ownership.Targets, error) {
		return r.finder.targets(ctx, req, o.lb)
	})
	if err != nil {
		return observed{}, nil, err
	}
	if decision.Verdict == ownership.Adopted || o.settings.isRecorded(recordAdopted+o.lb.ID) {
		r.adopted.Store(o.lb.ID, struct{}{})
	}
	_, kept := r.adopted.Load(o.lb.ID)
	o.deletable = decision.Deletable && !kept && !r.records.isOlder(o.lb, req.Service)
	refused := decision.Verdict == ownership.Refused
	wants := req.Purpose == services.Ensure || req.Purpose == services.Plan
	switch {
	case refused && wants:
		return observed{}, services.Refused(req.Service, decision), decision.Err()
	case refused && decision.Owner == nil:
		return observed{settings: o.settings, group: o.group, former: o.former, unproved: o.lb, foreign: true}, nil, nil
	case refused:
		return observed{settings: o.settings, group: o.group, former: o.former, foreign: true}, nil, nil
	case decision.Verdict == ownership.Owned:
		r.finder.ownerUIDs.Store(o.lb.ID, req.Service.UID)
	}
	if req.Purpose == services.Plan {
		o.lb, o.parts, err = r.partsOf(ctx, o.lb)
	}
	return o, nil, err
}

// finder finds load balancers and their owners.
type finder struct {
	*reader
	records *records
	adopt   registry.Adoption
	cluster ownership.Cluster
	// ownForm matches the names of this cluster's load balancers that hold a whole UID, ownOrCutForm also those that were truncated.
	ownForm, ownOrCutForm *regexp.Regexp
	// ownerUIDs are UIDs of Services by the ID of their proved load balancer: Kubernetes removes the evidence when a Service changes its type.
	ownerUIDs sync.Map
	// deletedHostnames are of load balancers that this process deleted.
	deletedHostnames sync.Map
}

// observe finds the load balancer, and for a deletion also those that the Service had before.
func (f *finder) observe(ctx context.Context, req services.Request, deletion bool) (o observed, err error) {
	o.settings, _, _ = parseSettings(req.Service) // Validate tells of faults; they hinder neither a deletion nor nodes
	found, err := f.loadBalancers.Find(ctx, indexName, f.records.name(req.Cluster, req.Service),
		inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err == nil && deletion {
		o.former, err = f.formerLoadBalancers(ctx, req.Service, true)
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
	if deletion {
		age = 0
		o.missing = f.missingFindings(req.Service)
	}
	return o, f.instances.seesVPC(ctx, age)
}

// readDeleting reads a load balancer that is being deleted again; nil if it is gone.
func (f *finder) readDeleting(ctx context.Context, req services.Request, lb *loadBalancer) (*loadBalancer, error) {
	now, err := f.loadBalancers.Get(ctx, lb.ID, inventory.Query{})
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

// rules decide the owner by the load balancer's name, because it takes no mark. A truncated name needs further evidence: the host name in
// the status, or the nodes behind it.
func (f *finder) rules(lb *loadBalancer) ownership.Rules {
	whole := ibmlimits.Name.Max-len(namePrefix)-1-len(f.api.config.Cluster) >= minUIDDigits
	names := func(s *v1.Service) []string { return []string{ownName(f.api.config.Cluster, s)} }
	rules := ownership.Rules{
		Adopt: f.adopt, Unmarked: true, Made: f.ownOrCutForm.MatchString,
		Chosen:   func(s *v1.Service) []string { return words(f.records.chosenName(s)) },
		Recorded: func(s *v1.Service) bool { return slices.Contains(f.records.madeNames(s), f.records.chosenName(s)) },
		Proved:   func(s *v1.Service) bool { return f.records.proves(s, lb) }, Copied: f.records.isCopied,
		Names: func(s *v1.Service) (list []string) {
			if uid, known := f.ownerUIDs.Load(lb.ID); known && uid == s.UID {
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

// targets returns the members as evidence of ownership: those at the Service's node ports on instances of this cluster's nodes. A Node's
// own report proves nothing.
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
	// A load balancer from before the records is no stranger's if the Nodes themselves report its members.
	reported := slices.ContainsFunc(all, func(n *v1.Node) bool { return members[reportedTarget(n, lb.isNetwork())] })
	if reported && statusShows(req.Service, lb) {
		return t, nil
	}
	t.Strange = !reported && len(members) > 0
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

// poolForm matches the names that controllers give to pools: protocol, port or ports, and node port.
var poolForm = regexp.MustCompile(`^(tcp|udp)-([0-9]+)(?:x[0-9]+)?-([0-9]+)$`)

// isMadeFor reports whether a controller created the pools for a Service: each name has the node port of all its members, which no other
// Service has, and one is of this Service. A Service that changes its type loses its node ports.
func isMadeFor(service *v1.Service, others []*v1.Service, d *parts) bool {
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

// statusShows reports whether the Service's status has the host name of a load balancer.
func statusShows(service *v1.Service, lb *loadBalancer) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return in.Hostname != "" && strings.EqualFold(in.Hostname, lb.Hostname)
	})
}

// missingFindings reports host names in the Service's status that no visible load balancer has: somebody deleted it by hand, or the
// credential may no longer see it.
func (f *finder) missingFindings(service *v1.Service) (findings []services.Finding) {
	all := f.loadBalancers.PeekAll()
	for _, in := range service.Status.LoadBalancer.Ingress {
		name := strings.ToLower(in.Hostname)
		_, deleted := f.deletedHostnames.Load(name)
		if name != "" && !deleted && !slices.ContainsFunc(all, func(lb *loadBalancer) bool { return strings.EqualFold(lb.Hostname, name) }) {
			findings = append(findings, services.Warning(eventLeft, "no load balancer with the host name %s of this Service is found; where nobody deleted it by hand, "+
				"the credential may not see it any more, and it stays", name))
		}
	}
	return findings
}

// formerLoadBalancers returns load balancers that a Service had under other names, by its status, its record or, with own, the name that
// holds its UID.
func (f *finder) formerLoadBalancers(ctx context.Context, service *v1.Service, own bool) (list []*loadBalancer, err error) {
	names := f.records.madeNames(service)
	if own && f.ownForm.MatchString(ownName(f.api.config.Cluster, service)) {
		names = append(names, ownName(f.api.config.Cluster, service))
	}
	for _, lb := range f.loadBalancers.PeekAll() {
		had := slices.Contains(names, lb.Name) || statusShows(service, lb)
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

// holds reports whether a Service has a load balancer, or may have it: its annotations may hide the name that holds its UID.
func (f *finder) holds(s *v1.Service, lb *loadBalancer) bool {
	return lb.Name == ownName(f.api.config.Cluster, s) || ownership.Holds(s, objectOf(lb), f.rules(lb))
}

// lostFindings reports former load balancers that stay, or a host name in the status that no longer exists.
func (f *finder) lostFindings(
	ctx context.Context, service *v1.Service, name string, o observed,
) (findings []services.Finding, err error) {
	former, err := f.formerLoadBalancers(ctx, service, o.lb == nil)
	for _, lb := range former {
		findings = append(findings, services.Warning(eventLeft, "load balancer %s (%s) stays, and %s takes its place; delete it if nobody needs it", lb.Name, lb.ID, name))
	}
	if err != nil || len(former) > 0 || o.lb != nil {
		return findings, err
	}
	for _, in := range service.Status.LoadBalancer.Ingress {
		if in.Hostname != "" {
			return []services.Finding{services.Warning(eventGone, "load balancer %s with the host name %s is there no longer; it is made again, with another host name", name, in.Hostname)}, nil
		}
	}
	return nil, nil
}
