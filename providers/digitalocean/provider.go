// Package digitalocean runs Kubernetes on DigitalOcean: droplets are nodes, load balancers serve Services.
package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "digitalocean"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "DigitalOcean", Stability: "alpha", SDK: "github.com/digitalocean/godo",
		Limits:             digitaloceanlimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "tags without values"},
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features: registry.Features{
			Instances: registry.Done, LoadBalancers: registry.Done, Internal: registry.Done, ReservedAddresses: registry.Done, TLS: registry.Done,
			ProxyProtocol: registry.Done, UDP: registry.Done, DualStack: registry.Done, SourceRanges: registry.Done,
			Zones: registry.CloudHasNone, ServingCertificates: registry.Done, Routes: registry.CloudHasNone,
		},
		Extras:  []string{"tags of load balancers", "public access firewall"},
		Options: Options.Rows(), Annotations: Annotations.Rows(), Events: eventRows(),
		Handover:    true,
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
		FieldOptions: fieldOptions,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes
	cloudbase.WithLoadBalancers

	config        Config
	api           *api
	instances     *instances
	loadBalancers *reconciler
}

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	i := newInstances(a)
	c := &cloud{config: config, api: a, instances: i, loadBalancers: newReconciler(config, in.Adopt, a, i)}
	c.Name, c.HTTP, c.EventSource = Name, a.http, Name+"-cloud-controller-manager"
	c.Begin, c.Inform = c.begin, c.inform
	c.NodeAPI, c.ServiceAPI = i, c.loadBalancers
	return c, nil
}

// begin passes the clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.loadBalancers.kube, c.loadBalancers.Events = b.Kube, b.Events
	c.loadBalancers.owners.cluster.SetClient(b.Kube)
	c.startServers(b.Stop)
}

// inform starts the provider's own controllers.
func (c *cloud) inform(in cloudbase.Informers) {
	services := in.Services()
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.loadBalancers.owners.cluster.SetServices(services.Lister())
	if c.config.ClusterID != "" {
		t := &tagging{tag: clusterTag(c.config.ClusterID), api: c.api, owners: c.loadBalancers.owners, services: services.Lister()}
		in.Run(t.job(), services.Informer())
	}
	if c.config.FirewallName != "" {
		f := newPublicFirewall(c.loadBalancers)
		f.services = services.Lister()
		in.RunOnChanges(f.job(), services.Informer(), nil)
	}
}

// CheckAPI implements registry.CloudAPI. Its listing also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	if c.config.Region != "" {
		slugs, err := c.api.regionSlugs(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(slugs, c.config.Region) {
			slices.Sort(slugs)
			return fmt.Errorf("environment variable REGION: %q is not a region of this account; there are %s", c.config.Region, strings.Join(slugs, ", "))
		}
	}
	return c.instances.CheckAPI(ctx)
}

// CheckSettings implements registry.SettingsChecker: the API refuses the firewall if one of its tags does not exist. A token without
// permission to read tags proves nothing.
func (c *cloud) CheckSettings(ctx context.Context) error {
	var problems []error
	for _, tag := range c.config.FirewallTags {
		exists, err := c.api.hasTag(ctx, tag)
		if errors.Is(err, cloudapi.ErrUnauthorized) {
			break
		}
		if err == nil && !exists {
			err = &schema.Problem{
				Place: "environment variable " + envFirewallTags, Value: tag,
				Reason: "is not a tag of this account, so that the firewall can be neither made nor changed; create it, and put it on the droplets of the cluster",
			}
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// HasClusterID implements cloudprovider.Interface.
func (c *cloud) HasClusterID() bool { return c.config.ClusterID != "" }

func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"droplet:read"}},
		{For: "load balancers", Needs: []string{"load_balancer:read", "load_balancer:create", "load_balancer:update", "load_balancer:delete"}},
		{For: "certificates by name, and their rotation", Needs: []string{"certificate:read"}, Only: "Services name certificates"},
		{
			For: "ownership mark", Needs: []string{"tag:read", "tag:create"}, Only: "DO_OWNERSHIP_TAG is not false, or DO_CLUSTER_ID is set",
			Beyond: []string{"tag:read", "tag:create"}, Without: "set DO_OWNERSHIP_TAG=false: load balancers get no mark of the cluster",
		},
		{For: "public access firewall", Needs: []string{"firewall:read", "firewall:create", "firewall:update"}, Only: "PUBLIC_ACCESS_FIREWALL_NAME is set"},
		{For: "the region of new load balancers", Needs: []string{"regions:read"}, Only: "REGION is set"},
		{For: "health server", Needs: []string{"account:read"}, Only: "DEBUG_ADDR is set"},
	}
}

func installation() registry.Installation {
	return registry.Installation{
		Credentials:   []registry.Credential{{Name: "token", Key: "access-token", Env: "DO_ACCESS_TOKEN_FILE", Help: "API token."}},
		Config:        registry.CloudConfig{Format: registry.YAML, File: "config.yaml", Example: "region: nyc3"},
		Secret:        Name,
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret `digitalocean` with the key `access-token` can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"deployment/digitalocean-cloud-controller-manager"}, Secret: "digitalocean",
				Flags: []registry.OldFlag{
					{Flag: "--leader-elect=false", Why: "the release has a lease"},
				},
			},
			Notes: []string{"DigitalOcean's own controller runs without leader election: stop it before step 3."},
		},
		MaxSlimMiB: 48,
	}
}
