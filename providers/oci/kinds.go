package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// The titles of the kinds, in messages and of orphans.
const (
	titleBalancer = "load balancer"
	titleNLB      = "network load balancer"
)

// kind holds the differences between load balancers and network load balancers, which are two services of the cloud.
type kind struct {
	// title names the kind in messages, word is the annotation's value for it.
	title, word string
	// path is that of load balancers, workPath that of work requests.
	path, workPath string
	// statesWork is set if the state of a load balancer shows that the cloud works on it. Otherwise its work requests do.
	statesWork bool
	// showsCreated is set if the answer to a creation names the load balancer. Otherwise its work request does.
	showsCreated bool
	// errorsApart is set if the errors of a work request take a call of their own.
	errorsApart bool
	// name is that of a Service's load balancer, as Oracle's own controller gives it; made matches such names.
	name func(*v1.Service) string
	made *regexp.Regexp

	parse func(*v1.Service) (s settings, warnings, err error)
	// protectable is set if load balancers can be protected from deletion.
	protectable bool
}

func balancerKind(c Config) kind {
	return kind{
		title: titleBalancer, word: typeBalancer, path: balancerPath, workPath: "/loadBalancerWorkRequests",
		name:        func(s *v1.Service) string { return balancerName(c.Prefix, s) },
		made:        regexp.MustCompile(`^` + regexp.QuoteMeta(balancerName(c.Prefix, &v1.Service{})) + `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		parse:       func(s *v1.Service) (_ settings, warnings, err error) { return parseSettings(s, c.SecurityListMode) },
		protectable: true,
	}
}

func nlbKind() kind {
	return kind{
		title: titleNLB, word: typeNLB, path: nlbPath, workPath: "/workRequests",
		statesWork: true, showsCreated: true, errorsApart: true,
		name: nlbName, made: regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9.-]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		parse: parseNLB,
	}
}

// servedKind serves Services by one kind of load balancers.
type servedKind struct {
	*services.LoadBalancer[observed, desired]
	*reconciler
	// listed is set when an earlier process's load balancers are known.
	listed atomic.Bool
	// seen is set when the user has read this kind once.
	seen atomic.Bool
}

// kinds implements cloudprovider.LoadBalancer. It selects the kind that a Service asks for, and makes sure that the Service has none of the
// other kind.
type kinds struct {
	*common
	lb, nlb *servedKind
}

var (
	_ cloudprovider.LoadBalancer = (*kinds)(nil)
	_ contract.Planner           = (*kinds)(nil)
	_ contract.Narrower          = (*kinds)(nil)
)

// newKinds returns both kinds. Names are not unique in the cloud, so creations without an answer are searched for, in both kinds.
func newKinds(c *common) *kinds {
	k := &kinds{common: c}
	creations := &services.Creations{Shows: creationShows}
	serve := func(of kind) *servedKind {
		r := &reconciler{newLoadBalancers(c, of), k}
		return &servedKind{reconciler: r, LoadBalancer: &services.LoadBalancer[observed, desired]{
			Reconciler: r, Name: func(_ string, s *v1.Service) string { return of.name(s) }, Creations: creations, Identify: r.instances.Identify,
		}}
	}
	k.lb, k.nlb = serve(balancerKind(c.api.config)), serve(nlbKind())
	c.lists.kinds = k
	return k
}

// peek returns the load balancer of a Service, of either kind, if it is known, or else nil. hidden is set if one may be in a compartment
// that could not be read.
func (k *kinds) peek(service *v1.Service) (lb *loadBalancer, hidden bool) {
	own, other := k.kindsOf(service)
	for _, served := range []*servedKind{own, other} {
		for _, lb := range served.known.PeekIndex(indexName, served.kind.name(service)) {
			return lb, false
		}
		hidden = hidden || served.compartments.checkReadable(service, true) != nil
	}
	return nil, hidden
}

// listOnce reads the load balancers that an earlier process made; later ones are known anyway. A Service that was served and has none of
// its kind may have one of the other.
func (k *kinds) listOnce(ctx context.Context, list []*v1.Service) error {
	for _, changed := range []bool{false, true} {
		for _, served := range []*servedKind{k.lb, k.nlb} {
			if served.listed.Load() || !slices.ContainsFunc(list, func(s *v1.Service) bool {
				if own, _ := k.kindsOf(s); !changed {
					return own == served
				}
				lb, _ := k.peek(s)
				return lb == nil && isServed(s) && s.Spec.LoadBalancerClass == nil
			}) {
				continue
			}
			_, err := served.known.All(ctx, inventory.Query{MaxAge: attachedMaxAge})
			served.listed.Store(err == nil)
			if err := k.ignoreForbiddenKind(ctx, served, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// listOthers returns the load balancers of both kinds that do not belong to some Services.
func (k *kinds) listOthers(ctx context.Context, list []*v1.Service) (all []*loadBalancer, err error) {
	for _, served := range []*servedKind{k.lb, k.nlb} {
		found, err := served.known.All(ctx, inventory.Query{MaxAge: observedMaxAge})
		if err := k.ignoreForbiddenKind(ctx, served, err); err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(found, func(lb *loadBalancer) bool {
			return slices.ContainsFunc(list, func(s *v1.Service) bool { return served.kind.name(s) == lb.Name })
		})...)
	}
	return all, nil
}

func (k *kinds) setEvents(events record.EventRecorder) {
	k.lb.Events, k.nlb.Events = events, events
}

// kindsOf returns the kind that a Service asks for, and the other one.
func (k *kinds) kindsOf(service *v1.Service) (own, other *servedKind) {
	if isNLBService(service) {
		return k.nlb, k.lb
	}
	return k.lb, k.nlb
}

// findOther returns a Service's load balancer of the other kind than it asks for, or nil.
func (k *kinds) findOther(ctx context.Context, service *v1.Service) (*loadBalancer, error) {
	_, other := k.kindsOf(service)
	found, err := other.find(ctx, service, false)
	return found, k.ignoreForbiddenKind(ctx, other, err)
}

// ignoreForbiddenKind drops the error of a read of the kind that a Service does not ask for, if the user's policies do not mention that
// kind: whoever cannot see any has made none.
func (k *kinds) ignoreForbiddenKind(ctx context.Context, served *servedKind, err error) error {
	if err == nil {
		served.seen.Store(true)
		return nil
	}
	if served.seen.Load() || ctx.Err() != nil {
		return err
	}
	where, located := k.api.location(ctx)
	if located != nil {
		return err
	}
	query := url.Values{"compartmentId": {where.compartment}, "limit": {"1"}}
	_, refused := k.api.call(ctx, "listing "+served.kind.title+"s", http.MethodGet, served.kind.path+"?"+query.Encode(),
		nil, nil, nil)
	if errors.Is(refused, cloudapi.ErrNotFound) || errors.Is(refused, cloudapi.ErrUnauthorized) {
		return nil
	}
	return err
}

func (s *servedKind) isInvalid(service *v1.Service) bool {
	_, err := s.Validate(services.Request{Service: service})
	return err != nil
}

// refuseOtherKind refuses a Service that has a load balancer of the other kind, whose removal would lose the address.
func (k *kinds) refuseOtherKind(service *v1.Service, has *loadBalancer) ([]services.Finding, error) {
	own, other := k.kindsOf(service)
	err := fmt.Errorf("the Service has %s %s (%s), and annotation %s asks for type %s: %w, and a Service has "+
		"one alone. Set the annotation to %q again, or make the Service again for one of the other type, which has another address",
		other.kind.title, has.Name, has.ID, annotationType, own.kind.word, errOtherKind, other.kind.word)
	return []services.Finding{services.Warning(eventOtherKind, "%v", err)}, err
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (k *kinds) GetLoadBalancerName(ctx context.Context, cluster string, service *v1.Service) string {
	own, _ := k.kindsOf(service)
	return own.GetLoadBalancerName(ctx, cluster, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. A Service's load balancer may be of either kind.
func (k *kinds) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	own, other := k.kindsOf(service)
	status, exists, err := own.GetLoadBalancer(ctx, cluster, service)
	if err != nil || exists {
		return status, exists, err
	}
	status, exists, err = other.GetLoadBalancer(ctx, cluster, service)
	return status, exists, k.ignoreForbiddenKind(ctx, other, err)
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. If the Service may ask for the wrong kind, clients lose access to the other one
// as well.
func (k *kinds) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	own, other := k.kindsOf(service)
	status, err := own.EnsureLoadBalancer(ctx, cluster, service, nodes)
	if errors.Is(err, errOtherKind) || err != nil && own.isInvalid(service) {
		err = errors.Join(err, k.narrow(ctx, cluster, service, other))
	}
	return status, err
}

// NarrowLoadBalancer implements contract.Narrower, for both kinds.
func (k *kinds) NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error {
	own, other := k.kindsOf(service)
	return k.narrow(ctx, cluster, service, own, other)
}

// narrow shuts out clients that a Service no longer allows. If everybody may connect it makes no call.
func (k *kinds) narrow(ctx context.Context, cluster string, service *v1.Service, served ...*servedKind) error {
	var failed []error
	if _, some := clientsOf(services.Request{Service: service}); some {
		for _, one := range served {
			failed = append(failed, k.ignoreForbiddenKind(ctx, one, one.NarrowLoadBalancer(ctx, cluster, service)))
		}
	}
	return errors.Join(failed...)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer, for the kind of load balancer that the Service has.
func (k *kinds) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	own, other := k.kindsOf(service)
	has, err := own.find(ctx, service, false)
	if err == nil && has == nil {
		if has, err = k.findOther(ctx, service); has != nil {
			own = other
		}
	}
	if err != nil {
		return err
	}
	return own.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer, for both kinds.
func (k *kinds) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	own, other := k.kindsOf(service)
	if err := own.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
		return err
	}
	return k.ignoreForbiddenKind(ctx, other, other.EnsureLoadBalancerDeleted(ctx, cluster, service))
}

// PlanLoadBalancer implements contract.Planner.
func (k *kinds) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (contract.Plan, error) {
	own, _ := k.kindsOf(service)
	return own.PlanLoadBalancer(ctx, cluster, service, nodes)
}
