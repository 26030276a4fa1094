package digitalocean

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	defaultBaseURL = "https://api.digitalocean.com/"
	// defaultMetadataURL is the link-local metadata service of droplets.
	defaultMetadataURL = "http://169.254.169.254/"
)

// Config holds the provider's configuration.
type Config struct {
	Token       schema.Secret
	BaseURL     string
	MetadataURL string
	// Region is the slug for new load balancers; if empty, the metadata service is asked.
	Region string
	// ClusterID becomes the tag k8s:<cluster ID> of new load balancers; empty means no tag.
	ClusterID string
	VPCID     string
	// DefaultType is the load balancer type of Services without the annotation.
	DefaultType string
	// OwnershipTag marks new load balancers with the cluster's identity.
	OwnershipTag bool
	// RateLimitQPS replaces our own limits by a fixed rate; 0 keeps our own.
	RateLimitQPS float64
	// FirewallName and FirewallTags name the public access firewall and the tags of its droplets; both or none are set.
	FirewallName string
	FirewallTags []string
	// DebugAddress and MetricsAddress are host:port of further servers; empty disables them.
	DebugAddress, MetricsAddress string
}

// Options is the table of options. Names are those of DigitalOcean's own controller unless the help says that the option is ours.
var Options = schema.Options[Config]{
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Token }, schema.OptionRow{
		Env: "DO_ACCESS_TOKEN", Required: true,
		Spec: schema.Spec{Help: "API token. Ours: DO_ACCESS_TOKEN_FILE names a file that holds it and is read again when it changes."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.BaseURL }, schema.OptionRow{
		Env: "DO_OVERRIDE_URL", FileKey: "apiURL",
		Spec: schema.Spec{Default: defaultBaseURL, Help: "Base URL of the API."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.MetadataURL }, schema.OptionRow{
		Env: "DO_METADATA_URL", FileKey: "metadataURL",
		Spec: schema.Spec{Default: defaultMetadataURL, Help: "Base URL of the metadata service, asked for the region where REGION is not set. Ours."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Region }, schema.OptionRow{
		Env: "REGION", FileKey: "region",
		Spec: schema.Spec{DefaultHelp: "the region of the droplet that the program runs on", Help: "Region slug for new load balancers."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.ClusterID }, schema.OptionRow{
		Env: "DO_CLUSTER_ID", FileKey: "clusterID",
		Spec: schema.Spec{Help: "Cluster UUID. New load balancers get the tag k8s:<cluster UUID>."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.VPCID }, schema.OptionRow{
		Env: "DO_CLUSTER_VPC_ID", FileKey: "vpcID",
		Spec: schema.Spec{DefaultHelp: "the default VPC of the region", Help: "UUID of the VPC that holds the droplets and the load balancers."},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.DefaultType }, schema.OptionRow{
		Env: "DEFAULT_LB_TYPE", FileKey: "defaultLoadBalancerType",
		Spec: schema.Spec{
			Choices: []string{godo.LoadBalancerTypeRegional, godo.LoadBalancerTypeRegionalNetwork},
			Default: godo.LoadBalancerTypeRegionalNetwork,
			Help:    "Load balancer type of Services without the type annotation.",
		},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.OwnershipTag }, schema.OptionRow{
		Env: "DO_OWNERSHIP_TAG", FileKey: "ownershipTag",
		Spec: schema.Spec{
			Default: "true",
			Help:    "Tag new load balancers with the identity of the cluster, so that no other cluster takes them over. Needs the permission tag:create; set it to false for a token without. Ours.",
		},
	}),
	schema.FloatOption(func(c *Config) *float64 { return &c.RateLimitQPS }, schema.OptionRow{
		Env: "DO_API_RATE_LIMIT_QPS", FileKey: "apiRateLimitQPS",
		Spec: schema.Spec{
			Min: new(0.01), DefaultHelp: "DigitalOcean's published limits: 250 calls a minute, 5000 an hour",
			Help: "Fixed limit on API calls a second, with a burst of 1.",
		},
	}),
	schema.StringOption(func(c *Config) *string { return &c.FirewallName }, schema.OptionRow{
		Env: envFirewallName, FileKey: "publicAccessFirewallName",
		Spec: schema.Spec{
			DefaultHelp: "no firewall is managed", Check: checkFirewallName,
			Help: "Name of the cloud firewall that lets traffic for Services reach the nodes. It is created if there is none of that name. Needs " + envFirewallTags + ".",
		},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.FirewallTags }, schema.OptionRow{
		Env: envFirewallTags, FileKey: "publicAccessFirewallTags",
		Spec: schema.Spec{Check: checkFirewallTags, Help: "Tags of the droplets that the firewall is for, at most 5. They must exist. Needs " + envFirewallName + "."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.DebugAddress }, schema.OptionRow{
		Env: "DEBUG_ADDR", FileKey: "debugAddress",
		Spec: schema.Spec{DefaultHelp: "not served", Check: checkListenAddress, Help: "host:port for /healthz, which says whether the API can be used. The server's own /healthz?cloud-api says the same."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.MetricsAddress }, schema.OptionRow{
		Env: "METRICS_ADDR", FileKey: "metricsAddress",
		Spec: schema.Spec{DefaultHelp: "not served", Check: checkListenAddress, Help: "host:port for /metrics without authentication. The server's own /metrics has the same ones."},
	}),
}

const (
	envFirewallName = "PUBLIC_ACCESS_FIREWALL_NAME"
	envFirewallTags = "PUBLIC_ACCESS_FIREWALL_TAGS"
)

var (
	// firewallNameRule and tagRule are the API's rules.
	firewallNameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]+$`)
	tagRule          = regexp.MustCompile(`^[a-zA-Z0-9_\-:]{1,255}$`)
)

func checkFirewallName(v string) error {
	if !firewallNameRule.MatchString(v) {
		return errors.New("is not a firewall name; use letters, digits, '.' and '-', beginning with a letter or digit")
	}
	return nil
}

func checkFirewallTags(v string) error {
	tags := 0
	for tag := range strings.SplitSeq(v, ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			continue
		}
		if !tagRule.MatchString(tag) {
			return fmt.Errorf("holds %q, which is not a tag; use letters, digits, '_', '-' and ':'", tag)
		}
		tags++
	}
	if tags == 0 || tags > digitaloceanlimits.FirewallTags.Max {
		return fmt.Errorf("must hold 1 to %d tags, separated by commas", digitaloceanlimits.FirewallTags.Max)
	}
	return nil
}

func checkListenAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New(`is not host:port; use a form such as "127.0.0.1:9090" or ":9090"`)
	}
	return nil
}

// parseConfig reads all sources and reports all problems together.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	c, err = Options.Parse(in.Sources)
	if err == nil && (c.FirewallName == "") != (len(c.FirewallTags) == 0) {
		err = &schema.Problem{Place: "environment variables " + envFirewallName + " and " + envFirewallTags, Reason: "belong together; set both or none"}
	}
	return c, nil, err
}
