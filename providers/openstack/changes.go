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

// observe returns the parts of a load balancer, from which changes may be computed. They are read again where it was changed after
// they were read, be it by us: somebody else may have changed it right after that, and the time of the change does not tell whose
// it was.
func (l *loadBalancers) observe(ctx context.Context, lb *loadBalancer) (*details, error) {
	if _, err := l.wholeParts(ctx, lb.ID); err != nil {
		return nil, err
	}
	return l.glance(ctx, lb)
}

// glance is observe for who changes nothing: listings may be all that the parts come from.
func (l *loadBalancers) glance(ctx context.Context, lb *loadBalancer) (*details, error) {
	d, err := l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.asOf != "" && d.asOf != lb.UpdatedAt {
		d, err = l.readAgain(ctx, d)
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

// maxRounds bounds how often in one call a load balancer is looked at after our own work, and set right again.
const maxRounds = 5

// planner returns the steps that are due on a load balancer with its parts.
type planner func(*loadBalancer, *details) ([]step, error)

// setback is a failure that holds up nothing but what needs what failed.
type setback struct {
	what string
	// holds are the ports of the Service, and the servers, that wait for it.
	holds []string
	err   error
}

// isHeld reports whether something failed in this turn, or waits for what failed.
func (o observation) isHeld(what string) bool {
	return slices.ContainsFunc(o.setbacks, func(s setback) bool { return s.what == what || slices.Contains(s.holds, what) })
}

// maxSetbacks is how much may fail in a turn that goes on: more has a common reason.
const maxSetbacks = 5

// withSetback notes that something was refused, after which all else is done. Where no answer came, nothing else is tried.
func (o observation) withSetback(what string, holds []string, err error) (observation, error) {
	if !cloudapi.Refused(err) || errors.Is(err, cloudapi.ErrRateLimited) || len(o.setbacks) == maxSetbacks {
		return o, err
	}
	o.setbacks = append(slices.Clone(o.setbacks), setback{what, holds, err})
	return o, nil
}

// failure is the change that fails where something did, when all else is done.
func failure() change {
	return change{Wait: true, Make: func(_ context.Context, _ *services.Request, o observation) (observation, error) {
		var failed []error
		for _, s := range o.setbacks {
			failed = append(failed, s.err)
		}
		return o, errors.Join(failed...)
	}}
}

// dropHeld leaves out the steps that wait for something that failed.
func (o observation) dropHeld(steps []step) []step {
	return slices.DeleteFunc(steps, func(st step) bool { return st.port != "" && o.isHeld(st.port) })
}

// stepChanges are the changes of a load balancer that exists. after is how much had failed when they were planned.
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
					return o, nil // it may need what failed, and is planned again
				}
				return l.makeStep(ctx, r, o, st, len(steps)-i-1)
			},
		}
	}
	return changes
}

// compare returns the parts of a load balancer that a step changes, before and after it.
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
		return d.part(s.id).shown(), nil
	case updateListener, updatePool, updateMonitor:
	}
	return services.Within(d.part(s.id).shown(), s.body), s.body
}

// part is a listener, a pool or a monitor.
type part struct {
	*listener
	*pool
	*monitor
}

// part returns the part of a load balancer with an ID.
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

// shown is how a plan shows a part: without what it belongs to, which the plan names.
func (p part) shown() any {
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

// makeStep makes one step. Where somebody else has changed the load balancer meanwhile, it is as it is, and is planned again.
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
		return o.withSetback(st.port, nil, err)
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

// work makes the steps that a plan has on a load balancer that the Service leaves, one after another, each planned again from what the
// former ones have made. When they are done it looks once at what is there, because somebody else may have changed it meanwhile. It
// returns the load balancer as it then is; nil means that it has gone.
func (l *loadBalancers) work(ctx context.Context, r *services.Request, lb *loadBalancer, next planner) (*loadBalancer, error) {
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
		if busy != nil { // it was changed by somebody else, and is as it is
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

// errBusy: Octavia worked for somebody else, and does no longer; the step is to be planned again.
var errBusy = errors.New("the load balancer was busy")

// apply makes the call of a step, waits until Octavia has done it, and returns what is there then, as far as we know. A nil
// load balancer means that it has gone.
func (l *loadBalancers) apply(
	ctx context.Context, r *services.Request, lb *loadBalancer, d *details, st step, more int,
) (*loadBalancer, *details, error) {
	if st.kind == updateMonitor || st.kind == deleteMonitor {
		l.monitors.Invalidate(st.id)
	}
	doing := fmt.Sprintf("%s (%s), then %d more changes", st.kind, st.reason, more)
	st, err := l.located(ctx, lb, st)
	if err != nil {
		return nil, nil, err
	}
	made, err := l.order(ctx, lb, st)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) {
			r.Report(services.Warning(eventConfigError, "%s", err))
		}
		return nil, nil, cloudapi.NotAbsence(err)
	}
	after := d.after(st, made, l.memberLists)
	l.parts.PutPartial(after)
	busy := *lb
	busy.Status = statusPendingUpdate
	l.observed.PutPartial(&busy)
	idle, err := l.idle(ctx, lb.ID, doing)
	if err != nil || idle == nil {
		return nil, nil, err
	}
	if idle.Status != statusActive {
		l.parts.Invalidate(lb.ID)
		return nil, nil, fmt.Errorf("load balancer %s has the provisioning status %s after: %s", lb.ID, idle.Status, doing)
	}
	return idle, after, nil
}

// located returns a step with the ID of the member that goes, which is not kept where a pool has many. Where that member is not there, or
// is another one, somebody else has changed the pool: it is read, and the step planned, again.
func (l *loadBalancers) located(ctx context.Context, lb *loadBalancer, st step) (step, error) {
	if st.kind != removeMember || st.member.ID != "" {
		return st, nil
	}
	filter := paged("address", st.member.Address, "protocol_port", strconv.Itoa(st.member.Port))
	found, _, err := listAll[member](ctx, l.api, loadBalancing, membersPath(st.id), "members", filter)
	if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) { // a service that knows no such filter
		found, _, err = listAll[member](ctx, l.api, loadBalancing, membersPath(st.id), "members", paged())
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

// order makes the call of a step, and returns the ID of what it made. Whatever fails may have taken effect, so the next look
// reads everything again. Where Octavia works on the load balancer already, for somebody else or for a call of ours whose
// answer was lost, the end of that is waited for: the step is planned again then.
func (l *loadBalancers) order(ctx context.Context, lb *loadBalancer, st step) (made string, err error) {
	made, err = l.api.do(ctx, st)
	if err == nil || cloudapi.NotSent(err) {
		return made, err
	}
	l.observed.Invalidate(lb.ID)
	l.parts.Invalidate(lb.ID)
	if !errors.Is(err, cloudapi.ErrConflict) {
		return "", err
	}
	if _, lookErr := l.idle(ctx, lb.ID, "the work of somebody else"); lookErr != nil {
		return "", errors.Join(err, lookErr)
	}
	return "", fmt.Errorf("%w: %w", errBusy, err)
}

// after returns the parts as a step leaves them; made is the ID of what it made. They have no time: when all is done, they are
// read once.
func (d *details) after(st step, made string, lists *inventory.Lists[memberRow]) *details {
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
			after.listeners = append(after.listeners, request.created(made))
		}
	case updateListener:
		for i := range after.listeners {
			if u, ok := st.body.(listenerUpdate); ok && after.listeners[i].ID == st.id {
				after.listeners[i].change(u)
				after.lead(st.id, u.DefaultPoolID)
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
				after.lead(request.ListenerID, &made)
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

// lead has a listener lead to another pool; nil leaves it as it is.
func (d *details) lead(listenerID string, to *string) {
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

// created returns the listener that a request makes.
func (r listenerRequest) created(id string) listener {
	return listener{
		ID: id, Name: r.Name, Protocol: r.Protocol, Port: r.Port, ConnectionLimit: r.ConnectionLimit,
		TLSContainerRef: r.TLSContainerRef, InsertHeaders: r.InsertHeaders,
		AllowedCIDRs: r.AllowedCIDRs, ClientData: valueOf(r.ClientData), MemberConnect: valueOf(r.MemberConnect),
		MemberData: valueOf(r.MemberData), TCPInspect: valueOf(r.TCPInspect), Tags: r.Tags,
	}
}

// change makes of a listener what an update makes of it.
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

// change makes of a pool what a step makes of it, if the step is about the pool.
func (p *pool) change(st step, made string, lists *inventory.Lists[memberRow]) {
	switch {
	case st.kind == deleteMonitor && p.MonitorID == st.id:
		p.MonitorID, p.monitor = "", nil
	case st.kind == updateMonitor && p.MonitorID == st.id:
		if r, ok := st.body.(monitorRequest); ok {
			after := r.created(st.id)
			after.Type = p.monitor.Type
			p.monitor = after
		}
	case p.ID != st.id:
	case st.kind == createMonitor:
		if r, ok := st.body.(monitorRequest); ok {
			p.MonitorID, p.monitor = made, r.created(made)
		}
	case st.kind == removeMember:
		p.members = p.members.withoutMember(st.member, lists)
	case st.kind == addMember:
		if m, ok := st.body.(memberRequest); ok {
			p.members = p.members.withMember(m.created(made), lists)
		}
	case st.kind == setMembers:
		p.members = afterBatch(p.members, st.members, lists)
	case st.kind == updatePool:
		if u, ok := st.body.(map[string]any); ok {
			p.update(u)
		}
	}
}

// afterBatch are the members of a pool after a batch. The IDs of new ones are not told.
func afterBatch(before memberSet, list []memberRequest, lists *inventory.Lists[memberRow]) memberSet {
	ids := map[memberKey]string{}
	for _, m := range slices.Backward(before.list()) {
		ids[memberKey{address: m.Address, port: m.Port}] = m.ID
	}
	after := make([]member, len(list))
	for i, m := range list {
		after[i] = m.created(ids[memberKey{address: m.Address, port: m.Port}])
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

func (m memberRequest) created(id string) member {
	return member{ID: id, Name: m.Name, Address: m.Address, Port: m.Port, SubnetID: m.SubnetID, MonitorPort: m.MonitorPort}
}

func (r monitorRequest) created(id string) *monitor {
	return &monitor{
		ID: id, Name: r.Name, Type: r.Type, Delay: r.Delay, Timeout: r.Timeout, MaxRetries: r.MaxRetries,
		MaxRetriesDown: r.MaxRetriesDown, URLPath: r.URLPath, Codes: r.Codes,
	}
}
