// Package azure runs Kubernetes on Azure: its virtual machines are nodes, its load balancers serve Services.
package azure

import (
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "azure"

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return registry.Provider{
		Name: Name, Title: "Azure", Stability: "alpha", SDK: "github.com/Azure/azure-sdk-for-go/sdk/azcore",
		ProviderIDPrefixes: []string{providerIDPrefix}, InstanceKey: instanceKey,
		Features:     registry.Features{Instances: registry.Done, LoadBalancers: registry.NotYet, Routes: registry.NotYet},
		Options:      Options.Rows(),
		Permissions:  permissions(),
		Installation: installation(),
		Events:       eventRows(),
		Validate: func(in registry.Inputs) error {
			_, _, err := parseConfig(in)
			return err
		},
		New: registry.Maker(newCloud),
	}
}

func init() { registry.Register(Description()) }

// cloud implements cloudprovider.Interface by what it embeds.
type cloud struct {
	cloudbase.Cloud
	cloudbase.WithNodes

	instances *instances
}

func newCloud(in registry.Inputs) (*cloud, error) {
	config, warnings, err := parseConfig(in)
	if err != nil {
		return nil, err
	}
	for _, w := range schema.Problems(warnings) {
		klog.Warning(w.Error())
	}
	a := newAPI(config, in)
	c := &cloud{instances: newInstances(a)}
	c.Name, c.HTTP, c.NodeAPI = Name, a.http, c.instances
	return c, nil
}

// SetInformers implements cloudprovider.InformerUser.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.instances.lister = factory.Core().V1().Nodes().Lister()
	c.instances.nodes.SetLister(c.instances.lister)
}

// permissions are the rights that the credential needs.
func permissions() []registry.Permission {
	return []registry.Permission{
		{For: "nodes", Needs: []string{
			"Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachineScaleSets/read",
			"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read", "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
			"Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses/read", "Microsoft.Network/networkInterfaces/read",
			"Microsoft.Network/publicIPAddresses/read",
		}},
	}
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Config: registry.CloudConfig{
			Format: registry.YAML, File: "azure.json", HoldsCredentials: true, Required: true,
			Example: `subscriptionId: "00000000-0000-0000-0000-000000000000"`,
		},
		Secret: "azure-cloud-provider",
		Notes: []string{"The cloud config is `azure.json` as Azure's own controller has it, in JSON or YAML. Where it is in a Secret already, " +
			"name that Secret in the chart's values."},
		Migration: registry.Migration{
			Credentials: "the Secret or file with `azure.json` can stay",
			ClusterName: "part of the names of load balancers, keep it",
			Written:     "nothing",
		},
		MaxSlimMiB: 52,
	}
}
