package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// cloudCommand is the common part of commands that use a cloud and a cluster.
type cloudCommand struct {
	providers   *registry.Registry
	cmd         *cobra.Command
	provider    string
	cloudConfig string
	kubeconfig  string
	// as is the user to impersonate at the API server; empty for none.
	as string
	// readOnly blocks all changes by way of the API server, including events.
	readOnly bool
	defaults serviceDefaults
	adopt    registry.Adoption
	insecure bool
}

// addFlags declares the flags that select cloud and cluster.
func (c *cloudCommand) addFlags() {
	fs := c.cmd.Flags()
	fs.StringVar(&c.provider, "cloud-provider", "", "The cloud.")
	fs.StringVar(&c.cloudConfig, "cloud-config", "", "The provider's configuration file.")
	fs.StringVar(&c.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig; without it the files that the environment variable KUBECONFIG names, and without these the ServiceAccount of the pod.")
	c.adopt.AddFlag(fs)
	c.defaults.addFlags(fs)
	addEndpointFlag(fs, &c.insecure)
}

// open creates the cloud and a client of the API server.
func (c *cloudCommand) open() (cloudprovider.Interface, kubernetes.Interface, error) {
	cloud, err := c.openCloud()
	if err != nil {
		return nil, nil, err
	}
	client, err := c.connect(cloud)
	return cloud, client, err
}

func (c *cloudCommand) openCloud() (cloudprovider.Interface, error) {
	p, in, err := c.inputs()
	if err != nil {
		return nil, err
	}
	warnOfSettings(p, in)
	return c.providers.Open(p.Name, in)
}

// inputs collects the provider's inputs.
func (c *cloudCommand) inputs() (registry.Provider, registry.Inputs, error) {
	p, err := c.providers.Lookup(c.provider)
	if err != nil {
		return p, registry.Inputs{}, usage(err)
	}
	in := registry.Inputs{
		Version: version, Adopt: c.adopt,
		Sources: schema.Sources{
			LookupEnv: schema.Environment, EnvNames: schema.EnvironmentNames,
			Flags: schema.SetFlags(c.cmd.Flags(), p.Options), AllowInsecureEndpoints: c.insecure,
		},
	}
	if c.cloudConfig != "" {
		in.FilePath = c.cloudConfig
		if in.File, err = os.ReadFile(c.cloudConfig); err != nil {
			return p, in, fmt.Errorf("--cloud-config: %w", err)
		}
	}
	if err := c.defaults.load(p, in); err != nil {
		return p, in, err
	}
	in.Defaults = &c.defaults.source
	return p, in, nil
}

// connect creates a client of the API server and passes it to the cloud.
func (c *cloudCommand) connect(cloud cloudprovider.Interface) (kubernetes.Interface, error) {
	config, err := c.configAs(c.as)
	if err != nil {
		return nil, err
	}
	if c.readOnly {
		readOnly(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	cloud.Initialize(clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}, c.cmd.Context().Done())
	return client, nil
}

// configAs returns the client configuration, impersonating a user if one is named.
func (c *cloudCommand) configAs(user string) (*restclient.Config, error) {
	config, err := clusterConfig(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = user
	return config, nil
}

// clusterConfig uses the file of --kubeconfig, those of KUBECONFIG, or the pod's service account.
func clusterConfig(path string) (*restclient.Config, error) {
	variable := clientcmd.RecommendedConfigPathEnvVar
	option := "--kubeconfig=" + path
	if path == "" {
		paths := os.Getenv(variable)
		if paths == "" {
			config, err := restclient.InClusterConfig()
			if errors.Is(err, restclient.ErrNotInCluster) {
				return nil, fmt.Errorf("--kubeconfig is missing, the environment variable %s is not set, and this runs in no pod; name a kubeconfig by one of them", variable)
			}
			return config, err
		}
		option = "environment variable " + variable + "=" + paths
	}
	config, err := kubeconfig(path).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return config, nil
}

// kubeconfig reads the file at a path, or else those of KUBECONFIG.
func kubeconfig(path string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	if path == "" {
		rules.Precedence = filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// contextNamespace returns the namespace of a kubeconfig. Faults of the file are reported when connecting.
func contextNamespace(path string) string {
	namespace, _, err := kubeconfig(path).Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}
