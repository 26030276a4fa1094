// Package azure runs Kubernetes on Azure: its virtual machines are nodes, its load balancers serve Services.
package azure

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "azure"

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Azure", Stability: "alpha", Features: features(),
		SDK:         "github.com/Azure/azure-sdk-for-go/sdk/azcore",
		Annotations: slices.Concat(Annotations.Rows(), PortAnnotations.Rows()),
		Options:     Options.Rows(), CheckService: checkService, ServiceFields: serviceFields, Events: eventRows(),
		Permissions: permissions(), Installation: installation(), Routes: isRouting, Limits: azurelimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "tags, whose keys have no `/`"},
		NodeLabels:         []string{labelManaged, labelGroup},
		ProviderIDPrefixes: []string{providerIDPrefix}, InstanceKey: instanceKey,
	})
}

// features: Azure's load balancers pass TCP and UDP on unchanged.
func features() registry.Features {
	return registry.Features{
		LoadBalancers: registry.Done, Internal: registry.Done, ReservedAddresses: registry.Done, SourceRanges: registry.Done,
		UDP: registry.Done, DualStack: registry.Done, TLS: registry.CloudHasNone, ProxyProtocol: registry.NotYet,
		Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.NotYet, Routes: registry.Done,
	}
}

// cloud implements cloudprovider.Interface by what it embeds.
type cloud struct {
	cloudbase.Whole
	contract.OrphanFinder

	instances     *instances
	reconciler    *reconciler
	loadBalancers *services.LoadBalancer[*observed, *desired]
	stop          <-chan struct{}
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

// isRouting reports whether a valid configuration requests routes to pod networks.
func isRouting(in registry.Inputs) bool {
	c, _, err := parseConfig(in)
	return err == nil && c.hasRoutes(in)
}

// hasRoutes reports whether routes to the pods' networks are made.
func (c *Config) hasRoutes(in registry.Inputs) bool {
	return c.RouteTable != "" && in.ClusterCIDR != ""
}

// creationShows is how long a creation whose answer was lost may take effect.
const creationShows = 45 * time.Second

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	c := &cloud{instances: newInstances(a)}
	c.Name, c.HTTP, c.NodeAPI, c.Begin = Name, a.http, c.instances, c.begin
	r := newResources(a)
	c.reconciler = &reconciler{observer: observer{
		config: &a.config, resources: r, members: &members{api: a, instances: c.instances, resources: r, nodeMachines: map[machineID]bool{}},
		instances: c.instances, uses: newAddressUses(a),
		translate: func(s *v1.Service) *v1.Service { return registry.Translate(Description(), in, s).Service },
	}}
	c.OrphanFinder = orphans{c.reconciler}
	c.loadBalancers = &services.LoadBalancer[*observed, *desired]{
		Reconciler: c.reconciler, Creations: &services.Creations{Shows: creationShows, Repeat: true}, Identify: c.instances.machines.Identify,
		Name: func(cluster string, s *v1.Service) string {
			return a.config.loadBalancerNameOf(cluster, strings.EqualFold(s.Annotations[annotationInternal], "true"))
		},
	}
	c.ServiceAPI = c.loadBalancers
	if config.hasRoutes(in) {
		c.RouteAPI = newRoutes(&a.config, r, c.instances)
	}
	return c, nil
}

// begin implements cloudbase.Cloud.Begin.
func (c *cloud) begin(b cloudbase.Begun) {
	c.reconciler.cluster.SetClient(b.Kube)
	c.reconciler.kube, c.stop = b.Kube, b.Stop
	c.loadBalancers.Events = b.Events
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	c.reconciler.cluster.SetServices(factory.Core().V1().Services().Lister())
	c.watchEndpoints(factory)
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{
			"Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachineScaleSets/read",
			"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read", "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
			"Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses/read", "Microsoft.Network/networkInterfaces/read",
			"Microsoft.Network/publicIPAddresses/read",
		}},
		{For: "load balancers", Needs: []string{
			"Microsoft.Network/loadBalancers/read", "Microsoft.Network/loadBalancers/write", "Microsoft.Network/loadBalancers/delete",
			"Microsoft.Network/loadBalancers/backendAddressPools/join/action", "Microsoft.Network/loadBalancers/frontendIPConfigurations/join/action",
			"Microsoft.Network/publicIPAddresses/read", "Microsoft.Network/publicIPAddresses/write", "Microsoft.Network/publicIPAddresses/delete",
			"Microsoft.Network/publicIPAddresses/join/action", "Microsoft.Network/networkSecurityGroups/read",
			"Microsoft.Network/networkSecurityGroups/write", "Microsoft.Resources/subscriptions/providers/read",
		}},
		{For: "internal load balancers, and pools by address", Needs: []string{
			"Microsoft.Network/virtualNetworks/subnets/read", "Microsoft.Network/virtualNetworks/subnets/join/action",
		}},
		{For: "members of pools by network interface", Needs: []string{
			"Microsoft.Compute/virtualMachineScaleSets/write", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
			"Microsoft.Network/networkInterfaces/write", "Microsoft.Network/networkInterfaces/join/action",
		}},
		{For: "routes", Needs: []string{"Microsoft.Network/routeTables/read", "Microsoft.Network/routeTables/write"}, Only: "routeTableName is set"},
		{
			For: "former nodes in rules for node ports", Needs: []string{"Microsoft.Network/virtualNetworks/checkIpAddressAvailability/read"},
			Only: "Services have floating IP off; without it their addresses stay",
		},
		{
			For: "public addresses in resource groups that no Service names any more", Needs: []string{"Microsoft.Network/publicIPAddresses/read"},
			Only: "annotations name resource groups; on the subscription, or on these groups",
		},
		{For: "private link services", Needs: []string{
			"Microsoft.Network/privateLinkServices/read", "Microsoft.Network/privateLinkServices/write", "Microsoft.Network/privateLinkServices/delete",
			"Microsoft.Network/privateLinkServices/privateEndpointConnections/delete", "Microsoft.Network/virtualNetworks/subnets/write",
		}, Only: "Services ask for one"},
		{For: "public IP prefixes", Needs: []string{"Microsoft.Network/publicIPPrefixes/join/action"}, Only: "Services name one"},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.YAML, File: "azure.json", HoldsCredentials: true, Required: true, AnyCase: true,
			Others: "[rR][aA][tT][eE][lL][iI][mM][iI][tT]$",
			Example: `tenantId: 00000000-0000-0000-0000-000000000000, subscriptionId: 00000000-0000-0000-0000-000000000000, ` +
				`aadClientId: 00000000-0000-0000-0000-000000000000, aadClientSecret: secret, resourceGroup: production, location: westeurope, ` +
				`vnetName: production, subnetName: nodes, securityGroupName: nodes`,
		},
		Secret: "azure-cloud-provider",
		ServiceRights: []registry.Right{ // with several load balancers: pools of the nodes with an endpoint, and selectors of namespaces
			{Group: "discovery.k8s.io", Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
			{Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		},
		Notes: []string{"The cloud config is `azure.json` as Azure's own controller has it, in JSON or YAML. Where it is in a Secret already, " +
			"name that Secret in the chart's values."},
		Migration: registry.Migration{
			Credentials: "the Secret or file with `azure.json` can stay",
			ClusterName: "part of the names of load balancers, keep it",
			Written:     "nothing; a basic load balancer is made again as a standard one",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"deployment/cloud-controller-manager", "daemonset/cloud-node-manager"}, Lease: "cloud-controller-manager",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=azure"},
					{Flag: "--cloud-config=/etc/kubernetes/azure.json", Why: "the chart mounts the Secret"},
					{Flag: "--cluster-name=kubernetes", Value: "clusterName=kubernetes"},
					{Flag: "--controllers=*,-cloud-node", Why: "this program initialises nodes itself, in place of cloud-node-manager"},
					{Flag: "--leader-elect=true", Why: "there is always a leader"},
					{
						Flag:  "--cluster-cidr=10.244.0.0/16",
						Value: "routes.clusterCIDR=10.244.0.0/16",
						Why:   "with kubenet; Azure CNI has no routes",
					},
					{
						Flag:  "--allocate-node-cidrs=true",
						Value: "routes.clusterCIDR=10.244.0.0/16,routes.allocateNodeCIDRs=true",
						Why:   "with kubenet",
					},
					{Flag: "--configure-cloud-routes=true", Why: "there are routes where `routes.clusterCIDR` is set"},
					{Flag: "--route-reconciliation-period=10s", Value: "extraArgs[0]=--route-reconciliation-period=10s"},
					{Flag: "--secure-port=10268", Value: "securePort=10268"},
					{Flag: "--v=2"},
				},
			},
		},
		MaxSlimMiB: 52,
	}
}
