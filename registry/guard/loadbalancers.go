package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
	"github.com/anyccm/cloud-controller-manager/registry/progress"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

type loadBalancers struct {
	inner            cloudprovider.LoadBalancer
	ownership        *ownership
	verification     *verification
	reports          *reports
	locks            keylock.Locks
	states           serviceStates
	set              atomic.Pointer[nodeSet]
	attempts         priority.Attempts
	retainedServices retainedServices
	finalizers       finalizers
	facts            Facts
}

// failureOf returns the error unless it only says when to try again: work under way has not failed.
func failureOf(err error) error {
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return nil
	}
	return err
}

// parseSettings reads the common annotations.
func (l *loadBalancers) parseSettings(service *v1.Service) (contract.ServiceSettings, error) {
	w, _, err := contract.Annotations.Parse(service.Annotations)
	return w, err
}

// enter begins an operation on a Service: one at a time, with a deadline, and with an event if it takes unusually long. Pass the
// operation's error to leave, which adds that the deadline ended it.
func (l *loadBalancers) enter(ctx context.Context, service *v1.Service) (entered context.Context, leave func(*error), err error) {
	ctx, end := withDeadline(ctx, loadBalancerDeadline)
	unlock, err := l.locks.Lock(ctx, string(service.UID))
	if err != nil {
		err = fmt.Errorf("waiting for another operation on the same Service: %w", err)
		end(&err)
		return nil, nil, err
	}
	ctx, told := l.tellOfLongWaits(ctx, service)
	return ctx, func(err *error) { told(); unlock(); end(err) }, nil
}

// withDeadline gives an operation a deadline. If it is reached, end adds that to the operation's error.
func withDeadline(ctx context.Context, limit time.Duration) (bounded context.Context, end func(*error)) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	return bounded, func(err *error) {
		if *err != nil && bounded.Err() != nil && ctx.Err() == nil {
			*err = fmt.Errorf("given up after %s, and tried again: %w", limit, *err)
		}
		cancel()
	}
}

const (
	// longWait is how long an operation may wait for the cloud before an event on its Service says so.
	longWait = 90 * time.Second
	// longWaitAgain is when to check again if it did not wait at that moment.
	longWaitAgain = 5 * time.Second
)

func (l *loadBalancers) tellOfLongWaits(ctx context.Context, service *v1.Service) (noted context.Context, stop func()) {
	board := &progress.Board{}
	ctx, cancel := context.WithCancel(ctx)
	rescue.Go("telling of long waits", func() {
		for d := longWait; ; d = longWaitAgain {
			if l.pause(ctx, d); ctx.Err() != nil {
				return
			}
			if what := board.What(); what != "" {
				l.reports.writeEvent(service, v1.EventTypeNormal, contract.EventLoadBalancerWaiting, "this takes longer than usual; waiting for "+what)
				return
			}
		}
	})
	return progress.With(ctx, board), cancel
}

func serviceName(service *v1.Service) string { return service.Namespace + "/" + service.Name }

// GetLoadBalancer implements cloudprovider.LoadBalancer. It waits for no other operation. For changes of nodes the framework calls it from
// its only worker, with a context that does not end: then it returns an error soon, so that other Services are not delayed.
func (l *loadBalancers) GetLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service,
) (status *v1.LoadBalancerStatus, exists bool, err error) {
	limit := loadBalancerDeadline
	if ctx.Done() == nil {
		limit = updatePatience
	}
	ctx, end := withDeadline(ctx, limit)
	defer end(&err)
	defer recoverPanic(&err, "GetLoadBalancer", serviceName(service))
	l.finalizers.release(service) // the framework calls this before it removes the finalizer
	t := l.facts.translate(service)
	status, exists, err = l.inner.GetLoadBalancer(ctx, cluster, t.Service)
	if err == nil && !exists && !l.mayWrite(service) {
		l.states.markDeleted(service) // the framework deletes nothing then
	}
	if settings, wrong := l.parseSettings(t.Service); wrong == nil {
		status = setIPMode(withHostname(status, t.Hostname), settings.IPMode, service)
	}
	return status, exists, err
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancerName(ctx context.Context, cluster string, service *v1.Service) string {
	return l.inner.GetLoadBalancerName(ctx, cluster, l.facts.translate(service).Service)
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (status *v1.LoadBalancerStatus, err error) {
	defer func() { l.states.noteOutcome(service, err) }()
	t := l.facts.translate(service)
	settings, err := l.parseSettings(t.Service)
	if err != nil || settings.Disown {
		l.states.markDeleted(service)
	}
	if settings.Disown && err == nil {
		return service.Status.LoadBalancer.DeepCopy(), nil
	}
	if err == nil {
		err = l.reportTranslation(service, t)
	}
	if err != nil {
		return service.Status.LoadBalancer.DeepCopy(), l.narrowRefused(ctx, cluster, t.Service, err)
	}
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		var tried func(error)
		ctx, tried = l.attempts.Urgent(ctx, string(service.UID)+" "+serviceName(service)) // it serves nobody until then
		defer func() { tried(failureOf(err)) }()
	}
	err = l.reconcile(ctx, cluster, service, nodes, func(ctx context.Context, nodes []*v1.Node) (err error) {
		defer recoverPanic(&err, "EnsureLoadBalancer", serviceName(service))
		if now, _ := l.states.current(service); l.isDisowned(now) {
			status = service.Status.LoadBalancer.DeepCopy()
			return nil
		}
		if err := l.finalizers.hold(ctx, service); err != nil {
			return err
		}
		if nodes, err = l.selectBackends(ctx, t.Service, nodes); err != nil {
			return l.narrow(ctx, cluster, t.Service, err)
		}
		status, err = l.inner.EnsureLoadBalancer(portable.With(ctx, t), cluster, t.Service, nodes)
		if err == nil && status == nil {
			err = fmt.Errorf("the provider returned no status for Service %s", serviceName(service))
		}
		return err
	})
	if err != nil {
		return nil, withRetryHint(t.Explain(err))
	}
	return setIPMode(withHostname(status, t.Hostname), settings.IPMode, service), nil
}

// narrowRefused shuts out clients whom a Service no longer allows that is refused before the provider is called. It returns the refusal.
func (l *loadBalancers) narrowRefused(ctx context.Context, cluster string, service *v1.Service, refusal error) (err error) {
	ctx, leave, err := l.enter(ctx, service)
	if err != nil {
		return errors.Join(refusal, err)
	}
	defer leave(&err)
	return l.narrow(ctx, cluster, service, refusal)
}

// maybeDisowned is isDisowned for a Service whose other annotations may be invalid.
func (l *loadBalancers) maybeDisowned(service *v1.Service) bool {
	value, is := l.facts.translate(service).Service.Annotations[contract.AnnotationDisown]
	alone := &v1.Service{}
	alone.Annotations = map[string]string{contract.AnnotationDisown: value}
	return is && contract.IsDisowned(alone)
}

func (l *loadBalancers) narrow(ctx context.Context, cluster string, service *v1.Service, refusal error) (err error) {
	narrower, is := l.inner.(contract.Narrower)
	if now, _ := l.states.current(service); !is || l.maybeDisowned(now) {
		return refusal
	}
	defer recoverPanic(&err, "NarrowLoadBalancer", serviceName(service))
	if err := narrower.NarrowLoadBalancer(ctx, cluster, service); err != nil {
		return errors.Join(refusal, err)
	}
	return refusal
}

// selectBackends returns the Nodes for the provider: those that the Service's selector matches and that may be trusted.
func (l *loadBalancers) selectBackends(ctx context.Context, service *v1.Service, nodes []*v1.Node) ([]*v1.Node, error) {
	nodes, err := l.matchSelector(service, nodes)
	if err != nil {
		l.reports.writeEvent(service, v1.EventTypeWarning, contract.EventConfigError, err.Error())
		return nil, err
	}
	return l.verification.filterVerified(ctx, nodes)
}

// withHostname returns a status with a hostname instead of its addresses, if there is one.
func withHostname(status *v1.LoadBalancerStatus, hostname string) *v1.LoadBalancerStatus {
	if hostname == "" || status == nil || len(status.Ingress) == 0 {
		return status
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: hostname}}}
}

// setIPMode applies the desired ipMode to the addresses of a status; a hostname has none. If neither the setting nor the provider names
// one, the API server fills in VIP. A status that has it already keeps it, because the framework would otherwise write it at every
// reconciliation.
func setIPMode(status *v1.LoadBalancerStatus, mode string, service *v1.Service) *v1.LoadBalancerStatus {
	if status == nil {
		return nil
	}
	filledIn := map[string]bool{}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		filledIn[ingress.IP] = ingress.IPMode != nil && *ingress.IPMode == v1.LoadBalancerIPModeVIP
	}
	shaped := status.DeepCopy()
	for i := range shaped.Ingress {
		ingress := &shaped.Ingress[i]
		switch {
		case ingress.IP == "":
		case mode != "":
			ingress.IPMode = new(v1.LoadBalancerIPMode(mode))
		case ingress.IPMode == nil && filledIn[ingress.IP]:
			ingress.IPMode = new(v1.LoadBalancerIPModeVIP)
		}
	}
	return shaped
}

// withRetryHint returns an error with the time at which the cloud allows the next try: earlier than the framework's own growing pauses, and
// not too early, which would waste the next minute's calls.
func withRetryHint(err error) error {
	if _, already := errors.AsType[*cloudproviderapi.RetryError](err); err == nil || already {
		return err
	}
	limited, ok := errors.AsType[interface {
		error
		RetryIn() time.Duration
	}](err)
	if !ok || limited.RetryIn() <= 0 {
		return err
	}
	return cloudproviderapi.NewRetryError(err.Error(), limited.RetryIn())
}

// settingsForDeletion reads the common annotations of a Service as it is now: a protection may have been added while the deletion waited.
func (l *loadBalancers) settingsForDeletion(service *v1.Service) (contract.ServiceSettings, error) {
	now, _ := l.states.current(service)
	return l.parseSettings(l.facts.translate(now).Service)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) (err error) {
	l.states.markDeleted(service)
	ctx, leave, err := l.enter(ctx, service)
	if err != nil {
		return err
	}
	defer leave(&err)
	t := l.facts.translate(service)
	return l.retryHeldBack(ctx, func() bool { return false }, func() (err error) {
		defer recoverPanic(&err, "EnsureLoadBalancerDeleted", serviceName(service))
		settings, err := l.settingsForDeletion(service)
		switch {
		case err != nil:
			return err
		case settings.Protect:
			return fmt.Errorf("the load balancer of Service %s is protected: remove the annotation %s to have it deleted", serviceName(service), contract.AnnotationProtect)
		case settings.Retain, settings.Disown:
			const message = "the load balancer is kept in the cloud, as an annotation asks"
			l.reports.writeEvent(service, v1.EventTypeNormal, contract.EventLoadBalancerRetained, message)
			l.retainedServices.add(service)
			return nil
		}
		return l.inner.EnsureLoadBalancerDeleted(ctx, cluster, t.Service)
	})
}
