package oci

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

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

// networkSettings are what the annotations of a Service with a network load balancer ask for.
type networkSettings struct {
	Internal                   bool
	Subnet                     string
	Groups                     []string
	Retries, Interval, Timeout int
	Policy                     string
	ListMode, RuleMode         string
	OldFreeform, OldDefined    string
	Freeform, Defined          string
	Selector                   string
	Preserve                   bool
	PPv2                       string
	ExternalOnly               bool
	PrivateIPv4, IPv6          string
	IPMode, Type               string
	BackGroups                 []string
	Compartment, Address       string
	Placed                     string
}

func withDefault(r schema.AnnotationRow, value string) schema.AnnotationRow {
	r.Default = value
	return r
}

// NetworkAnnotations is the table of the annotations that network load balancers alone have, with the names of Oracle's own controller.
var NetworkAnnotations = schema.Annotations[networkSettings]{
	schema.BoolAnnotation(func(s *networkSettings) *bool { return &s.Internal }, atCreation(networkInternal, "The network load balancer has a private address alone.")).
		Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"}}),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Subnet }, byOCID(atCreation(networkSubnet,
		"OCID of the subnet, in the place of loadBalancer.subnet1."))),
	schema.ListAnnotation(func(s *networkSettings) *[]string { return &s.Groups }, byOCID(inPlace(networkGroups,
		"OCIDs of up to five network security groups of the network load balancer; without any, those that somebody attached are taken off."))).
		Serving(schema.Serves{Portable: portable.SecurityGroups}),
	schema.IntAnnotation(func(s *networkSettings) *int { return &s.Retries }, numbered(networkRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 100, "3")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *networkSettings) *int { return &s.Interval }, numbered(networkInterval,
		"Milliseconds between two health checks.", leastNetworkInterval, mostInterval, "10000")).
		Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Millisecond}),
	schema.IntAnnotation(func(s *networkSettings) *int { return &s.Timeout }, numbered(networkTimeout,
		"Milliseconds after which a health check has failed.", 1, 600000, "3000")).
		Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Millisecond}),
	schema.EnumAnnotation(func(s *networkSettings) *string { return &s.Policy }, choice(inPlace(networkPolicy,
		"By how much of an address pair and its ports connections are spread over nodes."), false, fiveTuple, twoTuple, threeTuple, fiveTuple)).
		Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{portable.SourceIP: twoTuple}}),
	schema.EnumAnnotation(func(s *networkSettings) *string { return &s.ListMode }, choice(inPlace(networkListMode,
		"Which rules of security lists are managed: All, Frontend or None."), false, modeNone, modeAll, modeFrontend, modeNone)),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.OldFreeform }, checked(atCreation(networkFreeform,
		"Free-form tags as JSON; the former name of "+networkNewFreeform+", which wins."), jsonForm[map[string]string]("is not JSON of free-form tags"))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.OldDefined }, checked(atCreation(networkDefined,
		"Defined tags as JSON; the former name of "+networkNewDefined+", which wins."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Freeform }, checked(atCreation(networkNewFreeform,
		"Free-form tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]string]("is not JSON of free-form tags"))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Defined }, checked(atCreation(networkNewDefined,
		"Defined tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Selector }, checked(inPlace(networkSelector,
		"Label selector of the nodes that receive traffic."), selectorForm)),
	schema.BoolAnnotation(func(s *networkSettings) *bool { return &s.Preserve }, withDefault(inPlace(networkPreserve,
		"Nodes see the addresses of clients. Only with externalTrafficPolicy Local."), "true")),
	schema.EnumAnnotation(func(s *networkSettings) *string { return &s.PPv2 }, lenient(choice(inPlace(networkPPv2,
		"A header of the PROXY protocol, version 2, is sent to the nodes."), true, "false", "true", "false"))).
		Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV2: "true"}}),
	schema.BoolAnnotation(func(s *networkSettings) *bool { return &s.ExternalOnly }, inPlace(networkExternal,
		"The status shows public addresses alone.")),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.PrivateIPv4 }, checked(atCreation(networkPrivateIPv4,
		"Private address of IPv4."), familyForm(netip.Addr.Is4))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.IPv6 }, checked(atCreation(networkIPv6,
		"Address of IPv6."), familyForm(netip.Addr.Is6))),
}

// sharedAnnotations are those of both kinds of load balancers, as network load balancers read them; the other table shows them.
var sharedAnnotations = schema.Annotations[networkSettings]{
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.RuleMode }, checked(inPlace(annotationRuleMode, "Security rules."), ruleModeForm)),
	schema.ListAnnotation(func(s *networkSettings) *[]string { return &s.BackGroups }, byOCID(inPlace(annotationBackGroups, "Groups of nodes."))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Compartment },
		byOCID(atCreation(annotationCompartment, "Compartment."))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Placed }, byOCID(atCreation(annotationPlaced, "Record."))),
	schema.StringAnnotation(func(s *networkSettings) *string { return &s.Address }, ruled(atCreation(annotationAddress, "Reserved address."), addressRule)),
	schema.EnumAnnotation(func(s *networkSettings) *string { return &s.IPMode },
		choice(inPlace(annotationIPMode, "Mode of addresses."), true, "none", "proxy", "vip")),
	schema.EnumAnnotation(func(s *networkSettings) *string { return &s.Type },
		choice(atCreation(annotationType, "Kind."), true, typeBalancer, typeBalancer, typeNetwork)),
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
func parseNetwork(service *v1.Service) (s networkSettings, warnings, err error) {
	s, warnings, err = append(slices.Clone(NetworkAnnotations), sharedAnnotations...).Parse(service.Annotations)
	problems := append(tooLong(service, Annotations.Rows()), err)
	for _, key := range sortedKeys(service.Annotations) {
		value := service.Annotations[key]
		if ofOther := strings.HasPrefix(key, annotationPrefix) || slices.Contains(otherKindOnly(), key); ofOther {
			warnings = errors.Join(warnings, &schema.Problem{
				Place: "annotation " + key, Value: value, Reason: "has no effect: network load balancers have no such setting", Warning: true,
			})
		}
	}
	if v, has := service.Annotations[annotationRuleSets]; has {
		problems = append(problems, refuseFor(annotationRuleSets, v, "is for load balancers of the other kind: a network load balancer has no rule sets"))
	}
	for _, key := range networkNotServed() {
		if v, has := service.Annotations[key]; has {
			problems = append(problems, refuseFor(key, v, "is not served yet"))
		}
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
	problems = append(problems, s.judge(service)...)
	if ranges, err := sourcesOf(service); err != nil {
		problems = append(problems, &schema.Problem{
			Place: "spec.loadBalancerSourceRanges", Value: strings.Join(service.Spec.LoadBalancerSourceRanges, ","), Reason: err.Error(),
		})
	} else if s.mode() == modeNone && !isOpen(ranges) {
		warnings = errors.Join(warnings, &schema.Problem{
			Place: "spec.loadBalancerSourceRanges", Value: strings.Join(ranges, ","), Warning: true,
			Reason: "has no effect: security rules keep clients out, and those of the Service are made by hand (mode " + modeNone + ")",
		})
	}
	return s, warnings, errors.Join(problems...)
}

// networkNotServed are annotations that ask for what is not served: a network load balancer without it would not be what was asked for.
func networkNotServed() []string { return []string{annotationAccount} }

// mode is how security rules are managed: an annotation says so, or else none are.
func (s networkSettings) mode() string {
	switch {
	case s.RuleMode == modeNone:
		return modeNone
	case s.RuleMode != "":
		return cmp.Or(ruleModes()[strings.ToUpper(s.RuleMode)], modeNone)
	}
	return cmp.Or(s.ListMode, modeNone)
}

// otherKindOnly are annotations with Oracle's common prefix that network load balancers do not have.
func otherKindOnly() []string {
	return []string{
		annotationGroups, annotationPolicy, annotationFreeform, annotationDefined, annotationSelector,
		oraclePrefix + "oci-load-balancer-listener-ssl-config", oraclePrefix + "oci-load-balancer-backendset-ssl-config",
	}
}

// judge is about what annotations and fields mean together.
func (s networkSettings) judge(service *v1.Service) (problems []error) {
	local := service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	if v, has := service.Annotations[networkPreserve]; has && !local {
		problems = append(problems, refuseFor(networkPreserve, v,
			"needs spec.externalTrafficPolicy: Local"))
	}
	limit := maxGroups
	if s.mode() == modeGroups {
		limit-- // one is the Service's own
	}
	if n := len(s.groups()); n > limit {
		problems = append(problems, refuseFor(networkGroups, strings.Join(s.Groups, ","),
			"holds %d groups; a load balancer takes %d", n, limit))
	}
	return append(problems, s.judgeFields(service)...)
}

// judgeFields is about the fields of the Service.
func (s networkSettings) judgeFields(service *v1.Service) (problems []error) {
	field := func(place, value, format string, args ...any) {
		problems = append(problems, &schema.Problem{Place: place, Value: value, Reason: fmt.Sprintf(format, args...)})
	}
	for _, p := range service.Spec.Ports {
		if p.Protocol == v1.ProtocolUDP && s.RuleMode == "" && s.ListMode != "" && s.ListMode != modeNone {
			field("spec.ports", "UDP", "is not possible with managed security lists, which know TCP alone; set %s to None", networkListMode)
		}
	}
	_, refused := serviceFields.Judge(service, map[string]string{annotationType: typeNetwork})
	problems = append(problems, refused)
	switch ip, place := requestedAddress(s.Address, service); {
	case ip == "":
	case addressForm(ip) != nil:
		field(place, ip, "is not an IPv4 address")
	case s.Internal:
		field(place, ip, "is a reserved public address, which an internal load balancer cannot have; remove it, or make the load balancer public")
	}
	return problems
}

// plain are the settings in the words of load balancers of the other kind, as far as both have them: security rules are the same.
func (s networkSettings) plain(service *v1.Service, four, six bool) settings {
	address, place := requestedAddress(s.Address, service)
	return settings{
		Groups: s.Groups, BackGroups: s.BackGroups, Selector: s.Selector,
		OwnCompartment: s.Compartment, Address: address, addressPlace: place, mode: s.mode(),
		preserve: s.preserves(service), six: six, sixAlone: !four,
	}
}

// groups are the network security groups, each once, in an order of their own.
func (s networkSettings) groups() []string { return settings{Groups: s.Groups}.groups() }

// tagsOf are those of the annotations, or else all of those of the cloud config.
func (s networkSettings) tagsOf(configured tags) tags {
	both := settings{Freeform: s.Freeform, Defined: s.Defined}
	if both.Freeform == "" {
		both.Freeform = s.OldFreeform
	}
	if both.Defined == "" {
		both.Defined = s.OldDefined
	}
	return both.tagsOf(configured)
}
