// Package linode runs Kubernetes on Linode (Akamai): Linodes are nodes, NodeBalancers serve Services.
package linode

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "linode"

// Description returns what the provider tells about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "Linode (Akamai)", Stability: "alpha", SDK: "github.com/linode/linodego",
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features:           registry.Features{Instances: registry.Done, LoadBalancers: registry.Done, Routes: registry.Done},
		Extras:             []string{"node metadata", "pod ranges", "firewalls", "TLS secrets"},
		Options:            Options.Rows(),
		Annotations:        Annotations.Rows(),
		Permissions:        permissions(),
		Installation:       installation(),
		Events:             eventRows(),
		Validate:           validate,
		CheckService:       checkService,
		Routes: func(in registry.Inputs) bool {
			c, err := parseConfig(in)
			return err == nil && c.Routes
		},
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
	config        Config
	api           *api
	instances     *instances
	loadBalancers *loadBalancers
	routes        *routes
	initialize    sync.Once
	informed      sync.Once
	stop          <-chan struct{}
}

var (
	_ cloudprovider.Interface    = (*cloud)(nil)
	_ cloudprovider.InformerUser = (*cloud)(nil)
	_ registry.CloudAPI          = (*cloud)(nil)
	_ guard.Planner              = (*cloud)(nil)
	_ guard.InstanceVerifier     = (*cloud)(nil)
)

func newCloud(in registry.Inputs) (*cloud, error) {
	config, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	a, err := newAPI(config, in)
	if err != nil {
		return nil, err
	}
	if config.TokenHealth {
		if err := checkTokenAtStart(a); err != nil {
			return nil, err
		}
	}
	v := newVPCs(config, a)
	i := newInstances(config, a, v)
	l := newLoadBalancers(config, a, v, i)
	l.adopt = in.Adopt
	return &cloud{
		Cloud: cloudbase.Cloud{Name: Name, HTTP: a.http}, WithNodes: cloudbase.WithNodes{NodeAPI: i},
		config: config, api: a, instances: i, loadBalancers: l, routes: newRoutes(a, i),
	}, nil
}

// Initialize implements cloudprovider.Interface. The framework may call it twice.
func (c *cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.initialize.Do(func() {
		client := clients.ClientOrDie("cloud-provider-" + Name)
		c.stop = stop
		c.loadBalancers.kube = client
		c.loadBalancers.cluster.SetClient(client)
		c.loadBalancers.Events = events.NewRecorder(client, Name+"-cloud-controller-manager", stop)
		if c.config.TokenHealth {
			loop.New(tokenJob(c.api)).Start(stop)
		}
	})
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes, services := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	c.instances.nodes.SetLister(nodes.Lister())
	c.routes.setLister(nodes.Lister())
	c.informed.Do(func() {
		m := &metadata{kube: c.loadBalancers.kube, instances: c.instances, nodes: nodes.Lister()}
		c.begin(loop.New(m.job(time.Duration(c.config.MetadataTTL)*time.Second)), nodes.Informer(), unlabelled)
		if c.config.AllocateNodeCIDRs {
			i := newIPAM(c.config, c.loadBalancers.vpcs, c.instances)
			i.kube, i.events, i.nodes = c.loadBalancers.kube, c.loadBalancers.Events, nodes.Lister()
			c.begin(loop.New(i.job()), nodes.Informer(), nil)
		}
		t := newTLSRotation(c.loadBalancers, services.Lister())
		l := loop.New(t.job())
		t.changed, t.stop = l.Trigger, c.stop
		c.begin(l, services.Informer(), nil)
	})
	c.loadBalancers.services = services.Lister()
	c.loadBalancers.cluster.SetServices(services.Lister())
}

// begin starts a controller of the provider; objects that interest it, or all, make it run.
func (c *cloud) begin(l *loop.Loop, informer cache.SharedIndexInformer, interesting func(any) bool) {
	trigger := func(object any) {
		if interesting == nil || interesting(object) {
			l.Trigger()
		}
	}
	// A handler of an informer that has not started cannot fail to be added.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: trigger, UpdateFunc: func(_, object any) { trigger(object) }, DeleteFunc: func(any) { trigger(nil) },
	})
	l.Start(c.stop, informer.HasSynced)
}

// PlanLoadBalancer implements guard.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	return c.loadBalancers.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// LoadBalancer implements cloudprovider.Interface.
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c.loadBalancers, true }

// Routes implements cloudprovider.Interface; they are offered where the option asks for them.
func (c *cloud) Routes() (cloudprovider.Routes, bool) {
	if !c.config.Routes {
		return nil, false
	}
	return c.routes, true
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"linodes:read_only"}},
		{For: "routes", Needs: []string{"linodes:read_write"}, Only: "enable-route-controller is set"},
		{For: "VPC addresses", Needs: []string{"ips:read_only"}, Only: "VPCs are named"},
		{For: "NodeBalancers", Needs: []string{"nodebalancers:read_write"}},
		{For: "firewalls of NodeBalancers", Needs: []string{"firewall:read_only"}, Beyond: []string{"firewall:read_only"}, Without: "Services are not reconciled"},
		{For: "changing firewalls", Needs: []string{"firewall:read_write"}, Only: "firewall-id or firewall-acl is used"},
		{For: "releasing reserved addresses", Needs: []string{"ips:read_write"}, Only: "a Service reserves one"},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Credentials:  []registry.Credential{{Name: "token", Key: "token", Env: "LINODE_API_TOKEN_FILE", Help: "API token."}},
		Config:       registry.CloudConfig{Format: registry.YAML, File: "config.yaml", Example: "region: us-sea"},
		ReadsSecrets: "TLS ports of NodeBalancers",
		Secret:       Name,
		Set:          []string{"options.LINODE_REGION=us-sea"},
		Notes: []string{
			"In a VPC: `--set options.vpc-names=cluster`. For routes also `--set options.enable-route-controller=true " +
				"--set routes.clusterCIDR=10.192.0.0/10`. For TLS ports see `readSecrets`.",
		},
		Migration: registry.Migration{
			Credentials: "the Secret `ccm-linode` can stay: `credentials.keys.token=apiToken`",
			ClusterName: "no name in the cloud",
			Written:     "`anyccm.io/linode-nodebalancer-id` on each Service; a firewall for those with `loadBalancerSourceRanges`",
		},
		MaxSlimMiB: 46,
	}
}
