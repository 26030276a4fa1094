package ovirt

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	URI                string
	Username, Password schema.Secret
	CAFile, CABundle   string
	Insecure           bool
	Filter             string

	ProviderIDForm    string
	Interfaces        string
	Include, Exclude  []string
	External          []string
	ExternalLike      string
	IPFamily          string
	Zones             string
	SecretsDirectory  string
	interfaces        *regexp.Regexp
	include, exclude  []netip.Prefix
	externalAddresses []netip.Prefix
	// addresses selects the addresses of nodes.
	endpoint endpoint
}

const (
	defaultUsername = "admin@internal"
	// Choices of the options.
	formShort, formTriple               = "ovirt://", "ovirt:///"
	likeNone, likeInTree, likeExtension = "none", "it", "ext"
	zonesByName, zonesByID, zonesOff    = "names", "ids", "off"
	familyIPv4, familyIPv6              = "ipv4", "ipv6"
	keyURI, keyUsername, keyPassword    = "[connection] uri", "[connection] username", "[connection] password"
	keyCAFile, keyInsecure, keyFilter   = "[connection] cafile", "[connection] insecure", "[filters] vms"
	envURL, envUsername, envPassword    = "OVIRT_URL", "OVIRT_USERNAME", "OVIRT_PASSWORD"
	envCAFile, envCABundle, envInsecure = "OVIRT_CAFILE", "OVIRT_CA_BUNDLE", "OVIRT_INSECURE"
	envSecrets                          = "OVIRT_SECRETS_DIRECTORY" //nolint:gosec // the name of a variable
	fileSuffix                          = "_FILE"
	missingURI                          = "missing ovirt uri in cloud provider configuration"
)

type (
	option = schema.Option[Config]
	row    = schema.OptionRow
)

func networks(key, env, help string, at func(*Config) *[]string) option {
	return schema.ListOption(at, row{FileKey: key, Env: env, Spec: schema.Spec{Help: help, Check: checkNetworks}})
}

// Options is the table of the provider's options. The keys of [connection] and [filters] are those of the provider in Kubernetes, with
// additions of its successor.
var Options = schema.Options[Config]{
	schema.StringOption(func(c *Config) *string { return &c.URI }, row{
		FileKey: keyURI, Env: envURL, Spec: schema.Spec{Help: "Address of the engine's API, such as https://engine.example.com/ovirt-engine/api. Required."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Username }, row{
		FileKey: keyUsername, Env: envUsername, Spec: schema.Spec{Help: "User with profile; " + defaultUsername + " where it is not set."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Password }, row{
		FileKey: keyPassword, Env: envPassword, Spec: schema.Spec{Help: "Password of the user. Required."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.CAFile }, row{
		FileKey: keyCAFile, Env: envCAFile, Spec: schema.Spec{Help: "File with certificates that the engine's may be signed by, in addition to the system's."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.CABundle }, row{
		Env: envCABundle, Spec: schema.Spec{Help: "The same certificates themselves, in PEM."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.Insecure }, row{
		FileKey: keyInsecure, Env: envInsecure, Spec: schema.Spec{Default: "false", Help: "Do not verify the engine's certificate."},
	}),
	schema.StringOption(func(c *Config) *string { return &c.SecretsDirectory }, row{
		Env: envSecrets, Spec: schema.Spec{
			Help: "Folder with files ovirt_url, ovirt_username, ovirt_password, ovirt_cafile, ovirt_ca_bundle and ovirt_insecure, as the Secret " +
				"ovirt-credentials has keys. They count like the variables of these names.",
		},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Filter }, row{
		FileKey: keyFilter, Env: "OVIRT_VMS", Spec: schema.Spec{
			Check: checkFilter, Help: "Search in the engine's language, such as tag=kubernetes: only these virtual machines are found by name. It " +
				"says nothing about the existence of others.",
		},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.ProviderIDForm }, row{
		FileKey: "[nodes] provider-id-form", Env: "OVIRT_PROVIDER_ID_FORM", Spec: schema.Spec{
			Default: formShort, Choices: []string{formShort, formTriple}, Help: "Beginning of provider IDs of new Nodes.",
		},
	}),
	schema.StringOption(func(c *Config) *string { return &c.Interfaces }, row{
		FileKey: "[nodes] interfaces", Env: "OVIRT_NODE_INTERFACES", Spec: schema.Spec{
			Check: checkPattern, Help: `Regular expression for the names of interfaces in the guest whose addresses count, such as ^(eth|en|br\-ex).`,
		},
	}),
	networks("[nodes] include-networks", "OVIRT_NODE_INCLUDE_NETWORKS", "Networks whose addresses count; all where there are none.",
		func(c *Config) *[]string { return &c.Include }),
	networks("[nodes] exclude-networks", "OVIRT_NODE_EXCLUDE_NETWORKS", "Networks whose addresses do not count, such as virtual addresses of the cluster.",
		func(c *Config) *[]string { return &c.Exclude }),
	networks("[nodes] external-networks", "OVIRT_NODE_EXTERNAL_NETWORKS", "Networks whose addresses are external.",
		func(c *Config) *[]string { return &c.External }),
	schema.EnumOption(func(c *Config) *string { return &c.ExternalLike }, row{
		FileKey: "[nodes] external-addresses-like", Env: "OVIRT_EXTERNAL_ADDRESSES_LIKE", Spec: schema.Spec{
			Default: likeNone, Choices: []string{likeNone, likeInTree, likeExtension},
			Help: "Further external addresses, as earlier controllers had them: it repeats the first address, ext repeats all.",
		},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.IPFamily }, row{
		FileKey: "[nodes] ip-family", Env: "OVIRT_NODE_IP_FAMILY", Spec: schema.Spec{
			Default: familyIPv4, Choices: []string{familyIPv4, familyIPv6}, Help: "Family of the addresses that come first, unless kubelet names one.",
		},
	}),
	schema.EnumOption(func(c *Config) *string { return &c.Zones }, row{
		FileKey: "[nodes] zones", Env: "OVIRT_ZONES", Spec: schema.Spec{
			Default: zonesByName, Choices: []string{zonesByName, zonesByID, zonesOff},
			Help: "Whether zone and region of new Nodes are the names or the IDs of cluster and data center, or not set.",
		},
	}),
}

func checkNetworks(v string) error {
	_, err := parseNetworks(strings.Split(v, ","))
	return err
}

func parseNetworks(items []string) (all []netip.Prefix, err error) {
	for _, item := range items {
		p, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf(`holds %q, which is not a network; use a form such as "10.0.0.0/8,fd00::/8"`, item)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

func checkPattern(v string) error {
	if _, err := regexp.Compile(v); err != nil {
		return errors.New("is not a regular expression: " + err.Error())
	}
	return nil
}

var pageClause = regexp.MustCompile(`(?i)(^|\s)(page\s+\d+|sortby\s)`)

// checkFilter refuses clauses with which a listing would lack matching machines.
func checkFilter(v string) error {
	if pageClause.MatchString(v) {
		return errors.New("must not have an order or a page, for every virtual machine that matches is needed; remove sortby and page")
	}
	return nil
}

// parseConfig parses the options and reports all faults at once.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	in.LookupEnv = addDirectory(in.LookupEnv)
	keys, warnings, fileErr := fileKeys(in.File)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	problems := []error{fileErr, err}
	c.endpoint, err = newEndpoint(c.URI)
	switch {
	case c.URI == "":
		problems = append(problems, Options.Blame(in.Sources, keyURI, "", missingURI))
	case err != nil:
		problems = append(problems, Options.Blame(in.Sources, keyURI, "", err.Error()))
	default:
		if reason := schema.InsecureURL(c.endpoint.root, in.AllowInsecureEndpoints); reason != nil {
			problems = append(problems, Options.Blame(in.Sources, keyURI, c.endpoint.root, reason.Error()))
		}
	}
	if c.Username.IsZero() {
		c.Username = schema.NewSecret(defaultUsername)
	}
	if c.Password.IsZero() {
		problems = append(problems, Options.Blame(in.Sources, keyPassword, "", "is required and is not set"))
	}
	_, err = c.trust().TLS()
	problems = append(problems, err)
	if c.Interfaces != "" && checkPattern(c.Interfaces) == nil {
		c.interfaces = regexp.MustCompile(c.Interfaces)
	}
	c.include, _ = parseNetworks(c.Include)            // the table has refused invalid ones
	c.exclude, _ = parseNetworks(c.Exclude)            // as above
	c.externalAddresses, _ = parseNetworks(c.External) // as above
	return c, warnings, errors.Join(problems...)
}

// compatible are alternative keys: those of the controller that succeeded the one in Kubernetes.
var compatible = map[string]string{"[connection] url": keyURI, "[filters] vmsquery": keyFilter}

// properties are the keys of the format without sections.
var properties = map[string]string{
	"url": keyURI, "username": keyUsername, "password": keyPassword, "insecure": keyInsecure, "cafile": keyCAFile, "vmsquery": keyFilter,
}

// fileKeys parses the cloud config in either format: sections with keys, or keys alone.
func fileKeys(data []byte) (keys map[string]string, warnings, err error) {
	if !hasSections(data) {
		return propertyKeys(data)
	}
	entries, err := schema.ReadINI(data)
	if err != nil {
		return nil, nil, err
	}
	var problems []error
	seen := map[string]string{}
	for i, e := range entries {
		name := strings.ToLower(e.FileKey())
		key := name
		if same, ok := compatible[name]; ok {
			key = same
			_, entries[i].Key, _ = strings.Cut(same, " ")
		}
		if other, ok := seen[key]; ok && other != name {
			problems = append(problems, &schema.Problem{Place: fmt.Sprintf("keys %s and %s of the cloud config", other, name), Reason: "are both set; keep one", InFile: true})
		}
		seen[key] = name
	}
	keys, rest, err := Options.FromINI(entries)
	problems = append(problems, err, Options.Refused(rest)) // the original refuses them as well
	return keys, nil, errors.Join(problems...)
}

func lines(data []byte) []string {
	var all []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") && !strings.HasPrefix(line, "!") {
			all = append(all, line)
		}
	}
	return all
}

func hasSections(data []byte) bool {
	all := lines(data)
	return len(all) > 0 && strings.HasPrefix(all[0], "[")
}

// propertyKeys parses the format without sections.
func propertyKeys(data []byte) (keys map[string]string, warnings, err error) {
	keys = map[string]string{}
	var problems, warned []error
	for i, line := range lines(data) {
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok {
			problems = append(problems, schema.BlameKey("", "", fmt.Sprintf("cannot be read: setting %d is not of the form key=value", i+1)))
			continue
		}
		if key, known := properties[strings.ToLower(name)]; known {
			keys[key] = strings.TrimSpace(value)
			continue
		}
		reason := "is unknown and has no effect"
		if near := schema.Nearest(name, slices.Sorted(maps.Keys(properties))); near != "" {
			reason += "; did you mean " + near + "?"
		}
		warned = append(warned, schema.WarnOfKey(name, reason))
	}
	return keys, errors.Join(warned...), errors.Join(problems...)
}
