package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// shared reports whether other Services use a load balancer.
func shared(lb *balancer, r role) bool {
	return slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasPrefix(t, namePrefix) && t != r.name && t != r.former })
}

// madeByController reports whether a controller of this kind made a load balancer; others are their users'.
func madeByController(lb *balancer, service *v1.Service) bool {
	return strings.HasPrefix(lb.Name, namePrefix) || lb.Name == legacyName(service)
}

// find returns the load balancer of a Service, or nil if there is none: the one that is recorded, else the one with its
// name.
func (l *loadBalancers) find(ctx context.Context, cluster string, service *v1.Service) (*balancer, error) {
	id := service.Annotations[annotationID]
	if id == "" {
		return l.findByName(ctx, cluster, service)
	}
	if !identifier.MatchString(id) {
		problem := &schema.Problem{Place: "annotation " + annotationID, Value: id, Reason: "is not the ID of a load balancer, which is a UUID"}
		l.event(service, eventConfigError, problem.Error())
		return nil, problem
	}
	lb, err := l.balancers.Get(ctx, id, inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: newMaxAge})
	switch {
	case err == nil && lb.leaving():
		return lb, nil
	case !errors.Is(err, cloudapi.ErrNotFound):
		return lb, err
	}
	l.forget(id)
	if id == service.Annotations[annotationMade] || service.DeletionTimestamp != nil || service.Spec.Type != v1.ServiceTypeLoadBalancer {
		return l.findByName(ctx, cluster, service) // what we made and somebody removed is made again
	}
	problem := &schema.Problem{Place: "annotation " + annotationID, Value: id, Reason: "is not the ID of a load balancer of the project; correct it, or remove it to have a new load balancer made"}
	l.event(service, eventConfigError, problem.Error())
	return nil, problem
}

func (l *loadBalancers) findByName(ctx context.Context, cluster string, service *v1.Service) (*balancer, error) {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{balancerName(cluster, service), legacyName(service)} {
		q := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge}
		found, err := l.balancers.Find(ctx, indexName, name, q)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(slices.Clone(found), func(lb *balancer) bool {
			// Another cluster of the same name may have a Service of the same name.
			return lb.leaving() || (len(found) > 1 && ownership.Check("load balancer "+lb.ID, mark, lb.Tags) != nil)
		})
		switch {
		case len(found) > 1:
			return nil, fmt.Errorf("%d load balancers are named %s; delete all but one, or record one in the annotation %s", len(found), name, annotationID)
		case len(found) == 1:
			return found[0], nil
		}
	}
	return nil, nil //nolint:nilnil // absence is an answer here
}

// findOurs is find for everything but creation and change: what belongs to somebody else does not exist for this Service.
func (l *loadBalancers) findOurs(ctx context.Context, cluster string, service *v1.Service) (*balancer, role, error) {
	lb, err := l.find(ctx, cluster, service)
	if _, wrong := errors.AsType[*schema.Problem](err); wrong {
		return nil, role{}, nil // the recorded one is gone
	}
	if err != nil || lb == nil {
		return nil, role{}, err
	}
	r, err := l.roleOf(ctx, cluster, service, lb)
	if _, notOurs := errors.AsType[*ownership.NotOursError](err); notOurs {
		klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(service), "reason", err.Error())
		return nil, role{}, nil
	}
	return lb, r, err
}

// roleOf tells what a Service is to a load balancer. It is a NotOursError where the Service would be the owner, and the
// load balancer is another cluster's.
func (l *loadBalancers) roleOf(ctx context.Context, cluster string, service *v1.Service, lb *balancer) (role, error) {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return role{}, err
	}
	r := role{name: balancerName(cluster, service), mark: mark}
	if renamed(service, lb, r) {
		r.former = lb.Name
	}
	r.owner = lb.Name == r.name || lb.Name == legacyName(service) || service.Annotations[annotationID] == "" || r.former != ""
	if !r.owner {
		return r, nil
	}
	return r, ownership.Check("load balancer "+lb.ID, r.mark, lb.Tags)
}

// renamed reports whether a load balancer is the Service's own from before its cluster was given another name. The name
// alone does not prove that, for a Service of another cluster may share it; that it served this Service does.
func renamed(service *v1.Service, lb *balancer, r role) bool {
	if !clusterDiffers(lb.Name, r.name) || slices.Contains(lb.Tags, r.name) || service.Annotations[annotationAddress] == "" {
		return false
	}
	marked := r.mark != "" && slices.Contains(lb.Tags, r.mark)
	unmarked := !slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasPrefix(t, markPrefix) })
	return marked || (unmarked && len(service.Status.LoadBalancer.Ingress) > 0)
}

// checkShare refuses what a Service cannot share.
func (l *loadBalancers) checkShare(service *v1.Service, s settings, lb *balancer, r role, f features) error {
	users := 0
	for _, t := range lb.Tags {
		if strings.HasPrefix(t, namePrefix) {
			users++
		}
	}
	switch {
	case !f.tags():
		return errors.New("sharing a load balancer needs version 2.5 of Octavia's API, and this cloud's is older; remove the annotation " + annotationID)
	case !l.mayShare(service, lb, r):
		return fmt.Errorf("load balancer %s is that of a Service in another namespace: it is shared within its namespace alone, unless its Service has the annotation %s with the namespace %s, or the option share-across-namespaces is true", lb.ID, annotationShareWith, service.Namespace)
	case s.internal:
		return fmt.Errorf("an internal Service cannot share load balancer %s; remove the annotation %s or %s", lb.ID, annotationInternal, annotationID)
	case !slices.Contains(lb.Tags, r.name) && users >= l.config.LoadBalancer.MaxShared:
		return fmt.Errorf("load balancer %s is already shared with %d Services, which max-shared-lb allows at most; Service %s/%s needs another one", lb.ID, users, service.Namespace, service.Name)
	}
	return nil
}

// mayShare reports whether a Service may join the load balancer of another one. What is shared already, as after a takeover,
// stays, with a word about it.
func (l *loadBalancers) mayShare(service *v1.Service, lb *balancer, r role) bool {
	namespace, owner := ownerOf(lb)
	if namespace == "" || namespace == service.Namespace || l.config.LoadBalancer.ShareAcross {
		return true
	}
	if l.services != nil {
		if s, err := l.services.Services(namespace).Get(owner); err == nil && slices.Contains(strings.FieldsFunc(s.Annotations[annotationShareWith], isSeparator), service.Namespace) {
			return true
		}
	}
	if !slices.Contains(lb.Tags, r.name) {
		return false
	}
	l.event(service, eventShared, fmt.Sprintf("load balancer %s is shared with Service %s/%s of another namespace, which has not agreed to that; give that one the annotation %s", lb.ID, namespace, owner, annotationShareWith))
	return true
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// ownerOf returns the Service that a load balancer is named after; "" where a user made it.
func ownerOf(lb *balancer) (namespace, name string) {
	_, rest := splitName(lb.Name)
	namespace, name, _ = strings.Cut(strings.TrimPrefix(rest, "_"), "_")
	return namespace, name
}

// wantIdentity adds the name and tags that a load balancer should have.
func (l *loadBalancers) wantIdentity(service *v1.Service, lb *balancer, r role, f features, want *desired) {
	tags := slices.Clone(lb.Tags)
	if r.owner && clusterDiffers(lb.Name, r.name) {
		want.name = &r.name
		tags = slices.DeleteFunc(tags, func(t string) bool { return t == lb.Name })
		l.event(service, eventRename, fmt.Sprintf("load balancer %s and its parts are renamed from %s to %s, for the cluster has another name", lb.ID, lb.Name, r.name))
	}
	if f.tags() && !slices.Contains(tags, r.name) {
		tags = append(slices.DeleteFunc(tags, func(t string) bool { return t == "" }), r.name)
	}
	if f.tags() && !sameSet(tags, lb.Tags) {
		want.tags = tags
	}
}
