// Command othercloud is a cloud controller manager of another cloud, for tests of clusters with nodes of several clouds.
// Its cloud is in memory: an instance exists for every node whose name begins with its name. With GUARDED set it is
// another release of ours, with the guard above another provider; without, it is built on the bare framework, as the
// controllers of others are.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/fake"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/anyccm/cloud-controller-manager/cmd/cloud-controller-manager/app"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func main() {
	if os.Getenv("GUARDED") != "" {
		os.Exit(guarded("beta"))
	}
	os.Exit(bare("gamma"))
}

// guarded runs another provider with our program around it.
func guarded(name string) int {
	var r registry.Registry
	if err := r.Add(registry.Provider{
		Name: name, Title: name, ProviderIDPrefixes: []string{name + "://"}, Features: registry.Features{Instances: registry.Done},
		Validate: func(registry.Inputs) error { return nil },
		New:      func(registry.Inputs) (cloudprovider.Interface, error) { return &cloud{name: name}, nil },
	}); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return app.Main(&r, os.Args[1:], os.Stdout, os.Stderr)
}

// bare runs the provider on the framework alone.
func bare(name string) int {
	cloudprovider.RegisterCloudProvider(name, func(io.Reader) (cloudprovider.Interface, error) { return &cloud{name: name}, nil })
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	open := func(c *config.CompletedConfig) cloudprovider.Interface {
		opened, err := cloudprovider.InitCloudProvider(c.ComponentConfig.KubeCloudShared.CloudProvider.Name, "")
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		return opened
	}
	return cli.Run(frameworkapp.NewCloudControllerManagerCommand(
		o, open, frameworkapp.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop,
	))
}

// cloud is in memory and knows nodes by their name.
type cloud struct {
	fake.Cloud
	name string
}

// InstancesV2 implements cloudprovider.Interface.
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// LoadBalancer implements cloudprovider.Interface.
func (*cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Routes implements cloudprovider.Interface.
func (*cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (c *cloud) ProviderName() string { return c.name }

func (c *cloud) checkNode(node *v1.Node) error {
	if !strings.HasPrefix(node.Name, c.name) {
		return fmt.Errorf("%s: node %s: %w", c.name, node.Name, cloudprovider.InstanceNotFound)
	}
	return nil
}

// InstanceExists implements cloudprovider.InstancesV2.
func (c *cloud) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	return true, c.checkNode(node)
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (c *cloud) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	return false, c.checkNode(node)
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (c *cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if err := c.checkNode(node); err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: c.name + "://" + node.Name, InstanceType: "other", Region: "other",
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}},
	}, nil
}
