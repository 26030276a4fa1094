package digitalocean

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file finds the load balancer of a Service and decides whether the Service owns it.

// adoptedMark is the tag of a load balancer that was made by hand, and adopted for a Service. It is no mark of any cluster or Service.
const adoptedMark = "adopted-by-anyccm"

// clockSkew is how much the clocks of cloud and cluster may differ.
const clockSkew = time.Minute

// match holds the load balancer found for a Service and whether the Service may change it. The zero value means that nothing was found.
type match struct {
	lb *godo.LoadBalancer
	ownership.Decision
}

// owners finds the load balancers of Services, and decides whose they are.
type owners struct {
	config    Config
	adopt     registry.Adoption
	cluster   *ownership.Cluster
	instances *instances
	balancers *inventory.Inventory[string, *godo.LoadBalancer]
}

// recordedID returns the recorded load balancer. Malformed IDs count as none, because an ID becomes part of a URL.
func recordedID(service *v1.Service) string {
	if id := service.Annotations[annotationID]; schema.UUID.Holds(id) {
		return id
	}
	return ""
}

// find returns the Service's load balancer by recorded ID, by default name or mark, or by its custom name. Names and marks also count after
// a stale ID, because an interrupted creation is not recorded yet. A refused one is returned too, unless the Service is going and finds its
// own one. nodes are further nodes of this cluster.
func (o *owners) find(ctx context.Context, service *v1.Service, nodes []*v1.Node, q inventory.Query) (match, error) {
	recorded, err := o.findRecorded(ctx, service, nodes, q)
	if err != nil || recorded.lb != nil && (recorded.Verdict != ownership.Refused || !ownership.Leaves(service)) {
		return recorded, err
	}
	// Only this Service creates the default name and mark, so one listing serves many new Services.
	own := q
	own.MaxUnlistedAge = unlistedMaxAge
	for _, by := range []struct{ index, key string }{{indexName, defaultName(service)}, {indexTag, ownership.ServiceMark(service.UID)}} {
		found, err := o.findOldest(ctx, service, by.index, by.key, nodes, own)
		if err != nil || (found.lb != nil && found.Verdict != ownership.Refused) {
			return found, err
		}
		// A foreign load balancer with the Service's name does not prevent a new one.
	}
	if custom := service.Annotations[annotationName]; custom != "" {
		if found, err := o.findOldest(ctx, service, indexName, custom, nodes, q); err != nil || found.lb != nil {
			return found, err
		}
	}
	return recorded, nil
}

// findRecorded returns the recorded load balancer, nothing if it is gone.
func (o *owners) findRecorded(ctx context.Context, service *v1.Service, nodes []*v1.Node, q inventory.Query) (match, error) {
	id, asked := recordedID(service), time.Now()
	if id == "" {
		return match{}, nil
	}
	lb, err := o.balancers.Get(ctx, id, q)
	if err == nil && lb.Status != statusActive {
		// A cached copy of a load balancer that is being set up is useless.
		lb, err = o.balancers.Get(ctx, id, inventory.Query{MaxAge: time.Since(asked)})
	}
	if err != nil {
		return match{}, cloudapi.IgnoreNotFound(err)
	}
	return o.judge(ctx, service, lb, nodes)
}

// findOldest returns the oldest load balancer with the key that the Service owns, otherwise the oldest refused one.
func (o *owners) findOldest(
	ctx context.Context, service *v1.Service, index, key string, nodes []*v1.Node, q inventory.Query,
) (match, error) {
	found, err := o.balancers.Find(ctx, index, key, q)
	if err != nil {
		return match{}, err
	}
	slices.SortFunc(found, compareAge)
	var refused match
	for _, lb := range found {
		m, err := o.judge(ctx, service, lb, nodes)
		if err != nil || m.Verdict != ownership.Refused {
			return m, err
		}
		if refused.lb == nil {
			refused = m
		}
	}
	return refused, nil
}

// reread reads a load balancer again before its deletion. Concurrent deletions share a new listing.
func (o *owners) reread(ctx context.Context, service *v1.Service, id string) (match, error) {
	lb, err := o.balancers.Get(ctx, id, inventory.Query{Gathered: true})
	if errors.Is(err, cloudapi.ErrNotFound) {
		o.balancers.Forget(id)
		return match{}, nil
	}
	if err != nil {
		return match{}, err
	}
	found, err := o.judge(ctx, service, lb, nil)
	if err == nil && found.Verdict == ownership.Refused {
		return match{}, nil
	}
	return found, err
}

// judge decides who owns a load balancer.
func (o *owners) judge(ctx context.Context, service *v1.Service, lb *godo.LoadBalancer, nodes []*v1.Node) (match, error) {
	targets := targetsOf(lb, slices.Concat(nodes, o.instances.nodes.Nodes()))
	d, err := o.cluster.Judge(ctx, service, objectOf(lb), o.rules(), func(context.Context) (ownership.Targets, error) { return targets, nil })
	if err == nil && d.Verdict == ownership.Owned && !d.Deletable && isTakenOver(service, lb, targets) {
		var all []*v1.Service
		all, err = o.cluster.Services(ctx)
		d.Deletable = err == nil && !slices.ContainsFunc(all, func(s *v1.Service) bool { return s.UID != service.UID && isServed(s, lb) })
	}
	return match{lb: lb, Decision: d}, err
}

// isTakenOver reports whether DigitalOcean's own controller made the load balancer of a Service under the name that the Service chooses:
// the status shows it, the record leads to it, all its droplets are nodes of this cluster, and nothing says that it was there before.
func isTakenOver(service *v1.Service, lb *godo.LoadBalancer, t ownership.Targets) bool {
	made, err := time.Parse(time.RFC3339, lb.Created)
	return recordedID(service) == lb.ID && service.Annotations[annotationName] == lb.Name && !defaultNames.MatchString(lb.Name) &&
		!slices.Contains(lb.Tags, adoptedMark) && !slices.ContainsFunc(lb.Tags, ownership.IsMark) && t.All > 0 && t.Ours == t.All &&
		err == nil && !made.Add(clockSkew).Before(service.CreationTimestamp.Time)
}

// objectOf returns the names, marks and addresses that identify a load balancer's owner.
func objectOf(lb *godo.LoadBalancer) ownership.Object {
	return ownership.Object{
		Title: "load balancer " + lb.ID, ID: lb.ID, Name: lb.Name, Marks: lb.Tags, Addresses: []string{lb.IP, lb.IPv6},
	}
}

func (o *owners) rules() ownership.Rules {
	return ownership.Rules{
		Adopt: o.adopt, Unmarked: !o.config.OwnershipTag,
		Names:  func(s *v1.Service) []string { return []string{defaultName(s)} },
		Made:   defaultNames.MatchString,
		Record: recordedID,
	}
}

// targetsOf counts the droplets of a load balancer that are nodes of this cluster.
func targetsOf(lb *godo.LoadBalancer, nodes []*v1.Node) ownership.Targets {
	ours := map[string]bool{}
	for _, n := range nodes {
		ours[n.Spec.ProviderID] = true
	}
	t := ownership.Targets{All: len(lb.DropletIDs)}
	for _, id := range lb.DropletIDs {
		if ours[providerIDPrefix+strconv.Itoa(id)] {
			t.Ours++
		}
	}
	for _, r := range lb.ForwardingRules {
		t.Ports = append(t.Ports, int32(r.TargetPort)) //nolint:gosec // the API bounds ports to 1..65535
	}
	return t
}

// marks returns the marks for a Service's load balancer; none for one that a user created.
func (o *owners) marks(ctx context.Context, service *v1.Service, found match) ([]string, error) {
	if !o.config.OwnershipTag || (found.lb != nil && !found.Deletable) {
		return nil, nil
	}
	marks := ownership.ServiceMarks(service)
	mark, err := o.cluster.Mark(ctx)
	if mark != "" {
		marks = append(marks, mark)
	}
	return marks, err
}

func compareAge(a, b *godo.LoadBalancer) int {
	return cmp.Or(strings.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
}

// cleanUpPrevious deletes load balancers created for a Service that an annotation has moved to another one. Only those with its mark or
// default name are considered.
func (r *reconciler) cleanUpPrevious(ctx context.Context, service *v1.Service, now *godo.LoadBalancer) error {
	previous := map[string]bool{}
	for index, key := range map[string]string{indexName: defaultName(service), indexTag: ownership.ServiceMark(service.UID)} {
		found, err := r.balancers.Find(
			ctx, index, key, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, MaxUnlistedAge: backendMaxAge},
		)
		if err != nil {
			return err
		}
		for _, lb := range found {
			previous[lb.ID] = true
		}
	}
	delete(previous, now.ID)
	for _, id := range slices.Sorted(maps.Keys(previous)) {
		found, err := r.owners.reread(ctx, service, id)
		if err != nil {
			return err
		}
		if found.lb != nil && found.Deletable {
			if err := r.delete(ctx, service, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// equalsWritten reports whether a listed load balancer equals the known one in the fields that we write. Lists are compared without order.
func equalsWritten(known, listed *godo.LoadBalancer) bool {
	written := func(lb *godo.LoadBalancer) *godo.LoadBalancer {
		c := *lb
		c.Status, c.IP, c.IPv6 = "", "", ""
		c.DropletIDs, c.Tags = sortIDs(lb.DropletIDs), slices.Sorted(slices.Values(lb.Tags))
		if len(c.DropletIDs) == 0 {
			c.DropletIDs = nil
		}
		c.ForwardingRules = slices.SortedFunc(slices.Values(lb.ForwardingRules), func(a, b godo.ForwardingRule) int {
			return cmp.Or(cmp.Compare(a.EntryPort, b.EntryPort), strings.Compare(a.EntryProtocol, b.EntryProtocol))
		})
		c.Firewall = nil
		if f := lb.Firewall; f != nil && len(f.Allow)+len(f.Deny) > 0 {
			c.Firewall = &godo.LBFirewall{Allow: slices.Sorted(slices.Values(f.Allow)), Deny: slices.Sorted(slices.Values(f.Deny))}
		}
		return &c
	}
	return reflect.DeepEqual(written(known), written(listed))
}
