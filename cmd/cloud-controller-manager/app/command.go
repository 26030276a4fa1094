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

// cloudCommand holds the setup shared by the operators' commands that use a cloud and a cluster.
type cloudCommand struct {
	providers   *registry.Registry
	cmd         *cobra.Command
	provider    string
	cloudConfig string
	kubeconfig  string
	// as is the user that the API server is asked as; empty for one's own.
	as string
	// readOnly keeps everything from the API server that would change it, events included.
	readOnly bool
	defaults serviceDefaults
	adopt    registry.Adoption
	insecure bool
}

// addFlags declares the flags that choose cloud and cluster.
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

// open makes the cloud and a client of the API server.
func (c *cloudCommand) open() (cloudprovider.Interface, kubernetes.Interface, error) {
	cloud, err := c.openCloud()
	if err != nil {
		return nil, nil, err
	}
	client, err := c.connect(cloud)
	return cloud, client, err
}

// openCloud makes the cloud.
func (c *cloudCommand) openCloud() (cloudprovider.Interface, error) {
	p, in, err := c.inputs()
	if err != nil {
		return nil, err
	}
	return c.providers.Open(p.Name, in)
}

// inputs collects everything that the cloud is made of.
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

// connect makes a client of the API server and gives it to the cloud.
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

// configAs says how the API server is reached as a user; empty for one's own.
func (c *cloudCommand) configAs(user string) (*restclient.Config, error) {
	config, err := clusterConfig(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = user
	return config, nil
}

// clusterConfig says how the API server is reached: by the file that --kubeconfig names, by those of KUBECONFIG, or from within a pod.
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

// kubeconfig is the file at a path, without one those of KUBECONFIG.
func kubeconfig(path string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	if path == "" {
		rules.Precedence = filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// contextNamespace is the namespace of a kubeconfig. What is wrong with the file is told by whoever connects.
func contextNamespace(path string) string {
	namespace, _, err := kubeconfig(path).Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}
