package ibm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// busyPatience is how long a call waits for a load balancer that the cloud works on: a creation takes minutes, each change about 30 s.
const busyPatience = 10 * time.Minute

// retryLater is returned if the cloud still works at the end of the patience, which is no failure.
func retryLater(err error, name string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cloudproviderapi.NewRetryError("the cloud still works on load balancer "+name, lookAgain)
	}
	return err
}

// busyError turns the refusal of a write on a busy load balancer into a retry. The cloud's work may not be visible, for example if somebody
// else caused it.
func busyError(err error, name string) error {
	if errors.Is(err, cloudapi.ErrConflict) && !errors.Is(err, errDuplicate) && !errors.Is(err, errInUse) {
		return cloudproviderapi.NewRetryError("the cloud works on load balancer "+name+", and took no change ("+err.Error()+")", lookAgain)
	}
	return err
}

// writer writes on load balancers, one write at a time.
type writer struct {
	*reader
	records *records
}

// waitUntilIdle waits until the cloud no longer works on a load balancer.
func (w *writer) waitUntilIdle(ctx context.Context, id, name string) (*loadBalancer, error) {
	lb, err := w.loadBalancers.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
	if err == nil && lb.isBusy() {
		ctx, cancel := context.WithTimeout(ctx, busyPatience)
		defer cancel()
		lb, err = w.room.Until(ctx, id, "load balancer "+name+": "+lb.Provisioning, func(lb *loadBalancer) bool { return !lb.isBusy() })
	}
	return lb, retryLater(err, name)
}

// lbWrite makes one write on a load balancer, and returns the resulting state.
type lbWrite func(ctx context.Context, path string, o observed) (observed, error)

// writeOnce makes one write once the load balancer is free.
func (w *writer) writeOnce(ctx context.Context, o observed, write lbWrite) (observed, error) {
	lb, err := w.waitUntilIdle(ctx, o.lb.ID, o.lb.Name)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return o, services.ErrGone
	case err != nil:
		return o, err
	case lb.Provisioning == stateFailed:
		return o, fmt.Errorf("load balancer %s has failed", lb.Name)
	}
	o.lb = lb
	before := o
	before.parts = o.parts.clone()
	after, err := write(ctx, "/load_balancers/"+url.PathEscape(lb.ID), before)
	if err == nil {
		busy := *after.lb
		if after.parts != nil { // not read for Narrow
			after.parts.copyTo(&busy)
			w.parts.Put(after.parts)
		}
		busy.Provisioning = stateBusy
		after.lb = &busy
		w.loadBalancers.PutPartial(&busy)
		return after, nil
	}
	w.loadBalancers.Invalidate(lb.ID)
	w.parts.Invalidate(lb.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return o, services.ErrGone // somebody has deleted it
	}
	return o, busyError(err, lb.Name)
}

// newChange returns a change; before and after are the object, for plan.
func newChange(
	action, object, detail string, before, after any, do func(context.Context, *services.Request, observed) (observed, error),
) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail}, Creates: action == contract.PlanCreate,
		Compare: func() (any, any) { return before, after }, Make: do,
	}
}

// change returns one write on a load balancer.
func (w *writer) change(action, object, detail string, before, after any, write lbWrite) change {
	return newChange(action, object, detail, before, after, func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		if req.Purpose == services.Ensure {
			if err := w.records.noteBefore(ctx, req, o); err != nil {
				return o, err
			}
		}
		return w.writeOnce(ctx, o, write)
	})
}

// Changes returns the changes in the order of IBM's own controller: deletions first and creations last, because of quotas.
func (r *reconciler) Changes(_ services.Request, o observed, d desired) ([]change, error) {
	all := r.security.ownGroupChanges(d)
	if o.lb == nil {
		return append(append(all, r.security.ownGroupDeletion(d)...), r.creation(d)), nil
	}
	if o.parts == nil {
		return nil, nil
	}
	list, pools, listeners := assignPools(o.parts, d.ports)
	for _, l := range listeners {
		all = append(all, r.writer.listenerDeletion(l))
	}
	all = append(all, r.security.bindings(d)...) // before any new part is reachable
	var late []change
	for _, p := range pools {
		if p.servesAny(o.parts.listeners, listeners) { // moved to another pool below
			late = append(late, r.writer.poolDeletion(p))
			continue
		}
		all = append(all, r.writer.poolDeletion(p))
	}
	for _, p := range list {
		if p.pool != nil {
			all = append(all, r.poolChanges(d, p)...)
		}
	}
	for _, p := range orderSteps(list) {
		if p.detach {
			all = append(all, r.writer.listenerDetachment(*p.listener))
			continue
		}
		if p.pool == nil {
			all = append(all, r.writer.poolCreation(d, p.port))
		}
		all = append(all, r.listenerChanges(d, p.portPool)...)
	}
	all = append(all, late...)
	if d.subnets != nil {
		all = append(all, r.writer.subnetReplacement(*o.lb, d.subnets))
	}
	return append(all, r.security.ownGroupDeletion(d)...), nil
}

// poolChanges returns the changes of a port's pool.
func (r *reconciler) poolChanges(d desired, p portPool) []change {
	var all []change
	patch := pool{}
	var what []string
	if p.pool.Name != p.poolName() {
		patch.Name = p.poolName()
		what = append(what, "name")
	}
	if m, differs := d.settings.mergeMonitor(p.pool.Monitor, p.monitor); differs {
		patch.Monitor = &m
		what = append(what, "health check")
	}
	if !d.network && p.pool.Proxy != d.proxy() {
		patch.Proxy = d.proxy()
		what = append(what, "proxy protocol")
	}
	if len(what) > 0 {
		all = append(all, r.writer.poolUpdate(*p.pool, patch, strings.Join(what, ", ")))
	}
	if want := d.membersOf(p.port); !services.SameSet(p.pool.Members, want) {
		all = append(all, r.writer.memberReplacement(*p.pool, want))
	}
	return all
}

// listenerChanges returns the changes of a port's listener.
func (r *reconciler) listenerChanges(d desired, p portPool) []change {
	object := "listener " + p.protocol + " " + strconv.Itoa(p.port.port)
	if p.listener == nil {
		return []change{r.writer.listenerCreation(d, p.port, object)}
	}
	l := *p.listener
	moves := p.pool == nil || l.Pool == nil || l.Pool.ID != p.pool.ID
	idle := d.settings.idleTimeout()
	if d.network || idle == l.Idle {
		idle = 0 // as it is
	}
	if !moves && idle == 0 {
		return nil
	}
	after := l
	if moves {
		after.Pool = &reference{Name: p.poolName()}
	}
	after.Idle = cmp.Or(idle, l.Idle)
	return []change{r.writer.listenerUpdate(object, l, after, func(o observed) any {
		patch := listener{Idle: idle}
		if at := slices.IndexFunc(o.parts.pools, func(q pool) bool { return q.Name == p.poolName() }); moves && at >= 0 {
			patch.Pool = &reference{ID: o.parts.pools[at].ID}
		}
		return patch
	})}
}

func subnetFields(list []reference) map[string]any { return map[string]any{"subnets": list} }

// subnetReplacement replaces the subnets of a load balancer, unless somebody has changed it concurrently.
func (w *writer) subnetReplacement(lb loadBalancer, want []reference) change {
	write := func(ctx context.Context, path string, o observed) (observed, error) {
		what, tag := "changing the subnets of load balancer "+lb.Name, ""
		now := &loadBalancer{}
		err := w.api.call(ctx, request{what: what, method: http.MethodGet, path: path, etag: &tag}, now)
		if err == nil && (tag == "" || now.ID != o.lb.ID) {
			err = cloudapi.Unclear(what, "the answer has no ETag, or is about another load balancer")
		}
		if err != nil {
			return o, err
		}
		after := &loadBalancer{}
		err = w.api.call(ctx, request{what: what, method: http.MethodPatch, path: path, in: subnetFields(want), match: tag}, after)
		if err == nil && after.ID != o.lb.ID {
			err = cloudapi.Unclear(what, "the answer is about another load balancer")
		}
		if err == nil {
			o.lb = after
		}
		return o, err
	}
	return w.change(contract.PlanChange, "load balancer "+lb.Name, "subnets", subnetFields(lb.Subnets), subnetFields(want), write)
}

func (w *writer) listenerCreation(d desired, p port, object string) change {
	return w.change(contract.PlanCreate, object, "", nil, d.listenerOf(p, reference{Name: p.poolName()}),
		func(ctx context.Context, path string, o observed) (observed, error) {
			at := slices.IndexFunc(o.parts.pools, func(q pool) bool { return q.Name == p.poolName() })
			if at < 0 {
				return o, fmt.Errorf("the pool %s, to which the listener is to send, is not there any more", p.poolName())
			}
			var made listener
			asked := d.listenerOf(p, reference{ID: o.parts.pools[at].ID})
			err := w.api.call(ctx, request{what: "creating " + object, method: http.MethodPost, path: path + "/listeners", in: asked}, &made)
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear("creating "+object, "the answer has no ID")
			}
			o.parts.listeners = append(o.parts.listeners, made)
			return o, err
		})
}

func (w *writer) listenerUpdate(object string, l, planned listener, patch func(observed) any) change {
	return w.change(contract.PlanChange, object, "", l, planned,
		func(ctx context.Context, path string, o observed) (observed, error) {
			var after listener
			err := w.api.call(ctx, request{
				what: "changing " + object, method: http.MethodPatch, path: path + "/listeners/" + url.PathEscape(l.ID), in: patch(o),
			}, &after)
			for n := range o.parts.listeners {
				if o.parts.listeners[n].ID == l.ID && after.ID == l.ID {
					o.parts.listeners[n] = after
				}
			}
			return o, err
		})
}

// listenerDetachment removes a listener from its pool, so that another one can use the pool: two listeners may not share one.
func (w *writer) listenerDetachment(l listener) change {
	after := l
	after.Pool = nil
	return w.listenerUpdate("listener "+l.Protocol+" "+strconv.Itoa(l.Port), l, after, func(observed) any {
		return map[string]any{"default_pool": nil}
	})
}

func (w *writer) listenerDeletion(l listener) change {
	object := "listener " + l.Protocol + " " + strconv.Itoa(l.Port)
	return w.change(contract.PlanDelete, object, "", l, nil,
		func(ctx context.Context, path string, o observed) (observed, error) {
			err := w.api.call(ctx, request{what: "deleting " + object, method: http.MethodDelete, path: path + "/listeners/" + url.PathEscape(l.ID)}, nil)
			o.parts.listeners = slices.DeleteFunc(o.parts.listeners, func(q listener) bool { return q.ID == l.ID })
			return o, err
		})
}

func (w *writer) poolDeletion(p pool) change {
	return w.change(contract.PlanDelete, "pool "+p.Name, "", p, nil,
		func(ctx context.Context, path string, o observed) (observed, error) {
			err := w.api.call(ctx, request{what: "deleting pool " + p.Name, method: http.MethodDelete, path: path + "/pools/" + url.PathEscape(p.ID)}, nil)
			o.parts.pools = slices.DeleteFunc(o.parts.pools, func(q pool) bool { return q.ID == p.ID })
			return o, err
		})
}

// poolUpdate changes fields of a pool.
func (w *writer) poolUpdate(p, patch pool, what string) change {
	planned := p
	planned.Name, planned.Proxy = cmp.Or(patch.Name, p.Name), cmp.Or(patch.Proxy, p.Proxy)
	planned.Monitor = cmp.Or(patch.Monitor, p.Monitor)
	return w.change(contract.PlanChange, "pool "+p.Name, what, p, planned,
		func(ctx context.Context, path string, o observed) (observed, error) {
			var after pool
			err := w.api.call(ctx, request{
				what: "changing pool " + p.Name, method: http.MethodPatch, path: path + "/pools/" + url.PathEscape(p.ID), in: patch,
			}, &after)
			for n, q := range o.parts.pools {
				if q.ID == p.ID && after.ID == p.ID {
					after.Members = q.Members // the response has only references
					o.parts.pools[n] = after
				}
			}
			return o, err
		})
}

// account returns the workers' account, for members that are instances.
func (w *writer) account(network bool) string {
	if network {
		return w.api.config.WorkerAccount
	}
	return ""
}

func (w *writer) memberReplacement(p pool, want []member) change {
	return w.change(contract.PlanChange, "pool "+p.Name, "members", p.Members, want,
		func(ctx context.Context, path string, o observed) (observed, error) {
			err := w.api.call(ctx, request{
				what: "replacing members of pool " + p.Name, method: http.MethodPut, path: path + "/pools/" + url.PathEscape(p.ID) + "/members",
				in: map[string]any{"members": want}, account: w.account(o.lb.isNetwork()),
			}, &struct{}{})
			for n, q := range o.parts.pools {
				if q.ID == p.ID {
					o.parts.pools[n].Members = want
				}
			}
			return o, err
		})
}

func (w *writer) poolCreation(d desired, p port) change {
	asked := d.poolOf(p)
	return w.change(contract.PlanCreate, "pool "+asked.Name, "", nil, asked,
		func(ctx context.Context, path string, o observed) (observed, error) {
			var made pool
			err := w.api.call(ctx, request{
				what: "creating pool " + asked.Name, method: http.MethodPost, path: path + "/pools", in: asked, account: w.account(o.lb.isNetwork()),
			}, &made)
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear("creating pool "+asked.Name, "the answer has no ID")
			}
			made.Members = asked.Members
			o.parts.pools = append(o.parts.pools, made)
			return o, err
		})
}

// errExists is about a creation refused because the name is taken: the object was created before, and is not visible yet.
var errExists = errors.New("it exists")

// creation creates a load balancer with all its parts.
func (r *reconciler) creation(d desired) change {
	object := "load balancer " + d.name
	return newChange(contract.PlanCreate, object, "", nil, d.create,
		func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			lb, what := &loadBalancer{}, "creating "+object
			if err := r.records.noteBefore(ctx, req, o, r.records.creationEntry(req.Service)...); err != nil {
				return o, err
			}
			err := r.api.call(ctx, request{
				what: what, method: http.MethodPost, path: "/load_balancers", in: d.create, account: r.writer.account(d.network),
			}, lb)
			if err == nil && (lb.ID == "" || lb.Provisioning == "") {
				err = cloudapi.Unclear(what, "the answer has no ID")
			}
			if err != nil {
				err = cloudapi.ExplainLimit(err, ibmlimits.LoadBalancers, len(r.loadBalancers.PeekAll())+1)
				r.loadBalancers.InvalidateAll() // it may have been created
				if errors.Is(err, errDuplicate) {
					req.Asked(errExists)
				}
				return o, cloudapi.NotAbsence(err)
			}
			r.finder.ownerUIDs.Store(lb.ID, req.Service.UID)
			r.loadBalancers.Put(lb)
			return observed{settings: o.settings, lb: lb, deletable: true}, nil
		})
}

// NodeChanges returns the changes that follow from the nodes alone: of the members of existing pools.
func (r *reconciler) NodeChanges(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	shows := len(req.Service.Status.LoadBalancer.Ingress) > 0
	if o.lb == nil && !o.foreign && shows { // a new one has another host name, which only Ensure writes
		return nil, nil, fmt.Errorf("load balancer %s is not there; it is made again at the next change of the Service", r.records.name("", req.Service))
	}
	if o.lb == nil || o.parts == nil || o.lb.Provisioning == stateFailed {
		return nil, nil, nil
	}
	network := o.lb.isNetwork()
	members, findings, err := r.members(ctx, req, network, o)
	if err != nil {
		return nil, findings, err
	}
	d := desired{members: members}
	list, _, _ := assignPools(o.parts, o.settings.ports(req.Service, network))
	var all []change
	for _, p := range list {
		if p.pool == nil || p.pool.Name != p.poolName() {
			continue
		}
		if want := d.membersOf(p.port); !services.SameSet(p.pool.Members, want) {
			all = append(all, r.writer.memberReplacement(*p.pool, want))
		}
	}
	return all, findings, nil
}

// Deletions returns the changes that delete a Service's objects, and findings about objects that stay.
func (r *reconciler) Deletions(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	var groups []change
	if o.group == nil && o.lb != nil && o.deletable {
		var err error
		if o.group, err = r.security.findUnlisted(ctx, req.Service, o.settings, o.lb); err != nil {
			return nil, nil, err
		}
	}
	if o.group != nil {
		groups = append(groups, r.security.deletion(*o.group))
	}
	var findings []services.Finding
	for _, lb := range o.former {
		findings = append(findings, services.Warning(eventLeft, "load balancer %s (%s), which the Service had under another name, stays; delete it if nobody needs it", lb.Name, lb.ID))
	}
	if o.unproved != nil {
		findings = append(findings, services.Notice(eventLeft, "load balancer %s (%s) stays, for nothing shows that it was made for this Service; delete it if nobody needs it",
			o.unproved.Name, o.unproved.ID))
	}
	switch {
	case o.lb == nil:
		return groups, findings, nil
	case !o.deletable:
		return groups, append(findings, services.Notice(eventLeft, "load balancer %s stays: it was not made for this Service", o.lb.Name)), nil
	}
	deletion := newChange(contract.PlanDelete, "load balancer "+o.lb.Name, "", o.lb, nil,
		func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			return observed{settings: o.settings, group: o.group}, r.remove(ctx, o.lb)
		})
	return append([]change{deletion}, groups...), findings, nil
}

// remove deletes a load balancer, and waits until it is gone: an accepted request can still fail.
func (r *reconciler) remove(ctx context.Context, lb *loadBalancer) error {
	defer r.parts.Forget(lb.ID)
	failed := false // the failed state may be from before the deletion
	err := services.Patiently(ctx, busyPatience, func() error {
		now, err := r.writer.waitUntilIdle(ctx, lb.ID, lb.Name)
		if err == nil {
			failed = now.Provisioning == stateFailed
			err = r.api.call(ctx, request{what: "deleting load balancer " + lb.Name, method: http.MethodDelete, path: "/load_balancers/" + url.PathEscape(now.ID)}, nil)
		}
		r.loadBalancers.Invalidate(lb.ID)
		return busyError(err, lb.Name)
	})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	_, err = r.loadBalancers.Get(ctx, lb.ID, inventory.Query{})
	if err == nil {
		_, err = r.room.Until(ctx, lb.ID, "load balancer "+lb.Name+" to go", func(b *loadBalancer) bool { return b.Provisioning == stateFailed && !failed })
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		r.loadBalancers.Forget(lb.ID)
		r.finder.deletedHostnames.Store(strings.ToLower(lb.Hostname), struct{}{})
		r.finder.ownerUIDs.Delete(lb.ID)
		return nil
	case err == nil:
		return fmt.Errorf("load balancer %s could not be deleted: it has failed", lb.Name)
	}
	return retryLater(err, lb.Name)
}
