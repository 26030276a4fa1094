package app

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	controllermanager "k8s.io/controller-manager/app"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Our defaults. Command line values override them.
const (
	// A new node costs 3 calls to the API server, all by one client. With the framework's 20 calls a second, 1,000 nodes would take 150 s;
	// the API server limits clients by itself.
	kubeQPS   = 1000
	kubeBurst = 2000
	// With a single worker, each loop would take the cloud's latency times the size of the cluster. The inventory answers most queries from
	// memory, and the transport limits the rest.
	nodeWorkers         = 20
	nodeStatusWorkers   = 10
	lifecycleWorkers    = 20
	serviceWorkers      = 500
	routeReconciliation = time.Minute
)

// newOptions returns the framework's options with our defaults.
func newOptions() (*options.CloudControllerManagerOptions, error) {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("making the framework's options: %w", err)
	}
	o.Generic.ClientConnection.QPS = kubeQPS
	o.Generic.ClientConnection.Burst = kubeBurst
	o.Generic.Debugging.EnableProfiling = false
	o.NodeController.ConcurrentNodeSyncs = nodeWorkers
	o.NodeLifecycleController.ConcurrentNodeLifecycleSyncs = lifecycleWorkers
	o.ServiceController.ConcurrentServiceSyncs = serviceWorkers
	o.KubeCloudShared.RouteReconciliationPeriod = metav1.Duration{Duration: routeReconciliation}
	// Without permission to read the API server's authentication settings, only client certificates for metrics stop working; the program
	// still runs.
	o.Authentication.TolerateInClusterLookupFailure = true
	return o, nil
}

// setLateDefaults sets defaults that the framework hard-codes where it declares the flag.
func setLateDefaults(cmd *cobra.Command, o *options.CloudControllerManagerOptions) {
	o.NodeController.ConcurrentNodeStatusUpdates = nodeStatusWorkers
	if f := cmd.Flags().Lookup("concurrent-node-status-updates"); f != nil {
		f.DefValue = strconv.Itoa(nodeStatusWorkers)
	}
}

// addEndpointFlag declares the flag that allows endpoints without TLS.
func addEndpointFlag(fs *pflag.FlagSet, allow *bool) {
	fs.BoolVar(allow, schema.FlagAllowInsecureEndpoints, *allow,
		"Accept http:// endpoints of the cloud that are not loopback addresses. Credentials then cross the network unencrypted.")
}

// commonFlags returns the flags of every provider.
func commonFlags(
	p *guard.Policy, s *serviceSelection, d *serviceDefaults, adopt *registry.Adoption, accounts *controllerAccounts, labels *nodeLabels,
	serving *servingCerts, insecure *bool,
) cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	addEndpointFlag(sets.FlagSet("cloud endpoints"), insecure)
	p.AddFlags(sets.FlagSet("node guard"))
	s.addFlags(sets.FlagSet("service selection"))
	d.addFlags(sets.FlagSet("service selection"))
	adopt.AddFlag(sets.FlagSet("load balancers"))
	accounts.addFlag(sets.FlagSet("controller accounts"))
	labels.addFlags(sets.FlagSet("node labels"))
	serving.addFlags(sets.FlagSet("serving certificates"))
	return sets
}

// flagClashes refuses provider flags with a name of the framework's or ours, because only one variable would be set.
func (m *manager) flagClashes() error {
	o, err := newOptions()
	if err != nil {
		return err
	}
	ours := commonFlags(
		&guard.Policy{}, &serviceSelection{}, &serviceDefaults{}, new(registry.Adoption), &controllerAccounts{}, &nodeLabels{}, &servingCerts{},
		new(bool),
	)
	commands := append(subcommands(choose(&registry.Registry{}, nil)),
		frameworkapp.NewCloudControllerManagerCommand(o, nil, m.controllers(), m.aliases(), ours, nil))
	return m.providers.FlagClashes(func(name string) bool {
		return slices.ContainsFunc(commands, func(c *cobra.Command) bool { return c.Flags().Lookup(name) != nil })
	})
}

// inputs collects the provider's inputs.
func (m *manager) inputs() (registry.Inputs, error) {
	m.policy.MonitorPeriod = m.options.NodeLifecycleController.NodeMonitorPeriod.Duration
	in := registry.Inputs{
		Version: version, Guard: &m.policy, Adopt: m.adopt,
		Sources: schema.Sources{LookupEnv: schema.Environment, EnvNames: schema.EnvironmentNames, AllowInsecureEndpoints: m.insecure},
	}
	shared := m.options.KubeCloudShared.CloudProvider
	p, err := m.providers.Lookup(shared.Name)
	if err != nil {
		return in, err
	}
	in.Flags = schema.SetFlags(m.cmd.Flags(), p.Options)
	if m.defaults.path != "" {
		in.Defaults = &m.defaults.source
	}
	in.ClusterCIDR, in.AllocateNodeCIDRs = m.options.KubeCloudShared.ClusterCIDR, m.options.KubeCloudShared.AllocateNodeCIDRs
	in.CIDRAllocator = m.options.KubeCloudShared.CIDRAllocatorType
	if shared.CloudConfigFile != "" {
		in.FilePath = shared.CloudConfigFile
		if in.File, err = os.ReadFile(shared.CloudConfigFile); err != nil {
			return in, fmt.Errorf("--cloud-config: %w", err)
		}
	}
	return in, nil
}

// enabledControllers returns the controllers that --controllers enables.
func (m *manager) enabledControllers() sets.Set[string] {
	enabled := sets.New[string]()
	chosen := make([]string, 0, len(m.options.Generic.Controllers))
	aliases := m.aliases()
	for _, c := range m.options.Generic.Controllers {
		off := len(c) > 0 && c[0] == '-'
		name := c
		if off {
			name = c[1:]
		}
		if canonical, ok := aliases[name]; ok {
			name = canonical
		}
		if off {
			name = "-" + name
		}
		chosen = append(chosen, name)
	}
	for name := range m.controllers() {
		if controllermanager.IsControllerEnabled(name, frameworkapp.ControllersDisabledByDefault, chosen) {
			enabled.Insert(name)
		}
	}
	return enabled
}
