// Package openstack runs Kubernetes on OpenStack: Nova's servers are nodes, Octavia's load balancers serve Services.
package openstack

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "openstack"

// Description returns what the provider tells about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "OpenStack", Stability: "alpha", SDK: "github.com/gophercloud/gophercloud/v2",
		ProviderIDPrefixes: []string{providerIDPrefix},
		InstanceKey:        instanceKey,
		Features:           registry.Features{Instances: registry.Done, LoadBalancers: registry.Done, Routes: registry.Done},
		Extras:             []string{"load balancers shared between Services", "repair of load balancers in ERROR"},
		Unserved:           unserved, Fields: fields(),
		Routes: func(in registry.Inputs) bool {
			c, _, err := parseConfig(in)
			return err == nil && c.RouterID != ""
		},
		Options: Options.Rows(), Annotations: Annotations.Rows(), Events: eventRows(),
		Permissions: permissions(), Installation: installation(),
		Validate: validate, CheckService: checkService, New: registry.Maker(newCloud),
	}
}

func init() { registry.Register(Description()) }

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Whole

	config        Config
	api           *api
	instances     *instances
	loadBalancers *loadBalancers
	routes        *routes
	informed      sync.Once
	stop          <-chan struct{}
}

func newCloud(in registry.Inputs) (*cloud, error) {
	config, warnings, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	for _, w := range schema.Problems(warnings) {
		klog.Warning(w.Error())
	}
	a, err := newAPI(config, in)
	if err != nil {
		return nil, err
	}
	n := newNetworks(a)
	i := newInstances(config, a, n)
	c := &cloud{
		config: config, api: a, instances: i, loadBalancers: newLoadBalancers(config, a, n, i, in.Adopt), routes: newRoutes(config, a, i),
	}
	if config.LoadBalancer.Enabled {
		c.ServiceAPI = c.loadBalancers
	}
	if config.RouterID != "" {
		c.RouteAPI = c.routes
	}
	c.Name, c.HTTP, c.NodeAPI, c.Begin = Name, a.http, i, c.begin
	return c, nil
}

// begin makes what the program leads known to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.stop = b.Stop
	c.loadBalancers.kube, c.loadBalancers.Events = b.Kube, b.Events
	c.loadBalancers.cluster.SetClient(b.Kube)
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes().Lister()
	c.instances.nodes.SetLister(nodes)
	c.routes.setLister(nodes)
	services := factory.Core().V1().Services()
	c.loadBalancers.cluster.SetServices(services.Lister())
	if c.config.LoadBalancer.Enabled {
		c.informed.Do(func() {
			loop.New(c.loadBalancers.healthJob(services.Lister())).Start(c.stop, services.Informer().HasSynced)
		})
	}
}

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	services := []kind{compute, network}
	if c.config.LoadBalancer.Enabled {
		services = append(services, loadBalancer)
	}
	if err := c.api.checkCatalog(ctx, services...); err != nil {
		return err
	}
	return c.instances.CheckAPI(ctx)
}

// checkService judges a Service without any network. Credentials that are missing say nothing about it, nor does a class
// where no cloud config was given.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	c, _, _ := parseConfig(in)
	s, warnings, err := parseSettings(service, c)
	problems := schema.Problems(err)
	if len(in.File) == 0 {
		kept := problems[:0]
		for _, p := range problems {
			if concerning(p, annotationClass) == nil {
				kept = append(kept, p)
			}
		}
		problems = kept
	}
	if c.LoadBalancer.Provider != providerOVN {
		_, rangeErr := ofFamilies(s.cidrs, service, nil)
		problems = append(problems, rangeErr)
	}
	return warnings, errors.Join(problems...)
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"reader"}},
		{For: "load balancers", Needs: []string{"load-balancer_member", "member"}},
		{For: "certificates", Needs: []string{"reader of Barbican's containers and secrets"}, Only: "Services name certificates"},
		{For: "routes", Needs: []string{"update_router", "update_port:allowed_address_pairs"}, Only: "[Route] router-id is set"},
		{For: "a floating address by loadBalancerIP that does not exist yet", Needs: []string{"create_floatingip:floating_ip_address"}, Only: "a Service asks for one; an administrator's right by default"},
		{
			For: "failover of load balancers in ERROR", Needs: []string{"load-balancer_admin"}, Only: "without it, events ask an administrator",
			Beyond: []string{"load-balancer_admin"}, Without: "a load balancer in ERROR waits for an administrator",
		},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, File: "cloud.conf", HoldsCredentials: true, Required: true, Example: "Global: {auth-url: https://keystone/v3}",
		},
		Secret: Name,
		Notes:  []string{"For routes set `[Route] router-id` and `routes.clusterCIDR`."},
		Migration: registry.Migration{
			Credentials: "the Secret with `cloud.conf` can stay",
			ClusterName: "part of the names of load balancers, keep it",
			Written:     "nothing",
		},
		MaxSlimMiB: 47,
	}
}
