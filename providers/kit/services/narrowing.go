package services

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// Narrower is implemented by a Reconciler that decides who may connect to a load balancer.
type Narrower[O any] interface {
	// Narrowing returns the changes that end the access of clients whom a Service no longer allows. Parts of the new sources inside the
	// former ones are opened first. It is called before Desire, even if that or Validate refuses the Service, and if it has no node:
	// observed may then come from Narrow, without Settle. If there is nothing to narrow it makes no call. The changes are made even if it
	// returns an error too.
	Narrowing(ctx context.Context, r Request, observed O) ([]Change[O], error)
}

// firstPart holds the results of a reconciliation's first part for the rest.
type firstPart[O any] struct {
	observed O
	// known is set if observed is the present state.
	known bool
	wrote bool
	// failed are errors of narrowings. The rest makes the same changes, and returns these errors only if it fails as well.
	failed error
}

// NarrowLoadBalancer shuts out clients whom a refused Service no longer allows.
func (l *LoadBalancer[O, D]) NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error {
	turn := keyTurn{locks: &l.locks}
	defer turn.end()
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	_, err := l.begin(ctx, &Request{Purpose: Narrow, Cluster: cluster, Service: service}, &turn, findings)
	return err
}

// begin observes a Service's objects, and narrows who may connect. If the Service is refused, nothing else is done.
func (l *LoadBalancer[O, D]) begin(ctx context.Context, r *Request, turn *keyTurn, findings *report) (b firstPart[O], err error) {
	asked := *r
	b, refusal := l.observeFirst(ctx, &asked, findings)
	narrower, narrows := l.Reconciler.(Narrower[O])
	if !b.known || !narrows {
		return b, refusal
	}
	if cloud, works := l.Reconciler.(Asynchronous[O]); works {
		if err := turn.take(ctx, cloud.Key(asked, b.observed)); err != nil {
			return b, errors.Join(refusal, err)
		}
	}
	due, failed := narrower.Narrowing(ctx, asked, b.observed)
	for i := range due {
		due[i].Replan = false
	}
	observed, did, err := l.makeAll(ctx, &asked, findings, EachTried(due), b.observed)
	r.Service = asked.Service
	failed = errors.Join(failed, err)
	b = firstPart[O]{observed: observed, known: failed == nil, wrote: did.wrote, failed: failed}
	if refusal != nil || r.Purpose == Narrow {
		return b, joinErrors(failed, refusal)
	}
	return b, nil
}

// observeFirst validates a Service, observes its objects, and checks their owner. If one of these is refused, it observes for Narrow and
// changes the request's purpose, if clients may have access.
func (l *LoadBalancer[O, D]) observeFirst(ctx context.Context, r *Request, findings *report) (b firstPart[O], refusal error) {
	l.Creations.recordBegin()
	if r.Purpose != Narrow {
		found, err := l.Reconciler.Validate(*r)
		findings.add(found)
		if refusal = err; err == nil {
			b.observed, refusal = l.Reconciler.Observe(ctx, *r)
		}
		if refusal == nil {
			b, refusal = l.checkOwner(ctx, *r, findings, b.observed)
		}
		if refusal == nil {
			return b, nil
		}
	}
	_, narrows := l.Reconciler.(Narrower[O])
	if !narrows || !mayHaveClients(r.Service) || errors.Is(refusal, cloudprovider.ImplementedElsewhere) {
		return b, refusal
	}
	r.Purpose = Narrow
	observed, err := l.Reconciler.Observe(ctx, *r)
	if err == nil {
		b, err = l.checkOwner(ctx, *r, findings, observed)
	}
	return b, joinErrors(err, refusal)
}

// checkOwner drops, or refuses, another owner's objects.
func (l *LoadBalancer[O, D]) checkOwner(ctx context.Context, r Request, findings *report, observed O) (b firstPart[O], err error) {
	observed, found, err := l.Reconciler.CheckOwner(ctx, r, observed)
	findings.add(found)
	return firstPart[O]{observed: observed, known: err == nil}, err
}

// narrowedFirst joins the narrowings of a plan and its other changes. A change in both lists is shown once, as the rest has it. Where the
// rest changes an object again after others, only changes with the same detail are the same.
func narrowedFirst(narrowing, rest []contract.Planned) []contract.Planned {
	narrows, seen, left, again := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range narrowing {
		narrows[p.Object] = true
	}
	for _, p := range rest {
		if !narrows[p.Object] {
			maps.Copy(left, seen)
			continue
		}
		seen[p.Object] = true
		again[p.Object] = again[p.Object] || left[p.Object]
	}
	among := func(list []contract.Planned, p contract.Planned) bool {
		return slices.ContainsFunc(list, func(o contract.Planned) bool {
			return o.Object == p.Object && (o.Detail == p.Detail || !again[p.Object])
		})
	}
	alone := slices.DeleteFunc(slices.Clone(narrowing), func(p contract.Planned) bool { return among(rest, p) })
	both := slices.DeleteFunc(slices.Clone(rest), func(p contract.Planned) bool { return !among(narrowing, p) })
	later := slices.DeleteFunc(rest, func(p contract.Planned) bool { return among(narrowing, p) })
	return slices.Concat(alone, both, later)
}

// mayHaveClients reports whether clients may have got access: the framework adds its finalizer before that.
func mayHaveClients(service *v1.Service) bool {
	return len(service.Status.LoadBalancer.Ingress) > 0 || slices.Contains(service.Finalizers, servicehelper.LoadBalancerCleanupFinalizer)
}

// AddWhatFits adds as many items as fit, in their order. add adds all of its arguments or none. left are the others, with the reason.
func AddWhatFits[T any](items []T, add func([]T) error) (left []T, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	switch err = add(items); {
	case err == nil:
		return nil, nil
	case len(items) == 1 || !errors.Is(err, cloudapi.ErrQuota):
		return items, err
	}
	half := len(items) / 2
	if left, err = AddWhatFits(items[:half], add); err != nil {
		return items[half-len(left):], err
	}
	return AddWhatFits(items[half:], add)
}

// MayPass reports whether a failure may be temporary. For an HTML page in place of a response, the status decides.
func MayPass(err error) bool {
	_, asks := errors.AsType[*cloudproviderapi.RetryError](err)
	refused := errors.Is(err, cloudapi.ErrTransient) && cloudapi.Refused(err) && !cloudapi.NotSent(err)
	return asks || errors.Is(err, ErrGone) || (cloudapi.Retryable(err) && !refused)
}

// joinErrors joins the errors of a narrowing and of the rest of a reconciliation, without repeating equal ones.
func joinErrors(narrowing, rest error) error {
	switch {
	case narrowing == nil:
		return rest
	case rest != nil && strings.Contains(rest.Error(), narrowing.Error()):
		return rest
	}
	return errors.Join(narrowing, rest)
}
