package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file finds the NodeBalancer of a Service, and its owner.

// match holds the NodeBalancer found for a Service and whether the Service may change it. The zero value means that nothing was found.
type match struct {
	nb *nodeBalancer
	// wrongID is the fault of an annotation that names no existing NodeBalancer.
	wrongID error
	ownership.Decision
}

// owners finds the NodeBalancers of Services, and decides whose they are.
type owners struct {
	config Config
	// adopt is the operator's policy about NodeBalancers without a mark.
	adopt     registry.Adoption
	cluster   *ownership.Cluster
	instances *instances
	balancers *inventory.Inventory[int, *nodeBalancer]
	details   *inventory.Inventory[int, *details]
	// proven holds by the Services' UIDs which NodeBalancers this process has proved to be theirs. The API server removes the evidence when
	// a Service changes its type, right before the NodeBalancer is to be deleted.
	proven sync.Map
}

// find returns the NodeBalancer of a Service: the named one, otherwise findByRecords'. The result may be refused; a Service that is going
// then finds its own one. nodes are further nodes of this cluster.
func (o *owners) find(ctx context.Context, service *v1.Service, nodes []*v1.Node, q inventory.Query) (match, error) {
	id := idOf(service.Annotations[annotationID])
	if id == 0 {
		return o.findByRecords(ctx, service, nodes, q)
	}
	nb, err := o.balancers.Get(ctx, id, q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		problem := &schema.Problem{Place: "annotation " + annotationID, Value: strconv.Itoa(id), Reason: "is not the ID of a NodeBalancer that the token may read; correct or remove it"}
		if ownership.Leaves(service) {
			return o.findByRecords(ctx, service, nodes, q)
		}
		return match{wrongID: problem}, nil
	}
	if err != nil {
		return match{}, err
	}
	f, err := o.judge(ctx, service, nb, nodes)
	if err != nil || f.Verdict != ownership.Refused || !ownership.Leaves(service) {
		return f, err
	}
	if own, err := o.findByRecords(ctx, service, nodes, q); err != nil || own.nb != nil {
		return own, err
	}
	return f, nil
}

// findByRecords returns the recorded NodeBalancer, otherwise the one with the address in the status, otherwise the one with the Service's
// label. Another owner's one does not prevent finding the Service's own; if there is no other, it is returned.
func (o *owners) findByRecords(ctx context.Context, service *v1.Service, nodes []*v1.Node, q inventory.Query) (match, error) {
	searches := []func() ([]*nodeBalancer, error){func() ([]*nodeBalancer, error) { return o.findRecorded(ctx, service, q) }}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		searches = append(searches, func() ([]*nodeBalancer, error) {
			return o.balancers.Find(ctx, indexIP, cmp.Or(ingress.IP, ingress.Hostname), q)
		})
	}
	searches = append(searches, func() ([]*nodeBalancer, error) {
		q := q
		q.MaxUnlistedAge = 3 * time.Second // nobody else gives this label, so one listing serves many new Services
		return o.balancers.Find(ctx, indexLabel, label(o.config.Prefix, service), q)
	})
	var refused match
	for _, search := range searches {
		found, err := search()
		if err != nil {
			return match{}, err
		}
		if len(found) != 1 {
			continue // a private address may occur in several VPCs, and then proves nothing
		}
		m, err := o.judge(ctx, service, found[0], nodes)
		if err != nil || m.Verdict != ownership.Refused {
			return m, err
		}
		if refused.nb == nil {
			refused = m
		}
	}
	return refused, nil
}

// findRecorded returns the recorded NodeBalancer, if it exists.
func (o *owners) findRecorded(ctx context.Context, service *v1.Service, q inventory.Query) ([]*nodeBalancer, error) {
	id := idOf(service.Annotations[annotationRecord])
	if id == 0 {
		return nil, nil
	}
	nb, err := o.balancers.Get(ctx, id, q)
	if err != nil {
		return nil, cloudapi.IgnoreNotFound(err)
	}
	return []*nodeBalancer{nb}, nil
}

// reread repeats the search right before an irreversible change: the owner may have changed.
func (o *owners) reread(ctx context.Context, service *v1.Service, id int) (match, error) {
	nb, err := o.balancers.Get(ctx, id, inventory.Query{})
	if err != nil {
		return match{}, cloudapi.IgnoreNotFound(err)
	}
	found, err := o.judge(ctx, service, nb, nil)
	if err == nil {
		err = found.Err()
	}
	return found, err
}

// judge decides who owns a NodeBalancer.
func (o *owners) judge(ctx context.Context, service *v1.Service, nb *nodeBalancer, nodes []*v1.Node) (match, error) {
	targets := func(ctx context.Context) (ownership.Targets, error) { return o.targets(ctx, nb, nodes) }
	d, err := o.cluster.Judge(ctx, service, objectOf(nb), o.rules(), targets)
	if err != nil {
		return match{}, err
	}
	made := isMadeByController(o.config.Prefix, nb.Label) && !slices.ContainsFunc(nb.Tags, ownership.IsServiceMark)
	switch {
	case d.Verdict == ownership.Owned:
		// A NodeBalancer of Linode's own controller is deleted with its Service, as under that controller; its labels do not name the
		// Service. A retained one has the mark of its former Service.
		d.Deletable = d.Deletable || made
	case d.Verdict == ownership.Refused && d.Owner == nil && o.isProven(service, nb):
		d = ownership.Decision{Verdict: ownership.Owned, Deletable: made, Object: d.Object}
	case d.Verdict == ownership.Refused && d.Owner == nil:
		leftover, err := o.isLeftover(ctx, service, nb, nodes)
		if err != nil {
			return match{}, err
		}
		if leftover {
			d = ownership.Decision{Verdict: ownership.Adopted, Object: d.Object}
		}
	}
	return match{nb: nb, Decision: d}, nil
}

func (o *owners) isProven(service *v1.Service, nb *nodeBalancer) bool {
	id, _ := o.proven.Load(service.UID)
	return id == nb.ID
}

// objectOf returns the names, marks and addresses by which the owner of a NodeBalancer is recognized.
func objectOf(nb *nodeBalancer) ownership.Object {
	object := ownership.Object{Title: fmt.Sprintf("NodeBalancer %d", nb.ID), ID: strconv.Itoa(nb.ID), Name: nb.Label, Marks: nb.Tags}
	if nb.FrontendAddressType != frontendVPC {
		// The same address may exist in another VPC.
		object.Addresses = []string{nb.IPv4, nb.IPv6, nb.Hostname}
	}
	return object
}

// frontendVPC is the kind of address of a NodeBalancer in a VPC.
const frontendVPC = "vpc"

func (o *owners) rules() ownership.Rules {
	return ownership.Rules{
		Adopt: o.adopt, Unmarked: !o.config.OwnershipTag,
		Names: func(s *v1.Service) []string { return []string{label(o.config.Prefix, s)} },
		Made:  func(name string) bool { return isMadeByController(o.config.Prefix, name) },
		Record: func(s *v1.Service) string {
			if id := idOf(s.Annotations[annotationID]); id != 0 {
				return strconv.Itoa(id)
			}
			return s.Annotations[annotationRecord]
		},
	}
}

// isLeftover reports whether a NodeBalancer may belong to a Service that is no load balancer any more. The API server has removed its
// status and node ports, which proved the ownership of a NodeBalancer of Linode's own controller. Only the record is left, which any author
// of Services can write. So the NodeBalancer is kept, and the user told, unless this process has proved the owner before.
func (o *owners) isLeftover(ctx context.Context, service *v1.Service, nb *nodeBalancer, nodes []*v1.Node) (bool, error) {
	marked := slices.ContainsFunc(nb.Tags, ownership.IsMark)
	if service.Spec.Type == v1.ServiceTypeLoadBalancer || o.adopt == registry.AdoptNone || marked ||
		!isMadeByController(o.config.Prefix, nb.Label) || service.Annotations[annotationRecord] != strconv.Itoa(nb.ID) {
		return false, nil
	}
	t, err := o.targets(ctx, nb, nodes)
	if err != nil || t.All == 0 || t.Ours < t.All {
		return false, err
	}
	all, err := o.cluster.Services(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for other owners of NodeBalancer %d: %w", nb.ID, err)
	}
	used := slices.ContainsFunc(all, func(s *v1.Service) bool {
		return s.UID != service.UID && (o.rules().Record(s) == strconv.Itoa(nb.ID) ||
			slices.ContainsFunc(s.Spec.Ports, func(p v1.ServicePort) bool { return p.NodePort != 0 && slices.Contains(t.Ports, p.NodePort) }))
	})
	return !used, nil
}

// targets returns the targets of a NodeBalancer. The addresses of nodes are those of their Linodes, regardless of the Nodes' reports.
func (o *owners) targets(ctx context.Context, nb *nodeBalancer, more []*v1.Node) (ownership.Targets, error) {
	d, err := o.details.Get(ctx, nb.ID, inventory.Query{MaxAge: ensureDetailsMaxAge})
	if err != nil {
		return ownership.Targets{}, err
	}
	linodes, err := o.instances.linodes.All(ctx, inventory.Query{MaxAge: backendMaxAge})
	if err != nil {
		return ownership.Targets{}, err
	}
	members := map[string]bool{}
	for _, n := range slices.Concat(more, o.instances.nodes.Nodes()) {
		members[n.Spec.ProviderID] = true
	}
	ours := map[netip.Addr]bool{}
	for _, one := range linodes {
		if members[providerIDPrefix+strconv.Itoa(one.id)] {
			for _, ip := range one.ips() {
				ours[ip] = true
			}
		}
	}
	return targetsOf(d, ours), nil
}

func targetsOf(d *details, ours map[netip.Addr]bool) ownership.Targets {
	var t ownership.Targets
	for _, c := range d.configs {
		for n := range c.nodes.entries() {
			t.All++
			a, err := netip.ParseAddrPort(n.Address)
			if err != nil {
				continue
			}
			if ours[a.Addr()] {
				t.Ours++
			}
			if port := int32(a.Port()); !slices.Contains(t.Ports, port) {
				t.Ports = append(t.Ports, port)
			}
		}
	}
	return t
}

// idOf returns the ID in an annotation, or 0.
func idOf(text string) int {
	id, err := strconv.Atoi(text)
	if err != nil || id < 1 {
		return 0
	}
	return id
}

// marks returns the marks for objects of a Service.
func (o *owners) marks(ctx context.Context, service *v1.Service) ([]string, error) {
	if !o.config.OwnershipTag {
		return nil, nil
	}
	mark, err := o.cluster.Mark(ctx)
	if err != nil || mark == "" {
		return nil, err
	}
	return append([]string{mark}, ownership.ServiceMarks(service)...), nil
}

// addMarkSteps adds the marks to a change of a NodeBalancer that Linode's own controller created, or that was retained: then its owner is
// proved by more than an address in a status. Without other changes, no marks are written.
func addMarkSteps(nb *nodeBalancer, want *desired, steps []step) []step {
	if len(steps) == 0 || len(want.marks) == 0 {
		return steps
	}
	tags := slices.DeleteFunc(withMarks(want.tags, nb.Tags), ownership.IsServiceMark)
	for _, m := range want.marks {
		if !slices.Contains(tags, m) {
			tags = append(tags, m)
		}
	}
	if services.SameSet(tags, nb.Tags) {
		return steps
	}
	update := nodeBalancerUpdate{Label: nb.Label, Throttle: want.throttle, Tags: tags}
	if steps[0].kind == updateBalancer {
		steps[0].update = update
		return steps
	}
	return append([]step{{kind: updateBalancer, reasons: []string{"marks"}, update: update}}, steps...)
}
