package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	frameworkapp "k8s.io/cloud-provider/app"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	program = "cloud-controller-manager"
	// featureGates is a flag whose help is longer than all others'.
	featureGates = "feature-gates"
)

// exampleCloud is the cloud for examples: the chosen one, else the first that fits.
func (c choice) exampleCloud() string {
	if c.err == nil {
		return c.provider.Name
	}
	for _, p := range c.providers.Providers() {
		if c.fits == nil || c.fits(p) {
			return p.Name
		}
	}
	return "CLOUD"
}

// example returns a call of a command; %s stands for the cloud.
func (c choice) example(call string) string {
	return program + " " + strings.ReplaceAll(call, "%s", c.exampleCloud())
}

// setRootHelp prints the commands first, then our flags and the clouds' by group, the framework's, and feature gates last.
func (m *manager) setRootHelp(cmd *cobra.Command, chosen choice, ours cliflag.NamedFlagSets) {
	print := func(w io.Writer) {
		theirs := m.frameworkFlags()
		fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n  %s COMMAND [flags]\n\nCommands:\n", cmd.Long, cmd.UseLine(), program)
		printCommands(w, cmd)
		fmt.Fprintf(w, "\nRun the controllers:\n  %s\n", chosen.example("--cloud-provider=%s --kubeconfig=$HOME/.kube/config"))
		cliflag.PrintSections(w, groupFlags(cmd.Flags(), ours), 0)
		for _, p := range chosen.shownProviders() {
			printSettings(w, p)
		}
		framework := groupFlags(cmd.Flags(), theirs)
		addOtherFlags(framework.FlagSet("global"), cmd.Flags(), ours, theirs)
		cliflag.PrintSections(w, framework, 0)
		if f := cmd.Flags().Lookup(featureGates); f != nil {
			var gates cliflag.NamedFlagSets
			gates.FlagSet("feature gates").AddFlag(f)
			cliflag.PrintSections(w, gates, 0)
		}
	}
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if c != cmd {
			commandHelp(c)
			return
		}
		print(cmd.OutOrStdout())
	})
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		if c == cmd {
			print(c.OutOrStderr())
		}
		return nil
	})
}

// shownProviders returns the clouds whose settings help shows: the chosen one, else all.
func (c choice) shownProviders() []registry.Provider {
	if c.err == nil {
		return []registry.Provider{c.provider}
	}
	return c.providers.Providers()
}

// frameworkFlags returns the framework's flags by group. They use separate options, because declaring a flag sets its variable.
func (m *manager) frameworkFlags() cliflag.NamedFlagSets {
	o, err := newOptions()
	if err != nil {
		return cliflag.NamedFlagSets{} // the program's own options were created in the same way
	}
	return o.Flags(
		frameworkapp.ControllerNames(m.controllers()), frameworkapp.ControllersDisabledByDefault.List(), m.aliases(),
		frameworkapp.AllWebhooks, frameworkapp.DisabledByDefaultWebhooks,
	)
}

// groupFlags returns the command's flags by group, except feature gates.
func groupFlags(all *pflag.FlagSet, from cliflag.NamedFlagSets) (sections cliflag.NamedFlagSets) {
	for _, name := range from.Order {
		section := sections.FlagSet(name)
		from.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Name == featureGates {
				return
			}
			if actual := all.Lookup(f.Name); actual != nil && actual.Value.Type() == f.Value.Type() {
				f = actual // with our default
			}
			section.AddFlag(f)
		})
	}
	return sections
}

// addOtherFlags adds the flags that are in none of the groups.
func addOtherFlags(to, all *pflag.FlagSet, groups ...cliflag.NamedFlagSets) {
	all.VisitAll(func(f *pflag.Flag) {
		for _, g := range groups {
			for _, section := range g.FlagSets {
				if section.Lookup(f.Name) != nil {
					return
				}
			}
		}
		to.AddFlag(f)
	})
}

func printCommands(w io.Writer, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-12s %s\n", c.Name(), c.Short)
			if example := commandExample(c); example != "" {
				fmt.Fprintf(w, "  %-12s   %s\n", "", example)
			}
		}
	}
}

// commandExample returns a command's example, also for commands added by cobra.
func commandExample(cmd *cobra.Command) string {
	if cmd.Name() == "completion" {
		return "source <(" + program + " completion bash)"
	}
	return cmd.Example
}

// commandHelp is the help of a subcommand without flags of a cloud.
func commandHelp(cmd *cobra.Command) {
	printCommandHelp(cmd, cmd.LocalFlags())
}

func printCommandHelp(cmd *cobra.Command, own *pflag.FlagSet) {
	w := cmd.OutOrStdout()
	about := cmd.Short + "."
	if cmd.Long != "" {
		about = cmd.Long
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(about), "..", "."), cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nCommands:\n")
		printCommands(w, cmd)
	}
	if example := commandExample(cmd); example != "" {
		fmt.Fprintf(w, "\nExample:\n  %s\n", example)
	}
	if own.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", own.FlagUsages())
	}
}

// printSettings lists a cloud's settings other than flags: environment variables, and credentials in its cloud config.
func printSettings(w io.Writer, p registry.Provider) {
	var rows []schema.OptionRow
	for _, o := range p.Options {
		secretKey := o.Env == "" && (o.Kind == schema.KindSecret || o.Required)
		if o.Flag == "" && (o.Env != "" || secretKey) {
			rows = append(rows, o)
		}
	}
	if len(rows) == 0 {
		return
	}
	// Credentials and required settings come first.
	slices.SortStableFunc(rows, func(a, b schema.OptionRow) int { return rank(a) - rank(b) })
	fmt.Fprintf(w, "\n%s environment variables and credentials:\n\n", heading(p))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, o := range rows {
		name := o.Env
		switch {
		case name == "":
			name = "key " + o.FileKey
		case o.Kind == schema.KindSecret:
			name += ", " + o.EnvOfFile()
		}
		help := o.Help
		if o.Required {
			help = "Required. " + help
		}
		if o.Default != "" {
			help += " (default " + o.Default + ")"
		}
		fmt.Fprintf(t, "      %s\t%s\n", name, help)
	}
	_ = t.Flush() // help cannot report errors
	if p.Installation.Config.Format != registry.NoConfig {
		fmt.Fprintf(w, "\n      Keys of the file that --cloud-config names: docs/providers/%s.md\n", p.Name)
	}
}

func rank(o schema.OptionRow) int {
	switch {
	case o.Required:
		return 0
	case o.Kind == schema.KindSecret:
		return 1
	}
	return 2
}
