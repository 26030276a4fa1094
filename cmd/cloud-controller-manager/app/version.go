package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Set by the linker. The framework's own version variable is unsuitable, because a product version in it would disable newer feature gates.
var (
	version = "dev"
	commit  = "unknown"
)

// moduleVersions returns the versions of the modules that the binary was built from.
func moduleVersions() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			versions[d.Path] = d.Version
			if d.Replace != nil {
				versions[d.Path] = d.Replace.Version
			}
		}
	}
	return versions
}

func versionRequested(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("version")
	return f != nil && f.Changed && f.Value.String() != "false"
}

func printVersion(w io.Writer, providers *registry.Registry) {
	fmt.Fprintf(w, "AnyCCM %s (commit %s, %s, %s/%s)\nKubernetes libraries %s\nLinked providers: %s\n",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, moduleVersions()["k8s.io/cloud-provider"], strings.Join(providers.Names(), ", "))
}

// build is the output of the command version for programs.
type build struct {
	Version             string   `json:"version"`
	Commit              string   `json:"commit"`
	Go                  string   `json:"go"`
	Platform            string   `json:"platform"`
	KubernetesLibraries string   `json:"kubernetesLibraries"`
	Providers           []string `json:"providers"`
}

// versionCommand prints the same as --version, also for programs.
func versionCommand(providers *registry.Registry) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and which clouds are part of this binary", Args: usageArgs(cobra.NoArgs),
		Example: program + " version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, humanText); err != nil {
				return err
			}
			if output == humanText {
				printVersion(cmd.OutOrStdout(), providers)
				return nil
			}
			return printFor(cmd.OutOrStdout(), output, build{
				version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, moduleVersions()["k8s.io/cloud-provider"], providers.Names(),
			})
		},
	}
	addOutputFlag(cmd, &output, humanText)
	return cmd
}

func longHelp(providers *registry.Registry) string {
	return "The cloud controller manager initialises the nodes of a Kubernetes cluster, removes Nodes whose instance is gone,\n" +
		"and serves Services of type LoadBalancer, on the cloud that --cloud-provider names.\n\n" +
		"Linked providers: " + strings.Join(providers.Names(), ", ")
}

// listing is a provider in the output of the command providers.
type listing struct {
	Name               string            `json:"name"`
	Aliases            []string          `json:"aliases,omitempty"`
	Title              string            `json:"title"`
	Stability          string            `json:"stability"`
	SDK                string            `json:"sdk"`
	SDKVersion         string            `json:"sdkVersion"`
	ProviderIDPrefixes []string          `json:"providerIDPrefixes"`
	Features           registry.Features `json:"features"`
}

func providersCommand(providers *registry.Registry) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "providers", Short: "List the cloud providers that are part of this binary", Args: usageArgs(cobra.NoArgs),
		Example: program + " providers",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, humanTable); err != nil {
				return err
			}
			versions := moduleVersions()
			list := []listing{}
			for _, p := range providers.Providers() {
				list = append(list, listing{p.Name, p.Aliases, p.Title, p.Stability, p.SDK, versions[p.SDK], p.ProviderIDPrefixes, p.Features})
			}
			if output == humanTable {
				return printTable(cmd.OutOrStdout(), list)
			}
			return printFor(cmd.OutOrStdout(), output, list)
		},
	}
	addOutputFlag(cmd, &output, humanTable)
	return cmd
}

func printTable(w io.Writer, list []listing) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tTITLE\tSTABILITY\tNODES\tLOAD BALANCERS\tROUTES\tSDK")
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s %s\n", p.Name, p.Title, p.Stability,
			p.Features.Instances, p.Features.LoadBalancers, p.Features.Routes, p.SDK, p.SDKVersion)
	}
	return t.Flush()
}
