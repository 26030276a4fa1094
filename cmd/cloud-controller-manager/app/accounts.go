package app

import (
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// controllerClients gives each of the framework's controllers a client with its own ServiceAccount. Everything else, such as the cloud's
// part, works as the program itself: no role of Kubernetes gives accounts of its names any rights.
type controllerClients struct {
	own, program cloudprovider.ControllerClientBuilder
	controllers  map[string]bool
}

// useControllerAccounts makes --use-service-account-credentials mean the framework's controllers.
func useControllerAccounts(c *config.CompletedConfig) {
	if !c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		return
	}
	c.ClientBuilder = newControllerClients(c.ClientBuilder, clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig})
}

func newControllerClients(own, program cloudprovider.ControllerClientBuilder) controllerClients {
	clients := controllerClients{own: own, program: program, controllers: map[string]bool{}}
	for _, controller := range frameworkapp.DefaultInitFuncConstructors {
		clients.controllers[controller.InitContext.ClientName] = true
	}
	return clients
}

// builder returns what makes the clients of a name.
func (c controllerClients) builder(name string) cloudprovider.ControllerClientBuilder {
	if c.controllers[name] {
		return c.own
	}
	return c.program
}

// Config implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Config(name string) (*restclient.Config, error) {
	return c.builder(name).Config(name)
}

// ConfigOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ConfigOrDie(name string) *restclient.Config {
	return c.builder(name).ConfigOrDie(name)
}

// Client implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Client(name string) (kubernetes.Interface, error) {
	return c.builder(name).Client(name)
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ClientOrDie(name string) kubernetes.Interface {
	return c.builder(name).ClientOrDie(name)
}
