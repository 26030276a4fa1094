// Package cloudbase holds the code shared by all clouds: Maker completes a cloud's description, and a cloud's type embeds Cloud and one of
// the With types for each thing that the cloud has.
package cloudbase

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/events"
)

// Cloud implements the parts of cloudprovider.Interface and registry.CloudAPI that do not depend on the cloud. The With types embedded
// beside it replace its defaults.
type Cloud struct {
	nothing

	// Name is the value of --cloud-provider.
	Name string
	// HTTP is the client for every call to the cloud's API; nil if there is no API but that of Kubernetes.
	HTTP *cloudapi.Client
	// EventSource is the source of events; empty means cloud-provider-<name>.
	EventSource string
	// Begin is called once, by the first Initialize, before the framework asks anything; nil where there is nothing to do.
	Begin func(Begun)
	// Inform is called once, after Begin, when the informers are made and have not started; nil where the cloud needs none. It
	// starts the cloud's own controllers.
	Inform func(Informers)

	begun, informed sync.Once
	stop            <-chan struct{}
}

// Begun is passed to a cloud once the program leads.
type Begun struct {
	Kube   kubernetes.Interface
	Events record.EventRecorder
	// Stop is closed when the program ends.
	Stop <-chan struct{}
}

// Informers are those of the cluster. Objects are watched only if a cloud requests them.
type Informers struct {
	coreinformers.Interface
	// Stop is closed when the program ends.
	Stop <-chan struct{}
}

// Run starts a controller of the cloud once the objects are cached.
func (i Informers) Run(job loop.Job, objects cache.SharedIndexInformer) {
	loop.New(job).Start(i.Stop, objects.HasSyncedChecker())
}

// RunOnChanges is Run for a controller that also runs when an object changes that is interesting, or any if interesting is nil.
func (i Informers) RunOnChanges(job loop.Job, objects cache.SharedIndexInformer, interesting func(any) bool) {
	i.RunLoopOnChanges(loop.New(job), objects, interesting)
}

// RunLoopOnChanges is RunOnChanges for a loop that the cloud triggers as well.
func (i Informers) RunLoopOnChanges(l *loop.Loop, objects cache.SharedIndexInformer, interesting func(any) bool) {
	trigger := func(object any) {
		if interesting == nil || interesting(object) {
			l.Trigger()
		}
	}
	// A handler of an informer that has not started cannot fail to be added.
	_, _ = objects.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: trigger, UpdateFunc: func(_, object any) { trigger(object) }, DeleteFunc: func(any) { trigger(nil) },
	})
	l.Start(i.Stop, objects.HasSyncedChecker())
}

// Initialize implements cloudprovider.Interface. The framework may call it twice.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.begun.Do(func() {
		c.stop = stop
		source := "cloud-provider-" + c.Name
		client := clients.ClientOrDie(source)
		if c.EventSource != "" {
			source = c.EventSource
		}
		if c.Begin != nil {
			c.Begin(Begun{Kube: client, Events: events.NewRecorder(client, source, stop), Stop: stop})
		}
	})
}

// SetInformers implements cloudprovider.InformerUser. The framework calls it after Initialize.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.informed.Do(func() {
		if c.Inform != nil {
			c.Inform(Informers{Interface: factory.Core().V1(), Stop: c.stop})
		}
	})
}

// APIHealth implements registry.CloudAPI.
func (c *Cloud) APIHealth() error {
	if c.HTTP == nil {
		return nil
	}
	return c.HTTP.Health()
}

// ClockSkew implements registry.Clock.
func (c *Cloud) ClockSkew() (time.Duration, bool) {
	if c.HTTP == nil {
		return 0, false
	}
	return c.HTTP.ClockSkew()
}

// ProviderName implements cloudprovider.Interface.
func (c *Cloud) ProviderName() string { return c.Name }

// HasClusterID implements cloudprovider.Interface. The program starts without an ID; operations that need one wait for it.
func (*Cloud) HasClusterID() bool { return true }

// Instances implements cloudprovider.Interface; the legacy interface is not offered.
func (*Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; the legacy interface is not offered, because the metadata of instances carries zones.
func (*Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; the legacy interface is not offered.
func (*Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Whole is embedded by a cloud with nodes, load balancers and routes.
type Whole struct {
	Cloud
	WithNodes
	WithLoadBalancers
	WithRoutes
}

// nothing is embedded by clouds: it declines interfaces that a cloud does not implement.
type nothing struct{}

// InstancesV2 implements cloudprovider.Interface.
func (nothing) InstancesV2() (cloudprovider.InstancesV2, bool) { return nil, false }

// LoadBalancer implements cloudprovider.Interface.
func (nothing) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Routes implements cloudprovider.Interface.
func (nothing) Routes() (cloudprovider.Routes, bool) { return nil, false }

// WithNodes is embedded by a cloud with nodes.
type WithNodes struct {
	// NodeAPI implements the calls about nodes.
	NodeAPI nodes.API
}

// InstancesV2 implements cloudprovider.Interface.
func (w WithNodes) InstancesV2() (cloudprovider.InstancesV2, bool) { return w.NodeAPI, true }

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (w WithNodes) CheckAPI(ctx context.Context) error { return w.NodeAPI.CheckAPI(ctx) }

// VerifyInstance implements contract.InstanceVerifier.
func (w WithNodes) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	return w.NodeAPI.VerifyInstance(ctx, node)
}

// AttestInstance implements contract.InstanceAttester.
func (w WithNodes) AttestInstance(ctx context.Context, node *v1.Node) (a contract.Attested, why string, err error) {
	return w.NodeAPI.AttestInstance(ctx, node)
}

// WithLoadBalancers answers the parts that a cloud with load balancers has.
type WithLoadBalancers struct {
	Checked

	// ServiceAPI serves Services, and is a contract.Planner; nil if an option disables that.
	ServiceAPI cloudprovider.LoadBalancer
}

// Checked checks the API of a cloud without nodes; WithNodes has a better check.
type Checked struct {
	// Check makes a cheap authenticated read.
	Check func(context.Context) error
}

// CheckAPI implements registry.CloudAPI.
func (c Checked) CheckAPI(ctx context.Context) error {
	if c.Check == nil {
		return nil
	}
	return c.Check(ctx)
}

// LoadBalancer implements cloudprovider.Interface.
func (w WithLoadBalancers) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return w.ServiceAPI, w.ServiceAPI != nil
}

// PlanLoadBalancer implements contract.Planner.
func (w WithLoadBalancers) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (contract.Plan, error) {
	planner, ok := w.ServiceAPI.(contract.Planner)
	if !ok {
		return contract.Plan{}, errors.New("this provider serves no Services, or cannot say beforehand what it would do")
	}
	return planner.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// WithRoutes is embedded by a cloud with routes.
type WithRoutes struct {
	// RouteAPI manages routes; nil if they are disabled.
	RouteAPI cloudprovider.Routes
}

// Routes implements cloudprovider.Interface.
func (w WithRoutes) Routes() (cloudprovider.Routes, bool) { return w.RouteAPI, w.RouteAPI != nil }
