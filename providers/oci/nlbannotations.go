package oci

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	typeNetwork = "nlb"

	networkInternal    = networkPrefix + "internal"
	networkSubnet      = networkPrefix + "subnet"
	networkGroups      = networkPrefix + "oci-network-security-groups"
	networkRetries     = networkPrefix + "health-check-retries"
	networkInterval    = networkPrefix + "health-check-interval"
	networkTimeout     = networkPrefix + "health-check-timeout"
	networkPolicy      = networkPrefix + "backend-policy"
	networkListMode    = networkPrefix + "security-list-management-mode"
	networkFreeform    = networkPrefix + "freeform-tags"
	networkDefined     = networkPrefix + "defined-tags"
	networkNewFreeform = networkPrefix + "initial-freeform-tags-override"
	networkNewDefined  = networkPrefix + "initial-defined-tags-override"
	networkSelector    = networkPrefix + "node-label-selector"
	networkPreserve    = networkPrefix + "is-preserve-source"
	networkPPv2        = networkPrefix + "is-ppv2-enabled"
	networkExternal    = networkPrefix + "external-ip-only"
	networkPrivateIPv4 = networkPrefix + "assigned-private-ipv4"
	networkIPv6        = networkPrefix + "assigned-ipv6"

	twoTuple, threeTuple, fiveTuple = "TWO_TUPLE", "THREE_TUPLE", "FIVE_TUPLE"
	leastNetworkInterval            = 10000
)

// networkTypes are the values of the annotation that ask for a network load balancer, which counts in any case.
func networkTypes() (all []string) {
	for n := range 1 << len(typeNetwork) {
		word := []byte(typeNetwork)
		for i := range word {
			if n>>i&1 == 1 {
				word[i] -= 'a' - 'A'
			}
		}
		all = append(all, string(word))
	}
	return all
}

// isNetworkService reports whether a Service asks for a network load balancer.
func isNetworkService(service *v1.Service) bool {
	return strings.EqualFold(service.Annotations[annotationType], typeNetwork)
}

func withDefault(r schema.AnnotationRow, value string) schema.AnnotationRow {
	r.Default = value
	return r
}

// NetworkAnnotations is the table of the annotations that network load balancers alone have, with the names of Oracle's own controller.
var NetworkAnnotations = schema.Annotations[settings]{
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Internal }, atCreation(networkInternal, "The network load balancer has a private address alone.")).
		Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet1 }, byOCID(atCreation(networkSubnet,
		"OCID of the subnet, in the place of loadBalancer.subnet1."))),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Groups }, byOCID(inPlace(networkGroups,
		"OCIDs of up to five network security groups of the network load balancer; without any, those that somebody attached are taken off."))).
		Serving(schema.Serves{Portable: portable.SecurityGroups}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Retries }, numbered(networkRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 100, "3")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Interval }, numbered(networkInterval,
		"Milliseconds between two health checks.", leastNetworkInterval, mostInterval, "10000")).
		Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Millisecond}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Timeout }, numbered(networkTimeout,
		"Milliseconds after which a health check has failed.", 1, 600000, "3000")).
		Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Millisecond}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Policy }, choice(inPlace(networkPolicy,
		"By how much of an address pair and its ports connections are spread over nodes."), false, fiveTuple, twoTuple, threeTuple, fiveTuple)).
		Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{portable.SourceIP: twoTuple}}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.ListMode }, choice(inPlace(networkListMode,
		"Which rules of security lists are managed: All, Frontend or None."), false, modeNone, modeAll, modeFrontend, modeNone)),
	schema.StringAnnotation(func(s *settings) *string { return &s.OldFreeform }, checked(atCreation(networkFreeform,
		"Free-form tags as JSON; the former name of "+networkNewFreeform+", which wins."), freeformTags)),
	schema.StringAnnotation(func(s *settings) *string { return &s.OldDefined }, checked(atCreation(networkDefined,
		"Defined tags as JSON; the former name of "+networkNewDefined+", which wins."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Freeform }, checked(atCreation(networkNewFreeform,
		"Free-form tags as JSON, in the place of all tags of the cloud config."), freeformTags)),
	schema.StringAnnotation(func(s *settings) *string { return &s.Defined }, checked(atCreation(networkNewDefined,
		"Defined tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Selector }, checked(inPlace(networkSelector,
		"Label selector of the nodes that receive traffic."), selectorForm)),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Preserve }, withDefault(inPlace(networkPreserve,
		"Nodes see the addresses of clients. Only with externalTrafficPolicy Local."), "true")),
	schema.EnumAnnotation(func(s *settings) *string { return &s.PPv2 }, lenient(choice(inPlace(networkPPv2,
		"A header of the PROXY protocol, version 2, is sent to the nodes."), true, "false", "true", "false"))).
		Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV2: "true"}}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.ExternalOnly }, inPlace(networkExternal,
		"The status shows public addresses alone.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.PrivateIPv4 }, checked(atCreation(networkPrivateIPv4,
		"Private address of IPv4."), familyForm(netip.Addr.Is4))),
	schema.StringAnnotation(func(s *settings) *string { return &s.IPv6 }, checked(atCreation(networkIPv6,
		"Address of IPv6."), familyForm(netip.Addr.Is6))),
}

// sharedAnnotations are those of the other table that network load balancers have as well.
func sharedAnnotations() schema.Annotations[settings] {
	return slices.DeleteFunc(slices.Clone(Annotations), func(a schema.Annotation[settings]) bool {
		return !slices.Contains(bothKinds(), a.Key) || a.Key == annotationRuleSets // which is refused, whatever it says
	})
}

// bothKinds are the annotations that both kinds of load balancers have.
func bothKinds() []string {
	return []string{
		annotationRuleMode, annotationBackGroups, annotationIPMode, annotationType, annotationCompartment, annotationPlaced,
		annotationAccount, annotationRuleSets, annotationAddress,
	}
}

// annotationRows are the annotations of both kinds, each with the Services that it is for.
func annotationRows() []schema.AnnotationRow {
	rows := Annotations.Rows()
	for n := range rows {
		if !slices.Contains(bothKinds(), rows[n].Key) {
			rows[n].Where = &schema.Where{Key: annotationType, NoneOf: networkTypes()}
		}
	}
	for _, row := range NetworkAnnotations.Rows() {
		row.Where = &schema.Where{Key: annotationType, OneOf: networkTypes()}
		rows = append(rows, row)
	}
	return rows
}

func familyForm(fits func(netip.Addr) bool) func(string) error {
	return func(v string) error {
		if ip, err := netip.ParseAddr(v); err != nil || !fits(ip) {
			return errors.New("is no such address")
		}
		return nil
	}
}

// parseNetwork reads the annotations of a Service with a network load balancer, and judges what needs no look at the cloud. Annotations of
// load balancers of the other kind have no effect, and are told of.
func parseNetwork(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = append(slices.Clone(NetworkAnnotations), sharedAnnotations()...).Parse(service.Annotations)
	s.completeNetwork(service)
	problems := append(tooLong(service, Annotations.Rows()), err)
	for _, key := range sortedKeys(service.Annotations) {
		value := service.Annotations[key]
		if strings.HasPrefix(key, annotationPrefix) || isOfBalancers(key) {
			warnings = errors.Join(warnings, &schema.Problem{
				Place: "annotation " + key, Value: value, Reason: "has no effect: network load balancers have no such setting", Warning: true,
			})
		}
	}
	if v, has := service.Annotations[annotationRuleSets]; has {
		problems = append(problems, refuseFor(annotationRuleSets, v, "is for load balancers of the other kind: a network load balancer has no rule sets"))
	}
	if v, has := service.Annotations[annotationAccount]; has { // one without it would not be what was asked for
		problems = append(problems, refuseFor(annotationAccount, v, "is not served yet"))
	}
	for _, of := range []struct {
		key, value string
		family     v1.IPFamily
	}{{networkPrivateIPv4, s.PrivateIPv4, v1.IPv4Protocol}, {networkIPv6, s.IPv6, v1.IPv6Protocol}} {
		if four, six := families(service); of.value != "" && (of.family == v1.IPv4Protocol && !four || of.family == v1.IPv6Protocol && !six) {
			warnings = errors.Join(warnings, &schema.Problem{
				Place: "annotation " + of.key, Value: of.value, Reason: "has no effect: the Service has no addresses of " + string(of.family), Warning: true,
			})
		}
	}
	problems = append(problems, s.judgeNetwork(service)...)
	warnings = errors.Join(warnings, s.warnOfSources(service), services.WarnOfPorts(service, ocilimits.NetworkListeners))
	return s, warnings, errors.Join(problems...)
}

// completeNetwork fills in what follows from the annotations.
func (s *settings) completeNetwork(service *v1.Service) {
	s.network = true
	s.Address, s.addressPlace = requestedAddress(s.Address, service)
	s.Freeform, s.Defined = cmp.Or(s.Freeform, s.OldFreeform), cmp.Or(s.Defined, s.OldDefined)
	s.mode = s.modeOf(modeNone)
	s.preserve = service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && s.Preserve
	four, six := families(service)
	*s = s.inVersions(four, six)
}

// inVersions are the settings for a load balancer with some versions of IP.
func (s settings) inVersions(four, six bool) settings {
	s.six, s.sixAlone = six, !four
	return s
}

// inVersion is the same by the word for them.
func (s settings) inVersion(version string) settings {
	return s.inVersions(version != versionIPv6, version == versionIPv6 || version == versionBoth)
}

// isOfBalancers reports whether load balancers alone have an annotation, and network load balancers do not.
func isOfBalancers(key string) bool {
	has := func(a schema.Annotation[settings]) bool { return a.Key == key }
	return slices.ContainsFunc(Annotations, has) && !slices.Contains(bothKinds(), key)
}

// judgeNetwork is about what annotations and fields mean together.
func (s settings) judgeNetwork(service *v1.Service) (problems []error) {
	local := service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	if v, has := service.Annotations[networkPreserve]; has && !local {
		problems = append(problems, refuseFor(networkPreserve, v,
			"needs spec.externalTrafficPolicy: Local"))
	}
	problems = append(problems, s.judgeGroups(networkGroups)...)
	for _, p := range service.Spec.Ports {
		if p.Protocol == v1.ProtocolUDP && s.RuleMode == "" && s.ListMode != "" && s.ListMode != modeNone {
			problems = append(problems, &schema.Problem{
				Place: "spec.ports", Value: "UDP",
				Reason: "is not possible with managed security lists, which know TCP alone; set " + networkListMode + " to None",
			})
		}
	}
	return append(problems, s.judgeFields(service, typeNetwork)...)
}
