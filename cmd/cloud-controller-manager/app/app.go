// Package app wires the framework, the registry and our defaults into one command.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apiserver "k8s.io/apiserver/pkg/server"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Main runs the program and returns its exit code.
func Main(providers *registry.Registry, args []string, stdout, stderr io.Writer) int {
	tuneMemory(args)
	logs.InitLogs()
	klog.SetLogFilter(logFilter{})
	defer logs.FlushLogs()

	m := &manager{providers: providers, args: args, policy: guard.DefaultPolicy(), stderr: stderr, exit: exitProcess}
	cmd, err := m.command(apiserver.SetupSignalHandler())
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		if _, printed := errors.AsType[*printedError](err); !printed {
			for _, problem := range schema.Problems(err) {
				fmt.Fprintln(stderr, "Error:", problem)
			}
		}
		return exitStatus(err)
	}
	m.lease.release()
	return 0
}

// manager is one run of the program.
type manager struct {
	providers *registry.Registry
	args      []string
	policy    guard.Policy
	services  serviceSelection
	defaults  serviceDefaults
	adopt     registry.Adoption
	accounts  controllerAccounts
	labels    nodeLabels
	serving   servingCerts
	insecure  bool
	options   *options.CloudControllerManagerOptions
	cmd       *cobra.Command
	stderr    io.Writer
	exit      func(code int)
	lease     lease
}

// printedError is an error that the framework has already printed.
type printedError struct{ error }

func (e *printedError) Unwrap() error { return e.error }

// command builds the framework's command with our defaults, checks and controllers.
func (m *manager) command(stop <-chan struct{}) (*cobra.Command, error) {
	o, err := newOptions()
	if err != nil {
		return nil, err
	}
	m.options = o
	m.services.defaults = &m.defaults
	chosen := choose(m.providers, m.args)
	flags := commonFlags(&m.policy, &m.services, &m.defaults, &m.adopt, &m.accounts, &m.labels, &m.serving, &m.insecure)
	showAll := chosen.addTo(&flags)
	cmd := frameworkapp.NewCloudControllerManagerCommand(o, m.openCloud, m.controllers(), m.aliases(), flags, stop)
	showAll()
	m.cmd = cmd
	if err := m.flagClashes(); err != nil {
		return nil, err
	}
	setLateDefaults(cmd, o)
	cmd.Use = program
	cmd.Long = longHelp(m.providers)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	cmd.SetFlagErrorFunc(chosen.explain)

	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if versionRequested(cmd) {
			printVersion(cmd.OutOrStdout(), m.providers)
			return nil
		}
		if err := m.validate(); err != nil {
			return err
		}
		logUnbuffered(cmd)
		if err := run(cmd, args); err != nil {
			return &printedError{err}
		}
		return nil
	}
	cmd.Args = usageArgs(cmd.Args)
	cmd.AddCommand(subcommands(chosen)...)
	cmd.AddCommand(versionCommand(m.providers))
	for _, c := range append(cmd.Commands(), cmd) {
		if c.Flags().Lookup("cloud-provider") != nil && c.Name() != "validate" {
			chosen.completeProviders(c)
		}
	}
	m.setRootHelp(cmd, chosen, flags)
	return cmd, nil
}

// subcommands are all commands except running the controllers.
func subcommands(c choice) []*cobra.Command {
	return []*cobra.Command{
		providersCommand(c.providers), orphansCommand(c), handoverCommand(c), validateCommand(c), preflightCommand(c), planCommand(c),
	}
}

// openCloud runs on every replica, before leader election.
func (m *manager) openCloud(c *config.CompletedConfig) cloudprovider.Interface {
	logWithoutBodies()
	in, err := m.inputs()
	m.services.more, m.services.leaves = m.classesOfControllers(), m.othersPredicate(in)
	trimInformers(c, m.services)
	m.lease.watch(c)
	m.accounts.restrict(c)
	if err == nil {
		var cloud cloudprovider.Interface
		m.warnOfIneffective(c.ComponentConfig.KubeCloudShared.CloudProvider.Name, in)
		if cloud, err = m.providers.Open(c.ComponentConfig.KubeCloudShared.CloudProvider.Name, in); err == nil {
			recordBuild(m.providers, cloud.ProviderName())
			if guarded, ok := cloud.(*guard.Cloud); ok {
				guarded.RegisterMetrics(legacyregistry.MustRegister, legacyregistry.CustomMustRegister)
			}
			return cloud
		}
	}
	for _, problem := range schema.Problems(err) {
		fmt.Fprintln(m.stderr, "Error:", problem)
	}
	m.exit(1)
	return nil
}
