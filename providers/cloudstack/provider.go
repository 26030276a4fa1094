// Package cloudstack runs Kubernetes on Apache CloudStack: its virtual machines are nodes, and the load balancer rules of its public
// addresses serve Services.
package cloudstack

import (
	"context"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacklimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// Name is the value of --cloud-provider.
	Name = "cloudstack"
	// officialName is used by CloudStack's own controller, and as the scheme of provider IDs.
	officialName = "external-cloudstack"
)

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Aliases: []string{officialName}, Title: "Apache CloudStack", Stability: "alpha",
		InstanceTags:       registry.InstanceTags{Called: "resource tags"},
		ProviderIDPrefixes: []string{officialName, clusterAPIPrefix}, InstanceKey: instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.Done, Routes: registry.CloudHasNone,
			LoadBalancers: registry.Done, SourceRanges: registry.Done, ProxyProtocol: registry.Done, ReservedAddresses: registry.Done,
			Internal: registry.NotYet, DualStack: registry.CloudHasNone, TLS: registry.NotYet, UDP: registry.NotYet,
		},
		Options: Options.Rows(), Annotations: Annotations.Rows(), Events: eventRows(),
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
		Limits: cloudstacklimits.Table,
	})
}

func init() {
	factory := registry.Register(Description())
	cloudprovider.RegisterCloudProvider(Name, factory)
	cloudprovider.RegisterCloudProvider(officialName, factory)
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes
	cloudbase.WithLoadBalancers

	api           *api
	instances     *instances
	reconciler    *reconciler
	loadBalancers *services.LoadBalancer[*observed, desired]
}

func buildCloud(_ Config, a *api, in registry.Inputs) (*cloud, error) {
	c := &cloud{api: a, instances: newInstances(a)}
	c.reconciler = newReconciler(c.instances, in.Adopt)
	c.loadBalancers = newLoadBalancers(c.reconciler)
	c.Name, c.HTTP, c.NodeAPI, c.ServiceAPI = Name, a.http, c.instances, c.loadBalancers
	c.Begin, c.Inform = c.begin, c.inform
	return c, nil
}

// CheckSettings implements registry.SettingsChecker.
func (c *cloud) CheckSettings(ctx context.Context) error { return c.api.check(ctx) }

// CheckAPI implements registry.CloudAPI. Its listing also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error { return c.instances.CheckAPI(ctx) }

// begin passes the clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.reconciler.records.kube, c.loadBalancers.Events = b.Kube, b.Events
	c.reconciler.cluster.SetClient(b.Kube)
}

// inform passes the caches to the parts.
func (c *cloud) inform(in cloudbase.Informers) {
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.reconciler.cluster.SetServices(in.Services().Lister())
}

// permissions lists the commands that the user's role must allow.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"listVirtualMachines"}},
		{
			For: "the version of CloudStack", Needs: []string{"listCapabilities"}, Beyond: []string{"listCapabilities"}, Only: "version is not set",
			Without: "a change of the networks that may reach a load balancer makes its rules again",
		},
		{For: "load balancers", Needs: []string{
			"queryAsyncJobResult", "listNetworks", "listPublicIpAddresses", "associateIpAddress", "disassociateIpAddress", "listLoadBalancerRules",
			"createLoadBalancerRule", "updateLoadBalancerRule", "deleteLoadBalancerRule", "assignToLoadBalancerRule", "removeFromLoadBalancerRule",
			"listLoadBalancerRuleInstances",
		}},
		{For: "load balancers in isolated networks", Needs: []string{"listFirewallRules", "createFirewallRule", "deleteFirewallRule"}},
		{For: "load balancers in tiers of a VPC", Needs: []string{"listNetworkACLs", "createNetworkACL", "deleteNetworkACL"}, Only: "the nodes are in one"},
		{
			For: "telling the network ACL lists of CloudStack from those of a VPC", Needs: []string{"listNetworkACLLists"}, Only: "the nodes are in a VPC",
			Beyond: []string{"listNetworkACLLists"}, Without: "the name of the list has to do",
		},
		{
			For: "stickiness", Needs: []string{"listLBStickinessPolicies", "createLBStickinessPolicy", "deleteLBStickinessPolicy"},
			Only: "an annotation asks for it", Without: "the annotation has no effect",
			Beyond: []string{"listLBStickinessPolicies", "createLBStickinessPolicy", "deleteLBStickinessPolicy"},
		},
		{For: "a project by its name", Needs: []string{"listProjects"}, Only: "project-id is no ID"},
		{
			For: "telling who else uses an address", Needs: []string{"listPortForwardingRules"}, Only: "CloudStack does not say itself whether an address has rules",
			Beyond: []string{"listPortForwardingRules"}, Without: "addresses stay when their Services go",
		},
	}
}

func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "cloud-config", HoldsCredentials: true, Required: true,
			Example: "Global: {api-url: https://cloud.example.com/client/api, api-key: key, secret-key: secret}",
		},
		Secret:        "cloudstack-secret",
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret `cloudstack-secret` and its file can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing; `anyccm.io/cloudstack-address-id` on a Service when it gets an address, and when it goes",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"deployment/cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Secret: "cloudstack-secret",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=external-cloudstack", Value: "cloudProvider=cloudstack"},
					{Flag: "--cloud-config=/config/cloud-config", Why: "the chart mounts the Secret"},
					{Flag: "--leader-elect=true", Why: "there is always a leader"},
				},
			},
		},
		MaxSlimMiB: 50,
	}
}
