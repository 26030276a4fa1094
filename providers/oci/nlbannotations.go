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
	typeNLB = "nlb"

	nlbInternal    = nlbPrefix + "internal"
	nlbSubnet      = nlbPrefix + "subnet"
	nlbGroups      = nlbPrefix + "oci-network-security-groups"
	nlbRetries     = nlbPrefix + "health-check-retries"
	nlbInterval    = nlbPrefix + "health-check-interval"
	nlbTimeout     = nlbPrefix + "health-check-timeout"
	nlbPolicy      = nlbPrefix + "backend-policy"
	nlbListMode    = nlbPrefix + "security-list-management-mode"
	nlbFreeform    = nlbPrefix + "freeform-tags"
	nlbDefined     = nlbPrefix + "defined-tags"
	nlbNewFreeform = nlbPrefix + "initial-freeform-tags-override"
	nlbNewDefined  = nlbPrefix + "initial-defined-tags-override"
	nlbSelector    = nlbPrefix + "node-label-selector"
	nlbPreserve    = nlbPrefix + "is-preserve-source"
	nlbPPv2        = nlbPrefix + "is-ppv2-enabled"
	nlbExternal    = nlbPrefix + "external-ip-only"
	nlbPrivateIPv4 = nlbPrefix + "assigned-private-ipv4"
	nlbIPv6        = nlbPrefix + "assigned-ipv6"

	twoTuple, threeTuple, fiveTuple = "TWO_TUPLE", "THREE_TUPLE", "FIVE_TUPLE"
	leastNLBInterval                = 10000
)

// nlbTypes returns the values that ask for a network load balancer, in every combination of cases.
func nlbTypes() (all []string) {
	for n := range 1 << len(typeNLB) {
		word := []byte(typeNLB)
		for i := range word {
			if n>>i&1 == 1 {
				word[i] -= 'a' - 'A'
			}
		}
		all = append(all, string(word))
	}
	return all
}

func isNLBService(service *v1.Service) bool {
	return strings.EqualFold(service.Annotations[annotationType], typeNLB)
}

// NLBAnnotations is the table of the annotations for network load balancers alone, with the names of Oracle's own controller.
var NLBAnnotations = schema.Annotations[settings]{
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Internal }, atCreation(nlbInternal, "The network load balancer has a private address alone.")).
		Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet1 }, asOCID(atCreation(nlbSubnet,
		"OCID of the subnet, in the place of loadBalancer.subnet1."))),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Groups }, asOCID(inPlace(nlbGroups,
		"OCIDs of up to five network security groups of the network load balancer; without any, those that somebody attached are taken off."))).
		Serving(schema.Serves{Portable: portable.SecurityGroups}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Retries }, intRow(nlbRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 100, "3")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Interval }, intRow(nlbInterval,
		"Milliseconds between two health checks.", leastNLBInterval, mostInterval, "10000")).
		Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Millisecond}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Timeout }, intRow(nlbTimeout,
		"Milliseconds after which a health check has failed.", 1, 600000, "3000")).
		Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Millisecond}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Policy }, withChoices(inPlace(nlbPolicy,
		"By how much of an address pair and its ports connections are spread over nodes."), false, fiveTuple, twoTuple, threeTuple, fiveTuple)).
		Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{portable.SourceIP: twoTuple}}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.ListMode }, withChoices(inPlace(nlbListMode,
		"Which rules of security lists are managed: All, Frontend or None."), false, modeNone, modeAll, modeFrontend, modeNone)),
	schema.StringAnnotation(func(s *settings) *string { return &s.OldFreeform }, withCheck(atCreation(nlbFreeform,
		"Free-form tags as JSON; the former name of "+nlbNewFreeform+", which wins."), freeformTags)),
	schema.StringAnnotation(func(s *settings) *string { return &s.OldDefined }, withCheck(atCreation(nlbDefined,
		"Defined tags as JSON; the former name of "+nlbNewDefined+", which wins."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Freeform }, withCheck(atCreation(nlbNewFreeform,
		"Free-form tags as JSON, in the place of all tags of the cloud config."), freeformTags)),
	schema.StringAnnotation(func(s *settings) *string { return &s.Defined }, withCheck(atCreation(nlbNewDefined,
		"Defined tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Selector }, withCheck(inPlace(nlbSelector,
		"Label selector of the nodes that receive traffic."), selectorForm)),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Preserve }, schema.AnnotationRow{
		Key: nlbPreserve, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "true", Help: "Nodes see the addresses of clients. Only with externalTrafficPolicy Local."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.PPv2 }, asLenient(withChoices(inPlace(nlbPPv2,
		"A header of the PROXY protocol, version 2, is sent to the nodes."), true, "false", "true", "false"))).
		Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV2: "true"}}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.ExternalOnly }, inPlace(nlbExternal,
		"The status shows public addresses alone.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.PrivateIPv4 }, withCheck(atCreation(nlbPrivateIPv4,
		"Private address of IPv4."), familyForm(netip.Addr.Is4))),
	schema.StringAnnotation(func(s *settings) *string { return &s.IPv6 }, withCheck(atCreation(nlbIPv6,
		"Address of IPv6."), familyForm(netip.Addr.Is6))),
}

// sharedAnnotations returns the rows of the other table that apply to network load balancers.
func sharedAnnotations() schema.Annotations[settings] {
	return slices.DeleteFunc(slices.Clone(Annotations), func(a schema.Annotation[settings]) bool {
		return !slices.Contains(sharedKeys(), a.Key) || a.Key == annotationRuleSets // which is refused, whatever it says
	})
}

// sharedKeys returns the annotations of both kinds of load balancers.
func sharedKeys() []string {
	return []string{
		annotationRuleMode, annotationBackGroups, annotationIPMode, annotationType, annotationCompartment, annotationPlaced,
		annotationAccount, annotationRuleSets, annotationAddress,
	}
}

// annotationRows returns all rows, each with the Services that it applies to.
func annotationRows() []schema.AnnotationRow {
	rows := Annotations.Rows()
	for n := range rows {
		if !slices.Contains(sharedKeys(), rows[n].Key) {
			rows[n].Where = &schema.Where{Key: annotationType, NoneOf: nlbTypes()}
		}
	}
	for _, row := range NLBAnnotations.Rows() {
		row.Where = &schema.Where{Key: annotationType, OneOf: nlbTypes()}
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

// parseNLB is parseSettings for network load balancers. It warns of annotations for load balancers, which have no effect.
func parseNLB(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = append(slices.Clone(NLBAnnotations), sharedAnnotations()...).Parse(service.Annotations)
	s.completeNLB(service)
	problems := append(checkLengths(service, Annotations.Rows()), err)
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
	}{{nlbPrivateIPv4, s.PrivateIPv4, v1.IPv4Protocol}, {nlbIPv6, s.IPv6, v1.IPv6Protocol}} {
		if four, six := families(service); of.value != "" && (of.family == v1.IPv4Protocol && !four || of.family == v1.IPv6Protocol && !six) {
			warnings = errors.Join(warnings, &schema.Problem{
				Place: "annotation " + of.key, Value: of.value, Reason: "has no effect: the Service has no addresses of " + string(of.family), Warning: true,
			})
		}
	}
	problems = append(problems, s.judgeNLB(service)...)
	warnings = errors.Join(warnings, s.warnOfSources(service), services.WarnOfPorts(service, ocilimits.NetworkListeners))
	return s, warnings, errors.Join(problems...)
}

// completeNLB sets the fields that follow from the annotations.
func (s *settings) completeNLB(service *v1.Service) {
	s.nlb = true
	s.Address, s.addressPlace = requestedAddress(s.Address, service)
	s.Freeform, s.Defined = cmp.Or(s.Freeform, s.OldFreeform), cmp.Or(s.Defined, s.OldDefined)
	s.mode = s.modeOf(modeNone)
	s.preserve = service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && s.Preserve
	four, six := families(service)
	*s = s.inVersions(four, six)
}

// inVersions returns the settings for some IP versions.
func (s settings) inVersions(four, six bool) settings {
	s.ipv6, s.ipv6Only = six, !four
	return s
}

// inVersion returns the settings for the API's word for them.
func (s settings) inVersion(version string) settings {
	return s.inVersions(version != versionIPv6, version == versionIPv6 || version == versionBoth)
}

// isOfBalancers reports whether an annotation does not apply to network load balancers.
func isOfBalancers(key string) bool {
	has := func(a schema.Annotation[settings]) bool { return a.Key == key }
	return slices.ContainsFunc(Annotations, has) && !slices.Contains(sharedKeys(), key)
}

// judgeNLB checks combinations of annotations and fields.
func (s settings) judgeNLB(service *v1.Service) (problems []error) {
	local := service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	if v, has := service.Annotations[nlbPreserve]; has && !local {
		problems = append(problems, refuseFor(nlbPreserve, v,
			"needs spec.externalTrafficPolicy: Local"))
	}
	problems = append(problems, s.judgeGroups(nlbGroups)...)
	for _, p := range service.Spec.Ports {
		if p.Protocol == v1.ProtocolUDP && s.RuleMode == "" && s.ListMode != "" && s.ListMode != modeNone {
			problems = append(problems, &schema.Problem{
				Place: "spec.ports", Value: "UDP",
				Reason: "is not possible with managed security lists, which know TCP alone; set " + nlbListMode + " to None",
			})
		}
	}
	return append(problems, s.judgeFields(service, typeNLB)...)
}
