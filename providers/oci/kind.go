package oci

import (
	"context"
	"regexp"

	v1 "k8s.io/api/core/v1"
)

// kind is what differs between load balancers and network load balancers, two services of the cloud. All else is the same for both.
type kind struct {
	// title is the kind in messages, word the value of the annotation that asks for it.
	title, word string
	// path is that of load balancers, workPath that of work requests.
	path, workPath string
	// statesWork is set where the state of a load balancer says that the cloud works on it; else its work requests do.
	statesWork bool
	// showsCreated is set where the answer to a creation names the load balancer; else its work request does.
	showsCreated bool
	// errorsApart is set where the errors of a work request are read by a call of their own.
	errorsApart bool
	// name is that of a Service's load balancer, as Oracle's own controller gives it, and made matches such names.
	name func(*v1.Service) string
	made *regexp.Regexp

	// parse reads the annotations of a Service. internalKey and subnetKey are those that count when a load balancer is made.
	parse                  func(*v1.Service) (s settings, warnings, err error)
	internalKey, subnetKey string

	// listeners and sets are what is desired of them, by name.
	listeners func(settings, *v1.Service) map[string]document
	sets      func(settings, *v1.Service, []*v1.Node) map[string]document
	// versions are the settings with the versions of IP that there can be; nil changes nothing.
	versions func(*reconciler, context.Context, *v1.Service, settings, *loadBalancer) (settings, error)
	// chooseSubnets says where a new load balancer is to be.
	chooseSubnets func(*reconciler, context.Context, *v1.Service, settings, *placement) error
	// desire adds what load balancers of this kind have alone, and creation what the request for one has; nil adds nothing.
	desire   func(*reconciler, context.Context, *v1.Service, settings, *loadBalancer, *spec) error
	creation func(spec, settings, placement) document

	// normalize is a listener's name by which it is found again, and mergeListener a listener as it should be, with all that is in it besides.
	normalize     func(string) string
	mergeListener func(have, want document) (after document, differs bool)
}

// balancerKind are load balancers.
func balancerKind(c Config) kind {
	return kind{
		title: "load balancer", word: typeBalancer, path: balancerPaths, workPath: "/loadBalancerWorkRequests",
		name:  func(s *v1.Service) string { return ownName(c.Prefix, s) },
		made:  regexp.MustCompile(`^` + regexp.QuoteMeta(ownName(c.Prefix, &v1.Service{})) + `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		parse: func(s *v1.Service) (_ settings, warnings, err error) { return parseSettings(s, c.SecurityListMode) },

		internalKey: annotationInternal, subnetKey: annotationSubnet1,
		listeners: settings.desiredListeners, sets: settings.desiredSets,
		chooseSubnets: (*reconciler).chooseSubnets, desire: (*reconciler).desireBalancer, creation: spec.balancerCreation,
		normalize: normalized, mergeListener: mergeListener,
	}
}

// networkKind are network load balancers.
func networkKind() kind {
	return kind{
		title: kindNetwork, word: typeNetwork, path: networkPaths, workPath: "/workRequests",
		statesWork: true, showsCreated: true, errorsApart: true,
		name: networkName, made: regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9.-]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		parse: parseNetwork, internalKey: networkInternal, subnetKey: networkSubnet,
		listeners: settings.networkListeners, sets: settings.networkSets, versions: (*reconciler).networkVersions,
		chooseSubnets: (*reconciler).chooseNetworkSubnet, creation: spec.networkCreation,
		normalize: normalizedNetwork, mergeListener: mergeNetworkListener,
	}
}
