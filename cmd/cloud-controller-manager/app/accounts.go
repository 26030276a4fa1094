package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// controllerAccounts configures the ServiceAccounts of the framework's controllers for --use-service-account-credentials.
type controllerAccounts struct {
	// place is namespace/prefix; empty means Kubernetes' standard accounts.
	place string
}

func (a *controllerAccounts) addFlag(fs *pflag.FlagSet) {
	fs.StringVar(&a.place, "controller-accounts", a.place,
		"ServiceAccounts of the controllers with --use-service-account-credentials, as NAMESPACE/PREFIX: PREFIX-node-controller, PREFIX-service-controller and PREFIX-route-controller. Without it they are node-controller, service-controller and route-controller of kube-system.")
}

// validate refuses invalid names of ServiceAccounts.
func (a *controllerAccounts) validate() error {
	if a.place == "" {
		return nil
	}
	namespace, prefix, _ := strings.Cut(a.place, "/")
	var problems []error
	for _, text := range slices.Concat(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(prefix)) {
		problems = append(problems, fmt.Errorf("--controller-accounts=%s: use NAMESPACE/PREFIX, such as kube-system/cloud-controller-manager: %s", a.place, text))
	}
	return errors.Join(problems...)
}

// account returns the namespace and the name of a controller's ServiceAccount.
func (a *controllerAccounts) account(controller string) (namespace, name string) {
	namespace, prefix, ok := strings.Cut(a.place, "/")
	if !ok {
		return metav1.NamespaceSystem, controller
	}
	return namespace, prefix + "-" + controller
}

// controllerNames returns the client names of the framework's controllers.
func controllerNames() (list []string) {
	for _, controller := range frameworkapp.DefaultInitFuncConstructors {
		list = append(list, controller.InitContext.ClientName)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// controllerClients creates clients with a ServiceAccount for each of the framework's controllers. Other clients use the program's account,
// because Kubernetes has no roles for accounts of their names.
type controllerClients struct {
	own, program cloudprovider.ControllerClientBuilder
	accounts     *controllerAccounts
	controllers  []string
}

// restrict restricts --use-service-account-credentials to the framework's controllers.
func (a *controllerAccounts) restrict(c *config.CompletedConfig) {
	if !c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		return
	}
	namespace, _ := a.account("")
	own := clientbuilder.NewDynamicClientBuilder(restclient.AnonymousClientConfig(c.Kubeconfig), c.Client.CoreV1(), namespace)
	c.ClientBuilder = controllerClients{own, clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig}, a, controllerNames()}
}

// choose returns the builder for a client, and the name to pass to it.
func (c controllerClients) choose(name string) (cloudprovider.ControllerClientBuilder, string) {
	if !slices.Contains(c.controllers, name) {
		return c.program, name
	}
	_, account := c.accounts.account(name)
	return c.own, account
}

// Config implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Config(name string) (*restclient.Config, error) {
	builder, name := c.choose(name)
	return builder.Config(name)
}

// ConfigOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ConfigOrDie(name string) *restclient.Config {
	builder, name := c.choose(name)
	return builder.ConfigOrDie(name)
}

// Client implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Client(name string) (kubernetes.Interface, error) {
	builder, name := c.choose(name)
	return builder.Client(name)
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ClientOrDie(name string) kubernetes.Interface {
	builder, name := c.choose(name)
	return builder.ClientOrDie(name)
}
