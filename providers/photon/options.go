package photon

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Config holds the provider's configuration.
type Config struct {
	Target, Project    string
	OverrideIP         bool
	Authentication     bool
	LoginFile          string
	Username, Password schema.Secret
	CAFile             string
	IgnoreCertificate  bool
	Dialect            string
	LegacyAddressTypes bool
	FlavorLabel        bool
	Zone, Region       string
	// vmID is only for kubelets.
	vmID string
}

const (
	defaultLoginFile = "/etc/kubernetes/pc_login_info"
	keyTarget        = "[Global] target"
	keyCAFile        = "[Global] caFile"
	keyIgnore        = "[Global] ignoreCertificate"
	envTarget        = "PHOTON_TARGET"

	dialectAuto, dialectOld, dialectInterim, dialectNew = "auto", "1.1", "interim", "1.2"
)

type (
	option = schema.Option[Config]
	row    = schema.OptionRow
)

func text(key, env, help string, at func(*Config) *string, check func(string) error) option {
	return schema.StringOption(at, row{FileKey: "[Global] " + key, Env: env, Spec: schema.Spec{Help: help, Check: check}})
}

func toggle(key, env, byDefault, help string, at func(*Config) *bool) option {
	return schema.BoolOption(at, row{FileKey: "[Global] " + key, Env: env, Spec: schema.Spec{Default: byDefault, Help: help}})
}

// Options starts with the keys of Kubernetes' former provider.
var Options = schema.Options[Config]{
	text("target", envTarget, "Address of the API, such as https://photon.example.com:443. Required.", func(c *Config) *string { return &c.Target }, nil),
	text("project", "PHOTON_PROJECT", "ID of the project with the virtual machines. Required.", func(c *Config) *string { return &c.Project }, checkSegment),
	toggle("overrideIP", "PHOTON_OVERRIDE_IP", "false", "Nodes are named after their addresses (kubelet's --hostname-override), and found by them.",
		func(c *Config) *bool { return &c.OverrideIP }),
	text("vmID", "", "Accepted for compatibility, without effect: it is kubelet's.", func(c *Config) *string { return &c.vmID }, nil),
	toggle("authentication", "PHOTON_AUTHENTICATION", "false", "Log in through Lightwave.", func(c *Config) *bool { return &c.Authentication }),
	text("loginFile", "PHOTON_LOGIN_FILE", "File with the user on its first line and the password on its second; "+defaultLoginFile+" where neither it nor user and password are set.",
		func(c *Config) *string { return &c.LoginFile }, nil),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Username }, row{
		FileKey: "[Global] username", Env: "PHOTON_USERNAME", Spec: schema.Spec{Help: "User, such as kube@photon.local, instead of the login file."},
	}),
	schema.SecretOption(func(c *Config) *schema.Secret { return &c.Password }, row{
		FileKey: "[Global] password", Env: "PHOTON_PASSWORD", Spec: schema.Spec{Help: "Password of the user."},
	}),
	text("caFile", "PHOTON_CA_FILE", "File with certificates that those of the API and of Lightwave may be signed by, in addition to the system's.",
		func(c *Config) *string { return &c.CAFile }, nil),
	toggle("ignoreCertificate", "PHOTON_IGNORE_CERTIFICATE", "false", "Do not verify certificates.", func(c *Config) *bool { return &c.IgnoreCertificate }),
	schema.EnumOption(func(c *Config) *string { return &c.Dialect }, row{FileKey: "[Global] dialect", Env: "PHOTON_DIALECT", Spec: schema.Spec{
		Default: dialectAuto, Choices: []string{dialectAuto, dialectOld, dialectInterim, dialectNew},
		Help: "Generation of the API: 1.1 and older, that of the SDK in Kubernetes, or 1.2; auto asks.",
	}}),
	toggle("legacyAddressTypes", "PHOTON_LEGACY_ADDRESS_TYPES", "false", "Addresses of interfaces with a MAC address of VMware's (00:50:56, 00:0c:29) are "+
		"external, as Kubernetes' own provider had it.", func(c *Config) *bool { return &c.LegacyAddressTypes }),
	toggle("flavorLabel", "PHOTON_FLAVOR_LABEL", "true", "The flavor of a virtual machine is the instance type of its Node.",
		func(c *Config) *bool { return &c.FlavorLabel }),
	text("zone", "PHOTON_ZONE", "Zone of all new Nodes.", func(c *Config) *string { return &c.Zone }, checkLabel),
	text("region", "PHOTON_REGION", "Region of all new Nodes.", func(c *Config) *string { return &c.Region }, checkLabel),
}

func checkLabel(v string) error {
	if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
		return errors.New("cannot be the value of a label: " + problems[0])
	}
	return nil
}

// checkSegment refuses values that would change the path.
func checkSegment(v string) error {
	if strings.ContainsAny(v, "/?#%") || v == "." || v == ".." {
		return errors.New("is not the ID of a project")
	}
	return nil
}

// parseConfig reads the options and reports all faults together.
func parseConfig(in registry.Inputs) (c Config, warnings, err error) {
	entries, err := schema.ReadINI(in.File)
	if err != nil {
		return c, nil, err
	}
	keys, rest, iniErr := Options.FromINI(entries)
	in.Keys = keys
	c, err = Options.Parse(in.Sources)
	problems := []error{iniErr, err, Options.Refused(rest)} // the former provider refuses these too
	problems = append(problems, c.understandTarget(len(entries) == 0, in))
	if c.Authentication {
		_, err := c.login()
		problems = append(problems, err)
	}
	_, err = c.trust().TLS()
	problems = append(problems, err)
	if c.vmID != "" {
		warnings = schema.WarnOfKey("[Global] vmID", "has no effect: it is kubelet's")
	}
	return c, warnings, errors.Join(problems...)
}

// understandTarget checks the address and the project, and normalises the address.
func (c *Config) understandTarget(noFile bool, in registry.Inputs) error {
	target, err := url.Parse(c.Target)
	switch {
	case c.Target == "" && noFile:
		return schema.BlameKey("", "", "is missing or empty; name the file with the section [Global]")
	case c.Target == "":
		return Options.Blame(in.Sources, keyTarget, "", "is required and is not set")
	case err != nil || target.Host == "" || !slices.Contains([]string{"http", "https"}, target.Scheme), target.User != nil, target.RawQuery != "":
		return Options.Blame(in.Sources, keyTarget, "", `is not an address of the form "https://host:port"`)
	}
	c.Target = target.Scheme + "://" + target.Host + strings.TrimSuffix(strings.TrimRight(target.Path, "/"), "/v1")
	if reason := schema.InsecureURL(c.Target, in.AllowInsecureEndpoints); reason != nil {
		return Options.Blame(in.Sources, keyTarget, c.Target, reason.Error())
	}
	if c.Project == "" {
		return Options.Blame(in.Sources, "[Global] project", "", "is required and is not set")
	}
	return nil
}

type login struct{ user, password string }

// login returns the configured user and password, or those of the file, which is read each time.
func (c Config) login() (login, error) {
	if !c.Username.IsZero() || !c.Password.IsZero() {
		l := login{c.Username.Reveal(), c.Password.Reveal()}
		return l, l.check("username and password of the configuration")
	}
	path := cmp.Or(c.LoginFile, defaultLoginFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return login{}, &schema.Problem{
			Place: "login file", Value: path, Reason: "cannot be read: " + err.Error() + "; write the user into its first line and the password into its second, or set username and password",
		}
	}
	lines := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	l := login{user: strings.TrimSpace(lines[0])}
	if len(lines) > 1 {
		l.password = strings.TrimSpace(lines[1])
	}
	return l, l.check(path)
}

func (l login) check(place string) error {
	switch {
	case l.user == "":
		return &schema.Problem{Place: place, Reason: "the user is missing"}
	case l.password == "":
		return &schema.Problem{Place: place, Reason: "the password is missing"}
	}
	return nil
}

// trust returns the accepted certificates.
func (c Config) trust() restapi.Trust {
	return restapi.Trust{File: c.CAFile, FilePlace: "key " + keyCAFile, Insecure: c.IgnoreCertificate}
}
