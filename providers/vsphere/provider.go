// Package vsphere runs Kubernetes on vSphere: its instances are nodes, its load balancers serve Services.
package vsphere

import (
	"k8s.io/client-go/informers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "vsphere"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "vSphere", Stability: "alpha", SDK: "github.com/vmware/govmomi",
		ProviderIDPrefixes: []string{providerIDPrefix},
		Features: registry.Features{
			Instances: registry.Done,
		},
		Options:      Options.Rows(),
		Permissions:  permissions(),
		Installation: installation(),
		Events:       eventRows(),
		Validate: func(in registry.Inputs) error {
			_, err := parseConfig(in)
			return err
		},
		New: registry.Maker(newCloud),
	}
}

func init() {
	registry.Register(Description())
}

// cloud implements cloudprovider.Interface by what it embeds.
type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes

	instances *instances
}

func newCloud(in registry.Inputs) (*cloud, error) {
	config, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	a := newAPI(config, in)
	c := &cloud{}
	c.Name, c.HTTP, c.Begin = Name, a.http, c.begin

	c.instances = newInstances(a)
	c.NodeAPI = c.instances

	return c, nil
}

// begin makes what the program leads known to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.nodes.SetLister(factory.Core().V1().Nodes().Lister())
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{"instances:read"}},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Credentials: []registry.Credential{{Name: "token", Key: "token", Env: "VSPHERE_TOKEN_FILE", Help: "API token."}},
		Config:      registry.CloudConfig{Format: registry.YAML, File: "config.yaml", Example: "apiURL: https://api.vsphere.example"},
		Secret:      Name,
		Migration: registry.Migration{
			Credentials: "the Secret can stay",
			ClusterName: "no name in the cloud",
			Written:     "nothing",
		},
		MaxSlimMiB: 47,
	}
}
