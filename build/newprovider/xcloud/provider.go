// Package xcloud runs Kubernetes on Xcloud: its instances are nodes, its load balancers serve Services.
package xcloud

import (
	"context"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services" // load balancers
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "xcloud"

const providerIDPrefix = Name + "://" // nodes

// Description describes the provider.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Xcloud", Stability: "alpha", // SDK: the Go module that talks to the cloud, if there is one
		ProviderIDPrefixes: []string{providerIDPrefix}, // nodes
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.CloudHasNone, // nodes
			LoadBalancers: registry.Done, UDP: registry.Done, // load balancers
		},
		Options:      Options.Rows(),
		Annotations:  Annotations.Rows(), // load balancers
		Permissions:  permissions(),
		Installation: installation(),
		Events:       eventRows(),
		CheckService: checkService, ServiceFields: serviceFields, // load balancers
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

// cloud implements cloudprovider.Interface by embedding.
type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes         // nodes
	cloudbase.WithLoadBalancers // load balancers

	instances     *instances                                  // nodes
	reconciler    *reconciler                                 // load balancers
	loadBalancers *services.LoadBalancer[*loadBalancer, spec] // load balancers

	// identify finds the instances of nodes without a provider ID; nil where the provider has no nodes.
	identify func(context.Context, []*v1.Node) (nodes.Identified, error)
	// attest returns nodes with the addresses of their instances; nil where the provider has no nodes.
	attest func(context.Context, []*v1.Node) ([]*v1.Node, error)
}

func buildCloud(_ Config, a *api, in registry.Inputs) (*cloud, error) {
	c := &cloud{}
	c.Name, c.HTTP, c.Begin, c.Inform = Name, a.http, c.begin, c.inform

	c.instances = newInstances(a)     // nodes
	c.NodeAPI = c.instances           // nodes
	c.identify = c.instances.Identify // nodes
	c.attest = c.instances.attest     // nodes

	c.reconciler = newReconciler(a, in.Adopt)        // load balancers
	c.reconciler.attest = c.attest                   // load balancers
	c.loadBalancers = newLoadBalancers(c.reconciler) // load balancers
	c.loadBalancers.Identify = c.identify            // load balancers
	c.ServiceAPI, c.Check = c.loadBalancers, a.check // load balancers
	return c, nil
}

// begin passes the program's clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.reconciler.cluster.SetClient(b.Kube) // load balancers
	c.loadBalancers.Events = b.Events      // load balancers
}

// inform passes the caches to the parts. Start the provider's own controllers here.
func (c *cloud) inform(in cloudbase.Informers) {
	c.instances.nodes.SetLister(in.Nodes().Lister())         // nodes
	c.reconciler.cluster.SetServices(in.Services().Lister()) // load balancers
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"instances:read"}},                                       // nodes
		{For: "load balancers", Needs: []string{"load_balancers:read", "load_balancers:write"}}, // load balancers
	}
}

// installation describes how to install the provider.
func installation() registry.Installation {
	return registry.Installation{
		Credentials: []registry.Credential{{Name: "token", Key: "token", Env: "XCLOUD_TOKEN_FILE", Help: "API token."}},
		Config:      registry.CloudConfig{Format: registry.YAML, File: "config.yaml", Example: "apiURL: https://api.xcloud.example"},
		Secret:      Name,
		Migration: registry.Migration{
			Credentials: "the Secret can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing",
		},
		MaxSlimMiB: 47,
	}
}
