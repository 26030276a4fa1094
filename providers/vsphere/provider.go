// Package vsphere runs Kubernetes on vSphere: virtual machines of vCenter are nodes.
package vsphere

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsx"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "vsphere"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "vSphere", Stability: "alpha", SDK: "github.com/vmware/govmomi",
		InstanceTags:       registry.InstanceTags{Called: "tags: the category with the name of its tag as value", Call: "the tagging service of vCenter"},
		ProviderIDPrefixes: []string{providerIDPrefix}, InstanceKey: instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done,
			ServingCertificates: registry.CloudHasNone, LoadBalancers: registry.Done, Routes: registry.Done, UDP: registry.Done,
			ProxyProtocol: registry.CloudHasNone,
		},
		Options:      Options.Rows(),
		Annotations:  nsx.Annotations.Rows(),
		Handover:     true,
		Limits:       nsxlimits.Table,
		Permissions:  permissions(),
		Installation: installation(),
		Events:       nsx.EventRows(),
		CheckService: func(in registry.Inputs, service *v1.Service) (warnings, err error) {
			c, _, _ := parseConfig(in) // missing settings elsewhere do not matter for a Service
			return c.LoadBalancer.CheckService(service)
		},
		ServiceFields: nsx.ServiceFields,
		Routes: func(in registry.Inputs) bool {
			c, _, _ := parseConfig(in) // faults elsewhere say nothing about routes
			return c.Route.RouterPath != ""
		},
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

// cloud implements cloudprovider.Interface by what it embeds.
type cloud struct {
	cloudbase.Whole

	api       *api
	instances *instances
	*nsx.Parts
}

func buildCloud(config Config, a *api, in registry.Inputs) (c *cloud, err error) {
	c = &cloud{api: a, instances: newInstances(config, a)}
	c.Name, c.HTTP, c.NodeAPI, c.Begin = Name, a.http, c.instances, c.begin
	c.Parts, err = nsx.New(config.Config, Name, in, nsx.Nodes{
		Counter: c.instances.nodes, Addresses: c.instances.addressesOf, Identify: c.instances.Identify,
	})
	if err != nil {
		return nil, err
	}
	c.ServiceAPI, c.RouteAPI = c.Implementations()
	return c, nil
}

// CheckAPI implements registry.CloudAPI. The listing that it begins also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	return errors.Join(c.WithNodes.CheckAPI(ctx), c.Parts.CheckAPI(ctx))
}

// APIHealth implements registry.CloudAPI.
func (c *cloud) APIHealth() error { return errors.Join(c.Cloud.APIHealth(), c.Parts.APIHealth()) }

// begin makes what the program leads known to the parts. Sessions are ended with the program: vCenter has room for a limited number.
func (c *cloud) begin(b cloudbase.Begun) {
	for _, v := range c.api.vcenters {
		v.begin(b)
	}
	c.Lead(b)
	rescue.Go("ending the sessions of vCenter", func() {
		<-b.Stop
		for _, v := range c.api.vcenters {
			v.close(context.Background())
		}
	})
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	c.Parts.SetInformers(factory)
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"System.Anonymous, System.Read and System.View (the role Read-only) on the root folder, propagating"}},
		{
			For: "load balancers, in NSX-T", Only: "the section loadBalancer is set", Needs: []string{
				"create, read, update and delete for load balancing (policy_lb), IP pools and their allocations", "read for realized states",
			},
		},
		{
			For: "load balancers by one call, in NSX-T", Only: "the section loadBalancer is set", Needs: []string{"PATCH on /infra"},
			Beyond: []string{"PATCH on /infra"}, Without: "objects are made one after the other",
		},
		{For: "routes, in NSX-T", Only: "the section route is set", Needs: []string{"create, read, update and delete for static routes of the tier-1 gateway"}},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.YAML, File: "vsphere.conf", HoldsCredentials: true, Required: true,
			Sections: []registry.NamedSection{
				{Kind: sectionVCenter, Keys: vcenterKeys(), HoldsCredentials: true},
				{Kind: nsx.SectionClass, Keys: nsx.ClassKeys()},
			},
			Example: "global: {server: vcenter.example.com, user: k8s@vsphere.local, password: secret, datacenters: [production]}, " +
				"labels: {region: k8s-region, zone: k8s-zone}",
		},
		ReadsSecrets: "the credentials of vCenter and NSX-T, where the cloud config names Secrets",
		Secret:       "vsphere-cloud-config",
		Migration: registry.Migration{
			Credentials: "`vsphere.conf` and the Secrets that it names can stay",
			ClusterName: "part of the tags of load balancers and routes, keep it",
			Written:     "nothing",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/vsphere-cloud-controller-manager"}, Lease: "cloud-controller-manager",
				ConfigMap: "vsphere-cloud-config", ConfigKey: "vsphere.conf", Set: []string{"readSecrets=true"},
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=vsphere"},
					{Flag: "--cloud-config=/etc/cloud/vsphere.conf", Why: "the chart mounts the Secret"},
					{Flag: "--v=2"},
				},
				Before: "`readSecrets` is for the Secret that the cloud config names, `vsphere-cloud-secret`.",
			},
		},
		MaxSlimMiB: 55,
	}
}
