package services

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// This file is about the command plan.

// PlanLoadBalancer implements contract.Planner.
func (l *LoadBalancer[O, D]) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, list []*v1.Node,
) (contract.Plan, error) {
	r := Request{Purpose: Plan, Cluster: cluster, Service: service, Nodes: list}
	findings := &report{service: service, words: portable.Words(ctx)}
	plan, err := l.plan(ctx, r, findings)
	plan.Findings = findings.planFindings()
	return plan, err
}

func (l *LoadBalancer[O, D]) plan(ctx context.Context, r Request, findings *report) (plan contract.Plan, err error) {
	begin, refusal := l.observeFirst(ctx, &r, findings)
	var narrowing []Change[O]
	var failed error
	if narrower, narrows := l.Reconciler.(Narrower[O]); narrows && begin.known {
		narrowing, failed = narrower.Narrowing(ctx, r, begin.observed)
	}
	if refusal == nil {
		refusal = l.identify(ctx, &r, findings, begin.observed)
	}
	if refusal != nil {
		plan.Changes = plannedChanges(narrowing)
		return plan, joinErrors(failed, refusal)
	}
	observed := begin.observed
	var expected []Change[O]
	for ; len(narrowing) > 0 && narrowing[0].Expect != nil; narrowing = narrowing[1:] {
		expected, observed = append(expected, narrowing[0]), narrowing[0].Expect(observed)
	}
	changes, err := l.planChanges(ctx, r, findings, observed)
	plan.Changes = append(plannedChanges(expected), narrowedFirst(plannedChanges(narrowing), plannedChanges(changes))...)
	return plan, joinErrors(failed, err)
}

// planChanges returns the changes of Ensure, those after each one with Expect from the state that this should leave.
func (l *LoadBalancer[O, D]) planChanges(ctx context.Context, r Request, findings *report, observed O) (list []Change[O], err error) {
	for round := range maxRounds {
		desired, found, err := l.Reconciler.Desire(ctx, r, observed)
		findings.add(found)
		if err != nil {
			return list, err
		}
		if round == 0 {
			l.reportFixed(ctx, r, findings, observed, desired)
		}
		due, err := l.Reconciler.Changes(r, observed, desired)
		at := slices.IndexFunc(due, func(c Change[O]) bool { return c.Replan && c.Expect != nil })
		if err != nil || at < 0 {
			return append(list, due...), err
		}
		list, observed = append(list, due[:at+1]...), due[at].Expect(observed)
	}
	return list, l.endlessError(r)
}

// plannedChanges converts changes for plan.
func plannedChanges[O any](changes []Change[O]) (list []contract.Planned) {
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
