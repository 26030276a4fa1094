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

// Modes of --load-balancer-class-mode.
const (
	// unclassed Services alone are served, which is the framework's way.
	unclassed = "unclassed"
	// named: Services of the class alone.
	named = "named"
	// namedAndUnclassed: both.
	namedAndUnclassed = "named-and-unclassed"
)

// notSelected stands in for the class of Services that are not ours to serve. It exists in our memory alone.
const notSelected = "anyccm.io/not-selected"

// serviceSelection says which Services of type LoadBalancer are ours. The framework knows only those without a class;
// what it gets to see is changed accordingly.
type serviceSelection struct {
	class string
	mode  string
	// defaults name classes that are served in addition, and more are those of controllers of the cloud.
	defaults *serviceDefaults
	more     []string
	// leaves reports whether the cloud leaves a Service to another controller; nil where it leaves none.
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

// judge has the selection of a command that looks at Services for one cloud.
func (s *serviceSelection) judge(p registry.Provider, in registry.Inputs, d *serviceDefaults) {
	if s.defaults = d; p.LeavesAlone != nil {
		s.leaves = p.LeavesAlone(in)
	}
}

// selects reports whether a Service of type LoadBalancer is ours.
func (s *serviceSelection) selects(class *string) bool {
	if class == nil {
		return s.mode != named
	}
	return (s.mode != unclassed && *class == s.class) || slices.Contains(s.more, *class) ||
		(s.defaults != nil && slices.Contains(s.defaults.servedClasses(), *class))
}

// whyLeft says why another controller serves a Service, and nothing of one that is ours.
func (s *serviceSelection) whyLeft(p registry.Provider, in registry.Inputs, service *v1.Service) string {
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

// apply changes a cached Service so that the framework serves those that are ours and leaves the others alone. It would
// also take its finalizer off Services of other classes that are being deleted, and with it the other controller's
// chance to clean up: their finalizer is hidden from it. A further pass changes nothing.
func (s *serviceSelection) apply(service *v1.Service) {
	if service.Spec.Type != v1.ServiceTypeLoadBalancer || strings.HasPrefix(service.GetSelfLink(), defaults.Selected) {
		return
	}
	// The framework would write its finalizer and an event before the cloud can decline. A Service that has the finalizer already is shown,
	// or nobody would ever take that off.
	declined := s.leaves != nil && s.leaves(service) && !slices.Contains(service.Finalizers, servicehelpers.LoadBalancerCleanupFinalizer)
	if s.selects(service.Spec.LoadBalancerClass) && !declined {
		if service.Spec.LoadBalancerClass != nil {
			// client-go may pass an object through a transform more than once, and the class is asked for again. Patches hold
			// differences between two cached objects, so that the mark is in none of them.
			service.SetSelfLink(defaults.Selected + *service.Spec.LoadBalancerClass)
			service.Spec.LoadBalancerClass = nil
		}
		return
	}
	service.Spec.LoadBalancerClass = new(notSelected)
	service.Finalizers = slices.DeleteFunc(service.Finalizers, func(f string) bool { return f == servicehelpers.LoadBalancerCleanupFinalizer })
}
