package azure

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const prefix = "service.beta.kubernetes.io/"

// Annotations of Services.
const (
	annotationInternal      = prefix + "azure-load-balancer-internal"
	annotationSubnet        = prefix + "azure-load-balancer-internal-subnet"
	annotationMode          = prefix + "azure-load-balancer-mode"
	annotationConfigs       = prefix + "azure-load-balancer-configurations"
	annotationIPv4          = prefix + "azure-load-balancer-ipv4"
	annotationIPv6          = prefix + "azure-load-balancer-ipv6"
	annotationGroup         = prefix + "azure-load-balancer-resource-group"
	annotationName          = prefix + "azure-pip-name"
	annotationName6         = prefix + "azure-pip-name-ipv6"
	annotationPrefixID      = prefix + "azure-pip-prefix-id"
	annotationPrefixID6     = prefix + "azure-pip-prefix-id-ipv6"
	annotationTags          = prefix + "azure-pip-tags"
	annotationIPTags        = prefix + "azure-pip-ip-tags"
	annotationLabel         = prefix + "azure-dns-label-name"
	annotationAdditional    = prefix + "azure-additional-public-ips"
	annotationServiceTags   = prefix + "azure-allowed-service-tags"
	annotationAllowedRanges = prefix + "azure-allowed-ip-ranges"
	annotationSourceRanges  = prefix + "load-balancer-source-ranges"
	annotationDenyAll       = prefix + "azure-deny-all-except-load-balancer-source-ranges"
	annotationNoSecurity    = prefix + "azure-disable-load-balancer-nsg-rule"
	annotationIdle          = prefix + "azure-load-balancer-tcp-idle-timeout"
	annotationNoReset       = prefix + "azure-load-balancer-disable-tcp-reset"
	annotationAllPorts      = prefix + "azure-load-balancer-enable-high-availability-ports"
	annotationNoFloating    = prefix + "azure-disable-load-balancer-floating-ip"
	annotationProbeProtocol = prefix + "azure-load-balancer-health-probe-protocol"
	annotationProbeInterval = prefix + "azure-load-balancer-health-probe-interval"
	annotationProbeNumber   = prefix + "azure-load-balancer-health-probe-num-of-probe"
	annotationProbePath     = prefix + "azure-load-balancer-health-probe-request-path"
	annotationPrivateLink   = prefix + "azure-pls-create"
	annotationLinkGroup     = prefix + "azure-pls-resource-group"
	annotationLinkName      = prefix + "azure-pls-name"
	annotationLinkSubnet    = prefix + "azure-pls-ip-configuration-subnet"
	annotationLinkCount     = prefix + "azure-pls-ip-configuration-ip-address-count"
	annotationLinkIPs       = prefix + "azure-pls-ip-configuration-ip-address"
	annotationLinkFQDNs     = prefix + "azure-pls-fqdns"
	annotationLinkProxy     = prefix + "azure-pls-proxy-protocol"
	annotationLinkVisible   = prefix + "azure-pls-visibility"
	annotationLinkApproved  = prefix + "azure-pls-auto-approval"
)

// settings holds the parsed annotations of a Service.
type settings struct {
	Internal                      bool
	Subnet                        string
	Mode, Configs                 string // without effect
	IPv4, IPv6                    string
	Group                         string
	Name, Name6                   string
	PrefixID, PrefixID6           string
	Tags, IPTags                  string
	Label                         string
	LabelGiven, IPTagsGiven       bool
	Additional                    []string
	ServiceTags                   []string
	AllowedRanges, SourceRanges   []string
	DenyAll, NoSecurity           bool
	Idle                          int
	NoReset, AllPorts, NoFloating bool
	ProbeProtocol, ProbePath      string
	ProbeInterval, ProbeNumber    int
	Link                          linkSettings
	ports                         map[int32]portSettings
}

// portSettings are those of one port of a Service.
type portSettings struct {
	NoRule, NoProbe      bool
	Protocol, Port, Path string
	Interval, Number     int
}

// splitList returns the texts between commas, without blanks and empty ones.
func splitList(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// ofPort is the beginning of annotations about one port.
const ofPort = prefix + "port_" + schema.Numbered + "_"

func keyOfPort(port int32, name string) string {
	return strings.Replace(ofPort, schema.Numbered, strconv.Itoa(int(port)), 1) + name
}

// prefixForm is the form of the IDs of public IP prefixes.
func prefixForm() *schema.IDForm {
	return schema.NewIDForm("the resource ID of a public IP prefix",
		"/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/group/providers/Microsoft.Network/publicIPPrefixes/name",
		`(?i:/subscriptions/[a-z0-9-]+/resourceGroups/[a-z0-9_(-][a-z0-9._()-]*/providers/Microsoft\.Network/publicIPPrefixes/[a-z0-9][a-z0-9._-]*)`)
}

func annotationRow(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{Help: help}}
}

func boolAnnotation[S any](key, help string, at func(*S) *bool) schema.Annotation[S] {
	r := annotationRow(key, help)
	r.Lenient = true
	return schema.SwitchAnnotation(at, r)
}

// trimmedBoolAnnotation is a switch whose value may be surrounded by blanks, as in Azure's own controller.
func trimmedBoolAnnotation(key, help string, at func(*settings) *bool) schema.Annotation[settings] {
	r := annotationRow(key, help)
	r.Lenient, r.Trimmed = true, true
	return schema.SwitchAnnotation(at, r)
}

func stringAnnotation[S any](key, help string, at func(*S) *string) schema.Annotation[S] {
	return schema.StringAnnotation(at, annotationRow(key, help))
}

func checkedAnnotation(key, help string, check func(string) error, at func(*settings) *string) schema.Annotation[settings] {
	r := annotationRow(key, help)
	r.Check = check
	return schema.StringAnnotation(at, r)
}

func listAnnotation(key, help string, at func(*settings) *[]string) schema.Annotation[settings] {
	return schema.ListAnnotation(at, annotationRow(key, help))
}

func intAnnotation(key, standard, help string, least, most float64, at func(*settings) *int) schema.Annotation[settings] {
	r := annotationRow(key, help)
	r.Default, r.Min, r.Max = standard, &least, &most
	return schema.IntAnnotation(at, r)
}

// resourceName is the form of names of resources and of their groups: Azure has letters, digits, underscores, dots, dashes and parentheses
// in them, at most 90 characters, and no dot at the end.
var resourceName = schema.NewIDForm("the name of a resource", "my-resource", `[\pL\pN_()-](?:[\pL\pN_().-]{0,88}[\pL\pN_()-])?`)

func nameAnnotation(key, help string, at func(*settings) *string) schema.Annotation[settings] {
	return idAnnotation(key, help, resourceName, at)
}

func idAnnotation(key, help string, form *schema.IDForm, at func(*settings) *string) schema.Annotation[settings] {
	r := annotationRow(key, help)
	r.ID = form
	return schema.StringAnnotation(at, r)
}

// markAdopting marks a row that requests an existing address.
func markAdopting(row schema.Annotation[settings]) schema.Annotation[settings] {
	row.Adopts = true
	return row
}

func checkAddressFamily(ipv6 bool) func(string) error {
	return func(v string) error {
		if a, err := netip.ParseAddr(v); err != nil || a.Is6() != ipv6 {
			return fmt.Errorf("is not an address of IPv%d", map[bool]int{false: 4, true: 6}[ipv6])
		}
		return nil
	}
}

// Annotations is the table of annotations, with the names that Azure's own controller uses.
var Annotations = schema.Annotations[settings]{
	boolAnnotation(annotationInternal, "An internal load balancer.", func(s *settings) *bool { return &s.Internal }).Serving(
		schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemeInternal: "true", portable.SchemePublic: "false"}}),
	nameAnnotation(annotationSubnet, "Name of the subnet of an internal load balancer.", func(s *settings) *string { return &s.Subnet }).Serving(
		schema.Serves{Portable: portable.Subnet, Only: "one, by its name"}),
	stringAnnotation(annotationMode, "Without effect: it is about basic load balancers, which Azure has retired.", func(s *settings) *string { return &s.Mode }),
	stringAnnotation(annotationConfigs, "Names of the load balancers that the Service may be on, of multipleStandardLoadBalancerConfigurations, separated by commas.", func(s *settings) *string { return &s.Configs }),
	markAdopting(checkedAnnotation(annotationIPv4, "Address of IPv4 to use: of an existing public address, or of the subnet.", checkAddressFamily(false), func(s *settings) *string { return &s.IPv4 })).Serving(
		schema.Serves{Portable: portable.Address, Translate: portableAddress}),
	markAdopting(checkedAnnotation(annotationIPv6, "Address of IPv6 to use: of an existing public address, or of the subnet.", checkAddressFamily(true), func(s *settings) *string { return &s.IPv6 })),
	nameAnnotation(annotationGroup, "Resource group of the public address.", func(s *settings) *string { return &s.Group }),
	markAdopting(nameAnnotation(annotationName, "Name of an existing public address to use.", func(s *settings) *string { return &s.Name })),
	markAdopting(nameAnnotation(annotationName6, "The same for IPv6.", func(s *settings) *string { return &s.Name6 })),
	idAnnotation(annotationPrefixID, "Public IP prefix that a new public address comes from.", prefixForm(), func(s *settings) *string { return &s.PrefixID }),
	idAnnotation(annotationPrefixID6, "The same for IPv6.", prefixForm(), func(s *settings) *string { return &s.PrefixID6 }),
	checkedAnnotation(annotationTags, "Further tags of the public address, as a=b,c=d.", checkTags, func(s *settings) *string { return &s.Tags }).Serving(
		schema.Serves{Portable: portable.Tags}),
	stringAnnotation(annotationIPTags, "IP tags of the public address, as Type=Value. A change is made in place, and the address stays.", func(s *settings) *string { return &s.IPTags }),
	stringAnnotation(annotationLabel, "DNS label of the public address; empty removes it.", func(s *settings) *string { return &s.Label }),
	markAdopting(listAnnotation(annotationAdditional, "Further public addresses, for the status and the security group.", func(s *settings) *[]string { return &s.Additional })),
	listAnnotation(annotationServiceTags, "Service tags that may connect, instead of the internet.", func(s *settings) *[]string { return &s.ServiceTags }),
	listAnnotation(annotationAllowedRanges, "Networks that may connect.", func(s *settings) *[]string { return &s.AllowedRanges }),
	listAnnotation(annotationSourceRanges, "Networks that may connect; added to the others.", func(s *settings) *[]string { return &s.SourceRanges }),
	boolAnnotation(annotationDenyAll, "Others may not connect from the virtual network either. Only together with networks that may.", func(s *settings) *bool { return &s.DenyAll }),
	boolAnnotation(annotationNoSecurity, "Leave the security group alone.", func(s *settings) *bool { return &s.NoSecurity }),
	intAnnotation(annotationIdle, "4", "Minutes after which an idle connection ends.", 4, 100, func(s *settings) *int { return &s.Idle }).Serving(
		schema.Serves{Portable: portable.IdleTimeout, Unit: time.Minute}),
	boolAnnotation(annotationNoReset, "Do not reset connections that end for being idle.", func(s *settings) *bool { return &s.NoReset }),
	boolAnnotation(annotationAllPorts, "One rule for all ports, on an internal load balancer.", func(s *settings) *bool { return &s.AllPorts }),
	boolAnnotation(annotationNoFloating, "Connections arrive at the node ports, not at the load balancer's address.", func(s *settings) *bool { return &s.NoFloating }),
	stringAnnotation(annotationProbeProtocol, "Protocol of health probes: tcp, http or https.", func(s *settings) *string { return &s.ProbeProtocol }).Serving(
		schema.Serves{Portable: portable.CheckProtocol}),
	intAnnotation(annotationProbeInterval, "5", "Seconds between health probes.", 5, 59, func(s *settings) *int { return &s.ProbeInterval }).Serving(
		schema.Serves{Portable: portable.CheckInterval, Unit: time.Second}),
	intAnnotation(annotationProbeNumber, "2", "Health probes in a row that decide.", 2, 23, func(s *settings) *int { return &s.ProbeNumber }).Serving(
		schema.Serves{Portable: portable.UnhealthyThreshold}),
	stringAnnotation(annotationProbePath, "Path of health probes by HTTP and HTTPS.", func(s *settings) *string { return &s.ProbePath }).Serving(
		schema.Serves{Portable: portable.CheckPath}),
	trimmedBoolAnnotation(annotationPrivateLink, "A private link service on the frontend, of an internal load balancer or with floating IP off. It goes with the "+
		"frontend, and not with the annotation.", func(s *settings) *bool { return &s.Link.Create }),
	nameAnnotation(annotationLinkGroup, "Resource group of the private link service.", func(s *settings) *string { return &s.Link.Group }),
	nameAnnotation(annotationLinkName, "Its name, which cannot be changed.", func(s *settings) *string { return &s.Link.Name }),
	nameAnnotation(annotationLinkSubnet, "Name of the subnet of its addresses.", func(s *settings) *string { return &s.Link.Subnet }),
	intAnnotation(annotationLinkCount, "1", "How many addresses it has.", 1, float64(azurelimits.LinkAddresses.Max), func(s *settings) *int { return &s.Link.Count }),
	stringAnnotation(annotationLinkIPs, "Its static addresses of IPv4, separated by blanks.", func(s *settings) *string { return &s.Link.IPs }),
	stringAnnotation(annotationLinkFQDNs, "Names by which it is reached, separated by blanks.", func(s *settings) *string { return &s.Link.FQDNs }),
	trimmedBoolAnnotation(annotationLinkProxy, "It sends the PROXY protocol, with the private endpoint's identifier.", func(s *settings) *bool { return &s.Link.Proxy }),
	stringAnnotation(annotationLinkVisible, "Subscriptions that see it, separated by blanks, or *.", func(s *settings) *string { return &s.Link.Visibility }),
	stringAnnotation(annotationLinkApproved, "Subscriptions whose private endpoints are accepted at once, separated by blanks, or *.", func(s *settings) *string { return &s.Link.Approval }),
}.Needing(&schema.Where{Key: annotationInternal, OneOf: []string{"true"}}, annotationAllPorts).
	Needing(&schema.Where{Key: annotationInternal, NoneOf: []string{"true"}},
		annotationName, annotationName6, annotationPrefixID, annotationPrefixID6, annotationIPTags).
	Needing(&schema.Where{Key: annotationPrivateLink, OneOf: []string{"true"}}, linkAnnotations()...)

// PortAnnotations is the table of annotations about one port.
var PortAnnotations = schema.Annotations[portSettings]{
	boolAnnotation(ofPort+"no_lb_rule", "No rule of the load balancer for this port, and no probe.", func(s *portSettings) *bool { return &s.NoRule }),
	boolAnnotation(ofPort+"no_probe_rule", "No health probe for this port.", func(s *portSettings) *bool { return &s.NoProbe }),
	stringAnnotation(ofPort+"health-probe_protocol", "Protocol of this port's health probes: tcp, http or https.", func(s *portSettings) *string { return &s.Protocol }),
	stringAnnotation(ofPort+"health-probe_port", "Port that is probed in the place of this port's node port: a port of the nodes by its number, or the "+
		"node port of another port of the Service by its name or number.", func(s *portSettings) *string { return &s.Port }),
	stringAnnotation(ofPort+"health-probe_request-path", "Path of this port's health probes by HTTP and HTTPS.", func(s *portSettings) *string { return &s.Path }),
	schema.IntAnnotation(func(s *portSettings) *int { return &s.Interval }, checkMinimum(5, annotationRow(ofPort+"health-probe_interval",
		"Seconds between this port's health probes; with externalTrafficPolicy Local of the probe of spec.healthCheckNodePort."))),
	schema.IntAnnotation(func(s *portSettings) *int { return &s.Number }, checkMinimum(2, annotationRow(ofPort+"health-probe_num-of-probe",
		"Health probes of this port in a row that decide."))),
}

func checkMinimum(least float64, r schema.AnnotationRow) schema.AnnotationRow {
	r.Min = &least
	return r
}

// checkTags refuses tags that say whose an object is.
func checkTags(text string) error {
	for key := range pairs(text) {
		for _, reserved := range []string{clusterTag, serviceTag, legacyServiceTag, nameTag, legacyNameTag, labelTag, legacyLabelTag, ownerTag} {
			if strings.EqualFold(key, reserved) {
				return fmt.Errorf("may not set tag %s, which says whose an object is", key)
			}
		}
	}
	return checkTagSizes(pairs(text))
}

// portableAddress gives each family its address.
func portableAddress(value string, _ schema.Asked) (map[string]string, error) {
	own := map[string]string{}
	for text := range strings.SplitSeq(value, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		switch {
		case err != nil:
			return nil, errors.New("is no IP address, nor two separated by a comma")
		case a.Is6():
			own[annotationIPv6] = a.String()
		default:
			own[annotationIPv4] = a.String()
		}
	}
	return own, nil
}

// parseSettings reads the annotations of a Service, and makes the checks that need no call.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	_, s.LabelGiven = service.Annotations[annotationLabel]
	_, s.IPTagsGiven = service.Annotations[annotationIPTags]
	told, refused := s.judgeAddressNames()
	if s.Mode != "" {
		warnings = errors.Join(warnings, &schema.Problem{
			Place: "annotation " + annotationMode, Value: s.Mode, Reason: "has no effect: it is about basic load balancers, which Azure has retired", Warning: true,
		})
	}
	warnings, err = errors.Join(warnings, told), errors.Join(err, refused)
	refuse := func(wrong bool, place, format string, args ...any) {
		if wrong {
			err = errors.Join(err, &schema.Problem{Place: place, Reason: fmt.Sprintf(format, args...)})
		}
	}
	s.ports = map[int32]portSettings{}
	ports := service.Spec.Ports
	if isLocal(service) { // this port says whether a node has pods of the Service
		ports = append(slices.Clip(ports), v1.ServicePort{Port: service.Spec.HealthCheckNodePort})
	}
	for _, p := range ports {
		port := p.Port
		own, warned, portErr := PortAnnotations.ForPort(port).Parse(service.Annotations)
		warnings, err = errors.Join(warnings, warned), errors.Join(err, portErr)
		s.ports[port] = own
		interval, number := s.probeTimes(port)
		refuse(interval*number >= 120, "port "+strconv.Itoa(int(port)),
			"%d probes at intervals of %d s take %d s; choose fewer or shorter ones, below 120 s in all", number, interval, interval*number)
	}
	spec := len(service.Spec.LoadBalancerSourceRanges) > 0
	refuse(spec && (service.Annotations[annotationAllowedRanges] != ""), "annotation "+annotationAllowedRanges,
		"is set beside spec.loadBalancerSourceRanges; keep one of them")
	s.Link.given = slices.ContainsFunc(linkAnnotations(), func(key string) bool { return service.Annotations[key] != "" })
	err = errors.Join(err, s.Link.judge(service, &s))
	for _, a := range s.Additional {
		_, bad := netip.ParseAddr(a)
		refuse(bad != nil, "annotation "+annotationAdditional, "%q is not an IP address; list addresses such as 203.0.113.7, separated by commas", a)
	}
	warnings = errors.Join(warnings, s.oddProtocols(service))
	told, refused = serviceFields.Judge(service, s.fieldConditions())
	warnings, err = errors.Join(warnings, told), errors.Join(err, refused)
	ip := service.Spec.LoadBalancerIP
	address, bad := netip.ParseAddr(ip)
	refuse(ip != "" && bad != nil, "spec.loadBalancerIP", "%q is not an IP address; use a form such as 203.0.113.7", ip)
	refuse(ip != "" && bad == nil && !s.Internal && isNotPublic(address), "spec.loadBalancerIP",
		"%q is not a public address; name a public IP address of Azure, or set annotation "+annotationInternal+`: "true"`, ip)
	return s, warnings, err
}

// oddProtocols warns of unknown protocols of probes. Such ports are probed by TCP.
func (s *settings) oddProtocols(service *v1.Service) error {
	odd := func(key, value string) error {
		if slices.Contains([]string{"", "tcp", "http", "https"}, strings.ToLower(value)) {
			return nil
		}
		return &schema.Problem{Place: "annotation " + key, Value: value, Reason: "is not one of tcp, http, https; tcp is used instead", Warning: true}
	}
	warnings := odd(annotationProbeProtocol, s.ProbeProtocol)
	for _, p := range service.Spec.Ports {
		warnings = errors.Join(warnings, odd(keyOfPort(p.Port, "health-probe_protocol"), s.ports[p.Port].Protocol))
	}
	return warnings
}

// linkAnnotations are the settings of private link services.
func linkAnnotations() []string {
	return []string{
		annotationLinkGroup, annotationLinkName, annotationLinkSubnet, annotationLinkCount, annotationLinkIPs, annotationLinkFQDNs,
		annotationLinkProxy, annotationLinkVisible, annotationLinkApproved,
	}
}

// isNotPublic reports whether an address cannot be that of a public load balancer.
func isNotPublic(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() ||
		netip.MustParsePrefix("100.64.0.0/10").Contains(a) || a == netip.MustParseAddr("168.63.129.16")
}

// probeTimes are the interval and the number of probes of a port.
func (s *settings) probeTimes(port int32) (interval, number int) {
	own := s.ports[port]
	return cmp.Or(own.Interval, s.ProbeInterval), cmp.Or(own.Number, s.ProbeNumber)
}

// ranges are the client networks by family, merged if possible. bad are invalid ones.
func (s *settings) ranges(service *v1.Service) (good []netip.Prefix, bad []string) {
	for _, text := range slices.Concat(service.Spec.LoadBalancerSourceRanges, s.AllowedRanges, s.SourceRanges) {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Masked() != p {
			bad = append(bad, text)
			continue
		}
		good = append(good, p)
	}
	return mergePrefixes(good), bad
}

// mergePrefixes drops contained networks and joins halves.
func mergePrefixes(list []netip.Prefix) []netip.Prefix {
	for {
		slices.SortFunc(list, func(a, b netip.Prefix) int {
			if c := a.Addr().Compare(b.Addr()); c != 0 {
				return c
			}
			return a.Bits() - b.Bits()
		})
		var out []netip.Prefix
		joined := false
		for _, p := range list {
			n := len(out)
			switch {
			case n > 0 && out[n-1].Bits() <= p.Bits() && out[n-1].Contains(p.Addr()):
			case n > 0 && p.Bits() > 0 && out[n-1].Bits() == p.Bits() && parentPrefix(out[n-1]) == parentPrefix(p):
				out[n-1], joined = parentPrefix(p), true
			default:
				out = append(out, p)
			}
		}
		if list = out; !joined {
			return list
		}
	}
}

func parentPrefix(p netip.Prefix) netip.Prefix {
	up, _ := p.Addr().Prefix(p.Bits() - 1) // callers have at least one bit
	return up
}

// checkService implements registry.Provider.CheckService.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	s, warnings, err := parseSettings(service)
	c, _, _ := parseConfig(in) // its faults are told at start; what is missing says nothing about a Service
	if len(in.File) > 0 {
		warnings = errors.Join(warnings, s.warnUnconfigured(&c))
	}
	if err != nil {
		return warnings, err
	}
	warnings = errors.Join(warnings, s.warnUnprobed(service, c.ProbeMode))
	if err := s.checkProbePorts(service, c.ProbeMode); err != nil {
		return warnings, err
	}
	for _, f := range s.clientFindings(service) {
		warnings = errors.Join(warnings, &schema.Problem{Place: sources.Field, Reason: f.Message, Warning: true})
	}
	return warnings, nil
}

// checkProbePorts refuses invalid ports to probe, if they would be probed.
func (s *settings) checkProbePorts(service *v1.Service, probeMode string) error {
	var problems []error
	for i, p := range service.Spec.Ports {
		own := s.ports[p.Port]
		if s.hasRule(i, p.Port) && p.Protocol == v1.ProtocolTCP && !own.NoProbe && (s.keepsProbes(service) || probeMode != probeShared) {
			_, err := probePort(service, p, own.Port)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// hasRule reports whether the i-th port of a Service has a rule of its own.
func (s *settings) hasRule(i int, port int32) bool {
	if s.Internal && s.AllPorts {
		return i == 0
	}
	return !s.ports[port].NoRule
}

// keepsProbes reports whether the node itself answers probes for local traffic; that server does not speak the PROXY protocol.
func (s *settings) keepsProbes(service *v1.Service) bool {
	return isLocal(service) && (!s.Link.Create || !s.Link.Proxy)
}

// warnUnprobed warns of ports that cannot be probed because they have no node port.
func (s *settings) warnUnprobed(service *v1.Service, probeMode string) error {
	if isLocal(service) || probeMode == probeShared || !slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool {
		own := s.ports[p.Port]
		return p.NodePort == 0 && p.Protocol == v1.ProtocolTCP && !own.NoProbe && (own.Port == "" || own.Port == p.Name)
	}) {
		return nil
	}
	return &schema.Problem{Place: "spec.allocateLoadBalancerNodePorts", Value: "false", Warning: true, Reason: "leaves ports without a probe, so that nodes " +
		"that are down get connections; name a port of the nodes by " + prefix + "port_<port>_health-probe_port, or set the option clusterServiceLoadBalancerHealthProbeMode"}
}

// warnUnconfigured warns of load balancer names if the cloud config has a single one.
func (s *settings) warnUnconfigured(c *Config) error {
	if s.Configs == "" || len(c.standardLBs) > 0 {
		return nil
	}
	return &schema.Problem{
		Place: "annotation " + annotationConfigs, Value: s.Configs, Reason: "has no effect: multipleStandardLoadBalancerConfigurations is not set", Warning: true,
	}
}

// clientFindings report that other clients may connect than the author of a Service may expect.
func (s *settings) clientFindings(service *v1.Service) (findings []services.Finding) {
	_, bad := s.ranges(service)
	if len(bad) > 0 {
		findings = append(findings, services.Warning(eventSourceRanges, "%s: not legal networks (host bits must be zero); they are left out, and all others "+
			"are denied", strings.Join(bad, ", ")))
	}
	if s.NoFloating && (s.DenyAll || len(bad) > 0) {
		findings = append(findings, services.Warning(eventSourceRanges, "with annotation %s, rules name the nodes, and none denies all others: connections from "+
			"the virtual network are let in to the node ports", annotationNoFloating))
	}
	if len(s.ServiceTags) > 0 && len(service.Spec.LoadBalancerSourceRanges)+len(s.AllowedRanges)+len(s.SourceRanges) > 0 {
		findings = append(findings, services.Warning(eventConflict, "both service tags and networks are given; both may connect"))
	}
	return findings
}
