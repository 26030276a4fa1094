package gce

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	TokenURL       string
	TokenBody      schema.Secret
	Project        string
	NetworkProject string
	Network        string
	Subnet         string
	StackType      string
	NodeTags       []string
	InstancePrefix string
	Regional       bool
	Multizone      bool
	Endpoint       string
	LocalZone      string
	AlphaFeatures  []string

	MetadataHost    string
	CredentialsFile string

	// RBSDefault leaves external Services without a class to ingress-gce.
	RBSDefault bool
	// Sources are the networks of the health checkers.
	Sources []string

	// PodRanges configures the pod ranges of nodes.
	PodRanges podRangeOptions
	// Shared: this release serves only some of the nodes; another one may serve the rest.
	Shared bool
}

const (
	defaultEndpoint     = "https://compute.googleapis.com/compute/v1/"
	defaultMetadataHost = "169.254.169.254"
	// tokenURLDefault in the cloud config means application default credentials.
	tokenURLDefault = "nil"
	stackIPv6       = "IPV6"
)

func global(key, help string, at func(*Config) *string, check func(string) error) schema.Option[Config] {
	return schema.StringOption(at, schema.OptionRow{FileKey: "[global] " + key, Spec: schema.Spec{Help: help, Check: check}})
}

func ineffective(why string) schema.Spec { return schema.Spec{Help: compatible + why} }

const compatible = "Accepted for compatibility, without effect: "

func ineffectiveSwitch(flag, why string) schema.Option[Config] {
	spec := ineffective(why)
	spec.Default = "false"
	return schema.BoolOption[Config](nil, schema.OptionRow{Flag: flag, Spec: spec})
}

func maskOption(flag, of string, most float64, at func(*Config) *int) schema.Option[Config] {
	return schema.IntOption(at, schema.OptionRow{Flag: flag, Spec: schema.Spec{
		Default: "0", Min: new(0.0), Max: &most, Help: "Length of the prefix of a node's pod range" + of + ", for RangeAllocator. 0 means 24 for IPv4 and 64 for IPv6.",
	}})
}

// Options has the option names of Google's own controller.
var Options = schema.Options[Config]{
	global("project-id", "Project of the instances, by name or number. Without it, that of the instance which runs the controller.", func(c *Config) *string { return &c.Project }, checkProject),
	global("network-project-id", "Project of the network, subnets, firewall rules and routes, for a shared network.", func(c *Config) *string { return &c.NetworkProject }, checkProject),
	global("network-name", "Network of the cluster, by name or URL. Without it, that of the instance which runs the controller.", func(c *Config) *string { return &c.Network }, nil),
	global("subnetwork-name", "Subnet of the cluster, by name or URL.", func(c *Config) *string { return &c.Subnet }, nil),
	global("local-zone", "Zone by which the region is known. Without it, that of the instance which runs the controller.", func(c *Config) *string { return &c.LocalZone },
		matches(zoneForm, `is not a zone such as "us-central1-a"`)),
	schema.BoolOption(func(c *Config) *bool { return &c.Regional }, schema.OptionRow{
		FileKey: "[global] regional", Spec: schema.Spec{Default: "false", Help: "The cluster is in all zones of the region. Nodes are found in all of them in any case."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.Multizone }, schema.OptionRow{
		FileKey: "[global] multizone", Spec: schema.Spec{Default: "false", Help: "As regional."},
	}),
	global("stack-type", "IPV6 puts the IPv6 addresses of nodes first; other values do nothing.", func(c *Config) *string { return &c.StackType }, nil),
	schema.ListOption(func(c *Config) *[]string { return &c.NodeTags }, schema.OptionRow{
		FileKey: "[global] node-tags", Spec: schema.Spec{Help: "Network tags of all nodes, for firewall rules. Repeat the key for more than one. Without it, the tags that are the beginning of an instance's name."},
	}),
	global("node-instance-prefix", "Beginning of the names of the nodes' instances. The listing holds all instances of the project whatever it says.", func(c *Config) *string { return &c.InstancePrefix }, nil),
	schema.URLOption(func(c *Config) *string { return &c.Endpoint }, schema.OptionRow{
		FileKey: "[global] api-endpoint", Spec: schema.Spec{Default: defaultEndpoint, Help: "Base URL of the Compute API, with its version."},
	}),
	global("token-url", `Where tokens are asked for. Without it, the metadata server; "nil" means the file that GOOGLE_APPLICATION_CREDENTIALS names.`, func(c *Config) *string { return &c.TokenURL }, nil),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.TokenBody }, schema.OptionRow{
		FileKey: "[global] token-body", Spec: schema.Spec{Help: "Body of the request to token-url."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.AlphaFeatures }, schema.OptionRow{
		FileKey: "[global] alpha-features", Spec: schema.Spec{Help: "ILBSubsets leaves new internal load balancers to ingress-gce. Repeat the key for more than one."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.MetadataHost }, schema.OptionRow{
		Env: "GCE_METADATA_HOST", Spec: schema.Spec{
			Default: defaultMetadataHost, Help: "Host and port of the metadata server.",
			Check: matches(hostForm, "is not a host with or without a port"),
		},
	}),
	schema.StringOption(func(c *Config) *string { return &c.CredentialsFile }, schema.OptionRow{
		Env: "GOOGLE_APPLICATION_CREDENTIALS", Spec: schema.Spec{Help: "File with a credential in JSON, for token-url = nil: a service account's key, or workload identity federation. It is read again for each token."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.RBSDefault }, schema.OptionRow{
		Flag: "enable-rbs-default-l4-netlb", Spec: schema.Spec{Default: "false", Help: "Leave new external Services without a class to ingress-gce."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.Sources }, schema.OptionRow{
		Flag: "cloud-provider-gce-lb-src-cidrs", Spec: schema.Spec{
			Default: "130.211.0.0/22,35.191.0.0/16,209.85.152.0/22,209.85.204.0/22", Check: checkCIDRs,
			Help: "Networks that health checks of load balancers come from.",
		},
	}),
	schema.ListOption[Config](nil, schema.OptionRow{
		Flag: "cloud-provider-gce-l7lb-src-cidrs", Spec: schema.Spec{
			Default: "130.211.0.0/22,35.191.0.0/16", Check: checkCIDRs, Help: compatible + "no load balancer of this controller is a proxy.",
		},
	}),

	schema.StringOption[Config](nil, schema.OptionRow{
		FileKey: "[global] container-api-endpoint", Spec: ineffective("no controller asks the GKE API."),
	}),
	schema.StringOption[Config](nil, schema.OptionRow{
		FileKey: "[global] secondary-range-name", Spec: ineffective("ranges of instances are never written."),
	}),
	ineffectiveSwitch("enable-multi-project", "an instance of another project is never touched."),
	ineffectiveSwitch("enable-l4-lb-annotations", "status annotations are not written yet."),
	ineffectiveSwitch("enable-l4-deny-firewall", "deny rules are not made yet."),
	ineffectiveSwitch("enable-l4-deny-firewall-rollback-cleanup", "deny rules are not made yet."),
	ineffectiveSwitch("enable-gke-tenant-controller", "it is for GKE's own control plane."),
	ineffectiveSwitch("enable-l4-ilb-fine-grained-lock", "load balancers never wait for each other."),
	ineffectiveSwitch("enable-multi-subnet-cluster", "the NodeTopology object is not written yet."),
	ineffectiveSwitch("enable-multi-networking", "multiple networks are not served yet."),
	schema.ListOption(func(c *Config) *[]string { return &c.PodRanges.Services }, schema.OptionRow{
		Flag: "service-cluster-ip-range", Spec: schema.Spec{Check: checkCIDRs, Help: "Networks of Services, at most one of each family: RangeAllocator leaves them out, and their families are those that CloudAllocator gives nodes."},
	}),
	maskOption("node-cidr-mask-size", "", 128, func(c *Config) *int { return &c.PodRanges.Mask }),
	maskOption("node-cidr-mask-size-ipv4", " of IPv4", 32, func(c *Config) *int { return &c.PodRanges.Mask4 }),
	maskOption("node-cidr-mask-size-ipv6", " of IPv6", 128, func(c *Config) *int { return &c.PodRanges.Mask6 }),
}

var (
	projectForm = regexp.MustCompile(`^([a-z][-a-z0-9.:]{0,61}[a-z0-9]|[0-9]+)$`)
	zoneForm    = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)+-[a-z]+$`)
	hostForm    = regexp.MustCompile(`^[-a-zA-Z0-9.]+(:[0-9]+)?$|^\[[0-9a-fA-F:]+\](:[0-9]+)?$`)
)

// matches returns a check that a value has a form.
func matches(form *regexp.Regexp, fault string) func(string) error {
	return func(v string) error {
		if !form.MatchString(v) {
			return errors.New(fault)
		}
		return nil
	}
}

func checkProject(v string) error {
	return matches(projectForm, "is not the ID or the number of a project")(v)
}

func checkCIDRs(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(one)); err != nil {
			return fmt.Errorf("holds %q, which is not a network such as 10.0.0.0/8", one)
		}
	}
	return nil
}

// parseConfig reads the options, and reports all faults together. Warnings name settings without effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	entries, err := schema.ReadINI(in.File)
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	warned := []error{Options.Unknown(rest)}
	for _, o := range Options {
		if why, ok := strings.CutPrefix(o.Help, compatible); ok && isSet(o.OptionRow, in, keys) {
			warned = append(warned, &schema.Problem{
				Place: o.Name(), Reason: "has no effect: " + strings.TrimSuffix(why, "."), Warning: true, InFile: keys[o.FileKey] != "",
			})
		}
	}
	if err == nil {
		err = c.checkTokenURL(in)
	}
	c.Shared = in.Guard != nil && in.Guard.NodeSelector != ""
	podWarning, podErr := c.PodRanges.resolve(in)
	err = errors.Join(err, podErr)
	warned = append(warned, podWarning)
	if c.Endpoint != "" {
		c.Endpoint = strings.TrimSuffix(c.Endpoint, "/") + "/"
	}
	return c, errors.Join(warned...), errors.Join(iniErr, err)
}

// checkTokenURL refuses a place for tokens to which credentials would go in clear, and one without a credential.
func (c Config) checkTokenURL(in registry.Inputs) error {
	const place = "key [global] token-url of the cloud config"
	if c.TokenURL == tokenURLDefault && c.CredentialsFile == "" {
		return &schema.Problem{
			Place: place, Value: c.TokenURL,
			Reason: "needs the environment variable GOOGLE_APPLICATION_CREDENTIALS, which names the file with the credential",
		}
	}
	if reason := schema.InsecureURL(c.TokenURL, in.AllowInsecureEndpoints); reason != nil {
		return &schema.Problem{Place: place, Value: c.TokenURL, Reason: reason.Error(), InFile: true}
	}
	return nil
}

func isSet(o schema.OptionRow, in registry.Inputs, keys map[string]string) bool {
	_, flag := in.Flags[o.Flag]
	_, key := keys[o.FileKey]
	return (flag && o.Flag != "") || (key && o.FileKey != "")
}
