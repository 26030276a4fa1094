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

func pace() waiting.Pace { return waiting.Pace{Least: 2 * time.Second, Most: 10 * time.Second} }

func (r *loadBalancers) readWork(ctx context.Context, id string) (w workRequest, err error) {
	w, err = getByID(ctx, r.api, "work request", r.kind.workPath, id, func(w workRequest) string { return w.ID })
	if w.State = cmp.Or(w.State, w.Status); err == nil && w.State == "" {
		err = cloudapi.Unclear("reading work request "+id, "the answer is about another one")
	}
	return w, err
}

// awaitWorkRequest waits for a work request. If the cloud has forgotten it, the load balancer shows the result.
func (r *loadBalancers) awaitWorkRequest(ctx context.Context, req *services.Request, id, name string) (workRequest, error) {
	title := r.kind.title + " " + name
	w, err := await(ctx, r.works, id, "the cloud's work on "+title, name, func(w workRequest) bool { return !w.isRunning() })
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return workRequest{}, nil
	case err != nil:
		return w, err
	case w.State == workSucceeded:
		return w, nil
	}
	err = &cloudapi.Error{ // the cloud said no, if late
		Class: cloudapi.ErrInvalid, Operation: "changing " + title, Refused: true, Message: fmt.Sprintf("the work request %s failed: %s", id, r.failureReason(ctx, w)),
	}
	req.Report(services.Warning(eventRefused, "%s: %v", title, err))
	return w, err
}

// failureReason returns the error of a failed work request.
func (r *loadBalancers) failureReason(ctx context.Context, w workRequest) string {
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

// readUntilIdle waits until the state of a load balancer shows no work of the cloud, and returns the load balancer.
func (r *loadBalancers) readUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	lb, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	if err != nil || !lb.isBusy() {
		return lb, err
	}
	return r.waitUntilIdle(ctx, lb)
}

// waitUntilIdle is readUntilIdle for a load balancer on which the cloud certainly works.
func (r *loadBalancers) waitUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	idle := func(lb *loadBalancer) bool { return !lb.isBusy() }
	return await(ctx, r.states, lb.ID, r.kind.title+" "+lb.Name+": "+lb.State, lb.Name, idle)
}

// isIdle reports whether no work request for a load balancer is running.
func (r *loadBalancers) isIdle(ctx context.Context, id string) (bool, error) {
	var newest []workRequest
	path := r.pathOf(id) + "/workRequests?limit=" + workPage
	if err := r.api.get(ctx, "work requests of load balancer "+id, path, &newest); err != nil {
		return false, err
	}
	for _, w := range newest {
		if w.isRunning() {
			return false, nil
		}
	}
	return true, nil
}

// startWork requests a change, and returns its work request.
func (r *loadBalancers) startWork(ctx context.Context, w write) (string, error) {
	header, err := r.api.call(ctx, w.what, w.method, w.path, w.in, w.out, w.headers)
	if err != nil {
		return "", err
	}
	id := header.Get("Opc-Work-Request-Id")
	if id == "" {
		return "", cloudapi.Unclear(w.what, "the answer names no work request")
	}
	return id, nil
}

// create requests a load balancer, and returns the work request, and the ID if the answer has it.
func (r *loadBalancers) create(ctx context.Context, name string, in document, token string) (id, work string, err error) {
	headers := http.Header{tokenHeader: {token}}
	ask := write{what: "creating " + r.kind.title + " " + name, method: http.MethodPost, path: r.kind.path, in: in, headers: headers}
	var made struct {
		ID string `json:"id"`
	}
	if r.kind.showsCreated {
		ask.out = &made
	}
	if work, err = r.startWork(ctx, ask); err == nil && made.ID == "" && r.kind.showsCreated {
		err = cloudapi.Unclear(ask.what, "the answer names no %s", r.kind.title)
	}
	return made.ID, work, err
}

// write is a change of a load balancer.
type write struct {
	what, method, path string
	in, out            any
	headers            http.Header
	// have is the part to be written back with changes, or nil.
	part part
	name string
	have document
}

// isOutdated reports whether the part to be written back has changed.
func (w write) isOutdated(lb *loadBalancer) bool {
	now := lb.Listeners[w.name]
	if w.part == partSet {
		now = lb.BackendSets[w.name]
	}
	return w.have != nil && canonical(now) != canonical(w.have)
}

// isRepeatable reports whether a request may be sent twice, for example because of a retry token. A change that has begun must not be
// requested again, because the cloud refuses a second one.
func isRepeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get(tokenHeader) != "" || strings.HasSuffix(r.URL.Path, byAddressPath)
}

// workPatience is how long a call waits for the cloud's work, which usually takes a minute or two.
const workPatience = 10 * time.Minute

// await waits for the cloud's work on a load balancer. That it goes on when patience ends is no failure.
func await[V any](ctx context.Context, room *waiting.Room[string, V], id, what, name string, over func(V) bool) (V, error) {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	v, err := room.Until(ctx, id, what, over)
	if errors.Is(err, context.DeadlineExceeded) {
		err = cloudproviderapi.NewRetryError("the cloud still works on load balancer "+name, lookAgain)
	}
	return v, err
}

// write makes one change, and returns the load balancer after it. The cloud refuses it while it works for somebody else.
func (r *loadBalancers) write(ctx context.Context, req *services.Request, o observed, ask write) (observed, error) {
	prepare := r.prepareWork
	if r.kind.statesWork {
		prepare = r.prepareState
	}
	o, err := prepare(ctx, o, &ask)
	if err != nil {
		return o, err
	}
	if ask.isOutdated(o.lb) {
		return o, services.ErrGone // somebody has changed it meanwhile
	}
	ask.path = r.pathOf(o.lb.ID) + ask.path
	id, err := r.startWork(ctx, ask)
	r.known.Invalidate(o.lb.ID)
	if err != nil {
		return o, r.judgeRefusal(ctx, o.lb, err)
	}
	if _, err := r.awaitWorkRequest(ctx, req, id, o.lb.Name); err != nil {
		r.known.Invalidate(o.lb.ID)
		return o, err
	}
	r.noteIdle(o.lb.ID, true)
	// The work request may end a moment before the load balancer can be changed again.
	lb, err := r.readUntilIdle(ctx, o.lb)
	if err == nil {
		o.lb, o.fresh = lb, true
	}
	return o, lookAgainIfGone(err)
}

// lookAgainIfGone returns services.ErrGone if a load balancer that existed is not found.
func lookAgainIfGone(err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return services.ErrGone
	}
	return err
}

// prepareWork waits until no work request is running. The load balancer is written under its ETag of that moment.
func (r *loadBalancers) prepareWork(ctx context.Context, o observed, ask *write) (observed, error) {
	if err := r.awaitReady(ctx, o.lb); err != nil {
		return o, err
	}
	if o.lb.etag == "" { // listings do not show it
		lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{})
		if err != nil {
			return o, lookAgainIfGone(err)
		}
		if !lb.sameAs(o.lb) {
			return o, services.ErrGone // somebody has changed it meanwhile
		}
		o.lb = lb
	}
	if o.lb.etag != "" { // an empty condition never holds
		ask.headers = http.Header{ifMatch: {o.lb.etag}}
	}
	return o, nil
}

// prepareState reads the load balancer again if a part is written back: it may be some seconds old, and writes of parts have no ETag.
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

// judgeRefusal returns the reason for a refused write, or services.ErrGone if somebody else has changed something.
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

// awaitReady waits for work that an earlier process began, or whose answer was lost. It returns nil if a change can be requested, after
// which the load balancer counts as busy until noteIdle.
func (r *loadBalancers) awaitReady(ctx context.Context, lb *loadBalancer) error {
	if r.noteIdle(lb.ID, false) {
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
		r.noteIdle(lb.ID, true)
	}
	return err
}

// noteIdle stores whether our last change of a load balancer has ended, and returns what was stored before.
func (r *loadBalancers) noteIdle(id string, ended bool) (before bool) {
	r.idleMu.Lock()
	defer r.idleMu.Unlock()
	before = r.knownIdle[id]
	delete(r.knownIdle, id)
	if ended && !r.kind.statesWork {
		r.knownIdle[id] = true
	}
	return before
}

// awaitOthers waits for the end of somebody else's work, after which our own change is outdated.
func (r *loadBalancers) awaitOthers(ctx context.Context, lb *loadBalancer, conflict error) error {
	await := r.awaitOtherWork
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

// awaitOtherWork waits until no work request is running.
func (r *loadBalancers) awaitOtherWork(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	if _, err := await(ctx, r.idle, lb.ID, "other work on load balancer "+lb.Name, lb.Name, func(idle bool) bool { return idle }); err != nil {
		return nil, err
	}
	return r.known.Get(ctx, lb.ID, inventory.Query{})
}

// remove deletes a load balancer, and waits until it is gone, because an accepted request can still fail.
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
		id, err := r.startWork(ctx, write{what: "deleting " + title, method: http.MethodDelete, path: r.pathOf(lb.ID)})
		r.known.Invalidate(lb.ID)
		switch {
		case errors.Is(err, cloudapi.ErrConflict) && r.kind.statesWork:
			continue
		case errors.Is(err, cloudapi.ErrConflict):
			if refused != nil && err.Error() == refused.Error() {
				return err // it is refused for another reason, such as protection from deletion
			}
			refused = err
			if err := r.awaitOthers(ctx, lb, err); !errors.Is(err, services.ErrGone) {
				return err
			}
			continue
		case err == nil:
			_, err = r.awaitWorkRequest(ctx, req, id, lb.Name)
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

// awaitTurn waits until the deletion of a load balancer can be requested. Its error is cloudapi.ErrNotFound if it is gone.
func (r *loadBalancers) awaitTurn(ctx context.Context, lb *loadBalancer) error {
	if r.kind.statesWork {
		_, err := r.readUntilIdle(ctx, lb)
		return err
	}
	err := r.awaitReady(ctx, lb)
	if errors.Is(err, services.ErrGone) {
		if _, err = r.known.Get(ctx, lb.ID, inventory.Query{}); !errors.Is(err, cloudapi.ErrNotFound) {
			err = nil
		}
	}
	return err
}

// maxConflicts is how often a deletion is repeated that was refused because of somebody else's work.
const maxConflicts = 5
