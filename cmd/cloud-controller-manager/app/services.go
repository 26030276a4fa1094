package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
)

// Values of --load-balancer-class-mode.
const (
	// unclassed: only Services without a class, as the framework does.
	unclassed = "unclassed"
	// named: only Services of the class.
	named = "named"
	// namedAndUnclassed: both.
	namedAndUnclassed = "named-and-unclassed"
)

// notSelected replaces the class of Services that we do not serve, in memory only.
const notSelected = "anyccm.io/not-selected"

// serviceSelection selects our Services of type LoadBalancer. The framework serves only those without a class, so the Services that it sees
// are changed accordingly.
type serviceSelection struct {
	class string
	mode  string
	// defaults names additional classes; more are the classes of the cloud's controllers.
	defaults *serviceDefaults
	more     []string
	// leaves reports whether the cloud leaves a Service to another controller; nil if it leaves none.
	leaves func(*v1.Service) bool
}

func (s *serviceSelection) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.class, "load-balancer-class", s.class, "Value of spec.loadBalancerClass of the Services that this program serves, such as example.com/internal. See --load-balancer-class-mode.")
	fs.StringVar(&s.mode, "load-balancer-class-mode", unclassed, "Which Services of type LoadBalancer are served: unclassed (those without a class), named (those of --load-balancer-class alone), named-and-unclassed.")
}

func (s *serviceSelection) validate() error {
	switch {
	case !slices.Contains([]string{unclassed, named, namedAndUnclassed}, s.mode):
		return fmt.Errorf("--load-balancer-class-mode=%s: use %s, %s or %s", s.mode, unclassed, named, namedAndUnclassed)
	case s.class == "" && s.mode != unclassed:
		return fmt.Errorf("--load-balancer-class-mode=%s: needs --load-balancer-class", s.mode)
	case s.class != "" && s.mode == unclassed:
		return fmt.Errorf("--load-balancer-class=%s: has no effect with --load-balancer-class-mode=%s; use %s or %s", s.class, unclassed, named, namedAndUnclassed)
	case s.class != "" && len(validation.IsQualifiedName(s.class)) > 0:
		return fmt.Errorf("--load-balancer-class=%s: is not a label-style name such as example.com/internal", s.class)
	}
	return nil
}

// judge sets the selection for a command that checks Services for one cloud.
func (s *serviceSelection) judge(p registry.Provider, in registry.Inputs, d *serviceDefaults) {
	if s.defaults = d; p.LeavesAlone != nil {
		s.leaves = p.LeavesAlone(in)
	}
}

// selects reports whether we serve Services of this class.
func (s *serviceSelection) selects(class *string) bool {
	if class == nil {
		return s.mode != named
	}
	return (s.mode != unclassed && *class == s.class) || slices.Contains(s.more, *class) ||
		(s.defaults != nil && slices.Contains(s.defaults.servedClasses(), *class))
}

// reasonToLeave explains why another controller serves a Service, "" for ours.
func (s *serviceSelection) reasonToLeave(p registry.Provider, in registry.Inputs, service *v1.Service) string {
	class := service.Spec.LoadBalancerClass
	switch {
	case !s.selects(class) && class == nil:
		return "it has no class, and --load-balancer-class-mode=" + named + " serves those of --load-balancer-class alone"
	case s.selects(class):
		if p.Leaves(in, service) {
			return "its class or its annotations ask for that"
		}
		return ""
	}
	for _, c := range p.Controllers {
		if slices.Contains(c.Classes, *class) {
			return fmt.Sprintf("spec.loadBalancerClass %s is served where --controllers names %s", *class, c.Name)
		}
	}
	return fmt.Sprintf("spec.loadBalancerClass %s is not one that this program serves; --load-balancer-class and --load-balancer-class-mode say which are", *class)
}

// apply changes a cached Service so that the framework serves only ours. The framework would also remove its finalizer from other classes'
// deleted Services, before the other controller could clean up, so that finalizer is hidden. A second pass changes nothing.
func (s *serviceSelection) apply(service *v1.Service) {
	if service.Spec.Type != v1.ServiceTypeLoadBalancer || strings.HasPrefix(service.GetSelfLink(), defaults.Selected) {
		return
	}
	// The framework would write its finalizer and an event before the cloud can decline. A Service with the finalizer is shown, or it would
	// never be removed.
	declined := s.leaves != nil && s.leaves(service) && !slices.Contains(service.Finalizers, servicehelpers.LoadBalancerCleanupFinalizer)
	if s.selects(service.Spec.LoadBalancerClass) && !declined {
		if service.Spec.LoadBalancerClass != nil {
			// client-go may transform an object repeatedly, and the class is needed again. The mark never gets into a patch, because both
			// compared objects have it.
			service.SetSelfLink(defaults.Selected + *service.Spec.LoadBalancerClass)
			service.Spec.LoadBalancerClass = nil
		}
		return
	}
	service.Spec.LoadBalancerClass = new(notSelected)
	service.Finalizers = slices.DeleteFunc(service.Finalizers, func(f string) bool { return f == servicehelpers.LoadBalancerCleanupFinalizer })
}
