package azure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Values of settings.
const (
	vmTypeSets     = "vmss"
	vmTypeStandard = "standard"
	vmTypeFlex     = "vmssflex"
	poolNIC        = "nodeIPConfiguration"
	poolIP         = "nodeIP"
	skuStandard    = "standard"
	probeShared    = "shared"
	probeNodePort  = "servicenodeport"
)

// Config is the validated configuration of the provider.
type Config struct {
	Cloud, Endpoint, UserAgent         string
	Tenant, Subscription               string
	NetworkTenant, NetworkSubscription string
	ClientID                           string
	ClientSecret, CertPassword         schema.Secret
	CertPath                           string
	ManagedIdentity, Federated         bool
	UserIdentity, FederatedFile        string
	Group, Location                    string
	EdgeName, EdgeType                 string
	Network, NetworkGroup, Subnet      string
	SecurityGroup, SecurityGroupGroup  string
	RouteTable, RouteGroup             string
	VMType                             string
	OnlyScaleSets, FlexToo             bool
	SKU, LoadBalancerName, LBGroup     string
	LinkGroup                          string
	Preconfigured                      string
	ExcludeMaster, DisableOutboundSNAT bool
	PoolType                           string
	Tags, TagsMap, SystemTags          string
	ProbeMode, SharedProbePath         string
	SharedProbePort                    int
	Multiple                           string
	WithoutView                        bool
	Gateway                            bool
	Insecure                           bool

	standardLBs []standardLB

	cloud environment
	tags  map[string]string
	file  string
}

// Options is the table of the provider's options: the keys of azure.json as Azure's own controller has them.
var Options = append(schema.Options[Config]{
	stringOption("cloud", "", "Which Azure: AzureCloud (AzurePublicCloud), AzureChinaCloud or AzureUSGovernment (AzureUSGovernmentCloud).", func(c *Config) *string { return &c.Cloud }),
	schema.URLOption(func(c *Config) *string { return &c.Endpoint }, row("resourceManagerEndpoint", "",
		"Base URL of another Azure Resource Manager. Its description at /metadata/endpoints says where tokens come from.")),
	stringOption("userAgent", "", "Beginning of the user agent.", func(c *Config) *string { return &c.UserAgent }),
	fromEnv("tenantId", "AZURE_TENANT_ID", "Tenant of the identity.", func(c *Config) *string { return &c.Tenant }),
	required("subscriptionId", "Subscription of the resources.", func(c *Config) *string { return &c.Subscription }),
	stringOption("networkResourceTenantID", "", noEffect+"the network must be in the tenant of the identity.", func(c *Config) *string { return &c.NetworkTenant }),
	stringOption("networkResourceSubscriptionID", "", "Subscription of the network, where it is another one.", func(c *Config) *string { return &c.NetworkSubscription }),
	fromEnv("aadClientId", "AZURE_CLIENT_ID", "Client ID of the service principal.", func(c *Config) *string { return &c.ClientID }),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.ClientSecret }, schema.OptionRow{
		Env: "AZURE_CLIENT_SECRET", FileKey: "aadClientSecret", Spec: schema.Spec{Help: "Secret of the service principal."},
	}),
	stringOption("aadClientCertPath", "", "File with the certificate and key of the service principal, PEM or PKCS#12.", func(c *Config) *string { return &c.CertPath }),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.CertPassword }, schema.OptionRow{
		FileKey: "aadClientCertPassword", Spec: schema.Spec{Help: "Password of that file."},
	}),
	boolOption("useManagedIdentityExtension", "false", "Authenticate as the managed identity of the machine.", func(c *Config) *bool { return &c.ManagedIdentity }),
	stringOption("userAssignedIdentityID", "", "Client ID or resource ID of a user-assigned identity; empty means that of the system.", func(c *Config) *string { return &c.UserIdentity }),
	boolOption("useFederatedWorkloadIdentityExtension", "false", "Authenticate by a token of a service account (workload identity).", func(c *Config) *bool { return &c.Federated }),
	fromEnv("aadFederatedTokenFile", "AZURE_FEDERATED_TOKEN_FILE", "File of that token. The environment variable switches workload identity on.", func(c *Config) *string { return &c.FederatedFile }),
}, slices.Concat(placementOptions(), shapeOptions(), ignoredOptions())...)

// placementOptions are the options that say where things are.
func placementOptions() schema.Options[Config] {
	return schema.Options[Config]{
		required("resourceGroup", "Resource group of the nodes, and of all for which nothing else is said.", func(c *Config) *string { return &c.Group }),
		required("location", "Region.", func(c *Config) *string { return &c.Location }),
		stringOption("extendedLocationName", "", "Name of an edge zone.", func(c *Config) *string { return &c.EdgeName }),
		stringOption("extendedLocationType", "", "Its type, edgezone.", func(c *Config) *string { return &c.EdgeType }),
		stringOption("vnetName", "", "Virtual network of the nodes.", func(c *Config) *string { return &c.Network }),
		stringOption("vnetResourceGroup", "", "Its resource group.", func(c *Config) *string { return &c.NetworkGroup }),
		stringOption("subnetName", "", "Subnet of internal load balancers.", func(c *Config) *string { return &c.Subnet }),
		stringOption("securityGroupName", "", "Network security group that lets traffic to Services through.", func(c *Config) *string { return &c.SecurityGroup }),
		stringOption("securityGroupResourceGroup", "", "Its resource group.", func(c *Config) *string { return &c.SecurityGroupGroup }),
		stringOption("routeTableName", "", "Route table of the nodes' subnet, for the pods' networks. Routes are made where --cluster-cidr is set as well.", func(c *Config) *string { return &c.RouteTable }),
		stringOption("routeTableResourceGroup", "", "Its resource group.", func(c *Config) *string { return &c.RouteGroup }),
		choiceOption("vmType", vmTypeSets, "What nodes are: vmss, standard (availability sets and machines that stand alone), or vmssflex.",
			[]string{vmTypeSets, vmTypeStandard, vmTypeFlex}, func(c *Config) *string { return &c.VMType }),
		boolOption("disableAvailabilitySetNodes", "false", "With vmss: all nodes are in uniform scale sets, which saves a listing.", func(c *Config) *bool { return &c.OnlyScaleSets }),
		boolOption("enableVmssFlexNodes", "false", "With vmss: nodes may be in flexible scale sets, although availability set nodes are disabled.", func(c *Config) *bool { return &c.FlexToo }),
	}
}

// shapeOptions are the options that say how things are made.
func shapeOptions() schema.Options[Config] {
	return schema.Options[Config]{
		stringOption("loadBalancerSku", skuStandard, "standard; Azure has retired basic load balancers.", func(c *Config) *string { return &c.SKU }),
		stringOption("loadBalancerName", "", "Name of the load balancer where it is not that of the cluster.", func(c *Config) *string { return &c.LoadBalancerName }),
		stringOption("loadBalancerResourceGroup", "", "Resource group of load balancers.", func(c *Config) *string { return &c.LBGroup }),
		stringOption("privateLinkServiceResourceGroup", "", "Resource group of private link services.", func(c *Config) *string { return &c.LinkGroup }),
		choiceOption("preConfiguredBackendPoolLoadBalancerTypes", "", "Load balancers whose pools somebody else fills: internal, external or all.",
			[]string{"internal", "external", "all"}, func(c *Config) *string { return &c.Preconfigured }),
		boolOption("excludeMasterFromStandardLB", "true", "Control plane nodes receive no traffic of load balancers.", func(c *Config) *bool { return &c.ExcludeMaster }),
		boolOption("disableOutboundSNAT", "false", "Load balancing rules give no outbound connections.", func(c *Config) *bool { return &c.DisableOutboundSNAT }),
		stringOption("loadBalancerBackendPoolConfigurationType", poolNIC, "Members of pools: nodeIPConfiguration (network interfaces) or nodeIP (addresses).", func(c *Config) *string { return &c.PoolType }),
		stringOption("tags", "", "Tags of what is created, as a=b,c=d.", func(c *Config) *string { return &c.Tags }),
		schema.Structured(stringOption("tagsMap", "", "Tags of what is created, as a map.", func(c *Config) *string { return &c.TagsMap })),
		stringOption("systemTags", "", "Beginnings of tags, comma-separated. If set, all other tags that are not configured are removed.", func(c *Config) *string { return &c.SystemTags }),
		stringOption("clusterServiceLoadBalancerHealthProbeMode", probeNodePort, "servicenodeport, or shared: one probe for all Services with externalTrafficPolicy Cluster.", func(c *Config) *string { return &c.ProbeMode }),
		schema.IntOption(func(c *Config) *int { return &c.SharedProbePort }, row("clusterServiceSharedLoadBalancerHealthProbePort", "10256", "Port of the shared probe.")),
		stringOption("clusterServiceSharedLoadBalancerHealthProbePath", "/healthz", "Path of the shared probe.", func(c *Config) *string { return &c.SharedProbePath }),
		schema.Structured(stringOption("multipleStandardLoadBalancerConfigurations", "", "Several load balancers, as a list of name, primaryVMSet, allowServicePlacement, "+
			"serviceLabelSelector, serviceNamespaceSelector and nodeSelector. One has the name of the cluster. Only with nodeIP.",
			func(c *Config) *string { return &c.Multiple })),
		boolOption("listVmssVirtualMachinesWithoutInstanceView", "false", "Listings of scale sets leave out power states, which are read when they are needed.", func(c *Config) *bool { return &c.WithoutView }),
		boolOption("serviceGatewayEnabled", "false", "Must be false: container load balancers are not served.", func(c *Config) *bool { return &c.Gateway }),
	}
}

const noEffect = "Accepted for compatibility, without effect: "

// ignoredKeys returns keys without effect, by reason.
func ignoredKeys() map[string][]string {
	return map[string][]string{
		"this program limits its calls by itself": {
			"cloudProviderBackoff", "cloudProviderBackoffRetries", "cloudProviderBackoffExponent", "cloudProviderBackoffDuration", "cloudProviderBackoffJitter",
			"cloudProviderRateLimit", "cloudProviderRateLimitQPS", "cloudProviderRateLimitBucket", "cloudProviderRateLimitQPSWrite",
			"cloudProviderRateLimitBucketWrite", "enableMinimumRetryAfter", "putVMSSVMBatchSize", "routeUpdateIntervalInSeconds",
			"routeUpdateWaitingInSeconds", "loadBalancerBackendPoolUpdateIntervalInSeconds",
		},
		"how old answers may be is decided by what they are for": {
			"disableAPICallCache", "vmssCacheTTLInSeconds", "vmssVirtualMachinesCacheTTLInSeconds", "vmssFlexCacheTTLInSeconds", "vmssFlexVMCacheTTLInSeconds",
			"nonVmssUniformNodesCacheTTLInSeconds", "availabilitySetsCacheTTLInSeconds", "vmCacheTTLInSeconds", "loadBalancerCacheTTLInSeconds",
			"nsgCacheTTLInSeconds", "routeTableCacheTTLInSeconds", "publicIPCacheTTLInSeconds", "plsCacheTTLInSeconds",
		},
		"it is about basic load balancers, which Azure has retired": {
			"primaryScaleSetName", "primaryAvailabilitySetName", "maximumLoadBalancerRuleCount",
		},
		"IP tags always change in place":                  {"enableIPTagMutationForExistingPublicIP"},
		"--node-deletion-grace-period holds a new Node":   {"nodeInstanceNotFoundGracePeriodInSeconds"},
		"nodes are initialised by Azure Resource Manager": {"useInstanceMetadata"},
		"it is not served": {
			"identitySystem", "disableAzureStackCloud",
			"aadMSIDataPlaneIdentityPath", "auxiliaryTokenProvider",
		},
		"members of pools by network interface are left as they are; see the migration": {"enableMigrateToIPBasedBackendPoolAPI"},
		"the program reads its configuration when it starts":                            {"cloudConfigType", "disableCloudProvider"},
	}
}

// ignoredOptions returns the rows of ignored keys.
func ignoredOptions() schema.Options[Config] {
	var rows schema.Options[Config]
	for _, why := range sortedKeys(ignoredKeys()) {
		for _, key := range ignoredKeys()[why] {
			rows = append(rows, schema.Structured(stringOption(key, "", noEffect+why+".", nil)))
		}
	}
	return rows
}

func row(key, standard, help string) schema.OptionRow {
	return schema.OptionRow{FileKey: key, Spec: schema.Spec{Default: standard, Help: help}}
}

func stringOption(key, standard, help string, at func(*Config) *string) schema.Option[Config] {
	return schema.StringOption(at, row(key, standard, help))
}

func required(key, help string, at func(*Config) *string) schema.Option[Config] {
	r := row(key, "", help)
	r.Required = true
	return schema.StringOption(at, r)
}

func fromEnv(key, env, help string, at func(*Config) *string) schema.Option[Config] {
	r := row(key, "", help)
	r.Env = env
	return schema.StringOption(at, r)
}

func boolOption(key, standard, help string, at func(*Config) *bool) schema.Option[Config] {
	return schema.BoolOption(at, row(key, standard, help))
}

func choiceOption(key, standard, help string, choices []string, at func(*Config) *string) schema.Option[Config] {
	r := row(key, standard, help)
	r.Choices = choices
	return schema.EnumOption(at, r)
}

// parseConfig reads the options and reports everything that is wrong at once. Warnings are about keys without effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	keys, warnings, err := readFile(in.File)
	if err != nil {
		return c, nil, err
	}
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	if err == nil {
		err = c.complete(in)
	}
	if excess := checkTagSizes(c.tags); excess != nil {
		warnings = errors.Join(warnings, schema.WarnOfKey("tags or tagsMap", "nothing can be made with these: "+excess.Error()))
	}
	return c, warnings, err
}

// complete fills in what follows from other settings, and judges them together.
func (c *Config) complete(in registry.Inputs) error {
	c.inherit(in)
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, schema.BlameKey("", "", fmt.Sprintf(format, args...)))
		}
	}
	sku := strings.ToLower(c.SKU)
	pools := []string{poolNIC, poolIP}
	refuse(sku == "basic" && c.DisableOutboundSNAT, "disableOutboundSNAT needs loadBalancerSku standard")
	refuse(sku == "basic", "loadBalancerSku is basic, which Azure has retired on 30 September 2025; set it to standard. Basic load balancers that are left "+
		"under the names of this cluster are deleted then, when the first Service on them is served or goes")
	refuse(sku != "basic" && sku != skuStandard, "loadBalancerSku %q is not served; set it to standard", c.SKU)
	refuse(c.Cloud != "" && !slices.ContainsFunc(clouds(), func(n string) bool { return strings.EqualFold(n, c.Cloud) }),
		"cloud %q is none of %s", c.Cloud, strings.Join(clouds(), ", "))
	refuse(c.Gateway, "serviceGatewayEnabled: container load balancers are not served; set it to false")
	refuse(!slices.Contains(pools, c.PoolType), "loadBalancerBackendPoolConfigurationType %q is not one of %v", c.PoolType, pools)
	probe := strings.ToLower(c.ProbeMode)
	refuse(probe != probeShared && probe != probeNodePort, "clusterServiceLoadBalancerHealthProbeMode %q is not one of %v",
		c.ProbeMode, []string{probeNodePort, probeShared})
	c.ProbeMode = probe
	refuse(c.OnlyScaleSets && c.VMType != vmTypeSets, "disableAvailabilitySetNodes is true, which needs vmType vmss")
	refuse(c.NetworkTenant != "" && !strings.EqualFold(c.NetworkTenant, c.Tenant), "networkResourceTenantID: a network in another tenant is not served")
	if c.Endpoint != "" {
		if err := schema.InsecureURL(c.Endpoint, in.AllowInsecureEndpoints); err != nil {
			problems = append(problems, schema.BlameKey("resourceManagerEndpoint", c.Endpoint, err.Error()))
		}
	}
	c.cloud = cloudOf(c.Cloud, c.Endpoint)
	var err error
	if c.tags, err = parseTags(c.Tags, c.TagsMap); err != nil {
		problems = append(problems, err)
	}
	if c.standardLBs, err = parseLoadBalancers(c.Multiple); err != nil {
		problems = append(problems, err)
	}
	refuse(len(c.standardLBs) > 0 && c.PoolType == poolNIC, "multipleStandardLoadBalancerConfigurations needs loadBalancerBackendPoolConfigurationType "+poolIP)
	return errors.Join(append(problems, c.checkCredentials())...)
}

// inherit takes over what other settings and the environment say.
func (c *Config) inherit(in registry.Inputs) {
	c.Group, c.file = strings.ToLower(c.Group), in.FilePath
	for _, group := range []*string{&c.NetworkGroup, &c.SecurityGroupGroup, &c.LBGroup, &c.RouteGroup, &c.LinkGroup} {
		if *group == "" {
			*group = c.Group
		}
	}
	c.LinkGroup = strings.ToLower(c.LinkGroup)
	c.NetworkSubscription = cmp.Or(c.NetworkSubscription, c.Subscription)
	if c.FederatedFile != "" && in.LookupEnv != nil {
		if file, _ := in.LookupEnv("AZURE_FEDERATED_TOKEN_FILE"); file != "" {
			c.Federated = true
		}
	}
	c.Insecure = in.AllowInsecureEndpoints
}

// checkCredentials demands one way to authenticate. The environment may have each.
func (c *Config) checkCredentials() error {
	problem := func(reason string) error { return &schema.Problem{Place: "cloud config", Reason: reason} }
	switch {
	case c.Federated && c.FederatedFile == "":
		return problem("useFederatedWorkloadIdentityExtension needs aadFederatedTokenFile")
	case c.ManagedIdentity && !c.Federated:
		return nil
	case !c.Federated && c.ClientSecret.IsZero() && c.CertPath == "":
		return problem("there is no credential: set aadClientSecret, aadClientCertPath, useManagedIdentityExtension or useFederatedWorkloadIdentityExtension")
	case c.Tenant == "" || c.ClientID == "":
		return problem("tenantId and aadClientId are needed with this credential")
	}
	return nil
}
