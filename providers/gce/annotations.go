package gce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Names of the annotations, as Google's own controller has them.
const (
	annotationType         = "networking.gke.io/load-balancer-type"
	annotationOldType      = "cloud.google.com/load-balancer-type"
	annotationTier         = "cloud.google.com/network-tier"
	annotationGlobalAccess = "networking.gke.io/internal-load-balancer-allow-global-access"
	annotationSubnet       = "networking.gke.io/internal-load-balancer-subnet"
	annotationRBS          = "cloud.google.com/l4-rbs"
	annotationShare        = "cloud.google.com/load-balancer-backend-share"
	annotationAlphaShare   = "alpha.cloud.google.com/load-balancer-backend-share"
	annotationSourceRanges = v1.AnnotationLoadBalancerSourceRangesKey

	typeInternal = "internal"
	typeExternal = "external"
	annotationOn = "true"
	tierPremium  = "PREMIUM"
	rbsEnabled   = "enabled"
	// featureSubsets in the cloud config leaves new internal load balancers to ingress-gce.
	featureSubsets = "ILBSubsets"
)

// Classes and finalizers by which Google's controllers divide the Services among them.
const (
	classExternal = "networking.gke.io/l4-regional-external-legacy"
	classInternal = "networking.gke.io/l4-regional-internal-legacy"

	finalizerNetLB   = "gke.networking.io/l4-netlb-v1"
	finalizerNetLBv2 = "gke.networking.io/l4-netlb-v2"
	finalizerNetLBv3 = "gke.networking.io/l4-netlb-v3"
	finalizerILB     = "gke.networking.io/l4-ilb-v1"
	finalizerILBv2   = "gke.networking.io/l4-ilb-v2"
)

type settings struct {
	Type, OldType string
	Tier          string
	RBS           string
	GlobalAccess  string
	Subnet        string
	// Share and AlphaShare request a backend service shared by several internal load balancers.
	Share, AlphaShare string
	SourceRanges      []string
}

// Annotations is the table of annotations.
var Annotations = schema.Annotations[settings]{
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, schema.AnnotationRow{
		Key: annotationType, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{"internal", "external"}, AnyCase: true, Default: "external", Lenient: true, Help: "A change gives the load balancer another address."},
		Serves: []schema.Serves{{Portable: portable.Scheme, Values: map[string]string{
			portable.SchemePublic: typeExternal, portable.SchemeInternal: typeInternal,
		}}},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.OldType }, schema.AnnotationRow{
		Key: annotationOldType, Changes: schema.InPlace, Deprecated: annotationType,
		Spec: schema.Spec{Choices: []string{"internal", "external"}, AnyCase: true, Default: "external", Lenient: true, Help: "Counts where the newer annotation is absent."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Tier }, schema.AnnotationRow{
		Key: annotationTier, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{"Premium", "Standard"}, DefaultHelp: "Premium for new load balancers", Help: "Network tier. A change gives the load balancer another address."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.GlobalAccess }, schema.AnnotationRow{
		Key: annotationGlobalAccess, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{annotationOn, "false"}, Default: "false", Lenient: true, Help: "An internal load balancer is reached from all regions."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet }, schema.AnnotationRow{
		Key: annotationSubnet, Changes: schema.InPlace,
		Spec: schema.Spec{
			DefaultHelp: "the cluster's",
			ID:          schema.NewIDForm("the name of a subnet", "my-subnet", `[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?`),
			Help:        "Subnet of an internal load balancer, by name. A change gives the load balancer another address.",
		},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Share }, schema.AnnotationRow{
		Key: annotationShare, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{annotationOn, "false"}, Default: "false", Lenient: true, Help: "An internal load balancer has no backend service of its own, but that of all " +
			"with the same protocol and session affinity. It has no effect with externalTrafficPolicy Local."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.AlphaShare }, schema.AnnotationRow{
		Key: annotationAlphaShare, Changes: schema.InPlace, Deprecated: annotationShare,
		Spec: schema.Spec{Choices: []string{annotationOn, "false"}, Default: "false", Lenient: true, Help: "Counts as the newer annotation does."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.RBS }, schema.AnnotationRow{
		Key: annotationRBS, Changes: schema.InPlace,
		Spec: schema.Spec{Help: `"enabled" leaves the Service to ingress-gce, unless this controller serves it already.`},
	}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.SourceRanges }, schema.AnnotationRow{
		Key: annotationSourceRanges, Changes: schema.InPlace,
		Spec: schema.Spec{DefaultHelp: "0.0.0.0/0", Help: "Networks that may reach the load balancer. spec.loadBalancerSourceRanges counts before it."},
	}),
}.Needing(&schema.Where{Key: annotationType, OneOf: []string{typeInternal}, Decided: true},
	annotationGlobalAccess, annotationSubnet, annotationShare, annotationAlphaShare).
	Needing(&schema.Where{Key: annotationType, NoneOf: []string{typeInternal}, Decided: true}, annotationTier)

const notOneIPv4 = "is not one IPv4 address, which is all that these load balancers have"

// fields lists the Service fields through which portable annotations work.
func fields() []schema.AnnotationRow {
	return []schema.AnnotationRow{{
		Key: portable.FieldLoadBalancerIP, Spec: schema.Spec{Kind: schema.KindString, Rules: []schema.Rule{
			schema.Must(`^\s*`+schema.IPv4Pattern+`\s*$`, notOneIPv4),
		}},
		Serves: []schema.Serves{{Portable: portable.Address, Only: "one"}},
	}}
}

// isInternal reports whether a Service asks for an internal load balancer. Its class outweighs the annotations.
func isInternal(service *v1.Service) bool {
	switch defaults.ClassOf(service) {
	case classExternal:
		return false
	case classInternal:
		return true
	}
	kind, ok := service.Annotations[annotationType]
	if !ok {
		kind = service.Annotations[annotationOldType]
	}
	return strings.EqualFold(kind, typeInternal)
}

// leavesAlone implements registry.Provider.LeavesAlone.
func leavesAlone(in registry.Inputs) func(*v1.Service) bool {
	c, _, _ := parseConfig(in) // errors in it are reported elsewhere
	return func(s *v1.Service) bool { return isLeftAlone(s, c) }
}

// isLeftAlone reports whether ingress-gce or another Google controller serves the Service.
func isLeftAlone(service *v1.Service, c Config) bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(service.Finalizers, n) })
	}
	switch class := defaults.ClassOf(service); {
	case class == classExternal, class == classInternal:
		return false
	case has(finalizerNetLB, finalizerILB):
		return false
	case has(finalizerNetLBv2, finalizerNetLBv3, finalizerILBv2):
		return true
	case isInternal(service):
		return slices.Contains(c.AlphaFeatures, featureSubsets)
	case service.Annotations[annotationRBS] == rbsEnabled:
		return true
	default:
		return c.RBSDefault && class == ""
	}
}

// parseSettings reads and checks the annotations of a Service without calls to the cloud.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	problems := []error{err}
	place := "spec.loadBalancerSourceRanges"
	if len(service.Spec.LoadBalancerSourceRanges) > 0 {
		s.SourceRanges = service.Spec.LoadBalancerSourceRanges
	} else if len(s.SourceRanges) > 0 {
		place = "annotation " + annotationSourceRanges
	}
	ranges, err := sourceRanges(place, s.SourceRanges)
	s.SourceRanges = ranges
	problems = append(problems, err)
	if ip := service.Spec.LoadBalancerIP; ip != "" {
		if a, err := netip.ParseAddr(ip); err != nil || !a.Is4() {
			problems = append(problems, &schema.Problem{Place: "spec.loadBalancerIP", Value: ip, Reason: notOneIPv4})
		}
	}
	if hasMixedProtocols(service) {
		problems = append(problems, &schema.Problem{Place: "spec.ports", Reason: "are of TCP and of UDP, which one load balancer cannot serve; use TCP or UDP for all ports, and two Services for both"})
	}
	warned, refused := serviceFields.Judge(service, nil)
	kind := typeExternal
	if isInternal(service) {
		kind = typeInternal
	}
	unmet := schema.Unmet(Annotations.Rows(), service.Annotations, map[string]string{annotationType: kind}, true)
	return s, errors.Join(warnings, warned, unmet), errors.Join(append(problems, refused)...)
}

// sourceRanges returns the networks without host bits, sorted and without duplicates.
func sourceRanges(place string, list []string) ([]string, error) {
	var ranges []string
	for _, text := range list {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil:
			return nil, &schema.Problem{Place: place, Value: text, Reason: "is not a network such as 10.0.0.0/8"}
		case !p.Addr().Is4():
			return nil, &schema.Problem{Place: place, Value: text, Reason: "is not an IPv4 network, and these load balancers have IPv4 addresses alone"}
		}
		ranges = append(ranges, p.Masked().String())
	}
	if len(ranges) == 0 {
		ranges = []string{"0.0.0.0/0"}
	}
	slices.Sort(ranges)
	ranges = slices.Compact(ranges)
	if err := gcelimits.SourceRanges.CheckNumber(len(ranges)); err != nil {
		return nil, &schema.Problem{Place: place, Reason: err.Error()}
	}
	return ranges, nil
}

// sharesBackend reports whether a Service requests a shared backend service, in the only spelling that Google's own controller reads.
func (s settings) sharesBackend() bool {
	return s.Share == annotationOn || s.AlphaShare == annotationOn
}

// hasMixedProtocols reports whether the ports of a Service have several protocols.
func hasMixedProtocols(service *v1.Service) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return p.Protocol != service.Spec.Ports[0].Protocol })
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	if class := defaults.ClassOf(service); class == classExternal && strings.EqualFold(service.Annotations[annotationType], typeInternal) {
		warnings = errors.Join(warnings, &schema.Problem{
			Place: "annotation " + annotationType, Value: service.Annotations[annotationType], Warning: true,
			Reason: fmt.Sprintf("has no effect with the load balancer class %s; remove it", classExternal),
		})
	}
	return warnings, err
}
