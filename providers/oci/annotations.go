package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	annotationPrefix      = "service.beta.kubernetes.io/oci-load-balancer-"
	oraclePrefix          = "oci.oraclecloud.com/"
	networkPrefix         = "oci-network-load-balancer.oraclecloud.com/"
	annotationInternal    = annotationPrefix + "internal"
	annotationShape       = annotationPrefix + "shape"
	annotationShapeMin    = annotationPrefix + "shape-flex-min"
	annotationShapeMax    = annotationPrefix + "shape-flex-max"
	annotationSubnet1     = annotationPrefix + "subnet1"
	annotationSubnet2     = annotationPrefix + "subnet2"
	annotationIdle        = annotationPrefix + "connection-idle-timeout"
	annotationProxy       = annotationPrefix + "connection-proxy-protocol-version"
	annotationProtocol    = annotationPrefix + "backend-protocol"
	annotationRetries     = annotationPrefix + "health-check-retries"
	annotationInterval    = annotationPrefix + "health-check-interval"
	annotationTimeout     = annotationPrefix + "health-check-timeout"
	annotationListMode    = annotationPrefix + "security-list-management-mode"
	annotationRuleMode    = oraclePrefix + "security-rule-management-mode"
	annotationGroups      = oraclePrefix + "oci-network-security-groups"
	annotationPolicy      = oraclePrefix + "loadbalancer-policy"
	annotationFreeform    = oraclePrefix + "initial-freeform-tags-override"
	annotationDefined     = oraclePrefix + "initial-defined-tags-override"
	annotationSelector    = oraclePrefix + "node-label-selector"
	annotationIPMode      = oraclePrefix + "ingress-ip-mode"
	annotationType        = oraclePrefix + "load-balancer-type"
	typeBalancer          = "lb"
	modeNone              = "None"
	shapeFlexible         = "flexible"
	usualShape            = "100Mbps"
	protocolTCP           = "TCP"
	protocolHTTP          = "HTTP"
	roundRobin            = "ROUND_ROBIN"
	leastConnections      = "LEAST_CONNECTIONS"
	ipHash                = "IP_HASH"
	usualRetries          = 3
	usualInterval         = 10000
	usualTimeout          = 3000
	leastInterval         = 1000
	mostInterval          = 1800000
	leastBandwidth        = 10
	mostBandwidth         = 8192
	maxGroups             = 5
	idleTCP, idleHTTP     = 300, 60
	proxyVersion1, proxy2 = 1, 2
)

// settings are what the annotations of a Service ask for.
type settings struct {
	Internal                   bool
	Shape, ShapeMin, ShapeMax  string
	Subnet1, Subnet2           string
	Idle, Proxy                int
	Protocol                   string
	Retries, Interval, Timeout int
	ListMode, RuleMode         string
	Groups                     []string
	Policy                     string
	Freeform, Defined          string
	Selector                   string
	IPMode, Type               string
}

func inPlace(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{Help: help}}
}

func atCreation(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.AtCreation, Spec: schema.Spec{Help: help}}
}

func numbered(key, help string, least, most float64, byDefault string) schema.AnnotationRow {
	r := inPlace(key, help)
	r.Min, r.Max, r.DefaultHelp = &least, &most, byDefault
	return r
}

func choice(r schema.AnnotationRow, anyCase bool, byDefault string, of ...string) schema.AnnotationRow {
	r.Choices, r.AnyCase, r.DefaultHelp = of, anyCase, byDefault
	return r
}

func checked(r schema.AnnotationRow, check func(string) error) schema.AnnotationRow {
	r.Check = check
	return r
}

// Annotations is the table of annotations, with the names of Oracle's own controller.
var Annotations = schema.Annotations[settings]{
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Internal }, atCreation(annotationInternal, "The load balancer has a private address alone.")).
		Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Shape }, inPlace(annotationShape,
		"Shape: flexible, or one of a fixed bandwidth, which tenancies have only of old. 100Mbps where the annotation is absent and the shape is not flexible.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.ShapeMin }, checked(inPlace(annotationShapeMin,
		"Least bandwidth of a flexible shape in Mbps, from 10 to 8192."), bandwidthForm(annotationShapeMin))),
	schema.StringAnnotation(func(s *settings) *string { return &s.ShapeMax }, checked(inPlace(annotationShapeMax,
		"Most bandwidth of a flexible shape in Mbps, from 10 to 8192."), bandwidthForm(annotationShapeMax))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet1 }, checked(atCreation(annotationSubnet1,
		"OCID of the first subnet, in the place of loadBalancer.subnet1."), ocidForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet2 }, checked(atCreation(annotationSubnet2,
		"OCID of the second subnet, in the place of loadBalancer.subnet2."), ocidForm)),
	schema.IntAnnotation(func(s *settings) *int { return &s.Idle }, numbered(annotationIdle,
		"Seconds after which a silent connection is closed.", 1, 7200, "as the cloud has it")).
		Serving(schema.Serves{Portable: portable.IdleTimeout, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Proxy }, numbered(annotationProxy,
		"Version of the PROXY protocol's header that is sent to the nodes: 1 or 2.", proxyVersion1, proxy2, "none")).
		Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV1: "1", portable.ProxyV2: "2"}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Protocol }, checked(inPlace(annotationProtocol,
		"Protocol of all listeners: TCP or HTTP, in any case."), protocolForm)),
	schema.IntAnnotation(func(s *settings) *int { return &s.Retries }, numbered(annotationRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 100, "3")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Interval }, numbered(annotationInterval,
		"Milliseconds between two health checks.", leastInterval, mostInterval, "10000")).
		Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Millisecond}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Timeout }, numbered(annotationTimeout,
		"Milliseconds after which a health check has failed.", 1, 600000, "3000")).
		Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Millisecond}),
	schema.StringAnnotation(func(s *settings) *string { return &s.ListMode }, inPlace(annotationListMode,
		"Which rules of security lists are managed. None alone is served yet: rules are made by hand.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.RuleMode }, inPlace(annotationRuleMode,
		"The same for security lists and network security groups, and wins. None alone is served yet.")),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Groups }, inPlace(annotationGroups,
		"OCIDs of up to five network security groups of the load balancer; without any, those that somebody attached are taken off.")).
		Serving(schema.Serves{Portable: portable.SecurityGroups}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Policy }, choice(inPlace(annotationPolicy,
		"How connections are spread over nodes."), false, roundRobin, roundRobin, leastConnections, ipHash)).
		Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{
			portable.RoundRobin: roundRobin, portable.LeastConnections: leastConnections, portable.SourceIP: ipHash,
		}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Freeform }, checked(atCreation(annotationFreeform,
		"Free-form tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]string]("failed to parse free form tags annotation"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Defined }, checked(atCreation(annotationDefined,
		"Defined tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]map[string]any]("failed to parse defined tags annotation"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Selector }, checked(inPlace(annotationSelector,
		"Label selector of the nodes that receive traffic."), selectorForm)),
	schema.EnumAnnotation(func(s *settings) *string { return &s.IPMode }, choice(inPlace(annotationIPMode,
		"How nodes reach the address that the status shows: proxy, through the load balancer, or vip, directly."), true, "none", "proxy", "vip")),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, choice(atCreation(annotationType,
		"Kind of the load balancer: lb, or nlb for a network load balancer."), true, typeBalancer, typeBalancer, typeNetwork)),
}

func ocidForm(v string) error {
	if !ocid.MatchString(v) {
		return errors.New("is no OCID")
	}
	return nil
}

func protocolForm(v string) error {
	switch strings.ToUpper(v) {
	case protocolTCP, protocolHTTP:
		return nil
	case "GRPC":
		return errors.New("GRPC needs TLS, which is not served yet")
	}
	return fmt.Errorf("invalid backend protocol %q requested for load balancer listener. Only 'HTTP', 'TCP' and 'GRPC' protocols supported", v)
}

func selectorForm(v string) error {
	_, err := labels.Parse(v)
	return err
}

func jsonForm[T any](words string) func(string) error {
	return func(v string) error {
		var into T
		if err := json.Unmarshal([]byte(v), &into); err != nil {
			return fmt.Errorf("%s: %w", words, err)
		}
		return nil
	}
}

var digits = regexp.MustCompile(`[^0-9A-Za-z]+`)

// bandwidth is a bandwidth as the annotation has it, within what the cloud takes.
func bandwidth(v string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(digits.ReplaceAllString(v, ""), "Mbps"))
	return min(max(n, leastBandwidth), mostBandwidth), err
}

func bandwidthForm(key string) func(string) error {
	return func(v string) error {
		if _, err := bandwidth(v); err != nil {
			return fmt.Errorf("invalid format for %s annotation : %s", key, v)
		}
		return nil
	}
}

// notServed are annotations that ask for what is not served yet: a load balancer without it would not be what was asked for.
func notServed() []string {
	return []string{
		annotationPrefix + "ssl-ports", annotationPrefix + "tls-secret", annotationPrefix + "tls-backendset-secret",
		oraclePrefix + "oci-load-balancer-listener-ssl-config", oraclePrefix + "oci-load-balancer-backendset-ssl-config",
		oraclePrefix + "oci-backend-network-security-group", oraclePrefix + "oci-load-balancer-rule-sets", oraclePrefix + "workload-service-account",
		annotationCompartment,
	}
}

func refuseFor(key, value, format string, args ...any) error {
	return &schema.Problem{Place: "annotation " + key, Value: value, Reason: fmt.Sprintf(format, args...)}
}

// parseSettings reads the annotations of a Service, and judges what needs no look at the cloud. mode is how security rules are managed where
// no annotation says so.
func parseSettings(service *v1.Service, mode string) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	problems := []error{err}
	for _, key := range notServed() {
		if v, has := service.Annotations[key]; has {
			problems = append(problems, refuseFor(key, v, "is not served yet"))
		}
	}
	problems = append(problems, s.judge(mode)...)
	problems = append(problems, judgeFields(service)...)
	return s, warnings, errors.Join(problems...)
}

// judge is about what annotations mean together.
func (s settings) judge(mode string) (problems []error) {
	key := annotationRuleMode
	switch {
	case s.RuleMode != "":
		mode = s.RuleMode
	case s.ListMode != "":
		mode, key = s.ListMode, annotationListMode
	}
	if mode != modeNone {
		problems = append(problems, refuseFor(key, mode,
			"security rules are not managed yet: make them by hand and set %s: %s, or loadBalancer.securityListManagementMode of the cloud config",
			annotationRuleMode, modeNone))
	}
	if n := len(s.groups()); n > maxGroups {
		problems = append(problems, refuseFor(annotationGroups, strings.Join(s.Groups, ","),
			"invalid number of Network Security Groups (Max: %d) provided for annotation: %s", maxGroups, annotationGroups))
	}
	for _, id := range s.Groups {
		if !ocid.MatchString(id) {
			problems = append(problems, refuseFor(annotationGroups, id, "invalid NetworkSecurityGroups OCID: %q provided for annotation: %s", s.Groups, annotationGroups))
		}
	}
	return problems
}

// judgeFields is about the fields of the Service.
func judgeFields(service *v1.Service) (problems []error) {
	field := func(place, value, format string, args ...any) {
		problems = append(problems, &schema.Problem{Place: place, Value: value, Reason: fmt.Sprintf(format, args...)})
	}
	for _, p := range service.Spec.Ports {
		switch p.Protocol {
		case v1.ProtocolUDP:
			field("spec.ports", "UDP", "invalid service: OCI load balancers do not support UDP")
		case v1.ProtocolSCTP:
			field("spec.ports", "SCTP", "invalid service: OCI load balancers do not support SCTP")
		}
	}
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		field("spec.sessionAffinity", string(v1.ServiceAffinityClientIP), `invalid service: OCI only supports SessionAffinity "None" currently`)
	}
	if ip := service.Spec.LoadBalancerIP; ip != "" {
		field("spec.loadBalancerIP", ip, "reserved addresses are not served yet")
	}
	if a := service.Spec.AllocateLoadBalancerNodePorts; a != nil && !*a {
		field("spec.allocateLoadBalancerNodePorts", "false", "load balancers of Oracle's cloud send traffic to node ports, which the Service must have")
	}
	if ranges := service.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		field("spec.loadBalancerSourceRanges", strings.Join(ranges, ","),
			"they are kept by security rules, which are not managed yet: the load balancer would be open to whom your own rules let in")
	}
	if slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) {
		field("spec.ipFamilies", string(v1.IPv6Protocol), "IPv6 is not served yet")
	}
	return problems
}

// checkService implements registry.Provider.CheckService.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	if isNetworkService(service) {
		_, warnings, err = parseNetwork(service)
		return warnings, err
	}
	if len(in.File) == 0 { // nobody knows what the cloud config says, which may be None
		_, warnings, err = parseSettings(service, modeNone)
		return warnings, err
	}
	keys, _, _ := readFile(in.File) // faults in it are told at start
	_, warnings, err = parseSettings(service, keys[keyListMode])
	return warnings, err
}

// groups are the network security groups, each once, in an order of their own.
func (s settings) groups() []string {
	all := slices.Clone(s.Groups)
	slices.Sort(all)
	all = slices.Compact(all)
	if all == nil {
		all = []string{}
	}
	return all
}

func orUsual(value, usual int) int {
	if value == 0 {
		return usual
	}
	return value
}
