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
//   - The newest wanted nodes of a Service are noted before anything else. An operation that is under way on the Service applies
//     them before it ends; else a goroutine begins that does.
//   - It tries again after failures, until it succeeds, a reconciliation has applied newer nodes, or the Service has gone or is
//     disowned: a pass of the framework may bring a Service along that was deleted meanwhile. What a reconciliation does not get done,
//     the framework tries again with the nodes of then.
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
	// reapply says when to apply them again, if the cloud asked for that.
	reapply contract.Reapply
}

// serviceState is the state of one Service's updates; it exists only during an update.
type serviceState struct {
	newest nodeUpdate
	// applied is the number of the latest applied nodes.
	applied uint64
	// ensuring counts reconciliations under way, which apply the newest nodes before they end; operations counts all operations.
	ensuring, operations int
	// deleted is set if the load balancer needs no nodes any more.
	deleted bool
	// run is set while a goroutine applies changes of nodes.
	run *updateRun
	// changed is closed when a pause can end early.
	changed chan struct{}
}

// updateRun is such a goroutine, and the call that waits for it. It is detached if its failures are reported to nobody.
type updateRun struct {
	result   chan error
	detached bool
}

// serviceStates holds the state of every Service with an operation under way.
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

// enterLocked returns the serviceState of a Service; leaveLocked gives it back.
func (t *serviceStates) enterLocked(service *v1.Service) *serviceState {
	if t.byID == nil {
		t.byID = map[types.UID]*serviceState{}
	}
	s := t.byID[service.UID]
	if s == nil {
		s = &serviceState{changed: make(chan struct{})}
		t.byID[service.UID] = s
	}
	s.operations++
	return s
}

func (t *serviceStates) leaveLocked(service *v1.Service, s *serviceState) {
	close(s.changed)
	s.changed = make(chan struct{})
	if s.operations--; s.operations == 0 {
		delete(t.byID, service.UID)
	}
}

// noteLocked records the desired nodes of a Service. A pass over all Services copies them at its start, so that its copy may be older than
// the last reconciliation's: the newer copy stays, with the latest nodes.
func (t *serviceStates) noteLocked(s *serviceState, want nodeUpdate, selects bool) {
	t.number++
	if known := s.newest.service; known != nil && isOlder(want.service, known) {
		want.service = known
	}
	want.number, want.labelChanges = t.number, s.newest.labelChanges
	s.newest, s.deleted = want, false
	t.rememberCallLocked(want, selects)
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
	ctx, cancel := context.WithCancel(context.Background())
	rescue.Go("ending updates", func() {
		<-stop
		cancel()
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base = ctx
}

// background returns the context of background work.
func (t *serviceStates) background() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base == nil {
		return context.Background()
	}
	return t.base
}

// UpdatesUnderWay counts the Services whose nodes are being applied in the background.
func (c *Cloud) UpdatesUnderWay() int {
	if c.loadBalancers == nil {
		return 0
	}
	return c.loadBalancers.states.countUnderWay()
}

// countUnderWay counts the Services whose nodes are being applied or waiting for a retry.
func (t *serviceStates) countUnderWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.byID {
		if s.run != nil {
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
	want, selects := l.newUpdate(cluster, service, nodes), portable.Selects(translated.Service.Annotations)
	return l.startUpdate(ctx, service, &updateRun{}, func(s *serviceState) bool {
		l.states.noteLocked(s, want, selects)
		return true
	})
}

// updateForLabels applies the latest call for a Service with a selector again, because labels of Nodes have changed. It retries failures,
// because nobody else does.
func (l *loadBalancers) updateForLabels(ctx context.Context, service *v1.Service) error {
	return l.startUpdate(ctx, service, &updateRun{detached: true}, func(s *serviceState) bool {
		want, ok := l.states.callsByService[service.UID]
		if ok {
			if want.all {
				want.nodes, _ = l.set.Load().current()
			}
			l.states.noteLocked(s, want, true)
			s.newest.labelChanges++
		}
		return ok
	})
}

// startUpdate brings a load balancer to what note notes under the lock, and waits for that for a moment.
//
//nolint:contextcheck // what goes on in the background must not end with the caller
func (l *loadBalancers) startUpdate(ctx context.Context, service *v1.Service, u *updateRun, note func(*serviceState) bool) error {
	t := &l.states
	base := t.background()
	t.mu.Lock()
	s := t.enterLocked(service)
	if !note(s) {
		t.leaveLocked(service, s)
		t.mu.Unlock()
		return nil
	}
	if s.ensuring > 0 || s.run != nil {
		t.leaveLocked(service, s) // the operation under way applies it
		t.mu.Unlock()
		return nil
	}
	u.result = make(chan error, 2) // one result when the work goes to the background, one at its end
	s.run = u
	t.mu.Unlock()
	rescue.Go("updating a load balancer", func() { l.applyNewest(base, s, u) })

	timer := time.NewTimer(updatePatience)
	defer timer.Stop()
	select {
	case err := <-u.result:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case err := <-u.result:
		return err
	default:
		u.detached = true
		return nil
	}
}

// isSettled reports whether nothing is left to be applied here. The lock is held.
func (s *serviceState) isSettled() bool {
	return s.deleted || s.ensuring > 0 || s.newest.number <= s.applied
}

// applyNewest applies the newest nodes of a Service, however often they change meanwhile.
func (l *loadBalancers) applyNewest(ctx context.Context, s *serviceState, u *updateRun) {
	t := &l.states
	var tries heldBackTries
	pause := updatePauseMin
	for {
		want, err := l.applyOnce(ctx, s)
		mustStop := l.mustStop(want.service, err)
		t.mu.Lock()
		if err == nil && want.number > 0 {
			s.applied, pause = max(s.applied, want.number), updatePauseMin
			l.reapplyLocked(want, want.reapply) //nolint:contextcheck // it outlives the operation
		}
		wait, later := tries.retryAfter(err)
		over := s.isSettled() || ctx.Err() != nil || mustStop
		if over || (err != nil && !later && !u.detached) {
			if over {
				err = ctx.Err() // a reconciliation, or nobody, is to retry
			}
			s.run = nil
			u.result <- err
			t.leaveLocked(want.service, s)
			t.mu.Unlock()
			return
		}
		if later && !u.detached {
			u.detached = true
			u.result <- nil // work that goes on is no failure
		}
		detached, changed := u.detached, s.changed
		t.mu.Unlock()
		switch {
		case err == nil:
			continue
		case later:
			l.pause(ctx, wait, nil)
			continue
		case detached:
			klog.ErrorS(err, "Nodes of a load balancer could not be changed; this is retried", "service", klog.KObj(want.service), "in", pause)
			l.reports.writeEvent(want.service, v1.EventTypeWarning, reasonUpdateFailed, "Error updating load balancer with new hosts, which is tried again: "+err.Error())
		}
		l.pause(ctx, pause, changed)
		pause = min(pause*2, updatePauseMax)
	}
}

// mustStop reports whether an update failed because the Service was deleted, or its load balancer must not be written any more.
func (l *loadBalancers) mustStop(service *v1.Service, err error) bool {
	return err != nil && !l.mayWrite(service)
}

// applyOnce calls the provider with the newest nodes, unless a reconciliation applies them.
func (l *loadBalancers) applyOnce(ctx context.Context, s *serviceState) (want nodeUpdate, err error) {
	l.states.mu.Lock()
	want = s.newest
	l.states.mu.Unlock()
	ctx, leave, err := l.enter(ctx, want.service)
	if err != nil {
		return want, err
	}
	defer leave(&err)
	l.states.mu.Lock()
	want = s.newest
	over := s.deleted || s.ensuring > 0 || want.number <= s.applied
	l.states.mu.Unlock()
	if over {
		return nodeUpdate{service: want.service}, nil
	}
	err = l.update(contract.WithReapply(ctx, &want.reapply), want)
	return want, err
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

// pause waits for d, or until changed is closed.
func (*loadBalancers) pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}

// reconcile calls ensure with the latest nodes, and applies newer ones before it returns.
func (l *loadBalancers) reconcile(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node, ensure func(context.Context, []*v1.Node) error,
) (err error) {
	t, selects, wants := &l.states, l.hasSelector(service), l.newUpdate(cluster, service, nodes)
	t.mu.Lock()
	s := t.enterLocked(service)
	s.ensuring++
	t.noteLocked(s, wants, selects)
	t.mu.Unlock()
	ended := false
	end := func() { s.ensuring--; ended = true; t.leaveLocked(service, s) }
	defer func() {
		if !ended {
			t.mu.Lock()
			defer t.mu.Unlock()
			end()
		}
	}()
	ctx, leave, err := l.enter(ctx, service)
	if err != nil {
		return err
	}
	defer leave(&err)
	var back contract.Reapply
	var want nodeUpdate
	ctx = contract.WithReapply(ctx, &back)
	newest := func(apply func(context.Context, nodeUpdate) error) error {
		return l.retryHeldBack(ctx, func() bool { return !l.mayWrite(service) }, func() error {
			t.mu.Lock()
			want, back = s.newest, contract.Reapply{}
			t.mu.Unlock()
			return apply(ctx, want)
		})
	}
	err = newest(func(ctx context.Context, w nodeUpdate) error { return ensure(l.withNodes(ctx, w), w.nodes) })
	for ; err == nil; err = newest(l.update) {
		t.mu.Lock()
		if sameNodes(want.nodes, s.newest.nodes) && want.labelChanges == s.newest.labelChanges {
			s.applied = max(s.applied, s.newest.number)
			l.reapplyLocked(s.newest, back) //nolint:contextcheck // it outlives the operation
			end()
			t.mu.Unlock()
			return nil
		}
		s.applied = max(s.applied, want.number)
		t.mu.Unlock()
	}
	return err
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

// markDeleted records that a Service's load balancer is being deleted, and needs no nodes any more.
func (t *serviceStates) markDeleted(service *v1.Service) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.enterLocked(service)
	s.deleted = true
	delete(t.callsByService, service.UID)
	delete(t.failures, service.UID)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leaveLocked(service, s)
	}
}
