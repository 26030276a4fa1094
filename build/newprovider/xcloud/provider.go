// Package xcloud runs Kubernetes on Xcloud: its instances are nodes, its load balancers serve Services.
package xcloud

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "xcloud"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "Xcloud", Stability: "alpha", // SDK: the Go module that talks to the cloud, if there is one
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features:           registry.Features{Instances: registry.Done, LoadBalancers: registry.Done, Routes: registry.NotYet},
		Options:            Options.Rows(),
		Annotations:        Annotations.Rows(),
		Permissions:        permissions(),
		Installation:       installation(),
		Events:             eventRows(),
		Validate: func(in registry.Inputs) error {
			_, err := parseConfig(in)
			return err
		},
		CheckService: checkService,
		New: func(in registry.Inputs) (cloudprovider.Interface, error) {
			return newCloud(in)
		},
	}
}

func init() {
	d := Description()
	registry.Register(d)
	cloudprovider.RegisterCloudProvider(Name, registry.Factory(d))
}

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes
	instances     *instances
	reconciler    *reconciler
	loadBalancers *services.LoadBalancer[*loadBalancer, spec]
	initialize    sync.Once
}

var (
	_ cloudprovider.Interface    = (*cloud)(nil)
	_ cloudprovider.InformerUser = (*cloud)(nil)
	_ registry.CloudAPI          = (*cloud)(nil)
	_ guard.Planner              = (*cloud)(nil)
	_ guard.OrphanFinder         = (*cloud)(nil)
)

func newCloud(in registry.Inputs) (*cloud, error) {
	config, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	a := newAPI(config, in)
	i := newInstances(a)
	r := &reconciler{api: a, adopt: in.Adopt}
	return &cloud{
		Cloud: cloudbase.Cloud{Name: Name, HTTP: a.http}, WithNodes: cloudbase.WithNodes{NodeAPI: i},
		instances: i, reconciler: r,
		loadBalancers: &services.LoadBalancer[*loadBalancer, spec]{Reconciler: r, Name: loadBalancerName},
	}, nil
}

// Initialize implements cloudprovider.Interface. The framework may call it twice.
func (c *cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.initialize.Do(func() {
		client := clients.ClientOrDie("cloud-provider-" + Name)
		c.reconciler.cluster.SetClient(client)
		c.loadBalancers.Events = events.NewRecorder(client, "cloud-provider-"+Name, stop)
	})
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	c.reconciler.cluster.SetServices(factory.Core().V1().Services().Lister())
}

// LoadBalancer implements cloudprovider.Interface.
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c.loadBalancers, true }

// PlanLoadBalancer implements guard.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	return c.loadBalancers.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// Routes implements cloudprovider.Interface.
func (*cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"instances:read"}},
		{For: "load balancers", Needs: []string{"load_balancers:read", "load_balancers:write"}},
	}
}

// installation says what installing the provider takes.
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
		MaxSlimMiB: 46,
	}
}
