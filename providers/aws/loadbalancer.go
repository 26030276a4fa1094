package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// ensureMaxAge is how old the records of load balancers and of their parts may be when a Service is
	// reconciled, or its nodes change. Our own writes are in it at once; the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 60 * time.Second
	// updateTargetsMaxAge is for registered targets when nodes change: nobody else registers them, and AWS takes those out
	// that are terminated.
	updateTargetsMaxAge = 24 * time.Hour
	// otherKindMaxAge is how old the proof may be that a Service has no load balancer of the other kind.
	otherKindMaxAge = 10 * time.Minute
	// tagsMaxAge is for the tags of load balancers, which nobody changes.
	tagsMaxAge = 10 * time.Minute
	// deleteMaxAge is how old the records of what is left may be when a Service is deleted.
	deleteMaxAge = 10 * time.Second
	// backendMaxAge is for the instances behind nodes: their groups and addresses hardly change, and one that was terminated
	// meanwhile makes AWS refuse it, after which they are read again.
	backendMaxAge = 10 * time.Minute
)

// loadBalancers implements cloudprovider.LoadBalancer: it picks the reconciler of the kind of load balancer.
type loadBalancers struct {
	*shared
	classic *services.LoadBalancer[observed, desiredClassic]
	network *services.LoadBalancer[observed, desiredNetwork]
	// cluster is the value of --cluster-name, once a Service was reconciled.
	cluster atomic.Pointer[string]
	// events is set by Initialize, before any call of the framework.
	events record.EventRecorder
}

// kindReconciler reconciles one kind of load balancer.
type kindReconciler interface {
	cloudprovider.LoadBalancer
	contract.Planner
	contract.Narrower
}

var _ kindReconciler = (*loadBalancers)(nil)

// creationShows is how long a load balancer may take to show whose creation was not answered. Its name is unique.
const creationShows = 45 * time.Second

func newLoadBalancers(c Config, a *api, i *instances, n *vpcNetwork) *loadBalancers {
	parts := newShared(c, a, i, n)
	name := func(_ string, service *v1.Service) string { return loadBalancerName(service) }
	creations := &services.Creations{Shows: creationShows, Repeat: true}
	return &loadBalancers{
		shared: parts,
		classic: &services.LoadBalancer[observed, desiredClassic]{
			Reconciler: &classicReconciler{parts}, Name: name, Patience: patience, Creations: creations, Identify: i.byNode.Identify,
		},
		network: &services.LoadBalancer[observed, desiredNetwork]{
			Reconciler: &networkReconciler{shared: parts}, Name: name, Patience: patience, Creations: creations, Identify: i.byNode.Identify,
		},
	}
}

func (l *loadBalancers) setEvents(events record.EventRecorder) {
	l.events, l.classic.Events, l.network.Events = events, events, events
}

func (l *loadBalancers) setServices(services listers.ServiceLister) { l.served.lister = services }

// kinds are the reconcilers of both kinds, that of the kind which the Service asks for first.
func (l *loadBalancers) kinds(service *v1.Service) []kindReconciler {
	kinds := []kindReconciler{l.classic, l.network}
	if network, _ := kindOf(service); network {
		slices.Reverse(kinds)
	}
	return kinds
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (*loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return loadBalancerName(service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. A load balancer exists as long as anything of it is left, so that
// its Service stays until all of it is gone.
func (l *loadBalancers) GetLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service,
) (status *v1.LoadBalancerStatus, exists bool, err error) {
	for _, kind := range l.kinds(service) {
		err = services.Patiently(ctx, patience, func() (err error) {
			status, exists, err = kind.GetLoadBalancer(ctx, cluster, service)
			return err
		})
		if err != nil || exists {
			return status, exists, err
		}
	}
	return nil, false, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	l.cluster.Store(&cluster)
	if _, elsewhere := kindOf(service); elsewhere {
		l.reportPrevious(service)
		return nil, cloudprovider.ImplementedElsewhere
	}
	kinds := l.kinds(service)
	status, err := kinds[0].EnsureLoadBalancer(ctx, cluster, service, nodes)
	if err != nil {
		if narrowing := l.narrowFormerKind(ctx, cluster, service); narrowing != nil {
			err = errors.Join(err, narrowing)
		}
	}
	return status, err
}

// narrowFormerKind narrows a load balancer of another kind than the Service asks for, which is refused. What was just read shows it.
func (l *loadBalancers) narrowFormerKind(ctx context.Context, cluster string, service *v1.Service) error {
	var have bothKinds
	have.classic, _ = l.records.classics.Peek(loadBalancerName(service))
	have.network, _ = l.records.networks.Peek(loadBalancerName(service))
	if kindChanged(service, have) == nil {
		return nil
	}
	return l.kinds(service)[1].NarrowLoadBalancer(ctx, cluster, service)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer, for the kind of load balancer that the Service has.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if _, elsewhere := kindOf(service); elsewhere {
		return cloudprovider.ImplementedElsewhere
	}
	have, err := l.findLoadBalancers(ctx, service)
	switch {
	case err != nil:
		return err
	case have.network != nil:
		return l.network.UpdateLoadBalancer(ctx, cluster, service, nodes)
	case have.classic != nil:
		return l.classic.UpdateLoadBalancer(ctx, cluster, service, nodes)
	}
	return nil
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Each try begins with what is there, of either kind.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	return services.Patiently(ctx, patience, func() error {
		ctx := inventory.NotBefore(ctx, time.Now()) // nothing is deleted on what was known before
		for _, kind := range l.kinds(service) {
			if err := kind.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
				return err
			}
		}
		return nil
	})
}

// NarrowLoadBalancer implements contract.Narrower.
func (l *loadBalancers) NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error {
	if _, elsewhere := kindOf(service); elsewhere {
		return nil
	}
	return errors.Join(l.kinds(service)[0].NarrowLoadBalancer(ctx, cluster, service), l.narrowFormerKind(ctx, cluster, service))
}

// PlanLoadBalancer implements contract.Planner.
func (l *loadBalancers) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (contract.Plan, error) {
	if _, elsewhere := kindOf(service); elsewhere {
		return contract.Plan{}, cloudprovider.ImplementedElsewhere
	}
	return l.kinds(service)[0].PlanLoadBalancer(ctx, cluster, service, nodes)
}

// reportPrevious reports the load balancer that a Service had before another controller was to serve it. It costs no call.
func (l *loadBalancers) reportPrevious(service *v1.Service) {
	name := loadBalancerName(service)
	_, classic := l.records.classics.Peek(name)
	_, network := l.records.networks.Peek(name)
	if (classic || network) && l.events != nil {
		l.events.Event(service, v1.EventTypeWarning, services.EventFixed, fmt.Sprintf("load balancer %s, which was made before annotation %s was "+
			"%q, stays as it is, and its nodes are no longer updated; it is deleted with the Service", name, annotationType, service.Annotations[annotationType]))
	}
}

// bothKinds are the load balancers of a Service, of which it has one at most; both are nil if it has none.
type bothKinds struct {
	classic *classicLoadBalancer
	network *networkLoadBalancer
}

func (b bothKinds) isEmpty() bool { return b.classic == nil && b.network == nil }

// attachedGroups are the security groups of the load balancer.
func (b bothKinds) attachedGroups() []string {
	switch {
	case b.classic != nil:
		return b.classic.SecurityGroups
	case b.network != nil:
		return b.network.SecurityGroups
	}
	return nil
}

// findLoadBalancers returns the load balancers with the Service's name, from listings shared by all Services. The listing of the other kind
// may be older.
func (c *shared) findLoadBalancers(ctx context.Context, service *v1.Service) (bothKinds, error) {
	classicQuery := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}
	networkQuery := inventory.Query{MaxAge: otherKindMaxAge, MaxUnlistedAge: otherKindMaxAge}
	if network, _ := kindOf(service); network {
		classicQuery, networkQuery = networkQuery, classicQuery
	}
	var have bothKinds
	name := loadBalancerName(service)
	classics, err := c.records.classics.Find(ctx, indexName, name, classicQuery)
	if err != nil {
		return have, err
	}
	networks, err := c.records.networks.Find(ctx, indexName, name, networkQuery)
	if err != nil {
		return have, err
	}
	if len(classics) > 0 {
		have.classic = classics[0]
	}
	if len(networks) > 0 {
		have.network = networks[0]
	}
	return have, nil
}
