// Package linode runs Kubernetes on Linode (Akamai): Linodes are nodes, NodeBalancers serve Services.
package linode

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "linode"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Linode (Akamai)", Stability: "alpha", SDK: "github.com/linode/linodego",
		Limits:             linodelimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "tags without values"},
		NodeLabels:         []string{labelHostUUID},
		ProviderIDPrefixes: []string{providerIDPrefix},
		PodRanges:          true,
		Extras:             []string{"node metadata", "pod ranges", "firewalls", "TLS secrets"},
		Features: registry.Features{
			Instances: registry.Done, Routes: registry.Done,
			LoadBalancers: registry.Done, Internal: registry.Done,
			ReservedAddresses: registry.Done, TLS: registry.Done, ProxyProtocol: registry.Done,
			UDP: registry.Done, DualStack: registry.Done, SourceRanges: registry.Done,
			Zones: registry.CloudHasNone, ServingCertificates: registry.Done,
		},
		Options: Options.Rows(), Annotations: Annotations.Rows(),
		Handover:    true,
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
		FieldOptions: fieldOptions,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{
		Config: parseConfig, API: newAPI, Cloud: buildCloud, Routes: func(c Config) bool { return c.Routes },
	}
}

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Whole

	api           *api
	instances     *instances
	loadBalancers *reconciler
}

// CheckSettings implements registry.SettingsChecker: the API refuses a wrong region only when a NodeBalancer is created there.
func (c *cloud) CheckSettings(ctx context.Context) error {
	place, region := "environment variable LINODE_REGION", c.loadBalancers.config.Region
	found, err := call(ctx, "reading region "+region, func(ctx context.Context) (*linodego.Region, error) {
		return result[linodego.Region](c.api.sdk.R(ctx).SetResult(&linodego.Region{}).Get("regions/" + url.PathEscape(region)))
	})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return &schema.Problem{Place: place, Value: region, Reason: "is not a region; use an ID such as us-sea"}
	case err != nil:
		return err
	case !slices.Contains(found.Capabilities, linodego.CapabilityNodeBalancers):
		return &schema.Problem{Place: place, Value: region, Reason: "is a region without NodeBalancers"}
	}
	return nil
}

var _ contract.ServiceRetrier = (*cloud)(nil)

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	if config.TokenHealth {
		if err := checkTokenAtStart(a); err != nil {
			return nil, err
		}
	}
	v := newVPCs(config, a)
	i := newInstances(config, a, v)
	c := &cloud{api: a, instances: i, loadBalancers: newReconciler(config, in.Adopt, a, v, i)}
	if config.Routes {
		c.RouteAPI = newRoutes(a, i)
	}
	c.Name, c.HTTP, c.EventSource = Name, a.http, Name+"-cloud-controller-manager"
	c.Begin, c.Inform = c.begin, c.inform
	c.NodeAPI, c.ServiceAPI = i, c.loadBalancers
	return c, nil
}

// begin passes the clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.loadBalancers.kube, c.loadBalancers.Events = b.Kube, b.Events
	c.loadBalancers.owners.cluster.SetClient(b.Kube)
	c.loadBalancers.follower.Start(b.Kube, b.Stop)
	if c.loadBalancers.config.TokenHealth {
		loop.New(tokenJob(c.api)).Start(b.Stop)
	}
}

// inform starts the provider's own controllers.
func (c *cloud) inform(in cloudbase.Informers) {
	nodes, services := in.Nodes(), in.Services()
	c.instances.nodes.SetLister(nodes.Lister())
	c.loadBalancers.owners.cluster.SetServices(services.Lister())
	m := &metadata{kube: c.loadBalancers.kube, instances: c.instances, nodes: nodes.Lister()}
	in.RunOnChanges(m.job(time.Duration(c.loadBalancers.config.MetadataTTL)*time.Second), nodes.Informer(), lacksMetadata)
	if c.loadBalancers.config.AllocateNodeCIDRs {
		i := newIPAM(c.loadBalancers.config, c.loadBalancers.vpcs, c.instances)
		i.Kube, i.Events, i.Nodes = c.loadBalancers.kube, c.loadBalancers.Events, nodes.Lister()
		in.RunOnChanges(i.Job(), nodes.Informer(), nil)
	}
	c.loadBalancers.follower.Inform(services.Informer())
}

// SetServiceRetry implements contract.ServiceRetrier: a Service is reconciled when a Secret that it names changes.
func (c *cloud) SetServiceRetry(retry func(func(*v1.Service) bool)) {
	c.loadBalancers.follower.SetServiceRetry(retry)
}

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
		NodeRights:    []registry.Right{{Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"patch"}}},
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret `ccm-linode` can stay: `credentials.keys.token=apiToken`",
			ClusterName: "no name in the cloud",
			Written:     "`anyccm.io/linode-nodebalancer-id` on each Service; a firewall for those with `loadBalancerSourceRanges`",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/ccm-linode"}, Lease: "cloud-controller-manager",
				Secret: "ccm-linode", Keys: []string{"token=apiToken"},
				Flags: []registry.OldFlag{
					{Flag: "--leader-elect-resource-lock=leases", Why: "the default"},
					{Flag: "--v=3", Value: "logLevel=3"},
					{Flag: "--secure-port=10253", Value: "securePort=10253"},
					{Flag: "--webhook-secure-port=0", Why: "there is no webhook"},
				},
			},
		},
		MaxSlimMiB: 48,
	}
}
