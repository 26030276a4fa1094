package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// pace is how often is looked at the cloud's work.
func pace() waiting.Pace { return waiting.Pace{Least: 2 * time.Second, Most: 10 * time.Second} }

// work reads a work request.
func (r *loadBalancers) work(ctx context.Context, id string) (w workRequest, err error) {
	if err := r.api.get(ctx, "work request "+id, r.kind.workPath+"/"+url.PathEscape(id), &w); err != nil {
		return w, err
	}
	if w.State = cmp.Or(w.State, w.Status); w.ID != id || w.State == "" {
		return w, cloudapi.Unclear("reading work request "+id, "the answer is about another one")
	}
	return w, nil
}

// finish waits for a work request. One that is forgotten is judged by the load balancer itself, which is read in any case.
func (r *loadBalancers) finish(ctx context.Context, req *services.Request, id, name string) (workRequest, error) {
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	title := r.kind.title + " " + name
	w, err := r.works.Until(waiting, id, "the cloud's work on "+title, func(w workRequest) bool { return !w.running() })
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return workRequest{}, nil
	case err != nil:
		return w, retryLater(err, name)
	case w.State == workSucceeded:
		return w, nil
	}
	err = &cloudapi.Error{ // the cloud said no, if late
		Class: cloudapi.ErrInvalid, Operation: "changing " + title, Refused: true, Message: fmt.Sprintf("the work request %s failed: %s", id, r.why(ctx, w)),
	}
	req.Report(services.Warning(eventRefused, "%s: %v", title, err))
	return w, err
}

// why returns the error of a failed work request, as far as it is known.
func (r *loadBalancers) why(ctx context.Context, w workRequest) string {
	found := append(page[workError]{w.workError}, w.Errors...)
	if r.kind.errorsApart {
		if err := r.api.get(ctx, "errors of work request "+w.ID, r.kind.workPath+"/"+url.PathEscape(w.ID)+"/errors", &found); err != nil {
			return "its errors cannot be read: " + err.Error()
		}
	}
	var all []string
	for _, e := range found {
		if e.Message != "" && !slices.Contains(all, e.Message) {
			all = append(all, e.Message)
		}
	}
	if len(all) == 0 {
		return "the cloud does not say why"
	}
	return strings.Join(all, "; ")
}

// readUntilIdle waits until the state of a load balancer says that the cloud works on it no longer, and returns what is there then.
func (r *loadBalancers) readUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	lb, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	if err != nil || !lb.busy() {
		return lb, err
	}
	return r.waitUntilIdle(ctx, lb)
}

// waitUntilIdle is readUntilIdle for a load balancer on which it is known to work.
func (r *loadBalancers) waitUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	after, err := r.room.Until(waiting, lb.ID, r.kind.title+" "+lb.Name+": "+lb.State, func(lb *loadBalancer) bool { return !lb.busy() })
	return after, retryLater(err, lb.Name)
}

// isIdle reports whether the cloud works on a load balancer no longer.
func (r *loadBalancers) isIdle(ctx context.Context, id string) (bool, error) {
	var newest []workRequest
	path := r.pathOf(id) + "/workRequests?limit=" + workPage
	if err := r.api.get(ctx, "work requests of load balancer "+id, path, &newest); err != nil {
		return false, err
	}
	for _, w := range newest {
		if w.running() {
			return false, nil
		}
	}
	return true, nil
}

// start asks for a change, and returns the work request that makes it.
func (r *loadBalancers) start(ctx context.Context, w write) (string, error) {
	more := http.Header{}
	if w.token != "" {
		more.Set(tokenHeader, w.token)
	}
	if w.etag != "" {
		more.Set(ifMatch, w.etag)
	}
	header, err := r.api.send(ctx, w.what, w.method, w.path, w.in, w.out, more)
	if err != nil {
		return "", err
	}
	id := header.Get("Opc-Work-Request-Id")
	if id == "" {
		return "", cloudapi.Unclear(w.what, "the answer names no work request")
	}
	return id, nil
}

// create asks for a load balancer, and returns the work request, and the ID if the answer names it.
func (r *loadBalancers) create(ctx context.Context, name string, in document, token string) (id, work string, err error) {
	ask := write{what: "creating " + r.kind.title + " " + name, method: http.MethodPost, path: r.kind.path, in: in, token: token}
	var made struct {
		ID string `json:"id"`
	}
	if r.kind.showsCreated {
		ask.out = &made
	}
	if work, err = r.start(ctx, ask); err == nil && made.ID == "" && r.kind.showsCreated {
		err = cloudapi.Unclear(ask.what, "the answer names no %s", r.kind.title)
	}
	return made.ID, work, err
}

// write is one change of a load balancer.
type write struct {
	what, method, path string
	in, out            any
	token              string
	// etag is that of the load balancer which the write was made for.
	etag string
	// have is the listener, or the backend set, that is to be written back with changes; nil where it is another write.
	listener, set string
	have          document
}

// outdated reports whether what is to be written back is not what a load balancer has now.
func (w write) outdated(lb *loadBalancer) bool {
	now := lb.Listeners[w.listener]
	if w.set != "" {
		now = lb.BackendSets[w.set]
	}
	return w.have != nil && !sameDocument(now, w.have)
}

// repeatable reports whether a request may be sent twice: a retry token makes that safe. A change that was begun must not be asked
// for again, because the cloud refuses a second one.
func repeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get(tokenHeader) != "" || strings.HasSuffix(r.URL.Path, byAddressPath)
}

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
func (r *loadBalancers) write(ctx context.Context, req *services.Request, o observed, ask write) (observed, error) {
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
	if _, err := r.finish(ctx, req, id, o.lb.Name); err != nil {
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
func (r *loadBalancers) prepareWork(ctx context.Context, o observed, ask *write) (observed, error) {
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
func (r *loadBalancers) prepareState(ctx context.Context, o observed, ask *write) (observed, error) {
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
func (r *loadBalancers) judgeRefusal(ctx context.Context, lb *loadBalancer, err error) error {
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
func (r *loadBalancers) ready(ctx context.Context, lb *loadBalancer) error {
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
func (r *loadBalancers) settle(id string, ended bool) (before bool) {
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
func (r *loadBalancers) awaitOthers(ctx context.Context, lb *loadBalancer, conflict error) error {
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
func (r *loadBalancers) awaitWork(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	if _, err := r.idle.Until(waiting, lb.ID, "other work on load balancer "+lb.Name, func(idle bool) bool { return idle }); err != nil {
		return nil, retryLater(err, lb.Name)
	}
	return r.known.Get(ctx, lb.ID, inventory.Query{})
}

// remove deletes a load balancer and waits until it is gone: the request is only accepted, and can still fail.
func (r *loadBalancers) remove(ctx context.Context, req *services.Request, lb *loadBalancer) error {
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
			_, err = r.finish(ctx, req, id, lb.Name)
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
func (r *loadBalancers) awaitTurn(ctx context.Context, lb *loadBalancer) error {
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
