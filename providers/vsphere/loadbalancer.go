package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
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
type change = services.Change[observation]

// loadBalancers implements cloudprovider.LoadBalancer; the order of the steps is that of services.LoadBalancer.
type loadBalancers struct {
	services.LoadBalancer[observation, desired]

	config  loadBalancerConfig
	nsx     *nsx
	views   *views
	cluster *ownership.Cluster
	adopt   registry.Adoption
	// addresses are those of nodes.
	addresses reach

	mu    sync.Mutex
	nodes listers.NodeLister
	// unrealized are the paths of written objects that are not realized yet, by the key of the Service.
	unrealized map[string]map[string]bool
	// erased are the paths of recently deleted objects, and when.
	erased map[string]time.Time
}

func newLoadBalancers(c loadBalancerConfig, adopt registry.Adoption, n *nsx, addresses reach) *loadBalancers {
	l := &loadBalancers{
		config: c, nsx: n, addresses: addresses, views: newViews(n), cluster: &ownership.Cluster{}, adopt: adopt,
		unrealized: map[string]map[string]bool{}, erased: map[string]time.Time{},
	}
	l.Reconciler, l.Name, l.Patience = l, loadBalancerName, realizePatience
	l.Creations = services.Creations{Shows: creationShows, Repeat: true} // a creation has the same ID at each try
	return l
}

func (l *loadBalancers) setNodes(nodes listers.NodeLister) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = nodes
}

func (l *loadBalancers) allNodes(more []*v1.Node) []*v1.Node {
	l.mu.Lock()
	lister := l.nodes
	l.mu.Unlock()
	if lister == nil {
		return more
	}
	all, err := lister.List(labels.Everything())
	if err != nil {
		return more
	}
	return slices.Concat(more, all)
}

// Validate implements services.Reconciler.
func (l *loadBalancers) Validate(r services.Request) ([]services.Finding, error) {
	warnings, err := precheck(r.Service, l.config)
	if err == nil {
		err = checkLengths(r.Cluster, r.Service)
	}
	return services.Judged(warnings, err), err
}

// configFinding returns the finding about impossible settings of a Service.
func configFinding(err error) ([]services.Finding, error) {
	if err == nil {
		return nil, nil
	}
	return []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
}

// checkLengths refuses names that are too long: NSX would refuse each object in turn.
func checkLengths(cluster string, service *v1.Service) error {
	longest := len(loadBalancerName(cluster, service)) + len(":65535")
	return nsxlimits.DisplayName.WithName("the name of its objects in NSX, " + loadBalancerName(cluster, service) + ",").CheckNumber(longest)
}

// Observe implements services.Reconciler.
func (l *loadBalancers) Observe(ctx context.Context, r services.Request) (o observation, err error) {
	q := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge}
	if r.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
	}
	key := l.indexOf(r)
	if o.pools, err = l.views.pools.Find(ctx, indexService, key, q); err != nil || r.Purpose == services.UpdateNodes {
		return o.sortByID(), err // other objects do not depend on nodes
	}
	if o.servers, err = l.views.servers.Find(ctx, indexService, key, q); err != nil {
		return o, err
	}
	if o.monitors, err = l.views.monitors.Find(ctx, indexService, key, q); err != nil {
		return o, err
	}
	if err = l.watchPools(ctx, o); err != nil {
		return o, err
	}
	o.allocations, err = l.views.allocations.Find(ctx, indexService, key, q)
	if err == nil && len(o.servers)+len(o.allocations) == 0 && (!o.isEmpty() || isLeaving(r)) {
		if err = l.searchPools(ctx, key); err == nil {
			o.allocations, err = l.views.allocations.Find(ctx, indexService, key, q)
		}
	}
	return o.sortByID(), err
}

// isForbidden reports whether NSX itself denies a right to the account, whose credential is valid.
func isForbidden(err error) bool {
	said, ok := errors.AsType[*cloudapi.Error](err)
	return ok && said.Status == http.StatusForbidden && errors.Is(err, cloudapi.ErrUnauthorized)
}

// isLeaving reports whether the Service is being deleted. Its address may be the only trace of a creation, in a pool without a class.
func isLeaving(r services.Request) bool {
	return r.Purpose == services.Delete || (r.Purpose == services.Lookup && ownership.Leaves(r.Service))
}

func (l *loadBalancers) indexOf(r services.Request) string {
	return tagIndex(l.config.owner(), r.Cluster, serviceKey(r.Service))
}

// sortByID sorts the observed objects by ID, so that decisions are reproducible.
func (o observation) sortByID() observation {
	sortObjects(o.servers)
	sortObjects(o.pools)
	sortObjects(o.monitors)
	sortObjects(o.allocations)
	return o.withAddress()
}

func sortObjects[T object](list []T) {
	slices.SortFunc(list, func(a, b T) int { return compare(a.common().ID, b.common().ID) })
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// watchPools adds the pools that may have an allocation of the Service: those of all classes, and those named by its virtual servers, which
// a class may have used before. A missing pool affects only the Services of its class.
func (l *loadBalancers) watchPools(ctx context.Context, o observation) error {
	ids, err := l.classPools(ctx)
	if err != nil {
		return err
	}
	l.views.watch(ids...)
	for _, s := range o.servers {
		l.views.watch(s.tag(scopePool))
	}
	return nil
}

// classPools returns the existing pools of all classes.
func (l *loadBalancers) classPools(ctx context.Context) (ids []string, err error) {
	classes := l.config.classes()
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		id, err := l.views.poolID(ctx, classes[name])
		if _, failed := errors.AsType[*cloudapi.Error](err); failed {
			return nil, err
		}
		if err != nil {
			klog.ErrorS(err, "Allocations in the pool of a class are not looked for", "class", name)
			continue
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// searchPools searches all pools for the address of a Service without virtual servers, which would name the pool: somebody deleted them, or
// a deletion was interrupted.
func (l *loadBalancers) searchPools(ctx context.Context, key string) error {
	pools, err := l.views.ipPools.All(ctx, inventory.Query{MaxAge: updateMaxAge})
	if err != nil {
		return err
	}
	for _, p := range pools {
		list, _, err := nsxList[ipAllocation](ctx, l.nsx, kindAllocation, pathIPPools+"/"+p.ID+"/ip-allocations")
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), isForbidden(err):
			klog.InfoS("Not looking for an address in a pool", "pool", p.ID, "reason", err.Error()) // no address could have been allocated from it
			continue
		case err != nil:
			return err
		}
		if slices.ContainsFunc(list, func(a *ipAllocation) bool { return slices.Contains(byTags(a.common()), key) }) {
			l.views.watch(p.ID)
		}
	}
	return nil
}

// marking returns the tags for the objects of a Service.
func (l *loadBalancers) marking(ctx context.Context, r services.Request) (marking, error) {
	mark, err := l.cluster.Mark(ctx)
	m := marking{owner: l.config.owner(), cluster: r.Cluster, service: serviceKey(r.Service), extra: l.config.Tags}
	if err == nil && mark != "" {
		m.marks = []string{mark, ownership.ServiceMark(r.Service.UID)}
	}
	return m, err
}

// CheckOwner implements services.Reconciler. The tags contain the cluster's name, which two clusters may share: marked objects belong to
// the marked cluster, and the address and the members decide about unmarked ones.
func (l *loadBalancers) CheckOwner(ctx context.Context, r services.Request, o observation) (observation, []services.Finding, error) {
	if o.isEmpty() {
		return o, nil, nil
	}
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return o, nil, err
	}
	title := "load balancer " + loadBalancerName(r.Cluster, r.Service)
	o, findings, err := dropForeign(r, o, mark, title)
	if err != nil {
		return o, findings, err
	}
	if o.isEmpty() || slices.ContainsFunc(o.objects(), func(x object) bool { return mark != "" && slices.Contains(marksOf(x), mark) }) {
		return o, nil, nil
	}
	decision, err := l.judge(ctx, r, o, title)
	if err == nil && decision.Verdict == ownership.Refused && r.Purpose == services.UpdateNodes {
		// The members do not decide, but the address may.
		all := o
		q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
		if all.servers, err = l.views.servers.Find(ctx, indexService, l.indexOf(r), q); err == nil {
			decision, err = l.judge(ctx, r, all.sortByID(), title)
		}
	}
	if err != nil {
		return o, nil, err
	}
	switch {
	case decision.Verdict != ownership.Refused:
		return o, nil, nil
	case r.Purpose == services.Ensure || r.Purpose == services.Plan:
		return o, services.Refused(r.Service, decision), decision.Err()
	}
	klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(r.Service), "reason", decision.Err().Error())
	return observation{}, nil, nil
}

// dropForeign drops objects with the mark of another cluster, and refuses them if the Service needs the name.
func dropForeign(r services.Request, o observation, mark, title string) (observation, []services.Finding, error) {
	isForeign := o.foreignObjects(mark)
	foreign := o.filter(isForeign)
	if foreign.isEmpty() {
		return o, nil, nil
	}
	if r.Purpose == services.Ensure || r.Purpose == services.Plan {
		err := ownership.Check(title, mark, marksOf(foreign.objects()[0]))
		if not, ok := errors.AsType[*ownership.NotOursError](err); ok {
			not.Advice = "give the clusters different names (--cluster-name)"
		}
		return o, []services.Finding{services.Warning(ownership.EventNotOurs, "%s", err)}, err
	}
	klog.InfoS("Leaving objects of another cluster alone", "service", klog.KObj(r.Service), "objects", len(foreign.objects()))
	return o.filter(func(x object) bool { return !isForeign(x) }), nil, nil
}

// judge decides who owns unmarked objects with the Service's name.
func (l *loadBalancers) judge(ctx context.Context, r services.Request, o observation, title string) (ownership.Decision, error) {
	name := loadBalancerName(r.Cluster, r.Service)
	rules := ownership.Rules{
		Adopt: l.adopt, Likely: func(s *v1.Service) []string { return []string{loadBalancerName(r.Cluster, s)} },
		Recorded: func(*v1.Service) bool { return len(o.servers) == 0 && !l.isAddressTaken(o) },
	}
	object := ownership.Object{Title: title, Name: name}
	for _, s := range o.servers {
		object.Addresses = append(object.Addresses, s.IPAddress)
	}
	return l.cluster.Judge(ctx, r.Service, object, rules, func(ctx context.Context) (t ownership.Targets, err error) {
		members, err := l.members(ctx, r.Cluster, l.allNodes(r.Nodes))
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

// isAddressTaken reports whether another owner's virtual server uses an allocated address.
func (l *loadBalancers) isAddressTaken(o observation) bool {
	return slices.ContainsFunc(o.allocations, func(a *ipAllocation) bool {
		address := a.address()
		return address != "" && len(l.views.servers.PeekIndex(indexVIP, address)) > 0
	})
}

// Desire implements services.Reconciler.
func (l *loadBalancers) Desire(ctx context.Context, r services.Request, o observation) (d desired, findings []services.Finding, err error) {
	s, _, _ := parseSettings(r.Service, l.config) // it was checked before
	members, doubt := l.members(ctx, r.Cluster, r.Nodes)
	d = desired{
		uid: string(r.Service.UID), name: loadBalancerName(r.Cluster, r.Service), key: serviceKey(r.Service), cluster: r.Cluster, class: s.Class,
		members: members, doubt: doubt, snat: snatAutoMap, algorithm: s.Algorithm, check: s.Check,
	}
	if l.config.SNATDisabled {
		d.snat = snatDisabled
	}
	class := l.config.classes()[s.Class]
	if d.marking, err = l.marking(ctx, r); err != nil {
		return d, nil, err
	}
	for _, in := range r.Service.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			d.shown = append(d.shown, in.IP)
		}
	}
	if d.poolID, err = l.views.poolID(ctx, class); err != nil && !hasUsableAddress(err, o) {
		findings, err := configFinding(err)
		return d, findings, err
	}
	if d.ports, err = l.ports(ctx, r.Service, class); err != nil {
		findings, err := configFinding(err)
		return d, findings, err
	}
	d.askedClass = s.Class
	if len(o.servers) > 0 {
		d.keepClass(o)
	}
	if slices.ContainsFunc(d.ports, func(p wantedPort) bool { return o.server(p) == nil }) {
		err = l.lbService(ctx, o, &d)
	}
	return d, findings, err
}

// hasUsableAddress reports whether a load balancer has its address, so that a missing or ambiguous pool of its class does not matter.
func hasUsableAddress(err error, o observation) bool {
	_, failed := errors.AsType[*cloudapi.Error](err)
	return !failed && len(o.servers) > 0 && o.servers[0].tag(scopePool) != ""
}

// keepClass uses the class with which a load balancer was created: its address stays.
func (d *desired) keepClass(o observation) {
	class, pool := o.servers[0].tag(scopeClass), o.servers[0].tag(scopePool)
	d.class, d.moved = cmp.Or(class, d.class), pool != "" && d.poolID != "" && pool != d.poolID
	d.poolID = cmp.Or(pool, d.poolID)
}

// Fixed implements services.Fixer. Classes with the same pool are equal.
func (*loadBalancers) Fixed(_ context.Context, _ services.Request, _ observation, d desired) ([]services.Fixed, error) {
	return []services.Fixed{services.Matching(annotationClass, d.askedClass, d.class+" in pool "+d.poolID, !d.moved)}, nil
}

// ports returns the ports of a Service, with the application profiles of its class.
func (l *loadBalancers) ports(ctx context.Context, service *v1.Service, class loadBalancerClass) (list []wantedPort, err error) {
	for _, p := range service.Spec.Ports {
		port := wantedPort{Protocol: protocolOf(p), Port: p.Port, NodePort: p.NodePort}
		path, name, kind := class.TCPAppProfilePath, class.TCPAppProfileName, typeTCPProfile
		if port.Protocol == v1.ProtocolUDP {
			path, name, kind = class.UDPAppProfilePath, class.UDPAppProfileName, typeUDPProfile
		}
		if port.Profile, err = l.views.profile(ctx, path, name, kind); err != nil {
			return nil, err
		}
		list = append(list, port)
	}
	return list, nil
}

// lbService returns the load balancer service for a new virtual server, or describes the one to create.
func (l *loadBalancers) lbService(ctx context.Context, o observation, d *desired) error {
	c := l.config
	if len(o.servers) > 0 && o.servers[0].ServicePath != "" {
		d.service = o.servers[0].ServicePath // one of them serves each address
		return nil
	}
	if c.LBServiceID != "" {
		s, err := l.views.services.Get(ctx, c.LBServiceID, inventory.Query{MaxAge: namedMaxAge, MaxMissAge: newMaxAge})
		if err != nil {
			return fmt.Errorf("the load balancer service of the section loadBalancer: %w", err)
		}
		if c.Tier1GatewayPath != "" && s.ConnectivityPath != c.Tier1GatewayPath {
			return fmt.Errorf("load balancer service %s is attached to the gateway %q, and tier1GatewayPath is %q; correct lbServiceId or tier1GatewayPath", s.ID, s.ConnectivityPath, c.Tier1GatewayPath)
		}
		d.service = pathOf(pathServices, s)
		return nil
	}
	q := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge}
	found, err := l.views.services.Find(ctx, indexGateway, c.Tier1GatewayPath, q)
	if err == nil && len(found) == 0 {
		found, err = l.ownServices(ctx, d.cluster, q)
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		sortObjects(found)
		d.service = pathOf(pathServices, found[0])
		return nil
	}
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	m := marking{owner: d.marking.owner, cluster: d.cluster, extra: d.marking.extra}
	if mark != "" {
		m.marks = []string{mark}
	}
	enabled := true
	d.newService = &lbService{
		ConnectivityPath: c.Tier1GatewayPath, Size: c.Size, Enabled: &enabled, nsxObject: nsxObject{
			ID: objectID("load balancer service", mark, d.cluster, c.Tier1GatewayPath), ResourceType: typeService, DisplayName: "cluster:" + d.cluster,
			Description: fmt.Sprintf("virtual server pool for cluster %s created by %s", d.cluster, appName), Tags: m.tags(nil),
		},
	}
	d.service = pathOf(pathServices, d.newService)
	return nil
}

// ownServices returns the load balancer services that this cluster created: with its tags, and without another cluster's mark. The tags
// contain only the name of the cluster, so that an unmarked one on another gateway may belong to a cluster of the same name.
func (l *loadBalancers) ownServices(ctx context.Context, cluster string, q inventory.Query) ([]*lbService, error) {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	found, err := l.views.services.Find(ctx, indexService, tagIndex(l.config.owner(), cluster, ""), q)
	return slices.DeleteFunc(slices.Clone(found), func(s *lbService) bool {
		elsewhere := s.ConnectivityPath != "" && s.ConnectivityPath != l.config.Tier1GatewayPath
		return ownership.Foreign(mark, marksOf(s)) || (elsewhere && len(marksOf(s)) == 0)
	}), err
}

// Complete implements services.Reconciler: all objects are realized before the Service shows its address.
func (l *loadBalancers) Complete(ctx context.Context, r *services.Request, o observation, _ desired) (observation, error) {
	shown := slices.ContainsFunc(r.Service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == o.address })
	for _, s := range o.servers {
		path := pathOf(pathServers, s)
		if shown && !l.isUnrealized(r.Service, path) {
			continue
		}
		state, why, err := l.stateOf(ctx, path)
		switch {
		case err != nil:
			return o, err
		case state == stateError:
			r.Report(services.Warning(eventNotRealized, "NSX cannot put %s in force: %s", nsxTitle(kindServer, s), why))
			return o, fmt.Errorf("NSX cannot put %s in force: %s", nsxTitle(kindServer, s), why)
		case state != stateRealized:
			l.noteUnrealized(r.Service, path)
			return o, cloudproviderapi.NewRetryError("NSX is putting "+nsxTitle(kindServer, s)+" in force", realizePause)
		}
		l.noteRealized(r.Service, path)
	}
	return o, nil
}

// stateOf returns the realized state of an object, and its error.
func (l *loadBalancers) stateOf(ctx context.Context, path string) (state, why string, err error) {
	entities, err := l.nsx.readRealized(ctx, path)
	for _, e := range entities {
		switch e.State {
		case stateError:
			return stateError, e.alarms(), nil
		case stateRealized:
			if state == "" {
				state = stateRealized
			}
		default:
			state = e.State
		}
	}
	return state, "", err
}

func (l *loadBalancers) noteUnrealized(service *v1.Service, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := serviceKey(service)
	if l.unrealized[key] == nil {
		l.unrealized[key] = map[string]bool{}
	}
	l.unrealized[key][path] = true
}

func (l *loadBalancers) noteRealized(service *v1.Service, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unrealized[serviceKey(service)], path)
}

func (l *loadBalancers) isUnrealized(service *v1.Service, path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrealized[serviceKey(service)][path]
}

func (l *loadBalancers) forget(service *v1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unrealized, serviceKey(service))
}

// Status implements services.Reconciler.
func (l *loadBalancers) Status(_ services.Request, o observation, _ desired) (*v1.LoadBalancerStatus, error) {
	if o.address == "" || len(o.servers) == 0 {
		return nil, errors.New("the load balancer has no address yet")
	}
	return statusOf(o), nil
}

func statusOf(o observation) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: o.address}}}
}

// Exists implements services.Reconciler.
func (l *loadBalancers) Exists(_ context.Context, _ services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if len(o.servers) == 0 {
		return &v1.LoadBalancerStatus{}, !o.isEmpty(), nil
	}
	return statusOf(o), true, nil
}

// check makes a cheap authenticated read, and checks that the pools of all classes exist.
func (l *loadBalancers) check(ctx context.Context) error {
	classes := l.config.classes()
	if _, err := l.views.ipPools.All(ctx, inventory.Query{MaxAge: updateMaxAge}); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if _, err := l.views.poolID(ctx, classes[name]); err != nil {
			problems = append(problems, fmt.Errorf("class %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}
