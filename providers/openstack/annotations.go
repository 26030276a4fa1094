package openstack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Annotation names of OpenStack's own controller.
const (
	annotationPrefix = "loadbalancer.openstack.org/"

	annotationInternal           = "service.beta.kubernetes.io/openstack-internal-load-balancer"
	annotationSourceRanges       = "service.beta.kubernetes.io/load-balancer-source-ranges"
	annotationNodeSelector       = annotationPrefix + "node-selector"
	annotationConnectionLimit    = annotationPrefix + "connection-limit"
	annotationFloatingNetworkID  = annotationPrefix + "floating-network-id"
	annotationFloatingSubnetID   = annotationPrefix + "floating-subnet-id"
	annotationFloatingSubnet     = annotationPrefix + "floating-subnet"
	annotationFloatingSubnetTags = annotationPrefix + "floating-subnet-tags"
	annotationClass              = annotationPrefix + "class"
	annotationKeepFloatingIP     = annotationPrefix + "keep-floatingip"
	annotationPortID             = annotationPrefix + "port-id"
	annotationMethod             = annotationPrefix + "lb-method"
	annotationProxyProtocol      = annotationPrefix + "proxy-protocol"
	annotationSubnetID           = annotationPrefix + "subnet-id"
	annotationNetworkID          = annotationPrefix + "network-id"
	annotationMemberSubnetID     = annotationPrefix + "member-subnet-id"
	annotationClientData         = annotationPrefix + "timeout-client-data"
	annotationMemberConnect      = annotationPrefix + "timeout-member-connect"
	annotationMemberData         = annotationPrefix + "timeout-member-data"
	annotationTCPInspect         = annotationPrefix + "timeout-tcp-inspect"
	annotationForwardedFor       = annotationPrefix + "x-forwarded-for"
	annotationFlavorID           = annotationPrefix + "flavor-id"
	annotationZone               = annotationPrefix + "availability-zone"
	annotationMonitor            = annotationPrefix + "enable-health-monitor"
	annotationMonitorDelay       = annotationPrefix + "health-monitor-delay"
	annotationMonitorTimeout     = annotationPrefix + "health-monitor-timeout"
	annotationMonitorRetries     = annotationPrefix + "health-monitor-max-retries"
	annotationMonitorRetriesDown = annotationPrefix + "health-monitor-max-retries-down"
	annotationHostname           = annotationPrefix + "hostname"
	annotationTLSContainerRef    = annotationPrefix + "default-tls-container-ref"
	annotationID                 = annotationPrefix + "load-balancer-id"
	annotationAddress            = annotationPrefix + "load-balancer-address"
)

const (
	protocolUDP             = "UDP"
	protocolSCTP            = "SCTP"
	protocolHTTP            = "HTTP"
	protocolTerminatedHTTPS = "TERMINATED_HTTPS"
	protocolProxy           = "PROXY"
	protocolProxyV2         = "PROXYV2"

	methodRoundRobin   = "ROUND_ROBIN"
	methodSourceIPPort = "SOURCE_IP_PORT"
	providerOVN        = "ovn"
	storeBarbican      = "barbican"

	textTrue  = "true"
	textFalse = "false"
)

// settings holds a Service's settings. The options supply what its annotations leave out.
type settings struct {
	internal, keepFloatingIP, forwardedFor, monitor bool
	serviceClass                                    class
	nodeSelector                                    []requirement
	sources                                         sources.Set

	// The annotation values before the options supply defaults.
	Internal, KeepFloatingIP, ForwardedFor, Monitor                   string
	NodeSelector, ShareWith, ClassName, PortID, Method, Proxy         string
	FloatingNetworkID, FloatingSubnetID, FloatingSubnet, FloatingTags string
	SubnetID, NetworkID, MemberSubnetID                               string
	FlavorID, Zone, Hostname, TLSContainerRef, ID, Address            string
	ConnectionLimit                                                   int
	ClientData, MemberConnect, MemberData, TCPInspect                 int
	Delay, Timeout, Retries, RetriesDown                              int
	SourceRanges                                                      []string
}

// requirement is one part of a node selector: a required label, with a given value or any.
type requirement struct {
	key, value string
	anyValue   bool
}

func stringRow(
	key, help string, changes schema.Mutability, at func(*settings) *string, check func(string) error,
) schema.Annotation[settings] {
	return schema.StringAnnotation(at, schema.AnnotationRow{Key: key, Changes: changes, Spec: schema.Spec{Help: help, Check: check}})
}

// idRow builds a row whose value is the ID of a cloud object.
func idRow(key, help string, changes schema.Mutability, at func(*settings) *string, form *schema.IDForm) schema.Annotation[settings] {
	return schema.StringAnnotation(at, schema.AnnotationRow{Key: key, Changes: changes, Spec: schema.Spec{Help: help, ID: form}})
}

// switchRow accepts true and false. For other values OpenStack's own controller uses the default.
func switchRow(key, standard, help string, at func(*settings) *string) schema.Annotation[settings] {
	return schema.EnumAnnotation(at, schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{
		Choices: []string{textTrue, textFalse}, Lenient: true, DefaultHelp: standard, Help: help,
	}})
}

func numberRow(key, standard, otherwise, help string, least, most float64, at func(*settings) *int) schema.Annotation[settings] {
	return schema.IntAnnotation(at, schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{
		Default: standard, DefaultHelp: otherwise, Min: &least, Max: &most, Lenient: true, Help: help,
	}})
}

// maxMilliseconds is Octavia's bound on timeouts: a year.
const maxMilliseconds = 31536000000

// Annotations is the table of the provider's annotations.
var Annotations = schema.Annotations[settings]{
	switchRow(annotationInternal, "the option internal-lb", "Give the load balancer no floating address. The option internal-lb cannot be overridden.", func(s *settings) *string { return &s.Internal }).Serving(
		schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: textFalse, portable.SchemeInternal: textTrue}},
	),
	stringRow(annotationNodeSelector, "Labels of the nodes that are members: key=value or key, separated by commas; empty means all nodes.", schema.InPlace, func(s *settings) *string { return &s.NodeSelector }, checkSelector),
	numberRow(annotationConnectionLimit, "-1", "", "Connections that each port takes at most; -1 is without a limit.", -1, 2147483647, func(s *settings) *int { return &s.ConnectionLimit }),
	idRow(annotationFloatingNetworkID, "Network of the floating address; empty looks for one.", schema.AtCreation, func(s *settings) *string { return &s.FloatingNetworkID }, schema.AnyUUID),
	idRow(annotationFloatingSubnetID, "Subnet of the floating address.", schema.AtCreation, func(s *settings) *string { return &s.FloatingSubnetID }, schema.AnyUUID),
	stringRow(annotationFloatingSubnet, "Subnets of the floating address by name: a pattern, with ~ a regular expression, with ! all others.", schema.AtCreation, func(s *settings) *string { return &s.FloatingSubnet }, checkPattern),
	stringRow(annotationFloatingSubnetTags, "Subnets of the floating address by tags: a,b for any; &a,b for all; ! before it for the others.", schema.AtCreation, func(s *settings) *string { return &s.FloatingTags }, nil),
	stringRow(annotationShareWith, "Namespaces whose Services may share the load balancer of this one by its ID, separated by commas.", schema.InPlace, func(s *settings) *string { return &s.ShareWith }, nil),
	stringRow(annotationClass, "Section [LoadBalancerClass] of the cloud config whose networks are used.", schema.AtCreation, func(s *settings) *string { return &s.ClassName }, nil),
	switchRow(annotationKeepFloatingIP, "false", "Keep the floating address when the Service is deleted or becomes internal.", func(s *settings) *string { return &s.KeepFloatingIP }),
	idRow(annotationPortID, "Neutron port that holds the address of the load balancer.", schema.AtCreation, func(s *settings) *string { return &s.PortID }, schema.AnyUUID),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Method }, schema.AnnotationRow{
		Key: annotationMethod, Changes: schema.InPlace, Spec: schema.Spec{Choices: methods(), DefaultHelp: "the option lb-method", Help: "Algorithm of the pools. The provider ovn supports only SOURCE_IP_PORT."},
	}).Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{
		portable.RoundRobin: methodRoundRobin, portable.LeastConnections: "LEAST_CONNECTIONS", portable.SourceIP: "SOURCE_IP",
	}}),
	schema.EnumAnnotation(
		func(s *settings) *string { return &s.Proxy }, schema.AnnotationRow{
			Key: annotationProxyProtocol, Changes: schema.InPlace, Spec: schema.Spec{
				Choices: []string{textFalse, textTrue, "v1", "v2"}, Default: textFalse, Lenient: true, Help: "Tell members the client's address by the PROXY protocol: v1, or true for it, or v2. Pools are replaced.",
			},
		},
	).Serving(schema.Serves{Portable: portable.ProxyProtocol, Same: sameProxy, Values: map[string]string{
		portable.ProxyNone: textFalse, portable.ProxyV1: "v1", portable.ProxyV2: "v2",
	}}),
	idRow(annotationSubnetID, "Subnet of the address of the load balancer, and of its members where no other is set.", schema.AtCreation, func(s *settings) *string { return &s.SubnetID }, schema.AnyUUID).Serving(
		schema.Serves{Portable: portable.Subnet, Only: "one, by its ID"},
	),
	idRow(annotationNetworkID, "Network of the address of the load balancer.", schema.AtCreation, func(s *settings) *string { return &s.NetworkID }, schema.AnyUUID).Serving(
		schema.Serves{Portable: portable.Network, Only: "by its ID"},
	),
	idRow(annotationMemberSubnetID, "Subnet of the members.", schema.InPlace, func(s *settings) *string { return &s.MemberSubnetID }, schema.AnyUUID),
	numberRow(annotationClientData, "50000", "", "Milliseconds that a client may be silent.", 0, maxMilliseconds, func(s *settings) *int { return &s.ClientData }).Serving(
		schema.Serves{Portable: portable.IdleTimeout, Unit: time.Millisecond},
	),
	numberRow(annotationMemberConnect, "5000", "", "Milliseconds to connect to a member.", 0, maxMilliseconds, func(s *settings) *int { return &s.MemberConnect }),
	numberRow(annotationMemberData, "50000", "", "Milliseconds that a member may be silent.", 0, maxMilliseconds, func(s *settings) *int { return &s.MemberData }).Serving(
		schema.Serves{Portable: portable.IdleTimeout, Unit: time.Millisecond},
	),
	numberRow(annotationTCPInspect, "0", "", "Milliseconds to wait for more packets for content inspection.", 0, maxMilliseconds, func(s *settings) *int { return &s.TCPInspect }),
	switchRow(annotationForwardedFor, "false", "Serve TCP ports as HTTP and tell members the client's address in the header X-Forwarded-For.", func(s *settings) *string { return &s.ForwardedFor }),
	idRow(annotationFlavorID, "Octavia's flavor; empty overrides the option flavor-id.", schema.AtCreation, func(s *settings) *string { return &s.FlavorID }, schema.AnyUUID),
	stringRow(annotationZone, "Octavia's availability zone; empty overrides the option availability-zone.", schema.AtCreation, func(s *settings) *string { return &s.Zone }, nil),
	switchRow(annotationMonitor, "the option create-monitor", "Check the health of members.", func(s *settings) *string { return &s.Monitor }).Serving(
		schema.Serves{Portable: portable.CheckPort, Rules: portable.NodePortAlone("Octavia checks"), Translate: portable.Nothing, Only: "`node-port` alone"},
	),
	numberRow(annotationMonitorDelay, "", "the option monitor-delay", "Seconds between two checks.", 1, 2147483647, func(s *settings) *int { return &s.Delay }).Serving(
		schema.Serves{Portable: portable.CheckInterval, Unit: time.Second, Also: withMonitor},
	),
	numberRow(
		annotationMonitorTimeout, "", "the option monitor-timeout", "Seconds after which a check has failed.", 1, 2147483647, func(s *settings) *int { return &s.Timeout },
	).Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Second, Also: withMonitor}),
	numberRow(annotationMonitorRetries, "", "the option monitor-max-retries", "Checks that must pass before a member serves.", 1, 10, func(s *settings) *int { return &s.Retries }).Serving(
		schema.Serves{Portable: portable.HealthyThreshold, Also: withMonitor},
	),
	numberRow(
		annotationMonitorRetriesDown, "", "the option monitor-max-retries-down", "Checks that must fail before a member is left out.", 1, 10, func(s *settings) *int { return &s.RetriesDown },
	).Serving(schema.Serves{Portable: portable.UnhealthyThreshold, Also: withMonitor}),
	stringRow(annotationHostname, "Hostname that the status shows instead of the address.", schema.InPlace, func(s *settings) *string { return &s.Hostname }, checkHostname).Serving(
		schema.Serves{Portable: portable.Hostname},
	),
	idRow(annotationTLSContainerRef, "Certificates for terminating TLS, by their reference in the key manager; empty overrides the option default-tls-container-ref.", schema.InPlace, func(s *settings) *string { return &s.TLSContainerRef }, schema.Reference).Serving(
		schema.Serves{
			Portable: portable.Certificate, Only: "by its reference in the key manager",
			Rules: []schema.Rule{portable.NotSecret("OpenStack", "a reference of the key manager there")},
		},
		schema.Serves{Portable: portable.TLSPorts, Rules: []schema.Rule{everyPort}, Translate: portable.Nothing, Only: "all TCP ports"},
	),
	idRow(annotationID, "Load balancer that serves the Service. Users may set it to share or adopt one.", schema.Written, func(s *settings) *string { return &s.ID }, schema.AnyUUID),
	stringRow(annotationAddress, "Address that is published.", schema.Written, func(s *settings) *string { return &s.Address }, nil),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.SourceRanges }, schema.AnnotationRow{
		Key: annotationSourceRanges, Changes: schema.InPlace, Spec: schema.Spec{Check: sources.Check, Help: "Networks that may connect, separated by commas, where spec.loadBalancerSourceRanges is empty."},
	}),
}.Needing(&schema.Where{Key: annotationInternal, NoneOf: []string{textTrue}},
	annotationFloatingNetworkID, annotationFloatingSubnetID, annotationFloatingSubnet, annotationFloatingSubnetTags)

func checkHostname(v string) error {
	if len(validation.IsDNS1123Subdomain(v)) > 0 || isIP(v) {
		return errors.New(`is not a hostname such as "web.example.com"`)
	}
	return nil
}

func isIP(v string) bool {
	_, err := netip.ParseAddr(v)
	return err == nil
}

func checkSelector(v string) error {
	_, err := parseSelector(v)
	return err
}

// parseSelector reads a node selector: "key=value" or "key" for any value, separated by commas.
func parseSelector(v string) ([]requirement, error) {
	var list []requirement
	for one := range strings.SplitSeq(v, ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		key, value, hasValue := strings.Cut(one, "=")
		r := requirement{key: strings.TrimSpace(key), value: strings.TrimSpace(value), anyValue: !hasValue}
		if r.key == "" {
			return nil, fmt.Errorf(`holds %q, which names no label; use a form such as "pool=edge,zone"`, one)
		}
		list = append(list, r)
	}
	return list, nil
}

func (r requirement) matches(labels map[string]string) bool {
	v, ok := labels[r.key]
	return ok && (r.anyValue || v == r.value)
}

// parseSettings reads a Service's annotations; the options supply missing values. provider is that of its load balancer, or "" if unknown:
// the allowed settings depend on it.
func parseSettings(service *v1.Service, c Config, provider string) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	problems := schema.Problems(err)
	s.fillIn(service.Annotations, c.LoadBalancer, provider)
	if s.nodeSelector, err = parseSelector(s.NodeSelector); err != nil && service.Annotations[annotationNodeSelector] == "" {
		problems = append(problems, &schema.Problem{Place: "key [LoadBalancer] node-selector of the cloud config", Value: s.NodeSelector, Reason: err.Error()})
	}
	if s.ClassName != "" {
		var known bool
		if s.serviceClass, known = c.Classes[s.ClassName]; !known {
			problems = append(problems, unknownClass(s.ClassName, c.Classes))
		}
	}
	problems = append(problems, s.problemsTogether(service.Annotations, c.LoadBalancer, provider)...)
	s.sources, err = sources.ForService(service, annotationSourceRanges)
	problems = append(problems, schema.Problems(err)...)
	fieldWarnings, err := serviceFields.Judge(service, nil)
	problems = append(problems, schema.Problems(err)...)
	warnings = errors.Join(warnings, fieldWarnings, s.warnOfMissingMonitor(service.Annotations))
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return s, warnings, errors.Join(problems...)
}

// warnOfMissingMonitor warns of settings of health monitors where there are none.
func (s *settings) warnOfMissingMonitor(given map[string]string) (warnings error) {
	for _, key := range []string{annotationMonitorDelay, annotationMonitorTimeout, annotationMonitorRetries, annotationMonitorRetriesDown} {
		if given[key] != "" && !s.monitor {
			reason := "has no effect without health monitors; set " + annotationMonitor + " or the option create-monitor to true"
			warnings = errors.Join(warnings, &schema.Problem{Place: "annotation " + key, Reason: reason, Warning: true})
		}
	}
	return warnings
}

// expectedProvider returns the provider that a new load balancer gets. The provider of an existing one is still unknown: "".
func (o loadBalancerConfig) expectedProvider(service *v1.Service) string {
	if service.Annotations[annotationID] != "" {
		return ""
	}
	return o.Provider
}

// fillIn takes from the options what the annotations leave open.
func (s *settings) fillIn(given map[string]string, o loadBalancerConfig, provider string) {
	switch {
	case provider == providerOVN:
		o.Method = methodSourceIPPort
	case o.Provider == providerOVN && o.Method == methodSourceIPPort: // no other provider supports it
		o.Method = methodRoundRobin
	}
	s.internal = o.Internal || s.Internal == textTrue
	s.keepFloatingIP, s.forwardedFor = s.KeepFloatingIP == textTrue, s.ForwardedFor == textTrue
	s.monitor = s.Monitor == textTrue || (s.Monitor == "" && o.CreateMonitor)
	s.Method = cmp.Or(s.Method, o.Method)
	s.Delay, s.Timeout = cmp.Or(s.Delay, int(o.MonitorDelay.Seconds())), cmp.Or(s.Timeout, int(o.MonitorTimeout.Seconds()))
	s.Retries, s.RetriesDown = cmp.Or(s.Retries, o.MonitorRetries), cmp.Or(s.RetriesDown, o.MonitorRetriesDown)
	for key, fill := range map[string]struct {
		field  *string
		option string
	}{
		// These options are overridden even by an empty annotation.
		annotationNodeSelector: {&s.NodeSelector, o.NodeSelector}, annotationFlavorID: {&s.FlavorID, o.FlavorID},
		annotationZone: {&s.Zone, o.AvailabilityZone}, annotationTLSContainerRef: {&s.TLSContainerRef, o.TLSContainerRef},
	} {
		if _, present := given[key]; !present {
			*fill.field = fill.option
		}
	}
}

func unknownClass(name string, classes map[string]class) error {
	reason := "is not a class of the cloud config, which has no section [LoadBalancerClass]"
	if names := slices.Sorted(maps.Keys(classes)); len(names) > 0 {
		reason = "is not a class of the cloud config; there are " + strings.Join(names, ", ")
	}
	return &schema.Problem{Place: "annotation " + annotationClass, Value: name, Reason: reason}
}

// problemsTogether returns problems with combinations of settings.
func (s *settings) problemsTogether(given map[string]string, o loadBalancerConfig, provider string) []error {
	var problems []error
	refuse := func(key, value, reason string) {
		problems = append(problems, &schema.Problem{Place: "annotation " + key, Value: value, Reason: reason})
	}
	if s.proxy() != "" && s.forwardedFor {
		refuse(annotationProxyProtocol, s.Proxy, "and "+annotationForwardedFor+" exclude each other; keep one")
	}
	if provider == providerOVN {
		for key, asked := range map[string]bool{
			annotationProxyProtocol: s.proxy() != "", annotationForwardedFor: s.forwardedFor, annotationTLSContainerRef: s.TLSContainerRef != "",
			annotationMethod: s.Method != methodSourceIPPort,
		} {
			if asked && given[key] != "" {
				refuse(key, given[key], "is not possible with the provider ovn; remove it")
			}
		}
	}
	if s.TLSContainerRef != "" && o.ContainerStore == storeBarbican {
		if _, _, err := splitReference(s.TLSContainerRef); err != nil {
			refuse(annotationTLSContainerRef, s.TLSContainerRef, err.Error())
		}
	}
	return problems
}

// proxy returns the PROXY protocol version to use for pools, or "".
func (s settings) proxy() string {
	switch s.Proxy {
	case textTrue, "v1":
		return protocolProxy
	case "v2":
		return protocolProxyV2
	}
	return ""
}

// splitReference returns the kind and ID, the last two elements of a reference.
func splitReference(ref string) (kind, id string, err error) {
	parts := strings.Split(strings.TrimRight(ref, "/"), "/")
	if len(parts) < 3 {
		return "", "", errors.New(`is not a reference such as "https://host/v1/containers/7a6c3b52-1f0e-4b58-8b4b-0a61c1f9e0a1"`)
	}
	kind, id = parts[len(parts)-2], parts[len(parts)-1]
	if kind != "containers" && kind != "secrets" {
		return "", "", fmt.Errorf("names %q; use a reference of containers or secrets", kind)
	}
	if !schema.AnyUUID.Holds(id) {
		return "", "", fmt.Errorf("ends in %q, which is not %s", id, schema.AnyUUID.Name)
	}
	return kind, id, nil
}

// problemsAbout returns the problems in err about the given annotations. Problems of other kinds stay.
func problemsAbout(err error, keys ...string) error {
	return errors.Join(slices.DeleteFunc(schema.Problems(err), func(one error) bool {
		p, ok := errors.AsType[*schema.Problem](one)
		return ok && !slices.ContainsFunc(keys, func(key string) bool { return p.Place == "annotation "+key })
	})...)
}

// unsupportedSettings reports settings that this Octavia or its provider does not support.
func unsupportedSettings(service *v1.Service, s settings, f features, c loadBalancerConfig) (findings []services.Finding) {
	if !s.sources.Everybody() && !f.hasACL() && (!f.isOVN() || !c.ManageSecurityGroups) {
		findings = append(findings, rangesIgnoredFinding(f.provider))
	}
	if s.Zone != "" && !f.hasZones() {
		findings = append(findings, services.Warning(eventZoneIgnored,
			"the availability zone %q has no effect: this Octavia with provider %s knows none", s.Zone, f.provider))
	}
	return append(findings, s.missingMonitorFindings(service)...)
}

func rangesIgnoredFinding(provider string) services.Finding {
	return services.Warning(eventRangesIgnored, "the source ranges of the Service have no effect: this Octavia with provider %s cannot restrict who comes in", provider)
}

// missingMonitorFindings reports that connections get lost because no health is checked.
func (s settings) missingMonitorFindings(service *v1.Service) (findings []services.Finding) {
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && !s.monitor {
		findings = append(findings, services.Warning(eventNoMonitor, "with externalTrafficPolicy Local and without health monitors, "+
			"connections to nodes that run no pod of the Service are lost; set %s or the option create-monitor to true", annotationMonitor))
	}
	return findings
}

// singleStackFinding reports a load balancer with only one of two families.
func singleStackFinding(family v1.IPFamily) services.Finding {
	return services.Warning(eventSingleStack, "spec.ipFamilies: the load balancer has an address of %s alone: a second one is made with it, and "+
		"needs version 2.26 of Octavia's API, a provider that knows it, and a subnet of the other family on the same network", family)
}
