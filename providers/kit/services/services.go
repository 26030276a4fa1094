// Package services reconciles Services of type LoadBalancer. It defines the order of the steps, and a cloud supplies the parts as a
// Reconciler: the observed objects, their owner, the desired state, and the changes between them.
//
// EnsureLoadBalancer, UpdateLoadBalancer, EnsureLoadBalancerDeleted and the command plan all run the same parts, so that plan shows the
// real changes. Parts that compute write nothing: they return messages for the user as Findings, which only reconciliation turns into
// events.
package services

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Purpose is the operation that a Reconciler serves. It decides how old an answer may be, and how another owner's object is treated.
type Purpose string

// Purposes.
const (
	// Ensure: all that the Service requests is to be provided.
	Ensure Purpose = "ensure"
	// Plan: the changes of Ensure are only reported. Nothing is written.
	Plan Purpose = "plan"
	// UpdateNodes: only the nodes changed.
	UpdateNodes Purpose = "nodes"
	// Delete: the Service is being deleted.
	Delete Purpose = "delete"
	// Lookup: the framework asks whether there is a load balancer.
	Lookup Purpose = "lookup"
	// Narrow: only clients whom the Service no longer allows are shut out. Observe reads nothing about nodes for it.
	Narrow Purpose = "narrow"
)

// Request is the input of a reconciliation.
type Request struct {
	Purpose Purpose
	// Cluster is the value of --cluster-name.
	Cluster string
	// Service is never changed in place. A Change that writes annotations stores the resulting Service here.
	Service *v1.Service
	// Nodes are those behind the load balancer; none for Delete and Lookup.
	Nodes []*v1.Node
	// reported collects findings while changes are made.
	reported []Finding
	// unanswered is set if the outcome of a creation is unknown.
	unanswered bool
}

// Asked records the result of creating a part of the load balancer, within a change that has not set Creates: see Creations.
func (r *Request) Asked(err error) {
	r.unanswered = r.unanswered || (err != nil && !cloudapi.Refused(err))
}

// Report adds findings while changes are made. Changes get the Request itself; parts that compute get a copy, and return their findings.
func (r *Request) Report(findings ...Finding) { r.reported = append(r.reported, findings...) }

// Finding is something that the user of a Service should know.
type Finding struct {
	// Reason is the reason of the event.
	Reason  string
	Message string
	// Normal is set if nothing is wrong.
	Normal bool
	// On is the Service of the event; nil means that of the request.
	On *v1.Service
	// Again is set if nodes wait for the cloud, and Desire and NodeChanges leave these unchanged. This is no failure: everything else is
	// done, and the nodes are applied again after this time, or once When is closed. A finding without a Reason has no event.
	Again time.Duration
	When  <-chan struct{}
}

// Warning returns a Finding about a fault.
func Warning(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Notice returns a Finding about a normal condition.
func Notice(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...), Normal: true}
}

// Reasons of the events about a Service's settings.
const (
	EventConfigError   = contract.EventConfigError
	EventIgnored       = contract.EventAnnotationIgnored
	EventFieldIgnored  = "LoadBalancerFieldIgnored"
	EventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	EventSingleStack   = "LoadBalancerSingleStack"
)

// Judged returns the findings about a Service's settings: a warning for each without effect, and one for all that are refused.
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

// WarnOfPorts returns a warning where a Service has more ports than the cloud takes from an account whose limit was not raised. The
// cloud is asked all the same.
func WarnOfPorts(service *v1.Service, l limits.Limit) error {
	if err := l.CheckNumber(len(service.Spec.Ports)); err != nil {
		return &schema.Problem{Place: "spec.ports", Reason: err.Error(), Warning: true}
	}
	return nil
}

// LeftOut is the finding about nodes for which a load balancer has no room.
func LeftOut(reason string, l limits.Limit, nodes int, advice string) Finding {
	return Warning(reason, "%s takes %d %s at most, so that %d nodes receive no traffic; %s", l.Within, l.Max, l.What, nodes, advice)
}

// Refused returns the findings about a refused claim: for the Service that claims, and for the object's owner.
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

// Change brings the observed state nearer to the desired one, by one call or by a few that belong together.
type Change[O any] struct {
	contract.Planned
	// Phase says which other changes wait for this one.
	Phase Phase
	// Make carries it out, and returns the state afterwards. A failed write may have taken effect: Make invalidates whatever it may have
	// changed. A change after one with Replan is only listed for plan, and needs no Make.
	Make func(ctx context.Context, r *Request, observed O) (O, error)
	// Replan is set if later changes depend on the result of this one: everything after it is computed again.
	Replan bool
	// Expect returns the state that Make should leave. Only plan calls it, of a narrowing or where Replan is set, and computes from it what
	// follows, as reconciliation does from the real state. Without it plan shows what the list has.
	Expect func(observed O) O
	// Creates is set if this creates the load balancer, or a part of it: see Creations.
	Creates bool
	// Compare returns the object before and after, for Fields; only plan calls it. nil before means that it is created, and nil after that
	// it is deleted.
	Compare func() (before, after any)
	// Wait is set if nothing is written: Make waits for the cloud, and plan does not mention it.
	Wait bool
	// Opens and Closes name the subject of narrowings. If one that opens a subject fails for now, those that close it are not made: they
	// would shut out clients whom a refused Service still allows. After a lasting refusal they are made.
	Opens, Closes string
}

// Reconciler is implemented by a cloud for one kind of load balancer. O is the observed state, D the desired one.
type Reconciler[O, D any] interface {
	// Validate checks the Service alone, before anything is read for Ensure and Plan. It makes no call.
	Validate(r Request) ([]Finding, error)
	// Observe reads the objects of a Service. It writes nothing.
	Observe(ctx context.Context, r Request) (O, error)
	// CheckOwner decides whether the observed objects belong to the Service. For Ensure and Plan, another owner's object is an error; for
	// the other purposes it is left out of the result. Parts of an object that are worth a read only once its owner is known may be read
	// here. Findings of Lookup are reported only if nothing exists, so that no deletion follows.
	CheckOwner(ctx context.Context, r Request, observed O) (O, []Finding, error)
	// Desire computes the desired state. It may read, and writes nothing.
	Desire(ctx context.Context, r Request, observed O) (D, []Finding, error)
	// Changes returns the changes between the two, in order; none if they are equal. It makes no call.
	Changes(r Request, observed O, desired D) ([]Change[O], error)
	// Complete finishes after all changes: it records on the Service which objects were created, waits until the cloud has set them up, and
	// removes the Service's former objects. It makes no call if nothing is due.
	Complete(ctx context.Context, r *Request, observed O, desired D) (O, error)
	// Status returns the status of the Service, or an error with the time to try again.
	Status(r Request, observed O, desired D) (*v1.LoadBalancerStatus, error)
	// NodeChanges returns the changes that follow from the nodes alone. They create nothing, and a fault in an annotation keeps no node
	// from joining or leaving.
	NodeChanges(ctx context.Context, r Request, observed O) ([]Change[O], []Finding, error)
	// Deletions returns the changes that delete the Service's objects. Findings are about objects that stay in the cloud.
	Deletions(ctx context.Context, r Request, observed O) ([]Change[O], []Finding, error)
	// Exists reports whether Deletions would remove anything, and the status if there is a load balancer.
	Exists(ctx context.Context, r Request, observed O) (*v1.LoadBalancerStatus, bool, error)
}

// Phase is the part of a reconciliation that a change belongs to. First clients whom the Service no longer allows lose access, then
// everything else is changed.
type Phase int

const (
	// PhaseOpen holds the changes to the desired state, one after the other: the first that fails is the last.
	PhaseOpen Phase = iota
	// PhaseNarrow holds changes that shut clients out, first or last. Each is tried, even if others fail.
	PhaseNarrow
)

// EachTried returns the changes in a phase in which each is tried, even if others fail. Later phases wait until none fails.
func EachTried[O any](list []Change[O]) []Change[O] {
	for i := range list {
		list[i].Phase = PhaseNarrow
	}
	return list
}

// continuesAfterFailure reports whether a change is tried although another one of its phase has failed.
func (p Phase) continuesAfterFailure() bool { return p != PhaseOpen }

// maxRounds bounds how often one call computes changes again. No cloud needs nearly as many; beyond it, some change has no effect.
const maxRounds = 500

// maxLooks bounds how often one call observes again after its own changes.
const maxLooks = 5

// LoadBalancer implements cloudprovider.LoadBalancer and plan with a Reconciler.
type LoadBalancer[O, D any] struct {
	Reconciler Reconciler[O, D]
	// Name returns the name of a Service's load balancer for messages of the framework.
	Name func(cluster string, service *v1.Service) string
	// LookAgain is set if others may change a load balancer at the same time: after our changes, Observe is called again until there is
	// nothing left to change, so that their changes are not taken for ours. Not after a deletion.
	LookAgain bool
	// Creations remembers creations whose responses were lost. It is required.
	Creations *Creations
	// Patience is how long EnsureLoadBalancer itself repeats while a part returns a RetryError, before the framework does, which shows the
	// user a failure. 0 leaves that to the framework at once.
	Patience time.Duration
	// Identify finds the instances of nodes that have no provider ID; nil if backends are not instances.
	Identify func(ctx context.Context, list []*v1.Node) (nodes.Identified, error)
	// Events receives the findings; nil drops them. It is set before the first call.
	Events record.EventRecorder

	locks keylock.Locks
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
	ctx = l.Creations.withNewReads(ctx, service)
	unreported := &report{}
	observed, err := l.observe(ctx, r, unreported)
	if err != nil {
		return nil, false, err
	}
	status, exists, err := l.Reconciler.Exists(ctx, r, observed)
	if err != nil || exists {
		return status, exists, err
	}
	if err = l.Creations.searchAgain(service, l.Name(cluster, service)); err == nil {
		findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
		findings.add(unreported.found)
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
	err := Patiently(ctx, max(l.Patience, l.Creations.patience()), func() (err error) {
		status, err = l.ensure(ctx, &r, findings)
		return err
	})
	return status, err
}

func (l *LoadBalancer[O, D]) ensure(ctx context.Context, r *Request, findings *report) (*v1.LoadBalancerStatus, error) {
	turn := keyTurn{locks: &l.locks}
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
		findings.again = nil // a node that waited in an earlier round may not any more
		desired, found, err = l.Reconciler.Desire(ctx, *r, observed)
		findings.add(found)
		if err != nil {
			return nil, err
		}
		if first {
			l.reportFixed(ctx, *r, findings, observed, desired)
		}
		first = false
		return l.Reconciler.Changes(*r, observed, desired)
	})
	if err != nil {
		return nil, joinErrors(begin.failed, err)
	}
	observed, err = l.Reconciler.Complete(ctx, r, observed, desired)
	l.Creations.recordUnknown(r)
	findings.addReported(r)
	if err != nil {
		return nil, joinErrors(begin.failed, err)
	}
	l.Creations.recordServed(r.Service)
	findings.scheduleReapply(ctx)
	return l.Reconciler.Status(*r, observed, desired)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, list []*v1.Node) error {
	r := Request{Purpose: UpdateNodes, Cluster: cluster, Service: service, Nodes: list}
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	turn := keyTurn{locks: &l.locks}
	defer turn.end()
	_, err := l.converge(ctx, &r, &turn, findings, firstPart[O]{}, func(observed O) ([]Change[O], error) {
		findings.again = nil
		changes, found, err := l.Reconciler.NodeChanges(ctx, r, observed)
		findings.add(found)
		return changes, err
	})
	if err == nil {
		findings.scheduleReapply(ctx)
	}
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *LoadBalancer[O, D]) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	r := Request{Purpose: Delete, Cluster: cluster, Service: service}
	findings := &report{events: l.Events, service: service, words: portable.Words(ctx)}
	turn := keyTurn{locks: &l.locks}
	defer turn.end()
	_, err := l.converge(ctx, &r, &turn, findings, firstPart[O]{}, func(observed O) ([]Change[O], error) {
		changes, found, err := l.Reconciler.Deletions(ctx, r, observed)
		findings.add(found)
		return changes, err
	})
	if err == nil {
		err = l.Creations.searchAgain(service, l.Name(cluster, service))
	}
	return err
}

// observe reads the objects of a Service and drops, or refuses, another owner's.
func (l *LoadBalancer[O, D]) observe(ctx context.Context, r Request, findings *report) (observed O, err error) {
	l.Creations.recordBegin()
	if observed, err = l.Reconciler.Observe(ctx, r); err != nil {
		return observed, err
	}
	observed, found, err := l.Reconciler.CheckOwner(ctx, r, observed)
	findings.add(found)
	return observed, err
}

// EventUnknown is the reason of the event about nodes without a known instance.
const EventUnknown = "NodesWithoutInstance"

// errUnknown keeps a load balancer from losing all its backends if nothing is known about their nodes.
var errUnknown = errors.New("no node of the cluster has this cloud's provider ID, and not all are found by their names; the load balancer stays as it is: " +
	"start the kubelets with --cloud-provider=external, or with --provider-id")

// identify finds the instances of nodes without a provider ID. Existing backends are not removed if nothing is known about any node.
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
			"start their kubelets with --cloud-provider=external, or with --provider-id", JoinSome(found.Unknown))})
	}
	return nil
}

// JoinSome joins the first names of a list for a message.
func JoinSome(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + ", …"
}

// converge makes changes until there are none left, and returns the resulting state.
func (l *LoadBalancer[O, D]) converge(
	ctx context.Context, r *Request, turn *keyTurn, findings *report, begin firstPart[O], changes func(O) ([]Change[O], error),
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
	return observed, l.endlessError(*r)
}

// endlessError is the error of changes that have no effect.
func (l *LoadBalancer[O, D]) endlessError(r Request) error {
	return fmt.Errorf("%s: the changes of %s have no end: each look finds more to change", l.Name(r.Cluster, r.Service), r.Purpose)
}

// changeOnce makes the changes once the Service has the turn and the cloud's own work has ended.
func (l *LoadBalancer[O, D]) changeOnce(
	ctx context.Context, r *Request, turn *keyTurn, findings *report, observed O, changes func(O) ([]Change[O], error),
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

// settle waits for the Service's turn on the observed object, and for the cloud's own work on it.
func (l *LoadBalancer[O, D]) settle(ctx context.Context, r *Request, turn *keyTurn, findings *report, observed O) (O, error) {
	cloud, works := l.Reconciler.(Asynchronous[O])
	if !works {
		return observed, nil
	}
	if err := turn.take(ctx, cloud.Key(*r, observed)); err != nil {
		return observed, err
	}
	observed, err := cloud.Settle(ctx, r, observed)
	l.Creations.recordUnknown(r)
	findings.addReported(r)
	return observed, err
}

// outcome is the result of a list of changes: whether anything was written, and whether the rest must be computed again.
type outcome struct{ wrote, replan bool }

// makeAll makes changes, up to one after which the rest is computed again. If one fails, the others of its phase may still be tried.
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
		after, err := l.makeChange(ctx, r, findings, c, observed, len(due)-i-1)
		did.wrote = did.wrote || !c.Wait
		switch {
		case err != nil && (!c.Phase.continuesAfterFailure() || ctx.Err() != nil):
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

// makeChange makes one change; others may follow.
func (l *LoadBalancer[O, D]) makeChange(
	ctx context.Context, r *Request, findings *report, c Change[O], observed O, more int,
) (after O, err error) {
	if c.Creates && !l.Creations.Repeat {
		if err := l.Creations.searchAgain(r.Service, c.Object); err != nil {
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
	l.Creations.recordUnknown(r)
	findings.addReported(r)
	return after, err
}

// report turns findings into events, each once in a call however often it is reported.
type report struct {
	events  record.EventRecorder
	service *v1.Service
	found   []Finding
	// again is the finding that says when to apply the nodes again; nil if there is none.
	again *Finding
	// words replaces the cloud's annotations in messages by the portable ones that they were made from; nil replaces none.
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
		if r.hasFinding(f) {
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

// scheduleReapply schedules applying the nodes again if some wait.
func (r *report) scheduleReapply(ctx context.Context) {
	if r.again != nil {
		contract.ComeBack(ctx, r.again.Again, r.again.When)
	}
}

// addReported adds the findings that were reported while a change was made.
func (r *report) addReported(from *Request) {
	found := from.reported
	from.reported = nil
	r.add(found)
}

func (r *report) hasFinding(f Finding) bool {
	for _, o := range r.found {
		if o.Reason == f.Reason && o.Message == f.Message && o.On == f.On {
			return true
		}
	}
	return false
}

// planFindings returns the findings about the Service itself.
func (r *report) planFindings() []contract.Finding {
	var list []contract.Finding
	for _, f := range r.found {
		if f.On == r.service {
			list = append(list, contract.Finding{Reason: f.Reason, Message: f.Message, Warning: !f.Normal})
		}
	}
	return list
}

var _ cloudprovider.LoadBalancer = (*LoadBalancer[struct{}, struct{}])(nil)
