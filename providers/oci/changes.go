package oci

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
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

// planWait waits for somebody else's work on a load balancer before changes, which are computed again then.
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

// whenIdle returns changes, after a wait if the cloud works for somebody else.
func (r *loadBalancers) whenIdle(lb *loadBalancer, all []change) []change {
	if lb.State == stateUpdating && len(all) > 0 {
		return append([]change{r.planWait(lb)}, all...)
	}
	return all
}

// part is a kind of object within a load balancer.
type part string

const (
	partListener    part = "listener"
	partSet         part = "backend set"
	partRuleSet     part = "rule set"
	partCertificate part = "certificate"
)

// path returns the path of all parts of the kind, below that of the load balancer.
func (p part) path() string {
	return map[part]string{partListener: "/listeners", partSet: "/backendSets", partRuleSet: "/ruleSets", partCertificate: "/certificates"}[p]
}

// planWrite changes the load balancer or a part of it.
func (r *loadBalancers) planWrite(action, object, detail string, before, after document, w write) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail},
		Compare: func() (any, any) { return before, after },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			sets := map[string]document{}
			maps.Copy(sets, o.lb.BackendSets)
			o, err := r.write(ctx, req, o, w)
			if w.part == partSet && after != nil {
				sets[w.name] = after
				err = r.explain(err, sets)
			}
			return o, err
		},
	}
}

// planPart creates a part if there is none before, and deletes it if there is none after. have is the part with whose fields after was
// completed, or nil. Names are unique in a load balancer, so that another read shows the result of an unanswered creation.
func (r *loadBalancers) planPart(p part, name, detail string, before, after, have document) change {
	object := string(p) + " " + name
	action, path := contract.PlanChange, p.path()+"/"+url.PathEscape(name)
	w := write{what: "changing " + object, method: http.MethodPut, path: path, in: after, part: p, name: name, have: have}
	switch {
	case before == nil:
		action, w.what, w.method, w.path = contract.PlanCreate, "creating "+object, http.MethodPost, p.path()
	case after == nil:
		action, w.what, w.method, w.in = contract.PlanDelete, "deleting "+object, http.MethodDelete, nil
	}
	return r.planWrite(action, object, detail, before, after, w)
}

// planPartDeletions deletes the parts that are not wanted.
func (r *loadBalancers) planPartDeletions(p part, have, want map[string]document) (all []change) {
	for _, name := range sortedKeys(have) {
		if _, wanted := want[name]; !wanted {
			all = append(all, r.planPart(p, name, "", have[name], nil, nil))
		}
	}
	return all
}

// planSetting changes a setting of the load balancer itself.
func (r *loadBalancers) planSetting(lb *loadBalancer, setting, path string, before, after document) change {
	object := r.kind.title + " " + lb.Name
	return r.planWrite(contract.PlanChange, object, setting, before, after,
		write{what: "changing the " + setting + " of " + object, method: http.MethodPut, path: path, in: after})
}

// Changes implements services.Reconciler. What nothing refers to any more goes last, and each closing is tried. An IP version is added
// before its listeners, and removed after them.
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
	open, shut := splitPlans(d.lists, d.former)
	first, last := r.lists.changes(req.Service, open), r.lists.changes(req.Service, shut)
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

// versionChanges changes the IP version: first to both, or last to one.
func (r *loadBalancers) versionChanges(lb *loadBalancer, version string) (first, last []change) {
	if version == lb.Version {
		return nil, nil
	}
	all := []change{r.planSetting(lb, "version of IP", "", document{"nlbIpVersion": lb.Version}, document{"nlbIpVersion": version})}
	if version == versionBoth {
		return all, nil
	}
	return nil, all
}

// changesOfParts returns the changes of listeners and backend sets.
func (r *loadBalancers) changesOfParts(lb *loadBalancer, d desired) (all []change) {
	listeners, extra := matchListeners(lb.Listeners, d.listeners)
	for _, name := range extra {
		all = append(all, r.planPart(partListener, name, "", lb.Listeners[name], nil, nil))
	}
	for _, name := range sortedKeys(d.sets) {
		want := d.sets[name]
		have, there := lb.BackendSets[name]
		if !there {
			all = append(all, r.planPart(partSet, name, "", nil, withName(want, name), nil))
			continue
		}
		after, what := mergeSet(have, want, d.noNodes)
		if mergeTLS(after, want) {
			what = append(what, "TLS")
		}
		if len(what) > 0 {
			all = append(all, r.planSetUpdate(name, have, after, what))
		}
	}
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		if !there {
			all = append(all, r.planPart(partListener, name, "", nil, withName(d.listeners[name], name), nil))
			continue
		}
		have := lb.Listeners[is]
		if after, differs := mergeListener(have, d.listeners[name]); differs {
			all = append(all, r.planPart(partListener, is, "", writableCopy(have), after, have))
		}
	}
	return append(all, r.planPartDeletions(partSet, lb.BackendSets, d.sets)...)
}

// ruleSetChanges creates and changes rule sets first, and deletes unwanted ones last.
func (r *loadBalancers) ruleSetChanges(lb *loadBalancer, d desired) (first, last []change) {
	if d.ruleSets == nil {
		return nil, nil
	}
	for _, name := range sortedKeys(d.ruleSets) {
		want := d.ruleSets[name]
		have, there := lb.RuleSets[name]
		switch {
		case !there:
			first = append(first, r.planPart(partRuleSet, name, "", nil, withName(want, name), nil))
		case !sameItems(fieldOf[[]any](have, "items"), fieldOf[[]any](want, "items")):
			first = append(first, r.planPart(partRuleSet, name, "", writableCopy(have), want, nil))
		}
	}
	return first, r.planPartDeletions(partRuleSet, lb.RuleSets, d.ruleSets)
}

// changesOfWhole returns the changes of the load balancer's own settings.
func (r *loadBalancers) changesOfWhole(lb *loadBalancer, d desired) (all []change) {
	if !services.SameSet(lb.Groups, d.groups) {
		all = append(all, r.planSetting(lb, "network security groups", "/networkSecurityGroups",
			document{"networkSecurityGroupIds": lb.Groups}, document{"networkSecurityGroupIds": d.groups}))
	}
	details := d.details != nil && (lb.Details == nil || *lb.Details != *d.details)
	if !strings.EqualFold(lb.Shape, d.shape) || details {
		after := document{"shapeName": d.shape}
		if d.details != nil {
			after["shapeDetails"] = d.details
		}
		all = append(all, r.planSetting(lb, "shape", "/updateShape", document{"shapeName": lb.Shape, "shapeDetails": lb.Details}, after))
	}
	return all
}

func (r *loadBalancers) planSetUpdate(name string, have, after document, what []string) change {
	before, backends := writableCopy(have), fieldOf[[]any](have, "backends")
	before["backends"], _ = mergeBackends(backends, backends) // without what the cloud fills in
	return r.planPart(partSet, name, strings.Join(what, ", "), before, after, have)
}

// planCreation creates a load balancer with all its parts.
func (r *loadBalancers) planCreation(service *v1.Service, d desired) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: r.kind.title + " " + d.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.create },
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
			done, err := r.awaitWorkRequest(ctx, req, work, d.name)
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
			r.noteIdle(lb.ID, true)
			o.lb, o.deletable = lb, true
			return o, nil
		},
	}
}

// retryTokens holds the tokens of creations whose results are unknown.
type retryTokens struct {
	mu       sync.Mutex
	attempts map[types.UID]attempt
}

// attempt is such a creation. The same request has the same token.
type attempt struct {
	sum   [sha256.Size]byte
	token string
}

// tokenFor returns a creation's token: the former one if the result of the same request is unknown, or else a new one.
func (t *retryTokens) tokenFor(uid types.UID, asked document) (string, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.attempts[uid]; known && before.sum == sum {
		return before.token, nil
	}
	token := rand.Text()
	t.attempts[uid] = attempt{sum: sum, token: token}
	return token, nil
}

// forget ends an attempt whose result is known.
func (t *retryTokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attempts, uid)
}

// planDeletion deletes a load balancer with all its parts.
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
