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

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// busyPatience is how long a call waits for a load balancer that the cloud works on: a creation takes minutes, each change about 30 s.
	busyPatience = 10 * time.Minute
)

// retryLater is returned if the cloud still works at the end of the patience, which is no failure.
func retryLater(err error, name string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cloudproviderapi.NewRetryError("the cloud still works on load balancer "+name, lookAgain)
	}
	return err
}

// busyError is returned if a write was refused because the cloud works on the load balancer. That may not be visible yet, or never if
// somebody else caused it. The write is retried later from the state at that time.
func busyError(err error, name string) error {
	if errors.Is(err, cloudapi.ErrConflict) && !errors.Is(err, errDuplicate) && !errors.Is(err, errInUse) {
		return cloudproviderapi.NewRetryError("the cloud works on load balancer "+name+", and took no change ("+err.Error()+")", lookAgain)
	}
	return err
}

// waitUntilIdle waits until the cloud no longer works on a load balancer.
func (r *reconciler) waitUntilIdle(ctx context.Context, id, name string) (*loadBalancer, error) {
	lb, err := r.known.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
	if err == nil && lb.isBusy() {
		ctx, cancel := context.WithTimeout(ctx, busyPatience)
		defer cancel()
		lb, err = r.room.Until(ctx, id, "load balancer "+name+": "+lb.Provisioning, func(lb *loadBalancer) bool { return !lb.isBusy() })
	}
	return lb, retryLater(err, name)
}

// call makes one write on a load balancer, and returns the resulting state.
type call func(ctx context.Context, path string, o observation) (observation, error)

// writeOnce makes one write once the load balancer is free.
func (r *reconciler) writeOnce(ctx context.Context, o observation, write call) (observation, error) {
	lb, err := r.waitUntilIdle(ctx, o.lb.ID, o.lb.Name)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return o, services.ErrGone
	case err != nil:
		return o, err
	case lb.Provisioning == stateFailed:
		return o, fmt.Errorf("load balancer %s has failed", lb.Name)
	}
	o.lb = lb
	after, err := write(ctx, "/load_balancers/"+url.PathEscape(lb.ID), o)
	if err == nil {
		busy := *after.lb
		if after.parts != nil { // not read for Narrow
			after.parts.copyTo(&busy)
			r.parts.Put(after.parts)
		}
		busy.Provisioning = stateBusy
		after.lb = &busy
		r.known.PutPartial(&busy)
		return after, nil
	}
	r.known.Invalidate(lb.ID)
	r.parts.Invalidate(lb.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return o, services.ErrGone // somebody has deleted it
	}
	return o, busyError(err, lb.Name)
}

func (r *reconciler) change(action, object, detail string, compare func() (before, after any), write call) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail}, Compare: compare, Creates: action == contract.PlanCreate,
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			if q.Purpose == services.Ensure {
				if err := r.noteBefore(ctx, q, o); err != nil {
					return o, err
				}
			}
			return r.writeOnce(ctx, o, write)
		},
	}
}

// Changes returns the changes in the order of IBM's own controller: deletions first and creations last, because of quotas.
func (r *reconciler) Changes(_ services.Request, o observation, d spec) ([]change, error) {
	all := r.accessBefore(d)
	if o.lb == nil {
		return append(append(all, r.accessAfter(d)...), r.creation(d)), nil
	}
	if o.parts == nil {
		return nil, nil
	}
	list, pools, listeners := assignPools(o.parts, d.ports)
	for _, l := range listeners {
		all = append(all, r.listenerDeletion(l))
	}
	all = append(all, r.bindings(d)...) // before any new part is reachable
	var late []change
	for _, p := range pools {
		if p.servesAny(o.parts.listeners, listeners) { // moved to another pool below
			late = append(late, r.poolDeletion(p))
			continue
		}
		all = append(all, r.poolDeletion(p))
	}
	for _, p := range list {
		if p.pool != nil {
			all = append(all, r.poolChanges(d, p)...)
		}
	}
	for _, p := range orderSteps(list) {
		if p.detach {
			all = append(all, r.listenerDetachment(*p.listener))
			continue
		}
		if p.pool == nil {
			all = append(all, r.poolCreation(d, p.port))
		}
		all = append(all, r.listenerChanges(d, p.portPool)...)
	}
	all = append(all, late...)
	if d.subnets != nil {
		all = append(all, r.subnetReplacement(*o.lb, d.subnets))
	}
	return append(all, r.accessAfter(d)...), nil
}

// poolChanges returns the changes of a port's pool.
func (r *reconciler) poolChanges(d spec, p portPool) []change {
	var all []change
	patch := pool{}
	var what []string
	if p.pool.Name != p.port.pool() {
		patch.Name = p.port.pool()
		what = append(what, "name")
	}
	if m, differs := d.settings.checks(p.pool.Monitor, p.monitor); differs {
		patch.Monitor = &m
		what = append(what, "health check")
	}
	if !d.network && p.pool.Proxy != d.proxy() {
		patch.Proxy = d.proxy()
		what = append(what, "proxy protocol")
	}
	if len(what) > 0 {
		all = append(all, r.poolUpdate(*p.pool, patch, strings.Join(what, ", ")))
	}
	if want := d.membersOf(p.port); !sameMembers(p.pool.Members, want) {
		all = append(all, r.memberReplacement(*p.pool, want))
	}
	return all
}

// listenerChanges returns the changes of a port's listener.
func (r *reconciler) listenerChanges(d spec, p portPool) []change {
	object := "listener " + p.protocol + " " + strconv.Itoa(p.port.port)
	if p.listener == nil {
		return []change{r.listenerCreation(d, p.port, object)}
	}
	l := *p.listener
	wrongPool := p.pool != nil && (l.Pool == nil || l.Pool.ID != p.pool.ID)
	idle := d.settings.idleTimeout() != 0 && !d.network && l.Idle != d.settings.idleTimeout()
	if p.pool != nil && !wrongPool && !idle {
		return nil
	}
	if p.pool == nil || wrongPool {
		after := l
		after.Pool = &reference{Name: p.port.pool()}
		if idle {
			after.Idle = d.settings.idleTimeout()
		}
		return []change{r.listenerUpdate(object, l, after, func(o observation) any {
			patch := listener{}
			if at := slices.IndexFunc(o.parts.pools, func(q pool) bool { return q.Name == p.port.pool() }); at >= 0 {
				patch.Pool = &reference{ID: o.parts.pools[at].ID}
			}
			if idle {
				patch.Idle = d.settings.idleTimeout()
			}
			return patch
		})}
	}
	after := l
	after.Idle = d.settings.idleTimeout()
	return []change{r.listenerUpdate(object, l, after, func(observation) any { return listener{Idle: d.settings.idleTimeout()} })}
}

// subnetReplacement replaces the subnets of a load balancer, unless somebody has changed it concurrently.
func (r *reconciler) subnetReplacement(lb loadBalancer, want []reference) change {
	return r.change(contract.PlanChange, "load balancer "+lb.Name, "subnets", func() (any, any) {
		return map[string]any{"subnets": lb.Subnets}, map[string]any{"subnets": want}
	}, func(ctx context.Context, path string, o observation) (observation, error) {
		what, tag := "changing the subnets of load balancer "+lb.Name, ""
		now := &loadBalancer{}
		err := r.api.call(ctx, request{what: what, method: http.MethodGet, path: path, etag: &tag}, now)
		if err == nil && (tag == "" || now.ID != o.lb.ID) {
			err = cloudapi.Unclear(what, "the answer has no ETag, or is about another load balancer")
		}
		if err != nil {
			return o, err
		}
		after := &loadBalancer{}
		err = r.api.call(ctx, request{what: what, method: http.MethodPatch, path: path, in: map[string]any{"subnets": want}, match: tag}, after)
		if err == nil && after.ID != o.lb.ID {
			err = cloudapi.Unclear(what, "the answer is about another load balancer")
		}
		if err == nil {
			o.lb = after
		}
		return o, err
	})
}

func (r *reconciler) listenerCreation(d spec, p port, object string) change {
	return r.change(contract.PlanCreate, object, "", func() (any, any) { return nil, d.listenerOf(p, reference{Name: p.pool()}) },
		func(ctx context.Context, path string, o observation) (observation, error) {
			at := slices.IndexFunc(o.parts.pools, func(q pool) bool { return q.Name == p.pool() })
			if at < 0 {
				return o, fmt.Errorf("the pool %s, to which the listener is to send, is not there any more", p.pool())
			}
			var made listener
			asked := d.listenerOf(p, reference{ID: o.parts.pools[at].ID})
			err := r.api.call(ctx, request{what: "creating " + object, method: http.MethodPost, path: path + "/listeners", in: asked}, &made)
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear("creating "+object, "the answer has no ID")
			}
			o.parts = o.parts.clone()
			o.parts.listeners = append(o.parts.listeners, made)
			return o, err
		})
}

func (r *reconciler) listenerUpdate(object string, l, planned listener, patch func(observation) any) change {
	return r.change(contract.PlanChange, object, "", func() (any, any) { return l, planned },
		func(ctx context.Context, path string, o observation) (observation, error) {
			var after listener
			err := r.api.call(ctx, request{
				what: "changing " + object, method: http.MethodPatch, path: path + "/listeners/" + url.PathEscape(l.ID), in: patch(o),
			}, &after)
			o.parts = o.parts.clone()
			for n := range o.parts.listeners {
				if o.parts.listeners[n].ID == l.ID && after.ID == l.ID {
					o.parts.listeners[n] = after
				}
			}
			return o, err
		})
}

// listenerDetachment removes a listener from its pool, so that another one can use the pool: two listeners may not share one.
func (r *reconciler) listenerDetachment(l listener) change {
	after := l
	after.Pool = nil
	return r.listenerUpdate("listener "+l.Protocol+" "+strconv.Itoa(l.Port), l, after, func(observation) any {
		return map[string]any{"default_pool": nil}
	})
}

func (r *reconciler) listenerDeletion(l listener) change {
	object := "listener " + l.Protocol + " " + strconv.Itoa(l.Port)
	return r.change(contract.PlanDelete, object, "", func() (any, any) { return l, nil },
		func(ctx context.Context, path string, o observation) (observation, error) {
			err := r.api.call(ctx, request{what: "deleting " + object, method: http.MethodDelete, path: path + "/listeners/" + url.PathEscape(l.ID)}, nil)
			o.parts = o.parts.clone()
			o.parts.listeners = slices.DeleteFunc(o.parts.listeners, func(q listener) bool { return q.ID == l.ID })
			return o, err
		})
}

func (r *reconciler) poolDeletion(p pool) change {
	return r.change(contract.PlanDelete, "pool "+p.Name, "", func() (any, any) { return p, nil },
		func(ctx context.Context, path string, o observation) (observation, error) {
			err := r.api.call(ctx, request{what: "deleting pool " + p.Name, method: http.MethodDelete, path: path + "/pools/" + url.PathEscape(p.ID)}, nil)
			o.parts = o.parts.clone()
			o.parts.pools = slices.DeleteFunc(o.parts.pools, func(q pool) bool { return q.ID == p.ID })
			return o, err
		})
}

// poolUpdate changes fields of a pool.
func (r *reconciler) poolUpdate(p, patch pool, what string) change {
	planned := p
	planned.Name, planned.Proxy = cmp.Or(patch.Name, p.Name), cmp.Or(patch.Proxy, p.Proxy)
	planned.Monitor = cmp.Or(patch.Monitor, p.Monitor)
	return r.change(contract.PlanChange, "pool "+p.Name, what, func() (any, any) { return p, planned },
		func(ctx context.Context, path string, o observation) (observation, error) {
			var after pool
			err := r.api.call(ctx, request{
				what: "changing pool " + p.Name, method: http.MethodPatch, path: path + "/pools/" + url.PathEscape(p.ID), in: patch,
			}, &after)
			o.parts = o.parts.clone()
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
func (r *reconciler) account(network bool) string {
	if network {
		return r.config.WorkerAccount
	}
	return ""
}

func (r *reconciler) memberReplacement(p pool, want []member) change {
	return r.change(contract.PlanChange, "pool "+p.Name, "members", func() (any, any) { return p.Members, want },
		func(ctx context.Context, path string, o observation) (observation, error) {
			err := r.api.call(ctx, request{
				what: "replacing members of pool " + p.Name, method: http.MethodPut, path: path + "/pools/" + url.PathEscape(p.ID) + "/members",
				in: map[string]any{"members": want}, account: r.account(o.lb.isNetwork()),
			}, &struct{}{})
			o.parts = o.parts.clone()
			for n, q := range o.parts.pools {
				if q.ID == p.ID {
					o.parts.pools[n].Members = want
				}
			}
			return o, err
		})
}

func (r *reconciler) poolCreation(d spec, p port) change {
	asked := d.poolOf(p)
	return r.change(contract.PlanCreate, "pool "+asked.Name, "", func() (any, any) { return nil, asked },
		func(ctx context.Context, path string, o observation) (observation, error) {
			var made pool
			err := r.api.call(ctx, request{
				what: "creating pool " + asked.Name, method: http.MethodPost, path: path + "/pools", in: asked, account: r.account(o.lb.isNetwork()),
			}, &made)
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear("creating pool "+asked.Name, "the answer has no ID")
			}
			made.Members = asked.Members
			o.parts = o.parts.clone()
			o.parts.pools = append(o.parts.pools, made)
			return o, err
		})
}

// errExists is about a creation refused because the name is taken: the object was created before, and is not visible yet.
var errExists = errors.New("it exists")

// creation creates a load balancer with all its parts.
func (r *reconciler) creation(d spec) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + d.name}, Creates: true, Replan: false,
		Compare: func() (before, after any) { return nil, d.create },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			lb, what := &loadBalancer{}, "creating load balancer "+d.name
			if err := r.noteBefore(ctx, q, o, r.creationEntry(q.Service)...); err != nil {
				return o, err
			}
			err := r.api.call(ctx, request{
				what: what, method: http.MethodPost, path: "/load_balancers", in: d.create, account: r.account(d.network),
			}, lb)
			if err == nil && (lb.ID == "" || lb.Provisioning == "") {
				err = cloudapi.Unclear(what, "the answer has no ID")
			}
			if err != nil {
				r.known.InvalidateAll() // it may have been created
				if errors.Is(err, errDuplicate) {
					q.Asked(errExists)
				}
				return o, cloudapi.NotAbsence(err)
			}
			r.proved.Store(lb.ID, q.Service.UID)
			r.known.Put(lb)
			return observation{lb: lb, deletable: true}, nil
		},
	}
}

// NodeChanges returns the changes that follow from the nodes alone: of the members of existing pools.
func (r *reconciler) NodeChanges(ctx context.Context, q services.Request, o observation) ([]change, []services.Finding, error) {
	shows := len(q.Service.Status.LoadBalancer.Ingress) > 0
	if o.lb == nil && !o.foreign && shows { // a new one has another host name, which only Ensure writes
		return nil, nil, fmt.Errorf("load balancer %s is not there; it is made again at the next change of the Service", r.name("", q.Service))
	}
	if o.lb == nil || o.parts == nil || o.lb.Provisioning == stateFailed {
		return nil, nil, nil
	}
	s, _, _ := parseSettings(q.Service) // a fault in an annotation keeps no node from joining or leaving
	if !o.lb.isNetwork() {
		s.Ranges = "" // which application load balancers do not have
	}
	d := spec{network: o.lb.isNetwork(), settings: s, ports: s.ports(q.Service)}
	var findings []services.Finding
	var err error
	if d.members, findings, err = r.members(ctx, q, s, d.network, o); err != nil {
		return nil, findings, err
	}
	list, _, _ := assignPools(o.parts, d.ports)
	var all []change
	for _, p := range list {
		if p.pool == nil || p.pool.Name != p.port.pool() {
			continue
		}
		if want := d.membersOf(p.port); !sameMembers(p.pool.Members, want) {
			all = append(all, r.memberReplacement(*p.pool, want))
		}
	}
	return all, findings, nil
}

// Deletions returns the changes that delete a Service's objects, and findings about objects that stay.
func (r *reconciler) Deletions(ctx context.Context, q services.Request, o observation) ([]change, []services.Finding, error) {
	var groups []change
	if o.group == nil && o.lb != nil && o.deletable {
		var err error
		if o.group, err = r.unlistedGroup(ctx, q.Service, o.lb); err != nil {
			return nil, nil, err
		}
	}
	if o.group != nil {
		groups = append(groups, r.groupDeletion(*o.group))
	}
	var findings []services.Finding
	for _, lb := range o.left {
		findings = append(findings, services.Warning(eventLeft, "load balancer %s (%s), which the Service had under another name, stays; delete it if nobody needs it", lb.Name, lb.ID))
	}
	findings = append(findings, r.Missing(o)...)
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
	return append([]change{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "load balancer " + o.lb.Name},
		Compare: func() (before, after any) { return o.lb, nil },
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			return observation{group: o.group}, r.remove(ctx, o.lb)
		},
	}}, groups...), findings, nil
}

// Missing implements services.Misser.
func (*reconciler) Missing(o observation) (findings []services.Finding) {
	for _, name := range o.missing {
		findings = append(findings, services.Warning(eventLeft, "no load balancer with the host name %s of this Service is found; where nobody deleted it by hand, "+
			"the credential may not see it any more, and it stays", name))
	}
	return findings
}

// remove deletes a load balancer, and waits until it is gone: an accepted request can still fail.
func (r *reconciler) remove(ctx context.Context, lb *loadBalancer) error {
	defer r.parts.Forget(lb.ID)
	failed := false // the failed state may be from before the deletion
	err := services.Patiently(ctx, busyPatience, func() error {
		now, err := r.waitUntilIdle(ctx, lb.ID, lb.Name)
		if err == nil {
			failed = now.Provisioning == stateFailed
			err = r.api.call(ctx, request{what: "deleting load balancer " + lb.Name, method: http.MethodDelete, path: "/load_balancers/" + url.PathEscape(now.ID)}, nil)
		}
		r.known.Invalidate(lb.ID)
		return busyError(err, lb.Name)
	})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	_, err = r.known.Get(ctx, lb.ID, inventory.Query{})
	if err == nil {
		_, err = r.room.Until(ctx, lb.ID, "load balancer "+lb.Name+" to go", func(b *loadBalancer) bool { return b.Provisioning == stateFailed && !failed })
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		r.known.Forget(lb.ID)
		r.deleted.Store(strings.ToLower(lb.Hostname), struct{}{})
		r.proved.Delete(lb.ID)
		return nil
	case err == nil:
		return fmt.Errorf("load balancer %s could not be deleted: it has failed", lb.Name)
	}
	return retryLater(err, lb.Name)
}
