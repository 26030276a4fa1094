package guard

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// A change of nodes comes from one single worker of the framework, which waits for all Services of a pass. A slow load
// balancer must not hold up the next change for the others, so UpdateLoadBalancer waits for a moment, and what takes longer
// goes on by itself. The framework takes it for done then, so that nothing of it may be lost:
//
//   - The newest wanted nodes of a Service are noted before anything else. A reconciliation that is under way on the Service applies
//     them before it ends; else the Service's loop does, which begins when something is due and ends when nothing is.
//   - It tries again after failures, until it succeeds, a reconciliation has applied newer nodes, or the Service has gone or is
//     disowned: a pass of the framework may bring a Service along that was deleted meanwhile. What a reconciliation does not get done,
//     the framework tries again with the nodes of then.
//   - A load balancer may work although some of its nodes have to wait, such as those of an unreachable zone. That must be a success:
//     after a failure the framework does not write the status. The loop applies the nodes again when the cloud asked for it.
//   - It ends with the process. The next leader reconciles every Service at its start.

const (
	// updatePatience is how long the framework's worker is kept waiting.
	updatePatience = 3 * time.Second
	// updatePauseMin and updatePauseMax bound the pauses after failures; they double in between.
	updatePauseMin = 5 * time.Second
	updatePauseMax = 5 * time.Minute
	// reasonUpdateFailed is the framework's reason for a failed update.
	reasonUpdateFailed = "UpdateLoadBalancerFailed"
)

// nodeUpdate are the desired nodes of a Service's load balancer.
type nodeUpdate struct {
	cluster string
	service *v1.Service
	nodes   []*v1.Node
	// all is set if these are all nodes that may receive traffic.
	all    bool
	number uint64
	// labelChanges counts changes of labels in the Service's selector.
	labelChanges uint64
}

// serviceState is the state of one Service's updates. It exists only during a reconciliation and while a loop runs.
type serviceState struct {
	newest nodeUpdate
	// pending is set until the newest nodes are applied, and while they are applied again, for which again is set as well.
	pending, again bool
	// ensuring counts reconciliations under way, which apply the newest nodes before they end.
	ensuring int
	// deleted is set if the load balancer needs no nodes any more.
	deleted bool
	// looping is set while a loop runs, which applies the newest nodes when they are due; the zero time is never.
	looping bool
	due     time.Time
	// when is closed if they are due earlier; nil means that they are not.
	when <-chan struct{}
	// resting is set while the loop tries nothing, because the cloud asked for time.
	resting bool
	// pause is the next one after a failure.
	pause time.Duration
	tries heldBackTries
	// wake makes the loop check its state.
	wake chan struct{}
	// waiting receives the result for the call that waits for the loop. Without it, failures are reported to nobody.
	waiting chan<- error
}

// serviceStates holds the state of every Service with something under way or due.
type serviceStates struct {
	mu     sync.Mutex
	byID   map[types.UID]*serviceState
	number uint64
	// base ends when the process stops leading; nil means never.
	base context.Context
	// services returns the cluster's Services, and whether all are known.
	services func() (listers.ServiceLister, bool)
	// callsByService holds the latest calls for Services that select their backends.
	callsByService map[types.UID]nodeUpdate
	// failures are the reasons of Services whose last reconciliation failed.
	failures map[types.UID]unservedReason
	// waitingSince is when Services began to wait that did not wait when they were made, by namespace and name.
	waitingSince map[string]time.Time
}

// noteLocked records the desired nodes of a Service, and reports whether something under way applies them. A pass over all Services copies
// them at its start, so that its copy may be older than the last reconciliation's: the newer copy stays, with the latest nodes.
func (t *serviceStates) noteLocked(want nodeUpdate, selects bool) (s *serviceState, busy bool) {
	if t.byID == nil {
		t.byID = map[types.UID]*serviceState{}
	}
	s = t.byID[want.service.UID]
	if s == nil {
		s = &serviceState{wake: make(chan struct{}, 1)}
		t.byID[want.service.UID] = s
	}
	if busy = s.ensuring > 0 || (s.looping && (s.pending || s.resting)); !busy {
		s.pause, s.tries = updatePauseMin, heldBackTries{}
	}
	t.number++
	if known := s.newest.service; known != nil && isOlder(want.service, known) {
		want.service = known
	}
	want.number, want.labelChanges = t.number, s.newest.labelChanges
	s.newest, s.pending, s.again, s.deleted, s.when = want, true, false, false, nil
	if s.ensuring == 0 {
		s.due = time.Now()
	}
	t.rememberCallLocked(want, selects)
	return s, busy
}

// settleLocked records that the newest nodes are applied, and when to apply them again if the cloud asked for that.
func (s *serviceState) settleLocked(back contract.Reapply) {
	s.pending, s.due, s.when, s.pause = false, time.Time{}, nil, updatePauseMin
	if back.After > 0 {
		s.due, s.when = time.Now().Add(back.After), back.When
	}
	s.answerLocked(nil)
}

// answerLocked ends the call that waits for the loop, if there is one.
func (s *serviceState) answerLocked(err error) {
	if s.waiting != nil {
		s.waiting <- err
		s.waiting = nil
	}
}

// newUpdate records the arguments of a call for a Service.
func (l *loadBalancers) newUpdate(cluster string, service *v1.Service, nodes []*v1.Node) nodeUpdate {
	w := nodeUpdate{cluster: cluster, service: service}
	w.nodes, w.all = l.expandNodes(nodes)
	return w
}

// isOlder reports whether one copy of a Service was stored before another one.
func isOlder(a, b *v1.Service) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// setServices sets the source of the cluster's Services.
func (t *serviceStates) setServices(services func() (listers.ServiceLister, bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.services = services
}

// current returns the current Service, and whether it needs a load balancer. Before the Services of the cluster are known, the given copy
// counts.
func (t *serviceStates) current(service *v1.Service) (now *v1.Service, wants bool) {
	t.mu.Lock()
	known := t.services
	t.mu.Unlock()
	if known == nil {
		return service, true
	}
	lister, synced := known()
	if !synced {
		return service, true
	}
	now, err := lister.Services(service.Namespace).Get(service.Name)
	switch {
	case err != nil:
		return service, !apierrors.IsNotFound(err)
	case now.UID != service.UID:
		return service, false
	case isOlder(now, service):
		return service, true
	}
	return now, now.DeletionTimestamp == nil && now.Spec.Type == v1.ServiceTypeLoadBalancer
}

// mayWrite reports whether the load balancer of a Service may still be written with an older copy of it.
func (l *loadBalancers) mayWrite(service *v1.Service) bool {
	now, wants := l.states.current(service)
	return wants && !l.isDisowned(now)
}

func (l *loadBalancers) isDisowned(service *v1.Service) bool {
	return contract.IsDisowned(l.facts.translate(service).Service)
}

// endWith ends background work when stop is closed.
func (t *serviceStates) endWith(stop <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base = wait.ContextForChannel(stop)
}

// UpdatesUnderWay counts the Services whose nodes are being applied or waiting for a retry.
func (c *Cloud) UpdatesUnderWay() int {
	if c.loadBalancers == nil {
		return 0
	}
	t := &c.loadBalancers.states
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.byID {
		if s.looping && s.pending {
			n++
		}
	}
	return n
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. The framework also calls it for Services that are being deleted; their load
// balancer needs no backends.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if service.DeletionTimestamp != nil {
		return nil
	}
	translated := l.facts.translate(service)
	if settings, err := l.parseSettings(translated.Service); err != nil || settings.Disown {
		return err
	}
	t, want, result := &l.states, l.newUpdate(cluster, service, nodes), make(chan error, 1)
	t.mu.Lock()
	s, busy := t.noteLocked(want, portable.Selects(translated.Service.Annotations))
	if !busy {
		s.waiting = result
	}
	l.proceedLocked(service, s) //nolint:contextcheck // the loop outlives the operation
	t.mu.Unlock()
	if busy {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, updatePatience)
	defer cancel()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case err := <-result:
		return err
	default:
		s.waiting = nil
		return nil
	}
}

// proceedLocked has a Service's loop do what is due, and forgets the Service if nothing is.
func (l *loadBalancers) proceedLocked(service *v1.Service, s *serviceState) {
	t := &l.states
	switch {
	case s.looping:
		s.wakeLoop()
	case s.ensuring > 0: // its end comes here again
	case s.due.IsZero():
		delete(t.byID, service.UID)
	default:
		ctx := t.base
		if ctx == nil {
			ctx = context.Background()
		}
		s.looping = true
		rescue.Go("updating a load balancer", func() { l.keepApplying(ctx, service, s) })
	}
}

// wakeLoop makes a loop check its state, if there is one.
func (s *serviceState) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to check its state anyway
	}
}

// keepApplying is the loop of a Service: it applies the newest nodes whenever they are due.
func (l *loadBalancers) keepApplying(ctx context.Context, service *v1.Service, s *serviceState) {
	t := &l.states
	for l.awaitDue(ctx, service, s) {
		began := time.Now()
		want, back, err := l.applyOnce(ctx, service, s)
		over := err != nil && (ctx.Err() != nil || !l.mayWrite(want.service))
		var told time.Duration // in how long it is tried again, if that is told
		t.mu.Lock()
		held, later := s.tries.retryAfter(err)
		switch {
		case over || s.isTakenLocked():
			s.due, later = time.Time{}, false // a reconciliation, or nobody, is to retry
		case err == nil:
			if s.pause = updatePauseMin; want.number == s.newest.number {
				s.settleLocked(back)
			}
		case later:
			s.resting = true
			s.answerLocked(nil) // work that goes on is no failure
		case s.waiting != nil:
			s.answerLocked(err)
			s.due = time.Time{}
		default:
			if s.again && time.Since(began) >= updatePatience {
				s.again, s.pause = false, updatePauseMin // from here on it is like a change of nodes
			}
			if s.pending = !s.again; s.pending { // nodes that had to wait may go on waiting
				told = s.pause
			}
			s.due, s.pause = time.Now().Add(s.pause), min(s.pause*2, updatePauseMax)
		}
		t.mu.Unlock()
		if later {
			l.pause(ctx, held)
		}
		if told > 0 {
			klog.ErrorS(err, "Nodes of a load balancer could not be changed; this is retried", "service", klog.KObj(service), "in", told)
			l.reports.writeEvent(want.service, v1.EventTypeWarning, reasonUpdateFailed, "Error updating load balancer with new hosts, which is tried again: "+err.Error())
		}
	}
}

// isTakenLocked reports whether the loop has nothing to apply: a reconciliation does, or the load balancer needs no nodes.
func (s *serviceState) isTakenLocked() bool { return s.deleted || s.ensuring > 0 }

// awaitDue waits until the newest nodes are to be applied. It returns false if the loop ends, because nothing is left to be applied here.
func (l *loadBalancers) awaitDue(ctx context.Context, service *v1.Service, s *serviceState) bool {
	t := &l.states
	for {
		t.mu.Lock()
		s.resting = false
		left, when := time.Until(s.due), s.when
		if s.ensuring > 0 {
			left, when = loadBalancerDeadline, nil // the end of the reconciliation wakes the loop
		}
		over := s.deleted || s.due.IsZero() || ctx.Err() != nil
		switch {
		case over:
			s.looping, s.due = false, time.Time{}
			s.answerLocked(ctx.Err())
			if s.ensuring == 0 {
				delete(t.byID, service.UID)
			}
		case left <= 0:
			s.again, s.pending, s.when = !s.pending, true, nil
		}
		t.mu.Unlock()
		if over || left <= 0 {
			return !over
		}
		select {
		case <-time.After(left):
		case <-when:
			t.mu.Lock()
			if s.when == when {
				s.due = time.Now()
			}
			t.mu.Unlock()
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// applyOnce calls the provider with the newest nodes, unless they are applied already, or by a reconciliation.
func (l *loadBalancers) applyOnce(
	ctx context.Context, service *v1.Service, s *serviceState,
) (want nodeUpdate, back contract.Reapply, err error) {
	want.service = service
	ctx, leave, err := l.enter(ctx, service)
	if err != nil {
		return want, back, err
	}
	defer leave(&err)
	l.states.mu.Lock()
	over := s.isTakenLocked() || !s.pending
	if !over {
		want = s.newest
	}
	l.states.mu.Unlock()
	if !over {
		err = l.update(contract.WithReapply(ctx, &back), want)
	}
	return want, back, err
}

// update calls the provider, unless the load balancer must not be written any more.
func (l *loadBalancers) update(ctx context.Context, want nodeUpdate) (err error) {
	defer recoverPanic(&err, "UpdateLoadBalancer", serviceName(want.service))
	now, wants := l.states.current(want.service)
	if !wants || l.isDisowned(now) {
		return nil
	}
	t := l.facts.translate(now) // an older copy would undo the last reconciliation
	backends, err := l.selectBackends(ctx, t.Service, want.nodes)
	if err != nil {
		return err
	}
	ctx = l.withNodes(portable.With(ctx, t), want)
	return t.Explain(l.inner.UpdateLoadBalancer(ctx, want.cluster, t.Service, backends))
}

// pause waits for d.
func (*loadBalancers) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// reconcile calls ensure with the latest nodes, and applies newer ones before it returns.
func (l *loadBalancers) reconcile(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node, ensure func(context.Context, []*v1.Node) error,
) (err error) {
	t, selects, want := &l.states, l.hasSelector(service), l.newUpdate(cluster, service, nodes)
	t.mu.Lock()
	s, busy := t.noteLocked(want, selects)
	if !busy {
		s.due = time.Time{} // nothing is applied again that is older
	}
	s.ensuring++
	t.mu.Unlock()
	var back contract.Reapply
	// ended ends the reconciliation, unless newer nodes are to be applied.
	ended := func(err error) bool { //nolint:contextcheck // the loop outlives the operation
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			if !sameNodes(want.nodes, s.newest.nodes) || want.labelChanges != s.newest.labelChanges {
				return false
			}
			s.settleLocked(back)
		}
		s.ensuring--
		l.proceedLocked(service, s)
		return true
	}
	ctx, leave, err := l.enter(ctx, service)
	if err != nil {
		ended(err)
		return err
	}
	defer leave(&err)
	ctx = contract.WithReapply(ctx, &back)
	apply := func(ctx context.Context, w nodeUpdate) error { return ensure(l.withNodes(ctx, w), w.nodes) }
	for {
		err = l.retryHeldBack(ctx, func() bool { return !l.mayWrite(service) }, func() error {
			t.mu.Lock()
			want, back = s.newest, contract.Reapply{}
			t.mu.Unlock()
			return apply(ctx, want)
		})
		if ended(err) {
			return err
		}
		apply = l.update
	}
}

// sameNodes reports whether two lists hold the same Nodes with the same instances, in any order.
func sameNodes(a, b []*v1.Node) bool {
	if len(a) != len(b) || len(a) == 0 || &a[0] == &b[0] {
		return len(a) == len(b) // equal lists are shared
	}
	identities := func(nodes []*v1.Node) []string {
		list := make([]string, len(nodes))
		for i, n := range nodes {
			list[i] = n.Name + " " + n.Spec.ProviderID
		}
		slices.Sort(list)
		return list
	}
	return slices.Equal(identities(a), identities(b))
}

// markDeleted records that a Service's load balancer needs no nodes any more.
func (t *serviceStates) markDeleted(service *v1.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byID[service.UID]; s != nil {
		s.deleted = true
		s.wakeLoop()
	}
	delete(t.callsByService, service.UID)
	delete(t.failures, service.UID)
}
