package digitalocean

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

const (
	// The firewall is read this often, to undo changes by others.
	firewallPeriod = 5 * time.Minute
	// firewallSpacing lets many changes of Services cause one write.
	firewallSpacing = 3 * time.Second
	firewallTimeout = 90 * time.Second
	// fixedMaxAge is for fields that never change after the creation.
	fixedMaxAge = 24 * time.Hour

	// maxUndone is how often somebody else's changes are undone within an hour until Services get an event.
	maxUndone = 3
)

// publicFirewall maintains the cloud firewall that admits traffic for Services to the nodes.
type publicFirewall struct {
	name string
	tags []string

	api      *api
	observed *inventory.Inventory[string, *godo.Firewall]
	owners   *owners
	services listers.ServiceLister
	events   record.EventRecorder
	metrics  *firewallMetrics

	// mu serializes reconciliations: two at once could create two firewalls of the same name.
	mu sync.Mutex
	// lastEvents holds the last message about each Service, to avoid repetitions.
	lastEvents map[types.UID]string
	// refused is set after the API refused the rules, perhaps because of a missing load balancer, which must not block the other ports.
	refused bool
	// missing holds load balancers proved missing; their IDs are never reused.
	missing map[string]bool
	// written is the latest state that this process wrote, or found as desired.
	written *godo.FirewallRequest
	// undone holds the times when this process undid somebody else's changes.
	undone []time.Time
}

func newPublicFirewall(r *reconciler) *publicFirewall {
	f := &publicFirewall{
		name: r.config.FirewallName, tags: r.config.FirewallTags, api: r.api, owners: r.owners, events: r.Events, metrics: newFirewallMetrics(),
		lastEvents: map[types.UID]string{}, missing: map[string]bool{},
	}
	f.observed = inventory.New(inventory.Source[string, *godo.Firewall]{
		Kind: "firewall", ID: func(f *godo.Firewall) string { return f.ID },
		List: func(ctx context.Context) ([]*godo.Firewall, int, error) {
			began := time.Now()
			all, pages, err := r.api.firewalls(ctx)
			f.metrics.observeOperation("get_by_list", began, err)
			return all, pages, err
		},
		Get: func(ctx context.Context, id string) (*godo.Firewall, error) {
			began := time.Now()
			one, err := r.api.firewall(ctx, id)
			f.metrics.observeOperation("get_by_id", began, err)
			return one, err
		},
		Indexes: map[string]func(*godo.Firewall) []string{indexName: func(f *godo.Firewall) []string { return []string{f.Name} }},
	})
	return f
}

func (f *publicFirewall) job() loop.Job {
	return loop.Job{Name: "firewall", Period: firewallPeriod, Spacing: firewallSpacing, Timeout: firewallTimeout, Run: f.reconcile}
}

// reconcile brings the firewall up to date. It costs one listing in five minutes, and a read and a write if it differs.
func (f *publicFirewall) reconcile(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	began := time.Now()
	changed, err := f.converge(ctx)
	f.metrics.observeReconcile(began, changed, err)
	if err != nil {
		return fmt.Errorf("public access firewall %s: %w", f.name, err)
	}
	return nil
}

func (f *publicFirewall) converge(ctx context.Context) (changed bool, err error) {
	have, err := f.find(ctx)
	if err != nil {
		return false, err
	}
	foreign, conflict := f.findConflict(have)
	want, unread := f.desire(ctx, have, conflict)
	if foreign {
		return false, conflict
	}
	// A missing firewall blocks nobody, but a new one without some ports would.
	if want == nil || have == nil && unread != nil {
		return false, unread
	}
	changed, err = f.apply(ctx, have, want)
	return changed, errors.Join(unread, err)
}

// findConflict returns an error if somebody else, such as another cluster, keeps a firewall of this name. foreign is set if that one is for
// other droplets, and this process has not seen it before.
func (f *publicFirewall) findConflict(have *godo.Firewall) (foreign bool, conflict error) {
	const remedy = "give each cluster a firewall of its own by PUBLIC_ACCESS_FIREWALL_NAME"
	ours := func(tag string) bool { return slices.Contains(f.tags, tag) }
	if f.written == nil && have != nil && len(have.Tags) > 0 && !slices.ContainsFunc(have.Tags, ours) {
		return true, fmt.Errorf("the firewall %s of the name %s is for droplets with the tags %s, and for none of PUBLIC_ACCESS_FIREWALL_TAGS, so that it stays "+
			"as it is: %s, or give it one of these tags", have.ID, f.name, strings.Join(have.Tags, ", "), remedy)
	}
	f.undone = slices.DeleteFunc(f.undone, func(at time.Time) bool { return time.Since(at) > time.Hour })
	if len(f.undone) < maxUndone {
		return false, nil
	}
	return false, fmt.Errorf("somebody else changes the firewall %s again and again, perhaps another cluster with that name: %s", f.name, remedy)
}

// apply creates or updates the firewall.
func (f *publicFirewall) apply(ctx context.Context, have *godo.Firewall, want *godo.FirewallRequest) (changed bool, err error) {
	if have == nil {
		klog.InfoS("Creating the public access firewall", "name", f.name, "inboundRules", len(want.InboundRules))
		return true, f.write("create", want, func() (*godo.Firewall, error) { return f.api.createFirewall(ctx, want) })
	}
	id, differ := have.ID, firewallDifferences(have, want)
	if len(differ) == 0 {
		f.written = want
		return false, nil
	}
	overwritten := f.written != nil && len(firewallDifferences(have, f.written)) > 0
	// Droplets that others have attached stay attached.
	have, err = f.observed.Get(ctx, id, inventory.Query{})
	if err == nil {
		want.DropletIDs = have.DropletIDs
		klog.InfoS("Changing the public access firewall", "firewall", id, "fields", differ, "inboundRules", len(want.InboundRules))
		err = f.write("update", want, func() (*godo.Firewall, error) { return f.api.replaceFirewall(ctx, id, want) })
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		// It was deleted, and may have been created again under the same name.
		f.observed.Forget(id)
		return false, fmt.Errorf("it is gone and will be made again: %w", err)
	}
	if err == nil && overwritten {
		f.undone = append(f.undone, time.Now())
	}
	return true, err
}

// find returns the firewall, or nil. It is always found by name, so that one created again by hand is used.
func (f *publicFirewall) find(ctx context.Context) (*godo.Firewall, error) {
	began := time.Now()
	found, err := f.observed.Find(ctx, indexName, f.name, inventory.Query{MaxAge: firewallPeriod - time.Second})
	f.metrics.observeSync(began, err)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return slices.MinFunc(found, func(a, b *godo.Firewall) int {
		return cmp.Or(strings.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	}), nil
}

// write makes one call. A failed call may have taken effect, so everything is read again.
func (f *publicFirewall) write(operation string, want *godo.FirewallRequest, call func() (*godo.Firewall, error)) error {
	began := time.Now()
	after, err := call()
	f.metrics.observeOperation(operation, began, err)
	f.refused = errors.Is(err, cloudapi.ErrInvalid)
	if err != nil {
		f.observed.InvalidateAll()
		return err
	}
	f.observed.Put(after)
	f.written = want
	return nil
}

// isStillMissing reports whether a load balancer proved missing has not been seen since.
func (f *publicFirewall) isStillMissing(id string) bool {
	if _, seen := f.owners.balancers.Peek(id); seen {
		delete(f.missing, id)
	}
	return f.missing[id]
}

// findMissing finds recorded load balancers that do not exist.
func (f *publicFirewall) findMissing(ctx context.Context, services []*v1.Service) {
	if !f.refused {
		return
	}
	var ids []string
	for _, s := range services {
		if id := recordedID(s); id != "" {
			ids = append(ids, id)
		}
	}
	// A listing may be outdated; only single reads prove that a load balancer exists or is missing.
	clear(f.missing)
	for id, seen := range f.owners.balancers.Look(ctx, ids) {
		f.missing[id] = errors.Is(seen.Err, cloudapi.ErrNotFound)
	}
}

// desire computes the firewall and reports Services whose ports stay closed, and a conflict to those that need it. unread covers Services
// whose load balancer could not be read.
func (f *publicFirewall) desire(ctx context.Context, have *godo.Firewall, conflict error) (want *godo.FirewallRequest, unread error) {
	services, err := f.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	// Older Services come first: a new one must not close the ports of an old one.
	slices.SortFunc(services, func(a, b *v1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
	})
	f.findMissing(ctx, services)
	faults := map[types.UID][]error{}
	var claims []claim
	for _, s := range services {
		needs, ownFaults, err := f.needsOf(ctx, s, have)
		unread, faults[s.UID] = errors.Join(unread, err), ownFaults
		if len(needs) > 0 {
			claims = append(claims, claim{service: s.UID, needs: needs})
		}
	}
	for uid, lacks := range fitSources(claims, have) {
		faults[uid] = append(faults[uid], lacks...)
	}
	want, leftOut := desiredFirewall(f.name, f.tags, claims)
	for _, uid := range leftOut {
		faults[uid] = append(faults[uid], fmt.Errorf("the public access firewall %s has no room for this Service: DigitalOcean allows %d rules; "+
			"use fewer or consecutive ports, load balancers of type %s, or set %s to false and open the ports in another firewall",
			f.name, digitaloceanlimits.FirewallRules.Max, godo.LoadBalancerTypeRegional, annotationFirewallManaged))
	}
	for _, c := range claims {
		faults[c.service] = append(faults[c.service], conflict)
	}
	f.writeEvents(services, faults)
	return want, unread
}

// needsOf returns what a Service needs open, with its faults. If its load balancer or its clients cannot be read, nothing new is opened.
func (f *publicFirewall) needsOf(ctx context.Context, s *v1.Service, have *godo.Firewall) (needs []opening, faults []error, unread error) {
	id := recordedID(s)
	if f.isStillMissing(id) {
		id = ""
	}
	lb, err := f.owners.findFiltered(ctx, s)
	if err != nil {
		unread = fmt.Errorf("service %s/%s: %w", s.Namespace, s.Name, err)
		lb = godo.LoadBalancer{ID: "unread", Type: godo.LoadBalancerTypeRegionalNetwork}
	}
	needs, faults = serviceOpenings(s, lb, id)
	if err != nil || have != nil && s.Spec.Type == v1.ServiceTypeLoadBalancer && clientsOf(s).Partial() {
		needs = keepOpenings(needs, have)
	}
	return needs, faults, unread
}

// writeEvents writes an event on each Service with a new problem.
func (f *publicFirewall) writeEvents(services []*v1.Service, faults map[types.UID][]error) {
	latest := map[types.UID]string{}
	for _, s := range services {
		err := errors.Join(faults[s.UID]...)
		if err == nil {
			continue
		}
		latest[s.UID] = err.Error()
		if f.lastEvents[s.UID] != latest[s.UID] {
			f.events.Event(s, v1.EventTypeWarning, eventFirewall, err.Error())
		}
	}
	f.lastEvents = latest
}

// findFiltered returns a Service's load balancer, whose clients the firewall filters: the actual one if it exists, otherwise its type and
// network by the annotations. It is empty for invalid annotations without a load balancer.
func (o *owners) findFiltered(ctx context.Context, service *v1.Service) (none godo.LoadBalancer, err error) {
	if service.Spec.Type != v1.ServiceTypeLoadBalancer {
		return none, nil
	}
	if recordedID(service) != "" || len(service.Status.LoadBalancer.Ingress) > 0 {
		q := inventory.Query{MaxAge: fixedMaxAge, MaxMissAge: backendMaxAge}
		if clientsOf(service).Partial() {
			q.MaxAge = ensureMaxAge // its own firewall decides, which may change
		}
		found, err := o.find(ctx, service, nil, q)
		if err != nil {
			return none, err
		}
		refused := found.Verdict == ownership.Refused
		if refused && len(service.Status.LoadBalancer.Ingress) == 0 {
			return none, nil // no load balancer is created for this Service
		}
		if found.lb != nil && !refused {
			return *found.lb, nil
		}
	}
	lbType := service.Annotations[annotationType]
	network := cmp.Or(service.Annotations[annotationNetwork], godo.LoadBalancerNetworkTypeExternal)
	legalType := lbType == godo.LoadBalancerTypeRegional || lbType == godo.LoadBalancerTypeRegionalNetwork
	legalNetwork := network == godo.LoadBalancerNetworkTypeExternal || network == godo.LoadBalancerNetworkTypeInternal
	if legalType && legalNetwork {
		return godo.LoadBalancer{Type: lbType, Network: network}, nil
	}
	return none, nil
}
