// Package ovirt runs Kubernetes on oVirt: virtual machines of an engine are nodes. It reads, and writes nothing.
package ovirt

import (
	"context"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "ovirt"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "oVirt", Stability: "alpha",
		InstanceTags:       registry.InstanceTags{Called: "tags without values", Call: "a listing of the virtual machines with their tags"},
		ProviderIDPrefixes: []string{providerIDPrefix, earlierPrefix}, InstanceKey: instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done,
			ServingCertificates: registry.CloudHasNone, LoadBalancers: registry.CloudHasNone, Routes: registry.CloudHasNone,
		},
		Options:      Options.Rows(),
		Permissions:  permissions(),
		Installation: installation(),
		Events:       eventRows(),
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

	api       *api
	instances *instances
}

func buildCloud(_ Config, a *api, _ registry.Inputs) (*cloud, error) {
	c := &cloud{api: a, instances: newInstances(a)}
	c.Name, c.HTTP, c.NodeAPI = Name, a.http.Client, c.instances
	c.Begin, c.Inform = c.begin, c.inform
	return c, nil
}

// begin has the session ended with the program: the engine may limit those of a user.
func (c *cloud) begin(b cloudbase.Begun) {
	rescue.Go("ending the session of the engine", func() {
		<-b.Stop
		c.api.close(context.Background())
	})
}

// inform hands the caches to the parts.
func (c *cloud) inform(in cloudbase.Informers) { c.instances.nodes.SetLister(in.Nodes().Lister()) }

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"ReadOnlyAdmin on data centers, or UserRole on each virtual machine"}},
		{
			For: "zones, regions and instance types", Needs: []string{"ReadOnlyAdmin on data centers"}, Only: "`[nodes] zones` is not `off`",
			Beyond: []string{"ReadOnlyAdmin on data centers"}, Without: "new nodes get no zone, region and instance type",
		},
		{For: "labels from tags", Needs: []string{"ReadOnlyAdmin on data centers"}, Only: "`--node-labels-from-tags` is set"},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "ovirt-cloud.conf", HoldsCredentials: true, Required: true,
			Example: "connection: {uri: https://engine.example.com/ovirt-engine/api, username: ccm@internal, password: secret}",
		},
		Secret: "ovirt-cloud-config",
		Notes: []string{
			"The Secret `ovirt-credentials` of OpenShift and OKD can be used as it is: mount it with `extraVolumes` and `extraVolumeMounts`, name its " +
				"folder by the option `OVIRT_SECRETS_DIRECTORY`, and leave user and password out of `cloudConfig`.",
		},
		Migration: registry.Migration{
			Credentials: "`ovirt-cloud.conf` and the Secret `ovirt-credentials` can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing in oVirt; addresses of nodes may change their type, see `external-addresses-like`",
		},
		MaxSlimMiB: 46,
	}
}
