package digitalocean

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Annotation names of DigitalOcean's own controller.
const (
	annotationPrefix = "service.beta.kubernetes.io/do-loadbalancer-"

	annotationID                 = "kubernetes.digitalocean.com/load-balancer-id"
	annotationType               = annotationPrefix + "type"
	annotationDisown             = "service.kubernetes.io/do-loadbalancer-disown"
	annotationFirewallManaged    = "kubernetes.digitalocean.com/firewall-managed"
	annotationName               = annotationPrefix + "name"
	annotationNetwork            = annotationPrefix + "network"
	annotationNetworkStack       = annotationPrefix + "network-stack"
	annotationIP                 = annotationPrefix + "ip"
	annotationSubnet             = annotationPrefix + "subnet-uuid"
	annotationProtocol           = annotationPrefix + "protocol"
	annotationHTTPPorts          = annotationPrefix + "http-ports"
	annotationTLSPorts           = annotationPrefix + "tls-ports"
	annotationHTTP2Ports         = annotationPrefix + "http2-ports"
	annotationHTTP3Port          = annotationPrefix + "http3-port"
	annotationTLSPassthrough     = annotationPrefix + "tls-passthrough"
	annotationCertificateID      = annotationPrefix + "certificate-id"
	annotationCertificateName    = annotationPrefix + "certificate-name"
	annotationNoLetsEncryptDNS   = annotationPrefix + "disable-lets-encrypt-dns-records"
	annotationRedirect           = annotationPrefix + "redirect-http-to-https"
	annotationProxyProtocol      = annotationPrefix + "enable-proxy-protocol"
	annotationKeepalive          = annotationPrefix + "enable-backend-keepalive"
	annotationIdleTimeout        = annotationPrefix + "http-idle-timeout-seconds"
	annotationStickyType         = annotationPrefix + "sticky-sessions-type"
	annotationStickyCookieName   = annotationPrefix + "sticky-sessions-cookie-name"
	annotationStickyCookieTTL    = annotationPrefix + "sticky-sessions-cookie-ttl"
	annotationAlgorithm          = annotationPrefix + "algorithm"
	annotationSizeSlug           = annotationPrefix + "size-slug"
	annotationSizeUnit           = annotationPrefix + "size-unit"
	annotationCheckInterval      = annotationPrefix + "healthcheck-check-interval-seconds"
	annotationCheckTimeout       = annotationPrefix + "healthcheck-response-timeout-seconds"
	annotationUnhealthyThreshold = annotationPrefix + "healthcheck-unhealthy-threshold"
	annotationHealthyThreshold   = annotationPrefix + "healthcheck-healthy-threshold"
	annotationOverrideCheck      = annotationPrefix + "override-health-check"
	annotationCheckPath          = annotationPrefix + "healthcheck-path"
	annotationCheckPort          = annotationPrefix + "healthcheck-port"
	annotationCheckProtocol      = annotationPrefix + "healthcheck-protocol"
	annotationHostname           = annotationPrefix + "hostname"
	annotationDenyRules          = annotationPrefix + "deny-rules"
	annotationAllowRules         = annotationPrefix + "allow-rules"
)

const (
	protocolTCP   = "tcp"
	protocolUDP   = "udp"
	protocolHTTP  = "http"
	protocolHTTPS = "https"
	protocolHTTP2 = "http2"
	protocolHTTP3 = "http3"
)

const (
	stickyNone    = "none"
	stickyCookies = "cookies"
)

// settings holds the typed annotations of one Service.
type settings struct {
	ID, Name, Type, Network, NetworkStack, IP, Subnet string
	Disown                                            bool

	Protocol                        string
	HTTPPorts, TLSPorts, HTTP2Ports []int
	HTTP3Port                       int
	TLSPassthrough                  bool
	CertificateID, CertificateName  string
	NoLetsEncryptDNS                bool
	Redirect, ProxyProtocol         bool
	Keepalive                       bool
	IdleTimeout                     int
	StickyType, StickyCookieName    string
	StickyCookieTTL                 int
	Algorithm, SizeSlug             string
	SizeUnit                        int

	CheckInterval, CheckTimeout          int
	UnhealthyThreshold, HealthyThreshold int
	OverrideCheck                        bool
	CheckPath, CheckProtocol             string
	CheckPort                            int
	Hostname                             string
	DenyRules, AllowRules                []string
	FirewallManaged                      bool
}

// nameRules are the API's rules for load balancer names.
var nameRules = []schema.Rule{schema.Must(
	`^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9.])?$`,
	"is not a load balancer name; use letters, digits, '.' and '-', beginning with a letter or digit and not ending in '-', at most 255",
)}

// checkRules accepts the API's firewall rules: ip:<address> and cidr:<network>.
func checkRules(v string) error {
	if strings.TrimSpace(v) != "" && strings.Trim(v, ", ") == "" {
		return errors.New(`holds no rule; remove it, or use a list such as "ip:192.0.2.7,cidr:198.51.100.0/24"`)
	}
	for item := range strings.SplitSeq(v, ",") {
		item = strings.TrimSpace(item)
		if _, ok := networkOf(item); !ok && item != "" {
			return fmt.Errorf(`holds %q; use a list such as "ip:192.0.2.7,cidr:198.51.100.0/24"`, item)
		}
	}
	return nil
}

var (
	portMin, portMax   = new(1.0), new(65535.0)
	checkMin, checkMax = new(3.0), new(300.0)
	countMin, countMax = new(2.0), new(10.0)
)

// withOverride marks settings that only apply to an overridden health check.
var withOverride = &schema.Where{Key: annotationOverrideCheck, Present: true}

// Annotations is the table of Service annotations.
var Annotations = schema.Annotations[settings]{
	schema.StringAnnotation(func(s *settings) *string { return &s.ID }, schema.AnnotationRow{
		Key: annotationID, Changes: schema.Written,
		Spec: schema.Spec{Help: "UUID of the load balancer of this Service. Set it before creation to adopt one that exists, as far as --adopt-load-balancers allows.", ID: schema.UUID},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Disown }, schema.AnnotationRow{
		Key: annotationDisown, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "Leave the load balancer alone: it is neither changed nor deleted while this is true."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Name }, schema.AnnotationRow{
		Key: annotationName, Changes: schema.InPlace, Adopts: true,
		Spec: schema.Spec{DefaultHelp: "a followed by the Service's UID without dashes", Help: "Name of the load balancer.", Rules: nameRules},
	}).Serving(schema.Serves{Portable: portable.Name}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, schema.AnnotationRow{
		Key: annotationType, Changes: schema.AtCreation,
		Spec: schema.Spec{
			Choices:     []string{godo.LoadBalancerTypeRegional, godo.LoadBalancerTypeRegionalNetwork},
			DefaultHelp: "the option DEFAULT_LB_TYPE", Help: "Load balancer type. The controller writes the real type back.",
		},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Network }, schema.AnnotationRow{
		Key: annotationNetwork, Changes: schema.AtCreation,
		Spec: schema.Spec{
			Choices: []string{godo.LoadBalancerNetworkTypeExternal, godo.LoadBalancerNetworkTypeInternal},
			Default: godo.LoadBalancerNetworkTypeExternal, Help: "EXTERNAL has a public address, INTERNAL is reachable in the VPC only.",
		},
	}).Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{
		portable.SchemePublic: godo.LoadBalancerNetworkTypeExternal, portable.SchemeInternal: godo.LoadBalancerNetworkTypeInternal,
	}}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.NetworkStack }, schema.AnnotationRow{
		Key: annotationNetworkStack, Changes: schema.AtCreation,
		Spec: schema.Spec{
			Choices:     []string{godo.LoadBalancerNetworkStackIPv4, godo.LoadBalancerNetworkStackDualstack},
			DefaultHelp: "DUALSTACK where type, network and nodes allow it, else IPV4", Help: "Address families of the load balancer.",
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.IP }, schema.AnnotationRow{
		Key: annotationIP, Changes: schema.AtCreation,
		Spec: schema.Spec{Help: "IPv4 address of your own (BYOIP) that is not assigned yet.", Rules: []schema.Rule{
			schema.Must(`^\s*`+schema.IPv4Pattern+`\s*$`, "is not an IPv4 address"),
		}},
	}).Serving(schema.Serves{Portable: portable.Address, Only: "one of your own (BYOIP), IPv4"}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet }, schema.AnnotationRow{
		Key: annotationSubnet, Changes: schema.InPlace, Spec: schema.Spec{Help: "UUID of the VPC subnet.", ID: schema.UUID.Padded()},
	}).Serving(schema.Serves{Portable: portable.Subnet, Only: "one, by its ID"}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Protocol }, schema.AnnotationRow{
		Key: annotationProtocol, Changes: schema.InPlace, RefuseEmpty: true, Needs: onRegional, Unread: true,
		Spec: schema.Spec{
			Choices: []string{protocolTCP, protocolHTTP, protocolHTTPS, protocolHTTP2, protocolHTTP3},
			Default: protocolTCP, Help: "Protocol of ports that no other annotation names; `http3` only where they name all.",
		},
	}),
	schema.IntListAnnotation(func(s *settings) *[]int { return &s.HTTPPorts }, schema.AnnotationRow{
		Key: annotationHTTPPorts, Changes: schema.InPlace, RefuseEmpty: true, Needs: onRegional, Unread: true,
		Spec: schema.Spec{Min: portMin, Max: portMax, Help: "Service ports that speak HTTP."},
	}),
	schema.IntListAnnotation(func(s *settings) *[]int { return &s.TLSPorts }, schema.AnnotationRow{
		Key: annotationTLSPorts, Changes: schema.InPlace, RefuseEmpty: true, Needs: onRegional, Unread: true,
		Spec: schema.Spec{Min: portMin, Max: portMax, DefaultHelp: "443 where a certificate or passthrough is set", Help: "Service ports that speak HTTPS."},
	}).Serving(schema.Serves{
		Portable: portable.TLSPorts, Where: onRegional, Choose: true, Translate: portableTLSPorts,
	}),
	schema.IntListAnnotation(func(s *settings) *[]int { return &s.HTTP2Ports }, schema.AnnotationRow{
		Key: annotationHTTP2Ports, Changes: schema.InPlace, RefuseEmpty: true, Needs: onRegional, Unread: true,
		Spec: schema.Spec{Min: portMin, Max: portMax, Help: "Service ports that speak HTTP/2."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.HTTP3Port }, schema.AnnotationRow{
		Key: annotationHTTP3Port, Changes: schema.InPlace, RefuseEmpty: true, Needs: onRegional, Unread: true,
		Spec: schema.Spec{Min: portMin, Max: portMax, Help: "Service port that speaks HTTP/3 as well. Needs a certificate."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.TLSPassthrough }, schema.AnnotationRow{
		Key: annotationTLSPassthrough, Changes: schema.InPlace, Needs: onRegional, Unread: true,
		Spec: schema.Spec{Default: "false", Lenient: true, Help: "Pass TLS through to the nodes. Excludes a certificate."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.CertificateID }, schema.AnnotationRow{
		Key: annotationCertificateID, Changes: schema.InPlace,
		Spec: schema.Spec{Help: "UUID of the certificate for TLS ports; wins over the name. The controller follows the rotation of Let's Encrypt certificates here.", ID: schema.UUID},
	}).Serving(schema.Serves{
		Portable: portable.Certificate, Where: onRegional, Choose: true, Rules: []schema.Rule{portable.NotSecret("DigitalOcean", "the ID or name of a certificate there")},
		Translate: portableCertificate, Rivals: []string{annotationCertificateID, annotationCertificateName},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.CertificateName }, schema.AnnotationRow{
		Key: annotationCertificateName, Changes: schema.InPlace, Spec: schema.Spec{Help: "Name of the certificate for TLS ports."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.NoLetsEncryptDNS }, schema.AnnotationRow{
		Key: annotationNoLetsEncryptDNS, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "Stop DigitalOcean from creating DNS records for Let's Encrypt certificates."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Redirect }, schema.AnnotationRow{
		Key: annotationRedirect, Changes: schema.InPlace, Spec: schema.Spec{Default: "false", Help: "Redirect HTTP on port 80 to HTTPS on port 443."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.ProxyProtocol }, schema.AnnotationRow{
		Key: annotationProxyProtocol, Changes: schema.InPlace, Spec: schema.Spec{Default: "false", Help: "Send the PROXY protocol header to the nodes."},
	}).Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "false", portable.ProxyV1: "true"}}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Keepalive }, schema.AnnotationRow{
		Key: annotationKeepalive, Changes: schema.InPlace, Spec: schema.Spec{Default: "false", Help: "Keep HTTP connections to the nodes open."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.IdleTimeout }, schema.AnnotationRow{
		Key: annotationIdleTimeout, Changes: schema.InPlace, RefuseEmpty: true,
		Spec: schema.Spec{Min: new(30.0), Max: new(600.0), DefaultHelp: "60, by DigitalOcean", Help: "Seconds after which an idle HTTP connection is closed."},
	}).Serving(schema.Serves{Portable: portable.IdleTimeout, Unit: time.Second, Only: "of HTTP"}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.StickyType }, schema.AnnotationRow{
		Key: annotationStickyType, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{stickyNone, stickyCookies}, Default: stickyNone, Lenient: true, Help: "Session affinity."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.StickyCookieName }, schema.AnnotationRow{
		Key: annotationStickyCookieName, Changes: schema.InPlace, Spec: schema.Spec{Help: "Name of the cookie; required with cookies."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.StickyCookieTTL }, schema.AnnotationRow{
		Key: annotationStickyCookieTTL, Changes: schema.InPlace,
		Spec: schema.Spec{Min: new(0.0), Help: "Lifetime of the cookie in seconds; required with cookies."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Algorithm }, schema.AnnotationRow{
		Key: annotationAlgorithm, Changes: schema.InPlace, Deprecated: "DigitalOcean ignores it; remove it",
		Spec: schema.Spec{Choices: []string{"round_robin", "least_connections"}, Default: "round_robin", Lenient: true, Help: "Balancing algorithm."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.SizeSlug }, schema.AnnotationRow{
		Key: annotationSizeSlug, Changes: schema.InPlace, Deprecated: "use " + annotationSizeUnit,
		Spec: schema.Spec{Choices: []string{"lb-small", "lb-medium", "lb-large"}, DefaultHelp: "lb-small, by DigitalOcean", Help: "Size of the load balancer."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.SizeUnit }, schema.AnnotationRow{
		Key: annotationSizeUnit, Changes: schema.InPlace,
		Spec: schema.Spec{Min: new(0.0), Max: new(200.0), DefaultHelp: "1, by DigitalOcean", Help: "Number of load balancer nodes; DigitalOcean allows one change an hour."},
	}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckInterval }, schema.AnnotationRow{
		Key: annotationCheckInterval, Changes: schema.InPlace, RefuseEmpty: true,
		Spec: schema.Spec{Min: checkMin, Max: checkMax, Default: "3", Help: "Seconds between two health checks."},
	}).Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckTimeout }, schema.AnnotationRow{
		Key: annotationCheckTimeout, Changes: schema.InPlace, RefuseEmpty: true,
		Spec: schema.Spec{Min: checkMin, Max: checkMax, Default: "5", Help: "Seconds after which a health check has failed."},
	}).Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.UnhealthyThreshold }, schema.AnnotationRow{
		Key: annotationUnhealthyThreshold, Changes: schema.InPlace, RefuseEmpty: true,
		Spec: schema.Spec{Min: countMin, Max: countMax, Default: "3", Help: "Failed checks in a row that take a node out."},
	}).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.HealthyThreshold }, schema.AnnotationRow{
		Key: annotationHealthyThreshold, Changes: schema.InPlace, RefuseEmpty: true,
		Spec: schema.Spec{Min: countMin, Max: countMax, Default: "5", Help: "Passed checks in a row that take a node in."},
	}).Serving(schema.Serves{Portable: portable.HealthyThreshold}),
	schema.PresenceAnnotation(func(s *settings) *bool { return &s.OverrideCheck }, schema.AnnotationRow{
		Key: annotationOverrideCheck, Changes: schema.InPlace,
		Spec: schema.Spec{Help: "Check a port of the Service instead of kube-proxy; makes the path, port and protocol of the check effective. Any value turns it on."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckPath }, schema.AnnotationRow{
		Key: annotationCheckPath, Changes: schema.InPlace, Needs: withOverride, Unread: true, Spec: schema.Spec{Help: "Path of the health check."},
	}).Serving(schema.Serves{Portable: portable.CheckPath, Also: overrideCheck}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckPort }, schema.AnnotationRow{
		Key: annotationCheckPort, Changes: schema.InPlace, Needs: withOverride, Unread: true,
		Spec: schema.Spec{Min: portMin, Max: portMax, DefaultHelp: "the first TCP port", Help: "Service port whose node port is checked."},
	}).Serving(schema.Serves{Portable: portable.CheckPort, Also: overrideCheck, Translate: portableCheckPort, Judged: "a node port that the Service does not have"}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.CheckProtocol }, schema.AnnotationRow{
		Key: annotationCheckProtocol, Changes: schema.InPlace, Needs: withOverride, Unread: true,
		Spec: schema.Spec{
			Choices: []string{protocolTCP, protocolHTTP, protocolHTTPS}, DefaultHelp: "http where a path is set, else tcp",
			Help: "Protocol of the health check.",
		},
	}).Serving(schema.Serves{Portable: portable.CheckProtocol, Also: overrideCheck}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Hostname }, schema.AnnotationRow{
		Key: annotationHostname, Changes: schema.InPlace, Spec: schema.Spec{Help: "DNS name that the Service's status shows instead of addresses."},
	}).Serving(schema.Serves{Portable: portable.Hostname}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.DenyRules }, schema.AnnotationRow{
		Key: annotationDenyRules, Changes: schema.InPlace, Spec: schema.Spec{Help: "Sources that the load balancer refuses, such as cidr:192.0.2.0/24.", Check: checkRules},
	}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.AllowRules }, schema.AnnotationRow{
		Key: annotationAllowRules, Changes: schema.InPlace,
		Spec: schema.Spec{Help: "Sources that the load balancer accepts; spec.loadBalancerSourceRanges wins over it.", Check: checkRules},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.FirewallManaged }, schema.AnnotationRow{
		Key: annotationFirewallManaged, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "true", Lenient: true, Help: "Open the ports of this Service in the public access firewall. Counts for Services of type NodePort and LoadBalancer."},
	}),
}.Needing(&schema.Where{Key: annotationStickyType, OneOf: []string{stickyCookies}}, annotationStickyCookieName, annotationStickyCookieTTL)

// disownTable is the row that disowns a Service.
var disownTable = slices.DeleteFunc(
	slices.Clone(Annotations), func(a schema.Annotation[settings]) bool { return a.Key != annotationDisown },
)

// parseSettings reads the annotations for a load balancer of the given type. Annotations that this type ignores are not parsed, only
// reported as warnings.
func parseSettings(given map[string]string, defaultType, actualType string) (s settings, warnings, err error) {
	lbType := cmp.Or(actualType, given[annotationType], defaultType)
	// The type of an existing load balancer is fixed. The reconciler reports a differing annotation.
	effective := map[string]string{}
	maps.Copy(effective, given)
	effective[annotationType] = lbType
	s, lenient, err := Annotations.Parse(effective)
	s.Type = lbType
	return s, errors.Join(lenient, schema.Unmet(Annotations.Rows(), given, effective, true)), errors.Join(err, s.contradictions(given))
}

// contradictions reports problems with combinations of annotations.
func (s settings) contradictions(given map[string]string) error {
	var problems []error
	report := func(place, reason string) {
		problems = append(problems, &schema.Problem{Place: place, Reason: reason})
	}
	if s.SizeSlug != "" && s.SizeUnit > 0 {
		report("annotations "+annotationSizeSlug+" and "+annotationSizeUnit, "exclude each other; keep "+annotationSizeUnit)
	}
	if s.StickyType == stickyCookies {
		if given[annotationStickyCookieName] == "" {
			report("annotation "+annotationStickyCookieName, "is required with sticky sessions of type cookies")
		}
		if given[annotationStickyCookieTTL] == "" {
			report("annotation "+annotationStickyCookieTTL, "is required with sticky sessions of type cookies")
		}
	}
	if s.Network == godo.LoadBalancerNetworkTypeInternal && s.NetworkStack == godo.LoadBalancerNetworkStackDualstack {
		report("annotations "+annotationNetwork+" and "+annotationNetworkStack, "contradict: an INTERNAL load balancer has no IPv6 address; remove DUALSTACK")
	}
	if s.TLSPassthrough && (s.CertificateID != "" || s.CertificateName != "") {
		report("annotation "+annotationTLSPassthrough, "excludes a certificate; remove one of them")
	}
	owner := map[int]string{}
	for _, list := range []struct {
		key   string
		ports []int
	}{{annotationHTTPPorts, s.HTTPPorts}, {annotationTLSPorts, s.TLSPorts}, {annotationHTTP2Ports, s.HTTP2Ports}} {
		for _, port := range list.ports {
			if first, ok := owner[port]; ok {
				report("annotation "+list.key, fmt.Sprintf("names port %d, which %s names already", port, first))
			}
			owner[port] = list.key
		}
	}
	return errors.Join(problems...)
}
