package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// served is what serves Services.
type served interface {
	cloudprovider.LoadBalancer
	guard.Planner
	guard.Narrower
	Begin()
	Served(service *v1.Service)
	Doubt(service *v1.Service, what string) error
}

// kind is what differs between load balancers and network load balancers, two services of the cloud.
type kind struct {
	// title is the kind in messages, word the value of the annotation that asks for it.
	title, word string
	// path is that of load balancers, workPath that of work requests. errorsApart is set where their errors are read by a call of their own.
	path, workPath string
	errorsApart    bool
	// name is that of a Service's load balancer, as Oracle's own controller gives it.
	name func(*v1.Service) string
}

// servedKind is one of the two kinds of load balancers as it serves Services.
type servedKind struct {
	served
	kind
	// find is the load balancer of a Service's name; nil where there is none.
	find func(context.Context, *v1.Service) (*loadBalancer, error)
	// list makes all of this kind known, and listed is set once that is done.
	list   func(context.Context) error
	listed atomic.Bool
	// seen is set once the user has been seen to see this kind.
	seen atomic.Bool
}

// kinds implements cloudprovider.LoadBalancer: it picks the kind of load balancer that a Service asks for, and sees to it that the
// Service has none of the other kind.
type kinds struct {
	api     *api
	lb, nlb *servedKind
	balance *services.LoadBalancer[observation, spec]
	network *services.LoadBalancer[observation, networkSpec]
	// events is set before any call of the framework.
	events record.EventRecorder
}

var (
	_ cloudprovider.LoadBalancer = (*kinds)(nil)
	_ guard.Planner              = (*kinds)(nil)
	_ guard.Narrower             = (*kinds)(nil)
)

// newKinds returns both kinds. Names are not unique in the cloud.
func newKinds(a *api, lb *reconciler, balance *services.LoadBalancer[observation, spec], nlb *networkReconciler) *kinds {
	network := &services.LoadBalancer[observation, networkSpec]{
		Reconciler: nlb, Creations: services.Creations{Shows: creationShows}, Identify: lb.instances.Identify,
		Name: func(_ string, service *v1.Service) string { return networkName(service) },
	}
	k := &kinds{api: a, balance: balance, network: network}
	k.lb = &servedKind{served: balance, kind: lb.kind, find: lb.named}
	k.nlb = &servedKind{served: network, kind: nlb.kind, find: nlb.named}
	all := inventory.Query{MaxAge: attachedMaxAge}
	k.lb.list = func(ctx context.Context) error { _, err := lb.known.All(ctx, all); return err }
	k.nlb.list = func(ctx context.Context) error { _, err := nlb.known.All(ctx, all); return err }
	return k
}

// look makes the load balancers of Services known that a process before this one left. Those that are made later are known anyway.
func (k *kinds) look(ctx context.Context, list []*v1.Service) error {
	for _, of := range []*servedKind{k.lb, k.nlb} {
		asked := slices.ContainsFunc(list, func(s *v1.Service) bool { own, _ := k.of(s); return own == of })
		if !asked || of.listed.Load() {
			continue
		}
		err := of.list(ctx)
		of.listed.Store(err == nil)
		if err := k.unlessUnserved(ctx, of, err); err != nil {
			return err
		}
	}
	return nil
}

// named is the load balancer of a Service's name; nil where there is none.
func (r *reconciler) named(ctx context.Context, service *v1.Service) (*loadBalancer, error) {
	return r.find(ctx, service, false)
}

// named is the same of network load balancers.
func (r *networkReconciler) named(ctx context.Context, service *v1.Service) (*loadBalancer, error) {
	return r.find(ctx, service, false)
}

func (k *kinds) setEvents(events record.EventRecorder) {
	k.events, k.balance.Events, k.network.Events = events, events, events
}

// of are the kind that a Service asks for, and the other one.
func (k *kinds) of(service *v1.Service) (own, other *servedKind) {
	if isNetworkService(service) {
		return k.nlb, k.lb
	}
	return k.lb, k.nlb
}

// left is the load balancer of the other kind that a Service has; nil where it has none. It is looked for where there is none of its own
// kind. creates is set where one is made then: it is an error where the other one may show still, because the answer to its creation was
// lost.
func (k *kinds) left(ctx context.Context, service *v1.Service, creates bool) (*loadBalancer, error) {
	own, other := k.of(service)
	found, err := own.find(ctx, service)
	if err != nil || found != nil {
		return nil, err
	}
	found, err = other.find(ctx, service)
	err = k.unlessUnserved(ctx, other, err)
	if err == nil && found == nil && creates {
		err = other.Doubt(service, "the "+other.title+" of the Service")
	}
	return found, err
}

// unlessUnserved passes over the failure of a look at the kind that a Service does not ask for, where the user's policies do not mention
// that kind: policies name kinds apart, and who has never seen one has made none.
func (k *kinds) unlessUnserved(ctx context.Context, of *servedKind, err error) error {
	if err == nil {
		of.seen.Store(true)
		return nil
	}
	if of.seen.Load() || ctx.Err() != nil {
		return err
	}
	where, located := k.api.location(ctx)
	if located != nil {
		return err
	}
	query := url.Values{"compartmentId": {where.compartment}, "limit": {"1"}}
	_, refused := k.api.call(ctx, "listing "+of.title+"s", http.MethodGet, of.path+"?"+query.Encode(),
		nil, nil, "")
	if errors.Is(refused, cloudapi.ErrNotFound) || errors.Is(refused, cloudapi.ErrUnauthorized) {
		return nil
	}
	return err
}

// invalid reports whether something is wrong with a Service itself.
func (k *kinds) invalid(service *v1.Service) bool {
	if isNetworkService(service) {
		_, _, err := parseNetwork(service)
		return err != nil
	}
	_, _, err := parseSettings(service, k.api.config.SecurityListMode)
	return err != nil
}

// refuse is an error where a Service has a load balancer of the other kind. To take that away would take the address away, too.
// What is wrong with the Service itself is said before anything is read, by its own kind.
func (k *kinds) refuse(ctx context.Context, service *v1.Service) (string, error) {
	if k.invalid(service) {
		return "", nil
	}
	has, err := k.left(ctx, service, true)
	if err != nil || has == nil {
		return "", err
	}
	own, other := k.of(service)
	why := fmt.Sprintf("the Service has %s %s (%s), and annotation %s asks for type %s: the type of a load balancer cannot be changed, and a Service has "+
		"one alone. Set the annotation to %q again, or make the Service again for one of the other type, which has another address",
		other.title, has.Name, has.ID, annotationType, own.word, other.word)
	return why, errors.New(why)
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (k *kinds) GetLoadBalancerName(ctx context.Context, cluster string, service *v1.Service) string {
	own, _ := k.of(service)
	return own.GetLoadBalancerName(ctx, cluster, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. A load balancer exists as long as there is one of either kind.
func (k *kinds) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	own, other := k.of(service)
	status, exists, err := own.GetLoadBalancer(ctx, cluster, service)
	if err != nil || exists {
		return status, exists, err
	}
	status, exists, err = other.GetLoadBalancer(ctx, cluster, service)
	return status, exists, k.unlessUnserved(ctx, other, err)
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (k *kinds) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	own, other := k.of(service)
	k.begin()
	if why, err := k.refuse(ctx, service); err != nil {
		if why != "" && k.events != nil {
			k.events.Event(service, v1.EventTypeWarning, eventOtherKind, why)
		}
		if why != "" {
			err = errors.Join(err, k.narrow(ctx, cluster, service, other))
		}
		return nil, err
	}
	status, err := own.EnsureLoadBalancer(ctx, cluster, service, nodes)
	switch {
	case err == nil:
		other.Served(service)
	case k.invalid(service): // what asks for its kind as well, perhaps
		err = errors.Join(err, k.narrow(ctx, cluster, service, other))
	}
	return status, err
}

// NarrowLoadBalancer implements guard.Narrower, for both kinds.
func (k *kinds) NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error {
	own, other := k.of(service)
	return k.narrow(ctx, cluster, service, own, other)
}

// narrow shuts out clients whom a Service no longer lets in, of some kinds. Where everybody may connect it makes no call.
func (k *kinds) narrow(ctx context.Context, cluster string, service *v1.Service, of ...*servedKind) error {
	var failed []error
	if _, some := clientsOf(services.Request{Service: service}); some {
		for _, one := range of {
			failed = append(failed, k.unlessUnserved(ctx, one, one.NarrowLoadBalancer(ctx, cluster, service)))
		}
	}
	return errors.Join(failed...)
}

// begin notes that work has begun: what a process before this one may have had made is looked for by both kinds from now on.
func (k *kinds) begin() {
	k.lb.Begin()
	k.nlb.Begin()
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer, for the kind of load balancer that the Service has.
func (k *kinds) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	own, other := k.of(service)
	has, err := k.left(ctx, service, false)
	switch {
	case err != nil:
		return err
	case has != nil:
		return other.UpdateLoadBalancer(ctx, cluster, service, nodes)
	}
	return own.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer, for both kinds.
func (k *kinds) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	own, other := k.of(service)
	k.begin()
	if err := own.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
		return err
	}
	return k.unlessUnserved(ctx, other, other.EnsureLoadBalancerDeleted(ctx, cluster, service))
}

// PlanLoadBalancer implements guard.Planner.
func (k *kinds) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	own, _ := k.of(service)
	why, err := k.refuse(ctx, service)
	if why != "" {
		return guard.Plan{Findings: []guard.Finding{{Reason: eventOtherKind, Message: why, Warning: true}}}, err
	}
	if err != nil {
		return guard.Plan{}, err
	}
	return own.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// orphans are network load balancers with the mark of the cluster and names as its Services' have, of which no Service is left.
func (r *networkReconciler) orphans(ctx context.Context, mark string, holds func(lb *loadBalancer) bool) ([]guard.Orphan, error) {
	all, err := r.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		if lb.Tags[tagCluster] == mark && networkMade.MatchString(lb.Name) && lb.State != stateDeleting && !holds(lb) {
			orphans = append(orphans, guard.Orphan{Kind: kindNetwork, ID: lb.ID, Name: lb.Name})
		}
	}
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return slices.Compare([]string{a.Name, a.ID}, []string{b.Name, b.ID}) })
	return orphans, nil
}

// deleteOrphan removes a network load balancer, and the rules of security lists that were marked for it and that nobody needs.
func (r *networkReconciler) deleteOrphan(ctx context.Context, o guard.Orphan) error {
	lb, err := r.known.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if err := r.remove(ctx, &services.Request{}, lb); err != nil {
		return err
	}
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: types.UID(lb.Name[strings.LastIndex(lb.Name, "/")+1:])}}
	plans, err := r.lb.leftRulesIn(ctx, gone, settings{mode: modeAll, six: true}, lb.Subnets)
	for _, c := range ruleChanges[observation](r.lb.book, gone, plans) {
		if err == nil {
			_, err = c.Make(ctx, &services.Request{}, observation{})
		}
	}
	return err
}

// kindNetwork is the kind of orphans that are network load balancers.
const kindNetwork = "network load balancer"
