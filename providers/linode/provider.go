// Package linode runs Kubernetes on Linode (Akamai): Linodes are nodes, NodeBalancers serve Services.
package linode

import (
	"context"
	"sync"

	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "linode"

// Description returns what the provider tells about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "Linode (Akamai)", Stability: "alpha", SDK: "github.com/linode/linodego",
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features:           registry.Features{Instances: true, LoadBalancers: true},
		Options:            Options.Rows(),
		Annotations:        Annotations.Rows(),
		Validate:           validate,
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
	config        Config
	api           *api
	instances     *instances
	loadBalancers *loadBalancers
	initialize    sync.Once
}

var (
	_ cloudprovider.Interface    = (*cloud)(nil)
	_ cloudprovider.InformerUser = (*cloud)(nil)
	_ registry.CloudAPI          = (*cloud)(nil)
)

func newCloud(in registry.Inputs) (*cloud, error) {
	config, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	a, err := newAPI(config, in.Version)
	if err != nil {
		return nil, err
	}
	v := newVPCs(config, a)
	i := newInstances(config, a, v)
	return &cloud{config: config, api: a, instances: i, loadBalancers: newLoadBalancers(config, a, v, i)}, nil
}

// Initialize implements cloudprovider.Interface. The framework may call it twice.
func (c *cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.initialize.Do(func() {
		client := clients.ClientOrDie("cloud-provider-" + Name)
		c.loadBalancers.kube = client
		c.loadBalancers.cluster.SetClient(client)
		c.loadBalancers.events = events.NewRecorder(client, Name+"-cloud-controller-manager", stop)
	})
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	c.loadBalancers.cluster.SetServices(factory.Core().V1().Services().Lister())
}

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error { return c.instances.warm(ctx) }

// APIHealth implements registry.CloudAPI.
func (c *cloud) APIHealth() error { return c.api.http.Health() }

// InstancesV2 implements cloudprovider.Interface.
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c.instances, true }

// LoadBalancer implements cloudprovider.Interface.
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c.loadBalancers, true }

// Routes implements cloudprovider.Interface.
func (*cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// Instances implements cloudprovider.Interface; the legacy interface is not offered.
func (*cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; Linode has none.
func (*cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; the legacy interface is not offered.
func (*cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (*cloud) ProviderName() string { return Name }

// HasClusterID implements cloudprovider.Interface.
func (*cloud) HasClusterID() bool { return true }
