package vsphere

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsx"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	Global globalConfig
	// VCenters are the vCenters with inherited settings, in the order of their keys.
	VCenters []vcenterConfig
	Labels   labelsConfig
	Nodes    nodesConfig

	nsx.Config

	// NodeLabels are put on every new Node.
	NodeLabels map[string]string
	// SkipNodeDeletion makes the absence of a virtual machine an error.
	SkipNodeDeletion bool

	raw rawConfig
}

// rawConfig holds options as text, before they are checked together.
type rawConfig struct {
	IPFamily, Datacenters                                          []string
	InternalCIDRs, ExternalCIDRs, ExcludeInternal, ExcludeExternal string
	NodeLabels, DualStack, SkipDeletion, Tags                      string
	RoundTrips, APIDisable, APIBinding                             string
}

// globalConfig is the section global, which vCenters inherit.
type globalConfig struct {
	Server             string
	Port               int
	User, Password     schema.Secret
	Insecure           bool
	CAFile, Thumbprint string
	// SecretName and SecretNamespace name the Secret with the credentials, SecretsDirectory the folder with the same keys as files.
	SecretName, SecretNamespace, SecretsDirectory string
}

// vcenterConfig is one vCenter with inherited settings.
type vcenterConfig struct {
	globalConfig
	// Key is its name in the cloud config.
	Key string
	// Datacenters are names, inventory paths or references; none means all below the root folder.
	Datacenters []string
	// IPFamilies are the families of the addresses of nodes, in order.
	IPFamilies []v1.IPFamily
}

// endpoint returns the URL of the API. The server is a host or an address; with http:// before it, the connection is not encrypted.
func (c vcenterConfig) endpoint(allowInsecure bool) (*url.URL, error) {
	u := &url.URL{Scheme: "https", Path: "/sdk"}
	host, plain := strings.CutPrefix(c.Server, "http://")
	if plain {
		if err := schema.InsecureURL(c.Server, allowInsecure); err != nil {
			return nil, err
		}
		u.Scheme = "http"
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
	if strings.ContainsAny(host, "/@? ") {
		return nil, errors.New("is not the name or the address of a host")
	}
	bare := strings.Trim(host, "[]")
	if _, err := netip.ParseAddr(bare); err == nil {
		host = net.JoinHostPort(bare, strconv.Itoa(c.Port))
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, strconv.Itoa(c.Port))
	}
	u.Host = host
	return u, nil
}

// labelsConfig holds the tag categories for zones and regions.
type labelsConfig struct{ Zone, Region string }

func (l labelsConfig) isEnabled() bool { return l.Zone != "" && l.Region != "" }

// nodesConfig selects the addresses of a virtual machine for its node.
type nodesConfig struct {
	InternalCIDRs, ExternalCIDRs     []netip.Prefix
	ExcludeInternal, ExcludeExternal []netip.Prefix
	InternalNetwork, ExternalNetwork string
}

const noEffect = "Accepted for compatibility, without effect: "

type (
	option = schema.Option[Config]
	row    = schema.OptionRow
)

func text(key, env, help string, at func(*Config) *string) option {
	return schema.StringOption(at, row{FileKey: key, Env: env, Spec: schema.Spec{Help: help}})
}

func toggle(key, env, help string, at func(*Config) *bool) option {
	return schema.BoolOption(at, row{FileKey: key, Env: env, Spec: schema.Spec{Default: "false", Help: help}})
}

func secret(key, env, help string, at func(*Config) *schema.Secret) option {
	return schema.SecretOption(at, row{FileKey: key, Env: env, Spec: schema.Spec{Help: help}})
}

func cidrs(key, env, help string, at func(*Config) *string) option {
	return schema.StringOption(at, row{FileKey: key, Env: env, Spec: schema.Spec{Help: help, Check: checkBy(parseCIDRs)}})
}

// Options is the table of the provider's options: the keys of vsphere.conf, as in the YAML of vSphere's own controller. The INI keys are
// the same words with hyphens.
var Options = schema.Options[Config]{
	text("global.server", "VSPHERE_VCENTER", "Address of the vCenter, where there is no section vcenter.", func(c *Config) *string { return &c.Global.Server }),
	schema.IntOption(func(c *Config) *int { return &c.Global.Port }, row{
		FileKey: "global.port", Env: "VSPHERE_VCENTER_PORT",
		Spec: schema.Spec{Default: "443", Min: new(1.0), Max: new(65535.0), Help: "Port of vCenters that name none."},
	}),
	secret("global.user", "VSPHERE_USER", "User for vCenters that name none; a certificate in PEM logs in by single sign-on.", func(c *Config) *schema.Secret { return &c.Global.User }),
	secret("global.password", "VSPHERE_PASSWORD", "Password of the user, or the certificate's key in PEM.", func(c *Config) *schema.Secret { return &c.Global.Password }),
	toggle("global.insecureFlag", "VSPHERE_INSECURE", "Do not verify certificates.", func(c *Config) *bool { return &c.Global.Insecure }),
	schema.ListOption(func(c *Config) *[]string { return &c.raw.Datacenters }, row{
		FileKey: "global.datacenters", Env: "VSPHERE_DATACENTER",
		Spec: schema.Spec{Help: "Datacenters by name, inventory path or reference; all below the root folder where there are none. A comma in a name is written %2c where a text is a list; an item of a list in YAML is one name."},
	}),
	text("global.caFile", "VSPHERE_CAFILE", "Files with the authorities that signed the certificates of vCenters, separated by colons; they replace the "+
		"system's.", func(c *Config) *string { return &c.Global.CAFile }),
	schema.StringOption(func(c *Config) *string { return &c.Global.Thumbprint }, row{
		FileKey: "global.thumbprint", Env: "VSPHERE_THUMBPRINT",
		Spec: schema.Spec{Check: checkThumbprint, Help: "SHA-1 or SHA-256 thumbprint of a certificate that is accepted although no known authority signed it."},
	}),
	text("global.secretName", "VSPHERE_SECRET_NAME", "Secret with the credentials.", func(c *Config) *string { return &c.Global.SecretName }),
	text("global.secretNamespace", "VSPHERE_SECRET_NAMESPACE", "Namespace of that Secret; kube-system where it is not set.",
		func(c *Config) *string { return &c.Global.SecretNamespace }),
	text("global.secretsDirectory", "VSPHERE_SECRETS_DIRECTORY", "Folder with the keys of such a Secret as files.", func(c *Config) *string { return &c.Global.SecretsDirectory }),
	schema.ListOption(func(c *Config) *[]string { return &c.raw.IPFamily }, row{FileKey: "global.ipFamily", Spec: schema.Spec{
		Default: "ipv4", Check: checkBy(func(text string) ([]v1.IPFamily, error) { return parseFamilies(splitList(text)) }),
		Help: "Families of the nodes' addresses, in order: ipv4, ipv6. Both need ENABLE_ALPHA_DUAL_STACK.",
	}}),
	text("global.soapRoundtripCount", "VSPHERE_ROUNDTRIP_COUNT", noEffect+"failed calls are repeated where that is safe.", func(c *Config) *string { return &c.raw.RoundTrips }),
	text("global.apiDisable", "", noEffect+"this program does not serve that API.", func(c *Config) *string { return &c.raw.APIDisable }),
	text("global.apiBinding", "", noEffect+"this program does not serve that API.", func(c *Config) *string { return &c.raw.APIBinding }),

	text("labels.zone", "VSPHERE_LABEL_ZONE", "Category of the tags that name zones; needs labels.region.", func(c *Config) *string { return &c.Labels.Zone }),
	text("labels.region", "VSPHERE_LABEL_REGION", "Category of the tags that name regions; needs labels.zone.", func(c *Config) *string { return &c.Labels.Region }),
	cidrs("nodes.internalNetworkSubnetCidr", "VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR", "Networks of internal addresses, separated by "+
		"commas, the first that has one first.", func(c *Config) *string { return &c.raw.InternalCIDRs }),
	cidrs("nodes.externalNetworkSubnetCidr", "VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR", "Networks of external addresses.",
		func(c *Config) *string { return &c.raw.ExternalCIDRs }),
	cidrs("nodes.excludeInternalNetworkSubnetCidr", "", "Networks without internal addresses.", func(c *Config) *string { return &c.raw.ExcludeInternal }),
	cidrs("nodes.excludeExternalNetworkSubnetCidr", "", "Networks without external addresses.", func(c *Config) *string { return &c.raw.ExcludeExternal }),
	text("nodes.internalVmNetworkName", "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME", "vSphere network of internal addresses.",
		func(c *Config) *string { return &c.Nodes.InternalNetwork }),
	text("nodes.externalVmNetworkName", "VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME", "vSphere network of external addresses.",
		func(c *Config) *string { return &c.Nodes.ExternalNetwork }),

	text("nsxt.host", "NSXT_MANAGER_HOST", "Host of the NSX-T manager.", func(c *Config) *string { return &c.NSXT.Host }),
	text("nsxt.user", "NSXT_USERNAME", "User of NSX-T.", func(c *Config) *string { return &c.NSXT.User }),
	secret("nsxt.password", "NSXT_PASSWORD", "Password of that user.", func(c *Config) *schema.Secret { return &c.NSXT.Password }),
	toggle("nsxt.remoteAuth", "", "Log in by VMware Identity Manager.", func(c *Config) *bool { return &c.NSXT.RemoteAuth }),
	toggle("nsxt.insecureFlag", "NSXT_ALLOW_UNVERIFIED_SSL", "Do not verify NSX-T's certificate.", func(c *Config) *bool { return &c.NSXT.Insecure }),
	text("nsxt.caFile", "NSXT_CA_FILE", "File with the authorities that signed the certificate of NSX-T.", func(c *Config) *string { return &c.NSXT.CAFile }),
	text("nsxt.clientAuthCertFile", "NSXT_CLIENT_AUTH_CERT_FILE", "File with a client certificate of NSX-T; replaces the user.",
		func(c *Config) *string { return &c.NSXT.ClientCertFile }),
	text("nsxt.clientAuthKeyFile", "NSXT_CLIENT_AUTH_KEY_FILE", "File with its key.", func(c *Config) *string { return &c.NSXT.ClientKeyFile }),
	secret("nsxt.vmcAccessToken", "", "Refresh token of VMware Cloud on AWS.", func(c *Config) *schema.Secret { return &c.NSXT.VMCAccessToken }),
	text("nsxt.vmcAuthHost", "", "Host and path that exchange that token.", func(c *Config) *string { return &c.NSXT.VMCAuthHost }),
	text("nsxt.secretName", "NSXT_SECRET_NAME", "Secret with the keys username and password for NSX-T.", func(c *Config) *string { return &c.NSXT.SecretName }),
	text("nsxt.secretNamespace", "NSXT_SECRET_NAMESPACE", "Its namespace.", func(c *Config) *string { return &c.NSXT.SecretNamespace }),

	schema.EnumOption(func(c *Config) *string { return &c.LoadBalancer.Size }, row{FileKey: "loadBalancer.size", Spec: schema.Spec{
		Choices: nsx.Sizes(), Help: "Size of load balancer services that are made; required for load balancers.",
	}}),
	text("loadBalancer.lbServiceId", "", "Load balancer service to use; without it one is made on the gateway.", func(c *Config) *string { return &c.LoadBalancer.LBServiceID }),
	text("loadBalancer.tier1GatewayPath", "", "Path of the tier-1 gateway of the load balancer service.", func(c *Config) *string { return &c.LoadBalancer.Tier1GatewayPath }),
	toggle("loadBalancer.snatDisabled", "", "Make pools without translation of client addresses.", func(c *Config) *bool { return &c.LoadBalancer.SNATDisabled }),
	schema.Structured(text("loadBalancer.tags", "", "Further tags of every object: scopes and their tags.", func(c *Config) *string { return &c.raw.Tags })),
	text("loadBalancer.ipPoolName", "", "IP pool of addresses, by name.", func(c *Config) *string { return &c.LoadBalancer.Class.IPPoolName }),
	text("loadBalancer.ipPoolId", "", "IP pool of addresses, by ID.", func(c *Config) *string { return &c.LoadBalancer.Class.IPPoolID }),
	text("loadBalancer.tcpAppProfileName", "", "Application profile for TCP, by name.", func(c *Config) *string { return &c.LoadBalancer.Class.TCPAppProfileName }),
	text("loadBalancer.tcpAppProfilePath", "", "Application profile for TCP, by path.", func(c *Config) *string { return &c.LoadBalancer.Class.TCPAppProfilePath }),
	text("loadBalancer.udpAppProfileName", "", "Application profile for UDP, by name.", func(c *Config) *string { return &c.LoadBalancer.Class.UDPAppProfileName }),
	text("loadBalancer.udpAppProfilePath", "", "Application profile for UDP, by path.", func(c *Config) *string { return &c.LoadBalancer.Class.UDPAppProfilePath }),
	text("route.routerPath", "", "Policy path of the tier-1 gateway with the routes; without it there are none.", func(c *Config) *string { return &c.Route.RouterPath }),

	schema.StringOption(func(c *Config) *string { return &c.raw.NodeLabels }, row{
		Flag: "node-labels", Spec: schema.Spec{Check: checkBy(parseNodeLabels), Help: "Labels of new Nodes, such as a=b,c=d."},
	}),
	text("", envDualStack, "If it is set, to any value, it allows more than one family of addresses.", func(c *Config) *string { return &c.raw.DualStack }),
	text("", envSkipDeletion, "If it is set, to any value, it keeps the Nodes of virtual machines that are not found.", func(c *Config) *string { return &c.raw.SkipDeletion }),
}

const (
	envDualStack    = "ENABLE_ALPHA_DUAL_STACK"
	envSkipDeletion = "SKIP_NODE_DELETION"
)

// checkBy makes a check of a parser.
func checkBy[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

func splitList(v string) []string {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func parseCIDRs(v string) (prefixes []netip.Prefix, err error) {
	for _, item := range splitList(v) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			return nil, fmt.Errorf(`holds %q, which is not a network; use a form such as "10.0.0.0/8,fd00::/8"`, item)
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, nil
}

// parseFamilies parses families of addresses; none means IPv4.
func parseFamilies(items []string) (families []v1.IPFamily, err error) {
	for _, item := range items {
		switch strings.ToLower(strings.TrimSpace(item)) {
		case "ipv4":
			families = append(families, v1.IPv4Protocol)
		case "ipv6":
			families = append(families, v1.IPv6Protocol)
		default:
			return nil, fmt.Errorf("holds %q, which is no family of addresses; use ipv4 and ipv6", item)
		}
	}
	if len(families) == 0 {
		families = []v1.IPFamily{v1.IPv4Protocol}
	}
	return families, nil
}

var thumbprint = regexp.MustCompile(`^([0-9A-Fa-f]{2}:){19}([0-9A-Fa-f]{2}:){0,12}[0-9A-Fa-f]{2}$`)

func checkThumbprint(v string) error {
	if n := strings.Count(v, ":") + 1; !thumbprint.MatchString(v) || (n != 20 && n != 32) {
		return errors.New("is not a thumbprint; use 20 or 32 pairs of hexadecimal digits with colons between them")
	}
	return nil
}

func parseNodeLabels(v string) (labels map[string]string, err error) {
	labels = map[string]string{}
	for _, item := range splitList(v) {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("holds %q, which is not of the form key=value", item)
		}
		problems := validation.IsQualifiedName(key)
		if bad := validation.IsValidLabelValue(value); len(problems) == 0 {
			problems = bad
		}
		if len(problems) > 0 {
			return nil, fmt.Errorf("holds %q, which cannot be a label: %s", item, strings.Join(problems, "; "))
		}
		labels[key] = value
	}
	return labels, nil
}

// parseConfig reads all sources. All problems are reported together; warnings are about settings without effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	f, err := readFile(in.File)
	if err != nil {
		return c, nil, err
	}
	in.Keys = f.keys
	c, err = Options.Parse(in.Sources)
	err = errors.Join(err, c.complete(f, in))
	return c, errors.Join(append(f.unknown, c.checkUnused())...), err
}
