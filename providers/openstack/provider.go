// Package openstack runs Kubernetes on OpenStack: Nova's servers are nodes, Octavia's load balancers serve Services.
package openstack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "openstack"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "OpenStack", Stability: "alpha", SDK: "github.com/gophercloud/gophercloud/v2",
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.Done, Routes: registry.Done,
			LoadBalancers: registry.Done, Internal: registry.Done, ReservedAddresses: registry.Done,
			TLS: registry.Done, ProxyProtocol: registry.Done, UDP: registry.Done, SourceRanges: registry.Done,
			DualStack: registry.NotYet,
		},
		Extras:             []string{"load balancers shared between Services", "repair of load balancers in ERROR"},
		InstanceTags:       registry.InstanceTags{Called: "metadata"},
		ProviderIDPrefixes: []string{providerIDPrefix}, InstanceKey: instanceKey, Unserved: checkInternalOnly, Fields: fields(),
		Options: Options.Rows(), Records: []string{annotationMade}, Limits: openstacklimits.Table,
		Annotations: Annotations.Rows(), Domains: []string{strings.TrimSuffix(annotationPrefix, "/")}, Events: eventRows(),
		Handover:    true,
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{
		Config: parseConfig, API: newAPI, Cloud: buildCloud, Routes: func(c Config) bool { return c.RouterID != "" },
	}
}

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Whole

	config     Config
	api        *api
	instances  *instances
	reconciler *reconciler
	routes     *routes
}

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	n := newNetworks(a)
	i := newInstances(config, a, n)
	c := &cloud{
		config: config, api: a, instances: i, reconciler: newReconciler(config, a, n, i, in.Adopt), routes: newRoutes(config, a, i),
	}
	if config.LoadBalancer.Enabled {
		c.ServiceAPI = c.reconciler
	}
	if config.RouterID != "" {
		c.RouteAPI = c.routes
	}
	c.Name, c.HTTP, c.NodeAPI, c.Begin, c.Inform = Name, a.http, i, c.begin, c.inform
	return c, nil
}

// begin passes the clients to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.reconciler.kube, c.reconciler.Events = b.Kube, b.Events
	c.reconciler.cluster.SetClient(b.Kube)
}

// inform starts the search for broken load balancers.
func (c *cloud) inform(in cloudbase.Informers) {
	services := in.Services()
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.reconciler.cluster.SetServices(services.Lister())
	if c.config.LoadBalancer.Enabled {
		in.Run(healthCheck{c.reconciler, services.Lister()}.job(), services.Informer())
	}
}

// CheckAPI implements registry.CloudAPI. Its listing also serves the first questions about nodes.
func (c *cloud) CheckAPI(ctx context.Context) error {
	services := []serviceType{compute, network}
	if c.config.LoadBalancer.Enabled {
		services = append(services, loadBalancing)
	}
	if err := c.api.checkCatalog(ctx, services...); err != nil {
		return err
	}
	return c.instances.CheckAPI(ctx)
}

// checkService validates a Service without network. It ignores missing credentials, and unknown classes if there is no cloud config.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	c, _, _ := parseConfig(in)
	s, warnings, err := parseSettings(service, c, c.LoadBalancer.expectedProvider(service))
	problems := schema.Problems(err)
	if len(in.File) == 0 {
		kept := problems[:0]
		for _, p := range problems {
			long, ok := errors.AsType[*schema.Problem](p)
			if problemsAbout(p, annotationClass) == nil || (ok && long.Value == "") { // too long for any config
				kept = append(kept, p)
			}
		}
		problems = kept
	}
	if c.LoadBalancer.Provider != providerOVN {
		_, rangeErr := rangesOfFamilies(s.sources, service, nil)
		problems = append(problems, rangeErr)
	} else if !s.sources.Everybody() && !c.LoadBalancer.ManageSecurityGroups {
		warnings = errors.Join(warnings, &schema.Problem{Place: sources.Field, Reason: rangesIgnoredFinding(providerOVN).Message, Warning: true})
	}
	if len(in.File) > 0 { // else create-monitor is unknown
		for _, f := range s.missingMonitorFindings(service) {
			warnings = errors.Join(warnings, &schema.Problem{Place: "spec.externalTrafficPolicy", Reason: f.Message, Warning: true})
		}
	}
	return warnings, errors.Join(problems...)
}

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

func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "cloud.conf", HoldsCredentials: true, Required: true,
			Example: "Global: {auth-url: https://keystone.example.com/v3, region: RegionOne, application-credential-id: 6cb5fa6a13184e6fab65ba2108adf50c, " +
				"application-credential-secret: secret}, LoadBalancer: {floating-network-id: 5d9a6a1e-3f3e-4f5c-8c8e-0d3d5f0f7f11}",
			Sections: []registry.NamedSection{{Kind: "LoadBalancerClass", Keys: slices.Sorted(maps.Keys(classTable(&class{})))}},
		},
		Secret: Name,
		Notes: []string{
			"With a private CA add `--from-file=ca.crt` to the first command, and set `ca-file = /etc/anyccm/credentials/ca.crt` in `cloud.conf`. " +
				"Where `cloudConfig` is in the values, `--set-file cloudConfig.Global.CAFileContents=ca.crt` does the same.",
			"For routes set `[Route] router-id` and `routes.clusterCIDR`.",
		},
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret with `cloud.conf` can stay",
			ClusterName: "part of the names of load balancers, keep it",
			Written:     "nothing",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/openstack-cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Secret: "cloud-config",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=openstack"},
					{Flag: "--cloud-config=/etc/config/cloud.conf", Why: "the chart mounts the Secret"},
					{Flag: "--cluster-name=kubernetes", Value: "clusterName=kubernetes"},
					{
						Flag: "--controllers=cloud-node,cloud-node-lifecycle,route,service",
						Why:  "all of them run; `controllers` names fewer",
					},
					{Flag: "--use-service-account-credentials=false", Why: "the default"},
					{Flag: "--bind-address=127.0.0.1", Value: "bindAddress=127.0.0.1"},
					{Flag: "--v=2"},
				},
			},
		},
		MaxSlimMiB: 48,
	}
}
