package gce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
)

// An instance recreated under its name, as by managed instance groups, has lost its load balancers although its Node may be unchanged.
// Reads of instances show their numeric IDs, so that a changed or previously missing one is noticed without a call.

const (
	// rejoinPeriod is a safety net: without recreated instances the job makes no call.
	rejoinPeriod  = time.Hour
	rejoinSpacing = 5 * time.Second
	rejoinTimeout = 10 * time.Minute
	// numbersSpare is how many numbers are kept beyond twice the listing before instances without a Node are forgotten.
	numbersSpare = 100
)

// arrivals notices new and recreated instances.
type arrivals struct {
	mu      sync.Mutex
	numbers map[instanceID]uint64
	// awaited are instances that load balancers miss; come is closed when one of them is seen.
	awaited map[instanceID]bool
	come    chan struct{}
	// again are recreated instances.
	again map[instanceID]bool
	// trigger starts the job; nil before the job exists.
	trigger func()
}

func newArrivals() *arrivals {
	return &arrivals{numbers: map[instanceID]uint64{}, awaited: map[instanceID]bool{}, come: make(chan struct{}), again: map[instanceID]bool{}}
}

// record records the instances of a read.
func (a *arrivals) record(list ...instance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	arrived, again := false, false
	for _, i := range list {
		if a.awaited[i.id] {
			arrived = true
			delete(a.awaited, i.id)
		}
		if before, known := a.numbers[i.id]; known && before != i.number {
			again, a.again[i.id] = true, true
		}
		a.numbers[i.id] = i.number
	}
	if arrived {
		close(a.come)
		a.come = make(chan struct{})
	}
	if again && a.trigger != nil {
		a.trigger()
	}
}

// trim forgets instances without a Node once too many are recorded.
func (a *arrivals) trim(listed int, nodes []*v1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.numbers)+len(a.awaited) <= 2*listed+numbersSpare {
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
	return a.come
}

// takeRecreated removes and returns the recreated instances by path.
func (a *arrivals) takeRecreated() map[string]instanceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths := map[string]instanceID{}
	for id := range a.again {
		paths[id.path()] = id
	}
	clear(a.again)
	return paths
}

// putBack records them again after a failure.
func (a *arrivals) putBack(paths map[string]instanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range paths {
		a.again[id] = true
	}
}

func (a *arrivals) begin(trigger func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trigger = trigger
}

func (b *reconciler) rejoinJob() loop.Job {
	return loop.Job{Name: "rejoining-instances", Period: rejoinPeriod, Spacing: rejoinSpacing, Timeout: rejoinTimeout, Run: b.rejoin}
}

// rejoin adds recreated instances that are nodes to their former groups and pools.
func (b *reconciler) rejoin(ctx context.Context) error {
	again := b.instances.arrivals.takeRecreated()
	if len(again) == 0 {
		return nil
	}
	err := b.rejoinAll(ctx, again)
	if err != nil {
		b.instances.arrivals.putBack(again)
	}
	return err
}

func (b *reconciler) rejoinAll(ctx context.Context, again map[string]instanceID) error {
	at, err := b.api.places.get(ctx)
	if err != nil {
		return err
	}
	known, err := b.instances.nodes.KnownIn(ctx)
	if err != nil {
		return fmt.Errorf("finding out which instances that were made again are nodes: %w", err)
	}
	nodes := map[string]bool{}
	for _, n := range known {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			nodes[id.path()] = true
		}
	}
	maps.DeleteFunc(again, func(path string, _ instanceID) bool { return !nodes[path] })
	var failed []error
	for _, g := range b.api.stores.groups.PeekAll() {
		if len(recreatedMembers(g.members, again)) > 0 {
			failed = append(failed, b.rejoinGroup(ctx, at, g.id, again))
		}
	}
	for _, p := range b.api.stores.pools.PeekAll() {
		ours := isControllerName(p.Name) && serviceOf(p.Description) != "" // the view holds all pools of the region
		if ours && len(recreatedMembers(membersOf(p), again)) > 0 {
			failed = append(failed, b.rejoinPool(ctx, at, p.Name, again))
		}
	}
	return errors.Join(failed...)
}

// recreatedMembers returns the members that were recreated.
func recreatedMembers(members []string, again map[string]instanceID) []string {
	return slices.DeleteFunc(slices.Clone(members), func(path string) bool { return again[path] == instanceID{} })
}

// missingMembers returns the members that are missing now.
func missingMembers(members, have []string) []string {
	return slices.DeleteFunc(members, func(path string) bool { return slices.Contains(have, path) })
}

func (b *reconciler) rejoinGroup(ctx context.Context, at place, id groupID, again map[string]instanceID) error {
	unlock, err := b.lock(ctx, "instance group "+id.zone+"/"+id.name)
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := b.api.stores.groups.Peek(id)
	if !ok {
		return nil
	}
	have, err := b.api.group(ctx, id)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil // the next reconciliation creates it
	}
	if err != nil {
		return err
	}
	missing := missingMembers(recreatedMembers(known.members, again), have.members)
	if len(missing) == 0 {
		return nil
	}
	want := slices.Concat(have.members, missing)
	if err := b.fillGroup(ctx, at, desiredGroup{id: id, have: have, want: want}); err != nil {
		return err
	}
	b.api.stores.groups.Put(&group{id: id, members: want})
	return nil
}

func (b *reconciler) rejoinPool(ctx context.Context, at place, name string, again map[string]instanceID) error {
	unlock, err := b.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := b.api.stores.pools.Peek(name)
	if !ok {
		return nil
	}
	var have *compute.TargetPool
	if have, err = b.api.sdk.TargetPools.Get(at.project, at.region, name).Context(ctx).Do(); err == nil && have.Name != name {
		err = errWrongAnswer
	}
	if err = apiError(err, "reading target pool "+name); errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if missing := missingMembers(recreatedMembers(membersOf(known), again), membersOf(have)); len(missing) > 0 {
		_, err = b.addMembers(ctx, at, have, missing)
	}
	return err
}
