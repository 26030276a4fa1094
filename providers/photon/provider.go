// Package photon runs Kubernetes on VMware Photon Controller, whose development ended in 2017: its virtual machines are nodes. It only
// reads.
package photon

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "photon"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "VMware Photon", Stability: "alpha",
		InstanceTags:       registry.InstanceTags{Called: "tags without values"},
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.NotYet,
			ServingCertificates: registry.CloudHasNone, LoadBalancers: registry.CloudHasNone, Routes: registry.CloudHasNone,
		},
		Options: Options.Rows(), Installation: installation(),
		Permissions: []registry.Permission{{For: "nodes", Needs: []string{"project user (a security group of the project)"}}},
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

func maker() cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{Config: parseConfig, API: newAPI, Cloud: buildCloud}
}

type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes
	instances *instances
}

func buildCloud(_ Config, a *api, _ registry.Inputs) (*cloud, error) {
	c := &cloud{instances: newInstances(a)}
	c.Name, c.HTTP, c.NodeAPI = Name, a.http.Client, c.instances
	c.Inform = func(in cloudbase.Informers) { c.instances.nodes.SetLister(in.Nodes().Lister()) }
	return c, nil
}

func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "pc_cloud.conf", HoldsCredentials: true, Required: true,
			Example: "Global: {target: https://photon.example.com:443, project: 7e1f0b5c, authentication: true, username: kube@photon.local, password: secret}",
		},
		Secret: "photon-cloud-config",
		Notes: []string{
			"A login file as it is on nodes, `/etc/kubernetes/pc_login_info`, serves as well: mount it with `extraVolumes` and `extraVolumeMounts`, " +
				"and leave `username` and `password` out of `cloudConfig`.",
		},
		Migration: registry.Migration{
			Credentials: "`pc_cloud.conf` and `pc_login_info` can stay; certificates are verified, see `caFile`",
			ClusterName: "no name in the cloud",
			Written:     "nothing in Photon Controller; addresses of nodes become internal, see `legacyAddressTypes`",
		},
		MaxSlimMiB: 46,
	}
}
