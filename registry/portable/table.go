// Package portable defines the annotations of Services with the same meaning on every cloud, and translates them to each cloud's own before
// the cloud parses anything. It is pure: its input is tables and a Service, its result a Service and messages.
package portable

import (
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Prefix is the beginning of every portable annotation.
const Prefix = "anyccm.io/load-balancer-"

// The portable annotations.
const (
	Scheme             = Prefix + "scheme"
	Name               = Prefix + "name"
	Address            = Prefix + "address"
	Network            = Prefix + "network"
	Subnet             = Prefix + "subnet"
	SecurityGroups     = Prefix + "security-groups"
	ProxyProtocol      = Prefix + "proxy-protocol"
	CheckProtocol      = Prefix + "health-check-protocol"
	CheckPath          = Prefix + "health-check-path"
	CheckPort          = Prefix + "health-check-port"
	CheckInterval      = Prefix + "health-check-interval"
	CheckTimeout       = Prefix + "health-check-timeout"
	HealthyThreshold   = Prefix + "health-check-healthy-threshold"
	UnhealthyThreshold = Prefix + "health-check-unhealthy-threshold"
	IdleTimeout        = Prefix + "idle-timeout"
	Algorithm          = Prefix + "algorithm"
	Certificate        = Prefix + "certificate"
	TLSPorts           = Prefix + "tls-ports"
	BackendSelector    = Prefix + "backend-selector"
	Hostname           = Prefix + "hostname"
	Tags               = Prefix + "tags"
)

// Values of portable annotations.
const (
	SchemePublic   = "public"
	SchemeInternal = "internal"

	ProxyNone = "none"
	ProxyV1   = "v1"
	ProxyV2   = "v2"

	CheckTCP   = "tcp"
	CheckHTTP  = "http"
	CheckHTTPS = "https"

	// NodePort makes the node port the health check's port.
	NodePort = "node-port"

	RoundRobin       = "round-robin"
	LeastConnections = "least-connections"
	SourceIP         = "source-ip"

	// SecretPrefix begins a certificate that is a Secret in the Service's namespace.
	SecretPrefix = "secret:"
)

// settings are the typed values.
type settings struct {
	Scheme, Name, Network, ProxyProtocol, CheckProtocol, CheckPath, CheckPort string
	Address, Subnet, SecurityGroups, TLSPorts                                 []string
	CheckInterval, CheckTimeout, IdleTimeout                                  time.Duration
	Healthy, Unhealthy                                                        int
	Algorithm, Certificate, BackendSelector, Hostname, Tags                   string
}

const asTheCloud = "as the cloud has it"

// maxText is the longest value that is parsed.
const maxText = 4096

func row(key, help string, spec schema.Spec) schema.AnnotationRow {
	spec.Help, spec.DefaultHelp, spec.MaxLength = help, asTheCloud, maxText
	return schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: spec}
}

// Annotations is the table of the portable annotations.
var Annotations = schema.Annotations[settings]{
	schema.EnumAnnotation(func(s *settings) *string { return &s.Scheme }, row(Scheme, "Reachable from the internet, or only from the private network.",
		schema.Spec{Choices: []string{SchemePublic, SchemeInternal}})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Name }, row(Name, "Name in the cloud, where one can be chosen.", schema.Spec{})),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Address }, row(Address,
		"Reserved address to use: an IP address, or one of IPv4 and one of IPv6 separated by a comma. It wins over spec.loadBalancerIP.", schema.Spec{Rules: addressRules})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Network }, row(Network, "Network of the load balancer, by name or ID.", schema.Spec{})),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Subnet }, row(Subnet, "Subnets of the load balancer, by name or ID.", schema.Spec{})),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.SecurityGroups }, row(SecurityGroups,
		"Security groups in front of it, by name or ID, where the cloud has such groups.", schema.Spec{})),
	schema.EnumAnnotation(func(s *settings) *string { return &s.ProxyProtocol }, row(ProxyProtocol, "Header of the PROXY protocol that is sent to the backends.",
		schema.Spec{Choices: []string{ProxyNone, ProxyV1, ProxyV2}})),
	schema.EnumAnnotation(func(s *settings) *string { return &s.CheckProtocol }, row(CheckProtocol, "Protocol of the health check.",
		schema.Spec{Choices: []string{CheckTCP, CheckHTTP, CheckHTTPS}})),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckPath }, row(CheckPath, "Path of the health check, for http and https.", schema.Spec{Rules: pathRules})),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckPort }, row(CheckPort,
		"Port of the nodes that is checked: a number, or "+NodePort+" for that of the traffic.", schema.Spec{Rules: portRules})),
	schema.DurationAnnotation(func(s *settings) *time.Duration { return &s.CheckInterval }, row(CheckInterval, "Time between two health checks, such as 10s.", schema.Spec{})),
	schema.DurationAnnotation(func(s *settings) *time.Duration { return &s.CheckTimeout }, row(CheckTimeout, "Time after which a health check has failed.", schema.Spec{})),
	schema.IntAnnotation(func(s *settings) *int { return &s.Healthy }, row(HealthyThreshold, "Health checks in a row that must pass before a node serves.", schema.Spec{Min: new(1.0)})),
	schema.IntAnnotation(func(s *settings) *int { return &s.Unhealthy }, row(UnhealthyThreshold, "Health checks in a row that must fail before a node is left out.", schema.Spec{Min: new(1.0)})),
	schema.DurationAnnotation(func(s *settings) *time.Duration { return &s.IdleTimeout }, row(IdleTimeout, "Time after which a silent connection is closed.", schema.Spec{})),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Algorithm }, row(Algorithm, "How backends are chosen.",
		schema.Spec{Choices: []string{RoundRobin, LeastConnections, SourceIP}})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Certificate }, row(Certificate,
		"Certificate for terminating TLS: the cloud's ID, ARN or name of one, or secret:<name> for a Secret of the Service's namespace where the cloud takes uploads.",
		schema.Spec{Rules: certificateRules})),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.TLSPorts }, row(TLSPorts,
		"Ports that the certificate is for, by number or name; all where absent.", schema.Spec{})),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackendSelector }, row(BackendSelector,
		"Label selector of the Nodes that receive traffic, among those that are eligible.", schema.Spec{Rules: selectorRules, Check: checkSelector})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Hostname }, row(Hostname, "DNS name that the status shows instead of the addresses.",
		schema.Spec{Rules: hostnameRules})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Tags }, row(Tags, "Tags or labels of what is created: key=value, separated by commas.", schema.Spec{Rules: tagRules})),
}

// essential annotations are refused by clouds that cannot serve them: a load balancer that is open to the internet, unencrypted, at another
// address or without the clients' addresses would do harm.
var essential = []string{Scheme, Certificate, TLSPorts, Address, SecurityGroups, ProxyProtocol}

// Essential reports whether a Service is refused if the cloud cannot serve the annotation. Others have no effect there.
func Essential(key string) bool { return slices.Contains(essential, key) }

// Shared reports whether an annotation is implemented outside of the providers. A cloud's own annotation for it takes precedence.
func Shared(key string) bool { return key == BackendSelector || key == Hostname }

// The rules of the values.
var (
	address      = "(?:" + schema.IPv4Pattern + "|" + schema.IPv6Pattern + ")"
	addressRules = []schema.Rule{
		schema.Must(`^\s*`+address+`\s*(?:,\s*`+address+`\s*)*$`, "is not an IP address, or one of IPv4 and one of IPv6 separated by a comma"),
		schema.MustNot(`,.*,|^[^:]*,[^:]*$|:.*,.*:`, "holds several addresses of a family; use one, or one of IPv4 and one of IPv6 separated by a comma"),
	}
	pathRules        = []schema.Rule{schema.Must(`^/[!-~]*$`, `is not a path; use a form such as "/healthz"`)}
	portRules        = []schema.Rule{schema.Must(`^(?:`+NodePort+`|`+schema.PortPattern+`)$`, "is not a port; use "+NodePort+" or 1 to 65535")}
	certificateRules = []schema.Rule{{
		When:  []schema.Term{{Matches: `^` + SecretPrefix}},
		Needs: []schema.Term{{Matches: `^` + SecretPrefix + schema.SubdomainPattern + `$`, Lacks: `.{261}`}},
		Words: "is not the name of a Secret; use a form such as " + SecretPrefix + "web-tls",
	}}
	selectorRules = []schema.Rule{schema.Must(selectorForm, noSelector)}
	hostnameRules = []schema.Rule{{
		Needs: []schema.Term{{Matches: `^` + schema.SubdomainPattern + `$`, Lacks: `^` + schema.IPv4Pattern + `$|.{254}`}},
		Words: `is not a hostname such as "web.example.com"`,
	}}
	tagRules = []schema.Rule{schema.Must(
		`^`+onePair+`(?:,`+onePair+`)*$`, `is not a list of tags; use a form such as "team=web,stage=prod"`,
	)}
)

// onePair is a key that is not blank, with a value.
const onePair = `\s*[^=,\s][^=,]*=[^=,]*`
