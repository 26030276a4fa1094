package app

import (
	"math/rand/v2"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// trimInformers replaces the shared informers before their first use by ones that drop unused fields. With 5,000 nodes of 18 kB each, this
// needs 83 MB instead of 256 MB.
func trimInformers(c *config.CompletedConfig, services serviceSelection) {
	shortest := c.ComponentConfig.Generic.MinResyncPeriod.Duration
	resync := shortest + time.Duration(rand.Float64()*float64(shortest)) //nolint:gosec // spreads load, as the framework does
	transform := informers.WithTransform(func(obj any) (any, error) {
		if s, ok := obj.(*v1.Service); ok {
			services.apply(s)
		}
		return trim(obj)
	})
	c.SharedInformers = informers.NewSharedInformerFactoryWithOptions(c.VersionedClient, resync, transform)
}

// withOurNodes shows a controller only the cloud's Nodes: the route controller sets the network condition of every Node that it sees.
func withOurNodes(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	return withNodes(inner, (*guard.Cloud).OurNodes)
}

// withServiceNodes gives the service controller one object for all Nodes, because it stores a list of them for each Service.
func withServiceNodes(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	return withNodes(inner, (*guard.Cloud).ServiceNodes)
}

// withFrame starts a controller with the guard's view of the cloud for the framework.
func withFrame(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		if guarded, ok := cloud.(*guard.Cloud); ok {
			cloud = guarded.ForControllers()
		}
		return construct(i, c, cloud)
	}
	return inner
}

// withNodes starts a controller with another view of the Nodes, if the cloud is inside a guard.
func withNodes(
	inner frameworkapp.ControllerInitFuncConstructor, view func(*guard.Cloud, informers.SharedInformerFactory) informers.SharedInformerFactory,
) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		if guarded, ok := cloud.(*guard.Cloud); ok {
			c = withInformers(c, view(guarded, c.SharedInformers))
		}
		return construct(i, c, cloud)
	}
	return inner
}

// withInformers returns the configuration with other shared informers.
func withInformers(c *config.CompletedConfig, factory informers.SharedInformerFactory) *config.CompletedConfig {
	other := *c.Config
	other.SharedInformers = factory
	other.LoopbackClientConfig = nil // completing again would add its token to the authentication twice
	return other.Complete()
}

// intern stores equal texts of many Nodes once.
func intern[T ~string](text T) T { return unique.Make(text).Value() }

// sharedLabels stores label texts once for all Nodes, except the Node's own name.
func sharedLabels(labels map[string]string, own string) map[string]string {
	if labels == nil {
		return nil
	}
	all := make(map[string]string, len(labels))
	for key, value := range labels {
		if value != own {
			value = intern(value)
		}
		all[intern(key)] = value
	}
	return all
}

// trim drops fields of cached objects. The node controller writes cached nodes back with PUT, which ignores the status and keeps missing
// managed fields; spec, labels, annotations, finalizers and owners must stay.
func trim(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	if node, ok := obj.(*v1.Node); ok {
		s := &node.Status
		s.Images, s.VolumesInUse, s.VolumesAttached, s.Config, s.RuntimeHandlers = nil, nil, nil, nil, nil
		s.Capacity, s.Allocatable, s.NodeInfo = nil, nil, v1.NodeSystemInfo{SystemUUID: s.NodeInfo.SystemUUID}
		for i := range s.Conditions {
			c := &s.Conditions[i]
			c.Type, c.Status, c.Reason, c.Message = intern(c.Type), intern(c.Status), intern(c.Reason), ""
		}
		for i := range s.Addresses {
			s.Addresses[i].Type = intern(s.Addresses[i].Type)
		}
		for i := range node.Spec.Taints {
			t := &node.Spec.Taints[i]
			t.Key, t.Value, t.Effect = intern(t.Key), intern(t.Value), intern(t.Effect)
		}
		node.Labels = sharedLabels(node.Labels, node.Name)
	}
	return obj, nil
}
