package vsphere

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// This file joins what uses NSX: load balancers and routes.

// nsxParts are the parts of the provider that use NSX.
type nsxParts struct {
	// nsx is nil if there are no parts.
	nsx *nsx
	// loadBalancers and routes are nil if their sections are empty.
	loadBalancers *reconciler
	routes        *routes
}

// addressReader returns the addresses of a node; none while they are unknown.
type addressReader func(context.Context, *v1.Node) ([]v1.NodeAddress, error)

// newNSXParts creates the configured parts.
func newNSXParts(c Config, in registry.Inputs, nodes *nodecount.Counter, addresses addressReader) (*nsxParts, error) {
	p := &nsxParts{}
	var err error
	if c.LoadBalancer.Enabled || c.Route.RouterPath != "" {
		if p.nsx, err = newNSX(c.NSXT, in); err != nil {
			return nil, err
		}
	}
	if c.LoadBalancer.Enabled {
		p.loadBalancers = newReconciler(c.LoadBalancer, in.Adopt, p.nsx, nodes, addresses)
	}
	if c.Route.RouterPath != "" {
		p.routes, err = newRoutes(c.Route, p.nsx, nodes, addresses)
	}
	return p, err
}

// begin passes the Kubernetes client and the recorder to the parts once the program leads.
func (p *nsxParts) begin(b cloudbase.Begun) {
	if p.nsx != nil {
		p.nsx.auth.setClient(b.Kube)
	}
	if p.loadBalancers != nil {
		p.loadBalancers.Events = b.Events
		p.loadBalancers.cluster.SetClient(b.Kube)
	}
	if p.routes != nil {
		p.routes.events = b.Events
		p.routes.cluster.SetClient(b.Kube)
	}
}

func (p *nsxParts) setInformers(factory informers.SharedInformerFactory) {
	if p.loadBalancers != nil {
		p.loadBalancers.cluster.SetServices(factory.Core().V1().Services().Lister())
	}
}

// serviceAPI returns the load balancers, or nil.
func (p *nsxParts) serviceAPI() cloudprovider.LoadBalancer {
	if p.loadBalancers == nil {
		return nil
	}
	return p.loadBalancers
}

// routeAPI returns the routes, or nil.
func (p *nsxParts) routeAPI() cloudprovider.Routes {
	if p.routes == nil {
		return nil
	}
	return p.routes
}

// check makes a cheap authenticated read, and checks that configured objects exist.
func (p *nsxParts) check(ctx context.Context) error {
	switch {
	case p.loadBalancers != nil:
		return p.loadBalancers.check(ctx)
	case p.routes != nil:
		return p.routes.check(ctx)
	}
	return nil
}

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	return errors.Join(c.WithNodes.CheckAPI(ctx), c.check(ctx))
}

// APIHealth implements registry.CloudAPI.
func (c *cloud) APIHealth() error {
	if c.nsx == nil {
		return c.Cloud.APIHealth()
	}
	return errors.Join(c.Cloud.APIHealth(), c.nsx.http.Health())
}
