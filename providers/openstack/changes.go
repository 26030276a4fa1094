package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// writer changes Octavia's load balancers, one step at a time, and waits for each.
type writer struct {
	api           *api
	loadBalancers *inventory.Inventory[string, *loadBalancer]
	parts         *partsReader
	// room polls Octavia for all callers.
	room      *waiting.Room[string, *loadBalancer]
	failovers failovers
}

// maxRounds bounds how often one call repeats changes that others interfere with.
const maxRounds = 5

// planner returns the steps that a load balancer still needs.
type planner func(*loadBalancer, *details) []step

// blockingFailure is a failure that blocks only the changes that depend on it.
type blockingFailure struct {
	what string
	// dependants lists the ports and servers that depend on the failed change.
	dependants []string
	err        error
}

// isBlocked reports whether something has failed in this run, or depends on a failure.
func (o observed) isBlocked(what string) bool {
	return slices.ContainsFunc(o.failures, func(s blockingFailure) bool { return s.what == what || slices.Contains(s.dependants, what) })
}

// maxFailures bounds the failures of one run. More of them have a common cause.
const maxFailures = 5

// withFailure records a refused change, so that the others continue. Any other error ends the run.
func (o observed) withFailure(what string, holds []string, err error) (observed, error) {
	if !cloudapi.Refused(err) || errors.Is(err, cloudapi.ErrRateLimited) || len(o.failures) == maxFailures {
		return o, err
	}
	o.failures = append(slices.Clone(o.failures), blockingFailure{what, holds, err})
	return o, nil
}

// failureChange is the last change of a run. It returns the recorded errors.
func failureChange() change {
	return change{Wait: true, Make: func(_ context.Context, _ *services.Request, o observed) (observed, error) {
		var failed []error
		for _, s := range o.failures {
			failed = append(failed, s.err)
		}
		return o, errors.Join(failed...)
	}}
}

// dropBlocked removes the steps that depend on a failure.
func (o observed) dropBlocked(steps []step) []step {
	return slices.DeleteFunc(steps, func(st step) bool { return st.port != "" && o.isBlocked(st.port) })
}

// stepChanges returns the changes of an existing load balancer. failed is the number of failures at the time of planning.
func (w *writer) stepChanges(lb *loadBalancer, parts *details, steps []step, failed int) []change {
	changes := make([]change, len(steps))
	for i, st := range steps {
		changes[i] = change{
			Planned: contract.Planned{
				Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: strings.TrimSuffix(fmt.Sprintf("%s: %s", st.kind, st.reason), ": "),
			},
			Replan:  true,
			Compare: func() (before, after any) { return st.compare(lb, parts) },
			Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
				if len(o.failures) > failed {
					return o, nil // it may depend on the failure, and is planned again
				}
				return w.makeStep(ctx, req, o, st, len(steps)-i-1)
			},
		}
	}
	return changes
}

// compare returns the changed parts of a load balancer, before and after the step.
func (s step) compare(lb *loadBalancer, d *details) (before, after any) {
	switch s.kind {
	case createListener, createPool, createMonitor, addMember:
		return nil, s.body
	case updateLoadBalancer:
		return services.Within(lb, s.body), s.body
	case setMembers:
		after = map[string]any{"members": s.members}
		return services.Within(map[string]any{"members": d.membersOf(s.id)}, after), after
	case removeMember:
		return s.member, nil
	case deleteListener, deletePool, deleteMonitor:
		return d.planFields(s.id), nil
	case updateListener, updatePool, updateMonitor:
	}
	return services.Within(d.planFields(s.id), s.body), s.body
}

func (d *details) membersOf(poolID string) []member {
	for _, p := range d.pools {
		if p.ID == poolID {
			return p.members.list()
		}
	}
	return nil
}

// planFields returns a listener, pool or monitor for a plan, without the objects that it belongs to: the plan names these.
func (d *details) planFields(id string) any {
	for _, l := range d.listeners {
		if l.ID == id {
			l.Owners = nil
			return l
		}
	}
	for _, p := range d.pools {
		if p.MonitorID == id && p.monitor != nil {
			return p.monitor
		}
		if p.ID != id {
			continue
		}
		members := []string{}
		for _, m := range p.members.list() {
			members = append(members, net.JoinHostPort(m.Address, strconv.Itoa(m.Port)))
		}
		p.Owners, p.Listeners = nil, nil
		return struct {
			pool

			MemberIDs []string `json:"members"`
		}{p, members}
	}
	return map[string]any{}
}

var errWentAway = errors.New("the load balancer went away while it was changed; it is made again")

// makeStep carries out one step. If somebody else has changed the load balancer, it is read and planned again.
func (w *writer) makeStep(ctx context.Context, req *services.Request, o observed, st step, more int) (observed, error) {
	lb, parts, err := w.apply(ctx, req, o.lb, o.parts, st, more)
	switch {
	case errors.Is(err, errBusy):
		if o.conflicts++; o.conflicts == maxRounds {
			return o, err
		}
		if o.lb, err = w.loadBalancers.Get(ctx, o.lb.ID, inventory.Query{}); err != nil {
			return o, cloudapi.NotAbsence(err)
		}
		o.parts, o.settled, o.changed = nil, false, true
		return o, nil
	case st.forReplacement && errors.Is(err, cloudapi.ErrQuota):
		o.poolQuotaUsedUp = true
		return o, nil
	case err != nil && st.port != "" && !cloudapi.Retryable(err):
		return o.withFailure(st.port, nil, err)
	case err != nil:
		return o, err
	case lb == nil && req.Purpose != services.UpdateNodes:
		return o, errWentAway
	case lb == nil:
		return observed{}, nil
	}
	o.lb, o.parts, o.conflicts = lb, parts, 0
	return o, nil
}

// applySteps carries out the steps on a load balancer that the Service leaves, and plans again after each. It returns the load balancer, or
// nil if it is gone.
func (w *writer) applySteps(ctx context.Context, req *services.Request, lb *loadBalancer, next planner) (*loadBalancer, error) {
	var busy error
	for range maxRounds {
		d, err := w.parts.readCurrent(ctx, lb)
		if err != nil {
			return nil, err
		}
		busy = nil
		steps := next(lb, d)
		if len(steps) == 0 {
			return lb, nil
		}
		for ; len(steps) > 0 && busy == nil; steps = next(lb, d) {
			klog.InfoS("Changing load balancer", "service", klog.KObj(req.Service), "loadBalancer", lb.ID, "step", steps[0].kind,
				"object", steps[0].id, "reason", steps[0].reason, "more", len(steps)-1)
			after, parts, err := w.apply(ctx, req, lb, d, steps[0], len(steps)-1)
			switch {
			case errors.Is(err, errBusy):
				busy = err
			case err != nil || after == nil:
				return nil, err
			default:
				lb, d = after, parts
			}
		}
		if busy != nil { // somebody else has changed it
			if lb, err = w.loadBalancers.Get(ctx, lb.ID, inventory.Query{}); err != nil {
				return nil, cloudapi.NotAbsence(err)
			}
		}
	}
	if busy != nil {
		return nil, busy
	}
	return nil, fmt.Errorf("load balancer %s was changed by somebody else as often as it was set right; find out who does that", lb.ID)
}

// errBusy: Octavia was busy with another change. The step is planned again.
var errBusy = errors.New("the load balancer was busy")

// apply carries out a step, waits for Octavia, and returns the expected result. A nil load balancer is gone.
func (w *writer) apply(
	ctx context.Context, req *services.Request, lb *loadBalancer, d *details, st step, more int,
) (*loadBalancer, *details, error) {
	if st.kind == updateMonitor || st.kind == deleteMonitor {
		w.parts.monitors.Invalidate(st.id)
	}
	doing := fmt.Sprintf("%s (%s), then %d more changes", st.kind, st.reason, more)
	st, err := w.parts.findMemberID(ctx, lb, st)
	if err != nil {
		return nil, nil, err
	}
	made, err := w.callStep(ctx, lb, st)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) {
			req.Report(configFinding(err))
		}
		return nil, nil, cloudapi.NotAbsence(err)
	}
	after := d.expectedAfter(st, made, w.parts.memberLists)
	w.parts.details.PutPartial(after)
	busy := *lb
	busy.Status = statusPendingUpdate
	w.loadBalancers.PutPartial(&busy)
	idle, err := w.waitUntilIdle(ctx, lb.ID, doing)
	if err != nil || idle == nil {
		return nil, nil, err
	}
	if idle.Status != statusActive {
		w.parts.details.Invalidate(lb.ID)
		return nil, nil, fmt.Errorf("load balancer %s has the provisioning status %s after: %s", lb.ID, idle.Status, doing)
	}
	return idle, after, nil
}

// callStep makes the call of a step and returns the ID of a created object. A failed call may have taken effect, so everything is read
// again; after a conflict it also waits until Octavia is idle.
func (w *writer) callStep(ctx context.Context, lb *loadBalancer, st step) (made string, err error) {
	made, err = w.api.do(ctx, st)
	if err == nil || cloudapi.NotSent(err) {
		return made, err
	}
	w.loadBalancers.Invalidate(lb.ID)
	w.parts.details.Invalidate(lb.ID)
	if !errors.Is(err, cloudapi.ErrConflict) {
		return "", err
	}
	if _, lookErr := w.waitUntilIdle(ctx, lb.ID, "the work of somebody else"); lookErr != nil {
		return "", errors.Join(err, lookErr)
	}
	return "", fmt.Errorf("%w: %w", errBusy, err)
}

// expectedAfter returns the expected parts after a step; made is the ID of a created object. They get no time of change, so that they are
// read once at the end.
func (d *details) expectedAfter(st step, made string, lists *inventory.Lists[memberRow]) *details {
	after := d.clone()
	after.asOf = asOfOwnChange
	switch st.kind {
	case deletePool:
		after.dropPool(st.id)
	case deleteListener:
		after.listeners = slices.DeleteFunc(after.listeners, func(l listener) bool { return l.ID == st.id })
		for i := range after.pools {
			after.pools[i].Listeners = slices.DeleteFunc(slices.Clone(after.pools[i].Listeners), func(r reference) bool { return r.ID == st.id })
		}
	case createListener:
		if request, ok := st.body.(listenerRequest); ok {
			after.listeners = append(after.listeners, request.asListener(made))
		}
	case updateListener:
		for i := range after.listeners {
			if u, ok := st.body.(listenerUpdate); ok && after.listeners[i].ID == st.id {
				after.listeners[i].change(u)
				after.setDefaultPool(st.id, u.DefaultPoolID)
			}
		}
	case createPool:
		if request, ok := st.body.(poolRequest); ok {
			after.pools = append(after.pools, pool{
				ID: made, Name: request.Name, Protocol: request.Protocol, Method: request.Method, Persistence: request.Persistence,
				Tags: request.Tags,
			})
			if at := slices.IndexFunc(after.listeners, func(l listener) bool { return l.ID == request.ListenerID }); at >= 0 {
				after.listeners[at].DefaultPoolID = made
				after.setDefaultPool(request.ListenerID, &made)
			}
		}
	case updatePool, setMembers, addMember, removeMember, createMonitor, updateMonitor, deleteMonitor:
		for i := range after.pools {
			after.pools[i].change(st, made, lists)
		}
	case updateLoadBalancer:
	}
	return after
}

// setDefaultPool connects a listener to another pool; nil changes nothing.
func (d *details) setDefaultPool(listenerID string, to *string) {
	if to == nil {
		return
	}
	for i := range d.pools {
		p := &d.pools[i]
		p.Listeners = slices.DeleteFunc(slices.Clone(p.Listeners), func(r reference) bool { return r.ID == listenerID })
		if p.ID == *to {
			p.Listeners = append(p.Listeners, reference{listenerID})
		}
	}
}

func (d *details) dropPool(id string) {
	d.pools = slices.DeleteFunc(d.pools, func(p pool) bool { return p.ID == id })
	for i := range d.listeners {
		if d.listeners[i].DefaultPoolID == id {
			d.listeners[i].DefaultPoolID = ""
		}
	}
}

func (r listenerRequest) asListener(id string) listener {
	return listener{
		ID: id, Name: r.Name, Protocol: r.Protocol, Port: r.Port, ConnectionLimit: r.ConnectionLimit,
		TLSContainerRef: r.TLSContainerRef, InsertHeaders: r.InsertHeaders,
		AllowedCIDRs: r.AllowedCIDRs, ClientData: deref(r.ClientData), MemberConnect: deref(r.MemberConnect),
		MemberData: deref(r.MemberData), TCPInspect: deref(r.TCPInspect), Tags: r.Tags,
	}
}

func (l *listener) change(u listenerUpdate) {
	setGiven(&l.Name, u.Name)
	setGiven(&l.ConnectionLimit, u.ConnectionLimit)
	setGiven(&l.Tags, u.Tags)
	setGiven(&l.ClientData, u.ClientData)
	setGiven(&l.MemberConnect, u.MemberConnect)
	setGiven(&l.MemberData, u.MemberData)
	setGiven(&l.TCPInspect, u.TCPInspect)
	setGiven(&l.InsertHeaders, u.InsertHeaders)
	setGiven(&l.AllowedCIDRs, u.AllowedCIDRs)
	setGiven(&l.TLSContainerRef, u.TLSContainerRef)
	setGiven(&l.DefaultPoolID, u.DefaultPoolID)
}

func deref[T any](p *T) (v T) {
	setGiven(&v, p)
	return v
}

func setGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// change applies a step to a pool, if it concerns this pool.
func (p *pool) change(st step, made string, lists *inventory.Lists[memberRow]) {
	switch {
	case st.kind == deleteMonitor && p.MonitorID == st.id:
		p.MonitorID, p.monitor = "", nil
	case st.kind == updateMonitor && p.MonitorID == st.id:
		if r, ok := st.body.(monitorRequest); ok {
			after := r.asMonitor(st.id)
			after.Type = p.monitor.Type
			p.monitor = after
		}
	case p.ID != st.id:
	case st.kind == createMonitor:
		if r, ok := st.body.(monitorRequest); ok {
			p.MonitorID, p.monitor = made, r.asMonitor(made)
		}
	case st.kind == removeMember:
		p.members = p.members.withoutMember(st.member, lists)
	case st.kind == addMember:
		if m, ok := st.body.(memberRequest); ok {
			p.members = p.members.withMember(m.asMember(made), lists)
		}
	case st.kind == setMembers:
		p.members = membersAfterBatch(p.members, st.members, lists)
	case st.kind == updatePool:
		if u, ok := st.body.(map[string]any); ok {
			p.update(u)
		}
	}
}

// membersAfterBatch returns the members after a batch update. Octavia does not return the IDs of new ones.
func membersAfterBatch(before memberSet, list []memberRequest, lists *inventory.Lists[memberRow]) memberSet {
	ids := map[memberKey]string{}
	for _, m := range slices.Backward(before.list()) {
		ids[memberKey{address: m.Address, port: m.Port}] = m.ID
	}
	after := make([]member, len(list))
	for i, m := range list {
		after[i] = m.asMember(ids[memberKey{address: m.Address, port: m.Port}])
	}
	set := memberSetOf(after, lists)
	set.idsDropped = set.idsDropped || before.idsDropped
	return set
}

func (p *pool) update(u map[string]any) {
	if method, ok := u["lb_algorithm"].(string); ok {
		p.Method = method
	}
	if kept, ok := u["session_persistence"].(*persistence); ok {
		p.Persistence = kept
	}
	if name, ok := u["name"].(string); ok {
		p.Name = name
	}
	if tags, ok := u["tags"].([]string); ok {
		p.Tags = tags
	}
}

func (m memberRequest) asMember(id string) member {
	return member{ID: id, Name: m.Name, Address: m.Address, Port: m.Port, SubnetID: m.SubnetID, MonitorPort: m.MonitorPort}
}

func (r monitorRequest) asMonitor(id string) *monitor {
	return &monitor{
		ID: id, Name: r.Name, Type: r.Type, Delay: r.Delay, Timeout: r.Timeout, MaxRetries: r.MaxRetries,
		MaxRetriesDown: r.MaxRetriesDown, URLPath: r.URLPath, Codes: r.Codes,
	}
}

// create requests a load balancer. Octavia builds it later.
func (w *writer) create(ctx context.Context, req *services.Request, request loadBalancerRequest) (*loadBalancer, error) {
	lb, err := w.api.createLoadBalancer(ctx, request)
	if err != nil {
		if !cloudapi.NotSent(err) {
			w.loadBalancers.Invalidate("")
		}
		if errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrQuota) {
			req.Report(configFinding(err))
		}
		return nil, cloudapi.NotAbsence(err)
	}
	w.loadBalancers.Put(lb)
	return lb, nil
}

// remove deletes a load balancer and waits for the end.
func (w *writer) remove(ctx context.Context, lb *loadBalancer, cascade bool) error {
	for range maxRounds {
		err := w.api.deleteLoadBalancer(ctx, lb.ID, cascade)
		if errors.Is(err, cloudapi.ErrNotFound) {
			w.parts.forget(lb.ID)
			return nil
		}
		w.loadBalancers.Invalidate(lb.ID)
		if err != nil && !errors.Is(err, cloudapi.ErrConflict) {
			return err
		}
		if err == nil {
			going := *lb
			going.Status = statusPendingDelete
			w.loadBalancers.PutPartial(&going)
		}
		now, err := w.waitUntilIdle(ctx, lb.ID, "its deletion")
		switch {
		case err != nil || now == nil:
			return err
		case now.Status == statusError:
			return fmt.Errorf("load balancer %s is in ERROR after its deletion; it is tried again", lb.ID)
		}
		lb = now // it was busy, and no longer is
	}
	return fmt.Errorf("load balancer %s is still there after several deletions", lb.ID)
}

// waitUntilIdle waits until Octavia is idle; nil means that the load balancer is gone.
func (w *writer) waitUntilIdle(ctx context.Context, id, doing string, with ...waiting.Option) (*loadBalancer, error) {
	lb, err := w.room.Until(ctx, id, fmt.Sprintf("load balancer %s: %s", id, doing), func(b *loadBalancer) bool { return !b.isPending() }, with...)
	if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && lb.Status == statusDeleted) {
		w.parts.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return lb, err
}

// failOver starts a failover of a load balancer in ERROR, or reports that an administrator must.
func (w *writer) failOver(ctx context.Context, lb *loadBalancer) (ordered bool, findings []services.Finding, err error) {
	if w.failovers.mayStart(lb.ID) {
		err := w.api.failOver(ctx, lb.ID)
		if err == nil {
			w.loadBalancers.Invalidate(lb.ID)
			return true, []services.Finding{services.Warning(eventFailover,
				"load balancer %s is in ERROR; a failover was ordered, which keeps its address", lb.ID)}, nil
		}
		klog.InfoS("Octavia refused a failover", "loadBalancer", lb.ID, "reason", err.Error())
		findings = []services.Finding{services.Warning(eventBroken, "%s", adviceFor(lb))}
	}
	return false, findings, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
}
