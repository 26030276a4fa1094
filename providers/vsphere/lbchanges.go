package vsphere

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// maxConflicts bounds how often an object is read again after concurrent changes.
const maxConflicts = 5

// indexVIP is the index of virtual servers by their address.
const indexVIP = "address"

// Changes implements services.Reconciler: first the address, then all missing objects by one call, then differences, then deletions.
func (l *loadBalancers) Changes(_ services.Request, o observation, d desired) ([]change, error) {
	o, d = withPool(o, d)
	p := diff(o, d)
	var changes []change
	if d.doubt != nil && p.createsPools() {
		return nil, d.doubt
	}
	if p.allocate {
		changes = append(changes, l.allocation(o, d))
		o.address = "of the pool " + d.poolID
		p = diff(o, d) // for plan
	}
	if len(p.create) > 0 {
		changes = append(changes, l.creation(p.create))
	}
	for _, r := range p.revise {
		changes = append(changes, l.revision(r, d.marking))
	}
	for _, x := range p.remove {
		changes = append(changes, l.removal(x))
	}
	return withDoubt(changes, d.doubt), nil
}

// withDoubt appends an error to changes that are incomplete: they are made, and the framework retries.
func withDoubt(changes []change, doubt error) []change {
	if doubt == nil {
		return changes
	}
	return append(changes, change{Wait: true, Make: func(_ context.Context, _ *services.Request, o observation) (observation, error) {
		return o, doubt
	}})
}

// allocation acquires an address from the pool. An earlier allocation whose address is unknown is awaited.
func (l *loadBalancers) allocation(o observation, d desired) change {
	planned := contract.Planned{Action: contract.PlanCreate, Object: kindAllocation, Detail: "of the pool " + d.poolID}
	c := change{Planned: planned, Replan: true, Wait: d.usableAllocation(o.allocations) != nil}
	c.Compare = func() (before, after any) { return nil, map[string]any{"pool": d.poolID} }
	c.Make = func(ctx context.Context, r *services.Request, o observation) (observation, error) {
		a := d.usableAllocation(o.allocations)
		if a == nil {
			a = &ipAllocation{pool: d.poolID, nsxObject: nsxObject{ID: objectID(d.uid, "address"), Tags: d.marking.tags(nil)}}
			err := l.nsx.patch(ctx, kindAllocation, a.path(), a)
			r.Asked(err)
			l.views.allocations.Invalidate(a.key())
			if err != nil {
				return o, l.noAddressError(r, d.poolID, l.allocationError(err, a))
			}
		}
		return l.findAllocated(ctx, r, o, a)
	}
	return c
}

// findAllocated finds the address of an allocation. A failed one is deleted, because it would never get an address.
func (l *loadBalancers) findAllocated(ctx context.Context, r *services.Request, o observation, a *ipAllocation) (observation, error) {
	now, err := l.views.getAllocation(ctx, a.key())
	if errors.Is(err, cloudapi.ErrNotFound) {
		l.views.allocations.Forget(a.key())
		return o, services.ErrGone
	}
	if err != nil {
		return o, err
	}
	if now.address() == "" {
		entities, err := l.nsx.readRealized(ctx, a.path())
		if err != nil {
			return o, err
		}
		for _, e := range entities {
			if e.State == stateError {
				return o, l.deleteAllocation(ctx, r, now, e.alarms())
			}
			if address := e.attribute("allocation_ip"); address != "" && e.State == stateRealized {
				now.AllocatedIP = address
			}
		}
	}
	l.views.allocations.Put(now)
	if now.address() == "" {
		return o, cloudproviderapi.NewRetryError("NSX is taking an address out of the pool "+a.pool, realizePause)
	}
	o.allocations = append(slices.DeleteFunc(slices.Clone(o.allocations), func(x *ipAllocation) bool { return x.key() == now.key() }), now)
	return o.withAddress(), nil
}

// deleteAllocation deletes a failed allocation.
func (l *loadBalancers) deleteAllocation(ctx context.Context, r *services.Request, a *ipAllocation, why string) error {
	if err := l.nsx.remove(ctx, kindAllocation, a.path()); err != nil {
		l.views.allocations.Invalidate(a.key())
		return err
	}
	l.noteErased(a.path())
	l.views.allocations.Forget(a.key())
	return l.noAddressError(r, a.pool, &cloudapi.Error{Class: cloudapi.ErrQuota, Operation: "taking an address out of the IP pool " + a.pool, Message: why})
}

func (l *loadBalancers) noAddressError(r *services.Request, pool string, err error) error {
	if errors.Is(err, cloudapi.ErrQuota) {
		r.Report(services.Warning(eventNoAddress, "IP pool %s gives no address: %s; enlarge it, or choose another class by %s", pool, err, annotationClass))
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
func (l *loadBalancers) allocationError(err error, a *ipAllocation) error {
	if !isInvalidWrite(err) {
		return err
	}
	if waiting := l.retryable(err, "the address that the Service had before is being released", a.path()); !errors.Is(waiting, err) {
		return waiting
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

// erasing is how long NSX may take to delete an object after its response.
const erasing = 5 * time.Minute

// noteErased records a deletion: NSX refuses another object in its place for a while.
func (l *loadBalancers) noteErased(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.erased, func(_ string, at time.Time) bool { return time.Since(at) > erasing })
	l.erased[path] = time.Now()
}

// retryable marks temporary refusals for a retry: conflicts, and objects in the place of recently deleted ones.
func (l *loadBalancers) retryable(err error, why string, paths ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lately := slices.ContainsFunc(paths, func(path string) bool {
		at, known := l.erased[path]
		return known && time.Since(at) <= erasing
	})
	if errors.Is(err, cloudapi.ErrConflict) || (lately && isInvalidWrite(err)) {
		return cloudproviderapi.NewRetryError(why+" ("+err.Error()+")", realizePause)
	}
	return err
}

// creation creates all missing objects, by one call if NSX allows it for this account.
func (l *loadBalancers) creation(objects []object) change {
	names := make([]string, len(objects))
	for i, x := range objects {
		names[i] = describeNew(x)
	}
	planned := contract.Planned{Action: contract.PlanCreate, Object: "NSX load balancer", Detail: strings.Join(names, ", ")}
	compare := func() (before, after any) {
		made := map[string][]object{}
		for _, x := range objects {
			made[kindOf(x)] = append(made[kindOf(x)], x)
		}
		return nil, made
	}
	c := change{Planned: planned, Compare: compare}
	c.Make = func(ctx context.Context, r *services.Request, o observation) (observation, error) {
		if err := l.create(ctx, objects); err != nil {
			r.Asked(err)
			l.invalidate(objects)
			paths := make([]string, len(objects))
			for i, x := range objects {
				paths[i] = pathOf(collectionOf(x), x)
			}
			if gone := l.reference(ctx, err, objects, paths); gone != nil {
				return o, gone
			}
			return o, l.retryable(err, "NSX is still deleting what the Service had before", paths...)
		}
		for _, x := range objects {
			l.put(x)
			switch x := x.(type) {
			case *virtualServer:
				o.servers = append(o.servers, x)
				l.noteUnrealized(r.Service, pathOf(pathServers, x))
			case *serverPool:
				o.pools = append(o.pools, x)
			case *monitorProfile:
				o.monitors = append(o.monitors, x)
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

// reference handles a creation that refers to a missing object: everything is read again. NSX's error codes are not documented, so the
// referenced objects are read.
func (l *loadBalancers) reference(ctx context.Context, err error, objects []object, made []string) error {
	if !isInvalidWrite(err) && !errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	for _, path := range referencedPaths(objects) {
		if slices.Contains(made, path) {
			continue
		}
		missing := l.nsx.call(ctx, "reading "+path, http.MethodGet, path, nil, &struct{}{})
		if !errors.Is(missing, cloudapi.ErrNotFound) {
			continue
		}
		klog.InfoS("An object that a new one refers to is gone; looking again", "path", path, "reason", err.Error())
		l.views.services.InvalidateAll()
		l.views.pools.InvalidateAll()
		l.views.monitors.InvalidateAll()
		return services.ErrGone
	}
	return nil
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

// create writes new objects: together if there are several and NSX allows that, else one after the other.
func (l *loadBalancers) create(ctx context.Context, objects []object) error {
	if len(objects) > 1 && !l.nsx.single.Load() {
		err := l.nsx.patchTree(ctx, "creating a load balancer", objects)
		said, ok := errors.AsType[*cloudapi.Error](err)
		if !ok || !slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed}, said.Status) {
			return err
		}
		klog.InfoS("NSX does not let this account change several objects at once; they are created one after the other", "reason", err.Error())
		l.nsx.single.Store(true)
	}
	for _, x := range objects {
		if err := l.nsx.patch(ctx, kindOf(x), pathOf(collectionOf(x), x), x); err != nil {
			return err
		}
	}
	return nil
}

// placeOf returns an object's kind and collection; an allocation's is that of its pool.
func placeOf(x object) (kind, collection string) {
	switch x.(type) {
	case *virtualServer:
		return kindServer, pathServers
	case *serverPool:
		return kindPool, pathPools
	case *monitorProfile:
		return kindMonitor, pathMonitors
	case *lbService:
		return kindService, pathServices
	}
	return kindAllocation, ""
}

func kindOf(x object) string {
	kind, _ := placeOf(x)
	return kind
}

func collectionOf(x object) string {
	_, collection := placeOf(x)
	return collection
}

// put stores written objects in the shared views.
func (l *loadBalancers) put(x object) {
	switch x := x.(type) {
	case *virtualServer:
		l.views.servers.Put(x)
	case *serverPool:
		l.views.pools.Put(x)
	case *monitorProfile:
		l.views.monitors.Put(x)
	case *lbService:
		l.views.services.Put(x)
	}
}

// invalidate makes objects be read again after a write of unknown outcome.
func (l *loadBalancers) invalidate(objects []object) {
	for _, x := range objects {
		switch x := x.(type) {
		case *virtualServer:
			l.views.servers.Invalidate(x.ID)
		case *serverPool:
			l.views.pools.Invalidate(x.ID)
		case *monitorProfile:
			l.views.monitors.Invalidate(x.ID)
		case *lbService:
			l.views.services.Invalidate(x.ID)
		case *ipAllocation:
			l.views.allocations.Invalidate(x.key())
		}
	}
}

// compare returns our fields of the object, before and after.
func (r revision) compare() (before, after any) {
	switch x := r.object.(type) {
	case *monitorProfile:
		now := *x
		r.check.apply(&now)
		return x, &now
	case *serverPool:
		now := *x
		r.pool.apply(&now)
		return x, &now
	case *virtualServer:
		now := *x
		now.MemberPorts, now.PoolPath, now.ApplicationProfile = []string{r.server.nodePort()}, r.poolPath, r.server.Profile
		return x, &now
	}
	return nil, nil
}

// revision changes our fields of one object.
func (l *loadBalancers) revision(r revision, m marking) change {
	planned := contract.Planned{Action: contract.PlanChange, Object: nsxTitle(r.kind, r.object), Detail: r.reason}
	c := change{Planned: planned, Compare: r.compare}
	c.Make = func(ctx context.Context, request *services.Request, o observation) (observation, error) {
		var err error
		switch x := r.object.(type) {
		case *monitorProfile:
			var now *monitorProfile
			now, err = rewrite(ctx, l.nsx, l.views.monitors, kindMonitor, pathMonitors, x, m, func(c *monitorProfile) bool {
				differs := monitorDiffers(c, *r.check) != ""
				r.check.apply(c)
				return differs
			})
			o.monitors = replaceObject(o.monitors, now)
		case *serverPool:
			var now *serverPool
			now, err = rewrite(ctx, l.nsx, l.views.pools, kindPool, pathPools, x, m, func(c *serverPool) bool {
				differs := poolDiffers(c, *r.pool) != ""
				r.pool.apply(c)
				return differs
			})
			o.pools = replaceObject(o.pools, now)
		case *virtualServer:
			pool := ""
			if p := o.pool(*r.server); p != nil {
				pool = pathOf(pathPools, p)
			}
			var now *virtualServer
			now, err = rewrite(ctx, l.nsx, l.views.servers, kindServer, pathServers, x, m, func(c *virtualServer) bool {
				differs := serverDiffers(c, *r.server, pool) != ""
				c.MemberPorts, c.PoolPath, c.ApplicationProfile = []string{r.server.nodePort()}, pool, r.server.Profile
				return differs
			})
			if err == nil {
				l.noteUnrealized(request.Service, pathOf(pathServers, x))
			}
			o.servers = replaceObject(o.servers, now)
		}
		return o, err
	}
	return c
}

func replaceObject[T object](list []T, now T) []T {
	list = slices.Clone(list)
	for i := range list {
		if object(now) != nil && list[i].common().ID == now.common().ID {
			list[i] = now
		}
	}
	return list
}

// rewrite replaces an object with our fields changed. A concurrent change is read and kept. Nothing is written if there is no difference
// any more.
func rewrite[V any, T interface {
	*V
	object
}](
	ctx context.Context, n *nsx, view *inventory.Inventory[string, T], kind, collection string, x T, m marking, change func(T) bool,
) (T, error) {
	id := x.common().ID
	for range maxConflicts {
		if x.common().Revision == nil {
			now, err := nsxGet[V, T](ctx, n, kind, collection+"/"+id)
			if errors.Is(err, cloudapi.ErrNotFound) {
				view.Forget(id)
				return x, services.ErrGone
			}
			if err != nil {
				return x, err
			}
			x = now
		}
		after := T(new(V))
		*after = *x
		if !change(after) {
			view.Put(after)
			return after, nil
		}
		after.common().Tags = m.addMarks(after.common().Tags)
		now, err := nsxPut[V, T](ctx, n, kind, collection+"/"+id, after)
		switch {
		case err == nil:
			view.Put(now)
			return now, nil
		case !errors.Is(err, cloudapi.ErrConflict):
			view.Invalidate(id)
			return x, cloudapi.NotAbsence(err)
		}
		view.Invalidate(id)
		unknown := *x
		x = &unknown
		x.common().Revision = nil
	}
	return x, &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "writing " + nsxTitle(kind, x), Message: "somebody else changes it all the time"}
}

// removal deletes one object; a missing one is no error.
func (l *loadBalancers) removal(x object) change {
	planned := contract.Planned{Action: contract.PlanDelete, Object: nsxTitle(kindOf(x), x)}
	compare := func() (before, after any) { return x, nil }
	return change{Planned: planned, Compare: compare, Make: func(
		ctx context.Context, _ *services.Request, o observation,
	) (observation, error) {
		return l.remove(ctx, o, x)
	}}
}

func (l *loadBalancers) remove(ctx context.Context, o observation, x object) (observation, error) {
	path := pathOf(collectionOf(x), x)
	if a, ok := x.(*ipAllocation); ok {
		path = a.path()
	}
	if err := l.removeUnused(ctx, kindOf(x), path); err != nil {
		l.invalidate([]object{x})
		if said, ok := errors.AsType[*cloudapi.Error](err); ok && errors.Is(said.Cause, errReferenced) {
			// The objects that refer to it are not visible yet, or another owner's.
			return o, fmt.Errorf("%s cannot be deleted while other objects use it: %w", nsxTitle(kindOf(x), x), err)
		}
		return o, err
	}
	l.noteErased(path)
	switch x := x.(type) {
	case *virtualServer:
		l.views.servers.Forget(x.ID)
	case *serverPool:
		l.views.pools.Forget(x.ID)
	case *monitorProfile:
		l.views.monitors.Forget(x.ID)
	case *ipAllocation:
		l.views.allocations.Forget(x.key())
	}
	return o.filter(func(other object) bool { return other != x }), nil
}

// removeUnused deletes an object. After recent deletions, a refusal because it is in use is retried: NSX deletes asynchronously, without
// showing the end.
func (l *loadBalancers) removeUnused(ctx context.Context, kind, path string) error {
	var err error
	_ = services.Patiently(ctx, realizePatience, func() error {
		err = l.nsx.remove(ctx, kind, path)
		if said, ok := errors.AsType[*cloudapi.Error](err); ok && errors.Is(said.Cause, errReferenced) && l.hasErasedWithin(realizePatience) {
			return cloudproviderapi.NewRetryError("NSX is still deleting what uses "+path, realizePause)
		}
		return nil
	})
	return err
}

func (l *loadBalancers) hasErasedWithin(age time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.erased {
		if time.Since(at) <= age {
			return true
		}
	}
	return false
}

// NodeChanges implements services.Reconciler: only the members of the pools that differ.
func (l *loadBalancers) NodeChanges(
	ctx context.Context, r services.Request, o observation,
) (changes []change, findings []services.Finding, err error) {
	m, err := l.marking(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	want := poolChange{}
	want.members, err = l.members(ctx, r.Cluster, r.Nodes)
	for _, x := range o.pools {
		if reason := poolDiffers(x, want); reason != "" {
			changes = append(changes, l.revision(revision{object: x, kind: kindPool, pool: &want, reason: reason}, m))
		}
	}
	return withDoubt(changes, err), nil, nil
}

// Deletions implements services.Reconciler: first objects that refer to others, and the address last, because it must not be reused before.
func (l *loadBalancers) Deletions(ctx context.Context, r services.Request, o observation) ([]change, []services.Finding, error) {
	l.forget(r.Service)
	changes, err := l.removals(ctx, r.Cluster, o)
	return changes, nil, err
}

func (l *loadBalancers) removals(ctx context.Context, cluster string, o observation) (changes []change, err error) {
	if o.isEmpty() {
		return nil, nil
	}
	for _, s := range o.servers {
		changes = append(changes, l.removal(s))
	}
	unused, used, err := l.servicesOf(ctx, cluster, o)
	if err != nil {
		return nil, err
	}
	if n := len(changes); n > 0 {
		changes[n-1].Make = l.unusedServiceRemoval(changes[n-1].Make, used)
	}
	for _, s := range unused {
		changes = append(changes, l.serviceRemoval(s))
	}
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := l.classPools(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range orderDeletions(o.objects()[len(o.servers):], mark, pools) {
		changes = append(changes, l.removal(x))
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

// servicesOf returns the load balancer services that this cluster created: those without other users, and those with.
func (l *loadBalancers) servicesOf(ctx context.Context, cluster string, o observation) (unused, used []*lbService, err error) {
	if l.config.LBServiceID != "" {
		return nil, nil, nil
	}
	mine := map[string]bool{}
	for _, s := range o.servers {
		mine[s.ID] = true
	}
	own, err := l.ownServices(ctx, cluster, inventory.Query{MaxAge: ensureMaxAge})
	for _, s := range own {
		users := l.views.servers.PeekIndex(indexLBService, pathOf(pathServices, s))
		others := slices.ContainsFunc(users, func(v *virtualServer) bool { return !mine[v.ID] })
		if others {
			used = append(used, s)
			continue
		}
		unused = append(unused, s)
	}
	return unused, used, err
}

// unusedServiceRemoval deletes, after the last virtual server, the load balancer services without users: Services that are deleted together
// see each other's virtual servers until then.
func (l *loadBalancers) unusedServiceRemoval(
	remove func(context.Context, *services.Request, observation) (observation, error), used []*lbService,
) func(context.Context, *services.Request, observation) (observation, error) {
	return func(ctx context.Context, r *services.Request, o observation) (observation, error) {
		o, err := remove(ctx, r, o)
		for _, s := range used {
			if err == nil && len(l.views.servers.PeekIndex(indexLBService, pathOf(pathServices, s))) == 0 {
				o, err = l.serviceRemoval(s).Make(ctx, r, o)
			}
		}
		return o, err
	}
}

// serviceRemoval deletes a load balancer service. If it got a new user meanwhile, NSX refuses.
func (l *loadBalancers) serviceRemoval(s *lbService) change {
	planned := contract.Planned{Action: contract.PlanDelete, Object: nsxTitle(kindService, s), Detail: "if nothing else uses it"}
	return change{Planned: planned, Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
		all, err := l.views.servers.All(ctx, inventory.Query{})
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(all, func(v *virtualServer) bool { return v.ServicePath == pathOf(pathServices, s) }) {
			return o, nil
		}
		err = l.removeUnused(ctx, kindService, pathOf(pathServices, s))
		if said, ok := errors.AsType[*cloudapi.Error](err); ok && errors.Is(said.Cause, errReferenced) {
			klog.InfoS("A load balancer service is used by others and stays", "service", s.ID)
			return o, nil
		}
		if err != nil {
			l.views.services.Invalidate(s.ID)
			return o, err
		}
		l.noteErased(pathOf(pathServices, s))
		l.views.services.Forget(s.ID)
		return o, nil
	}}
}
