package xcloud

import (
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	Token schema.Secret
	URL   string
}

// Options is the table of the provider's options, with the names that the cloud's own controller uses.
var Options = schema.Options[Config]{
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Token }, schema.OptionRow{
		Env: "XCLOUD_TOKEN", Required: true,
		Spec: schema.Spec{Help: "API token. XCLOUD_TOKEN_FILE names a file that holds it, which is read again when it changes."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.URL }, schema.OptionRow{
		Env: "XCLOUD_URL", FileKey: "apiURL", Spec: schema.Spec{Default: "https://api.xcloud.example", Help: "Base URL of the API."},
	}),
}

// parseConfig reads the options and reports all faults at once.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	c, err = Options.Parse(in.Sources)
	return c, nil, err
}
