// Package nsx runs the load balancers and routes of NSX-T, for nodes of any kind.
package nsx

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Nodes answers questions about the nodes that get traffic.
type Nodes struct {
	*nodecount.Counter
	// Addresses returns those of a node; none while they are unknown.
	Addresses func(context.Context, *v1.Node) ([]v1.NodeAddress, error)
	// Identify finds the instances of nodes that have no provider ID; nil if no node has one by which it could be found.
	Identify func(context.Context, []*v1.Node) (nodes.Identified, error)
}

// Parts are the parts of a cloud that use NSX.
type Parts struct {
	// client is nil if there are no parts.
	client *client
	// loadBalancers and routes are nil if their sections are empty.
	loadBalancers *reconciler
	routes        *routes
}

// New creates the configured parts of a provider.
func New(c Config, provider string, in registry.Inputs, nodes Nodes) (*Parts, error) {
	p := &Parts{}
	var err error
	if c.LoadBalancer.Enabled || c.Route.RouterPath != "" {
		if p.client, err = newClient(c.NSXT, provider, in); err != nil {
			return nil, err
		}
	}
	if c.LoadBalancer.Enabled {
		p.loadBalancers = newReconciler(c.LoadBalancer, in.Adopt, p.client, nodes)
	}
	if c.Route.RouterPath != "" {
		p.routes, err = newRoutes(c.Route, p.client, nodes)
	}
	return p, err
}

// Lead passes the Kubernetes client and the recorder to the parts once the program leads.
func (p *Parts) Lead(b cloudbase.Begun) {
	if p.client != nil {
		p.client.auth.setClient(b.Kube)
	}
	if p.loadBalancers != nil {
		p.loadBalancers.Events, p.loadBalancers.erased.since = b.Events, time.Now()
		p.loadBalancers.cluster.SetClient(b.Kube)
	}
	if p.routes != nil {
		p.routes.events = b.Events
		p.routes.cluster.SetClient(b.Kube)
	}
}

// SetInformers passes the caches of the cluster's objects to the parts.
func (p *Parts) SetInformers(factory informers.SharedInformerFactory) {
	if p.loadBalancers != nil {
		p.loadBalancers.cluster.SetServices(factory.Core().V1().Services().Lister())
	}
}

// Implementations returns the load balancers and the routes, nil where there are none.
func (p *Parts) Implementations() (l cloudprovider.LoadBalancer, r cloudprovider.Routes) {
	if p.loadBalancers != nil {
		l = p.loadBalancers
	}
	if p.routes != nil {
		r = p.routes
	}
	return l, r
}

// CheckAPI makes a cheap authenticated read, and checks that configured objects exist.
func (p *Parts) CheckAPI(ctx context.Context) error {
	switch {
	case p.loadBalancers != nil:
		return p.loadBalancers.check(ctx)
	case p.routes != nil:
		return p.routes.check(ctx)
	}
	return nil
}

// APIHealth is that of NSX's API, as the last calls showed it.
func (p *Parts) APIHealth() error {
	if p.client == nil {
		return nil
	}
	return p.client.http.Health()
}
