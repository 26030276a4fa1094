// Package gce runs Kubernetes on Google Compute Engine: its instances are nodes.
package gce

import (
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "gce"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "Google Compute Engine", Stability: "alpha", SDK: "google.golang.org/api",
		ProviderIDPrefixes: []string{providerIDPrefix},
		InstanceKey:        instanceKey,
		Features:           registry.Features{Instances: registry.Done, Zones: registry.Done},
		Options:            Options.Rows(), Permissions: permissions(), Installation: installation(), Events: eventRows(),
	})
}

func init() { registry.Register(Description()) }

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

func buildCloud(config Config, a *api, _ registry.Inputs) (*cloud, error) {
	c := &cloud{api: a, instances: newInstances(config, a)}
	c.Name, c.HTTP, c.NodeAPI, c.Inform = Name, a.http, c.instances, c.inform
	return c, nil
}

// inform makes the nodes known that the cluster has.
func (c *cloud) inform(in cloudbase.Informers) {
	c.instances.nodes.SetLister(in.Nodes().Lister())
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"compute.instances.get", "compute.instances.list"}},
		{For: "projects by number", Needs: []string{"compute.projects.get"}, Only: "project-id or network-project-id is a number"},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.INI, File: "gce.conf", HoldsCredentials: true, Example: "global: {project-id: my-project, regional: true}",
		},
		Secret: Name,
		Notes: []string{
			"On an instance of the project, nothing need be configured: the metadata server gives project, zone, network and tokens. " +
				"Elsewhere set `project-id`, `local-zone`, `network-name` and `token-url = nil`, and mount a credential for `GOOGLE_APPLICATION_CREDENTIALS`.",
		},
		Migration: registry.Migration{
			Credentials: "`gce.conf` and the instance's service account can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing",
		},
		MaxSlimMiB: 54,
	}
}
