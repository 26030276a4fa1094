package oci

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// one makes one change, and returns the network load balancer as it is afterwards. The cloud makes one at a time: while it works for
// somebody else it refuses, and all is looked at again when it has ended.
func (r *networkReconciler) one(ctx context.Context, q *services.Request, o observation, ask write) (observation, error) {
	if ask.have != nil && !o.fresh { // what is known may be some seconds old, and writes of parts are under no ETag
		r.known.Invalidate(o.lb.ID)
		lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			return o, services.ErrGone
		case err != nil:
			return o, err
		}
		o.lb = lb
	}
	o.fresh = false
	if ask.outdated(o.lb) {
		return o, services.ErrGone // somebody has changed it meanwhile
	}
	ask.path = networkPaths + "/" + url.PathEscape(o.lb.ID) + ask.path
	id, err := r.start(ctx, ask)
	r.known.Invalidate(o.lb.ID)
	if err != nil {
		return o, r.refused(ctx, o, err)
	}
	if _, err := r.finish(ctx, q, id, o.lb.Name); err != nil {
		r.known.Invalidate(o.lb.ID)
		return o, err
	}
	// The work request may end a moment before the network load balancer can be changed again.
	lb, err := r.rest(ctx, o.lb.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return o, services.ErrGone
	}
	if err == nil {
		o.lb, o.fresh = lb, true
	}
	return o, err
}

// refused is why a write was refused: services.ErrGone where all is to be looked at again, because somebody else has changed something.
func (r *networkReconciler) refused(ctx context.Context, o observation, err error) error {
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		now, waited := r.rest(ctx, o.lb.ID)
		switch {
		case waited != nil && !errors.Is(waited, cloudapi.ErrNotFound):
			return waited
		case waited == nil && now.State != stateActive:
			return err
		}
		return services.ErrGone
	case errors.Is(err, cloudapi.ErrNotFound):
		if _, err := r.known.Get(ctx, o.lb.ID, inventory.Query{}); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
		return services.ErrGone // somebody has taken it away, or the part of it
	}
	return err
}

// change is a change of a part.
func (r *networkReconciler) change(
	action, object, detail string, compare func() (before, after any), ask write,
) change {
	return change{
		Planned: guard.Planned{Action: action, Object: object, Detail: detail}, Compare: compare,
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			return r.one(ctx, q, o, ask)
		},
	}
}

// waiting stands before changes of a network load balancer on which the cloud works for somebody else: what is to be changed shows then.
func (r *networkReconciler) waiting(lb *loadBalancer) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanChange, Object: "network load balancer " + lb.Name}, Wait: true, Replan: true,
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			now, err := r.rest(ctx, lb.ID)
			if errors.Is(err, cloudapi.ErrNotFound) {
				return o, services.ErrGone
			}
			if err == nil {
				o.lb = now
			}
			return o, err
		},
	}
}

// whenIdle are changes, after a wait where the cloud works for somebody else.
func (r *networkReconciler) whenIdle(lb *loadBalancer, all []change) []change {
	if lb.State == stateUpdating && len(all) > 0 {
		return append([]change{r.waiting(lb)}, all...)
	}
	return all
}

// Changes are those between what is there and what should be. A version of IP comes before what has it, and goes after it.
func (r *networkReconciler) Changes(q services.Request, o observation, d networkSpec) ([]change, error) {
	rules := d.rules
	makes := o.group == nil && rules.group.create != nil
	all := r.lb.recording(q.Service, rules.record)
	switch {
	case makes && o.lb == nil: // what follows tells plan alone
		return append(all, r.lb.creatingGroup(q.Service, rules), r.creating(q.Service, d)), nil
	case makes:
		return []change{r.lb.creatingGroup(q.Service, rules)}, nil
	case o.lb == nil:
		return append(append(all, r.lb.groupOpenings(rules)...), r.creating(q.Service, d)), nil
	}
	all = append(all, ruleChanges[observation](r.lb.book, q.Service, early(rules.lists, rules.former))...)
	all = append(all, r.lb.groupOpenings(rules)...)
	wider := d.version == versionBoth && o.lb.Version != versionBoth
	if wider {
		all = append(all, r.versionChange(o.lb, d.version))
	}
	all = append(all, r.changesOfParts(o.lb, d)...)
	if !services.SameSet(o.lb.Groups, d.groups) {
		after := document{"networkSecurityGroupIds": d.groups}
		all = append(all, r.change(guard.PlanChange, "network load balancer "+o.lb.Name, "network security groups",
			func() (any, any) { return document{"networkSecurityGroupIds": o.lb.Groups}, after },
			write{what: "changing the network security groups of network load balancer " + o.lb.Name, method: http.MethodPut, path: "/networkSecurityGroups", in: after}))
	}
	if !wider && d.version != o.lb.Version {
		all = append(all, r.versionChange(o.lb, d.version))
	}
	all = append(all, r.lb.groupClosings(rules)...)
	all = append(all, ruleChanges[observation](r.lb.book, q.Service, late(rules.lists, rules.former))...)
	return r.whenIdle(o.lb, all), nil
}

func (r *networkReconciler) versionChange(lb *loadBalancer, version string) change {
	return r.change(guard.PlanChange, "network load balancer "+lb.Name, "version of IP",
		func() (any, any) { return document{"nlbIpVersion": lb.Version}, document{"nlbIpVersion": version} },
		write{what: "changing the version of IP of network load balancer " + lb.Name, method: http.MethodPut, in: document{"nlbIpVersion": version}})
}

// changesOfParts are those of listeners and backend sets. What nothing refers to any more goes last.
func (r *networkReconciler) changesOfParts(lb *loadBalancer, d networkSpec) (all []change) {
	listeners, extra := matchNetwork(lb.Listeners, d.listeners)
	for _, name := range extra {
		all = append(all, r.change(guard.PlanDelete, "listener "+name, "", func() (any, any) { return lb.Listeners[name], nil },
			write{what: "deleting listener " + name, method: http.MethodDelete, path: "/listeners/" + url.PathEscape(name)}))
	}
	for _, name := range sortedKeys(d.sets) {
		want := d.sets[name]
		have, there := lb.BackendSets[name]
		if !there {
			all = append(all, addingPart(r.change, "backend set", "/backendSets", name, want))
			continue
		}
		if after, what := mergeNetworkSet(have, want, d.noNodes); len(what) > 0 {
			all = append(all, updatingSet(r.change, name, have, after, what))
		}
	}
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		if !there {
			all = append(all, addingPart(r.change, "listener", "/listeners", name, d.listeners[name]))
			continue
		}
		have := lb.Listeners[is]
		if after, differs := mergeNetworkListener(have, d.listeners[name]); differs {
			all = append(all, r.change(guard.PlanChange, "listener "+is, "", func() (any, any) { return withoutShown(have), after }, write{
				what: "changing listener " + is, method: http.MethodPut, path: "/listeners/" + url.PathEscape(is), in: after, listener: is, have: have,
			}))
		}
	}
	for _, name := range sortedKeys(lb.BackendSets) {
		if _, wanted := d.sets[name]; !wanted {
			all = append(all, r.change(guard.PlanDelete, "backend set "+name, "", func() (any, any) { return lb.BackendSets[name], nil },
				write{what: "deleting backend set " + name, method: http.MethodDelete, path: "/backendSets/" + url.PathEscape(name)}))
		}
	}
	return all
}

// creating makes a network load balancer with all that belongs to it.
func (r *networkReconciler) creating(service *v1.Service, d networkSpec) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanCreate, Object: "network load balancer " + d.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.create },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			token, err := r.lb.tokenFor(service.UID, d.create)
			if err != nil {
				return o, err
			}
			var made struct {
				ID string `json:"id"`
			}
			what := "creating network load balancer " + d.name
			work, err := r.start(ctx, write{what: what, method: http.MethodPost, path: r.kind.path, in: d.create, out: &made, token: token})
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear(what, "the answer names no network load balancer")
			}
			r.known.InvalidateAll() // it may have been made
			if err == nil || cloudapi.Refused(err) {
				r.lb.forget(service.UID)
			}
			if err == nil {
				_, err = r.finish(ctx, q, work, d.name)
			}
			if err != nil {
				r.known.InvalidateAll()
				return o, cloudapi.NotAbsence(err)
			}
			lb, err := r.rest(ctx, made.ID)
			r.known.InvalidateAll()
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			return observation{lb: lb, deletable: true, group: o.group}, nil
		},
	}
}

// deleting removes a network load balancer, with all that belongs to it.
func (r *networkReconciler) deleting(lb *loadBalancer) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanDelete, Object: "network load balancer " + lb.Name},
		Compare: func() (before, after any) { return lb, nil },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			r.lb.forget(q.Service.UID)
			return observation{group: o.group}, r.remove(ctx, q, lb)
		},
	}
}

// remove deletes a network load balancer and waits until it is gone: the request is only accepted, and can still fail.
func (r *networkReconciler) remove(ctx context.Context, q *services.Request, lb *loadBalancer) error {
	for range maxConflicts {
		now, err := r.rest(ctx, lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			r.known.Forget(lb.ID)
			return nil
		case err != nil:
			return err
		}
		id, err := r.start(ctx, write{
			what: "deleting network load balancer " + lb.Name, method: http.MethodDelete, path: networkPaths + "/" + url.PathEscape(now.ID),
		})
		r.known.Invalidate(lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrConflict):
			continue
		case err == nil:
			_, err = r.finish(ctx, q, id, lb.Name)
		case errors.Is(err, cloudapi.ErrNotFound):
			err = nil // or not shown to us, which is found out below
		}
		if err != nil {
			return err
		}
		now, err = r.rest(ctx, lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			r.known.Forget(lb.ID)
			return nil
		case err != nil:
			return err
		}
		return cloudproviderapi.NewRetryError("network load balancer "+lb.Name+" is "+now.State+" after its deletion", lookAgain)
	}
	return cloudproviderapi.NewRetryError("others keep working on network load balancer "+lb.Name, lookAgain)
}
