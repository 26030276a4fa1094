package linode

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	usualTokenFile = "/var/run/secrets/linode/api-token" //nolint:gosec // a path

	defaultURL = "https://api.linode.com"
	// maxPrefix leaves room for a dash and twelve digits in a label of 32 characters.
	maxPrefix = 19
)

// Config is the validated configuration of the provider.
type Config struct {
	Token  schema.Secret
	Region string
	URL    string
	// RequestTimeout bounds one attempt, in seconds.
	RequestTimeout int
	// TagFilter limits listings to instances with a tag that contains it; empty means all.
	TagFilter string
	// ExternalSubnet holds private addresses that count as external; empty means none.
	ExternalSubnet string

	VPCNames, SubnetNames []string
	VPCIDs, SubnetIDs     []int
	Routes                bool

	LoadBalancerType  string
	DefaultType       string
	BackendSubnet     string
	BackendSubnetID   int
	BackendSubnetName string
	NoVPCBackends     bool
	Tags              []string
	Prefix            string
	IPv6Ingress       bool
	IPv6Backends      bool
	HostnameOnly      bool

	// MaskIPv4 and MaskIPv6 are the sizes of pod ranges of nodes; 0 means 24 and 112.
	MaskIPv4, MaskIPv6 int
	NoIPv6NodeCIDR     bool

	TokenHealth bool
	MetadataTTL int
	// OwnershipTag marks new NodeBalancers and firewalls as this cluster's.
	OwnershipTag bool

	// ClusterCIDR and AllocateNodeCIDRs are the framework's.
	ClusterCIDR       string
	AllocateNodeCIDRs bool
	// Shared is set if this release serves a part of the nodes, so that another one may serve the rest.
	Shared bool
	// ServiceCIDR is excluded from the pod ranges.
	ServiceCIDR string
}

// inVPC reports whether the cluster is in VPCs.
func (c Config) inVPC() bool { return len(c.VPCNames) > 0 || len(c.VPCIDs) > 0 }

var prefixRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,19}$`)

func checkPrefix(v string) error {
	if !prefixRule.MatchString(v) {
		return fmt.Errorf("is not a prefix of NodeBalancer labels; use at most %d letters, digits, '_' and '-'", maxPrefix)
	}
	return nil
}

func checkCIDR(v string) error {
	if _, err := netip.ParsePrefix(strings.TrimSpace(v)); err != nil {
		return errors.New(`is not a network; use a form such as "10.0.0.0/16"`)
	}
	return nil
}

const noEffect = "Accepted for compatibility, without effect: "

func planTypes() []string { return []string{"common", "premium", "premium_40gb"} }

// Options is the table of the provider's options. Names are those of Linode's own controller, unless the help text says otherwise.
var Options = schema.Options[Config]{
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Token }, schema.OptionRow{
		Env: "LINODE_API_TOKEN", Required: true, UsualFile: usualTokenFile,
		Spec: schema.Spec{Help: "API token. LINODE_API_TOKEN_FILE names a file that holds it, by default " + usualTokenFile + "; it takes precedence over the variable where it can be read, and is read again when it changes."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Region }, schema.OptionRow{
		Env: "LINODE_REGION", FileKey: "region", Required: true, Spec: schema.Spec{Help: "Region of new NodeBalancers."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.URL }, schema.OptionRow{
		Env: "LINODE_URL", FileKey: "apiURL", Spec: schema.Spec{Default: defaultURL, Help: "Base URL of the API; a path such as /v4beta chooses the version."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.RequestTimeout }, schema.OptionRow{
		Env: "LINODE_REQUEST_TIMEOUT_SECONDS", FileKey: "requestTimeoutSeconds",
		Spec: schema.Spec{Default: "15", Min: new(1.0), Help: "Seconds after which one attempt at a call is given up."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.TagFilter }, schema.OptionRow{
		Flag: "linode-tag-filter", FileKey: "tagFilter", Spec: schema.Spec{Help: "List only Linodes with a tag that contains this text."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.ExternalSubnet }, schema.OptionRow{
		Env: "LINODE_EXTERNAL_SUBNET", FileKey: "externalSubnet",
		Spec: schema.Spec{Check: checkCIDR, Help: "Network whose private addresses count as external addresses of nodes."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.VPCNames }, schema.OptionRow{
		Flag: "vpc-names", FileKey: "vpcNames", Spec: schema.Spec{Help: "Labels of the VPCs of the cluster. Excludes --vpc-ids."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.SubnetNames }, schema.OptionRow{
		Flag: "subnet-names", FileKey: "subnetNames", Spec: schema.Spec{Default: "default", Help: "Labels of the subnets in these VPCs. NodeBalancers are in the first one; backends may be in any."},
	}),
	schema.IntListOption(func(c *Config) *[]int { return &c.VPCIDs }, schema.OptionRow{
		Flag: "vpc-ids", FileKey: "vpcIDs", Spec: schema.Spec{Help: "IDs of the VPCs. Needs --subnet-ids; excludes --vpc-names."},
	}),
	schema.IntListOption(func(c *Config) *[]int { return &c.SubnetIDs }, schema.OptionRow{
		Flag: "subnet-ids", FileKey: "subnetIDs", Spec: schema.Spec{Help: "IDs of the subnets in these VPCs. Needs --vpc-ids."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.Routes }, schema.OptionRow{
		Flag: "enable-route-controller", FileKey: "enableRouteController", Spec: schema.Spec{Default: "false", Help: "Route the pod ranges of nodes in the VPC. Needs a VPC."},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.LoadBalancerType }, schema.OptionRow{
		Flag: "load-balancer-type", FileKey: "loadBalancerType",
		Spec: schema.Spec{Choices: []string{"nodebalancer", "cilium-bgp"}, Default: "nodebalancer", Help: "Kind of load balancer. cilium-bgp is accepted and means nodebalancer, as since v0.9.8 of Linode's own controller."},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.DefaultType }, schema.OptionRow{
		Flag: "default-nodebalancer-type", FileKey: "defaultNodeBalancerType",
		Spec: schema.Spec{Choices: planTypes(), AnyCase: true, Default: "common", Help: "Plan of NodeBalancers whose Service names none."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.BackendSubnet }, schema.OptionRow{
		Flag: "nodebalancer-backend-ipv4-subnet", FileKey: "nodeBalancerBackendIPv4Subnet",
		Spec: schema.Spec{Check: checkCIDR, Help: "Network that holds the ranges of NodeBalancers in the VPC."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.BackendSubnetID }, schema.OptionRow{
		Flag: "nodebalancer-backend-ipv4-subnet-id", FileKey: "nodeBalancerBackendIPv4SubnetID",
		Spec: schema.Spec{Default: "0", Min: new(0.0), Help: "ID of the subnet for backends of NodeBalancers. Excludes the name."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.BackendSubnetName }, schema.OptionRow{
		Flag: "nodebalancer-backend-ipv4-subnet-name", FileKey: "nodeBalancerBackendIPv4SubnetName",
		Spec: schema.Spec{Help: "Label of that subnet, in the first VPC. Excludes the ID."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.NoVPCBackends }, schema.OptionRow{
		Flag: "disable-nodebalancer-vpc-backends", FileKey: "disableNodeBalancerVPCBackends",
		Spec: schema.Spec{Default: "false", Help: "Let NodeBalancers reach nodes by their private addresses outside the VPC."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.Tags }, schema.OptionRow{
		Flag: "nodebalancer-tags", FileKey: "nodeBalancerTags", Spec: schema.Spec{Help: "Tags of every NodeBalancer, and of the firewalls made for them."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Prefix }, schema.OptionRow{
		Flag: "nodebalancer-prefix", FileKey: "nodeBalancerPrefix", Spec: schema.Spec{Default: "ccm", Check: checkPrefix, Help: "Beginning of NodeBalancer labels."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.IPv6Ingress }, schema.OptionRow{
		Flag: "enable-ipv6-for-loadbalancers", FileKey: "enableIPv6ForLoadBalancers", Spec: schema.Spec{Default: "false", Help: "Also show the IPv6 address of NodeBalancers."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.IPv6Backends }, schema.OptionRow{
		Flag: "enable-ipv6-for-nodebalancer-backends", FileKey: "enableIPv6ForNodeBalancerBackends",
		Spec: schema.Spec{Default: "false", Help: "Let NodeBalancers reach nodes by their public IPv6 address."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.HostnameOnly }, schema.OptionRow{
		Env: "LINODE_HOSTNAME_ONLY_INGRESS", FileKey: "hostnameOnlyIngress", Spec: schema.Spec{Default: "false", Help: "Show only the hostname of NodeBalancers."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.MaskIPv4 }, schema.OptionRow{
		Flag: "node-cidr-mask-size-ipv4", FileKey: "nodeCIDRMaskSizeIPv4",
		Spec: schema.Spec{Default: "0", Min: new(0.0), Max: new(32.0), Help: "Size of the IPv4 pod range of a node; 0 means 24."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.MaskIPv6 }, schema.OptionRow{
		Flag: "node-cidr-mask-size-ipv6", FileKey: "nodeCIDRMaskSizeIPv6",
		Spec: schema.Spec{Default: "0", Min: new(0.0), Max: new(128.0), Help: "Size of the IPv6 pod range of a node; 0 means 112."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.ServiceCIDR }, schema.OptionRow{
		Flag: "service-cluster-ip-range", FileKey: "serviceClusterIPRange", Spec: schema.Spec{Check: checkCIDR, Help: "Network of the cluster's Service addresses, which nodes get no pod range of. Ours."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.NoIPv6NodeCIDR }, schema.OptionRow{
		Flag: "disable-ipv6-node-cidr-allocation", FileKey: "disableIPv6NodeCIDRAllocation", Spec: schema.Spec{Default: "false", Help: "Give nodes only IPv4 pod ranges."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.OwnershipTag }, schema.OptionRow{
		Flag: "linode-ownership-tag", FileKey: "ownershipTag",
		Spec: schema.Spec{Default: "true", Help: "Tag new NodeBalancers and firewalls with the identity of the cluster, so that no other cluster takes them over. Ours."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.MetadataTTL }, schema.OptionRow{
		Env: "LINODE_METADATA_TTL", FileKey: "metadataTTL", Spec: schema.Spec{Default: "300", Min: new(1.0), Help: "Seconds between two reads of the host and the addresses of a node."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.TokenHealth }, schema.OptionRow{
		Flag: "enable-token-health-checker", FileKey: "enableTokenHealthChecker",
		Spec: schema.Spec{Default: "false", Help: "Refuse to start with a token that the API refuses, and try the token every 5 minutes even if nothing else calls the API."},
	}),
	schema.BoolOption[Config](nil, schema.OptionRow{
		Flag: "linodego-debug", FileKey: "debug", Spec: schema.Spec{Default: "false", Help: noEffect + "-v=6 logs every call, without bodies and secrets."},
	}),
	schema.StringOption[Config](nil, schema.OptionRow{
		Flag: "bgp-node-selector", FileKey: "bgpNodeSelector", Spec: schema.Spec{Help: noEffect + "load balancing by BGP was removed in v0.9.8 of Linode's own controller."},
	}),
	schema.StringOption[Config](nil, schema.OptionRow{
		Flag: "ip-holder-suffix", FileKey: "ipHolderSuffix", Spec: schema.Spec{Help: noEffect + "as --bgp-node-selector."},
	}),
	cacheOption("LINODE_INSTANCE_CACHE_TTL"),
	cacheOption("LINODE_ROUTES_CACHE_TTL_SECONDS"),
	cacheOption("K8S_NODECACHE_TTL"),
	cacheOption("LINODE_API_TOKEN_CACHE_TTL_SECONDS"),
}

func cacheOption(env string) schema.Option[Config] {
	return schema.StringOption[Config](nil, schema.OptionRow{Env: env, Spec: schema.Spec{Help: noEffect + "how fresh an answer must be follows from the question."}})
}

// parseConfig reads all sources. All problems are reported together.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	c, err = Options.Parse(in.Sources)
	c.ClusterCIDR, c.AllocateNodeCIDRs = in.ClusterCIDR, in.AllocateNodeCIDRs
	c.Shared = in.Guard != nil && in.Guard.NodeSelector != ""
	optional := slices.Clone(Options)
	for i := range optional {
		optional[i].Required = false
	}
	if _, refused := optional.Parse(in.Sources); refused == nil { // a missing option hides nothing; of a refused one nothing is known
		err = errors.Join(err, c.contradictions(in.Sources))
	}
	if len(c.SubnetIDs) > 0 {
		c.SubnetNames = nil
	}
	if c.NoVPCBackends {
		c.BackendSubnet, c.BackendSubnetID, c.BackendSubnetName = "", 0, ""
	}
	return c, nil, err
}

// contradictions are faults of two or more options together.
func (c Config) contradictions(src schema.Sources) error {
	var problems []error
	report := func(broken bool, place, reason string) {
		if broken {
			problems = append(problems, &schema.Problem{Place: place, Reason: reason})
		}
	}
	exclude := func(broken bool, a, b string) {
		if broken {
			inFile := Options.IsInFile(src, a) && Options.IsInFile(src, b)
			problems = append(problems, &schema.Problem{Place: "flags --" + a + " and --" + b, Reason: "exclude each other; keep one", InFile: inFile})
		}
	}
	exclude(len(c.VPCIDs) > 0 && len(c.VPCNames) > 0, "vpc-ids", "vpc-names")
	report(len(c.VPCIDs) > 0 && len(c.SubnetIDs) == 0, "flag --vpc-ids", "needs --subnet-ids")
	report(len(c.SubnetIDs) > 0 && len(c.VPCIDs) == 0, "flag --subnet-ids", "needs --vpc-ids")
	report(c.Routes && !c.inVPC(), "flag --enable-route-controller", "needs a VPC; set --vpc-names or --vpc-ids")
	report(len(c.VPCNames) > 0 && len(c.SubnetNames) == 0, "flag --subnet-names", "must not be empty with --vpc-names")
	exclude(c.BackendSubnetID != 0 && c.BackendSubnetName != "" && !c.NoVPCBackends,
		"nodebalancer-backend-ipv4-subnet-id", "nodebalancer-backend-ipv4-subnet-name")
	report(c.BackendSubnetName != "" && !c.inVPC() && !c.NoVPCBackends, "flag --nodebalancer-backend-ipv4-subnet-name", "needs a VPC; set --vpc-names or --vpc-ids")
	if c.AllocateNodeCIDRs {
		cluster, err := netip.ParsePrefix(c.ClusterCIDR)
		report(err != nil || !cluster.Addr().Is4(), "flag --cluster-cidr", "must be one IPv4 network with --allocate-node-cidrs, such as 10.192.0.0/10")
		report(err == nil && cluster.Bits() > cmp.Or(c.MaskIPv4, defaultMaskIPv4), "flag --node-cidr-mask-size-ipv4", "is larger than the whole of --cluster-cidr; use a longer mask")
	}
	return errors.Join(problems...)
}
