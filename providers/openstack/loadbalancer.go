package openstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are in it at once;
	// the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
	// backendMaxAge is for the ports of the servers behind the nodes.
	backendMaxAge = 10 * time.Minute
	// partsMaxAge is for listeners, pools and members: our own writes keep them true, and a load balancer tells when it was
	// changed last, so that a change of somebody else is seen at the next look all the same.
	partsMaxAge = 10 * time.Minute
	// updatePartsMaxAge is for them when nodes change.
	updatePartsMaxAge = 24 * time.Hour
	// floatingMaxAge is how old the knowledge of an attached floating address may be.
	floatingMaxAge = 60 * time.Second
	// newMaxAge lets one listing serve many new Services: nobody else makes what they look for.
	newMaxAge = 3 * time.Second

	// annotationMade is ours: the load balancer that we made for the Service. Unlike load-balancer-id, users do not set it.
	annotationMade = "anyccm.io/openstack-load-balancer-id"
	// annotationShareWith is ours, on the Service that a load balancer was made for.
	annotationShareWith = "anyccm.io/openstack-share-with-namespaces"
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	config    Config
	api       *api
	instances *instances
	networks  *networks
	balancers *inventory.Inventory[string, *balancer]
	parts     *inventory.Inventory[string, *details]
	outlines  *inventory.Inventory[string, *outline]
	floating  *inventory.Inventory[string, floatingIP]
	groups    *inventory.Inventory[string, securityGroup]
	monitors  *inventory.Inventory[string, *monitor]
	cluster   *ownership.Cluster
	adopt     registry.Adoption
	// room is where everybody waits for Octavia.
	room      *waiting.Room[string, *balancer]
	failovers failovers
	locks     keylock.Locks
	// looked has the IDs of load balancers whose parts were read before.
	looked sync.Map
	// proved has the UIDs of the Services whose a load balancer was proved to be that has only a likely name, by its ID.
	proved sync.Map
	// updating is how many load balancers get other members at the moment.
	updating atomic.Int64
	// clusterName is what the framework calls the cluster, as it said last.
	clusterName atomic.Value

	// Set by Initialize, before any call of the framework.
	kube   kubernetes.Interface
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

// pace is how often is looked at what Octavia works on: most changes take it a second or two, and there are many in a row.
var pace = waiting.Pace{Least: 700 * time.Millisecond, Most: 3 * time.Second}

const (
	indexPort    = "port"
	indexAddress = "address"
)

func newLoadBalancers(c Config, a *api, n *networks, i *instances, adopt registry.Adoption) *loadBalancers {
	l := &loadBalancers{
		config: c, adopt: adopt, api: a, networks: n, instances: i, cluster: &ownership.Cluster{}, failovers: failovers{last: map[string]time.Time{}},
		balancers: inventory.New(inventory.Source[string, *balancer]{
			Kind: "load balancer", ID: func(b *balancer) string { return b.ID }, List: a.listBalancers, Get: a.getBalancer,
			Indexes: map[string]func(*balancer) []string{indexName: func(b *balancer) []string { return []string{b.Name} }},
		}),
		floating: newFloatingInventory(a), groups: newGroupInventory(a), monitors: newMonitorInventory(a), outlines: newOutlineInventory(a),
	}
	l.room = waiting.New(l.balancers.Look, pace)
	l.parts = inventory.New(inventory.Source[string, *details]{
		Kind: "load balancer detail", ID: func(d *details) string { return d.balancerID }, Get: l.readParts,
	})
	return l
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancerName(_ context.Context, cluster string, service *v1.Service) string {
	return balancerName(cluster, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	lb, r, err := l.findOurs(ctx, cluster, service)
	if err != nil {
		return nil, false, err
	}
	if lb == nil || !l.served(lb, r) {
		left, err := l.leftovers(ctx, cluster, service)
		return &v1.LoadBalancerStatus{}, left, err
	}
	s, _, _ := parseSettings(service, l.config) // a fault in other annotations does not hide what is there
	address := lb.VIPAddress
	if f, err := l.attached(ctx, lb, inventory.Query{MaxAge: floatingMaxAge, MaxMissAge: floatingMaxAge, MaxUnlistedAge: floatingMaxAge}); err != nil {
		return nil, false, err
	} else if f != nil {
		address = f.Address
	}
	return statusOf(address, furtherAddresses(lb), s, l.config.LoadBalancer), true, nil
}

// served reports whether a Service has a part in a load balancer. One that it would share, and has not joined, is none.
func (l *loadBalancers) served(lb *balancer, r role) bool {
	return r.owner || r.joined(lb)
}

func furtherAddresses(lb *balancer) []string {
	var list []string
	for _, v := range lb.AdditionalVIPs {
		if v.Address != "" {
			list = append(list, v.Address)
		}
	}
	return list
}

// mostBirths bounds how often one call makes a load balancer, where the former one turns out to be going or broken.
const mostBirths = 3

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, make one change after another. What Octavia
// does meanwhile is waited for inside, for the framework warns of every other answer.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (status *v1.LoadBalancerStatus, err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_ensure", began, failed(err)) }(time.Now())
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("there are no available nodes for LoadBalancer service %s/%s", service.Namespace, service.Name)
	}
	f, err := l.api.octavia(ctx)
	if err != nil {
		return nil, err
	}
	for range mostBirths {
		lb, err := l.find(ctx, cluster, service)
		if err != nil {
			return nil, err
		}
		l.reportUnsupported(service, s, lb, f)
		if err := l.checkCertificates(ctx, service, s); err != nil {
			return nil, err
		}
		if lb == nil {
			if lb, err = l.create(ctx, cluster, service, s, f, nodes); err != nil {
				return nil, err
			}
			service = recorded(service, map[string]string{annotationID: lb.ID, annotationMade: lb.ID})
		}
		status, gone, err := l.ensure(ctx, cluster, service, s, f, lb, nodes)
		if err == nil && !gone {
			err = l.leavePrevious(ctx, cluster, service, s, lb)
		}
		if err != nil || !gone {
			return status, err
		}
		service = recorded(service, map[string]string{annotationID: "", annotationMade: ""})
	}
	return nil, errors.New("the load balancer of the Service went away as often as it was made; look into Octavia's log")
}

// recorded returns a Service with annotations that were written meanwhile; "" stands for one that was removed.
func recorded(service *v1.Service, annotations map[string]string) *v1.Service {
	service = service.DeepCopy()
	for key, value := range annotations {
		if value == "" {
			delete(service.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, key, value)
	}
	return service
}

// ensure brings the load balancer of a Service to the wanted state. gone means that it has gone, and another one is due.
func (l *loadBalancers) ensure(ctx context.Context, cluster string, service *v1.Service, s settings, f features, lb *balancer, nodes []*v1.Node) (status *v1.LoadBalancerStatus, gone bool, err error) {
	r, err := l.admit(ctx, cluster, service, s, lb, f, nodes)
	if err != nil {
		return nil, false, err
	}
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return nil, false, fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	if err := l.record(ctx, service, map[string]any{annotationID: lb.ID}); err != nil {
		return nil, false, err
	}
	if lb, err = l.settled(ctx, service, lb, r); err != nil || lb == nil {
		return nil, lb == nil && err == nil, err
	}
	status, err = l.converge(ctx, cluster, service, s, f, lb, r, nodes)
	return status, false, err
}

// failed keeps the answer "not yet" out of the count of failures.
func failed(err error) error {
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return nil
	}
	return err
}

// idle waits until Octavia works on a load balancer no longer; nil means that it has gone.
func (l *loadBalancers) idle(ctx context.Context, id, doing string, with ...waiting.Option) (*balancer, error) {
	lb, err := l.room.Until(ctx, id, fmt.Sprintf("load balancer %s: %s", id, doing), func(b *balancer) bool { return !b.pending() }, with...)
	if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && lb.Status == statusDeleted) {
		l.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return lb, err
}

// settled waits until a load balancer can be changed, and has one mended that broke; nil means that it has gone.
func (l *loadBalancers) settled(ctx context.Context, service *v1.Service, lb *balancer, r role) (after *balancer, err error) {
	switch {
	case lb.Status == statusPendingCreate:
		lb, err = l.built(ctx, service, lb, r)
	case lb.pending():
		lb, err = l.idle(ctx, lb.ID, lb.Status)
	}
	if err != nil || lb == nil {
		return lb, err
	}
	if lb.Status == statusError {
		if lb, err = l.mend(ctx, service, lb, r); err != nil || lb == nil {
			return lb, err
		}
	}
	if lb.Status != statusActive {
		return nil, fmt.Errorf("load balancer %s has the provisioning status %s, in which nothing can be done about it", lb.ID, lb.Status)
	}
	return lb, nil
}

// buildLooks are left out while a load balancer is built from machines, which takes a few seconds at least.
const buildLooks = 4

// built waits until a new load balancer is built. What can be read meanwhile is read then, and what has to be read afterwards is read
// at once, so that what follows finds all of it in memory.
func (l *loadBalancers) built(ctx context.Context, service *v1.Service, lb *balancer, r role) (*balancer, error) {
	var with []waiting.Option
	if lb.providerOr(l.config.LoadBalancer.Provider) != providerOVN { // whose load balancers are no machines
		with = append(with, waiting.SkipLooks(buildLooks))
	}
	after := lb
	err := waiting.Together(
		func() (err error) { after, err = l.idle(ctx, lb.ID, lb.Status, with...); return err },
		func() error {
			if l.config.LoadBalancer.ManageSecurityGroups {
				return nil // they are read right before they are changed
			}
			_, err := l.securityGroups(ctx, service, networksMaxAge)
			return ignored(err)
		},
	)
	if err != nil || after == nil || after.Status != statusActive || !r.owner {
		return after, err
	}
	return after, waiting.Together(
		func() error { _, err := l.observe(ctx, after); return err },
		func() error { _, err := l.attached(ctx, after, attachedNow); return ignored(err) },
	)
}

// ignored is for a read that is only made early: whoever needs what it reads gets the failure.
func ignored(error) error { return nil }

// converge brings a load balancer that can be changed to the wanted state.
func (l *loadBalancers) converge(ctx context.Context, cluster string, service *v1.Service, s settings, f features, lb *balancer, r role, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	subnetID := memberSubnet(s, l.config.LoadBalancer, lb.VIPSubnetID)
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return nil, err
	}
	want, err := l.want(service, s, r, lb, subnetID, f, members)
	if err != nil {
		l.event(service, eventConfigError, err.Error())
		return nil, err
	}
	if r.owner {
		l.reportFixed(service, s, lb, f)
	}
	lb, err = l.work(ctx, service, lb, func(lb *balancer, d *details) ([]step, error) {
		l.wantIdentity(service, lb, r, f, &want)
		steps, err := plan(lb, d, want, r)
		if err != nil {
			l.event(service, eventConfigError, err.Error())
		}
		return steps, err
	})
	switch {
	case err != nil:
		return nil, err
	case lb == nil:
		return nil, errors.New("the load balancer went away while it was changed; it is made anew")
	}
	address, err := l.publish(ctx, cluster, service, s, lb, r)
	if err != nil {
		return nil, err
	}
	if err := l.ensureSecurityGroup(ctx, service, s, subnetID, members); err != nil {
		return nil, err
	}
	if err := l.record(ctx, service, map[string]any{annotationAddress: address}); err != nil {
		return nil, err
	}
	return statusOf(address, furtherAddresses(lb), s, l.config.LoadBalancer), nil
}

// want computes the ports that a Service wants. lb is nil before there is one.
func (l *loadBalancers) want(service *v1.Service, s settings, r role, lb *balancer, subnetID string, f features, backends []backend) (desired, error) {
	want := desired{serial: l.config.LoadBalancer.Serial}
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	preferIPv6 := familyOf(service) == v1.IPv6Protocol
	var err error
	if f.acl(provider) {
		s.cidrs, err = ofFamilies(s.cidrs, service, lb)
	}
	for i := range service.Spec.Ports {
		w := wantPort(service, i, s, r, backends, subnetID, provider, f, preferIPv6)
		if lb != nil && len(lb.AdditionalVIPs) > 0 && len(s.cidrs) == 0 && len(w.listener.AllowedCIDRs) > 0 {
			w.listener.AllowedCIDRs = []string{"0.0.0.0/0", "::/0"}
		}
		want.ports = append(want.ports, w)
	}
	return want, err
}

// errNoNodes keeps a Service without any usable node from losing all its members at once.
var errNoNodes = errors.New("no node has an address for the load balancer; its members stay as they are")

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the members alone, one batch a pool and only where they differ. Where it
// changed something it looks at what is there besides; where it did not, that is left to the next reconciliation.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_update", began, failed(err)) }(time.Now())
	lb, r, err := l.findOurs(ctx, cluster, service)
	if err != nil || lb == nil || !l.served(lb, r) {
		return err
	}
	l.updating.Add(1)
	defer l.updating.Add(-1)
	s, _, settingsErr := parseSettings(service, l.config)
	if err := concerning(settingsErr, annotationNodeSelector, annotationProxyProtocol, annotationForwardedFor, annotationTLSContainerRef,
		annotationClass, annotationMemberSubnetID, annotationSubnetID, annotationSourceRanges); err != nil {
		return err
	}
	f, err := l.api.octavia(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return errNoNodes
	}
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	if lb, err = l.settled(ctx, service, lb, r); err != nil || lb == nil {
		return err
	}
	subnetID := memberSubnet(s, l.config.LoadBalancer, lb.VIPSubnetID)
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return err
	}
	want, err := l.want(service, s, r, lb, subnetID, f, members)
	if err != nil {
		return err
	}
	if err := l.ensureSecurityGroup(ctx, service, s, subnetID, members); err != nil {
		return err
	}
	planned := func(d *details) []step { return planMembers(d, want, r) }
	return l.workMembers(ctx, service, lb, planned, func(lb *balancer, d *details) []step {
		whole := want
		l.wantIdentity(service, lb, r, f, &whole)
		steps, err := plan(lb, d, whole, r)
		if settingsErr != nil || err != nil { // the next reconciliation tells what is wrong
			return planned(d)
		}
		return steps
	})
}
