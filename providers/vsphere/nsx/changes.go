package nsx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file makes the changes of a Service's objects, in their order.

// maxConflicts bounds how often an object is read again after concurrent changes.
const maxConflicts = 5

// Changes implements services.Reconciler: first the address, then all missing objects by one call, then differences, then deletions.
func (r *reconciler) Changes(_ services.Request, o observed, d desired) ([]change, error) {
	o, d = choosePool(o, d)
	p := diff(o, d)
	var changes []change
	if d.unread != nil && p.createsPools() {
		return nil, d.unread
	}
	if p.allocate {
		changes = append(changes, r.planAllocation(o, d))
		o.address = "of the pool " + d.poolID
		p = diff(o, d) // for plan
	}
	if len(p.create) > 0 {
		changes = append(changes, r.planCreation(p.create))
	}
	for _, u := range p.update {
		changes = append(changes, r.planUpdate(u, d.marking))
	}
	for _, x := range p.remove {
		changes = append(changes, r.planRemoval(x))
	}
	return failAfter(changes, d.unread), nil
}

// failAfter adds a last change that does nothing but fail, if there is an error: what is known is changed, and the framework retries.
func failAfter(changes []change, err error) []change {
	if err == nil {
		return changes
	}
	return append(changes, change{Wait: true, Make: func(_ context.Context, _ *services.Request, o observed) (observed, error) {
		return o, err
	}})
}

// planAllocation acquires an address from the pool. An earlier allocation whose address is unknown is awaited.
func (r *reconciler) planAllocation(o observed, d desired) change {
	c := change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: kindAllocation, Detail: "of the pool " + d.poolID},
		Replan:  true, Wait: d.usableAllocation(o.allocations) != nil,
	}
	c.Compare = func() (before, after any) { return nil, map[string]any{"pool": d.poolID} }
	c.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		a := d.usableAllocation(o.allocations)
		if a == nil {
			a = &ipAllocation{pool: d.poolID, commonFields: commonFields{ID: objectID(d.uid, "address"), Tags: d.marking.tags(nil)}}
			err := r.client.patch(ctx, kindAllocation, pathOf(a), a)
			req.Asked(err)
			r.views.allocations.Invalidate(a.key())
			if err != nil {
				return o, noAddressError(req, d.poolID, r.allocationError(err, a))
			}
		}
		return r.findAllocated(ctx, req, o, a)
	}
	return c
}

// findAllocated finds the address of an allocation. A failed one is deleted, because it would never get an address.
func (r *reconciler) findAllocated(ctx context.Context, req *services.Request, o observed, a *ipAllocation) (observed, error) {
	now, err := r.views.getAllocation(ctx, a.key())
	if errors.Is(err, cloudapi.ErrNotFound) {
		r.views.allocations.Forget(a.key())
		return o, services.ErrGone
	}
	if err != nil {
		return o, err
	}
	if now.address() == "" {
		entities, err := r.client.readRealized(ctx, pathOf(a))
		if err != nil {
			return o, err
		}
		for _, e := range entities {
			if e.State == stateError {
				return o, r.deleteAllocation(ctx, req, now, e.alarms())
			}
			if address := e.attribute("allocation_ip"); address != "" && e.State == stateRealized {
				now.AllocatedIP = address
			}
		}
	}
	r.views.allocations.Put(now)
	if now.address() == "" {
		return o, cloudproviderapi.NewRetryError("NSX is taking an address out of the pool "+a.pool, realizePause)
	}
	o.allocations = append(slices.DeleteFunc(slices.Clone(o.allocations), func(x *ipAllocation) bool { return x.key() == now.key() }), now)
	return o.withAddress(), nil
}

// deleteAllocation deletes a failed allocation.
func (r *reconciler) deleteAllocation(ctx context.Context, req *services.Request, a *ipAllocation, why string) error {
	if err := r.client.remove(ctx, kindAllocation, pathOf(a)); err != nil {
		r.views.allocations.Invalidate(a.key())
		return err
	}
	r.erased.note(pathOf(a))
	r.views.allocations.Forget(a.key())
	return noAddressError(req, a.pool, &cloudapi.Error{Class: cloudapi.ErrQuota, Operation: "taking an address out of the IP pool " + a.pool, Message: why})
}

func noAddressError(req *services.Request, pool string, err error) error {
	if errors.Is(err, cloudapi.ErrQuota) {
		req.Report(services.Warning(eventNoAddress, "IP pool %s gives no address: %s; enlarge it, or choose another class by %s", pool, err, annotationClass))
	}
	return err
}

func (e realizedEntity) attribute(key string) string {
	for _, a := range e.Attributes {
		if a.Key == key && len(a.Values) > 0 {
			return a.Values[0]
		}
	}
	return ""
}

// alarms returns the alarms of an entity, and further messages.
func (e realizedEntity) alarms() string {
	var said []string
	for _, a := range e.Alarms {
		for _, text := range []string{a.Message, a.ErrorDetails.Message} {
			if text != "" && !slices.Contains(said, text) {
				said = append(said, text)
			}
		}
	}
	if len(said) == 0 && e.PublishError != "" {
		said = append(said, e.PublishError)
	}
	if len(said) == 0 {
		return "NSX gives no reason; look at the object there"
	}
	return strings.Join(said, "; ")
}

// allocationError returns the error of a refused allocation. The request is always valid, so the pool has no address, unless NSX is still
// releasing the Service's former one.
func (r *reconciler) allocationError(err error, a *ipAllocation) error {
	if !isInvalidWrite(err) {
		return err
	}
	if waiting := r.erased.retryable(err, "the address that the Service had before is being released", pathOf(a)); !errors.Is(waiting, err) {
		return waiting
	}
	if time.Since(r.erased.since) <= erasureAge {
		return err // what a former process deleted is unknown
	}
	said, _ := errors.AsType[*cloudapi.Error](err)
	quota := *said
	quota.Class = cloudapi.ErrQuota
	return &quota
}

// isInvalidWrite reports whether NSX refuses the content of a write, and did not fail itself.
func isInvalidWrite(err error) bool {
	return errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrConflict)
}

// erasureAge is how long NSX may take to delete an object after its response.
const erasureAge = 5 * time.Minute

// erasures holds the paths of deleted objects: NSX refuses another object in the place of one for a while. A process that begins to lead
// has none, and the framework retries.
type erasures struct {
	// since is when this process began to lead.
	since time.Time

	mu sync.Mutex
	at map[string]time.Time
}

func (e *erasures) note(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.at, func(_ string, at time.Time) bool { return time.Since(at) > erasureAge })
	e.at[path] = time.Now()
}

// retryable marks temporary refusals for a retry: conflicts, and objects in the place of recently deleted ones.
func (e *erasures) retryable(err error, why string, paths ...string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	lately := slices.ContainsFunc(paths, func(path string) bool {
		return time.Since(e.at[path]) <= erasureAge
	})
	if errors.Is(err, cloudapi.ErrConflict) || (lately && isInvalidWrite(err)) {
		return cloudproviderapi.NewRetryError(why+" ("+err.Error()+")", realizePause)
	}
	return err
}

// planCreation creates all missing objects, by one call if NSX allows it for this account.
func (r *reconciler) planCreation(objects []object) change {
	names, paths, kinds := make([]string, len(objects)), make([]string, len(objects)), map[string][]object{}
	for i, x := range objects {
		names[i], paths[i], kinds[kindOf(x)] = describeNew(x), pathOf(x), append(kinds[kindOf(x)], x)
	}
	c := change{Planned: contract.Planned{Action: contract.PlanCreate, Object: kindLoadBalancer, Detail: strings.Join(names, ", ")}}
	c.Compare = func() (before, after any) { return nil, kinds }
	c.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		if err := r.client.createObjects(ctx, objects); err != nil {
			req.Asked(err)
			for _, x := range objects {
				r.views.invalidate(x)
			}
			if gone := r.views.checkReferences(ctx, err, objects, paths); gone != nil {
				return o, gone
			}
			return o, r.erased.retryable(err, "NSX is still deleting what the Service had before", paths...)
		}
		for _, x := range objects {
			switch x := x.(type) {
			case *virtualServer:
				r.views.servers.Put(x)
				o.servers = append(o.servers, x)
				r.unrealized.Store(pathOf(x), nil)
			case *serverPool:
				r.views.pools.Put(x)
				o.pools = append(o.pools, x)
			case *monitorProfile:
				r.views.monitors.Put(x)
				o.monitors = append(o.monitors, x)
			case *lbService:
				r.views.services.Put(x)
			}
		}
		return o.sortByID(), nil
	}
	return c
}

// describeNew names an object to be created.
func describeNew(x object) string {
	switch x := x.(type) {
	case *virtualServer:
		return fmt.Sprintf("%s %s at %s to node port %s", kindServer, x.tag(scopePort), x.IPAddress, strings.Join(x.MemberPorts, ","))
	case *serverPool:
		return fmt.Sprintf("%s %s with %d members", kindPool, x.tag(scopePort), len(x.Members))
	case *monitorProfile:
		return fmt.Sprintf("%s %s", kindMonitor, x.tag(scopePort))
	}
	return kindOf(x) + " " + x.common().DisplayName
}

// referencedPaths returns the paths that new objects refer to, in order.
func referencedPaths(objects []object) []string {
	var paths []string
	for _, x := range objects {
		switch x := x.(type) {
		case *virtualServer:
			paths = append(paths, x.ServicePath, x.PoolPath)
		case *serverPool:
			paths = append(paths, x.Monitors...)
		}
	}
	slices.Sort(paths)
	return slices.DeleteFunc(slices.Compact(paths), func(path string) bool { return path == "" })
}

// planUpdate changes our fields of one object.
func (r *reconciler) planUpdate(u update, m marking) change {
	c := change{Planned: contract.Planned{Action: contract.PlanChange, Object: titleOf(u.before), Detail: u.reason}}
	c.Compare = func() (before, after any) { return u.before, u.after }
	c.Make = func(ctx context.Context, _ *services.Request, o observed) (_ observed, err error) {
		switch x := u.before.(type) {
		case *monitorProfile:
			o.monitors, err = rewriteIn(ctx, r.client, r.views.monitors, o.monitors, x, m, u.monitor.apply)
		case *serverPool:
			o.pools, err = rewriteIn(ctx, r.client, r.views.pools, o.pools, x, m, u.pool.apply)
		case *virtualServer:
			if o.servers, err = rewriteIn(ctx, r.client, r.views.servers, o.servers, x, m, u.server.apply); err == nil {
				r.unrealized.Store(pathOf(x), nil)
			}
		}
		return o, err
	}
	return c
}

// rewriteIn rewrites an object of a list.
func rewriteIn[V any, T objectOf[V]](
	ctx context.Context, n *client, known view[T], list []T, x T, m marking, apply func(T) (reason string),
) ([]T, error) {
	now, err := rewrite(ctx, n, known, x, m, apply)
	list = slices.Clone(list)
	for i := range list {
		if list[i].common().ID == now.common().ID {
			list[i] = now
		}
	}
	return list, err
}

// rewrite replaces an object with our fields changed by apply. A concurrent change is read and kept. Nothing is written if nothing differs
// any more.
func rewrite[V any, T objectOf[V]](ctx context.Context, n *client, known view[T], x T, m marking, apply func(T) string) (T, error) {
	id, kind, path := x.common().ID, kindOf(x), pathOf(x)
	for range maxConflicts {
		if x.common().Revision == nil {
			now, err := readObject[V, T](ctx, n, kind, path)
			if errors.Is(err, cloudapi.ErrNotFound) {
				known.Forget(id)
				return x, services.ErrGone
			}
			if err != nil {
				return x, err
			}
			x = now
		}
		after, reason := applyToCopy(x, apply)
		if reason == "" {
			known.Put(after)
			return after, nil
		}
		after.common().Tags = m.addMarks(after.common().Tags)
		now, err := replaceObject[V, T](ctx, n, kind, path, after)
		if err == nil {
			known.Put(now)
			return now, nil
		}
		known.Invalidate(id)
		if !errors.Is(err, cloudapi.ErrConflict) {
			return x, cloudapi.NotAbsence(err)
		}
		x = withoutRevision(x)
	}
	return x, &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "writing " + titleOf(x), Message: "somebody else changes it all the time"}
}

// withoutRevision returns a copy of an object that is read before it is written.
func withoutRevision[V any, T objectOf[V]](x T) T {
	unread := T(new(V))
	*unread = *x
	unread.common().Revision = nil
	return unread
}

// planRemoval deletes one object; a missing one is no error.
func (r *reconciler) planRemoval(x object) change {
	c := change{Planned: contract.Planned{Action: contract.PlanDelete, Object: titleOf(x)}}
	c.Compare = func() (before, after any) { return x, nil }
	c.Make = func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
		if err := r.removeUnused(ctx, kindOf(x), pathOf(x)); err != nil {
			r.views.invalidate(x)
			if errors.Is(err, errReferenced) {
				// The objects that refer to it are not visible yet, or another owner's.
				return o, fmt.Errorf("%s cannot be deleted while other objects use it: %w", titleOf(x), err)
			}
			return o, err
		}
		r.unrealized.Delete(pathOf(x))
		view, id := r.views.viewOf(x)
		view.Forget(id)
		return o.filter(func(other object) bool { return other != x }), nil
	}
	return c
}

// removeUnused deletes an object. A refusal because it is in use is retried if nothing that NSX shows uses it: NSX deletes asynchronously,
// without showing the end.
func (r *reconciler) removeUnused(ctx context.Context, kind, path string) error {
	err := r.client.remove(ctx, kind, path)
	if errors.Is(err, errReferenced) && !r.views.isUsed(ctx, path) {
		_ = services.Patiently(ctx, realizePatience, func() error {
			if err = r.client.remove(ctx, kind, path); errors.Is(err, errReferenced) {
				return cloudproviderapi.NewRetryError("NSX is still deleting what uses "+path, realizePause)
			}
			return nil
		})
	}
	if err == nil {
		r.erased.note(path)
	}
	return err
}

// NodeChanges implements services.Reconciler: only the members of the pools that differ.
func (r *reconciler) NodeChanges(
	ctx context.Context, req services.Request, o observed,
) (changes []change, findings []services.Finding, err error) {
	m, err := r.newMarking(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	members, unread := r.nodes.members(ctx, req.Cluster, req.Nodes)
	want := poolChange{members: members}
	for _, x := range o.pools {
		if after, reason := applyToCopy(x, want.apply); reason != "" {
			changes = append(changes, r.planUpdate(update{before: x, after: after, reason: reason, pool: want}, m))
		}
	}
	return failAfter(changes, unread), nil, nil
}

// Deletions implements services.Reconciler: first objects that refer to others, and the address last, because it must not be reused before.
func (r *reconciler) Deletions(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	changes, err := r.planRemovals(ctx, req.Cluster, o)
	return changes, nil, err
}

func (r *reconciler) planRemovals(ctx context.Context, cluster string, o observed) (changes []change, err error) {
	if o.isEmpty() {
		return nil, nil
	}
	for _, s := range o.servers {
		changes = append(changes, r.planRemoval(s))
	}
	unused, used, err := r.splitOwnServices(ctx, cluster, o)
	if err != nil {
		return nil, err
	}
	if n := len(changes); n > 0 {
		// Services that are deleted together see each other's virtual servers until the last one is deleted.
		remove := changes[n-1].Make
		changes[n-1].Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			o, err := remove(ctx, req, o)
			for _, s := range used {
				if err == nil && len(r.views.servers.PeekIndex(indexLBService, pathOf(s))) == 0 {
					o, err = r.planServiceRemoval(s).Make(ctx, req, o)
				}
			}
			return o, err
		}
	}
	for _, s := range unused {
		changes = append(changes, r.planServiceRemoval(s))
	}
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := r.views.findClassPools(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range orderDeletions(o.objects()[len(o.servers):], mark, pools) {
		changes = append(changes, r.planRemoval(x))
	}
	return changes, nil
}

// orderDeletions deletes addresses before the pools and health checks that lead to them after an interrupted deletion: those with a former
// cluster's mark, or of a pool without a class.
func orderDeletions(list []object, mark string, classPools []string) []object {
	rank := func(x object) int {
		a, address := x.(*ipAllocation)
		if address && (ownership.Foreign(mark, marksOf(x)) || !slices.Contains(classPools, a.pool)) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b object) int { return rank(a) - rank(b) })
	return list
}

// splitOwnServices returns the load balancer services that this cluster created: those without other users, and those with.
func (r *reconciler) splitOwnServices(ctx context.Context, cluster string, o observed) (unused, used []*lbService, err error) {
	if r.config.LBServiceID != "" {
		return nil, nil, nil
	}
	mine := map[string]bool{}
	for _, s := range o.servers {
		mine[s.ID] = true
	}
	own, err := r.ownServices(ctx, cluster, inventory.Query{MaxAge: ensureMaxAge})
	for _, s := range own {
		users := r.views.servers.PeekIndex(indexLBService, pathOf(s))
		others := slices.ContainsFunc(users, func(v *virtualServer) bool { return !mine[v.ID] })
		if others {
			used = append(used, s)
			continue
		}
		unused = append(unused, s)
	}
	return unused, used, err
}

// planServiceRemoval deletes a load balancer service. If it got a new user meanwhile, NSX refuses.
func (r *reconciler) planServiceRemoval(s *lbService) change {
	planned := contract.Planned{Action: contract.PlanDelete, Object: titleOf(s), Detail: "if nothing else uses it"}
	return change{Planned: planned, Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
		all, err := r.views.servers.All(ctx, inventory.Query{})
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(all, func(v *virtualServer) bool { return v.ServicePath == pathOf(s) }) {
			return o, nil
		}
		err = r.removeUnused(ctx, kindService, pathOf(s))
		if errors.Is(err, errReferenced) {
			klog.InfoS("A load balancer service is used by others and stays", "service", s.ID)
			return o, nil
		}
		if err != nil {
			r.views.services.Invalidate(s.ID)
			return o, err
		}
		r.views.services.Forget(s.ID)
		return o, nil
	}}
}
