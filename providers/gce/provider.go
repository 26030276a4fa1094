// Package gce runs Kubernetes on Google Compute Engine: its instances are nodes; external passthrough load balancers on target pools and
// internal ones on instance groups serve Services, and static routes bring packets to the pods.
package gce

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "gce"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Google Compute Engine", Stability: "alpha", SDK: "google.golang.org/api",
		Limits:             gcelimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "labels, with lower-case letters, digits, `-` and `_` in key and value"},
		NodeLabels:         []string{labelUnmanaged},
		ProviderIDPrefixes: []string{providerIDPrefix},
		InstanceKey:        instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.Done, LoadBalancers: registry.Done, Routes: registry.Done,
			ReservedAddresses: registry.Done, Internal: registry.Done,
			TLS: registry.CloudHasNone, ProxyProtocol: registry.CloudHasNone, UDP: registry.Done, SourceRanges: registry.Done,
		},
		Controllers: controllers(),
		Unmanaged:   whyUnmanaged,
		Routes:      needsRoutes,
		Fields:      fields(), Options: Options.Rows(), Annotations: Annotations.Rows(), Events: eventRows(),
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
		LeavesAlone: leavesAlone,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

type cloud struct {
	cloudbase.Whole

	config        Config
	informers     cloudbase.Informers
	kube          kubernetes.Interface
	events        record.EventRecorder
	api           *api
	instances     *instances
	loadBalancers *loadBalancers
	rejoiner      *rejoiner
	// routes is nil without cluster networks.
	routes *routes
}

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	i := newInstances(config, a)
	c := &cloud{config: config, api: a, instances: i, loadBalancers: newLoadBalancers(config, a, i, in.Adopt)}
	r := c.loadBalancers.reconciler
	c.rejoiner = &rejoiner{r.writer, r.pools, r.groups}
	c.Name, c.HTTP, c.EventSource, c.Begin, c.Inform = Name, a.http, "g-cloudprovider", c.begin, c.inform
	c.NodeAPI, c.ServiceAPI = i, c.loadBalancers
	if needsRoutes(in) {
		c.routes = newRoutes(a, i)
		c.RouteAPI = c.routes
	}
	return c, nil
}

// needsRoutes reports whether routes are needed. Without cluster networks the framework requests none.
func needsRoutes(in registry.Inputs) bool { return in.ClusterCIDR != "" }

// begin starts the parts that need the client and events of the leader.
func (c *cloud) begin(b cloudbase.Begun) {
	c.kube, c.events = b.Kube, b.Events
	if c.routes != nil {
		c.routes.events = b.Events
	}
	c.loadBalancers.reconciler.kube, c.loadBalancers.Events = b.Kube, b.Events
	c.loadBalancers.reconciler.identity.setClient(b.Kube)
}

// inform passes the informers to the parts.
func (c *cloud) inform(in cloudbase.Informers) {
	c.informers = in
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.loadBalancers.reconciler.identity.SetServices(in.Services().Lister())
	rejoining := loop.New(c.rejoiner.job())
	c.instances.arrivals.setTrigger(rejoining.Trigger)
	rejoining.Start(in.Stop, in.Nodes().Informer().HasSyncedChecker())
}

// permissions are the permissions that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"compute.instances.get", "compute.instances.list"}},
		{For: "load balancers", Needs: []string{
			"compute.forwardingRules.create", "compute.forwardingRules.delete", "compute.forwardingRules.get", "compute.forwardingRules.list",
			"compute.forwardingRules.setLabels", "compute.forwardingRules.setTarget", "compute.targetPools.create", "compute.targetPools.delete",
			"compute.targetPools.get", "compute.targetPools.list", "compute.targetPools.use", "compute.targetPools.addInstance",
			"compute.targetPools.removeInstance", "compute.targetPools.addHealthCheck", "compute.targetPools.removeHealthCheck",
			"compute.httpHealthChecks.create", "compute.httpHealthChecks.delete", "compute.httpHealthChecks.get", "compute.httpHealthChecks.list",
			"compute.httpHealthChecks.update", "compute.httpHealthChecks.useReadOnly", "compute.addresses.create", "compute.addresses.delete",
			"compute.addresses.get", "compute.addresses.list", "compute.addresses.use", "compute.instances.use",
			"compute.globalOperations.get", "compute.regionOperations.get",
		}},
		{For: "internal load balancers", Only: "Services ask for them", Needs: []string{
			"compute.regionBackendServices.create", "compute.regionBackendServices.delete", "compute.regionBackendServices.get",
			"compute.regionBackendServices.list", "compute.regionBackendServices.update", "compute.regionBackendServices.use",
			"compute.healthChecks.create", "compute.healthChecks.delete", "compute.healthChecks.get", "compute.healthChecks.list",
			"compute.healthChecks.update", "compute.healthChecks.use", "compute.healthChecks.useReadOnly",
			"compute.instanceGroups.create", "compute.instanceGroups.delete", "compute.instanceGroups.get", "compute.instanceGroups.list",
			"compute.instanceGroups.update", "compute.instanceGroups.use", "compute.addresses.createInternal",
			"compute.addresses.deleteInternal", "compute.addresses.useInternal", "compute.subnetworks.get", "compute.subnetworks.use", "compute.networks.get",
			"compute.networks.use", "compute.zoneOperations.get",
		}},
		{For: "firewall rules, in the project of the network", Needs: []string{
			"compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.get", "compute.firewalls.list", "compute.firewalls.update",
			"compute.networks.updatePolicy",
		}},
		{For: "routes, in the project of the network", Only: "`--configure-cloud-routes` with `--cluster-cidr`", Needs: []string{
			"compute.routes.create", "compute.routes.delete", "compute.routes.get", "compute.routes.list", "compute.networks.updatePolicy",
			"compute.globalOperations.get", "compute.instances.use",
		}},
		{For: "projects by number", Needs: []string{"compute.projects.get"}, Only: "project-id or network-project-id is a number"},
	}
}

func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "gce.conf", HoldsCredentials: true,
			Example: "global: {project-id: my-project, network-name: default, local-zone: europe-west1-b, regional: true, node-tags: kubernetes-node}",
		},
		Secret:        Name,
		ServiceRights: []registry.Right{{Resources: []string{"services/status"}, Verbs: []string{"patch"}}},
		SystemRights: []registry.Right{
			{Resources: []string{"configmaps"}, Names: []string{idConfigMap}, Verbs: []string{"get"}},
			{Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		},
		Notes: []string{
			"Routes are made with `routes.clusterCIDR`; the instances need IP forwarding (`canIpForward`). Leave it out where pods have alias IP " +
				"ranges, as in VPC-native clusters: there `routes.allocateNodeCIDRs=true` and `routes.cidrAllocatorType=CloudAllocator` give nodes " +
				"the ranges of their instances.",
			"On an instance of the project, nothing need be configured: the metadata server gives project, zone, network and tokens. " +
				"Elsewhere set `project-id`, `local-zone`, `network-name` and `token-url: nil` under `cloudConfig.global`, and mount a credential for " +
				"`GOOGLE_APPLICATION_CREDENTIALS` ([files](#a-private-ca-and-other-files)). A `gce.conf` that is there can stay a Secret, which " +
				"`credentials.existingSecret` names.",
			"Your own machine needs such a `gce.conf` and the key of a service account for `preflight`, `plan` and `orphans`:",
			"```\nGOOGLE_APPLICATION_CREDENTIALS=key.json bin/cloud-controller-manager preflight --cloud-provider=gce --cloud-config=gce.conf \\\n" +
				"  --kubeconfig=$HOME/.kube/config\n```",
		},
		Migration: registry.Migration{
			Credentials: "`gce.conf` and the instance's service account can stay",
			ClusterName: "no name in the cloud; the ConfigMap `kube-system/ingress-uid` stays",
			Written:     "a finalizer on Services that an older release served",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=gce"},
					{Flag: "--cloud-config=/etc/kubernetes/cloud.config", Why: "its keys are values below `cloudConfig`"},
					{Flag: "--cluster-name=kubernetes", Value: "clusterName=kubernetes"},
					{Flag: "--cluster-cidr=10.4.0.0/14", Value: "routes.clusterCIDR=10.4.0.0/14"},
					{Flag: "--allocate-node-cidrs=true", Value: "routes.clusterCIDR=10.4.0.0/14,routes.allocateNodeCIDRs=true"},
					{
						Flag:  "--cidr-allocator-type=CloudAllocator",
						Value: "routes.clusterCIDR=10.4.0.0/14,routes.allocateNodeCIDRs=true,routes.cidrAllocatorType=CloudAllocator",
					},
					{Flag: "--configure-cloud-routes=false", Value: "extraArgs[0]=--configure-cloud-routes=false"},
					{Flag: "--use-service-account-credentials=true", Value: "serviceAccount.perController=true"},
				},
				Before: "Google's manifest has no flags; these are those of kOps.",
			},
		},
		MaxSlimMiB: 54,
	}
}
