package oci

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// planWait stands before changes of a load balancer on which the cloud works for somebody else: what is to be changed shows then.
func (r *loadBalancers) planWait(lb *loadBalancer) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: r.kind.title + " " + lb.Name}, Wait: true, Replan: true,
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			now, err := r.readUntilIdle(ctx, lb)
			if err == nil {
				o.lb = now
			}
			return o, lookAgainIfGone(err)
		},
	}
}

// whenIdle are changes, after a wait where the cloud works for somebody else.
func (r *loadBalancers) whenIdle(lb *loadBalancer, all []change) []change {
	if lb.State == stateUpdating && len(all) > 0 {
		return append([]change{r.planWait(lb)}, all...)
	}
	return all
}

// change writes a part of the load balancer, and reads the load balancer again.
func (r *loadBalancers) change(action, object, detail string, compare func() (before, after any), ask write) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail}, Compare: compare,
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			sets := map[string]document{}
			maps.Copy(sets, o.lb.BackendSets)
			o, err := r.write(ctx, req, o, ask)
			if set, is := ask.in.(document); is && set["backends"] != nil {
				name, _ := set["name"].(string)
				sets[cmp.Or(ask.set, name)] = set
				err = r.explain(err, sets)
			}
			return o, err
		},
	}
}

// Changes are those between what is there and what should be. What nothing refers to any more goes last, and each closing is tried; a
// version of IP comes before what has it, and goes after it.
func (r *reconciler) Changes(req services.Request, o observed, d desired) ([]change, error) {
	if o.lb == nil {
		all := r.planRecord(req.Service, d.record)
		if o.group == nil && d.group.create != nil {
			all = append(all, r.groups.planCreation(req.Service, d)) // what follows is computed again, with it
		}
		return append(append(all, r.groups.openings(d.group.edits)...), r.planCreation(req.Service, d)), nil
	}
	if o.group == nil && d.group.create != nil {
		return []change{r.groups.planCreation(req.Service, d)}, nil
	}
	first, last := r.lists.changes(req.Service, early(d.lists, d.former)), r.lists.changes(req.Service, late(d.lists, d.former))
	if d.group.create != nil { // lists have no rules any more, and let clients in until the group does
		first, last = nil, append(first, last...)
	}
	all := slices.Concat(r.planRecord(req.Service, d.record), first, r.groups.openings(d.group.edits))
	wider, narrower := r.versionChanges(o.lb, d.version)
	certificates, oldCertificates := r.certificateChanges(o.lb, d)
	ruleSets, oldRuleSets := r.ruleSetChanges(o.lb, d)
	all = slices.Concat(all, wider, certificates, ruleSets, r.changesOfParts(o.lb, d), oldRuleSets, oldCertificates, r.changesOfWhole(o.lb, d),
		narrower, services.EachTried(last), r.groups.closings(d.group.edits))
	if d.group.obsolete != nil {
		all = append(all, r.groups.planDeletion(d.group.obsolete))
	}
	return r.whenIdle(o.lb, all), nil
}

// versionChanges change the version of IP: first to more, or last to less.
func (r *loadBalancers) versionChanges(lb *loadBalancer, version string) (first, last []change) {
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
func (r *loadBalancers) changesOfParts(lb *loadBalancer, d desired) (all []change) {
	listeners, extra := matchListeners(lb.Listeners, d.listeners)
	for _, name := range extra {
		all = append(all, r.planPartDeletion("listener", "/listeners/", name, lb.Listeners[name]))
	}
	for _, name := range sortedKeys(d.sets) {
		want := d.sets[name]
		have, there := lb.BackendSets[name]
		if !there {
			all = append(all, r.planPart("backend set", "/backendSets", name, want))
			continue
		}
		if after, what := mergeSetTLS(have, want, d.noNodes); len(what) > 0 {
			all = append(all, r.planSetUpdate(name, have, after, what))
		}
	}
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		if !there {
			all = append(all, r.planPart("listener", "/listeners", name, d.listeners[name]))
			continue
		}
		have := lb.Listeners[is]
		if after, differs := mergeListener(have, d.listeners[name]); differs {
			all = append(all, r.planListenerUpdate(is, have, after))
		}
	}
	for _, name := range sortedKeys(lb.BackendSets) {
		if _, wanted := d.sets[name]; !wanted {
			all = append(all, r.planPartDeletion("backend set", "/backendSets/", name, lb.BackendSets[name]))
		}
	}
	return all
}

// ruleSetChanges make and change rule sets, and remove those that are not wanted, which goes last.
func (r *loadBalancers) ruleSetChanges(lb *loadBalancer, d desired) (first, last []change) {
	if d.ruleSets == nil {
		return nil, nil
	}
	for _, name := range sortedKeys(d.ruleSets) {
		have, there := lb.RuleSets[name]
		switch {
		case !there:
			first = append(first, r.planPart("rule set", "/ruleSets", name, d.ruleSets[name]))
		case !sameItems(listOf(have["items"]), listOf(d.ruleSets[name]["items"])):
			first = append(first, r.change(contract.PlanChange, "rule set "+name, "", func() (any, any) { return withoutShown(have), d.ruleSets[name] },
				write{what: "changing rule set " + name, method: http.MethodPut, path: "/ruleSets/" + url.PathEscape(name), in: d.ruleSets[name]}))
		}
	}
	for _, name := range sortedKeys(lb.RuleSets) {
		if _, wanted := d.ruleSets[name]; !wanted {
			last = append(last, r.planPartDeletion("rule set", "/ruleSets/", name, lb.RuleSets[name]))
		}
	}
	return first, last
}

func (r *loadBalancers) planListenerUpdate(name string, have, after document) change {
	return r.change(contract.PlanChange, "listener "+name, "", func() (any, any) { return withoutShown(have), after }, write{
		what: "changing listener " + name, method: http.MethodPut, path: "/listeners/" + url.PathEscape(name), in: after, listener: name, have: have,
	})
}

// changesOfWhole are those of the load balancer itself.
func (r *loadBalancers) changesOfWhole(lb *loadBalancer, d desired) (all []change) {
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

func (r *loadBalancers) planSetUpdate(name string, have, after document, what []string) change {
	before := withoutShown(have)
	before["backends"], _ = mergeBackends(listOf(have["backends"]), listOf(have["backends"])) // without what the cloud fills in
	return r.change(contract.PlanChange, "backend set "+name, strings.Join(what, ", "), func() (any, any) { return before, after }, write{
		what: "changing backend set " + name, method: http.MethodPut, path: "/backendSets/" + url.PathEscape(name), in: after, set: name, have: have,
	})
}

// planPart makes a part: whether one was made that was not answered shows in what is there, since names are unique in a load balancer.
func (r *loadBalancers) planPart(kind, path, name string, want document) change {
	asked := withoutShown(want)
	asked["name"] = name
	return r.change(contract.PlanCreate, kind+" "+name, "", func() (any, any) { return nil, asked },
		write{what: "creating " + kind + " " + name, method: http.MethodPost, path: path, in: asked})
}

func (r *loadBalancers) planPartDeletion(kind, path, name string, have document) change {
	return r.change(contract.PlanDelete, kind+" "+name, "", func() (any, any) { return have, nil },
		write{what: "deleting " + kind + " " + name, method: http.MethodDelete, path: path + url.PathEscape(name)})
}

// planCreation makes a load balancer with all that belongs to it.
func (r *loadBalancers) planCreation(service *v1.Service, d desired) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: r.kind.title + " " + d.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.shownCreation() },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			token, err := r.tokens.tokenFor(service.UID, d.create)
			if err != nil {
				return o, err
			}
			id, work, err := r.create(ctx, d.name, d.create, token)
			r.known.InvalidateAll() // it may have been made
			if err == nil || cloudapi.Refused(err) {
				r.tokens.forget(service.UID)
			}
			if err != nil {
				return o, cloudapi.NotAbsence(r.explain(err, d.sets))
			}
			done, err := r.finish(ctx, req, work, d.name)
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
			o.lb, o.deletable = lb, true
			return o, nil
		},
	}
}

// retryTokens holds the retry tokens of creations whose answers are not known.
type retryTokens struct {
	mu       sync.Mutex
	attempts map[types.UID]attempt
}

// attempt is a creation: as long as nobody knows what became of it, the same request has the same token.
type attempt struct{ sum, token string }

// tokenFor returns the retry token of a creation: the former one while nobody knows what became of the same request, else a new one.
func (t *retryTokens) tokenFor(uid types.UID, asked document) (string, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(body)
	sum := hex.EncodeToString(digest[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.attempts[uid]; known && before.sum == sum {
		return before.token, nil
	}
	token := rand.Text()
	t.attempts[uid] = attempt{sum: sum, token: token}
	return token, nil
}

// forget ends an attempt: its outcome is known.
func (t *retryTokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attempts, uid)
}

// planDeletion removes a load balancer, with all that belongs to it.
func (r *loadBalancers) planDeletion(lb *loadBalancer) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: r.kind.title + " " + lb.Name},
		Compare: func() (before, after any) { return lb, nil },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			r.tokens.forget(req.Service.UID)
			err := r.remove(ctx, req, lb)
			if err == nil {
				r.forgetSecrets(req.Service.UID)
			}
			o.lb = nil
			return o, err
		},
	}
}
