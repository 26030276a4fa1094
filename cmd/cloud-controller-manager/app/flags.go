package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// choice is the cloud named by the arguments. It must be known before they are parsed, because a flag may have different meanings on
// different clouds.
type choice struct {
	providers *registry.Registry
	provider  registry.Provider
	err       error
	// fits selects the cloud for examples where none is chosen; nil means any.
	fits func(registry.Provider) bool
}

// choose finds the last --cloud-provider among arguments.
func choose(providers *registry.Registry, args []string) choice {
	const flag = "cloud-provider"
	name := ""
	for i, arg := range args {
		if arg == "--" {
			break
		}
		given, value, assigned := strings.Cut(arg, "=")
		if strings.ReplaceAll(given, "_", "-") != "--"+flag {
			continue
		}
		if !assigned && i+1 < len(args) {
			value = args[i+1]
		}
		name = value
	}
	p, err := providers.Lookup(name)
	return choice{providers: providers, provider: p, err: err}
}

// otherProviders are the clouds that do not run.
func (c choice) otherProviders() []registry.Provider {
	return slices.DeleteFunc(c.providers.Providers(), func(p registry.Provider) bool { return c.err == nil && p.Name == c.provider.Name })
}

// spellings returns the names and aliases of the linked clouds.
func (c choice) spellings() (list []string) {
	for _, p := range c.providers.Providers() {
		list = append(list, strings.Join(append([]string{p.Name}, p.Aliases...), " or "))
	}
	return list
}

// heading names the group of a cloud's flags.
func heading(p registry.Provider) string {
	if p.Title == "" {
		return p.Name
	}
	return p.Title
}

// addTo adds a group of flags for each cloud. A flag that several have is parsed as the chosen cloud's; shown adds the others to their
// groups, for help only.
func (c choice) addTo(sets *cliflag.NamedFlagSets) (shown func()) {
	taken := map[string]bool{}
	var repeated []func()
	add := func(p registry.Provider) {
		var fresh []schema.OptionRow
		for _, o := range p.Options {
			switch {
			case o.Flag == "":
			case taken[o.Flag]:
				repeated = append(repeated, func() { schema.AddFlags(sets.FlagSet(heading(p)), []schema.OptionRow{o}) })
			default:
				fresh = append(fresh, o)
			}
		}
		for _, o := range fresh {
			taken[o.Flag] = true
		}
		schema.AddFlags(sets.FlagSet(heading(p)), fresh)
	}
	if c.err == nil {
		add(c.provider)
	}
	for _, p := range c.otherProviders() {
		add(p)
	}
	slices.Sort(sets.Order[len(sets.Order)-len(c.providers.Providers()):])
	return func() {
		for _, show := range repeated {
			show()
		}
	}
}

// explain extends the error for an unknown argument: it may belong to another cloud, or no cloud may be chosen.
func (c choice) explain(_ *cobra.Command, err error) error {
	return usage(c.extendError(err))
}

func (c choice) extendError(err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		if c.err != nil {
			return errors.Join(c.err, err)
		}
		return fmt.Errorf("%w; see --help", err)
	}
	var owners []string
	for _, p := range c.otherProviders() {
		if slices.ContainsFunc(p.Options, func(o schema.OptionRow) bool { return o.Flag != "" && o.Flag == unknown.GetSpecifiedName() }) {
			owners = append(owners, p.Name)
		}
	}
	switch {
	case len(owners) > 0 && c.err != nil:
		return fmt.Errorf("--%s is a flag of %s: %w", unknown.GetSpecifiedName(), strings.Join(owners, " and "), c.err)
	case len(owners) > 0:
		return fmt.Errorf("--%s is a flag of %s, and this is --cloud-provider=%s; leave it out",
			unknown.GetSpecifiedName(), strings.Join(owners, " and "), c.provider.Name)
	}
	return fmt.Errorf("%w; see --help", err)
}

// addFlags declares the chosen cloud's flags on a subcommand, and shows them in a separate group of its help.
func (c choice) addFlags(cmd *cobra.Command) {
	clouds := pflag.NewFlagSet("", pflag.ContinueOnError)
	if c.err == nil {
		schema.AddFlags(clouds, c.provider.Options)
	}
	cmd.Flags().AddFlagSet(clouds)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if clouds.Lookup(f.Name) == nil {
				own.AddFlag(f)
			}
		})
		printCommandHelp(cmd, own)
		w := cmd.OutOrStdout()
		switch {
		case c.err != nil:
			fmt.Fprintf(w, "\nWith --cloud-provider (%s) also the flags of that cloud, and its environment variables.\n", strings.Join(c.spellings(), ", "))
		case clouds.HasFlags():
			fmt.Fprintf(w, "\n%s flags:\n%s", heading(c.provider), clouds.FlagUsages())
		}
		if c.err == nil {
			printSettings(w, c.provider)
		}
	})
}
