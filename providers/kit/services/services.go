// Package services reconciles Services of type LoadBalancer. It has the order of the steps, and a cloud supplies the parts as
// a Reconciler: what is there, whose it is, what should be there, and the changes between the two.
//
// EnsureLoadBalancer, UpdateLoadBalancer, EnsureLoadBalancerDeleted and the command plan all run the same parts, so that plan
// tells what would be done. Parts that compute write nothing: what they have to say to the user is a Finding, which only
// reconciliation turns into an event.
package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Purpose is the operation that a Reconciler serves. It decides how old an answer may be, and how another owner's object is treated.
type Purpose string

// Purposes.
const (
	// Ensure: the Service is to get all that it asks for.
	Ensure Purpose = "ensure"
	// Plan: what Ensure would do is to be told. Nothing is written.
	Plan Purpose = "plan"
	// UpdateNodes: the nodes changed, and nothing else is to be done.
	UpdateNodes Purpose = "nodes"
	// Delete: the Service goes.
	Delete Purpose = "delete"
	// Lookup: somebody asks whether there is a load balancer.
	Lookup Purpose = "lookup"
	// Narrow: all that is done is to shut out clients whom the Service no longer lets in. Observe reads nothing of nodes for it.
	Narrow Purpose = "narrow"
)

// Request is the input of a reconciliation.
type Request struct {
	Purpose Purpose
	// Cluster is the value of --cluster-name.
	Cluster string
	// Service is never changed in place. A Change that writes annotations puts the Service as it then is here.
	Service *v1.Service
	// Nodes are those behind the load balancer; none for Delete and Lookup.
	Nodes []*v1.Node
	// reported collects findings while changes are made.
	reported []Finding
	// unanswered is set where something was made, or not.
	unanswered bool
}

// Asked notes the answer to the creation of something that belongs to the load balancer, within a change that is not marked so: see
// Creations.
func (r *Request) Asked(err error) {
	r.unanswered = r.unanswered || (err != nil && !cloudapi.Refused(err))
}

// Report tells the user of the Service what came up while changes were made, which are given the Request itself. Parts that
// compute are given a copy, and return their findings.
func (r *Request) Report(findings ...Finding) { r.reported = append(r.reported, findings...) }

// Finding is something that the user of a Service should know.
type Finding struct {
	// Reason is that of the event.
	Reason  string
	Message string
	// Normal is set where nothing is wrong.
	Normal bool
	// On is the Service that the event belongs to; nil means that of the request.
	On *v1.Service
	// Again is set where nodes wait for the cloud, which Desire and NodeChanges leave as they are: all else is done, which is no failure,
	// and the nodes are applied again after so long, or once When is closed. A finding without a Reason has no event.
	Again time.Duration
	When  <-chan struct{}
}

// Warning returns a Finding about something that is wrong.
func Warning(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Notice returns a Finding about something that is in order.
func Notice(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...), Normal: true}
}

// Reasons of the events about what a Service asks for.
const (
	EventConfigError   = guard.EventConfigError
	EventIgnored       = guard.EventAnnotationIgnored
	EventFieldIgnored  = "LoadBalancerFieldIgnored"
	EventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	EventSingleStack   = "LoadBalancerSingleStack"
)

// Judged are the findings about what a Service asks for, by what it was judged to be: a warning each for what has no effect, and one for
// all that is refused.
func Judged(warnings, err error) (findings []Finding) {
	for _, w := range schema.Problems(warnings) {
		reason := EventIgnored
		if p, is := errors.AsType[*schema.Problem](w); is {
			switch {
			case p.Place == string(schema.FieldSourceRanges):
				reason = EventRangesIgnored
			case strings.HasPrefix(p.Place, "spec.ipFamil"):
				reason = EventSingleStack
			case strings.HasPrefix(p.Place, "spec."):
				reason = EventFieldIgnored
			}
		}
		findings = append(findings, Warning(reason, "%v", w))
	}
	if err != nil {
		findings = append(findings, Warning(EventConfigError, "%v", err))
	}
	return findings
}

// Refused are the findings about a claim that was refused: on the Service that claims, and on the one that has the object.
func Refused(service *v1.Service, d ownership.Decision) []Finding {
	if d.Verdict != ownership.Refused {
		return nil
	}
	findings := []Finding{Warning(ownership.EventNotOurs, "%s", d.Err())}
	if d.Owner != nil {
		findings = append(findings, Finding{On: d.Owner, Reason: ownership.EventClaimed, Message: ownership.ClaimOf(service, d)})
	}
	return findings
}

// Change brings what is observed nearer to what is desired, by one call or by a few that belong together.
type Change[O any] struct {
	guard.Planned
	// Phase says what the failure of this change holds up.
	Phase Phase
	// Make carries it out, and returns what is there afterwards. Whatever fails may have taken effect: it sees to it that the
	// next look reads what it may have changed. What stands behind a change with Replan only tells plan what will follow, and
	// needs none.
	Make func(ctx context.Context, r *Request, observed O) (O, error)
	// Replan is set where what follows depends on what this change makes: everything after it is computed again.
	Replan bool
	// Creates is set where this makes the load balancer, or something that belongs to it: see Creations.
	Creates bool
	// Compare returns what the object is before and after, for Fields; only plan asks. nil before means that it is created, and nil after
	// that it is deleted.
	Compare func() (before, after any)
	// Wait is set where nothing is written: Make waits for the cloud, and plan does not mention it.
	Wait bool
	// Opens and Closes say of narrowings what they are about. Where one that opens it fails for now, those that close it are not made: they
	// would shut out whom a refused Service still asks for. A lasting refusal keeps nobody in.
	Opens, Closes string
}

// Reconciler is implemented by a cloud for one kind of load balancer. O is the observed state, D the desired one.
type Reconciler[O, D any] interface {
	// Validate judges the Service by itself, before anything is read for Ensure and Plan. It makes no call.
	Validate(r Request) ([]Finding, error)
	// Observe reads what is there for a Service. It writes nothing.
	Observe(ctx context.Context, r Request) (O, error)
	// CheckOwner decides whether what was observed is the Service's to have. For Ensure and Plan, an object of somebody else is
	// an error; for the other purposes it is left out of what is returned, as if it were not there. What belongs to an object is
	// not worth a read before it is known to be the Service's, and may be read here.
	CheckOwner(ctx context.Context, r Request, observed O) (O, []Finding, error)
	// Desire computes what should be there. It may read, and writes nothing.
	Desire(ctx context.Context, r Request, observed O) (D, []Finding, error)
	// Changes are those between the two, in order; none where all is as it should be. It makes no call.
	Changes(r Request, observed O, desired D) ([]Change[O], error)
	// Complete does what is due when all changes are made: it records on the Service what was made, waits until the cloud has
	// set it up, and removes what the Service had before. It makes no call where nothing is due.
	Complete(ctx context.Context, r *Request, observed O, desired D) (O, error)
	// Status is that of the Service, or an error that says when to look again.
	Status(r Request, observed O, desired D) (*v1.LoadBalancerStatus, error)
	// NodeChanges are those that follow from the nodes alone. Nothing is created by them, and a fault in an annotation keeps no
	// node from joining or leaving.
	NodeChanges(ctx context.Context, r Request, observed O) ([]Change[O], []Finding, error)
	// Deletions returns the changes that delete the Service's objects. Findings are about objects that stay in the cloud.
	Deletions(ctx context.Context, r Request, observed O) ([]Change[O], []Finding, error)
	// Exists reports whether anything is left that Deletions would remove, and the status if there is a load balancer.
	Exists(ctx context.Context, r Request, observed O) (*v1.LoadBalancerStatus, bool, error)
}

// Misser is a Reconciler of a cloud where what is not found may exist all the same, as where a right was lost that nothing tells of.
type Misser[O any] interface {
	// Missing tells of what a Service shows and nobody finds when it goes. The framework asks for no deletion then, and tells nobody.
	Missing(observed O) []Finding
}

// Phase is the part of a reconciliation that a change belongs to. First clients lose access whom the Service no longer lets in, then
// all else is made.
type Phase int

const (
	// PhaseOpen is that of all that is asked for, one change after the other: the first that fails is the last.
	PhaseOpen Phase = iota
	// PhaseNarrow is that of what shuts clients out. Each is tried, whatever becomes of the others.
	PhaseNarrow
)

// EachTried has each of some changes tried, whatever becomes of the others. What follows waits until none of them fails.
func EachTried[O any](list []Change[O]) []Change[O] {
	for i := range list {
		list[i].Phase = PhaseNarrow
	}
	return list
}

// triesAll reports whether a change is tried although another one of its phase has failed.
func (p Phase) triesAll() bool { return p != PhaseOpen }

// maxRounds bounds how often changes are computed again in one call. It is far above what any cloud needs, where a change is a
// round; beyond it, a change does not have the effect that it should.
const maxRounds = 500

// maxLooks bounds how often one call looks at what is there after its own changes.
const maxLooks = 5

// LoadBalancer implements cloudprovider.LoadBalancer and plan by a Reconciler.
type LoadBalancer[O, D any] struct {
	Reconciler Reconciler[O, D]
	// Name is that of the load balancer of a Service, for messages of the framework.
	Name func(cluster string, service *v1.Service) string
	// LookAgain is set where others may change a load balancer while we do, and what they did must not pass for ours: when our
	// changes are made, Observe is asked again until there is nothing left to change. After a deletion nobody looks.
	LookAgain bool
	// Creations remembers creations whose responses were lost.
	Creations Creations
	// Patience is for how long EnsureLoadBalancer starts over by itself where a part asks for more time with a RetryError, before
	// the framework comes back for it, which it tells the user as a failure. 0 leaves that to the framework at once.
	Patience time.Duration
	// Identify finds the instances of nodes that have no provider ID; nil where backends are no instances.
	Identify func(ctx context.Context, list []*v1.Node) (nodes.Identified, error)
	// Events receives the findings; nil drops them. It is set before the first call.
	Events record.EventRecorder

	locks     keylock.Locks
	creations creations
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) GetLoadBalancerName(_ context.Context, cluster string, service *v1.Service) string {
	return l.Name(cluster, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) GetLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service,
) (*v1.LoadBalancerStatus, bool, error) {
	r := Request{Purpose: Lookup, Cluster: cluster, Service: service}
	ctx = l.creations.readAgain(ctx, service, l.Creations)
	observed, err := l.observe(ctx, r, &report{})
	if err != nil {
		return nil, false, err
	}
	status, exists, err := l.Reconciler.Exists(ctx, r, observed)
	if err == nil && !exists {
		err = l.creations.doubt(service, l.Name(cluster, service), l.Creations)
	}
	if misser, is := l.Reconciler.(Misser[O]); is && err == nil && !exists {
		findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
		findings.add(misser.Missing(observed))
	}
	return status, exists, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, list []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	r := Request{Purpose: Ensure, Cluster: cluster, Service: service, Nodes: list}
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	var status *v1.LoadBalancerStatus
	err := Patiently(ctx, l.Patience, func() (err error) {
		status, err = l.ensure(ctx, &r, findings)
		return err
	})
	return status, err
}

func (l *LoadBalancer[O, D]) ensure(ctx context.Context, r *Request, findings *report) (*v1.LoadBalancerStatus, error) {
	turn := turn{locks: &l.locks}
	defer turn.end()
	begin, err := l.begin(ctx, r, &turn, findings)
	if err != nil {
		return nil, err
	}
	var desired D
	first := true
	observed, err := l.converge(ctx, r, &turn, findings, begin, func(observed O) ([]Change[O], error) {
		var found []Finding
		var err error
		findings.again = nil // what waited in an earlier round may not any more
		desired, found, err = l.Reconciler.Desire(ctx, *r, observed)
		findings.add(found)
		if err != nil {
			return nil, err
		}
		if first {
			l.tellFixed(ctx, *r, findings, observed, desired)
		}
		first = false
		return l.Reconciler.Changes(*r, observed, desired)
	})
	if err != nil {
		return nil, joinErrors(begin.failed, err)
	}
	observed, err = l.Reconciler.Complete(ctx, r, observed, desired)
	l.creations.take(r, l.Creations)
	findings.take(r)
	if err != nil {
		return nil, joinErrors(begin.failed, err)
	}
	l.creations.serve(r.Service, l.Creations)
	findings.comeBack(ctx)
	return l.Reconciler.Status(*r, observed, desired)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, list []*v1.Node) error {
	r := Request{Purpose: UpdateNodes, Cluster: cluster, Service: service, Nodes: list}
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	turn := turn{locks: &l.locks}
	defer turn.end()
	_, err := l.converge(ctx, &r, &turn, findings, beginning[O]{}, func(observed O) ([]Change[O], error) {
		findings.again = nil
		changes, found, err := l.Reconciler.NodeChanges(ctx, r, observed)
		findings.add(found)
		return changes, err
	})
	if err == nil {
		findings.comeBack(ctx)
	}
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	r := Request{Purpose: Delete, Cluster: cluster, Service: service}
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	turn := turn{locks: &l.locks}
	defer turn.end()
	_, err := l.converge(ctx, &r, &turn, findings, beginning[O]{}, func(observed O) ([]Change[O], error) {
		changes, found, err := l.Reconciler.Deletions(ctx, r, observed)
		findings.add(found)
		return changes, err
	})
	if err == nil {
		err = l.creations.doubt(service, l.Name(cluster, service), l.Creations)
	}
	return err
}

// PlanLoadBalancer implements guard.Planner.
func (l *LoadBalancer[O, D]) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, list []*v1.Node,
) (guard.Plan, error) {
	r := Request{Purpose: Plan, Cluster: cluster, Service: service, Nodes: list}
	findings := &report{service: service, words: portable.Words(ctx)}
	plan, err := l.plan(ctx, r, findings)
	plan.Findings = findings.planned()
	return plan, err
}

func (l *LoadBalancer[O, D]) plan(ctx context.Context, r Request, findings *report) (plan guard.Plan, err error) {
	begin, refusal := l.look(ctx, &r, findings)
	var narrowing, changes []Change[O]
	var failed error
	if narrower, narrows := l.Reconciler.(Narrower[O]); narrows && begin.known {
		narrowing, failed = narrower.Narrowing(ctx, r, begin.observed)
	}
	if refusal == nil {
		refusal = l.identify(ctx, &r, findings, begin.observed)
	}
	if refusal != nil {
		plan.Changes = planned(narrowing)
		return plan, joinErrors(failed, refusal)
	}
	desired, found, err := l.Reconciler.Desire(ctx, r, begin.observed)
	findings.add(found)
	if err == nil {
		l.tellFixed(ctx, r, findings, begin.observed, desired)
		changes, err = l.Reconciler.Changes(r, begin.observed, desired)
	}
	plan.Changes = planned(changes)
	// What changes anyway is said once, with all that changes.
	first := slices.DeleteFunc(planned(narrowing), func(p guard.Planned) bool {
		return slices.ContainsFunc(plan.Changes, func(c guard.Planned) bool { return c.Object == p.Object })
	})
	plan.Changes = append(first, plan.Changes...)
	return plan, joinErrors(failed, err)
}

// planned converts changes for plan.
func planned[O any](changes []Change[O]) (list []guard.Planned) {
	for _, c := range changes {
		if c.Wait {
			continue
		}
		if c.Compare != nil {
			c.Fields = Fields(c.Compare())
		}
		list = append(list, c.Planned)
	}
	return list
}

// Begin notes that work on Services has begun, where another LoadBalancer does the first of it.
func (l *LoadBalancer[O, D]) Begin() { l.creations.begin() }

// Served notes that another LoadBalancer serves a Service, so that none of this one's kind is looked for that a process before this one may
// have had made.
func (l *LoadBalancer[O, D]) Served(service *v1.Service) { l.creations.serve(service, l.Creations) }

// Doubt is an error that says when to look again, where something of this one's kind that is not found may have been made for a Service all
// the same. what names it.
func (l *LoadBalancer[O, D]) Doubt(service *v1.Service, what string) error {
	return l.creations.doubt(service, what, l.Creations)
}

// observe reads what is there and leaves out, or refuses, what is somebody else's.
func (l *LoadBalancer[O, D]) observe(ctx context.Context, r Request, findings *report) (observed O, err error) {
	l.creations.begin()
	if observed, err = l.Reconciler.Observe(ctx, r); err != nil {
		return observed, err
	}
	observed, found, err := l.Reconciler.CheckOwner(ctx, r, observed)
	findings.add(found)
	return observed, err
}

// EventUnknown is the reason of the event about nodes of which no instance is known.
const EventUnknown = "NodesWithoutInstance"

// errUnknown keeps a load balancer from losing all its backends because nothing is known of their nodes.
var errUnknown = errors.New("no node of the cluster says which instance it is, and none is found by its name; the load balancer stays as it is: " +
	"start the kubelets with --cloud-provider=external, or with --provider-id")

// identify has the instances found of nodes that do not say which they are. What serves is not emptied where nothing is known of any node.
func (l *LoadBalancer[O, D]) identify(ctx context.Context, r *Request, findings *report, observed O) error {
	if l.Identify == nil {
		return nil
	}
	found, err := l.Identify(ctx, r.Nodes)
	if err != nil {
		return err
	}
	r.Nodes = found.Nodes
	if found.None {
		status, exists, err := l.Reconciler.Exists(ctx, *r, observed)
		if err != nil {
			return err
		}
		if exists && status != nil {
			findings.add([]Finding{Warning(EventUnknown, "%v", errUnknown)})
			return errUnknown
		}
	}
	if len(found.Unknown) > 0 {
		findings.add([]Finding{Warning(EventUnknown, "nodes %s have no provider ID, and no instance of theirs is found; they receive no traffic: "+
			"start their kubelets with --cloud-provider=external, or with --provider-id", some(found.Unknown))})
	}
	return nil
}

// some are names for a message.
func some(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + ", …"
}

// converge makes changes until there are none left, and returns what is there then.
func (l *LoadBalancer[O, D]) converge(
	ctx context.Context, r *Request, turn *turn, findings *report, begin beginning[O], changes func(O) ([]Change[O], error),
) (observed O, err error) {
	observed = begin.observed
	look, worked, looks, losses := !begin.known, begin.wrote, 0, 0
	for range maxRounds {
		if look {
			observed, err = l.observe(ctx, *r, findings)
		}
		var did outcome
		if err == nil {
			observed, did, err = l.changeOnce(ctx, r, turn, findings, observed, changes)
		}
		worked, look = worked || did.wrote, false
		switch {
		case errors.Is(err, ErrGone):
			if losses++; losses == maxLosses {
				return observed, fmt.Errorf("%s went away as often as it was made; look into the cloud's log", l.Name(r.Cluster, r.Service))
			}
			look, err = true, nil
		case err != nil:
			return observed, err
		case did.replan:
		case !worked || !l.LookAgain || r.Purpose == Delete:
			return observed, nil
		case looks == maxLooks:
			return observed, fmt.Errorf("%s was changed by somebody else as often as it was set right; find out who does that", l.Name(r.Cluster, r.Service))
		default:
			looks++
			look, worked = true, false
		}
	}
	return observed, fmt.Errorf("%s: the changes of %s have no end: each look finds more to change", l.Name(r.Cluster, r.Service), r.Purpose)
}

// changeOnce makes the changes of what was observed, when it is the turn of the Service and the cloud has done its own work.
func (l *LoadBalancer[O, D]) changeOnce(
	ctx context.Context, r *Request, turn *turn, findings *report, observed O, changes func(O) ([]Change[O], error),
) (after O, did outcome, err error) {
	if r.Purpose == Ensure || r.Purpose == UpdateNodes {
		if err = l.identify(ctx, r, findings, observed); err != nil {
			return observed, did, err
		}
	}
	if observed, err = l.settle(ctx, r, turn, findings, observed); err != nil {
		return observed, did, err
	}
	due, err := changes(observed)
	if err != nil {
		return observed, did, err
	}
	return l.makeAll(ctx, r, findings, due, observed)
}

// settle waits for the turn of a Service on what was observed, and for the cloud's own work on it.
func (l *LoadBalancer[O, D]) settle(ctx context.Context, r *Request, turn *turn, findings *report, observed O) (O, error) {
	cloud, works := l.Reconciler.(Asynchronous[O])
	if !works {
		return observed, nil
	}
	if err := turn.take(ctx, cloud.Key(*r, observed)); err != nil {
		return observed, err
	}
	observed, err := cloud.Settle(ctx, r, observed)
	l.creations.take(r, l.Creations)
	findings.take(r)
	return observed, err
}

// outcome is the result of a list of changes: whether anything was written, and whether the rest must be computed again.
type outcome struct{ wrote, replan bool }

// makeAll makes changes, up to one after which the rest is computed again. Where one fails, the others of its phase may still be tried.
func (l *LoadBalancer[O, D]) makeAll(
	ctx context.Context, r *Request, findings *report, due []Change[O], observed O,
) (after O, did outcome, err error) {
	var failed []error
	var phase Phase
	waits := map[string]bool{"": false}
	for i, c := range due {
		switch {
		case len(failed) > 0 && c.Phase != phase:
			return observed, did, errors.Join(failed...)
		case waits[c.Closes]:
			continue
		}
		after, err := l.makeOne(ctx, r, findings, c, observed, len(due)-i-1)
		did.wrote = did.wrote || !c.Wait
		switch {
		case err != nil && (!c.Phase.triesAll() || ctx.Err() != nil):
			return after, did, errors.Join(append(failed, err)...)
		case err != nil:
			waits[c.Opens] = waits[c.Opens] || c.Opens != "" && MayPass(err)
			failed, phase = append(failed, err), c.Phase
			continue
		}
		if observed = after; c.Replan && len(failed) == 0 {
			did.replan = true
			return observed, did, nil
		}
	}
	return observed, did, errors.Join(failed...)
}

// makeOne makes one change, of which more follow.
func (l *LoadBalancer[O, D]) makeOne(
	ctx context.Context, r *Request, findings *report, c Change[O], observed O, more int,
) (after O, err error) {
	if c.Creates && !l.Creations.Repeat {
		if err := l.creations.doubt(r.Service, c.Object, l.Creations); err != nil {
			return observed, err
		}
	}
	if !c.Wait {
		klog.InfoS("Changing load balancer", "service", klog.KObj(r.Service), "action", c.Action, "object", c.Object,
			"detail", c.Detail, "more", more)
	}
	after, err = c.Make(ctx, r, observed)
	if c.Creates {
		r.Asked(err)
	}
	l.creations.take(r, l.Creations)
	findings.take(r)
	return after, err
}

// report turns findings into events, each once in a call however often it is found.
type report struct {
	events  record.EventRecorder
	service *v1.Service
	found   []Finding
	// again is the finding that says when nodes are to be applied again; nil if there is none.
	again *Finding
	// words names the portable annotations that the cloud's own were made of; nil names none.
	words func(text string) string
}

func (r *report) add(findings []Finding) {
	for _, f := range findings {
		if f.Again > 0 && (r.again == nil || f.Again < r.again.Again) {
			r.again = &f
		}
		if f.Reason == "" {
			continue
		}
		if f.On == nil {
			f.On = r.service
		}
		if r.words != nil {
			f.Message = r.words(f.Message)
		}
		if r.contains(f) {
			continue
		}
		r.found = append(r.found, f)
		if r.events == nil {
			continue
		}
		kind := v1.EventTypeWarning
		if f.Normal {
			kind = v1.EventTypeNormal
		}
		r.events.Event(f.On, kind, f.Reason, f.Message)
	}
}

// comeBack has the nodes applied again where some wait.
func (r *report) comeBack(ctx context.Context) {
	if r.again != nil {
		guard.ComeBack(ctx, r.again.Again, r.again.When)
	}
}

// take adds what was reported while a change was made.
func (r *report) take(from *Request) {
	found := from.reported
	from.reported = nil
	r.add(found)
}

func (r *report) contains(f Finding) bool {
	for _, o := range r.found {
		if o.Reason == f.Reason && o.Message == f.Message && o.On == f.On {
			return true
		}
	}
	return false
}

// planned are the findings about the Service itself.
func (r *report) planned() []guard.Finding {
	var list []guard.Finding
	for _, f := range r.found {
		if f.On == r.service {
			list = append(list, guard.Finding{Reason: f.Reason, Message: f.Message, Warning: !f.Normal})
		}
	}
	return list
}

var _ cloudprovider.LoadBalancer = (*LoadBalancer[struct{}, struct{}])(nil)
