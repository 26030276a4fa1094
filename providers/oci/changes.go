package oci

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// workPatience is how long a call waits for the cloud's work, which takes a minute or two as a rule.
const workPatience = 10 * time.Minute

// later is the answer where the cloud is still at work when patience ends, which is no failure.
func later(err error, name string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cloudproviderapi.NewRetryError("the cloud still works on load balancer "+name, lookAgain)
	}
	return err
}

// one makes one change, and returns the load balancer as it is afterwards. The cloud makes one at a time: while it works for somebody else
// it refuses, and all is looked at again when it has ended.
func (r *reconciler) one(ctx context.Context, q *services.Request, o observation, ask write) (observation, error) {
	if err := r.ready(ctx, o.lb); err != nil {
		return o, err
	}
	if o.lb.etag == "" { // what is known comes from a listing
		lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			return o, services.ErrGone
		case err != nil:
			return o, err
		case !lb.sameAs(o.lb):
			return o, services.ErrGone // somebody has changed it meanwhile
		}
		o.lb = lb
	}
	if ask.outdated(o.lb) {
		return o, services.ErrGone // somebody has changed it between two writes of ours
	}
	ask.path, ask.etag = "/loadBalancers/"+url.PathEscape(o.lb.ID)+ask.path, o.lb.etag
	id, err := r.start(ctx, ask)
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		return o, r.awaitOthers(ctx, o.lb, err)
	case errors.Is(err, cloudapi.ErrNotFound):
		r.known.Invalidate(o.lb.ID)
		if _, err := r.known.Get(ctx, o.lb.ID, inventory.Query{}); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return o, err
		}
		return o, services.ErrGone // somebody has taken it away, or the part of it
	case err != nil:
		r.known.Invalidate(o.lb.ID)
		return o, err
	}
	r.known.Invalidate(o.lb.ID)
	if _, err := r.finish(ctx, q, id, o.lb.Name); err != nil {
		r.known.Invalidate(o.lb.ID)
		return o, err
	}
	r.known.Invalidate(o.lb.ID)
	r.settle(o.lb.ID, true)
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return o, services.ErrGone
	}
	if err == nil {
		o.lb = lb
	}
	return o, err
}

// ready asks whether the cloud still works on what a process before this one began, or what was not answered. It is nil where a change can
// be asked for; after it, that is not known until the change has ended.
func (r *reconciler) ready(ctx context.Context, lb *loadBalancer) error {
	if r.settle(lb.ID, false) {
		return nil
	}
	idle, err := r.isIdle(ctx, lb.ID)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		r.known.Invalidate(lb.ID)
		return services.ErrGone
	case err != nil:
		return err
	case idle:
		return nil
	}
	err = r.awaitOthers(ctx, lb, nil)
	if errors.Is(err, services.ErrGone) {
		r.settle(lb.ID, true)
	}
	return err
}

// settle notes whether the cloud has ended what was begun on a load balancer, and returns what was known before.
func (r *reconciler) settle(id string, ended bool) (before bool) {
	r.settledMu.Lock()
	defer r.settledMu.Unlock()
	before = r.settled[id]
	delete(r.settled, id)
	if ended {
		r.settled[id] = true
	}
	return before
}

// awaitOthers waits until the cloud works for somebody else no longer. What was to be written is old then.
func (r *reconciler) awaitOthers(ctx context.Context, lb *loadBalancer, conflict error) error {
	r.known.Invalidate(lb.ID)
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	_, err := r.idle.Until(waiting, lb.ID, "other work on load balancer "+lb.Name, func(idle bool) bool { return idle })
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return services.ErrGone
	case err != nil:
		return later(err, lb.Name)
	}
	now, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	if err == nil && now.State != stateActive && conflict != nil {
		return conflict
	}
	return services.ErrGone
}

// change writes a part of the load balancer, and reads the load balancer again.
func (r *reconciler) change(action, object, detail string, compare func() (before, after any), ask write) change {
	return change{
		Planned: guard.Planned{Action: action, Object: object, Detail: detail}, Compare: compare,
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			return r.one(ctx, q, o, ask)
		},
	}
}

// Changes are those between what is there and what should be. What nothing refers to any more goes last.
func (r *reconciler) Changes(q services.Request, o observation, d spec) ([]change, error) {
	if o.lb == nil {
		all := r.recording(q.Service, d.record)
		if o.group == nil && d.group.create != nil {
			all = append(all, r.creatingGroup(q.Service, d)) // what follows is computed again, with it
		}
		return append(append(all, r.groupOpenings(d)...), r.creating(q.Service, d)), nil
	}
	if o.group == nil && d.group.create != nil {
		return []change{r.creatingGroup(q.Service, d)}, nil
	}
	listeners, extra := matchListeners(o.lb.Listeners, d.listeners)
	all := append(r.recording(q.Service, d.record), ruleChanges[observation](r.book, q.Service, early(d.lists, d.former))...)
	all = append(all, r.groupOpenings(d)...)
	certificates, old := r.certificateChanges(o.lb, d)
	all = append(all, certificates...)
	sets, oldSets := r.ruleSetChanges(o.lb, d)
	all = append(all, sets...)
	for _, name := range extra {
		all = append(all, r.change(guard.PlanDelete, "listener "+name, "", func() (any, any) { return o.lb.Listeners[name], nil },
			write{what: "deleting listener " + name, method: http.MethodDelete, path: "/listeners/" + url.PathEscape(name)}))
	}
	for _, name := range sortedKeys(d.sets) {
		want := d.sets[name]
		have, there := o.lb.BackendSets[name]
		if !there {
			all = append(all, addingPart(r.change, "backend set", "/backendSets", name, want))
			continue
		}
		if after, what := mergeSetTLS(have, want, d.noNodes); len(what) > 0 {
			all = append(all, updatingSet(r.change, name, have, after, what))
		}
	}
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		if !there {
			all = append(all, addingPart(r.change, "listener", "/listeners", name, d.listeners[name]))
			continue
		}
		have := o.lb.Listeners[is]
		if after, differs := mergeListener(have, d.listeners[name]); differs {
			all = append(all, r.updatingListener(is, have, after))
		}
	}
	for _, name := range sortedKeys(o.lb.BackendSets) {
		if _, wanted := d.sets[name]; !wanted {
			all = append(all, r.change(guard.PlanDelete, "backend set "+name, "", func() (any, any) { return o.lb.BackendSets[name], nil },
				write{what: "deleting backend set " + name, method: http.MethodDelete, path: "/backendSets/" + url.PathEscape(name)}))
		}
	}
	all = append(all, oldSets...)
	all = append(all, old...)
	all = append(all, r.changesOfWhole(o.lb, d)...)
	all = append(all, r.groupClosings(d)...)
	return append(all, ruleChanges[observation](r.book, q.Service, late(d.lists, d.former))...), nil
}

// ruleSetChanges make and change rule sets, and remove those that are not wanted, which goes last.
func (r *reconciler) ruleSetChanges(lb *loadBalancer, d spec) (first, last []change) {
	if d.ruleSets == nil {
		return nil, nil
	}
	for _, name := range sortedKeys(d.ruleSets) {
		have, there := lb.RuleSets[name]
		switch {
		case !there:
			first = append(first, addingPart(r.change, "rule set", "/ruleSets", name, d.ruleSets[name]))
		case !sameItems(listOf(have["items"]), listOf(d.ruleSets[name]["items"])):
			first = append(first, r.change(guard.PlanChange, "rule set "+name, "", func() (any, any) { return withoutShown(have), d.ruleSets[name] },
				write{what: "changing rule set " + name, method: http.MethodPut, path: "/ruleSets/" + url.PathEscape(name), in: d.ruleSets[name]}))
		}
	}
	for _, name := range sortedKeys(lb.RuleSets) {
		if _, wanted := d.ruleSets[name]; !wanted {
			last = append(last, r.change(guard.PlanDelete, "rule set "+name, "", func() (any, any) { return lb.RuleSets[name], nil },
				write{what: "deleting rule set " + name, method: http.MethodDelete, path: "/ruleSets/" + url.PathEscape(name)}))
		}
	}
	return first, last
}

func (r *reconciler) updatingListener(name string, have, after document) change {
	return r.change(guard.PlanChange, "listener "+name, "", func() (any, any) { return withoutShown(have), after }, write{
		what: "changing listener " + name, method: http.MethodPut, path: "/listeners/" + url.PathEscape(name), in: after, listener: name, have: have,
	})
}

// changesOfWhole are those of the load balancer itself.
func (r *reconciler) changesOfWhole(lb *loadBalancer, d spec) (all []change) {
	if !services.SameSet(lb.Groups, d.groups) {
		after := document{"networkSecurityGroupIds": d.groups}
		all = append(all, r.change(guard.PlanChange, "load balancer "+lb.Name, "network security groups",
			func() (any, any) { return document{"networkSecurityGroupIds": lb.Groups}, after },
			write{what: "changing the network security groups of load balancer " + lb.Name, method: http.MethodPut, path: "/networkSecurityGroups", in: after}))
	}
	details := d.details != nil && (lb.Details == nil || *lb.Details != *d.details)
	if !strings.EqualFold(lb.Shape, d.shape) || details {
		after := document{"shapeName": d.shape}
		if d.details != nil {
			after["shapeDetails"] = d.details
		}
		all = append(all, r.change(guard.PlanChange, "load balancer "+lb.Name, "shape",
			func() (any, any) { return document{"shapeName": lb.Shape, "shapeDetails": lb.Details}, after },
			write{what: "changing the shape of load balancer " + lb.Name, method: http.MethodPut, path: "/updateShape", in: after}))
	}
	return all
}

// matchListeners finds the listener of each that there should be, by their names, and those that belong to none.
func matchListeners(have, want map[string]document) (found map[string]string, extra []string) {
	found = map[string]string{}
	wanted := map[string]string{}
	for name := range want {
		wanted[normalized(name)] = name
	}
	for _, is := range sortedKeys(have) {
		name, ok := wanted[normalized(is)]
		if _, taken := found[name]; !ok || taken {
			extra = append(extra, is)
			continue
		}
		found[name] = is
	}
	return found, extra
}

// changing makes a change of a part of a load balancer of any kind.
type changing func(action, object, detail string, compare func() (before, after any), ask write) change

func updatingSet(change changing, name string, have, after document, what []string) change {
	before := withoutShown(have)
	before["backends"], _ = mergeBackends(listOf(have["backends"]), listOf(have["backends"])) // without what the cloud fills in
	return change(guard.PlanChange, "backend set "+name, strings.Join(what, ", "), func() (any, any) { return before, after }, write{
		what: "changing backend set " + name, method: http.MethodPut, path: "/backendSets/" + url.PathEscape(name), in: after, set: name, have: have,
	})
}

// addingPart makes a part: whether one was made that was not answered shows in what is there, since names are unique in a load balancer.
func addingPart(change changing, kind, path, name string, want document) change {
	asked := withoutShown(want)
	asked["name"] = name
	return change(guard.PlanCreate, kind+" "+name, "", func() (any, any) { return nil, asked },
		write{what: "creating " + kind + " " + name, method: http.MethodPost, path: path, in: asked})
}

// creating makes a load balancer with all that belongs to it.
func (r *reconciler) creating(service *v1.Service, d spec) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanCreate, Object: "load balancer " + d.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.shownCreation() },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			token, err := r.tokenFor(service.UID, d.create)
			if err != nil {
				return o, err
			}
			what := "creating load balancer " + d.name
			id, err := r.start(ctx, write{what: what, method: http.MethodPost, path: balancerPaths, in: d.create, token: token})
			r.known.InvalidateAll() // it may have been made
			if err == nil || cloudapi.Refused(err) {
				r.forget(service.UID)
			}
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			done, err := r.finish(ctx, q, id, d.name)
			r.known.InvalidateAll()
			switch {
			case err != nil:
				return o, err
			case done.Target == "":
				return o, services.ErrGone // the work request is forgotten: the load balancer is found by its name
			}
			lb, err := r.known.Get(ctx, done.Target, inventory.Query{})
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			r.settle(lb.ID, true)
			return observation{lb: lb, deletable: true, group: o.group}, nil
		},
	}
}

// tokenFor is the retry token of a creation: that of before while nobody knows what became of the same request, and else a new one.
func (r *reconciler) tokenFor(uid types.UID, asked document) (string, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(body)
	sum := hex.EncodeToString(digest[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, known := r.attempts[uid]; known && before.sum == sum {
		return before.token, nil
	}
	token := rand.Text()
	r.attempts[uid] = attempt{sum: sum, token: token}
	return token, nil
}

// forget ends an attempt: its outcome is known.
func (r *reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attempts, uid)
}

// deleting removes a load balancer, with all that belongs to it.
func (r *reconciler) deleting(lb *loadBalancer) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanDelete, Object: "load balancer " + lb.Name},
		Compare: func() (before, after any) { return lb, nil },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			r.forget(q.Service.UID)
			err := r.remove(ctx, q, lb)
			if err == nil {
				r.forgetSecrets(q.Service.UID)
			}
			return observation{group: o.group}, err
		},
	}
}

// remove deletes a load balancer and waits until it is gone: the request is only accepted, and can still fail.
func (r *reconciler) remove(ctx context.Context, q *services.Request, lb *loadBalancer) error {
	var refused error
	for range maxConflicts {
		if err := r.ready(ctx, lb); err != nil {
			if !errors.Is(err, services.ErrGone) {
				return err
			}
			if _, err := r.known.Get(ctx, lb.ID, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
				return r.gone(ctx, lb)
			}
		}
		id, err := r.start(ctx, write{
			what: "deleting load balancer " + lb.Name, method: http.MethodDelete, path: "/loadBalancers/" + url.PathEscape(lb.ID),
		})
		r.known.Invalidate(lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrConflict):
			if refused != nil && err.Error() == refused.Error() {
				return err // nobody works on it: it is protected, for one
			}
			refused = err
			if err := r.awaitOthers(ctx, lb, err); !errors.Is(err, services.ErrGone) {
				return err
			}
			continue
		case err == nil:
			_, err = r.finish(ctx, q, id, lb.Name)
		case errors.Is(err, cloudapi.ErrNotFound):
			err = nil // or not shown to us, which is found out below
		}
		if err != nil {
			return err
		}
		return r.gone(ctx, lb)
	}
	return cloudproviderapi.NewRetryError("others keep working on load balancer "+lb.Name, lookAgain)
}

// maxConflicts is how often a deletion is asked for again that was refused because the cloud worked for somebody else.
const maxConflicts = 5

// gone is nil where a load balancer is proved to be gone.
func (r *reconciler) gone(ctx context.Context, lb *loadBalancer) error {
	r.known.Invalidate(lb.ID)
	now, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	if err == nil && now.State == stateDeleting {
		_, err = r.until(ctx, now, func(lb *loadBalancer) bool { return lb.State != stateDeleting })
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		r.known.Forget(lb.ID)
		return nil
	case err != nil:
		return err
	}
	return cloudproviderapi.NewRetryError("load balancer "+lb.Name+" is "+now.State+" after its deletion", lookAgain)
}
