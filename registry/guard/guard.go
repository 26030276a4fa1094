// Package guard stands between the framework and the running cloud provider.
//
// The framework trusts its provider: it deletes a Node at the first "gone", crashes on a missing answer, and calls the same load balancer
// from two workers at once. The guard makes those impossible in one place, for every provider.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// instanceDeadline bounds one question about a node. The framework's contexts have none, and with few workers
	// one hung call would stop a whole loop.
	instanceDeadline = 60 * time.Second
	// loadBalancerDeadline bounds one operation on a load balancer, including the cloud's own work: the framework would report a warning if
	// it ended earlier.
	loadBalancerDeadline = 15 * time.Minute
	// routeDeadline bounds one call about routes.
	routeDeadline = 2 * time.Minute
)

// Facts describe the wrapped provider to the guard.
type Facts struct {
	// Provider is the provider's name.
	Provider string
	// ProviderIDPrefixes are the beginnings of spec.providerID that belong to the provider.
	ProviderIDPrefixes []string
	// InstanceKey returns the same key for all forms of an instance's provider ID, and "" for an ID that is not the provider's. nil means
	// that there is one form, with one of the prefixes.
	InstanceKey func(providerID string) string
	// Unmanaged returns why a Node is ignored regardless of its provider ID, or ""; nil ignores none.
	Unmanaged func(*v1.Node) string
	// ClusterCIDR holds the networks of the cluster's pods, separated by commas; all routes are inside them.
	ClusterCIDR string
	// Policy says which Nodes are ours and when one may be deleted.
	Policy Policy
	// Translate converts a Service's portable annotations to the provider's own; nil changes nothing.
	Translate func(*v1.Service) portable.Translation
	// FindIneffective returns problems for annotations without effect; nil finds none.
	FindIneffective func(*v1.Service) error
}

// Cloud is a guarded cloud.
type Cloud struct {
	inner cloudprovider.Interface
	facts Facts

	meters        *meters
	ownership     *ownership
	reports       *reports
	decider       *decider
	verification  *verification
	instances     *instances
	loadBalancers *loadBalancers
	routes        *routes

	// stop is set by Initialize, which the framework calls before SetInformers.
	stop        <-chan struct{}
	orphanCount sync.Once
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InformerUser = (*Cloud)(nil)
)

// Wrap puts the guard around a cloud.
func Wrap(inner cloudprovider.Interface, facts Facts) *Cloud {
	c := &Cloud{inner: inner, facts: facts, meters: newMeters(), reports: &reports{}}
	c.ownership = &ownership{facts: facts, meters: c.meters, reports: c.reports}
	c.decider = &decider{
		policy: facts.Policy, ownership: c.ownership, checkAccount: c.CheckAPI,
		nodes: map[string]*nodeRecord{}, doubted: map[string]*nodeRecord{},
	}
	c.verification = newVerification(inner, facts.Policy, c.reports)
	if in, ok := inner.InstancesV2(); ok && in != nil {
		c.decider.inner = in
		c.instances = &instances{
			inner: in, facts: facts, meters: c.meters, ownership: c.ownership, decider: c.decider, claims: &claims{}, reports: c.reports,
		}
	}
	if lb, ok := inner.LoadBalancer(); ok && lb != nil {
		c.loadBalancers = &loadBalancers{inner: lb, facts: facts, ownership: c.ownership, verification: c.verification, reports: c.reports}
	}
	if r, ok := inner.Routes(); ok && r != nil {
		c.routes = &routes{
			inner: r, ownership: c.ownership, verification: c.verification, reports: c.reports, cluster: parseNetworks(facts.ClusterCIDR),
		}
	}
	return c
}

// Initialize implements cloudprovider.Interface.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.reports.start(clients, stop)
	c.stop = stop
	if c.loadBalancers != nil {
		c.loadBalancers.states.endWith(stop)
		c.loadBalancers.finalizers.start(clients.ClientOrDie("service-controller").CoreV1())
	}
	c.inner.Initialize(clients, stop)
}

// SetInformers implements cloudprovider.InformerUser for the guard, and for providers that need informers: those show only our Nodes.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.ownership.setLister(factory.Core().V1().Nodes().Lister())
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(c.decider.nodeHandler()); err != nil {
		klog.ErrorS(err, "Nodes cannot be watched; their age counts from the first question about them")
	}
	services := factory.Core().V1().Services()
	synced, lister := services.Informer().HasSynced, services.Lister()
	if c.loadBalancers != nil {
		c.loadBalancers.states.setServices(func() (listers.ServiceLister, bool) { return lister, synced() })
		if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(c.loadBalancers.labelHandler()); err != nil {
			klog.ErrorS(err, "Changes of labels cannot be followed; "+portable.BackendSelector+" follows them when Nodes come and go")
		}
		if _, err := services.Informer().AddEventHandler(c.loadBalancers.states.waitHandler()); err != nil {
			klog.ErrorS(err, "Services cannot be watched; the time that one has no load balancer counts from its creation")
		}
	}
	c.orphanCount.Do(func() {
		rescue.Go("counting load balancers", func() { c.countOrphans(c.stop, synced, lister) })
	})
	if user, ok := c.inner.(cloudprovider.InformerUser); ok {
		user.SetInformers(c.providersView(factory))
	}
}

// CheckAPI checks the cloud's API; a cloud without a check passes.
func (c *Cloud) CheckAPI(ctx context.Context) (err error) {
	defer recoverPanic(&err, "CheckAPI", c.facts.Provider)
	if api, ok := c.inner.(interface{ CheckAPI(context.Context) error }); ok {
		return api.CheckAPI(ctx)
	}
	return nil
}

// ClockSkew returns how far this machine's clock is ahead of the cloud's, and whether that is known.
func (c *Cloud) ClockSkew() (time.Duration, bool) {
	if clock, ok := c.inner.(interface{ ClockSkew() (time.Duration, bool) }); ok {
		return clock.ClockSkew()
	}
	return 0, false
}

// CheckSettings checks settings that need the cloud's API; a cloud without a check passes.
func (c *Cloud) CheckSettings(ctx context.Context) error {
	if checker, ok := c.inner.(interface{ CheckSettings(context.Context) error }); ok {
		return checker.CheckSettings(ctx)
	}
	return nil
}

// ControllerRunner is implemented by clouds with controllers of their own that --controllers switches.
type ControllerRunner interface {
	// StartController runs a controller until the context ends, or returns false if the cloud has none of that name. It must not block. An
	// error ends the program.
	StartController(ctx context.Context, name string) (started bool, err error)
}

// StartController implements ControllerRunner.
func (c *Cloud) StartController(ctx context.Context, name string) (bool, error) {
	if runner, ok := c.inner.(ControllerRunner); ok {
		return runner.StartController(ctx, name)
	}
	return false, nil
}

// APIHealth returns the error of the last API call; a cloud without it is healthy.
func (c *Cloud) APIHealth() error {
	if api, ok := c.inner.(interface{ APIHealth() error }); ok {
		return api.APIHealth()
	}
	return nil
}

// InstancesV2 implements cloudprovider.Interface.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) {
	if c.instances == nil {
		return nil, false
	}
	return c.instances, true
}

// LoadBalancer implements cloudprovider.Interface.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	if c.loadBalancers == nil {
		return nil, false
	}
	return c.loadBalancers, true
}

// Routes implements cloudprovider.Interface.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) {
	if c.routes == nil {
		return nil, false
	}
	return c.routes, true
}

// Instances implements cloudprovider.Interface; the legacy interface is never offered.
func (*Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; the legacy interface is never offered.
func (*Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; the legacy interface is never offered.
func (*Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (c *Cloud) ProviderName() string { return c.facts.Provider }

// HasClusterID implements cloudprovider.Interface.
func (c *Cloud) HasClusterID() bool { return c.inner.HasClusterID() }

// errPanic is part of every error that a recovered panic becomes.
var errPanic = errors.New("the provider crashed; this is a bug, please report it with the log")

// recoverPanic turns a panic into an error: the framework would end the process, with all other controllers.
func recoverPanic(err *error, operation, object string) {
	if r := recover(); r != nil {
		klog.ErrorS(errPanic, "Recovered from a panic", "operation", operation, "object", object, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s of %s: %w", operation, object, errPanic)
	}
}
