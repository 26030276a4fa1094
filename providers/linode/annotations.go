package linode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Names of the annotations, as Linode's own controller has them.
const (
	annotationPrefix = "service.beta.kubernetes.io/linode-loadbalancer-"

	// annotationRecord is ours: the NodeBalancer that serves the Service. The API server clears the status when a Service changes its type.
	annotationRecord = "anyccm.io/linode-nodebalancer-id"
	// annotationFirewallRecord is ours: the firewall that was attached because of firewall-id.
	annotationFirewallRecord = "anyccm.io/linode-firewall-id"

	annotationPort               = annotationPrefix + "port-"
	annotationProtocol           = annotationPrefix + "default-protocol"
	annotationProxyProtocol      = annotationPrefix + "default-proxy-protocol"
	annotationOldProxyProtocol   = annotationPrefix + "proxy-protocol"
	annotationAlgorithm          = annotationPrefix + "default-algorithm"
	annotationStickiness         = annotationPrefix + "default-stickiness"
	annotationCheckType          = annotationPrefix + "check-type"
	annotationCheckPath          = annotationPrefix + "check-path"
	annotationCheckBody          = annotationPrefix + "check-body"
	annotationCheckInterval      = annotationPrefix + "check-interval"
	annotationCheckTimeout       = annotationPrefix + "check-timeout"
	annotationCheckAttempts      = annotationPrefix + "check-attempts"
	annotationCheckPassive       = annotationPrefix + "check-passive"
	annotationUDPCheckPort       = annotationPrefix + "udp-check-port"
	annotationThrottle           = annotationPrefix + "throttle"
	annotationPreserve           = annotationPrefix + "preserve"
	annotationID                 = annotationPrefix + "nodebalancer-id"
	annotationType               = annotationPrefix + "nodebalancer-type"
	annotationHostnameOnly       = annotationPrefix + "hostname-only-ingress"
	annotationIPv6Ingress        = annotationPrefix + "enable-ipv6-ingress"
	annotationIPv6Backends       = annotationPrefix + "enable-ipv6-backends"
	annotationTags               = annotationPrefix + "tags"
	annotationFirewallID         = annotationPrefix + "firewall-id"
	annotationFirewallACL        = annotationPrefix + "firewall-acl"
	annotationReservedIPv4       = annotationPrefix + "reserved-ipv4"
	annotationRetainReservedIPv4 = annotationPrefix + "retain-reserved-ipv4"
	annotationBackendRange       = annotationPrefix + "backend-ipv4-range"
	annotationBackendVPC         = annotationPrefix + "backend-vpc-name"
	annotationBackendSubnet      = annotationPrefix + "backend-subnet-name"
	annotationBackendSubnetID    = annotationPrefix + "backend-subnet-id"
	annotationFrontendSubnetID   = annotationPrefix + "frontend-subnet-id"
	annotationFrontendVPC        = annotationPrefix + "frontend-vpc-name"
	annotationFrontendSubnet     = annotationPrefix + "frontend-subnet-name"
	annotationFrontendRangeV4    = annotationPrefix + "frontend-ipv4-range"
	annotationFrontendRangeV6    = annotationPrefix + "frontend-ipv6-range"
)

const (
	protocolTCP   = "tcp"
	protocolUDP   = "udp"
	protocolHTTP  = "http"
	protocolHTTPS = "https"

	proxyNone = "none"

	checkNone       = "none"
	checkConnection = "connection"
	checkHTTP       = "http"
	checkHTTPBody   = "http_body"

	algorithmRoundRobin = "roundrobin"

	// These bound the texts of annotations.
	maxTags      = 100
	shortestTag  = 3
	maxCheckText = 255
	maxPortText  = 1024

	defaultUDPCheckPort = 80
	maxThrottle         = 20
)

// maxNetworks is how many networks a firewall has room for.
func maxNetworks() int { return linodelimits.FirewallRules.Max * linodelimits.RuleAddresses.Max }

// settings are the typed annotations of one Service.
type settings struct {
	Record, FirewallRecord, ID              int
	Protocol, ProxyProtocol, OldProxy       string
	Algorithm, Stickiness                   string
	CheckType, CheckPath, CheckBody         string
	CheckInterval, CheckTimeout, CheckTries int
	CheckPassive                            bool
	UDPCheckPort                            int
	Throttle                                int
	Preserve                                bool
	Type                                    string
	HostnameOnly, IPv6Ingress, IPv6Backends bool
	Tags                                    []string
	FirewallID                              int
	FirewallACL                             string
	ReservedIPv4                            string
	RetainReservedIPv4                      bool
	BackendRange, BackendVPC, BackendSubnet string
	BackendSubnetID                         int
	FrontendSubnetID                        int
	FrontendVPC, FrontendSubnet             string
	FrontendRangeV4, FrontendRangeV6        string

	// ACL is FirewallACL, decoded; nil if there is none.
	ACL *acl
	// ports are the settings of each port, by number.
	ports map[int32]portSettings
}

// portSettings are the keys of the annotation of one port. All values are texts.
type portSettings struct {
	Protocol      string `json:"protocol"`
	ProxyProtocol string `json:"proxy-protocol"`
	Algorithm     string `json:"algorithm"`
	Stickiness    string `json:"stickiness"`
	TLSSecret     string `json:"tls-secret-name"`
	UDPCheckPort  string `json:"udp-check-port"`
}

// acl lists who may, or may not, reach a NodeBalancer.
type acl struct {
	Allow *addressList `json:"allowList"`
	Deny  *addressList `json:"denyList"`
}

type addressList struct {
	IPv4 []string `json:"ipv4"`
	IPv6 []string `json:"ipv6"`
}

func protocols() []string { return []string{protocolTCP, protocolUDP, protocolHTTP, protocolHTTPS} }
func proxies() []string   { return []string{proxyNone, "v1", "v2"} }
func algorithms() []string {
	return []string{algorithmRoundRobin, "leastconn", "source", "ring_hash"}
}

func stickinesses() []string {
	return []string{"none", "table", "http_cookie", "session", "source_ip"}
}

// Annotations is the table of Service annotations.
var Annotations = schema.Annotations[settings]{
	schema.IntAnnotation(func(s *settings) *int { return &s.Record }, schema.AnnotationRow{
		Key: annotationRecord, Changes: schema.Written, Spec: schema.Spec{ID: schema.Decimal, Min: new(0.0), Help: "ID of the NodeBalancer that serves this Service. Ours."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.FirewallRecord }, schema.AnnotationRow{
		Key: annotationFirewallRecord, Changes: schema.Written, Spec: schema.Spec{ID: schema.Decimal, Min: new(0.0), Help: "ID of the firewall that was attached because of firewall-id. Ours."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Protocol }, schema.AnnotationRow{
		Key: annotationProtocol, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: protocols(), AnyCase: true, DefaultHelp: "the protocol of the Service port", Help: "Protocol of ports without a setting of their own."},
	}),
	{AnnotationRow: schema.AnnotationRow{
		Key: annotationPort + "<port>", Changes: schema.InPlace,
		Spec: schema.Spec{Kind: schema.KindString, Help: `Settings of one Service port, as a JSON object with texts: protocol, proxy-protocol, algorithm, stickiness, tls-secret-name, udp-check-port. Each takes precedence over its default- annotation.`},
		Serves: []schema.Serves{
			{Portable: portable.Certificate, Rules: certificateRules(), Translate: portableCertificate, Merge: mergePort, Only: "secret:<name>"},
			{Portable: portable.TLSPorts, Translate: portable.Nothing},
		},
	}},
	schema.EnumAnnotation(func(s *settings) *string { return &s.ProxyProtocol }, schema.AnnotationRow{
		Key: annotationProxyProtocol, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: proxies(), AnyCase: true, DefaultHelp: proxyNone, Help: "PROXY protocol of ports without a setting of their own; tcp only."},
	}).Serving(schema.Serves{Portable: portable.ProxyProtocol, Rivals: []string{annotationOldProxyProtocol}}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.OldProxy }, schema.AnnotationRow{
		Key: annotationOldProxyProtocol, Changes: schema.InPlace, Deprecated: "use " + annotationProxyProtocol,
		Spec: schema.Spec{Choices: proxies(), AnyCase: true, DefaultHelp: proxyNone, Help: "Counts where the newer annotation is absent."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Algorithm }, schema.AnnotationRow{
		Key: annotationAlgorithm, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: algorithms(), AnyCase: true, DefaultHelp: algorithmRoundRobin, Help: "Balancing algorithm; source is for tcp, http and https, ring_hash for udp."},
	}).Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{
		portable.RoundRobin: algorithmRoundRobin, portable.LeastConnections: "leastconn", portable.SourceIP: "source",
	}}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Stickiness }, schema.AnnotationRow{
		Key: annotationStickiness, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: stickinesses(), AnyCase: true, DefaultHelp: "table for http and https, session for udp", Help: "Stickiness; http and https: none, table, http_cookie; udp: none, session, source_ip."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.CheckType }, schema.AnnotationRow{
		Key: annotationCheckType, Changes: schema.InPlace,
		Spec: schema.Spec{
			Choices: []string{checkNone, checkConnection, checkHTTP, checkHTTPBody}, DefaultHelp: "connection; none for UDP ports",
			Help: "Active health check of the nodes.",
		},
	}).Serving(
		schema.Serves{
			Portable: portable.CheckProtocol, Values: map[string]string{portable.CheckTCP: checkConnection, portable.CheckHTTP: checkHTTP},
		},
		schema.Serves{Portable: portable.CheckPort, Rules: portable.NodePortAlone("NodeBalancers check"), Translate: portable.Nothing, Only: "`node-port` alone"},
	),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckPath }, schema.AnnotationRow{
		Key: annotationCheckPath, Changes: schema.InPlace, Spec: schema.Spec{DefaultHelp: "/", Help: "Path of http and http_body checks."},
	}).Serving(schema.Serves{Portable: portable.CheckPath}),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckBody }, schema.AnnotationRow{
		Key: annotationCheckBody, Changes: schema.InPlace, Spec: schema.Spec{Help: "Text or expression that the answer must hold; required for http_body."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckInterval }, schema.AnnotationRow{
		Key: annotationCheckInterval, Changes: schema.InPlace, Spec: schema.Spec{Default: "5", Min: new(2.0), Max: new(3600.0), Help: "Seconds between two checks; more than the timeout."},
	}).Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckTimeout }, schema.AnnotationRow{
		Key: annotationCheckTimeout, Changes: schema.InPlace, Spec: schema.Spec{Default: "3", Min: new(1.0), Max: new(30.0), Help: "Seconds after which a check has failed."},
	}).Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckTries }, schema.AnnotationRow{
		Key: annotationCheckAttempts, Changes: schema.InPlace, Spec: schema.Spec{Default: "2", Min: new(1.0), Max: new(30.0), Help: "Failed checks in a row that take a node out."},
	}).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.CheckPassive }, schema.AnnotationRow{
		Key: annotationCheckPassive, Changes: schema.InPlace, Spec: schema.Spec{Default: "true", Help: "Take nodes out that answer with server errors. Never for udp."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.UDPCheckPort }, schema.AnnotationRow{
		Key: annotationUDPCheckPort, Changes: schema.InPlace, Spec: schema.Spec{Default: "80", Min: new(1.0), Max: new(65535.0), Help: "Port of the nodes that is checked for udp."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Throttle }, schema.AnnotationRow{
		Key: annotationThrottle, Changes: schema.InPlace, Spec: schema.Spec{Default: "0", Lenient: true, Help: "New connections a second for each client, at most 20; 0 means no limit."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Preserve }, schema.AnnotationRow{
		Key: annotationPreserve, Changes: schema.InPlace, Spec: schema.Spec{Default: "false", Help: "Keep the NodeBalancer when the Service is deleted or moves to another one."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.ID }, schema.AnnotationRow{
		Key: annotationID, Changes: schema.InPlace, Adopts: true, Spec: schema.Spec{ID: schema.Decimal, Min: new(1.0), Help: "Use this NodeBalancer, which exists and serves this Service's node ports, or which --adopt-load-balancers allows. It outlives the Service unless a controller made it."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, schema.AnnotationRow{
		Key: annotationType, Changes: schema.AtCreation,
		Spec: schema.Spec{Choices: planTypes(), AnyCase: true, DefaultHelp: "--default-nodebalancer-type", Help: "Plan of the NodeBalancer."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.HostnameOnly }, schema.AnnotationRow{
		Key: annotationHostnameOnly, Changes: schema.InPlace,
		Spec: schema.Spec{Lenient: true, DefaultHelp: "LINODE_HOSTNAME_ONLY_INGRESS", Help: "Show only the hostname in the status."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.IPv6Ingress }, schema.AnnotationRow{
		Key: annotationIPv6Ingress, Changes: schema.InPlace,
		Spec: schema.Spec{Lenient: true, DefaultHelp: "--enable-ipv6-for-loadbalancers", Help: "Also show the IPv6 address in the status."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.IPv6Backends }, schema.AnnotationRow{
		Key: annotationIPv6Backends, Changes: schema.InPlace,
		Spec: schema.Spec{Lenient: true, DefaultHelp: "--enable-ipv6-for-nodebalancer-backends", Help: "Reach nodes by their public IPv6 address."},
	}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Tags }, schema.AnnotationRow{
		Key: annotationTags, Changes: schema.InPlace, Spec: schema.Spec{Help: "Further tags of the NodeBalancer."},
	}).Serving(schema.Serves{Portable: portable.Tags}),
	schema.IntAnnotation(func(s *settings) *int { return &s.FirewallID }, schema.AnnotationRow{
		Key: annotationFirewallID, Changes: schema.InPlace, Spec: schema.Spec{ID: schema.Decimal, Min: new(1.0), Help: "Attach this firewall, which exists. Takes precedence over firewall-acl."},
	}).Serving(schema.Serves{Portable: portable.SecurityGroups, Only: "one firewall, by its ID", Rivals: []string{annotationFirewallACL}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.FirewallACL }, schema.AnnotationRow{
		Key: annotationFirewallACL, Changes: schema.InPlace,
		Spec: schema.Spec{MaxLength: aclMaxLength, Help: `Make a firewall from a JSON object with either allowList or denyList, each with lists of networks: {"allowList": {"ipv4": ["192.0.2.0/24"], "ipv6": []}}.`, Check: func(v string) error { _, err := parseACL(v); return err }},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.ReservedIPv4 }, schema.AnnotationRow{
		Key: annotationReservedIPv4, Changes: schema.AtCreation, Spec: schema.Spec{
			Rules: []schema.Rule{schema.Must(`^`+schema.IPv4Pattern+`$`, "is not an IPv4 address")},
			Help:  "Reserved IPv4 address that the NodeBalancer gets.",
		},
	}).Serving(schema.Serves{Portable: portable.Address, Only: "IPv4"}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.RetainReservedIPv4 }, schema.AnnotationRow{
		Key: annotationRetainReservedIPv4, Changes: schema.InPlace, Spec: schema.Spec{Default: "true", Help: "Keep the reserved address when the NodeBalancer is deleted. false releases one that has the tag of the cluster."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackendRange }, schema.AnnotationRow{
		Key: annotationBackendRange, Changes: schema.AtCreation, Spec: schema.Spec{Check: checkCIDR, Help: "Range of the NodeBalancer in the subnet of its backends."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackendVPC }, schema.AnnotationRow{
		Key: annotationBackendVPC, Changes: schema.AtCreation, Spec: schema.Spec{DefaultHelp: "the first of --vpc-names", Help: "VPC of the backends."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackendSubnet }, schema.AnnotationRow{
		Key: annotationBackendSubnet, Changes: schema.AtCreation, Spec: schema.Spec{DefaultHelp: "the first of --subnet-names", Help: "Subnet of the backends."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.BackendSubnetID }, schema.AnnotationRow{
		Key: annotationBackendSubnetID, Changes: schema.AtCreation, Spec: schema.Spec{ID: schema.Decimal, Min: new(1.0), Help: "ID of the subnet of the backends. Takes precedence over the names."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.FrontendSubnetID }, schema.AnnotationRow{
		Key: annotationFrontendSubnetID, Changes: schema.AtCreation, Spec: schema.Spec{ID: schema.Decimal, Min: new(1.0), Help: "ID of the subnet in which a private NodeBalancer has its address."},
	}).Serving(
		schema.Serves{Portable: portable.Scheme, Rules: schemeRules(), Translate: portable.Nothing, Only: "internal with a subnet"},
		schema.Serves{Portable: portable.Subnet, Rules: subnetRules(), Translate: portableSubnet, Only: "one; with internal", Rivals: frontendKeys()},
	),
	schema.StringAnnotation(func(s *settings) *string { return &s.FrontendVPC }, schema.AnnotationRow{
		Key: annotationFrontendVPC, Changes: schema.AtCreation, Spec: schema.Spec{Help: "VPC of that subnet. Needs frontend-subnet-name."},
	}).Serving(schema.Serves{Portable: portable.Network, Rules: networkRules(), Only: "with internal and a subnet by name", Rivals: frontendKeys()}),
	schema.StringAnnotation(func(s *settings) *string { return &s.FrontendSubnet }, schema.AnnotationRow{
		Key: annotationFrontendSubnet, Changes: schema.AtCreation, Spec: schema.Spec{Help: "Label of that subnet. Needs frontend-vpc-name."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.FrontendRangeV4 }, schema.AnnotationRow{
		Key: annotationFrontendRangeV4, Changes: schema.AtCreation, Spec: schema.Spec{Check: checkCIDR, Help: "Range for the address of a private NodeBalancer."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.FrontendRangeV6 }, schema.AnnotationRow{
		Key: annotationFrontendRangeV6, Changes: schema.AtCreation, Spec: schema.Spec{Check: checkCIDR, Help: "IPv6 range for the address of a private NodeBalancer."},
	}),
}.Needing(&schema.Where{Key: annotationCheckType, OneOf: []string{checkHTTP, checkHTTPBody}}, annotationCheckPath).
	Needing(&schema.Where{Key: annotationCheckType, OneOf: []string{checkHTTPBody}}, annotationCheckBody).
	Needing(schema.Given(annotationReservedIPv4), annotationRetainReservedIPv4)

// namedAnnotations is the table without the row that stands for many annotations.
func namedAnnotations() schema.Annotations[settings] {
	return slices.DeleteFunc(slices.Clone(Annotations), func(a schema.Annotation[settings]) bool { return strings.HasSuffix(a.Key, ">") })
}

// parseSettings reads the annotations of a Service; options fill in what they leave open.
func parseSettings(service *v1.Service, c Config) (s settings, warnings, err error) {
	given := service.Annotations
	s, warnings, err = namedAnnotations().Parse(given)
	problems := schema.Problems(err)
	s.Throttle = min(max(s.Throttle, 0), maxThrottle)
	for key, apply := range map[string]func(){
		annotationHostnameOnly: func() { s.HostnameOnly = c.HostnameOnly },
		annotationIPv6Ingress:  func() { s.IPv6Ingress = c.IPv6Ingress },
		annotationIPv6Backends: func() { s.IPv6Backends = c.IPv6Backends },
		annotationType:         func() { s.Type = c.DefaultType },
	} {
		if given[key] == "" {
			apply()
		}
	}
	if given[annotationProxyProtocol] == "" {
		s.ProxyProtocol = s.OldProxy
	}
	if text := given[annotationFirewallACL]; text != "" {
		s.ACL, _ = parseACL(text) // the table reports what is wrong with it
	} else if s.FirewallID == 0 {
		list, err := sourceRanges(service.Spec.LoadBalancerSourceRanges)
		s.ACL, problems = list, append(problems, schema.Problems(err)...)
	}
	s.ports = map[int32]portSettings{}
	for _, p := range service.Spec.Ports {
		key := annotationPort + strconv.Itoa(int(p.Port))
		if text := given[key]; text != "" {
			var one portSettings
			if len(text) > maxPortText {
				problems = append(problems, &schema.Problem{Place: "annotation " + key, Reason: fmt.Sprintf("has more than %d characters", maxPortText)})
				continue
			}
			if err := json.Unmarshal([]byte(text), &one); err != nil {
				problems = append(problems, &schema.Problem{Place: "annotation " + key, Value: text, Reason: `is not a JSON object of texts such as {"protocol": "http"}`})
			}
			s.ports[p.Port] = one
		}
	}
	warned, refused := serviceFields.Judge(service, s.fieldConditions())
	warnings = errors.Join(warnings, warned, s.openUDP(service), unusedRanges(service))
	return s, warnings, errors.Join(append(problems, refused, s.contradictions(err))...)
}

// unusedRanges warns of source ranges beside an annotation that says who may connect.
func unusedRanges(service *v1.Service) error {
	for _, key := range []string{annotationFirewallID, annotationFirewallACL} {
		if len(service.Spec.LoadBalancerSourceRanges) > 0 && service.Annotations[key] != "" {
			reason := "has no effect beside the annotation " + key + "; remove one of them"
			return &schema.Problem{Place: sources.Field, Warning: true, Reason: reason}
		}
	}
	return nil
}

// openUDP warns of ports that an access list does not protect.
func (s settings) openUDP(service *v1.Service) error {
	if s.ACL == nil {
		return nil
	}
	var open []string
	for _, p := range service.Spec.Ports {
		if s.usesUDP(p) {
			open = append(open, strconv.Itoa(int(p.Port)))
		}
	}
	if len(open) == 0 {
		return nil
	}
	return &schema.Problem{Place: placeOfACL(service), Warning: true, Reason: fmt.Sprintf(
		"does not hold for UDP: firewalls of NodeBalancers filter TCP alone, so that everybody may reach port %s", strings.Join(open, ", "))}
}

// placeOfACL names the setting that an access list comes from.
func placeOfACL(service *v1.Service) string {
	if service.Annotations[annotationFirewallACL] != "" {
		return "annotation " + annotationFirewallACL
	}
	return sources.Field
}

// usesUDP reports whether the NodeBalancer's port for a Service port uses UDP.
func (s settings) usesUDP(p v1.ServicePort) bool {
	return p.Protocol == v1.ProtocolUDP || s.ports[p.Port].Protocol == protocolUDP || s.Protocol == protocolUDP
}

// backendAnnotations returns the annotations that decide about the nodes' addresses and their ports.
func backendAnnotations() []string {
	return []string{
		annotationPort, annotationProtocol, annotationIPv6Backends, annotationBackendRange, annotationBackendVPC, annotationBackendSubnet,
		annotationBackendSubnetID,
	}
}

// problemsAbout returns the problems of annotations whose keys have one of the prefixes.
func problemsAbout(err error, keys ...string) error {
	return errors.Join(slices.DeleteFunc(schema.Problems(err), func(one error) bool {
		p, ok := errors.AsType[*schema.Problem](one)
		return ok && !slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(p.Place, "annotation "+key) })
	})...)
}

// sourceRanges makes an access list of spec.loadBalancerSourceRanges; nil if everybody is allowed. A family without networks is shut out.
func sourceRanges(ranges []string) (*acl, error) {
	set, err := sources.Parse(sources.Field, ranges)
	if n := len(set.Networks()); n > maxNetworks() {
		return nil, &schema.Problem{Place: sources.Field, Reason: fmt.Sprintf("holds %d networks; a firewall has room for %d", n, maxNetworks())}
	}
	list := listOf(set.Networks())
	list.IPv4, list.IPv6 = wholeFamily(list.IPv4, anyIPv4), wholeFamily(list.IPv6, anyIPv6)
	open := slices.Contains(list.IPv4, anyIPv4) && slices.Contains(list.IPv6, anyIPv6)
	if open || len(list.IPv4)+len(list.IPv6) == 0 {
		return nil, err
	}
	return &acl{Allow: &list}, err
}

const (
	anyIPv4 = "0.0.0.0/0"
	anyIPv6 = "::/0"
)

// wholeFamily drops all networks but that of the whole family, if it is among them.
func wholeFamily(networks []string, whole string) []string {
	if slices.Contains(networks, whole) {
		return []string{whole}
	}
	return networks
}

// contradictions reports problems with combinations of annotations, and with texts that a row cannot judge. Annotations whose value is
// refused already are left out.
func (s settings) contradictions(refused error) error {
	var problems []error
	report := func(broken bool, reason, key string, others ...string) {
		if broken && problemsAbout(refused, append(others, key)...) == nil {
			problems = append(problems, &schema.Problem{Place: "annotation " + key, Reason: reason})
		}
	}
	report(len(s.Tags) > maxTags, fmt.Sprintf("holds more than %d tags", maxTags), annotationTags)
	for _, tag := range s.Tags[:min(len(s.Tags), maxTags)] {
		report(ownership.IsMark(tag), fmt.Sprintf("holds %q, by which NodeBalancers are told apart; choose another one", tag), annotationTags)
		report(len(tag) < shortestTag || len(tag) > linodelimits.Tag.Max,
			fmt.Sprintf("holds a tag that does not have %d to %d characters", shortestTag, linodelimits.Tag.Max), annotationTags)
	}
	report(len(s.CheckBody) > maxCheckText, fmt.Sprintf("has more than %d characters", maxCheckText), annotationCheckBody)
	report(len(s.CheckPath) > maxCheckText, fmt.Sprintf("has more than %d characters", maxCheckText), annotationCheckPath)
	report(s.CheckType == checkHTTPBody && s.CheckBody == "", "is required for checks of type http_body", annotationCheckBody)
	report(s.CheckTimeout >= s.CheckInterval && s.CheckInterval > 0,
		fmt.Sprintf("must be less than the interval of %d s", s.CheckInterval), annotationCheckTimeout)
	report((s.FrontendVPC == "") != (s.FrontendSubnet == "") && s.FrontendSubnetID == 0,
		"and "+annotationFrontendSubnet+" belong together; set both", annotationFrontendVPC, annotationFrontendSubnet, annotationFrontendSubnetID)
	report((s.FrontendRangeV4 != "" || s.FrontendRangeV6 != "") && !s.hasFrontendVPC(),
		"is required where a range of the frontend is set", annotationFrontendSubnetID, annotationFrontendVPC, annotationFrontendSubnet)
	return errors.Join(problems...)
}

// hasFrontendVPC reports whether the Service requests an address in a VPC.
func (s settings) hasFrontendVPC() bool { return s.FrontendSubnetID != 0 || s.FrontendSubnet != "" }

// aclMaxLength is room for the addresses of all rules that a firewall can have.
const aclMaxLength = 131072

// parseACL decodes and checks the annotation firewall-acl.
func parseACL(text string) (*acl, error) {
	a := &acl{}
	if err := json.Unmarshal([]byte(text), a); err != nil {
		return nil, errors.New(`is not a JSON object such as {"allowList": {"ipv4": ["192.0.2.0/24"]}}`)
	}
	if (a.Allow == nil) == (a.Deny == nil) {
		return nil, errors.New("must have either allowList or denyList")
	}
	list := cmp.Or(a.Allow, a.Deny)
	list.IPv4, list.IPv6 = union(nil, list.IPv4...), union(nil, list.IPv6...)
	switch n := len(list.IPv4) + len(list.IPv6); {
	case n == 0:
		return nil, errors.New("holds no network")
	case n > maxNetworks():
		return nil, fmt.Errorf("holds %d networks; a firewall has room for %d", n, maxNetworks())
	}
	for _, network := range slices.Concat(list.IPv4, list.IPv6) {
		if _, err := netip.ParsePrefix(network); err != nil {
			return nil, fmt.Errorf("holds %q, which is not a network such as 192.0.2.0/24", network)
		}
	}
	return a, nil
}
