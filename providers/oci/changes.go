package oci

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// workPatience is how long a call waits for the cloud's work, which takes a minute or two as a rule.
const workPatience = 10 * time.Minute

// retryLater is the answer where the cloud is still at work when patience ends, which is no failure.
func retryLater(err error, name string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cloudproviderapi.NewRetryError("the cloud still works on load balancer "+name, lookAgain)
	}
	return err
}

// write makes one change, and returns the load balancer as it is afterwards. The cloud makes one at a time: while it works for somebody
// else it refuses, and all is looked at again when it has ended.
func (r *balancers) write(ctx context.Context, q *services.Request, o observation, ask write) (observation, error) {
	prepare := r.prepareWork
	if r.kind.statesWork {
		prepare = r.prepareState
	}
	o, err := prepare(ctx, o, &ask)
	if err != nil {
		return o, err
	}
	if ask.outdated(o.lb) {
		return o, services.ErrGone // somebody has changed it meanwhile
	}
	ask.path = r.pathOf(o.lb.ID) + ask.path
	id, err := r.start(ctx, ask)
	r.known.Invalidate(o.lb.ID)
	if err != nil {
		return o, r.judgeRefusal(ctx, o.lb, err)
	}
	if _, err := r.finish(ctx, q, id, o.lb.Name); err != nil {
		r.known.Invalidate(o.lb.ID)
		return o, err
	}
	r.settle(o.lb.ID, true)
	// The work request may end a moment before the load balancer can be changed again.
	lb, err := r.readUntilIdle(ctx, o.lb)
	if err == nil {
		o.lb, o.fresh = lb, true
	}
	return o, lookAgainIfGone(err)
}

// lookAgainIfGone is services.ErrGone where a load balancer is not found that was there.
func lookAgainIfGone(err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return services.ErrGone
	}
	return err
}

// prepareWork waits until no work request is under way: the load balancer is written under the ETag that it has then.
func (r *balancers) prepareWork(ctx context.Context, o observation, ask *write) (observation, error) {
	if err := r.ready(ctx, o.lb); err != nil {
		return o, err
	}
	if o.lb.etag == "" { // what is known comes from a listing
		lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
		if err != nil {
			return o, lookAgainIfGone(err)
		}
		if !lb.sameAs(o.lb) {
			return o, services.ErrGone // somebody has changed it meanwhile
		}
		o.lb = lb
	}
	ask.etag = o.lb.etag
	return o, nil
}

// prepareState reads the load balancer where part of it is written back: what is known may be some seconds old, and writes of parts are
// under no ETag.
func (r *balancers) prepareState(ctx context.Context, o observation, ask *write) (observation, error) {
	fresh := o.fresh
	if o.fresh = false; fresh || ask.have == nil {
		return o, nil
	}
	r.known.Invalidate(o.lb.ID)
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
	if err == nil {
		o.lb = lb
	}
	return o, lookAgainIfGone(err)
}

// judgeRefusal is why a write was refused: services.ErrGone where all is to be looked at again, as somebody else changed something.
func (r *balancers) judgeRefusal(ctx context.Context, lb *loadBalancer, err error) error {
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		return r.awaitOthers(ctx, lb, err)
	case errors.Is(err, cloudapi.ErrNotFound):
		if _, err := r.known.Get(ctx, lb.ID, inventory.Query{}); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
		return services.ErrGone // somebody has taken it away, or the part of it
	}
	return err
}

// ready asks whether the cloud still works on what a process before this one began, or what was not answered. It is nil where a change can
// be asked for; after it, that is not known until the change has ended.
func (r *balancers) ready(ctx context.Context, lb *loadBalancer) error {
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
func (r *balancers) settle(id string, ended bool) (before bool) {
	r.settledMu.Lock()
	defer r.settledMu.Unlock()
	before = r.settled[id]
	delete(r.settled, id)
	if ended && !r.kind.statesWork {
		r.settled[id] = true
	}
	return before
}

// awaitOthers waits until the cloud works for somebody else no longer. What was to be written is old then.
func (r *balancers) awaitOthers(ctx context.Context, lb *loadBalancer, conflict error) error {
	await := r.awaitWork
	if r.kind.statesWork {
		await = r.readUntilIdle
	}
	now, err := await(ctx, lb)
	switch {
	case err != nil && !errors.Is(err, cloudapi.ErrNotFound):
		return err
	case err == nil && now.State != stateActive && conflict != nil:
		return conflict
	}
	return services.ErrGone
}

// awaitWork waits until no work request is under way.
func (r *balancers) awaitWork(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	if _, err := r.idle.Until(waiting, lb.ID, "other work on load balancer "+lb.Name, func(idle bool) bool { return idle }); err != nil {
		return nil, retryLater(err, lb.Name)
	}
	return r.known.Get(ctx, lb.ID, inventory.Query{})
}

// waiting stands before changes of a load balancer on which the cloud works for somebody else: what is to be changed shows then.
func (r *balancers) waiting(lb *loadBalancer) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: r.kind.title + " " + lb.Name}, Wait: true, Replan: true,
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			now, err := r.readUntilIdle(ctx, lb)
			if err == nil {
				o.lb = now
			}
			return o, lookAgainIfGone(err)
		},
	}
}

// whenIdle are changes, after a wait where the cloud works for somebody else.
func (r *balancers) whenIdle(lb *loadBalancer, all []change) []change {
	if lb.State == stateUpdating && len(all) > 0 {
		return append([]change{r.waiting(lb)}, all...)
	}
	return all
}

// change writes a part of the load balancer, and reads the load balancer again.
func (r *balancers) change(action, object, detail string, compare func() (before, after any), ask write) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail}, Compare: compare,
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			return r.write(ctx, q, o, ask)
		},
	}
}

// Changes are those between what is there and what should be. What nothing refers to any more goes last, and each closing is tried; a
// version of IP comes before what has it, and goes after it.
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
	first, last := ruleChanges(r.book, q.Service, early(d.lists, d.former)), ruleChanges(r.book, q.Service, late(d.lists, d.former))
	if d.group.create != nil { // lists have no rules any more, and let clients in until the group does
		first, last = nil, append(first, last...)
	}
	all := slices.Concat(r.recording(q.Service, d.record), first, r.groupOpenings(d))
	wider, narrower := r.versionChanges(o.lb, d.version)
	certificates, oldCertificates := r.certificateChanges(o.lb, d)
	ruleSets, oldRuleSets := r.ruleSetChanges(o.lb, d)
	all = slices.Concat(all, wider, certificates, ruleSets, r.changesOfParts(o.lb, d), oldRuleSets, oldCertificates, r.changesOfWhole(o.lb, d),
		narrower, services.EachTried(last), r.groupClosings(d))
	return r.whenIdle(o.lb, all), nil
}

// versionChanges change the version of IP: first to more, or last to less.
func (r *balancers) versionChanges(lb *loadBalancer, version string) (first, last []change) {
	if version == lb.Version {
		return nil, nil
	}
	change := []change{r.change(contract.PlanChange, r.kind.title+" "+lb.Name, "version of IP",
		func() (any, any) { return document{"nlbIpVersion": lb.Version}, document{"nlbIpVersion": version} },
		write{what: "changing the version of IP of " + r.kind.title + " " + lb.Name, method: http.MethodPut, in: document{"nlbIpVersion": version}})}
	if version == versionBoth {
		return change, nil
	}
	return nil, change
}

// changesOfParts are those of listeners and backend sets.
func (r *balancers) changesOfParts(lb *loadBalancer, d spec) (all []change) {
	listeners, extra := matchListeners(lb.Listeners, d.listeners)
	for _, name := range extra {
		all = append(all, r.deletingPart("listener", "/listeners/", name, lb.Listeners[name]))
	}
	for _, name := range sortedKeys(d.sets) {
		want := d.sets[name]
		have, there := lb.BackendSets[name]
		if !there {
			all = append(all, r.addingPart("backend set", "/backendSets", name, want))
			continue
		}
		if after, what := mergeSetTLS(have, want, d.noNodes); len(what) > 0 {
			all = append(all, r.updatingSet(name, have, after, what))
		}
	}
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		if !there {
			all = append(all, r.addingPart("listener", "/listeners", name, d.listeners[name]))
			continue
		}
		have := lb.Listeners[is]
		if after, differs := mergeListener(have, d.listeners[name]); differs {
			all = append(all, r.updatingListener(is, have, after))
		}
	}
	for _, name := range sortedKeys(lb.BackendSets) {
		if _, wanted := d.sets[name]; !wanted {
			all = append(all, r.deletingPart("backend set", "/backendSets/", name, lb.BackendSets[name]))
		}
	}
	return all
}

// ruleSetChanges make and change rule sets, and remove those that are not wanted, which goes last.
func (r *balancers) ruleSetChanges(lb *loadBalancer, d spec) (first, last []change) {
	if d.ruleSets == nil {
		return nil, nil
	}
	for _, name := range sortedKeys(d.ruleSets) {
		have, there := lb.RuleSets[name]
		switch {
		case !there:
			first = append(first, r.addingPart("rule set", "/ruleSets", name, d.ruleSets[name]))
		case !sameItems(listOf(have["items"]), listOf(d.ruleSets[name]["items"])):
			first = append(first, r.change(contract.PlanChange, "rule set "+name, "", func() (any, any) { return withoutShown(have), d.ruleSets[name] },
				write{what: "changing rule set " + name, method: http.MethodPut, path: "/ruleSets/" + url.PathEscape(name), in: d.ruleSets[name]}))
		}
	}
	for _, name := range sortedKeys(lb.RuleSets) {
		if _, wanted := d.ruleSets[name]; !wanted {
			last = append(last, r.deletingPart("rule set", "/ruleSets/", name, lb.RuleSets[name]))
		}
	}
	return first, last
}

func (r *balancers) updatingListener(name string, have, after document) change {
	return r.change(contract.PlanChange, "listener "+name, "", func() (any, any) { return withoutShown(have), after }, write{
		what: "changing listener " + name, method: http.MethodPut, path: "/listeners/" + url.PathEscape(name), in: after, listener: name, have: have,
	})
}

// changesOfWhole are those of the load balancer itself.
func (r *balancers) changesOfWhole(lb *loadBalancer, d spec) (all []change) {
	if !services.SameSet(lb.Groups, d.groups) {
		after := document{"networkSecurityGroupIds": d.groups}
		all = append(all, r.change(contract.PlanChange, r.kind.title+" "+lb.Name, "network security groups",
			func() (any, any) { return document{"networkSecurityGroupIds": lb.Groups}, after },
			write{what: "changing the network security groups of " + r.kind.title + " " + lb.Name, method: http.MethodPut, path: "/networkSecurityGroups", in: after}))
	}
	details := d.details != nil && (lb.Details == nil || *lb.Details != *d.details)
	if !strings.EqualFold(lb.Shape, d.shape) || details {
		after := document{"shapeName": d.shape}
		if d.details != nil {
			after["shapeDetails"] = d.details
		}
		all = append(all, r.change(contract.PlanChange, "load balancer "+lb.Name, "shape",
			func() (any, any) { return document{"shapeName": lb.Shape, "shapeDetails": lb.Details}, after },
			write{what: "changing the shape of load balancer " + lb.Name, method: http.MethodPut, path: "/updateShape", in: after}))
	}
	return all
}

func (r *balancers) updatingSet(name string, have, after document, what []string) change {
	before := withoutShown(have)
	before["backends"], _ = mergeBackends(listOf(have["backends"]), listOf(have["backends"])) // without what the cloud fills in
	return r.change(contract.PlanChange, "backend set "+name, strings.Join(what, ", "), func() (any, any) { return before, after }, write{
		what: "changing backend set " + name, method: http.MethodPut, path: "/backendSets/" + url.PathEscape(name), in: after, set: name, have: have,
	})
}

// addingPart makes a part: whether one was made that was not answered shows in what is there, since names are unique in a load balancer.
func (r *balancers) addingPart(kind, path, name string, want document) change {
	asked := withoutShown(want)
	asked["name"] = name
	return r.change(contract.PlanCreate, kind+" "+name, "", func() (any, any) { return nil, asked },
		write{what: "creating " + kind + " " + name, method: http.MethodPost, path: path, in: asked})
}

func (r *balancers) deletingPart(kind, path, name string, have document) change {
	return r.change(contract.PlanDelete, kind+" "+name, "", func() (any, any) { return have, nil },
		write{what: "deleting " + kind + " " + name, method: http.MethodDelete, path: path + url.PathEscape(name)})
}

// creating makes a load balancer with all that belongs to it.
func (r *balancers) creating(service *v1.Service, d spec) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: r.kind.title + " " + d.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.shownCreation() },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			token, err := r.tokenFor(service.UID, d.create)
			if err != nil {
				return o, err
			}
			id, work, err := r.create(ctx, d.name, d.create, token)
			r.known.InvalidateAll() // it may have been made
			if err == nil || cloudapi.Refused(err) {
				r.forget(service.UID)
			}
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			done, err := r.finish(ctx, q, work, d.name)
			r.known.InvalidateAll()
			if err != nil {
				return o, err
			}
			if id = cmp.Or(id, done.Target); id == "" {
				return o, services.ErrGone // the work request is forgotten: the load balancer is found by its name
			}
			lb, err := r.readUntilIdle(ctx, &loadBalancer{ID: id})
			if r.kind.statesWork {
				r.known.InvalidateAll() // a listing may have begun while it was being made
			}
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			r.settle(lb.ID, true)
			return observation{lb: lb, deletable: true, group: o.group}, nil
		},
	}
}

// tokenFor is the retry token of a creation: that of before while nobody knows what became of the same request, and else a new one.
func (r *sharedParts) tokenFor(uid types.UID, asked document) (string, error) {
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
func (r *sharedParts) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attempts, uid)
}

// deleting removes a load balancer, with all that belongs to it.
func (r *balancers) deleting(lb *loadBalancer) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: r.kind.title + " " + lb.Name},
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
func (r *balancers) remove(ctx context.Context, q *services.Request, lb *loadBalancer) error {
	var refused error
	title := r.kind.title + " " + lb.Name
	for range maxConflicts {
		switch err := r.awaitTurn(ctx, lb); {
		case errors.Is(err, cloudapi.ErrNotFound):
			r.known.Forget(lb.ID)
			return nil
		case err != nil:
			return err
		}
		id, err := r.start(ctx, write{what: "deleting " + title, method: http.MethodDelete, path: r.pathOf(lb.ID)})
		r.known.Invalidate(lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrConflict) && r.kind.statesWork:
			continue
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
		now, err := r.readUntilIdle(ctx, lb)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			r.known.Forget(lb.ID)
			return nil
		case err != nil:
			return err
		}
		return cloudproviderapi.NewRetryError(title+" is "+now.State+" after its deletion", lookAgain)
	}
	return cloudproviderapi.NewRetryError("others keep working on "+title, lookAgain)
}

// awaitTurn waits until the deletion of a load balancer can be asked for. It is not found where it is gone.
func (r *balancers) awaitTurn(ctx context.Context, lb *loadBalancer) error {
	if r.kind.statesWork {
		_, err := r.readUntilIdle(ctx, lb)
		return err
	}
	err := r.ready(ctx, lb)
	if errors.Is(err, services.ErrGone) {
		if _, err = r.known.Get(ctx, lb.ID, inventory.Query{}); !errors.Is(err, cloudapi.ErrNotFound) {
			err = nil
		}
	}
	return err
}

// maxConflicts is how often a deletion is asked for again that was refused because the cloud worked for somebody else.
const maxConflicts = 5
