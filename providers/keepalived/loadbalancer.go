package keepalived

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	eventwriter "k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// observed holds the present addresses of a Service and their record.
type observed struct {
	// record is the content of the ConfigMap, entry its part for the Service. Both are unused if addresses are recorded on Services.
	record record
	entry  entry
	has    []netip.Addr
}

type desired struct {
	choice

	// conflicts are addresses that other Services have as well.
	conflicts []string
	entry     entry
	// written are the marks, if addresses are recorded on Services.
	written marks
}

// reconciler implements services.Reconciler. A Service has an address and its record.
type reconciler struct {
	config  Config
	cluster ownership.Cluster
	book    *book
	pools   *poolSource
	// choosing serialises the choice of addresses recorded on Services.
	choosing chan struct{}

	mu    sync.Mutex
	kube  kubernetes.Interface
	nodes listers.NodeLister
	// waiting are the Services for which no pool had an address.
	waiting map[string]struct{}
	// left holds the reasons, already reported, why nodes hold no addresses.
	left   map[string]string
	events eventwriter.EventRecorder
	retry  func(func(*v1.Service) bool)
	// translate converts a Service of the API server to the form in the framework's calls, with translated portable annotations.
	translate func(*v1.Service) *v1.Service
}

func newReconciler(c Config, translate func(*v1.Service) *v1.Service) *reconciler {
	r := &reconciler{config: c, choosing: make(chan struct{}, 1), waiting: map[string]struct{}{}, translate: translate}
	r.book = newBook(c.Namespace, c.ConfigMap, r.publish)
	r.pools = &poolSource{namespace: c.PoolNamespace, name: c.PoolConfigMap, cidr: c.ServiceCIDR}
	return r
}

var _ services.Reconciler[*observed, desired] = (*reconciler)(nil)

// usesAnnotations reports whether addresses are recorded on the Services themselves.
func (r *reconciler) usesAnnotations() bool { return r.config.Announcer == announcerKubeVIP }

// Validate checks the Service alone.
func (r *reconciler) Validate(q services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(q.Service)
	told, _ := r.config.judge(q.Service)
	return services.Judged(errors.Join(warnings, told), err), err
}

// Observe reads the Service's addresses and record.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (*observed, error) {
	if r.usesAnnotations() {
		return &observed{has: annotatedAddresses(q.Service)}, nil
	}
	rec, err := r.book.read(ctx)
	if err != nil {
		return nil, err
	}
	return r.observe(q.Service, rec), nil
}

func (*reconciler) observe(s *v1.Service, rec record) *observed {
	o := &observed{record: rec}
	o.entry = rec.entryOf(string(s.UID))
	o.has = o.entry.addresses()
	return o
}

// CheckOwner implements services.Reconciler: whatever is recorded for a Service belongs to it.
func (*reconciler) CheckOwner(_ context.Context, _ services.Request, o *observed) (*observed, []services.Finding, error) {
	return o, nil, nil
}

// Desire computes the desired state.
func (r *reconciler) Desire(ctx context.Context, q services.Request, o *observed) (desired, []services.Finding, error) {
	all, err := r.cluster.Services(ctx)
	if err != nil {
		return desired{}, nil, err
	}
	d, err := r.desire(ctx, q.Service, o, all)
	if err != nil {
		why, ok := errors.AsType[*refusal](err)
		if !ok {
			return desired{}, nil, err
		}
		if why.again && q.Purpose == services.Ensure {
			r.setWaiting(q.Service, true)
		}
		return desired{}, []services.Finding{services.Warning(why.reason, "%s", why.message)}, err
	}
	if q.Purpose == services.Ensure {
		r.setWaiting(q.Service, d.lacking != "")
	}
	var findings []services.Finding
	if d.lacking != "" {
		findings = append(findings, services.Warning(eventSingleStack, "the Service has one address alone: %s", d.lacking))
	}
	for _, text := range d.conflicts {
		findings = append(findings, services.Warning(eventAddressInUse, "%s", text))
	}
	for _, a := range d.outside {
		if !slices.Contains(o.has, a) {
			findings = append(findings, services.Notice(eventOutside, "address %s is in no pool of namespace %s; see to it that nobody else uses it", a, q.Service.Namespace))
		}
	}
	return d, findings, nil
}

// desire computes the desired state in view of the given Services.
func (r *reconciler) desire(ctx context.Context, s *v1.Service, o *observed, all []*v1.Service) (desired, error) {
	set, _, err := parseSettings(s) // Validate has checked them
	if err != nil {
		return desired{}, err
	}
	w, err := r.newAllocator(ctx, o.record, all)
	if err != nil {
		return desired{}, err
	}
	wants := requestedAddresses(s, set)
	has := o.has
	if r.usesAnnotations() {
		wants, has = splitRequest(s, wants, has)
	} else if len(has) == 0 && len(wants) == 0 {
		has = w.recoverAddresses(s)
	}
	c, err := w.choose(s, wants, has)
	if err != nil {
		return desired{}, err
	}
	d := desired{choice: c}
	kept := slices.DeleteFunc(slices.Clone(c.addresses), func(a netip.Addr) bool { return !slices.Contains(o.has, a) })
	d.conflicts = w.conflicts(s, kept)
	if r.usesAnnotations() {
		d.written = desiredMarks(s, set, c.addresses, w.pools.networkInterface(s.Namespace))
		return d, nil
	}
	method := ""
	if r.config.Announcer == announcerVIP {
		method = r.config.Method
		if text, ok := s.Annotations[annotationMethod]; ok && (text == "" || set.Method != "") {
			method = set.Method
		}
	}
	d.entry = newEntry(s, c.addresses, method)
	return d, nil
}

// newAllocator collects the input for the choice of addresses.
func (r *reconciler) newAllocator(ctx context.Context, rec record, all []*v1.Service) (allocator, error) {
	nodes, err := r.allNodes(ctx)
	w := allocator{
		pools: r.pools.read(ctx), services: all, nodes: nodes, entries: rec.entries, annotated: r.usesAnnotations(),
		exclusive: r.config.Announcer == announcerVIP, v4: r.config.Announcer == announcerVIP,
		pooled: r.config.Requested == requestedPools,
	}
	if r.config.Announcer == announcerVIP {
		w.foreign = rec.foreignAddresses()
	}
	return w, err
}

// recoverAddresses recovers a lost record: the addresses in the Service's status that its pool contains and nobody else has.
func (w allocator) recoverAddresses(s *v1.Service) []netip.Addr {
	p, err := w.pools.poolOf(s.Namespace)
	if err != nil {
		return nil
	}
	u := w.usageWithout(s.UID)
	var has []netip.Addr
	for _, a := range statusAddresses(s) {
		// Another Service's mere request does not count.
		if p.contains(a) && w.obstacle(s, a, usage{a: u.holdersWith(a)}) == "" {
			has = append(has, a)
		}
	}
	return has
}

// conflicts lists a Service's addresses that others have too, after manual changes, changed ports or another controller's choice. The
// younger Service gets an event and keeps the address, because removal would be an outage.
func (w allocator) conflicts(s *v1.Service, has []netip.Addr) (all []string) {
	if w.pools.err != nil {
		return nil // it is unknown which addresses may be shared
	}
	u := w.usageWithout(s.UID)
	for _, a := range has {
		rivals := slices.DeleteFunc(u.holdersWith(a), func(h holder) bool { return h.service != nil && isOlder(s, h.service) })
		if why := w.obstacle(s, a, usage{a: rivals}); why != "" && !a.IsUnspecified() {
			all = append(all, fmt.Sprintf("address %s %s; it stays until one of the two is created again or asks for another address", a, why))
		}
	}
	return all
}

func (r *reconciler) setNodes(l listers.NodeLister) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = l
}

// setWaiting records whether a Service waits for an address.
func (r *reconciler) setWaiting(s *v1.Service, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits {
		r.waiting[string(s.UID)] = struct{}{}
	} else {
		delete(r.waiting, string(s.UID))
	}
}

// retryWaiting retries the Services that wait for an address.
func (r *reconciler) retryWaiting() {
	r.mu.Lock()
	retry, waiting := r.retry, maps.Clone(r.waiting)
	r.mu.Unlock()
	if retry == nil || len(waiting) == 0 {
		return
	}
	retry(func(s *v1.Service) bool { _, waits := waiting[string(s.UID)]; return waits })
}

// Changes returns the changes from the observed to the desired state.
func (r *reconciler) Changes(q services.Request, o *observed, d desired) ([]services.Change[*observed], error) {
	if r.usesAnnotations() {
		return r.markChanges(q.Service, d), nil
	}
	if r.isRecorded(o, d.entry) {
		return nil, nil
	}
	action := contract.PlanChange
	if o.entry.UID == "" {
		action = contract.PlanCreate
	}
	return []services.Change[*observed]{{
		Planned: contract.Planned{Action: action, Object: "entry of " + d.entry.title() + " in " + r.book.title(), Detail: texts(d.addresses)},
		Creates: action == contract.PlanCreate,
		Compare: func() (before, after any) {
			if action == contract.PlanCreate {
				return nil, d.entry
			}
			return o.entry, d.entry
		},
		Make: func(ctx context.Context, q *services.Request, _ *observed) (*observed, error) {
			after, err := r.book.commit(ctx, func(rec record) (record, error) { return r.assignAddresses(ctx, q.Service, rec) })
			if err != nil {
				return nil, r.reportLoss(q, err)
			}
			now := r.observe(q.Service, after)
			if slices.ContainsFunc(o.has, func(a netip.Addr) bool { return !slices.Contains(now.has, a) }) {
				r.retryWaiting() // an address is free
			}
			return now, nil
		},
	}}, nil
}

// reportLoss returns the event of a Service that lost an address to a faster one.
func (r *reconciler) reportLoss(q *services.Request, err error) error {
	if why, ok := errors.AsType[*refusal](err); ok {
		q.Report(services.Warning(why.reason, "%s", why.message))
		r.setWaiting(q.Service, why.again)
	}
	return err
}

// assignAddresses assigns the addresses again just before the record is written, because another process may have taken some.
func (r *reconciler) assignAddresses(ctx context.Context, s *v1.Service, rec record) (record, error) {
	all, err := r.cluster.Services(ctx)
	if err != nil {
		return rec, err
	}
	d, err := r.desire(ctx, s, r.observe(s, rec), all)
	if err != nil {
		return rec, err
	}
	return rec.put(d.entry), nil
}

// isRecorded reports whether the ConfigMap has the desired entry of a Service.
func (r *reconciler) isRecorded(o *observed, e entry) bool {
	return e.equals(o.entry) && (r.config.Announcer != announcerVIP || o.record.data[e.IP] == e.value())
}

// publish adds the announcer's data to a record.
func (r *reconciler) publish(ctx context.Context, before, after record) (record, error) {
	if r.config.Announcer == announcerNone {
		return after, nil
	}
	if r.config.Announcer == announcerVIP {
		if slices.Equal(before.entries, after.entries) && maps.Equal(mergeData(before, after), before.data) {
			return after, nil
		}
		if all, err := r.cluster.Services(ctx); err == nil {
			after = after.fillNames(all)
		}
		after.data = mergeData(before, after)
		return after, nil
	}
	text, err := r.renderRecord(ctx, after)
	if err != nil {
		return after, err
	}
	after.data = maps.Clone(before.data)
	if after.data == nil {
		after.data = map[string]string{}
	}
	after.data[keyConfiguration] = text
	return after, nil
}

// renderRecord returns the keepalived.conf of a record.
func (r *reconciler) renderRecord(ctx context.Context, rec record) (string, error) {
	nodes, err := r.announcingNodes(ctx)
	if err != nil {
		return "", err
	}
	text := render(r.config.layout, rec.addresses(), nodes)
	if err := verify(text); err != nil {
		return "", fmt.Errorf("the %s that was rendered is broken and not published: %w; this is a bug, please report it", keyConfiguration, err)
	}
	return text, nil
}

func texts(addresses []netip.Addr) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = a.String()
	}
	return strings.Join(all, ",")
}

// Complete implements services.Reconciler: there is nothing to wait for.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o *observed, _ desired) (*observed, error) {
	return o, nil
}

// Status returns the status of the Service. With kube-vip, kube-vip writes it.
func (r *reconciler) Status(q services.Request, o *observed, _ desired) (*v1.LoadBalancerStatus, error) {
	if r.usesAnnotations() {
		return q.Service.Status.LoadBalancer.DeepCopy(), nil
	}
	return statusOf(o.has), nil
}

func statusOf(addresses []netip.Addr) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	for _, a := range addresses {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: a.String()})
	}
	return status
}

// NodeChanges implements services.Reconciler: addresses do not depend on nodes.
func (*reconciler) NodeChanges(context.Context, services.Request, *observed) ([]services.Change[*observed], []services.Finding, error) {
	return nil, nil, nil
}

// Deletions returns the changes that delete a Service's objects.
func (r *reconciler) Deletions(
	_ context.Context, q services.Request, o *observed,
) ([]services.Change[*observed], []services.Finding, error) {
	r.setWaiting(q.Service, false)
	if r.usesAnnotations() {
		return r.markDeletions(q.Service), nil, nil
	}
	if o.entry.UID == "" {
		return nil, nil, nil
	}
	return []services.Change[*observed]{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "entry of " + o.entry.title() + " in " + r.book.title(), Detail: texts(o.has)},
		Compare: func() (before, after any) { return o.entry, nil },
		Make: func(ctx context.Context, q *services.Request, _ *observed) (*observed, error) {
			after, err := r.book.commit(ctx, func(rec record) (record, error) { return rec.remove(string(q.Service.UID)), nil })
			if err == nil {
				r.retryWaiting()
			}
			return r.observe(q.Service, after), err
		},
	}}, nil, nil
}

// Exists implements services.Reconciler.
func (r *reconciler) Exists(_ context.Context, q services.Request, o *observed) (*v1.LoadBalancerStatus, bool, error) {
	if r.usesAnnotations() {
		_, marked := q.Service.Labels[labelImplementation]
		return q.Service.Status.LoadBalancer.DeepCopy(), marked, nil
	}
	return statusOf(o.has), o.entry.UID != "", nil
}
