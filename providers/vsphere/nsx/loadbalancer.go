package nsx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// realizePatience is how long a reconciliation waits until NSX has realized the writes.
	realizePatience = 30 * time.Second
	// realizePause is the time between two checks.
	realizePause = time.Second
	// creationShows is how long a creation without a response may still take effect, such as behind a proxy that gave up.
	creationShows = 45 * time.Second
)

// change is one change of a Service's objects.
type change = services.Change[observed]

// reconciler implements services.Reconciler, and cloudprovider.LoadBalancer by what it embeds.
type reconciler struct {
	services.LoadBalancer[observed, desired]

	config  loadBalancerConfig
	client  *client
	views   *views
	cluster *ownership.Cluster
	adopt   registry.Adoption
	nodes   Nodes
	// unrealized are the paths of virtual servers that this process wrote and NSX has not put in force yet. What a former process wrote
	// counts as in force once its Service shows it.
	unrealized sync.Map
	erased     erasures
}

func newReconciler(c loadBalancerConfig, adopt registry.Adoption, n *client, nodes Nodes) *reconciler {
	r := &reconciler{config: c, client: n, nodes: nodes, views: newViews(n, c.classes()), cluster: &ownership.Cluster{}, adopt: adopt}
	r.erased.at = map[string]time.Time{}
	r.Reconciler, r.Name, r.Patience, r.Identify = r, loadBalancerName, realizePatience, nodes.Identify
	r.Creations = &services.Creations{Shows: creationShows, Repeat: true} // a creation has the same ID at each try
	return r
}

// Validate implements services.Reconciler.
func (r *reconciler) Validate(req services.Request) ([]services.Finding, error) {
	warnings, err := r.config.CheckService(req.Service)
	if err == nil {
		err = checkLengths(req.Cluster, req.Service)
	}
	return services.Judged(warnings, err), err
}

// checkLengths refuses names that are too long: NSX would refuse each object in turn.
func checkLengths(cluster string, service *v1.Service) error {
	longest := len(loadBalancerName(cluster, service)) + len(":65535")
	return nsxlimits.DisplayName.WithName("the name of its objects in NSX, " + loadBalancerName(cluster, service) + ",").CheckNumber(longest)
}

// Observe implements services.Reconciler.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (o observed, err error) {
	q := ensureQuery()
	if req.Purpose == services.UpdateNodes {
		q = updateQuery()
	}
	h := r.holder(req)
	if o.pools, err = r.views.pools.Find(ctx, indexService, h.key(), q); err != nil || req.Purpose == services.UpdateNodes {
		return o.sortByID(), err // other objects do not depend on nodes
	}
	if o.servers, err = r.views.servers.Find(ctx, indexService, h.key(), q); err != nil {
		return o, err
	}
	if o.monitors, err = r.views.monitors.Find(ctx, indexService, h.key(), q); err != nil {
		return o, err
	}
	if err = r.views.watchPools(ctx, o); err != nil {
		return o, err
	}
	o.allocations, err = r.views.allocations.Find(ctx, indexService, h.key(), q)
	if err == nil && len(o.servers)+len(o.allocations) == 0 && (!o.isEmpty() || isBeingDeleted(req)) {
		if err = r.views.searchPools(ctx, h); err == nil {
			o.allocations, err = r.views.allocations.Find(ctx, indexService, h.key(), q)
		}
	}
	return o.sortByID(), err
}

// isForbidden reports whether NSX itself denies a right to the account, whose credential is valid.
func isForbidden(err error) bool {
	said, ok := errors.AsType[*cloudapi.Error](err)
	return ok && said.Status == http.StatusForbidden && errors.Is(err, cloudapi.ErrUnauthorized)
}

// isBeingDeleted reports whether the Service is being deleted. Its address may be all that is left, in a pool without a class.
func isBeingDeleted(req services.Request) bool {
	return req.Purpose == services.Delete || (req.Purpose == services.Lookup && ownership.Leaves(req.Service))
}

func (r *reconciler) holder(req services.Request) holder {
	return holder{r.config.owner(), req.Cluster, serviceKey(req.Service)}
}

// sortByID sorts the observed objects by ID, so that decisions are reproducible.
func (o observed) sortByID() observed {
	sortObjects(o.servers)
	sortObjects(o.pools)
	sortObjects(o.monitors)
	sortObjects(o.allocations)
	return o.withAddress()
}

func sortObjects[T object](list []T) {
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(a.common().ID, b.common().ID) })
}

// newMarking returns the tags for the objects of a Service.
func (r *reconciler) newMarking(ctx context.Context, req services.Request) (marking, error) {
	mark, err := r.cluster.Mark(ctx)
	m := marking{holder: r.holder(req), extra: r.config.Tags}
	if err == nil && mark != "" {
		m.marks = []string{mark, ownership.ServiceMark(req.Service.UID)}
	}
	return m, err
}

// CheckOwner implements services.Reconciler. The tags contain the cluster's name, which two clusters may share: marked objects belong to
// the marked cluster, and the address and the members decide about unmarked ones.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	if o.isEmpty() {
		return o, nil, nil
	}
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return o, nil, err
	}
	title := "load balancer " + loadBalancerName(req.Cluster, req.Service)
	o, findings, err := dropForeign(req, o, mark, title)
	if err != nil {
		return o, findings, err
	}
	if o.isEmpty() || slices.ContainsFunc(o.objects(), func(x object) bool { return mark != "" && slices.Contains(marksOf(x), mark) }) {
		return o, nil, nil
	}
	decision, err := r.judgeOwner(ctx, req, o, title)
	if err == nil && decision.Verdict == ownership.Refused && req.Purpose == services.UpdateNodes {
		// The members do not decide, but the address may.
		all := o
		if all.servers, err = r.views.servers.Find(ctx, indexService, r.holder(req).key(), updateQuery()); err == nil {
			decision, err = r.judgeOwner(ctx, req, all.sortByID(), title)
		}
	}
	if err != nil {
		return o, nil, err
	}
	switch {
	case decision.Verdict != ownership.Refused:
		return o, nil, nil
	case req.Purpose == services.Ensure || req.Purpose == services.Plan:
		return o, services.Refused(req.Service, decision), decision.Err()
	}
	klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(req.Service), "reason", decision.Err().Error())
	return observed{}, nil, nil
}

// dropForeign drops objects with the mark of another cluster, and refuses them if the Service needs the name.
func dropForeign(req services.Request, o observed, mark, title string) (observed, []services.Finding, error) {
	foreign := o.filter(func(x object) bool { return o.isForeign(x, mark) })
	if foreign.isEmpty() {
		return o, nil, nil
	}
	if req.Purpose == services.Ensure || req.Purpose == services.Plan {
		err := ownership.Check(title, mark, marksOf(foreign.objects()[0]))
		if not, ok := errors.AsType[*ownership.NotOursError](err); ok {
			not.Advice = "give the clusters different names (--cluster-name)"
		}
		return o, []services.Finding{services.Warning(ownership.EventNotOurs, "%s", err)}, err
	}
	klog.InfoS("Leaving objects of another cluster alone", "service", klog.KObj(req.Service), "objects", len(foreign.objects()))
	return o.filter(func(x object) bool { return !o.isForeign(x, mark) }), nil, nil
}

// judgeOwner decides who owns unmarked objects with the Service's name.
func (r *reconciler) judgeOwner(ctx context.Context, req services.Request, o observed, title string) (ownership.Decision, error) {
	name := loadBalancerName(req.Cluster, req.Service)
	rules := ownership.Rules{
		Adopt: r.adopt, Likely: func(s *v1.Service) []string { return []string{loadBalancerName(req.Cluster, s)} },
		Recorded: func(*v1.Service) bool { return len(o.servers) == 0 && !r.views.isAddressTaken(o) },
	}
	object := ownership.Object{Title: title, Name: name}
	for _, s := range o.servers {
		object.Addresses = append(object.Addresses, s.IPAddress)
	}
	return r.cluster.Judge(ctx, req.Service, object, rules, func(ctx context.Context) (t ownership.Targets, err error) {
		members, err := r.nodes.members(ctx, req.Cluster, slices.Concat(req.Nodes, r.nodes.Nodes()))
		if err != nil {
			return t, err
		}
		ours := map[string]bool{}
		for _, m := range members {
			ours[m.address] = m.address != ""
		}
		for _, p := range o.pools {
			for _, m := range p.Members {
				t.All++
				if ours[m.IPAddress] {
					t.Ours++
				}
			}
		}
		return t, nil
	})
}

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (d desired, _ []services.Finding, err error) {
	s, _, _ := parseSettings(req.Service, r.config) // Validate has refused a Service with faults
	members, unread := r.nodes.members(ctx, req.Cluster, req.Nodes)
	d = desired{
		uid: string(req.Service.UID), name: loadBalancerName(req.Cluster, req.Service), class: s.Class, settings: s,
		members: members, unread: unread, snat: snatAutoMap,
	}
	if r.config.SNATDisabled {
		d.snat = snatDisabled
	}
	class := r.views.classes[s.Class]
	if d.marking, err = r.newMarking(ctx, req); err != nil {
		return d, nil, err
	}
	for _, in := range req.Service.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			d.shown = append(d.shown, in.IP)
		}
	}
	if d.poolID, err = r.views.findPoolID(ctx, class); err != nil && !hasUsableAddress(err, o) {
		return d, []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
	}
	if d.ports, err = r.views.servicePorts(ctx, req.Service, class); err != nil {
		return d, []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
	}
	if len(o.servers) > 0 {
		d.keepClass(o)
	}
	if slices.ContainsFunc(d.ports, func(p servicePort) bool { return o.findServer(p) == nil }) {
		err = r.chooseService(ctx, o, &d)
	}
	return d, nil, err
}

// hasUsableAddress reports whether a load balancer has its address, so that a missing or ambiguous pool of its class does not matter.
func hasUsableAddress(err error, o observed) bool {
	_, failed := errors.AsType[*cloudapi.Error](err)
	return !failed && len(o.servers) > 0 && o.servers[0].tag(scopePool) != ""
}

// keepClass uses the class with which a load balancer was created: its address stays.
func (d *desired) keepClass(o observed) {
	class, pool := o.servers[0].tag(scopeClass), o.servers[0].tag(scopePool)
	d.class, d.moved = cmp.Or(class, d.class), pool != "" && d.poolID != "" && pool != d.poolID
	d.poolID = cmp.Or(pool, d.poolID)
}

// Fixed implements services.Fixer. Classes with the same pool are equal.
func (*reconciler) Fixed(_ context.Context, _ services.Request, _ observed, d desired) ([]services.Fixed, error) {
	return []services.Fixed{services.Matching(annotationClass, d.settings.Class, d.class+" in pool "+d.poolID, !d.moved)}, nil
}

// chooseService chooses the load balancer service for new virtual servers, or describes the one to create.
func (r *reconciler) chooseService(ctx context.Context, o observed, d *desired) error {
	c := r.config
	if len(o.servers) > 0 && o.servers[0].ServicePath != "" {
		d.service = o.servers[0].ServicePath // one of them serves each address
		return nil
	}
	if c.LBServiceID != "" {
		s, err := r.views.services.Get(ctx, c.LBServiceID, inventory.Query{MaxAge: namedMaxAge, MaxMissAge: newMaxAge})
		if err != nil {
			return fmt.Errorf("the load balancer service of the section loadBalancer: %w", err)
		}
		if c.Tier1GatewayPath != "" && s.ConnectivityPath != c.Tier1GatewayPath {
			return fmt.Errorf("load balancer service %s is attached to the gateway %q, and tier1GatewayPath is %q; correct lbServiceId or tier1GatewayPath", s.ID, s.ConnectivityPath, c.Tier1GatewayPath)
		}
		d.service = pathOf(s)
		return nil
	}
	found, err := r.views.services.Find(ctx, indexGateway, c.Tier1GatewayPath, ensureQuery())
	if err == nil && len(found) == 0 {
		found, err = r.ownServices(ctx, d.marking.cluster, ensureQuery())
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		sortObjects(found)
		d.service = pathOf(found[0])
		return nil
	}
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	m := marking{holder: holder{owner: d.marking.owner, cluster: d.marking.cluster}, extra: d.marking.extra}
	if mark != "" {
		m.marks = []string{mark}
	}
	d.newService = &lbService{
		ConnectivityPath: c.Tier1GatewayPath, Size: c.Size, Enabled: new(true), commonFields: commonFields{
			ID: objectID("load balancer service", mark, d.marking.cluster, c.Tier1GatewayPath), ResourceType: typeService, DisplayName: "cluster:" + d.marking.cluster,
			Description: fmt.Sprintf("virtual server pool for cluster %s created by %s", d.marking.cluster, appName), Tags: m.tags(nil),
		},
	}
	d.service = pathOf(d.newService)
	return nil
}

// ownServices returns the load balancer services that this cluster created: with its tags, and without another cluster's mark. The tags
// contain only the name of the cluster, so that an unmarked one on another gateway may belong to a cluster of the same name.
func (r *reconciler) ownServices(ctx context.Context, cluster string, q inventory.Query) ([]*lbService, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	found, err := r.views.services.Find(ctx, indexService, holder{owner: r.config.owner(), cluster: cluster}.key(), q)
	return slices.DeleteFunc(slices.Clone(found), func(s *lbService) bool {
		elsewhere := s.ConnectivityPath != "" && s.ConnectivityPath != r.config.Tier1GatewayPath
		return ownership.Foreign(mark, marksOf(s)) || (elsewhere && len(marksOf(s)) == 0)
	}), err
}

// Complete implements services.Reconciler: all objects are realized before the Service shows its address.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, o observed, _ desired) (observed, error) {
	shown := slices.ContainsFunc(req.Service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == o.address })
	for _, s := range o.servers {
		path := pathOf(s)
		if _, written := r.unrealized.Load(path); shown && !written {
			continue
		}
		state, why, err := r.client.realizedState(ctx, path)
		switch {
		case err != nil:
			return o, err
		case state == stateError:
			req.Report(services.Warning(eventNotRealized, "NSX cannot put %s in force: %s", titleOf(s), why))
			return o, fmt.Errorf("NSX cannot put %s in force: %s", titleOf(s), why)
		case state != stateRealized:
			r.unrealized.Store(path, nil)
			return o, cloudproviderapi.NewRetryError("NSX is putting "+titleOf(s)+" in force", realizePause)
		}
		r.unrealized.Delete(path)
	}
	return o, nil
}

// Status implements services.Reconciler.
func (r *reconciler) Status(_ services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	if o.address == "" || len(o.servers) == 0 {
		return nil, errors.New("the load balancer has no address yet")
	}
	return statusOf(o), nil
}

func statusOf(o observed) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: o.address}}}
}

// Exists implements services.Reconciler.
func (r *reconciler) Exists(_ context.Context, _ services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if len(o.servers) == 0 {
		return &v1.LoadBalancerStatus{}, !o.isEmpty(), nil
	}
	return statusOf(o), true, nil
}

// check makes a cheap authenticated read, and checks that the pools of all classes exist.
func (r *reconciler) check(ctx context.Context) error {
	classes := r.views.classes
	if _, err := r.views.ipPools.All(ctx, inventory.Query{MaxAge: updateMaxAge}); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if _, err := r.views.findPoolID(ctx, classes[name]); err != nil {
			problems = append(problems, fmt.Errorf("class %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}
