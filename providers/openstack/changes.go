package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// observe returns a load balancer's parts as the basis for changes. They are read again if updated_at has changed, even after our own
// changes, because somebody else may have changed it right afterwards.
func (l *loadBalancers) observe(ctx context.Context, lb *loadBalancer) (*details, error) {
	if _, err := l.readWholeParts(ctx, lb.ID); err != nil {
		return nil, err
	}
	return l.observeFromListings(ctx, lb)
}

// observeFromListings is observe for read-only use: the parts may come from listings alone.
func (l *loadBalancers) observeFromListings(ctx context.Context, lb *loadBalancer) (*details, error) {
	d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.asOf != "" && d.asOf != lb.UpdatedAt {
		d, err = l.rereadParts(ctx, d)
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	if d.asOf != lb.UpdatedAt {
		d = d.clone()
		d.asOf = lb.UpdatedAt
		l.parts.PutPartial(d)
	}
	return d, nil
}

// maxRounds bounds how often one call repeats changes that others interfere with.
const maxRounds = 5

// planner returns the steps that a load balancer still needs.
type planner func(*loadBalancer, *details) ([]step, error)

// blockingFailure is a failure that blocks only the changes that depend on it.
type blockingFailure struct {
	what string
	// holds lists the ports and servers that depend on the failed change.
	holds []string
	err   error
}

// isBlocked reports whether something has failed in this run, or depends on a failure.
func (o observation) isBlocked(what string) bool {
	return slices.ContainsFunc(o.setbacks, func(s blockingFailure) bool { return s.what == what || slices.Contains(s.holds, what) })
}

// maxSetbacks bounds the failures of one run. More of them have a common cause.
const maxSetbacks = 5

// withFailure records a refused change, so that the others continue. Any other error ends the run.
func (o observation) withFailure(what string, holds []string, err error) (observation, error) {
	if !cloudapi.Refused(err) || errors.Is(err, cloudapi.ErrRateLimited) || len(o.setbacks) == maxSetbacks {
		return o, err
	}
	o.setbacks = append(slices.Clone(o.setbacks), blockingFailure{what, holds, err})
	return o, nil
}

// failureChange is the last change of a run. It returns the recorded errors.
func failureChange() change {
	return change{Wait: true, Make: func(_ context.Context, _ *services.Request, o observation) (observation, error) {
		var failed []error
		for _, s := range o.setbacks {
			failed = append(failed, s.err)
		}
		return o, errors.Join(failed...)
	}}
}

// dropBlocked removes the steps that depend on a failure.
func (o observation) dropBlocked(steps []step) []step {
	return slices.DeleteFunc(steps, func(st step) bool { return st.port != "" && o.isBlocked(st.port) })
}

// stepChanges returns the changes of an existing load balancer. after is the number of failures at the time of planning.
func (l *loadBalancers) stepChanges(lb *loadBalancer, parts *details, steps []step, after int) []change {
	changes := make([]change, len(steps))
	for i, st := range steps {
		changes[i] = change{
			Planned: contract.Planned{
				Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: strings.TrimSuffix(fmt.Sprintf("%s: %s", st.kind, st.reason), ": "),
			},
			Replan:  true,
			Compare: func() (before, after any) { return st.compare(lb, parts) },
			Make: func(ctx context.Context, r *services.Request, o observation) (observation, error) {
				if len(o.setbacks) > after {
					return o, nil // it may depend on the failure, and is planned again
				}
				return l.makeStep(ctx, r, o, st, len(steps)-i-1)
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
		return services.Within(map[string]any{"members": d.part(s.id).members()}, after), after
	case removeMember:
		return s.member, nil
	case deleteListener, deletePool, deleteMonitor:
		return d.part(s.id).planFields(), nil
	case updateListener, updatePool, updateMonitor:
	}
	return services.Within(d.part(s.id).planFields(), s.body), s.body
}

// part is a listener, a pool or a monitor.
type part struct {
	*listener
	*pool
	*monitor
}

func (d *details) part(id string) (found part) {
	for i := range d.listeners {
		if d.listeners[i].ID == id {
			found.listener = &d.listeners[i]
		}
	}
	for i := range d.pools {
		if d.pools[i].ID == id {
			found.pool = &d.pools[i]
		}
		if m := d.pools[i].monitor; d.pools[i].MonitorID == id && m != nil {
			found.monitor = m
		}
	}
	return found
}

func (p part) members() []member {
	if p.pool == nil {
		return nil
	}
	return p.pool.members.list()
}

// planFields returns a part for a plan, without the objects that it belongs to: the plan names these.
func (p part) planFields() any {
	switch {
	case p.listener != nil:
		shown := *p.listener
		shown.Owners = nil
		return shown
	case p.pool != nil:
		members := []string{}
		for _, m := range p.members() {
			members = append(members, net.JoinHostPort(m.Address, strconv.Itoa(m.Port)))
		}
		shown := *p.pool
		shown.Owners, shown.Listeners = nil, nil
		return struct {
			pool

			MemberIDs []string `json:"members"`
		}{shown, members}
	case p.monitor != nil:
		return p.monitor
	}
	return map[string]any{}
}

var errWentAway = errors.New("the load balancer went away while it was changed; it is made again")

// makeStep carries out one step. If somebody else has changed the load balancer, it is read and planned again.
func (l *loadBalancers) makeStep(ctx context.Context, r *services.Request, o observation, st step, more int) (observation, error) {
	lb, parts, err := l.apply(ctx, r, o.lb, o.parts, st, more)
	switch {
	case errors.Is(err, errBusy):
		if o.conflicts++; o.conflicts == maxRounds {
			return o, err
		}
		if o.lb, err = l.observed.Get(ctx, o.lb.ID, inventory.Query{}); err != nil {
			return o, cloudapi.NotAbsence(err)
		}
		o.parts, o.settled, o.changed = nil, false, true
		return o, nil
	case st.beside && errors.Is(err, cloudapi.ErrQuota):
		o.crowded = true
		return o, nil
	case err != nil && st.port != "" && !cloudapi.Retryable(err):
		return o.withFailure(st.port, nil, err)
	case err != nil:
		return o, err
	case lb == nil && r.Purpose != services.UpdateNodes:
		return o, errWentAway
	case lb == nil:
		return observation{}, nil
	}
	o.lb, o.parts, o.conflicts = lb, parts, 0
	return o, nil
}

// applySteps carries out the steps on a load balancer that the Service leaves, and plans again after each. At the end it checks once for
// changes by others. It returns the load balancer, or nil if it is gone.
func (l *loadBalancers) applySteps(ctx context.Context, r *services.Request, lb *loadBalancer, next planner) (*loadBalancer, error) {
	var busy error
	for range maxRounds {
		d, err := l.observe(ctx, lb)
		if err != nil {
			return nil, err
		}
		worked := false
		for {
			steps, err := next(lb, d)
			if err != nil {
				return nil, err
			}
			if len(steps) == 0 {
				break
			}
			worked = true
			klog.InfoS("Changing load balancer", "service", klog.KObj(r.Service), "loadBalancer", lb.ID, "step", steps[0].kind,
				"object", steps[0].id, "reason", steps[0].reason, "more", len(steps)-1)
			after, parts, err := l.apply(ctx, r, lb, d, steps[0], len(steps)-1)
			if errors.Is(err, errBusy) {
				busy = err
				break
			}
			if err != nil || after == nil {
				return nil, err
			}
			lb, d, busy = after, parts, nil
		}
		if !worked {
			return lb, nil
		}
		if busy != nil { // somebody else has changed it
			if lb, err = l.observed.Get(ctx, lb.ID, inventory.Query{}); err != nil {
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
func (l *loadBalancers) apply(
	ctx context.Context, r *services.Request, lb *loadBalancer, d *details, st step, more int,
) (*loadBalancer, *details, error) {
	if st.kind == updateMonitor || st.kind == deleteMonitor {
		l.monitors.Invalidate(st.id)
	}
	doing := fmt.Sprintf("%s (%s), then %d more changes", st.kind, st.reason, more)
	st, err := l.withMemberID(ctx, lb, st)
	if err != nil {
		return nil, nil, err
	}
	made, err := l.callStep(ctx, lb, st)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) {
			r.Report(services.Warning(eventConfigError, "%s", err))
		}
		return nil, nil, cloudapi.NotAbsence(err)
	}
	after := d.expectedAfter(st, made, l.memberLists)
	l.parts.PutPartial(after)
	busy := *lb
	busy.Status = statusPendingUpdate
	l.observed.PutPartial(&busy)
	idle, err := l.waitUntilIdle(ctx, lb.ID, doing)
	if err != nil || idle == nil {
		return nil, nil, err
	}
	if idle.Status != statusActive {
		l.parts.Invalidate(lb.ID)
		return nil, nil, fmt.Errorf("load balancer %s has the provisioning status %s after: %s", lb.ID, idle.Status, doing)
	}
	return idle, after, nil
}

// withMemberID adds the ID of a member to remove, because IDs are not kept for large pools. If the member has changed, the step is planned
// again.
func (l *loadBalancers) withMemberID(ctx context.Context, lb *loadBalancer, st step) (step, error) {
	if st.kind != removeMember || st.member.ID != "" {
		return st, nil
	}
	filter := pageQuery("address", st.member.Address, "protocol_port", strconv.Itoa(st.member.Port))
	found, _, err := listAll[member](ctx, l.api, loadBalancing, membersPath(st.id), "members", filter)
	if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) { // this Octavia does not support the filter
		found, _, err = listAll[member](ctx, l.api, loadBalancing, membersPath(st.id), "members", pageQuery())
	}
	if err == nil {
		for _, m := range found {
			if m.ID != "" && m.key() == st.member.key() {
				st.member.ID = m.ID
				return st, nil
			}
		}
		m := st.member
		err = fmt.Errorf("%w: pool %s has no longer the member %s at %s:%d", errBusy, st.id, m.Name, m.Address, m.Port)
	}
	l.parts.Invalidate(lb.ID)
	return st, cloudapi.NotAbsence(err)
}

// callStep makes the call of a step and returns the ID of a created object. A failed call may have taken effect, so everything is read
// again. After a conflict it waits until Octavia is idle, and the step is planned again.
func (l *loadBalancers) callStep(ctx context.Context, lb *loadBalancer, st step) (made string, err error) {
	made, err = l.api.do(ctx, st)
	if err == nil || cloudapi.NotSent(err) {
		return made, err
	}
	l.observed.Invalidate(lb.ID)
	l.parts.Invalidate(lb.ID)
	if !errors.Is(err, cloudapi.ErrConflict) {
		return "", err
	}
	if _, lookErr := l.waitUntilIdle(ctx, lb.ID, "the work of somebody else"); lookErr != nil {
		return "", errors.Join(err, lookErr)
	}
	return "", fmt.Errorf("%w: %w", errBusy, err)
}

// expectedAfter returns the expected parts after a step; made is the ID of a created object. They get no time of change, so that they are
// read once at the end.
func (d *details) expectedAfter(st step, made string, lists *inventory.Lists[memberRow]) *details {
	after := d.clone()
	after.asOf = ours
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
		AllowedCIDRs: r.AllowedCIDRs, ClientData: valueOf(r.ClientData), MemberConnect: valueOf(r.MemberConnect),
		MemberData: valueOf(r.MemberData), TCPInspect: valueOf(r.TCPInspect), Tags: r.Tags,
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
		p.members = afterBatch(p.members, st.members, lists)
	case st.kind == updatePool:
		if u, ok := st.body.(map[string]any); ok {
			p.update(u)
		}
	}
}

// afterBatch returns the members after a batch update. Octavia does not return the IDs of new ones.
func afterBatch(before memberSet, list []memberRequest, lists *inventory.Lists[memberRow]) memberSet {
	ids := map[memberKey]string{}
	for _, m := range slices.Backward(before.list()) {
		ids[memberKey{address: m.Address, port: m.Port}] = m.ID
	}
	after := make([]member, len(list))
	for i, m := range list {
		after[i] = m.asMember(ids[memberKey{address: m.Address, port: m.Port}])
	}
	set := memberSetOf(after, lists)
	set.lost = set.lost || before.lost
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
