package vsphere

import (
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config is what the provider is configured by.
type Config struct {
	Token schema.Secret
	URL   string

	NSXT         nsxtConfig
	LoadBalancer loadBalancerConfig
	Route        routeConfig
}

// Options is the table of the provider's options, with the names that the cloud's own controller uses.
var Options = schema.Options[Config]{
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Token }, schema.OptionRow{
		Env: "VSPHERE_TOKEN", Required: true,
		Spec: schema.Spec{Help: "API token. VSPHERE_TOKEN_FILE names a file that holds it, which is read again when it changes."},
	}),
	schema.URLOption(func(c *Config) *string { return &c.URL }, schema.OptionRow{
		Env: "VSPHERE_URL", FileKey: "apiURL", Spec: schema.Spec{Default: "https://api.vsphere.example", Help: "Base URL of the API."},
	}),
}

// parseConfig reads the options and reports everything that is wrong with them at once.
func parseConfig(in registry.Inputs) (Config, error) { return Options.Parse(in.Sources) }
