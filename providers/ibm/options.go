package ibm

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	Version            string
	Account            string
	WorkerAccount      string
	Cluster            string
	Kind               string
	Region             string
	ResourceGroup      string
	VPC                string
	Subnets            []string
	KeyFile            string
	Key                schema.Secret
	ProfileID          string
	ProfileName        string
	TokenFile          string
	Identity           bool
	MetadataEndpoint   string
	VPCEndpoint        string
	IAMEndpoint        string
	RMEndpoint         string
	Public             string
	FakedExternalIP    bool
	NetworkUnavailable bool
	CNI                string

	// Credential is the current API key, from its file or its variable. An unexported field would be printed.
	Credential schema.Secret
	ignored    ignoredSettings
}

// ignoredSettings are settings that are accepted and only cause a warning or a refusal.
type ignoredSettings struct {
	kubeconfig string
	power      [6]string
}

// powerKeys are settings for nodes on Power Virtual Server.
var powerKeys = [6]string{"powerVSCloudInstanceID", "powerVSCloudInstanceName", "powerVSRegion", "powerVSZone", "powerVSEndpointOverride", "rcEndpointOverride"}

// checkPowerVS reports settings for nodes on Power Virtual Server: a workspace, its region and its zone. Installers write the keys without
// values if there are none.
func (c *Config) checkPowerVS() error {
	p := c.ignored.power
	if (p[0] == "" && p[1] == "") || p[2] == "" || p[3] == "" {
		return nil
	}
	return schema.BlameKey("[provider] "+powerKeys[2], p[2], "nodes on Power Virtual Server are not served yet: only virtual server instances of a VPC are; "+
		"without these keys, Nodes are described by their labels and load balancers are served")
}

const (
	kindVPC = "g2"

	keyVersion       = "[global] version"
	keyAccount       = "[provider] accountID"
	keyCluster       = "[provider] clusterID"
	keyKind          = "[provider] cluster-default-provider"
	keyRegion        = "[provider] region"
	keyCredentials   = "[provider] g2Credentials" //nolint:gosec // the name of a key
	keyResourceGroup = "[provider] g2ResourceGroupName"
	keyVPC           = "[provider] g2VpcName"
	keySubnets       = "[provider] g2VpcSubnetNames"
	keyProfileID     = "[provider] g2TrustedProfileID"
	keyIdentity      = "[provider] g2InstanceIdentity"
	keyProfileName   = "[provider] g2TrustedProfileName"
	envKey           = "IBMCLOUD_API_KEY"

	// defaultTokenFile is the token file of a service account that is linked to a trusted profile.
	defaultTokenFile = "/var/run/secrets/tokens/sa-token" //nolint:gosec // a path

	// maxClusterLength is the longest cluster ID with which names of load balancers still contain a part of their Service.
	maxClusterLength = 56
	// riskyClusterLength is the length of a cluster ID beyond which two Services may get the same name.
	riskyClusterLength = 41

	notSet       = "is required and is not set"
	compatible   = "Accepted for compatibility, without effect: "
	classicAlone = compatible + "it belongs to classic infrastructure."
)

type (
	option = schema.Option[Config]
	row    = schema.OptionRow
)

func text(key, help string, at func(*Config) *string, check func(string) error) option {
	return schema.StringOption(at, row{FileKey: key, Spec: schema.Spec{Help: help, Check: check}})
}

func ineffective(key, why string) option {
	return text(key, compatible+why, nil, nil)
}

func powerOption(n int) option {
	return text("[provider] "+powerKeys[n], "Not served yet: it belongs to nodes on Power Virtual Server. A workspace with its region and zone is refused.",
		func(c *Config) *string { return &c.ignored.power[n] }, nil)
}

func endpoint(key, help string, at func(*Config) *string) option {
	return schema.URLOption(at, row{FileKey: key, Spec: schema.Spec{Help: help}})
}

// Options is the table of the provider's options. The keys are those of IBM's own controller, with ours for trusted profiles, the
// instance's identity, and g2ExternalIPFallback.
var Options = schema.Options[Config]{
	text(keyVersion, "Version of the file: 1.0.0 or 1.1.0. Required.", func(c *Config) *string { return &c.Version }, nil),
	text(keyAccount, "Account of the cluster. Required.", func(c *Config) *string { return &c.Account }, checkField),
	text(keyCluster, "ID of the cluster, which is part of provider IDs and of the names of load balancers. Required.",
		func(c *Config) *string { return &c.Cluster }, checkField),
	text(keyKind, "g2, which stands for VPC infrastructure; the only one that is served. Required.", func(c *Config) *string { return &c.Kind }, nil),
	text(keyRegion, "Region, such as us-south. Required.", func(c *Config) *string { return &c.Region }, checkRegion),
	text("[provider] g2workerServiceAccountID", "Account that the virtual server instances of the workers belong to. Instances are read only if it is accountID; "+
		"else Nodes are described by their labels alone.", func(c *Config) *string { return &c.WorkerAccount }, checkField),
	text(keyCredentials, "File with the API key. It is read again when it changes.", func(c *Config) *string { return &c.KeyFile }, nil),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Key }, row{
		Env: envKey, Spec: schema.Spec{Help: "API key, where g2Credentials names no file. IBMCLOUD_API_KEY_FILE names a file that holds it, which is read again when it changes."},
	}),
	text(keyProfileID, "Trusted profile by its ID, instead of an API key: the token of a service account proves who asks.",
		func(c *Config) *string { return &c.ProfileID }, nil),
	text(keyProfileName, "Trusted profile by its name.", func(c *Config) *string { return &c.ProfileName }, nil),
	text("[provider] g2TrustedProfileTokenFile", "File with that token, read again for each login; "+defaultTokenFile+" where it is not set.",
		func(c *Config) *string { return &c.TokenFile }, nil),
	schema.BoolOption(func(c *Config) *bool { return &c.Identity }, row{
		FileKey: keyIdentity, Spec: schema.Spec{Default: "false", Help: "The instance that the program runs on proves who asks, by its metadata service, instead of an API key. " +
			"Its default trusted profile is used where none is named."},
	}),
	endpoint("[provider] g2MetadataEndpointOverride", "Address of that metadata service; "+metadataService+" where it is not set.",
		func(c *Config) *string { return &c.MetadataEndpoint }),
	text(keyResourceGroup, "Resource group of new load balancers, by name, or by its ID of 32 hexadecimal digits. Required.",
		func(c *Config) *string { return &c.ResourceGroup }, nil),
	text(keyVPC, "Name of the cluster's VPC. Required.", func(c *Config) *string { return &c.VPC }, nil),
	schema.ListOption(func(c *Config) *[]string { return &c.Subnets }, row{
		FileKey: keySubnets, Spec: schema.Spec{Help: "Names of the cluster's subnets. Required."},
	}),
	endpoint("[provider] g2EndpointOverride", "Address of the VPC API without /v1.", func(c *Config) *string { return &c.VPCEndpoint }),
	endpoint("[provider] iamEndpointOverride", "Address of IAM.", func(c *Config) *string { return &c.IAMEndpoint }),
	endpoint("[provider] rmEndpointOverride", "Address of the resource manager.", func(c *Config) *string { return &c.RMEndpoint }),
	schema.StringOption(func(c *Config) *string { return &c.Public }, row{
		Env: "ENABLE_VPC_PUBLIC_ENDPOINT", Spec: schema.Spec{Help: "true uses the public endpoints; everything else the private ones, which only IBM Cloud itself reaches."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.FakedExternalIP }, row{
		FileKey: "[provider] g2ExternalIPFallback", Spec: schema.Spec{Default: "true", Help: "Show the internal address of a node without an external one as its external address too, as IBM's own controller does."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.NetworkUnavailable }, row{
		FileKey: "[kubernetes] set-network-unavailable", Spec: schema.Spec{Default: "false", Help: "Give each new Node the condition NetworkUnavailable, which its network plug-in takes away, as Calico does."},
	}),
	text("[kubernetes] cniProvider", "Network plug-in: OVNKubernetes turns set-network-unavailable off.", func(c *Config) *string { return &c.CNI }, nil),
	schema.StringOption(func(c *Config) *string { return &c.ignored.kubeconfig }, row{
		FileKey: "[kubernetes] config-file", Spec: schema.Spec{Help: compatible + "--kubeconfig names the file."},
	}),
	text("[kubernetes] calico-datastore", classicAlone, nil, nil),
	text("[load-balancer-deployment] image", classicAlone, nil, nil),
	text("[load-balancer-deployment] application", classicAlone, nil, nil),
	text("[load-balancer-deployment] vlan-ip-config-map", classicAlone, nil, nil),
	ineffective("[provider] iksPrivateEndpointHostname", "nothing asks that endpoint."),
	ineffective("[provider] cloudCredentials", "g2Credentials names the file."),
	ineffective("[provider] providerID", "Nodes say it."),
	ineffective("[provider] internalIP", "Nodes say it."),
	ineffective("[provider] externalIP", "Nodes say it."),
	ineffective("[provider] zone", "instances say it."),
	ineffective("[provider] instanceType", "instances say it."),
	powerOption(0), powerOption(1), powerOption(2), powerOption(3), powerOption(4), powerOption(5),
}

var (
	fieldForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	regionForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	groupID    = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func checkField(v string) error {
	if !fieldForm.MatchString(v) {
		return errors.New("is not an ID: use letters, digits, dots, hyphens and underscores")
	}
	return nil
}

func checkRegion(v string) error {
	if !regionForm.MatchString(v) {
		return errors.New("is not a region; use a form such as us-south")
	}
	return nil
}

// parseConfig parses the options and reports all faults at once.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	if len(bytes.TrimSpace(in.File)) == 0 {
		return c, nil, schema.BlameKey("", "", "is missing or empty; name the file that holds the configuration by --cloud-config")
	}
	entries, err := schema.ReadINI(bytes.TrimPrefix(in.File, []byte("\xef\xbb\xbf")))
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	problems := []error{iniErr, err, c.check(), c.readKey()}
	return c, errors.Join(Options.Unknown(rest), c.warnings()), errors.Join(problems...)
}

// check reports faults of settings together.
func (c *Config) check() error {
	var problems []error
	if !slices.Contains([]string{"1.0.0", "1.1.0"}, c.Version) {
		problems = append(problems, schema.BlameKey(keyVersion, c.Version, "is not one of 1.0.0, 1.1.0"))
	}
	if c.Kind != kindVPC {
		problems = append(problems, schema.BlameKey(keyKind, c.Kind,
			"only g2, which is VPC, is served; classic infrastructure has no load balancers outside of IBM"))
	}
	for _, required := range []struct{ key, value string }{
		{keyCluster, c.Cluster},
		{keyAccount, c.Account},
		{keyRegion, c.Region},
		{keyResourceGroup, c.ResourceGroup},
		{keySubnets, strings.Join(c.Subnets, "")},
		{keyVPC, c.VPC},
	} {
		if required.value == "" {
			problems = append(problems, schema.BlameKey(required.key, "", notSet))
		}
	}
	if len(c.Cluster) > maxClusterLength {
		problems = append(problems, schema.BlameKey(keyCluster, c.Cluster, fmt.Sprintf(
			"is longer than %d characters, so that the names of load balancers, of 63 at most, could not tell Services apart", maxClusterLength)))
	}
	return errors.Join(append(problems, c.checkPowerVS())...)
}

// readKey finds the credential. Errors never contain its value.
func (c *Config) readKey() error {
	if c.WithProfile() {
		if c.KeyFile != "" || !c.Key.IsZero() {
			return schema.BlameKey(keyProfileID, "", "stands beside an API key, as does g2InstanceIdentity; leave one of them out")
		}
		if c.Identity && c.TokenFile != "" {
			return schema.BlameKey(keyIdentity, "true", "stands beside g2TrustedProfileTokenFile; leave one of them out")
		}
		return nil
	}
	c.Credential = c.Key
	if c.KeyFile != "" {
		read, err := schema.NewSecretFile(c.KeyFile)
		if err != nil {
			return credentialProblem(c.KeyFile, "cannot be read: "+err.Error())
		}
		c.Credential = read
	}
	if c.Credential.IsZero() {
		return credentialProblem("", notSet)
	}
	if err := checkKey(c.Credential.Reveal()); err != nil {
		return credentialProblem("", err.Error())
	}
	return nil
}

// credentialProblem returns a fault of the credential, which is in a file of its own or in the environment.
func credentialProblem(value, reason string) error {
	return &schema.Problem{Place: "key " + keyCredentials + " of the cloud config", Value: value, Reason: reason}
}

// checkKey returns the fault in the form of an API key.
func checkKey(key string) error {
	if strings.ContainsAny(key, " \t\r\n\"{}") {
		return errors.New("the API key holds a blank, a quotation mark or a brace; the file must hold the key alone")
	}
	return nil
}

// WithProfile reports whether a trusted profile replaces an API key.
func (c *Config) WithProfile() bool { return c.Identity || c.ProfileID != "" || c.ProfileName != "" }

// warnings reports settings that have no effect, or are risky.
func (c *Config) warnings() error {
	var list []error
	warn := func(key, value, reason string) {
		list = append(list, &schema.Problem{Place: "key " + key + " of the cloud config", Value: value, Reason: reason, Warning: true, InFile: true})
	}
	if c.ignored.kubeconfig != "" {
		warn("[kubernetes] config-file", c.ignored.kubeconfig, "has no effect: --kubeconfig names the file")
	}
	if n := len(c.Cluster); n >= riskyClusterLength && n <= maxClusterLength {
		warn(keyCluster, c.Cluster, fmt.Sprintf("leaves %d characters of the UID of a Service in the names of load balancers", 63-len("kube--")-n))
	}
	return errors.Join(list...)
}

// OwnWorkers reports whether the workers' instances belong to the account, so that they can be read.
func (c *Config) OwnWorkers() bool { return c.WorkerAccount != "" && c.WorkerAccount == c.Account }

// endpoints are the URLs of the services, without a final slash.
type endpoints struct{ vpc, iam, rm string }

func (c *Config) endpoints() endpoints {
	e := endpoints{
		vpc: "https://" + c.Region + ".private.iaas.cloud.ibm.com", iam: "https://private.iam.cloud.ibm.com", rm: "https://resource-controller.cloud.ibm.com",
	}
	public, stage := strings.EqualFold(c.Public, "true"), strings.Contains(c.Region, "stage")
	if public {
		e.vpc, e.iam = "https://"+c.Region+".iaas.cloud.ibm.com", "https://iam.cloud.ibm.com"
	}
	if stage {
		e.vpc = strings.Replace(e.vpc, ".iaas.", ".iaasdev.", 1)
		e.iam, e.rm = "https://private.iam.test.cloud.ibm.com", "https://resource-controller.test.cloud.ibm.com"
	}
	if stage && public {
		e.iam = "https://iam.stage1.bluemix.net"
	}
	override := func(at *string, value, end string) {
		if value != "" {
			*at = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(value, "/"), end), "/")
		}
	}
	override(&e.vpc, c.VPCEndpoint, "/v1")
	override(&e.iam, c.IAMEndpoint, "/identity/token")
	override(&e.rm, c.RMEndpoint, "/v2")
	return e
}
