package keepalived

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Announcers: the programs that announce an address in the network.
const (
	announcerVIP        = "keepalived-vip"
	announcerKubeVIP    = "kube-vip"
	announcerKeepalived = "keepalived"
	announcerNone       = "none"
)

// Addresses that Services may request.
const (
	requestedAny   = "any"
	requestedPools = "pools"
)

// Names of environment variables that messages mention.
const (
	envAnnouncer     = "KEEPALIVED_ANNOUNCER"
	envConfigMap     = "KEEPALIVED_CONFIG_MAP"
	envNamespace     = "KEEPALIVED_NAMESPACE"
	envServiceCIDR   = "KEEPALIVED_SERVICE_CIDR"
	envMethod        = "KEEPALIVED_DEFAULT_FORWARD_METHOD"
	envPoolNamespace = "KUBEVIP_NAMESPACE"
	envPoolConfigMap = "KUBEVIP_CONFIG_MAP"
	envClass         = "KUBEVIP_ENABLE_LOADBALANCERCLASS"
	envClassName     = "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME"
	envInterface     = "KEEPALIVED_INTERFACE"
	envSelector      = "KEEPALIVED_NODE_SELECTOR"
	envRequested     = "KEEPALIVED_REQUESTED_ADDRESSES"
	envInitialize    = "KEEPALIVED_INITIALIZE_NODES"
)

const (
	defaultNamespace = "kube-system"
	// defaultBook is the ConfigMap of the announcers keepalived and none.
	defaultBook = "anyccm-keepalived"
	defaultPool = "kubevip"
	// vipBook is the name of the ConfigMap in the documentation of keepalived-cloud-provider.
	vipBook = "vip-configmap"
	// documentedClass is the default class of kube-vip's own controller.
	documentedClass = "kube-vip.io/kube-vip-class"
)

// Config holds the provider's configuration.
type Config struct {
	Announcer, Namespace, ConfigMap, ServiceCIDR, Method string
	PoolNamespace, PoolConfigMap, ClassName, Selector    string
	Requested                                            string
	ByClass, InitializeNodes                             bool
	Advert                                               time.Duration
	layout

	nodes labels.Selector
}

var (
	one       = 1.0
	routerIDs = 255.0
)

// methods are kube-keepalived-vip's; none means NAT there.
func methods() []string { return []string{"NAT", "DR", "PROXY"} }

// Options has the option names of keepalived-cloud-provider and kube-vip's own controller.
var Options = schema.Options[Config]{
	schema.EnumOption(func(c *Config) *string { return &c.Announcer }, schema.OptionRow{Env: envAnnouncer, Spec: schema.Spec{
		Choices:     []string{announcerVIP, announcerKubeVIP, announcerKeepalived, announcerNone},
		DefaultHelp: "keepalived-vip where KEEPALIVED_CONFIG_MAP is set, and kube-vip where a variable KUBEVIP_* is set",
		Help: "What announces the addresses: kube-keepalived-vip, kube-vip, keepalived itself by a rendered keepalived.conf, " +
			"or something else that reads the status of Services.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.Namespace }, schema.OptionRow{Env: envNamespace, Spec: schema.Spec{
		Default: defaultNamespace, Help: "Namespace of the ConfigMap that says who has which address.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.ConfigMap }, schema.OptionRow{Env: envConfigMap, Spec: schema.Spec{
		DefaultHelp: "vip-configmap for keepalived-vip, else anyccm-keepalived",
		Help:        "Name of the ConfigMap that says who has which address, and that kube-keepalived-vip or keepalived reads. kube-vip needs none.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.ServiceCIDR }, schema.OptionRow{Env: envServiceCIDR, Spec: schema.Spec{
		Help: "Addresses for Services: CIDRs, separated by commas, of which the first and the last IPv4 address are left out. " +
			"It counts where the ConfigMap of pools has no key for the namespace.",
	}}),
	schema.EnumOption(func(c *Config) *string { return &c.Method }, schema.OptionRow{Env: envMethod, Spec: schema.Spec{
		Choices: methods(), DefaultHelp: "none, which is NAT", Lenient: true,
		Help: "How kube-keepalived-vip forwards, for Services without the annotation.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.PoolNamespace }, schema.OptionRow{Env: envPoolNamespace, Spec: schema.Spec{
		Default: defaultNamespace, Help: "Namespace of the ConfigMap of pools.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.PoolConfigMap }, schema.OptionRow{Env: envPoolConfigMap, Spec: schema.Spec{
		Default: defaultPool, Help: "Name of the ConfigMap of pools. Its keys are those of kube-vip-cloud-provider.",
	}}),
	schema.BoolOption(func(c *Config) *bool { return &c.ByClass }, schema.OptionRow{Env: envClass, Spec: schema.Spec{
		Default: "false", Help: "Whether Services of another load balancer class, or of none, are left alone. Those of the class are served with --load-balancer-class alone.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.ClassName }, schema.OptionRow{Env: envClassName, Spec: schema.Spec{
		Default: documentedClass, Help: "The class that KUBEVIP_ENABLE_LOADBALANCERCLASS means.",
	}}),
	schema.EnumOption(func(c *Config) *string { return &c.Requested }, schema.OptionRow{Env: envRequested, Spec: schema.Spec{
		Choices: []string{requestedAny, requestedPools}, Default: requestedAny,
		Help: "Which addresses Services may ask for: any that nobody has, or those alone that the pool of their namespace has. " +
			"Whoever may ask for any can take that of a machine which the cluster does not know.",
	}}),
	schema.BoolOption(func(c *Config) *bool { return &c.InitializeNodes }, schema.OptionRow{Env: envInitialize, Spec: schema.Spec{
		Default: "false",
		Help: "Whether Nodes without a provider ID are initialised by what their kubelets report: for clusters whose kubelets have " +
			"--cloud-provider=external and that no other cloud controller manager initialises.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.Interface }, schema.OptionRow{Env: envInterface, Spec: schema.Spec{
		Default: "eth0", Help: "Interface of the nodes that keepalived puts the addresses on.",
		Rules: []schema.Rule{schema.Must(interfaceName.String(), "is no name of a network interface")},
	}}),
	schema.IntOption(func(c *Config) *int { return &c.RouterID }, schema.OptionRow{Env: "KEEPALIVED_VIRTUAL_ROUTER_ID", Spec: schema.Spec{
		Default: "50", Min: &one, Max: &routerIDs, Help: "Virtual router ID of keepalived. No other VRRP router of the same network segment may have it.",
	}}),
	schema.DurationOption(func(c *Config) *time.Duration { return &c.Advert }, schema.OptionRow{Env: "KEEPALIVED_ADVERT_INTERVAL", Spec: schema.Spec{
		Default: "1s", Help: "Time between two advertisements of keepalived, in whole seconds. A node that falls silent is replaced after about four times as long.",
	}}),
	schema.BoolOption(func(c *Config) *bool { return &c.Unicast }, schema.OptionRow{Env: "KEEPALIVED_UNICAST", Spec: schema.Spec{
		Default: "true", Help: "Whether the nodes' keepalived talk to each other by unicast instead of multicast.",
	}}),
	schema.StringOption(func(c *Config) *string { return &c.Selector }, schema.OptionRow{Env: envSelector, Spec: schema.Spec{
		Help: "Label selector of the nodes on which keepalived runs.", DefaultHelp: "all nodes",
	}}),
}

// parseConfig parses the options and reports all faults at once.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	c, err = Options.Parse(in.Sources)
	problems := []error{err}
	bad := func(env, value, reason string) {
		problems = append(problems, &schema.Problem{Place: "environment variable " + env, Value: value, Reason: reason})
	}
	env := func(name string) string {
		if in.LookupEnv == nil {
			return ""
		}
		text, _ := in.LookupEnv(name)
		return text
	}
	if c.Announcer == "" && env(envAnnouncer) == "" {
		c.Announcer = announcerOf(env)
		if c.Announcer == "" {
			bad(envAnnouncer, "", "choose what announces the addresses: "+strings.Join([]string{
				announcerVIP + " (kube-keepalived-vip)", announcerKubeVIP, announcerKeepalived + " (a rendered keepalived.conf)",
				announcerNone + " (something else reads the status of Services)",
			}, ", "))
		}
	}
	if c.ConfigMap == "" {
		c.ConfigMap = map[bool]string{true: vipBook, false: defaultBook}[c.Announcer == announcerVIP]
	}
	c.checkCIDR(bad)
	warnings = c.warnings()
	if c.Announcer == announcerKeepalived && err == nil {
		c.layout.Advert = int(c.Advert / time.Second)
		if c.Advert != time.Duration(c.layout.Advert)*time.Second || c.layout.Advert < 1 || c.layout.Advert > 255 {
			bad("KEEPALIVED_ADVERT_INTERVAL", c.Advert.String(), "is not a whole number of seconds from 1s to 255s")
		}
	}
	if c.nodes, err = labels.Parse(c.Selector); err != nil {
		bad(envSelector, c.Selector, "is no label selector: "+err.Error())
	}
	return c, warnings, errors.Join(problems...)
}

// announcerOf derives the announcer from settings of the two other controllers.
func announcerOf(env func(string) string) string {
	if env(envConfigMap) != "" {
		return announcerVIP
	}
	for _, name := range []string{envPoolNamespace, envPoolConfigMap, envClass, envClassName} {
		if env(name) != "" {
			return announcerKubeVIP
		}
	}
	return ""
}

// warnings report settings that need another one.
func (c Config) warnings() error {
	if !c.ByClass {
		return nil
	}
	return &schema.Problem{Place: "environment variable " + envClass, Warning: true, Reason: fmt.Sprintf(
		"leaves Services without the class alone; set --load-balancer-class=%s --load-balancer-class-mode=named, without which those of the class are not served either",
		c.ClassName)}
}

// leavesAlone implements registry.Provider.LeavesAlone. In class mode kube-vip's own controller serves a single class.
func leavesAlone(in registry.Inputs) func(*v1.Service) bool {
	c, _, _ := parseConfig(in) // its faults are reported elsewhere
	return func(s *v1.Service) bool { return c.ByClass && defaults.ClassOf(s) != c.ClassName }
}

// checkCIDR checks the pool of all namespaces.
func (c Config) checkCIDR(bad func(env, value, reason string)) {
	if c.ServiceCIDR == "" {
		return
	}
	spans, err := parseSpans(c.ServiceCIDR, true)
	switch {
	case err != nil || strings.Contains(c.ServiceCIDR, "-"):
		bad(envServiceCIDR, c.ServiceCIDR, "is not a list of CIDRs, separated by commas, such as 10.0.0.0/24")
	case c.Announcer == announcerVIP && slices.ContainsFunc(spans, func(s span) bool { return s.from.Is6() }):
		bad(envServiceCIDR, c.ServiceCIDR, "holds IPv6, which kube-keepalived-vip cannot announce")
	}
}
