// Package ibm runs Kubernetes on IBM Cloud VPC: its virtual server instances are nodes, and its load balancers serve Services.
package ibm

import (
	"context"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "ibm"

const providerIDPrefix = Name + "://"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "IBM Cloud", Stability: "alpha", Limits: ibmlimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "user tags", Elsewhere: "only the search index of another service has them, which is late"},
		NodeLabels:         []string{labelDedicated},
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.Done, Routes: registry.CloudHasNone,
			LoadBalancers: registry.Done, Internal: registry.Done, ProxyProtocol: registry.Done, UDP: registry.Done,
			SourceRanges: registry.Done, ReservedAddresses: registry.NotYet, TLS: registry.NotYet, DualStack: registry.CloudHasNone,
		},
		Options:      Options.Rows(),
		Annotations:  Annotations.Rows(),
		CheckService: checkService, ServiceFields: serviceFields,
		Events:       eventRows(),
		Installation: installation(),
		Permissions:  permissions(),
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
	cloudbase.Cloud
	cloudbase.WithNodes
	cloudbase.WithLoadBalancers

	api           *api
	instances     *instances
	reconciler    *reconciler
	watcher       *watcher
	loadBalancers *services.LoadBalancer[observed, desired]
}

func buildCloud(_ Config, a *api, in registry.Inputs) (*cloud, error) {
	c := &cloud{api: a, instances: newInstances(a)}
	c.Name, c.HTTP, c.Inform, c.EventSource = Name, a.http, c.inform, "ibm-cloud-provider"
	c.reconciler = newReconciler(a, c.instances, in.Adopt)
	c.watcher = &watcher{finder: c.reconciler.finder}
	c.loadBalancers = newLoadBalancers(c.reconciler)
	c.NodeAPI, c.ServiceAPI, c.Begin = c.instances, c.loadBalancers, c.begin
	return c, nil
}

// CheckAPI implements registry.CloudAPI. Its listing also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error { return c.instances.CheckAPI(ctx) }

// begin passes the clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.reconciler.finder.cluster.SetClient(b.Kube)
	c.reconciler.records.kube = b.Kube
	c.instances.kube = b.Kube
	c.loadBalancers.Events = b.Events
	c.watcher.events = b.Events
}

// inform passes the caches to the parts.
func (c *cloud) inform(in cloudbase.Informers) {
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.reconciler.finder.cluster.SetServices(in.Services().Lister())
	in.Run(c.watcher.job(), in.Services().Informer())
}

// permissions lists the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"is.instance.instance.list", "is.instance.instance.read"}, Only: "`g2workerServiceAccountID` is `accountID`"},
		{For: "the cluster's subnets", Needs: []string{"is.subnet.subnet.list", "is.subnet.subnet.read", "is.vpc.vpc.list", "is.vpc.vpc.read"}},
		{For: "load balancers", Needs: []string{
			"is.load-balancer.load-balancer.view", "is.load-balancer.load-balancer.manage", "is.subnet.subnet.operate", "is.security-group.security-group.operate",
		}},
		{For: "security groups of Services", Needs: []string{
			"is.security-group.security-group.list", "is.security-group.security-group.read", "is.security-group.security-group.create",
			"is.security-group.security-group.update", "is.security-group.security-group.delete",
		}, Only: "Services have `loadBalancerSourceRanges` or name security groups; list and read also where Services go"},
		{For: "the resource group by its name", Needs: []string{"resource-group.resource-group.read"}, Only: "`g2ResourceGroupName` is no ID"},
	}
}

// installation describes what an installation needs.
func installation() registry.Installation {
	return registry.Installation{
		Credentials: []registry.Credential{{
			Name: "apiKey", Key: "ibmcloud_api_key", Env: envKey + "_FILE", Optional: true, Help: "API key of IAM.",
		}},
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "cloud.conf", Required: true,
			Example: "global: {version: 1.1.0}, provider: {accountID: 0a1b2c3d4e5f, clusterID: production, cluster-default-provider: g2, " +
				"region: us-south, g2workerServiceAccountID: 0a1b2c3d4e5f, g2ResourceGroupName: production, g2VpcName: production, g2VpcSubnetNames: nodes-1}",
		},
		Secret: "ibm-cloud-credentials",
		Notes: []string{
			"`cloud.conf` is that of IBM's own controller; the options marked as required must be in it. Credentials are an API key in a " +
				"Secret, `--set credentials.existingSecret=ibm-cloud-credentials`, a trusted profile, or the identity of the instance: see " +
				"[IBM Cloud](providers/ibm.md#options).",
		},
		NodeRights:    []registry.Right{{Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}},
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret `ibm-cloud-credentials` can stay",
			ClusterName: "no name in the cloud, where `clusterID` is used instead",
			Written:     "nothing; `anyccm.io/ibm-applied` on a Service with annotations that are taken back when they are removed, or whose new load balancer has a name of its choice",
			Origin: registry.Origin{
				Namespace: "openshift-cloud-controller-manager", Workloads: []string{"deployment/ibm-cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Replicas: 2, Set: []string{"serviceAccount.perController=true"}, Secret: "ibm-cloud-credentials", ConfigMap: "cloud-conf", ConfigKey: "cloud.conf",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=ibm"},
					{Flag: "--cloud-config=/etc/ibm/cloud.conf", Why: "the chart mounts the file"},
					{Flag: "--bind-address=$(POD_IP_ADDRESS)", Why: "`bindAddress`, where not all addresses may answer"},
					{Flag: "--use-service-account-credentials=true", Value: "serviceAccount.perController=true"},
					{Flag: "--configure-cloud-routes=false", Why: "IBM Cloud has no routes"},
					{Flag: "--profiling=false", Value: "extraArgs[0]=--profiling=false"},
					{Flag: "--leader-elect=true", Why: "there is always a leader"},
					{
						Flag:  "--leader-elect-lease-duration=137s",
						Value: "extraArgs[0]=--leader-elect-lease-duration=137s",
						Why:   "with the next two; the old one's is how long ours may wait",
					},
					{Flag: "--leader-elect-renew-deadline=107s", Value: "extraArgs[0]=--leader-elect-renew-deadline=107s"},
					{Flag: "--leader-elect-retry-period=26s", Value: "extraArgs[0]=--leader-elect-retry-period=26s"},
					{Flag: "--leader-elect-resource-namespace=openshift-cloud-controller-manager"},
					{
						Flag:  "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
						Value: "extraArgs[0]=--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
					},
					{Flag: "--v=2"},
				},
				Before: "These are the names of OpenShift, whose cluster-cloud-controller-manager-operator brings back what is scaled. List the Deployment " +
					"of that operator under `spec.overrides` of the ClusterVersion, with `unmanaged: true`, and scale it to 0.",
			},
		},
		MaxSlimMiB: 52,
	}
}
