package aws

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config is the validated configuration of the provider.
type Config struct {
	Zone, Region  string
	VPC, SubnetID string
	RouteTableID  string
	RoleARN       string
	SourceARN     string
	// LegacyClusterID is the value of the tag KubernetesCluster; with it every set of tags also carries that tag.
	LegacyClusterID, ClusterID string
	// NoNodeGroupRules leaves the security groups of nodes alone.
	NoNodeGroupRules bool
	// ClassicGroup is the security group that all classic load balancers share.
	ClassicGroup    string
	NodeIPFamilies  []string
	HealthProbeMode string
	SharedProbePort int
	SharedProbePath string
	TopologyTypes   string
	NLBGroupMode    string
	Overrides       []override

	AccessKeyID, SecretAccessKey, SessionToken  schema.Secret
	RegionEnv                                   string
	Endpoint, EndpointEC2                       string
	EndpointELB, EndpointELBv2, EndpointSTS     string
	MetadataEndpoint                            string
	MetadataDisabled                            bool
	CABundle                                    string
	Profile, ConfigFile, CredentialsFile        string
	WebIdentityTokenFile, WebIdentityRoleARN    string
	ContainerCredentialsURI, ContainerTokenFile string

	Tagging taggingConfig
}

// taggingConfig are the flags of the tagging controller.
type taggingConfig struct {
	Tags, Resources []string
	// RateLimit is in items a second.
	RateLimit float64
	Burst     int
	Workers   int
	Batching  bool
}

// override is a section [ServiceOverride "label"].
type override struct {
	Service, Region, URL, SigningRegion, SigningName string
}

// Services by the identifiers of the SDK.
const (
	serviceEC2      = "EC2"
	serviceELB      = "Elastic Load Balancing"
	serviceELBv2    = "Elastic Load Balancing v2"
	serviceKMS      = "KMS"
	serviceMetadata = "ec2imds"
	serviceSTS      = "STS"
)

// serviceNames leads from every spelling of a service in lower case to the SDK's; the older SDK's identifiers are in many
// files.
func serviceNames() map[string]string {
	return map[string]string{
		"ec2": serviceEC2, "elastic load balancing": serviceELB, "elastic load balancing v2": serviceELBv2, "elasticloadbalancingv2": serviceELBv2,
		"elasticloadbalancing": serviceELB, "elbv2": serviceELBv2, "elb": serviceELB, "kms": serviceKMS, "ec2imds": serviceMetadata, "ec2metadata": serviceMetadata,
		"sts": serviceSTS,
	}
}

const (
	probeServiceNodePort = "ServiceNodePort"
	probeShared          = "Shared"
	groupModeManaged     = "Managed"
	familyIPv4           = "ipv4"
	familyIPv6           = "ipv6"

	// usualTopologyTypes are the instance types whose nodes wait for their place in the network.
	usualTopologyTypes = `^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$`
)

func keyRow(key, standard, help string, at func(*Config) *string, check func(string) error) schema.Option[Config] {
	return schema.StringOption(at, schema.OptionRow{FileKey: "[Global] " + key, Spec: schema.Spec{Default: standard, Help: help, Check: check}})
}

func variableRow(name, help string, at func(*Config) *string) schema.Option[Config] {
	return schema.StringOption(at, schema.OptionRow{Env: name, Spec: schema.Spec{Help: help}})
}

func endpointRow(name, of string, at func(*Config) *string) schema.Option[Config] {
	return schema.URLOption(at, schema.OptionRow{Env: name, Spec: schema.Spec{Help: "Endpoint of " + of + " instead of the region's."}})
}

// Options is the table of the provider's options: the keys of the cloud config and the flags as AWS's own controller has
// them, and the environment variables of the SDK.
var Options = schema.Options[Config]{
	keyRow("Zone", "", "Availability zone that the region is taken from; it takes precedence over Region.", func(c *Config) *string { return &c.Zone }, checkZone),
	keyRow("Region", "", "Region of every call. Without it, AWS_REGION, then the region of the instance that runs the controller.", func(c *Config) *string { return &c.Region }, checkRegion),
	keyRow("VPC", "", "VPC of the cluster. With a cluster ID and SubnetID or RoleARN, the controller need not run on an instance.", func(c *Config) *string { return &c.VPC }, checkPrefix("vpc-")),
	keyRow("SubnetID", "", "Subnet of load balancers where no other is found, for a controller that does not run on an instance.", func(c *Config) *string { return &c.SubnetID }, checkPrefix("subnet-")),
	keyRow("RouteTableID", "", "Route table that is managed. Without it, the one with the tag of the cluster.", func(c *Config) *string { return &c.RouteTableID }, checkPrefix("rtb-")),
	keyRow("RoleARN", "", "Role that is assumed for every call.", func(c *Config) *string { return &c.RoleARN }, checkARN),
	keyRow("SourceARN", "", "ARN that the role is assumed on behalf of; needs RoleARN.", func(c *Config) *string { return &c.SourceARN }, nil),
	keyRow("KubernetesClusterTag", "", "ID of a cluster whose resources have the older tag KubernetesCluster; new ones get it as well.", func(c *Config) *string { return &c.LegacyClusterID }, nil),
	keyRow("KubernetesClusterID", "", "ID of the cluster, as in the tag kubernetes.io/cluster/<ID>. Without it, it is taken from the tags of the instance that runs the controller.", func(c *Config) *string { return &c.ClusterID }, nil),
	schema.BoolOption(func(c *Config) *bool { return &c.NoNodeGroupRules }, schema.OptionRow{
		FileKey: "[Global] DisableSecurityGroupIngress", Spec: schema.Spec{Default: "false", Help: "Leave the security groups of nodes alone. Allow what load balancers need yourself."},
	}),
	keyRow("ElbSecurityGroup", "", "Security group that all classic load balancers share, instead of one each.", func(c *Config) *string { return &c.ClassicGroup }, checkPrefix("sg-")),
	schema.ListOption(func(c *Config) *[]string { return &c.NodeIPFamilies }, schema.OptionRow{
		FileKey: "[Global] NodeIPFamilies", Spec: schema.Spec{Default: familyIPv4, Help: "Families of node addresses in their order: ipv4, ipv6. Repeat the key for more than one.", Check: checkFamilies},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.HealthProbeMode }, schema.OptionRow{
		FileKey: "[Global] ClusterServiceLoadBalancerHealthProbeMode",
		Spec:    schema.Spec{Default: probeServiceNodePort, Choices: []string{probeServiceNodePort, probeShared}, Help: "Health check of Services with externalTrafficPolicy Cluster: their node port, or kube-proxy's own check that they share."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.SharedProbePort }, schema.OptionRow{
		FileKey: "[Global] ClusterServiceSharedLoadBalancerHealthProbePort", Spec: schema.Spec{Default: "10256", Min: new(1.0), Max: new(65535.0), Help: "Port of the shared health check."},
	}),
	keyRow("ClusterServiceSharedLoadBalancerHealthProbePath", "/healthz", "Path of the shared health check.", func(c *Config) *string { return &c.SharedProbePath }, checkPath),
	keyRow("SupportedTopologyInstanceTypePattern", usualTopologyTypes, "Instance types, as a regular expression, whose nodes are initialised only with their place in the network.", func(c *Config) *string { return &c.TopologyTypes }, checkPattern),
	schema.EnumOption(func(c *Config) *string { return &c.NLBGroupMode }, schema.OptionRow{
		FileKey: "[Global] NLBSecurityGroupMode", Spec: schema.Spec{Choices: []string{groupModeManaged}, DefaultHelp: "none", Help: "Managed gives new network load balancers a security group. Without it they have none."},
	}),

	schema.SecretOption(func(c *Config) *schema.Secret { return &c.AccessKeyID }, schema.OptionRow{
		Env: "AWS_ACCESS_KEY_ID", Spec: schema.Spec{Help: "Access key. Prefer the role of the instance, or of the ServiceAccount."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.SecretAccessKey }, schema.OptionRow{
		Env: "AWS_SECRET_ACCESS_KEY", Spec: schema.Spec{Help: "Its secret."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.SessionToken }, schema.OptionRow{
		Env: "AWS_SESSION_TOKEN", Spec: schema.Spec{Help: "Session token of a temporary access key."},
	}),
	variableRow("AWS_REGION", "Region where the cloud config has none.", func(c *Config) *string { return &c.RegionEnv }),
	endpointRow("AWS_ENDPOINT_URL", "all services", func(c *Config) *string { return &c.Endpoint }),
	endpointRow("AWS_ENDPOINT_URL_EC2", "EC2", func(c *Config) *string { return &c.EndpointEC2 }),
	endpointRow("AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING", "Elastic Load Balancing for classic load balancers", func(c *Config) *string { return &c.EndpointELB }),
	endpointRow("AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2", "Elastic Load Balancing for network load balancers", func(c *Config) *string { return &c.EndpointELBv2 }),
	endpointRow("AWS_ENDPOINT_URL_STS", "STS", func(c *Config) *string { return &c.EndpointSTS }),
	schema.URLOption(func(c *Config) *string { return &c.MetadataEndpoint }, schema.OptionRow{
		Env: "AWS_EC2_METADATA_SERVICE_ENDPOINT", Spec: schema.Spec{Help: "Endpoint of the instance metadata service."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.MetadataDisabled }, schema.OptionRow{
		Env: "AWS_EC2_METADATA_DISABLED", Spec: schema.Spec{Default: "false", Help: "Never ask the instance metadata service."},
	}),
	variableRow("AWS_CA_BUNDLE", "File with the certificates that the endpoints' must be signed by, instead of the system's.", func(c *Config) *string { return &c.CABundle }),
	variableRow("AWS_PROFILE", "Profile of the shared files.", func(c *Config) *string { return &c.Profile }),
	variableRow("AWS_CONFIG_FILE", "Path of the shared config file.", func(c *Config) *string { return &c.ConfigFile }),
	variableRow("AWS_SHARED_CREDENTIALS_FILE", "Path of the shared credentials file.", func(c *Config) *string { return &c.CredentialsFile }),
	variableRow("AWS_WEB_IDENTITY_TOKEN_FILE", "Token of a ServiceAccount that a role is assumed with; Amazon EKS sets it. Read by the SDK from the process's environment.", func(c *Config) *string { return &c.WebIdentityTokenFile }),
	variableRow("AWS_ROLE_ARN", "Role that is assumed with that token. Read by the SDK from the process's environment.", func(c *Config) *string { return &c.WebIdentityRoleARN }),
	variableRow("AWS_CONTAINER_CREDENTIALS_FULL_URI", "Endpoint that gives out credentials; EKS Pod Identity sets it. Read by the SDK from the process's environment.", func(c *Config) *string { return &c.ContainerCredentialsURI }),
	variableRow("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "Token for that endpoint. Read by the SDK from the process's environment.", func(c *Config) *string { return &c.ContainerTokenFile }),

	schema.ListOption(func(c *Config) *[]string { return &c.Tagging.Tags }, schema.OptionRow{
		Flag: "tags", Repeatable: true, Spec: schema.Spec{Help: "Tags, as key=value, that the tagging controller puts on the instances of nodes. The controller is off unless --controllers names tagging.", Check: checkTags},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.Tagging.Resources }, schema.OptionRow{
		Flag: "resources", Repeatable: true, Spec: schema.Spec{Help: "Kinds of resources that the tagging controller tags: instance.", Check: checkResources},
	}),
	schema.FloatOption(func(c *Config) *float64 { return &c.Tagging.RateLimit }, schema.OptionRow{
		Flag: "tagging-controller-rate-limit", Spec: schema.Spec{Default: "0", Min: new(0.0), Help: "Nodes a second that the tagging controller tags at most; 0 means no limit. It only has an effect together with the burst limit."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.Tagging.Burst }, schema.OptionRow{
		Flag: "tagging-controller-burst-limit", Spec: schema.Spec{Default: "0", Min: new(0.0), Help: "Nodes that the tagging controller tags at once beyond the rate limit."},
	}),
	schema.IntOption(func(c *Config) *int { return &c.Tagging.Workers }, schema.OptionRow{
		Flag: "tagging-controller-concurrent-node-syncs", Spec: schema.Spec{Default: "1", Min: new(1.0), Help: "Calls of the tagging controller that may be under way at once."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.Tagging.Batching }, schema.OptionRow{
		Flag: "tagging-controller-enable-batching", Spec: schema.Spec{Default: "false", Help: "Tag up to 50 instances by one call."},
	}),
}

// regionForm finds the region at the beginning of the name of a zone, also of a local one such as us-west-2-lax-1a.
var regionForm = regexp.MustCompile(`^([a-zA-Z]+-)+\d+`)

func checkZone(v string) error {
	if !regionForm.MatchString(v) {
		return errors.New(`is not an availability zone such as "us-east-1a"`)
	}
	return nil
}

func checkRegion(v string) error {
	if regionForm.FindString(v) != v {
		return errors.New(`is not a region such as "us-east-1"`)
	}
	return nil
}

func checkPrefix(prefix string) func(string) error {
	return func(v string) error {
		if !strings.HasPrefix(v, prefix) {
			return fmt.Errorf("is not an ID that begins with %s", prefix)
		}
		return nil
	}
}

func checkARN(v string) error {
	if _, err := arn.Parse(v); err != nil {
		return errors.New(`is not the ARN of a role, such as "arn:aws:iam::123456789012:role/name"`)
	}
	return nil
}

func checkPath(v string) error {
	if !strings.HasPrefix(v, "/") {
		return errors.New("does not begin with /")
	}
	return awslimits.CheckPath.CheckText(v)
}

func checkPattern(v string) error {
	if _, err := regexp.Compile(v); err != nil {
		return fmt.Errorf("is not a regular expression: %w", err)
	}
	return nil
}

func checkFamilies(v string) error {
	seen := map[string]bool{}
	for family := range strings.SplitSeq(v, ",") {
		family = strings.TrimSpace(family)
		if family != familyIPv4 && family != familyIPv6 {
			return fmt.Errorf("holds %q; use %s and %s", family, familyIPv4, familyIPv6)
		}
		if seen[family] {
			return fmt.Errorf("holds %s twice", family)
		}
		seen[family] = true
	}
	return nil
}

func checkTags(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if key, _, ok := strings.Cut(one, "="); !ok || strings.TrimSpace(key) == "" {
			return fmt.Errorf("holds %q, which does not have the form key=value", one)
		}
	}
	return nil
}

func checkResources(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(one) != "instance" {
			return fmt.Errorf("holds %q; instance is the only kind", one)
		}
	}
	return nil
}

// parseConfig reads all sources. All problems are reported together; warnings are about what has no effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	entries, err := schema.ReadINI(in.File)
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	overrides, rest, overrideErr := parseOverrides(rest, in.AllowInsecureEndpoints)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	c.Overrides = overrides
	var warned []error
	if err == nil {
		warned, err = c.contradictions()
	}
	return c, errors.Join(append(warned, Options.Unknown(rest))...), errors.Join(iniErr, overrideErr, err)
}

// parseOverrides reads the sections [ServiceOverride "label"].
func parseOverrides(entries []schema.INIEntry, allowInsecure bool) (list []override, rest []schema.INIEntry, err error) {
	sections := map[string]*override{}
	var problems []error
	for _, e := range entries {
		if !strings.EqualFold(e.Section, "ServiceOverride") || e.Subsection == "" {
			rest = append(rest, e)
			continue
		}
		o := sections[e.Subsection]
		if o == nil {
			o = &override{}
			sections[e.Subsection] = o
		}
		value := strings.TrimSpace(e.Value)
		switch strings.ToLower(e.Key) {
		case "service":
			o.Service = value
		case "region":
			o.Region = value
		case "url":
			o.URL = value
		case "signingregion":
			o.SigningRegion = value
		case "signingname":
			o.SigningName = value
		case "signingmethod": // without effect, as in AWS's own controller
		default:
			problems = append(problems, schema.BlameKey(e.FileKey(), "", "is unknown; an override has Service, Region, URL, SigningRegion, SigningName and SigningMethod"))
		}
	}
	places := map[string]string{}
	for _, label := range slices.Sorted(maps.Keys(sections)) {
		o := sections[label]
		problems = append(problems, o.check(label, places, allowInsecure)...)
		list = append(list, *o)
	}
	return list, rest, errors.Join(problems...)
}

// check reports what a section lacks, and another one with the same service and region. It makes the name of the service
// the SDK's.
func (o *override) check(label string, places map[string]string, allowInsecure bool) []error {
	var problems []error
	report := func(key, value, reason string) {
		problems = append(problems, schema.BlameKey(fmt.Sprintf("[ServiceOverride %q] %s", label, key), value, reason))
	}
	for key, value := range map[string]string{"Service": o.Service, "Region": o.Region, "URL": o.URL, "SigningRegion": o.SigningRegion} {
		if value == "" {
			report(key, "", "is required and is not set")
		}
	}
	if u, err := url.Parse(o.URL); o.URL != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		report("URL", o.URL, `is not a URL of the form "https://host[:port]/"`)
	}
	if reason := schema.InsecureURL(o.URL, allowInsecure); reason != nil {
		report("URL", o.URL, reason.Error())
	}
	if o.Service != "" {
		known, ok := serviceNames()[strings.ToLower(o.Service)]
		if !ok {
			report("Service", o.Service, "is not a service that this program calls; use EC2, Elastic Load Balancing, Elastic Load Balancing v2, STS or ec2imds")
		} else {
			o.Service = known
		}
	}
	place := o.Service + " in " + o.Region
	if other, taken := places[place]; taken && o.Service != "" {
		report("Service", o.Service, fmt.Sprintf("has an override for region %s already, in [ServiceOverride %q]; keep one", o.Region, other))
	}
	places[place] = label
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// contradictions are faults of two or more options together, and options that have no effect without others.
func (c *Config) contradictions() (warnings []error, err error) {
	var problems []error
	if c.ClusterID != "" && c.LegacyClusterID != "" && c.ClusterID != c.LegacyClusterID {
		problems = append(problems, schema.BlameKey("[Global] KubernetesClusterTag", c.LegacyClusterID,
			fmt.Sprintf("and KubernetesClusterID %q name two clusters; make them equal or keep one", c.ClusterID)))
	}
	if c.AccessKeyID.IsZero() != c.SecretAccessKey.IsZero() {
		problems = append(problems, &schema.Problem{Place: "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", Reason: "belong together; set both"})
	}
	if c.SourceARN != "" && c.RoleARN == "" {
		warnings = append(warnings, schema.WarnOfKey("[Global] SourceARN", "has no effect without RoleARN"))
	}
	if c.VPC != "" && !c.offInstance() {
		warnings = append(warnings, schema.WarnOfKey("[Global] VPC", "has no effect without a cluster ID and SubnetID or RoleARN"))
	}
	return warnings, errors.Join(problems...)
}

// offInstance reports whether the cloud config has what the instance that runs the controller would show.
func (c *Config) offInstance() bool {
	return c.VPC != "" && (c.SubnetID != "" || c.RoleARN != "") && (c.ClusterID != "" || c.LegacyClusterID != "")
}

// endpointOf returns the override of a service in a region, else one for the endpoint that an environment variable has.
func (c *Config) endpointOf(service, region, variable string) override {
	for _, o := range c.Overrides {
		if o.Service == service && (o.Region == region || service == serviceMetadata) {
			return o
		}
	}
	return override{URL: variable}
}
