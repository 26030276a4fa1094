package cloudstack

import (
	"bytes"
	"errors"
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	URL               string
	APIKey, SecretKey schema.Secret
	Insecure          bool
	CAFile            string
	Project           string
	Region, Version   string
	// zone has no effect.
	zone string
}

const (
	keyURL    = "[Global] api-url"
	keyCAFile = "[Global] ca-file"
	envURL    = "CLOUDSTACK_API_URL"
)

type (
	option = schema.Option[Config]
	row    = schema.OptionRow
)

func text(key, env, help string, at func(*Config) *string, check func(string) error) option {
	return schema.StringOption(at, row{FileKey: "[Global] " + key, Env: env, Spec: schema.Spec{Help: help, Check: check}})
}

// Options is the table of options. The keys are those of CloudStack's own controller, and ca-file.
var Options = schema.Options[Config]{
	text("api-url", envURL, "Address of the API, such as https://cloud.example.com/client/api. Required.", func(c *Config) *string { return &c.URL }, nil),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.APIKey }, row{
		FileKey: "[Global] api-key", Env: "CLOUDSTACK_API_KEY", Required: true, Spec: schema.Spec{Help: "API key of the user."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.SecretKey }, row{
		FileKey: "[Global] secret-key", Env: "CLOUDSTACK_SECRET_KEY", Required: true, Spec: schema.Spec{Help: "Secret key of the user."},
	}),
	schema.BoolOption(func(c *Config) *bool { return &c.Insecure }, row{
		FileKey: "[Global] ssl-no-verify", Env: "CLOUDSTACK_SSL_NO_VERIFY", Spec: schema.Spec{
			Default: "false", Help: "Do not verify the certificate of the API.",
		},
	}),
	text("ca-file", "CLOUDSTACK_CA_FILE", "File with certificates that the API's may be signed by, in addition to the system's.",
		func(c *Config) *string { return &c.CAFile }, nil),
	text("project-id", "CLOUDSTACK_PROJECT_ID", "Project of the virtual machines, by ID or name; none means the account of the user.",
		func(c *Config) *string { return &c.Project }, nil),
	text("zone", "", "Accepted for compatibility, without effect: virtual machines say their zone.", func(c *Config) *string { return &c.zone }, nil),
	text("region", "CLOUDSTACK_REGION", "Region of all nodes; the name of their zone where it is not set.", func(c *Config) *string { return &c.Region }, checkLabel),
	text("version", "CLOUDSTACK_VERSION", "Version of CloudStack, such as 4.21.0.0; asked where it is not set. From 4.22 on, networks that may reach a load "+
		"balancer change in place.", func(c *Config) *string { return &c.Version }, checkVersion),
}

func checkLabel(v string) error {
	if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
		return errors.New("cannot be the value of a label: " + problems[0])
	}
	return nil
}

var versionForm = regexp.MustCompile(`^([0-9]{1,6})\.([0-9]{1,6})(\.[0-9A-Za-z.-]*)?$`)

func checkVersion(v string) error {
	if !versionForm.MatchString(v) {
		return errors.New("is not a version; use a form such as 4.21.0.0")
	}
	return nil
}

// parseConfig reads the options and reports all problems together.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	entries, err := schema.ReadINI(bytes.TrimPrefix(in.File, []byte("\xef\xbb\xbf")))
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	problems := []error{iniErr, err, c.checkURL(in)}
	_, err = c.trust().TLS()
	problems = append(problems, err)
	warnings = Options.Unknown(rest)
	if c.zone != "" {
		warnings = errors.Join(warnings, schema.WarnOfKey("[Global] zone", "has no effect: virtual machines say their zone"))
	}
	return c, warnings, errors.Join(problems...)
}

// checkURL checks the API's address. The value may contain a password and is not shown.
func (c Config) checkURL(in registry.Inputs) error {
	if c.URL == "" {
		return Options.Blame(in.Sources, keyURL, "", "is required and is not set")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Options.Blame(in.Sources, keyURL, "", `is not an address of the form "https://host/client/api"`)
	}
	if reason := schema.InsecureURL(c.URL, in.AllowInsecureEndpoints); reason != nil {
		return Options.Blame(in.Sources, keyURL, c.URL, reason.Error())
	}
	return nil
}

// trust returns the accepted certificates.
func (c Config) trust() restapi.Trust {
	return restapi.Trust{File: c.CAFile, FilePlace: "key " + keyCAFile, Insecure: c.Insecure}
}
