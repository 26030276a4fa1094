// Package oci runs Kubernetes on Oracle Cloud Infrastructure: its compute instances are nodes, and its load balancers serve Services.
//
// It calls Oracle's REST API through kit/cloudapi, with a request signer of its own (signer.go), and not through Oracle's SDK for Go:
// whole documents are written back with everything in them that this program does not know, which the SDK's types would drop.
package oci

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Name is the value of --cloud-provider.
const Name = "oci"

// providerIDPrefix begins the provider IDs that this program writes. kubelets on Oracle's cloud are often started with the bare OCID,
// which stays for ever, because a provider ID cannot be changed.
const (
	providerIDPrefix = Name + "://"
	bareIDPrefix     = "ocid1."
)

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Oracle Cloud Infrastructure", Stability: "alpha",
		Limits:             ocilimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "free-form tags, and defined tags as `<namespace>.<key>`"},
		NodeLabels:         []string{labelFaultDomain, labelIPv6},
		ProviderIDPrefixes: []string{providerIDPrefix, bareIDPrefix}, InstanceKey: instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done,
			ServingCertificates: registry.NotYet, LoadBalancers: registry.Done, Routes: registry.CloudHasNone,
			Internal: registry.Done, ReservedAddresses: registry.Done, TLS: registry.Done, ProxyProtocol: registry.Done,
			DualStack: registry.Done, SourceRanges: registry.Done, UDP: registry.Done,
		},
		Options:      Options.Rows(),
		Annotations:  annotationRows(),
		Domains:      []string{strings.TrimSuffix(oraclePrefix, "/"), strings.TrimSuffix(nlbPrefix, "/")},
		Permissions:  permissions(),
		Installation: installation(),
		Events:       eventRows(),
		CheckService: checkService, ServiceFields: serviceFields,
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

	instances     *instances
	loadBalancers *kinds
}

var _ contract.ServiceRetrier = (*cloud)(nil)

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	c := &cloud{}
	c.Name, c.HTTP, c.Begin, c.Inform, c.EventSource = Name, a.http, c.begin, c.inform, "oci-cloud-provider"
	c.instances = newInstances(a)
	c.NodeAPI = c.instances
	c.loadBalancers = newKinds(newCommon(a, c.instances, in.Adopt))
	if !config.LoadBalancersOff {
		c.ServiceAPI = c.loadBalancers
	}
	return c, nil
}

// begin passes on what exists only while the program leads.
func (c *cloud) begin(b cloudbase.Begun) {
	c.loadBalancers.kube = b.Kube
	c.loadBalancers.cluster.SetClient(b.Kube)
	c.loadBalancers.follower.Start(b.Kube, b.Stop)
	c.loadBalancers.setEvents(b.Events)
}

// inform passes on the informers' caches, and starts the controllers.
func (c *cloud) inform(in cloudbase.Informers) {
	c.instances.nodes.SetLister(in.Nodes().Lister())
	c.loadBalancers.cluster.SetServices(in.Services().Lister())
	c.loadBalancers.follower.Inform(in.Services().Informer())
	in.RunOnChanges(c.annotationJob(), in.Nodes().Informer(), c.lacksAnnotation)
}

// SetServiceRetry implements contract.ServiceRetrier: a Service is reconciled when a Secret that it names changes.
func (c *cloud) SetServiceRetry(retry func(func(*v1.Service) bool)) {
	c.loadBalancers.follower.SetServiceRetry(retry)
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"read instance-family", "read virtual-network-family"}},
		{For: "load balancers", Needs: []string{"manage load-balancers", "use virtual-network-family"}},
		{For: "network load balancers", Needs: []string{"manage network-load-balancers"}, Only: "a Service asks for one"},
		{For: "rules of security lists", Needs: []string{"manage security-lists"}, Only: "security rules are managed in security lists, as they are where nothing says otherwise"},
		{For: "network security groups", Needs: []string{"use network-security-groups"}, Only: "a Service names some"},
		{For: "rules of network security groups", Needs: []string{"manage network-security-groups", "manage vcns"}, Only: "security rules are managed by NSG"},
		{For: "reserved addresses", Needs: []string{"use public-ips"}, Only: "a Service names one"},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.YAML, File: "cloud-provider.yaml", HoldsCredentials: true, Required: true,
			Example: "useInstancePrincipals: true, compartment: ocid1.compartment.oc1..example, vcn: ocid1.vcn.oc1..example, " +
				"loadBalancer: {subnet1: ocid1.subnet.oc1..example, securityListManagementMode: All}",
		},
		Secret:       "oci-cloud-controller-manager",
		ReadsSecrets: "certificates of Services that end TLS",
		Notes: []string{"The cloud config is `cloud-provider.yaml` as Oracle's own controller has it. Where it is in a Secret already, name that " +
			"Secret in the chart's values."},
		NodeRights:    []registry.Right{{Resources: []string{"nodes"}, Verbs: []string{"patch"}}},
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		Migration: registry.Migration{
			Credentials: "the Secret with `cloud-provider.yaml` can stay",
			ClusterName: "no name in the cloud",
			Notes: []string{"On Oracle Cloud a Service names TLS Secrets of its own namespace. List further namespaces, from which Services of all others may " +
				"take certificates, in `OCI_SECRET_NAMESPACES` before step 3."},
			Written: "nothing; `anyccm.io/oci-load-balancer-compartment` on a Service whose load balancer is in another compartment than it asks for",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/oci-cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Secret: "oci-cloud-controller-manager", Set: []string{"extraArgs[0]=--concurrent-service-syncs=3"},
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=oci"},
					{Flag: "--cloud-config=/etc/oci/cloud-provider.yaml", Why: "the chart mounts the Secret"},
					{Flag: "--leader-elect-resource-lock=leases", Why: "the default"},
					{Flag: "--concurrent-service-syncs=3", Value: "extraArgs[0]=--concurrent-service-syncs=3"},
					{Flag: "--v=2"},
				},
			},
		},
		MaxSlimMiB: 52,
	}
}
