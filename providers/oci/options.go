package oci

import (
	"cmp"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config is the validated configuration of the provider.
type Config struct {
	Region, Tenancy, User, Fingerprint string
	Key, KeyPassphrase, Passphrase     schema.Secret
	Compartment, OldCompartment, VCN   string
	InstancePrincipals, OldPrincipals  bool
	WorkloadIdentity                   bool
	LoadBalancersOff                   bool
	Subnet1, Subnet2                   string
	SecurityListMode                   string
	ReadQPS, WriteQPS                  float64
	ReadBucket, WriteBucket            int
	Unlimited                          bool
	Endpoint, Domain, MetadataURL      string
	Exchange                           exchange
	Prefix, Tags                       string
	SecretNamespaces                   []string

	SecurityLists string

	tags tags
	key  *rsa.PrivateKey
	// securityLists are the managed security lists, by subnet.
	securityLists map[string]string
}

// exchange holds the options for the exchange of a service account's token.
type exchange struct {
	DomainURL, ResourceType, ClientID              string
	ClientSecret                                   schema.Secret
	ByInstance                                     bool
	SubjectType, RequestedType, TokenPath, Expires string
}

// Options is the table of the provider's options, with the keys of Oracle's own controller. A dot stands for a level of the file.
var Options = append(schema.Options[Config]{
	text("auth.region", "Region of the cluster, such as us-ashburn-1.", func(c *Config) *string { return &c.Region }),
	text("auth.tenancy", "OCID of the tenancy.", func(c *Config) *string { return &c.Tenancy }),
	text("auth.user", "OCID of the user whose key signs the calls.", func(c *Config) *string { return &c.User }),
	text("auth.fingerprint", "Fingerprint of the public half of that key.", func(c *Config) *string { return &c.Fingerprint }),
	secret("auth.key", "Private key, as PEM.", func(c *Config) *schema.Secret { return &c.Key }),
	secret("auth.key_passphrase", "Passphrase of the private key.", func(c *Config) *schema.Secret { return &c.KeyPassphrase }),
	secret("auth.passphrase", "The same, where auth.key_passphrase is not set.", func(c *Config) *schema.Secret { return &c.Passphrase }),
	toggle("useInstancePrincipals", "Authenticate as the instance that the program runs on.", func(c *Config) *bool { return &c.InstancePrincipals }),
	toggle("auth.useInstancePrincipals", "Deprecated: the former place of useInstancePrincipals.", func(c *Config) *bool { return &c.OldPrincipals }),
	toggle("useWorkloadIdentity", "Authenticate by the exchange of a service account's token.", func(c *Config) *bool { return &c.WorkloadIdentity }),
	text("compartment", "OCID of the compartment of nodes and load balancers.", func(c *Config) *string { return &c.Compartment }),
	text("auth.compartment", "Deprecated: the former place of compartment.", func(c *Config) *string { return &c.OldCompartment }),
	text("vcn", "OCID of the virtual cloud network of the nodes.", func(c *Config) *string { return &c.VCN }),
	toggle("loadBalancer.disabled", "Serve no Services.", func(c *Config) *bool { return &c.LoadBalancersOff }),
	text("loadBalancer.subnet1", "OCID of the subnet of load balancers.", func(c *Config) *string { return &c.Subnet1 }),
	text("loadBalancer.subnet2", "OCID of their second subnet, where subnets are of one availability domain.", func(c *Config) *string { return &c.Subnet2 }),
	text(keyListMode, "All, Frontend or None: how security rules are managed where no annotation of a Service says so. "+
		"With Oracle's own controller it is checked and has no effect.", func(c *Config) *string { return &c.SecurityListMode }),
	schema.Structured(text(keyLists, "Security lists whose rules are managed, by the OCID of the subnet that they are attached to; of another subnet, the oldest.",
		func(c *Config) *string { return &c.SecurityLists })),
	schema.FloatOption(func(c *Config) *float64 { return &c.ReadQPS }, row("rateLimiter.rateLimitQPSRead", "20", "Reads a second.")),
	schema.IntOption(func(c *Config) *int { return &c.ReadBucket }, row("rateLimiter.rateLimitBucketRead", "5", "Reads at once.")),
	schema.FloatOption(func(c *Config) *float64 { return &c.WriteQPS }, row("rateLimiter.rateLimitQPSWrite", "20", "Writes a second.")),
	schema.IntOption(func(c *Config) *int { return &c.WriteBucket }, row("rateLimiter.rateLimitBucketWrite", "5", "Writes at once.")),
	toggle("rateLimiter.disableRateLimiter", "Hold back no calls.", func(c *Config) *bool { return &c.Unlimited }),
	schema.URLOption(func(c *Config) *string { return &c.Endpoint }, schema.OptionRow{
		Env: "OCI_ENDPOINT", FileKey: "endpoint",
		Spec: schema.Spec{Help: "Base URL of all services of the cloud, in the place of those that the region has."},
	}),
	schema.Structured(text("tags.loadBalancer", "Free-form and defined tags of new load balancers.", func(c *Config) *string { return &c.Tags })),
	schema.StringOption(func(c *Config) *string { return &c.Prefix }, schema.OptionRow{
		Env: "LOAD_BALANCER_PREFIX", Spec: schema.Spec{Help: "Prefix of the names of load balancers."},
	}),
	schema.ListOption(func(c *Config) *[]string { return &c.SecretNamespaces }, schema.OptionRow{
		Env:  envSecretNamespaces,
		Spec: schema.Spec{Help: "Namespaces whose TLS Secrets Services of every namespace may name. Without it a Service may name those of its own."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Domain }, schema.OptionRow{
		Env: "OCI_DEFAULT_REALM", Spec: schema.Spec{Default: "oraclecloud.com", Help: "Domain of the realm, such as oraclegovcloud.com."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.MetadataURL }, schema.OptionRow{
		Env: "OCI_METADATA_BASE_URL", Spec: schema.Spec{Default: "http://169.254.169.254/opc/v2", Help: "Where an instance tells about itself."},
	}),
}, append(exchangeOptions(), rowsWithoutEffect()...)...)

const identityPrefix = "OCI_WORKLOAD_IDENTITY_"

func exchangeOptions() schema.Options[Config] {
	env := func(name, standard, help string, at func(*exchange) *string) schema.Option[Config] {
		return schema.StringOption(func(c *Config) *string { return at(&c.Exchange) }, schema.OptionRow{
			Env: identityPrefix + name, Spec: schema.Spec{Default: standard, Help: help},
		})
	}
	return schema.Options[Config]{
		schema.URLOption(func(c *Config) *string { return &c.Exchange.DomainURL }, schema.OptionRow{
			Env: identityPrefix + "DOMAIN_URL", Spec: schema.Spec{Help: "Identity domain that exchanges tokens, without a path."},
		}),
		env("RESOURCE_TYPE", "", "Type of the resource that the exchanged token stands for.", func(e *exchange) *string { return &e.ResourceType }),
		env("CLIENT_ID", "", "Client ID at the identity domain.", func(e *exchange) *string { return &e.ClientID }),
		schema.SecretOption(func(c *Config) *schema.Secret { return &c.Exchange.ClientSecret }, schema.OptionRow{
			Env: identityPrefix + "CLIENT_SECRET", Spec: schema.Spec{Help: "Secret of that client."},
		}),
		schema.BoolOption(func(c *Config) *bool { return &c.Exchange.ByInstance }, schema.OptionRow{
			Env:  identityPrefix + "USE_INSTANCE_PRINCIPAL_FOR_TOKEN_EXCHANGE",
			Spec: schema.Spec{Default: "false", Help: "The exchange is signed by the instance that the program runs on, instead of a client's secret."},
		}),
		env("SUBJECT_TOKEN_TYPE", "jwt", "Type of the service account's token.", func(e *exchange) *string { return &e.SubjectType }),
		env("REQUESTED_TOKEN_TYPE", "urn:oci:token-type:oci-rpst", "Type of the exchanged token.", func(e *exchange) *string { return &e.RequestedType }),
		env("TOKEN_PATH", "/var/run/secrets/kubernetes.io/serviceaccount/token", "File of the service account's token, read for each exchange.",
			func(e *exchange) *string { return &e.TokenPath }),
		env("RPST_EXP", "", "How long exchanged tokens are to last, as the identity domain takes it.", func(e *exchange) *string { return &e.Expires }),
	}
}

// checkExchange requires all options of the exchange.
func (c *Config) checkExchange() (problems []error) {
	e := c.Exchange
	for name, value := range map[string]string{
		"DOMAIN_URL": e.DomainURL, "RESOURCE_TYPE": e.ResourceType, "CLIENT_ID": e.ClientID, "CLIENT_SECRET": e.ClientSecret.Reveal(),
	} {
		if value == "" && (!e.ByInstance || !strings.HasPrefix(name, "CLIENT_")) {
			problems = append(problems, &schema.Problem{
				Place: "environment variable " + identityPrefix + name, Reason: "is required with useWorkloadIdentity and is not set",
			})
		}
	}
	return problems
}

// keyListMode is the option for the security rules of Services without an annotation.
const keyListMode = "loadBalancer.securityListManagementMode"

// envSecretNamespaces names the namespaces whose Secrets all Services may use.
const envSecretNamespaces = "OCI_SECRET_NAMESPACES"

// keyLists is the option for managed security lists.
const keyLists = "loadBalancer.securityLists"

const noEffect = "Accepted for compatibility, without effect: "

// keysWithoutEffect returns keys without effect, by the reason.
func keysWithoutEffect() map[string][]string {
	return map[string][]string{
		"nothing asks for it":                         {"regionKey", "auth.regionKey"},
		"set loadBalancer.securityListManagementMode": {"loadBalancer.disableSecurityListManagement"},
		"nothing is tagged with them":                 {"tags.common"},
		"it is about volumes":                         {"tags.blockVolume", "tags.fss", "tags.lustre"},
		"metrics are not pushed; scrape /metrics": {
			"metrics.compartmentID", "metrics.namespace", "metrics.resourceGroup", "metrics.prefix",
		},
	}
}

func rowsWithoutEffect() schema.Options[Config] {
	var rows schema.Options[Config]
	for _, why := range sortedKeys(keysWithoutEffect()) {
		for _, key := range keysWithoutEffect()[why] {
			rows = append(rows, schema.Structured(text(key, noEffect+why+".", nil)))
		}
	}
	return rows
}

func row(key, standard, help string) schema.OptionRow {
	return schema.OptionRow{FileKey: key, Spec: schema.Spec{Default: standard, Help: help}}
}

func text(key, help string, at func(*Config) *string) schema.Option[Config] {
	return schema.StringOption(at, row(key, "", help))
}

func secret(key, help string, at func(*Config) *schema.Secret) schema.Option[Config] {
	return schema.SecretOption(at, row(key, "", help))
}

func toggle(key, help string, at func(*Config) *bool) schema.Option[Config] {
	return schema.BoolOption(at, row(key, "false", help))
}

// parseConfig parses the options, and reports all faults at once. Warnings are about keys without effect.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	if len(strings.TrimSpace(string(in.File))) == 0 {
		return c, nil, schema.BlameKey("", "", "is missing or empty; name the file by --cloud-config")
	}
	keys, warnings, err := readFile(in.File)
	if err != nil {
		return c, nil, err
	}
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	if err == nil {
		err = c.complete()
	}
	if excess := checkFreeform(c.tags.Freeform); excess != nil {
		warnings = errors.Join(warnings, schema.WarnOfKey("tags.loadBalancer", "no load balancer can be made with these: "+excess.Error()))
	}
	return c, warnings, err
}

// complete derives settings from others, and checks combinations.
func (c *Config) complete() error {
	var problems []error
	refuse := func(e *field.Error) {
		problems = append(problems, schema.BlameKey("", "", e.Error()))
	}
	c.Compartment = cmp.Or(c.Compartment, c.OldCompartment)
	c.InstancePrincipals = c.InstancePrincipals || c.OldPrincipals
	switch identity := field.NewPath("useWorkloadIdentity"); {
	case c.InstancePrincipals && c.WorkloadIdentity:
		refuse(field.Invalid(identity, true, "useInstancePrincipals is true as well; keep one"))
	case c.WorkloadIdentity:
		if c.Region == "" {
			refuse(field.Required(field.NewPath("auth", "region"), "name the region; useWorkloadIdentity needs it"))
		}
		problems = append(problems, c.checkExchange()...)
	case c.InstancePrincipals:
	default:
		problems = append(problems, c.checkKey(refuse)...)
	}
	if c.Tags != "" {
		if err := json.Unmarshal([]byte(c.Tags), &c.tags); err != nil {
			problems = append(problems, schema.BlameKey("tags.loadBalancer", "", err.Error()))
		}
	}
	if c.SecurityLists != "" {
		if err := json.Unmarshal([]byte(c.SecurityLists), &c.securityLists); err != nil {
			problems = append(problems, schema.BlameKey(keyLists, "", "is not a mapping of subnets to security lists"))
		}
	}
	switch c.SecurityListMode {
	case "", "All", "Frontend", "None":
	default:
		refuse(field.Invalid(field.NewPath("loadBalancer", "securityListManagementMode"), c.SecurityListMode, "is not one of All, Frontend, None"))
	}
	for key, v := range map[string]float64{
		"QPSRead": c.ReadQPS, "QPSWrite": c.WriteQPS, "BucketRead": float64(c.ReadBucket), "BucketWrite": float64(c.WriteBucket),
	} {
		if v < 0 {
			refuse(field.Invalid(field.NewPath("rateLimiter", "rateLimit"+key), v, "must not be negative"))
		}
	}
	return errors.Join(problems...)
}

// checkKey requires all settings for calls signed with a user's key.
func (c *Config) checkKey(refuse func(*field.Error)) []error {
	for _, need := range []struct{ key, value string }{
		{"tenancy", c.Tenancy}, {"user", c.User}, {"fingerprint", c.Fingerprint},
	} {
		if need.value == "" {
			refuse(field.Required(field.NewPath("auth", need.key), "it is needed with a user's key"))
		}
	}
	if c.Key.IsZero() {
		refuse(field.Required(field.NewPath("auth", "key"), "it is needed with a user's key"))
		return nil
	}
	passphrase := c.KeyPassphrase
	if passphrase.IsZero() {
		passphrase = c.Passphrase
	}
	key, err := parseKey([]byte(c.Key.Reveal()), []byte(passphrase.Reveal()))
	if err != nil {
		return []error{schema.BlameKey("auth.key", "", fmt.Sprintf("is no private key: %s", err))}
	}
	c.key = key
	return nil
}
