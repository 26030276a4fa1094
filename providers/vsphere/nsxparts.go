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

// nsxParts are the parts of the provider that use NSX; they exist only with the section nsxt.
type nsxParts struct {
	nsx   *nsx
	nodes *nodecount.Counter
	// loadBalancers and routes are nil if their sections are empty.
	loadBalancers *reconciler
	routes        *routes
}

// reach returns the addresses of a node; none while they are unknown.
type reach func(context.Context, *v1.Node) ([]v1.NodeAddress, error)

// newNSXParts creates the configured parts; nil if NSX is not used.
func newNSXParts(c Config, in registry.Inputs, nodes *nodecount.Counter, addresses reach) (*nsxParts, error) {
	if !c.LoadBalancer.Enabled && c.Route.RouterPath == "" {
		return nil, nil //nolint:nilnil // a cluster without NSX is an ordinary one
	}
	n, err := newNSX(c.NSXT, in)
	if err != nil {
		return nil, err
	}
	p := &nsxParts{nsx: n, nodes: nodes}
	if c.LoadBalancer.Enabled {
		p.loadBalancers = newReconciler(c.LoadBalancer, in.Adopt, n, nodes, addresses)
	}
	if c.Route.RouterPath != "" {
		if p.routes, err = newRoutes(c.Route, n, nodes, addresses); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// begin passes the Kubernetes client and the recorder to the parts once the program leads.
func (p *nsxParts) begin(b cloudbase.Begun) {
	if p == nil {
		return
	}
	p.nsx.auth.setClient(b.Kube)
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
	if p != nil && p.loadBalancers != nil {
		p.loadBalancers.cluster.SetServices(factory.Core().V1().Services().Lister())
	}
}

// serviceAPI returns the load balancers, or nil.
func (p *nsxParts) serviceAPI() cloudprovider.LoadBalancer {
	if p == nil || p.loadBalancers == nil {
		return nil
	}
	return p.loadBalancers
}

// routeAPI returns the routes, or nil.
func (p *nsxParts) routeAPI() cloudprovider.Routes {
	if p == nil || p.routes == nil {
		return nil
	}
	return p.routes
}

// check makes a cheap authenticated read, and checks that configured objects exist.
func (p *nsxParts) check(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if p.loadBalancers != nil {
		return p.loadBalancers.check(ctx)
	}
	return p.routes.check(ctx)
}

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	return errors.Join(c.WithNodes.CheckAPI(ctx), c.check(ctx))
}

// APIHealth implements registry.CloudAPI.
func (c *cloud) APIHealth() error {
	if c.nsxParts == nil {
		return c.Cloud.APIHealth()
	}
	return errors.Join(c.Cloud.APIHealth(), c.nsx.http.Health())
}
