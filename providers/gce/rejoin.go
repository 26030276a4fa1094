package gce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
)

// An instance recreated under its name, as by managed instance groups, has lost its load balancers although its Node may be unchanged. Any
// read of instances notices it by its new numeric ID.

const (
	// rejoinPeriod is a safety net: without recreated instances the job makes no call.
	rejoinPeriod  = time.Hour
	rejoinSpacing = 5 * time.Second
	rejoinTimeout = 10 * time.Minute
	// spareNumbers is how many numbers are kept beyond twice the listing before instances without a Node are forgotten.
	spareNumbers = 100
)

// arrivals notices new and recreated instances.
type arrivals struct {
	mu      sync.Mutex
	numbers map[instanceID]uint64
	// awaited are instances that load balancers miss; arrived is closed when one of them is seen.
	awaited map[instanceID]bool
	arrived chan struct{}
	// recreated are the instances that the job has not put back yet.
	recreated map[instanceID]bool
	// trigger starts the job; nil before the job exists.
	trigger func()
}

func newArrivals() *arrivals {
	return &arrivals{
		numbers: map[instanceID]uint64{}, awaited: map[instanceID]bool{}, arrived: make(chan struct{}), recreated: map[instanceID]bool{},
	}
}

// record records the instances of a read.
func (a *arrivals) record(list ...instance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isAwaited, isRecreated := false, false
	for _, i := range list {
		if a.awaited[i.id] {
			isAwaited = true
			delete(a.awaited, i.id)
		}
		if before, known := a.numbers[i.id]; known && before != i.number {
			isRecreated, a.recreated[i.id] = true, true
		}
		a.numbers[i.id] = i.number
	}
	if isAwaited {
		close(a.arrived)
		a.arrived = make(chan struct{})
	}
	if isRecreated && a.trigger != nil {
		a.trigger()
	}
}

// forgetOld forgets instances without a Node once too many are recorded.
func (a *arrivals) forgetOld(listed int, nodes []*v1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.numbers)+len(a.awaited) <= 2*listed+spareNumbers {
		return
	}
	has := map[instanceID]bool{}
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			has[id] = true
		}
	}
	maps.DeleteFunc(a.numbers, func(id instanceID, _ uint64) bool { return !has[id] })
	maps.DeleteFunc(a.awaited, func(id instanceID, _ bool) bool { return !has[id] })
}

// await returns a channel that is closed when one of the instances is seen.
func (a *arrivals) await(ids []instanceID) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.awaited[id] = true
	}
	return a.arrived
}

// takeRecreated removes and returns the recreated instances by path.
func (a *arrivals) takeRecreated() map[string]instanceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths := map[string]instanceID{}
	for id := range a.recreated {
		paths[id.path()] = id
	}
	clear(a.recreated)
	return paths
}

// restoreRecreated records them again after a failure.
func (a *arrivals) restoreRecreated(paths map[string]instanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range paths {
		a.recreated[id] = true
	}
}

func (a *arrivals) setTrigger(trigger func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trigger = trigger
}

// rejoiner adds recreated instances that are nodes to their former groups and pools.
type rejoiner struct {
	*writer

	pools  *targetPools
	groups *instanceGroups
}

func (r *rejoiner) job() loop.Job {
	return loop.Job{Name: "rejoining-instances", Period: rejoinPeriod, Spacing: rejoinSpacing, Timeout: rejoinTimeout, Run: r.run}
}

func (r *rejoiner) run(ctx context.Context) error {
	recreated := r.instances.arrivals.takeRecreated()
	if len(recreated) == 0 {
		return nil
	}
	err := r.rejoinAll(ctx, recreated)
	if err != nil {
		r.instances.arrivals.restoreRecreated(recreated)
	}
	return err
}

func (r *rejoiner) rejoinAll(ctx context.Context, recreated map[string]instanceID) error {
	at, err := r.api.locator.get(ctx)
	if err != nil {
		return err
	}
	known, err := r.instances.nodes.KnownIn(ctx)
	if err != nil {
		return fmt.Errorf("finding out which instances that were made again are nodes: %w", err)
	}
	nodes := map[string]bool{}
	for _, n := range known {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			nodes[id.path()] = true
		}
	}
	maps.DeleteFunc(recreated, func(path string, _ instanceID) bool { return !nodes[path] })
	var failed []error
	for _, g := range r.api.stores.groups.PeekAll() {
		if len(recreatedMembers(g.members, recreated)) > 0 {
			failed = append(failed, r.rejoinGroup(ctx, at, g.id, recreated))
		}
	}
	for _, p := range r.api.stores.pools.PeekAll() {
		ours := isControllerName(p.Name) && serviceOf(p.Description) != "" // the view holds all pools of the region
		if ours && len(recreatedMembers(membersOf(p), recreated)) > 0 {
			failed = append(failed, r.rejoinPool(ctx, at, p.Name, recreated))
		}
	}
	return errors.Join(failed...)
}

// recreatedMembers returns the members that were recreated.
func recreatedMembers(members []string, recreated map[string]instanceID) []string {
	return slices.DeleteFunc(slices.Clone(members), func(path string) bool { return recreated[path] == instanceID{} })
}

func (r *rejoiner) rejoinGroup(ctx context.Context, at location, id groupID, recreated map[string]instanceID) error {
	unlock, err := r.locks.Lock(ctx, id.object())
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := r.api.stores.groups.Peek(id)
	if !ok {
		return nil
	}
	have, err := r.api.group(ctx, id)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil // the next reconciliation creates it
	}
	if err != nil {
		return err
	}
	missing, _ := diffMembers(have.members, recreatedMembers(known.members, recreated))
	if len(missing) == 0 {
		return nil
	}
	want := slices.Concat(have.members, missing)
	if err := r.groups.fill(ctx, at, desiredGroup{id: id, have: have, want: want}); err != nil {
		return err
	}
	r.api.stores.groups.Put(&group{id: id, members: want})
	return nil
}

// rejoinPool adds recreated instances to a pool. It reads the pool itself, because the store shows the former members.
func (r *rejoiner) rejoinPool(ctx context.Context, at location, name string, recreated map[string]instanceID) error {
	unlock, err := r.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := r.api.stores.pools.Peek(name)
	if !ok {
		return nil
	}
	have, err := r.api.sdk.TargetPools.Get(at.project, at.region, name).Context(ctx).Do()
	if err == nil && have.Name != name {
		err = cloudapi.ErrWrongAnswer
	}
	if err = apiError(err, "reading target pool "+name); errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if missing, _ := diffMembers(membersOf(have), recreatedMembers(membersOf(known), recreated)); len(missing) > 0 {
		_, err = r.pools.addMembers(ctx, at, have, missing)
	}
	return err
}
