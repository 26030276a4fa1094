package openstack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	Global       global
	Networking   networking
	LoadBalancer loadBalancerConfig
	// Classes holds the sections [LoadBalancerClass "name"].
	Classes        map[string]class
	RouterID       string
	RequestTimeout time.Duration
	// Regional puts the region into provider IDs.
	Regional   bool
	UserAgents []string
	// OwnershipTag marks new load balancers with the cluster's identity.
	OwnershipTag bool
}

// global holds the cloud's endpoints and the credentials.
type global struct {
	AuthURL                                                string
	UserID, Username                                       string
	Password                                               schema.Secret
	TenantID, TenantName                                   string
	DomainID, DomainName                                   string
	UserDomainID, UserDomainName                           string
	TenantDomainID, TenantDomainName                       string
	TrustID, TrusteeID                                     string
	TrusteePassword                                        schema.Secret
	ApplicationCredentialID, ApplicationCredentialName     string
	ApplicationCredentialSecret                            schema.Secret
	Token                                                  schema.Secret
	Region, EndpointType                                   string
	CAFile, CAFileContents, CertFile, KeyFile, TLSInsecure string
	UseClouds                                              bool
	CloudsFile, Cloud                                      string
	// CloudsFileEnv and CloudEnv are the environment's values, used if the file has none.
	CloudsFileEnv, CloudEnv string
}

type networking struct {
	IPv6Disabled     bool
	PublicNetworks   []string
	InternalNetworks []string
	SortOrder        string
}

type class struct {
	FloatingNetworkID, FloatingSubnetID, FloatingSubnet, FloatingSubnetTags string
	NetworkID, SubnetID, MemberSubnetID                                     string
}

type loadBalancerConfig struct {
	class

	Enabled              bool
	Provider             string
	Method               string
	ManageSecurityGroups bool
	CreateMonitor        bool
	MonitorDelay         time.Duration
	MonitorTimeout       time.Duration
	MonitorRetries       int
	MonitorRetriesDown   int
	Internal             bool
	NodeSelector         string
	CascadeDelete        bool
	FlavorID             string
	AvailabilityZone     string
	IngressHostname      bool
	HostnameSuffix       string
	MaxShared            int
	ShareAcross          bool
	TLSContainerRef      string
	ContainerStore       string
	Serial               bool
}

const noEffect = "Accepted for compatibility, without effect: "

func text(section, key, help string, at func(*Config) *string) schema.Option[Config] {
	return schema.StringOption(at, schema.OptionRow{FileKey: "[" + section + "] " + key, Spec: schema.Spec{Help: help}})
}

func credential(key, help string, at func(*Config) *schema.Secret) schema.Option[Config] {
	return schema.SecretOption(at, schema.OptionRow{FileKey: "[Global] " + key, Spec: schema.Spec{Help: help}})
}

func toggle(section, key, standard, help string, at func(*Config) *bool) schema.Option[Config] {
	return schema.BoolOption(at, schema.OptionRow{FileKey: "[" + section + "] " + key, Spec: schema.Spec{Default: standard, Help: help}})
}

func choice(section, key, standard, help string, choices []string, at func(*Config) *string) schema.Option[Config] {
	return schema.EnumOption(
		at, schema.OptionRow{FileKey: "[" + section + "] " + key, Spec: schema.Spec{Default: standard, Choices: choices, Help: help}},
	)
}

func span(section, key, standard, help string, at func(*Config) *time.Duration) schema.Option[Config] {
	return schema.DurationOption(
		at, schema.OptionRow{FileKey: "[" + section + "] " + key, Spec: schema.Spec{Default: standard, Help: help, Check: checkSeconds}},
	)
}

func checkSeconds(v string) error {
	if d, err := time.ParseDuration(v); err == nil && d < time.Second {
		return errors.New("is shorter than a second, which is the unit of the API")
	}
	return nil
}

func count(section, key, standard string, least, most float64, help string, at func(*Config) *int) schema.Option[Config] {
	return schema.IntOption(
		at, schema.OptionRow{FileKey: "[" + section + "] " + key, Spec: schema.Spec{Default: standard, Min: &least, Max: &most, Help: help}},
	)
}

// methods lists Octavia's algorithms; ovn supports only the last.
func methods() []string {
	return []string{methodRoundRobin, "LEAST_CONNECTIONS", "SOURCE_IP", methodSourceIPPort}
}

// Options is the table of options: the keys of cloud.conf of OpenStack's own controller.
var Options = schema.Options[Config]{
	schema.URLOption(
		func(c *Config) *string { return &c.Global.AuthURL }, schema.OptionRow{FileKey: "[Global] auth-url", Spec: schema.Spec{Help: "Address of Keystone. May come from clouds.yaml."}},
	),
	text("Global", "user-id", "ID of the user.", func(c *Config) *string { return &c.Global.UserID }),
	text("Global", "username", "Name of the user; needs the user's domain.", func(c *Config) *string { return &c.Global.Username }),
	credential("password", "Password of the user.", func(c *Config) *schema.Secret { return &c.Global.Password }),
	text("Global", "tenant-id", "ID of the project; it takes precedence over the name.", func(c *Config) *string { return &c.Global.TenantID }),
	text("Global", "tenant-name", "Name of the project; needs the project's domain.", func(c *Config) *string { return &c.Global.TenantName }),
	text("Global", "domain-id", "ID of the domain of user and project where no other is set.", func(c *Config) *string { return &c.Global.DomainID }),
	text("Global", "domain-name", "Name of that domain.", func(c *Config) *string { return &c.Global.DomainName }),
	text("Global", "user-domain-id", "ID of the user's domain.", func(c *Config) *string { return &c.Global.UserDomainID }),
	text("Global", "user-domain-name", "Name of the user's domain.", func(c *Config) *string { return &c.Global.UserDomainName }),
	text("Global", "tenant-domain-id", "ID of the project's domain.", func(c *Config) *string { return &c.Global.TenantDomainID }),
	text("Global", "tenant-domain-name", "Name of the project's domain.", func(c *Config) *string { return &c.Global.TenantDomainName }),
	text("Global", "trust-id", "ID of a Keystone trust, which becomes the scope.", func(c *Config) *string { return &c.Global.TrustID }),
	text("Global", "trustee-id", "ID of the trustee; with trust-id it replaces user-id.", func(c *Config) *string { return &c.Global.TrusteeID }),
	credential("trustee-password", "Password of the trustee.", func(c *Config) *schema.Secret { return &c.Global.TrusteePassword }),
	text("Global", "application-credential-id", "ID of an application credential.", func(c *Config) *string { return &c.Global.ApplicationCredentialID }),
	text("Global", "application-credential-name", "Name of an application credential; needs the user.", func(c *Config) *string { return &c.Global.ApplicationCredentialName }),
	credential("application-credential-secret", "Secret of the application credential.", func(c *Config) *schema.Secret { return &c.Global.ApplicationCredentialSecret }),
	credential("token", "Token to log in with; needs a project. It cannot be renewed after its end.", func(c *Config) *schema.Secret { return &c.Global.Token }),
	text("Global", "region", "Region whose endpoints are used, and that nodes are labelled with.", func(c *Config) *string { return &c.Global.Region }),
	choice("Global", "os-endpoint-type", "public", "Interface of the endpoints.", []string{
		"public", "internal", "admin",
	}, func(c *Config) *string { return &c.Global.EndpointType }),
	text("Global", "ca-file", "File with the certificates that the cloud's must be signed by, instead of the system's.", func(c *Config) *string { return &c.Global.CAFile }),
	text("Global", "CAFileContents", "The same certificates instead of a file, where ca-file is not set.", func(c *Config) *string { return &c.Global.CAFileContents }),
	text("Global", "cert-file", "File with a client certificate; needs key-file.", func(c *Config) *string { return &c.Global.CertFile }),
	text("Global", "key-file", "File with its key.", func(c *Config) *string { return &c.Global.KeyFile }),
	text("Global", "tls-insecure", "With exactly \"true\" the cloud's certificates are not checked.", func(c *Config) *string { return &c.Global.TLSInsecure }),
	toggle("Global", "use-clouds", "false", "Take what this section leaves open from clouds.yaml.", func(c *Config) *bool { return &c.Global.UseClouds }),
	text("Global", "clouds-file", "Path of clouds.yaml; without it the usual places are searched.", func(c *Config) *string { return &c.Global.CloudsFile }),
	text("Global", "cloud", "Entry of clouds.yaml; without it OS_CLOUD, or the only entry.", func(c *Config) *string { return &c.Global.Cloud }),
	schema.StringOption(
		func(c *Config) *string { return &c.Global.CloudsFileEnv }, schema.OptionRow{Env: "OS_CLIENT_CONFIG_FILE", Spec: schema.Spec{Help: "Path of clouds.yaml where clouds-file is not set. Only with use-clouds."}},
	),
	schema.StringOption(func(c *Config) *string { return &c.Global.CloudEnv }, schema.OptionRow{Env: "OS_CLOUD", Spec: schema.Spec{Help: "Entry of clouds.yaml where cloud is not set. Only with use-clouds."}}),

	toggle("Networking", "ipv6-support-disabled", "false", "Leave IPv6 addresses of nodes out.", func(c *Config) *bool { return &c.Networking.IPv6Disabled }),
	schema.ListOption(func(c *Config) *[]string { return &c.Networking.PublicNetworks }, schema.OptionRow{
		FileKey: "[Networking] public-network-name", Spec: schema.Spec{Help: "Networks, by name, whose addresses are external. May be repeated."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.Networking.InternalNetworks }, schema.OptionRow{
		FileKey: "[Networking] internal-network-name", Spec: schema.Spec{Help: "Networks, by name, whose addresses are internal; those of other networks are left out. May be repeated."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Networking.SortOrder }, schema.OptionRow{
		FileKey: "[Networking] address-sort-order", Spec: schema.Spec{Check: checkSortOrder, Help: "Networks, separated by commas or blanks, in whose order addresses are sorted."},
	}),

	toggle("LoadBalancer", "enabled", "true", "Serve Services of type LoadBalancer.", func(c *Config) *bool { return &c.LoadBalancer.Enabled }),
	choice("LoadBalancer", "lb-version", "v2", noEffect+"there is one version.", []string{"v2"}, nil),
	schema.StringOption(func(c *Config) *string { return &c.LoadBalancer.Provider }, schema.OptionRow{
		FileKey: "[LoadBalancer] lb-provider", Spec: schema.Spec{Default: "amphora", Help: "Octavia's provider of new load balancers, such as amphora or ovn."},
	}),
	choice("LoadBalancer", "lb-method", methodRoundRobin, "Algorithm of pools. Those of the provider ovn have SOURCE_IP_PORT.", methods(), func(c *Config) *string { return &c.LoadBalancer.Method }),
	text("LoadBalancer", "subnet-id", "Subnet of the address of load balancers, and of members where no other is set.", func(c *Config) *string { return &c.LoadBalancer.SubnetID }),
	text("LoadBalancer", "member-subnet-id", "Subnet of members.", func(c *Config) *string { return &c.LoadBalancer.MemberSubnetID }),
	text("LoadBalancer", "network-id", "Network of the address of load balancers.", func(c *Config) *string { return &c.LoadBalancer.NetworkID }),
	text("LoadBalancer", "floating-network-id", "Network of floating addresses; without it the first external network that will do.", func(c *Config) *string { return &c.LoadBalancer.FloatingNetworkID }),
	text("LoadBalancer", "floating-subnet-id", "Subnet of floating addresses.", func(c *Config) *string { return &c.LoadBalancer.FloatingSubnetID }),
	schema.StringOption(func(c *Config) *string { return &c.LoadBalancer.FloatingSubnet }, schema.OptionRow{
		FileKey: "[LoadBalancer] floating-subnet", Spec: schema.Spec{Check: checkPattern, Help: "Subnets of floating addresses by name: a pattern, with ~ a regular expression, with ! all others."},
	}),
	text("LoadBalancer", "floating-subnet-tags", "Subnets of floating addresses by tags: a,b for any; &a,b for all; ! before it for the others.", func(c *Config) *string { return &c.LoadBalancer.FloatingSubnetTags }),
	toggle("LoadBalancer", "manage-security-groups", "false", "Open the node ports by a security group for each Service.", func(c *Config) *bool { return &c.LoadBalancer.ManageSecurityGroups }),
	toggle("LoadBalancer", "create-monitor", "false", "Check the health of members. Services with externalTrafficPolicy Local need it.", func(c *Config) *bool { return &c.LoadBalancer.CreateMonitor }),
	span("LoadBalancer", "monitor-delay", "5s", "Time between two checks.", func(c *Config) *time.Duration { return &c.LoadBalancer.MonitorDelay }),
	span("LoadBalancer", "monitor-timeout", "3s", "Time after which a check has failed.", func(c *Config) *time.Duration { return &c.LoadBalancer.MonitorTimeout }),
	count("LoadBalancer", "monitor-max-retries", "1", 1, 10, "Checks that must pass before a member serves.", func(c *Config) *int { return &c.LoadBalancer.MonitorRetries }),
	count("LoadBalancer", "monitor-max-retries-down", "3", 1, 10, "Checks that must fail before a member is left out.", func(c *Config) *int { return &c.LoadBalancer.MonitorRetriesDown }),
	toggle("LoadBalancer", "internal-lb", "false", "Give no load balancer a floating address.", func(c *Config) *bool { return &c.LoadBalancer.Internal }),
	text("LoadBalancer", "node-selector", "Labels of the nodes that are members: key=value or key, separated by commas.", func(c *Config) *string { return &c.LoadBalancer.NodeSelector }),
	toggle("LoadBalancer", "cascade-delete", "true", "Delete load balancers with all that belongs to them in one call.", func(c *Config) *bool { return &c.LoadBalancer.CascadeDelete }),
	text("LoadBalancer", "flavor-id", "Octavia's flavor of new load balancers.", func(c *Config) *string { return &c.LoadBalancer.FlavorID }),
	text("LoadBalancer", "availability-zone", "Octavia's availability zone of new load balancers.", func(c *Config) *string { return &c.LoadBalancer.AvailabilityZone }),
	toggle("LoadBalancer", "enable-ingress-hostname", "false", "With the PROXY protocol, show a hostname made of the address and ingress-hostname-suffix.", func(c *Config) *bool { return &c.LoadBalancer.IngressHostname }),
	schema.StringOption(func(c *Config) *string { return &c.LoadBalancer.HostnameSuffix }, schema.OptionRow{
		FileKey: "[LoadBalancer] ingress-hostname-suffix", Spec: schema.Spec{Default: "nip.io", Help: "Domain of these hostnames."},
	}),
	count("LoadBalancer", "max-shared-lb", "2", 1, 1000, "Services that may share a load balancer.", func(c *Config) *int { return &c.LoadBalancer.MaxShared }),
	toggle("LoadBalancer", "share-across-namespaces", "false", "Let Services share load balancers of other namespaces without their agreement. Ours.", func(c *Config) *bool { return &c.LoadBalancer.ShareAcross }),
	text("LoadBalancer", "default-tls-container-ref", "Certificates with which every load balancer terminates TLS, by their reference in the key manager.", func(c *Config) *string { return &c.LoadBalancer.TLSContainerRef }),
	schema.StringOption(func(c *Config) *string { return &c.LoadBalancer.ContainerStore }, schema.OptionRow{
		FileKey: "[LoadBalancer] container-store", Spec: schema.Spec{Default: storeBarbican, Help: "Where certificates are: barbican, where references are checked, or external."},
	}),
	toggle("LoadBalancer", "provider-requires-serial-api-calls", "false", "Create and change everything one by one, for providers that support nothing else.", func(c *Config) *bool { return &c.LoadBalancer.Serial }),

	text("Route", "router-id", "Router that pod ranges are routed by; without it there are no routes.", func(c *Config) *string { return &c.RouterID }),
	schema.ListOption[Config](nil, schema.OptionRow{FileKey: "[Metadata] search-order", Spec: schema.Spec{
		Default: "configDrive,metadataService", Check: checkSearchOrder, Help: noEffect + "no metadata service is asked.",
	}}),
	schema.DurationOption(func(c *Config) *time.Duration { return &c.RequestTimeout }, schema.OptionRow{
		FileKey: "[Metadata] request-timeout", Spec: schema.Spec{Default: "60s", Help: "Time after which one attempt at a call is given up."},
	}),

	schema.ListOption(
		func(c *Config) *[]string { return &c.UserAgents }, schema.OptionRow{Flag: "user-agent", Repeatable: true, Spec: schema.Spec{Help: "Text that is put before the user agent of calls. May be repeated."}},
	),
	schema.BoolOption(
		func(c *Config) *bool { return &c.Regional }, schema.OptionRow{Env: "OS_CCM_REGIONAL", Spec: schema.Spec{Default: "false", Help: "Put the region into provider IDs of new nodes."}},
	),
	schema.BoolOption(func(c *Config) *bool { return &c.OwnershipTag }, schema.OptionRow{
		Env: "OPENSTACK_OWNERSHIP_TAG", Spec: schema.Spec{Default: "true", Help: "Tag new load balancers with the identity of the cluster, so that no other cluster takes them over. Ours."},
	}),
	schema.StringOption[Config](nil, schema.OptionRow{
		Env: "OCCM_WAIT_LB_ACTIVE_STEPS", Spec: schema.Spec{Help: noEffect + "load balancers are waited for as long as they take."},
	}),
}

func checkSortOrder(v string) error {
	for _, one := range splitOrder(v) {
		if _, err := netip.ParsePrefix(one); err != nil {
			return fmt.Errorf(`holds %q, which is not a network; use a form such as "10.0.0.0/8, 2001:db8::/64"`, one)
		}
	}
	return nil
}

func splitOrder(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

func checkSearchOrder(v string) error {
	items := strings.Split(v, ",")
	if len(items) > 2 {
		return errors.New("holds more than two items; use configDrive and metadataService")
	}
	for _, item := range items {
		if item = strings.TrimSpace(item); item != "configDrive" && item != "metadataService" {
			return fmt.Errorf("holds %q; use configDrive and metadataService", item)
		}
	}
	return nil
}

// checkPattern refuses invalid patterns for the names of subnets.
func checkPattern(v string) error {
	v = strings.TrimPrefix(v, "!")
	if expression, ok := strings.CutPrefix(v, "~"); ok {
		if _, err := regexp.Compile(expression); err != nil {
			return fmt.Errorf("is not a regular expression: %w", err)
		}
		return nil
	}
	if _, err := path.Match(v, ""); err != nil {
		return fmt.Errorf("is not a pattern: %w", err)
	}
	return nil
}

// classTable maps the keys of a section [LoadBalancerClass "name"] to fields.
func classTable(c *class) map[string]*string {
	return map[string]*string{
		"floating-network-id": &c.FloatingNetworkID, "floating-subnet-id": &c.FloatingSubnetID, "floating-subnet": &c.FloatingSubnet,
		"floating-subnet-tags": &c.FloatingSubnetTags, "network-id": &c.NetworkID, "subnet-id": &c.SubnetID, "member-subnet-id": &c.MemberSubnetID,
	}
}

// parseConfig reads all sources and reports all problems together. Warnings are about settings without effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	entries, err := schema.ReadINI(in.File)
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	classes, rest, classErr := parseClasses(rest)
	in.Keys = keys
	cloudsErr := withClouds(keys, in)
	c, err = Options.Parse(in.Sources)
	c.Classes = classes
	if err == nil && cloudsErr == nil { // clouds.yaml has the rest of the login, and nothing that Services are judged by
		err = c.problemsTogether()
	}
	return c, warnUnknown(rest), errors.Join(iniErr, classErr, cloudsErr, err)
}

// warnUnknown warns of keys without an option. Some are for other programs that read the same file.
func warnUnknown(entries []schema.INIEntry) (warnings error) {
	readers := map[string]string{"blockstorage": "Cinder's CSI driver", "keymanager": "the KMS plugin of Barbican"}
	var unknown []schema.INIEntry
	for _, e := range entries {
		if reader, foreign := readers[strings.ToLower(e.Section)]; foreign {
			warnings = errors.Join(warnings, schema.WarnOfKey(e.FileKey(), "has no effect here, and may stay for "+reader))
			continue
		}
		unknown = append(unknown, e)
	}
	return errors.Join(Options.Unknown(unknown), warnings)
}

func parseClasses(entries []schema.INIEntry) (classes map[string]class, rest []schema.INIEntry, err error) {
	classes = map[string]class{}
	var problems []error
	for _, e := range entries {
		if !strings.EqualFold(e.Section, "LoadBalancerClass") || e.Subsection == "" {
			rest = append(rest, e)
			continue
		}
		one := classes[e.Subsection]
		at, known := classTable(&one)[strings.ToLower(e.Key)]
		if !known {
			problems = append(problems, schema.BlameKey(e.FileKey(), "", "is unknown; a class has "+strings.Join(slices.Sorted(maps.Keys(classTable(&one))), ", ")))
			continue
		}
		*at = e.Value
		classes[e.Subsection] = one
	}
	for name, one := range classes {
		if err := checkPattern(one.FloatingSubnet); err != nil {
			problems = append(problems, schema.BlameKey(fmt.Sprintf("[LoadBalancerClass %q] floating-subnet", name), one.FloatingSubnet, err.Error()))
		}
	}
	return classes, rest, errors.Join(problems...)
}

// problemsTogether reports problems with combinations of options.
func (c Config) problemsTogether() error {
	var problems []error
	report := func(broken bool, key, reason string) {
		if broken {
			problems = append(problems, schema.BlameKey("[Global] "+key, "", reason))
		}
	}
	g := c.Global
	report(g.AuthURL == "", "auth-url", "is required and is not set, and clouds.yaml has none")
	report((g.CertFile == "") != (g.KeyFile == ""), "cert-file", "and key-file belong together; set both")
	password := !g.Password.IsZero() || (g.TrustID != "" && !g.TrusteePassword.IsZero())
	application := cmp.Or(g.ApplicationCredentialID, g.ApplicationCredentialName) != ""
	report(application && g.ApplicationCredentialSecret.IsZero(), "application-credential-secret", "is required with an application credential")
	report(g.Token.IsZero() && !password && !application, "password", "is required where there is neither a token nor an application credential")
	if !g.Token.IsZero() {
		report(g.TrustID != "", "token", "cannot be used with trust-id")
		report(g.TenantID == "" && g.TenantName == "", "token", "needs tenant-id or tenant-name")
	} else if password && g.ApplicationCredentialID == "" {
		g.checkUser(report)
	}
	project := g.TrustID == "" && g.TenantID == "" && g.TenantName != ""
	report(project && cmp.Or(g.TenantDomainID, g.TenantDomainName, g.DomainID, g.DomainName) == "", "tenant-domain-name", "is required with tenant-name, unless domain-name or domain-id is set")
	return errors.Join(problems...)
}

// checkUser reports what a password login lacks.
func (g global) checkUser(report func(broken bool, key, reason string)) {
	id := g.UserID
	if g.TrustID != "" {
		id = cmp.Or(g.TrusteeID, id)
	}
	report(id == "" && g.Username == "", "username", "or user-id is required with a password")
	report(g.UserID != "" && g.Username != "", "username", "and user-id exclude each other; keep one")
	report(id == "" && g.Username != "" && cmp.Or(g.UserDomainID, g.UserDomainName, g.DomainID, g.DomainName) == "", "user-domain-name", "is required with username, unless domain-name or domain-id is set")
}
