package registry

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Installation says what installing a provider takes. The chart, its schema, the pages and the builds follow from it.
type Installation struct {
	// Credentials are the secrets for calling the cloud's API, one row each. They are mounted as files.
	Credentials []Credential
	// Config describes the file of --cloud-config.
	Config CloudConfig
	// ReadsSecrets says for what the provider reads Secrets of the cluster; empty means that it reads none.
	ReadsSecrets string
	// SystemRights are the rights in the namespace kube-system that serving Services needs.
	SystemRights []Right
	// NodeRights and ServiceRights are the provider's cluster-wide rights for Nodes and Services besides reading them. The framework's
	// controllers have rights of their own.
	NodeRights, ServiceRights []Right
	// Secret is the name of the Secret in the examples: that of the cloud's own manifests, where they have one.
	Secret string
	// Set are further values in the example of the installation, such as "options.REGION=nyc3".
	Set []string
	// Notes are paragraphs of Markdown below the example. Links lead from the folder docs.
	Notes []string
	// Migration says what coming from the cloud's own controller means.
	Migration Migration
	// MaxSlimMiB limits the size of the program with this cloud alone, stripped, for linux/amd64.
	MaxSlimMiB int
}

// Credential is one secret, or one part of one, that is given to the program as a file.
type Credential struct {
	// Name is the key in the chart's values credentials.keys and credentials.values.
	Name string
	// Key is the usual key of the Secret: that of the cloud's own manifests, where they have one.
	Key string
	// Env is the environment variable that gets the path of the file; empty where the cloud config names the path.
	Env string
	// Optional credentials are given all together or not at all: the program also runs without, such as by a role.
	Optional bool
	// Help says what it is.
	Help string
}

// ConfigFormat is the syntax of a cloud config.
type ConfigFormat string

// The syntaxes that the chart can write.
const (
	// NoConfig means that the provider reads no cloud config.
	NoConfig ConfigFormat = ""
	// INI is the syntax of git's configuration: sections with keys. Options have the file key "[Section] key".
	INI ConfigFormat = "INI"
	// YAML has keys; an option's file key "a.b" is key b in the mapping a.
	YAML ConfigFormat = "YAML"
)

// CloudConfig describes the file of --cloud-config.
type CloudConfig struct {
	Format ConfigFormat
	// File is its usual name, and its key in a Secret or ConfigMap.
	File string
	// HoldsCredentials is set where the file is itself a secret. The chart then keeps it in a Secret.
	HoldsCredentials bool
	// Required is set where an installation has the file. Elsewhere the program starts without it.
	Required bool
	// AnyCase is set where sections and keys count in any case.
	AnyCase bool
	// Sections are those with a name: [Kind "name"] in INI, a mapping of names to keys in YAML.
	Sections []NamedSection
	// Others is a pattern of further keys at the top that are taken, whatever they hold.
	Others string
	// Example is one part of it, as a value of the chart, such as "Global: {auth-url: https://keystone/v3}".
	Example string
}

// NamedSection is a kind of sections of a cloud config of which there may be several.
type NamedSection struct {
	Kind string
	Keys []string
	// HoldsCredentials is set where one of the keys is a secret.
	HoldsCredentials bool
}

// ConfigCredential is the name by which the chart's values call a cloud config that holds credentials.
const ConfigCredential = "cloudConfig"

// Migration says what coming from the cloud's own controller means, for the page about migrating.
type Migration struct {
	// Credentials says what happens to the credentials that are there.
	Credentials string
	// ClusterName says what the cluster's name is part of.
	ClusterName string
	// Written says what is written at the change.
	Written string
	// Notes are further paragraphs.
	Notes []string
}

// Controller is one that --controllers names beside the framework's. It is off unless it is named.
type Controller struct {
	Name string
	// Aliases are other names that --controllers takes for it.
	Aliases []string
	// PodRanges is set for the one that gives nodes their pod ranges: it is on unless --controllers names it off, and runs where
	// --allocate-node-cidrs is set.
	PodRanges bool
	// Classes are those of Services that are served in addition while it is on.
	Classes []string
	// Unneeded says why it has no effect; the name is accepted, so that existing arguments start.
	Unneeded string
	// Rights are its rights in the cluster besides reading nodes and Services.
	Rights []Right
}

// Right is a rule of a role.
type Right struct {
	// Group is the API group of the objects.
	Group     string   `json:"group,omitempty"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
	// Names are those of the objects; none means all.
	Names []string `json:"names,omitempty"`
	// NamesOf are options whose values are further names, and NamespacesOf those whose values are further namespaces.
	NamesOf      []string `json:"namesOf,omitempty"`
	NamespacesOf []string `json:"namespacesOf,omitempty"`
}

var (
	validCredential = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	validKey        = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

// Missing returns everything that the description lacks or contradicts, all at once. Providers of tests may be incomplete; a
// test over the linked ones excludes it there.
func (p Provider) Missing() error {
	var problems []error
	missing := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("provider "+p.Name+": "+format, args...))
		}
	}
	i := p.Installation
	missing(p.Title == "", "Title is empty; write the cloud's name")
	missing(!slices.Contains([]string{"alpha", "beta", "stable"}, p.Stability), "Stability %q is not one of alpha, beta, stable", p.Stability)
	missing(len(p.Permissions) == 0 && !p.InCluster, "Permissions are empty; name the rights that the credential needs")
	missing(i.MaxSlimMiB <= 0, "Installation.MaxSlimMiB is empty; limit the size of the slim program")
	missing(i.Migration.ClusterName == "", "Installation.Migration.ClusterName is empty; say what the cluster's name is part of")
	missing(i.Migration.Written == "", "Installation.Migration.Written is empty; say what is written when the cloud's own controller is replaced")
	missing(i.Migration.Credentials == "", "Installation.Migration.Credentials is empty; say what happens to the credentials that are there")
	missing(i.Secret == "" && (i.Config.HoldsCredentials || len(i.Credentials) > 0), "Installation.Secret is empty; name the Secret of the examples")
	for _, err := range slices.Concat(p.credentialProblems(), p.configProblems()) {
		missing(true, "%w", err)
	}
	return errors.Join(problems...)
}

// credentialProblems holds the rows of credentials against the options that read them.
func (p Provider) credentialProblems() []error {
	var problems []error
	names, keys := map[string]bool{ConfigCredential: true}, map[string]bool{}
	served := map[string]bool{}
	for _, c := range p.Installation.Credentials {
		switch {
		case !validCredential.MatchString(c.Name):
			problems = append(problems, fmt.Errorf("credential %q: Name must be a lower-case letter and letters or digits", c.Name))
		case names[c.Name] || keys[c.Key]:
			problems = append(problems, fmt.Errorf("credential %s: its name or its key %q is taken", c.Name, c.Key))
		case !validKey.MatchString(c.Key) || c.Help == "":
			problems = append(problems, fmt.Errorf("credential %s: Key must be a key of a Secret, and Help say what it is", c.Name))
		case c.Env != "" && !slices.ContainsFunc(p.Options, func(o schema.OptionRow) bool { return o.Env != "" && o.EnvOfFile() == c.Env }):
			problems = append(problems, fmt.Errorf("credential %s: no option reads the environment variable %s", c.Name, c.Env))
		}
		names[c.Name], keys[c.Key], served[c.Env] = true, true, true
	}
	for _, o := range p.Options {
		if o.Kind == schema.KindSecret && o.Required && o.FileKey == "" && !served[o.EnvOfFile()] {
			problems = append(problems, fmt.Errorf("no credential serves the required option %s", o.Name()))
		}
	}
	return problems
}

// configProblems holds the description of the cloud config against the options that it may have.
func (p Provider) configProblems() []error {
	var problems []error
	c := p.Installation.Config
	keys, sections, secrets := p.fileKeys()
	switch {
	case c.Format == NoConfig && (!reflect.DeepEqual(c, CloudConfig{}) || keys > 0):
		problems = append(problems, errors.New("Installation.Config has no Format, but options have file keys, or its other fields are set"))
	case c.Format != NoConfig && (!validKey.MatchString(c.File) || c.Example == ""):
		problems = append(problems, errors.New("Installation.Config lacks File, which must be a key of a Secret, or Example"))
	case c.Format == INI && sections != keys:
		problems = append(problems, errors.New(`Installation.Config is INI, but file keys are not of the form "[Section] key"`))
	case c.Format == YAML && sections > 0:
		problems = append(problems, errors.New(`Installation.Config is YAML, but file keys are of the form "[Section] key"`))
	case !c.HoldsCredentials && secrets > 0:
		problems = append(problems, errors.New("options that are secrets have file keys; set Installation.Config.HoldsCredentials"))
	}
	return problems
}

// fileKeys counts the options with keys in the cloud config, and of those the ones in sections and the secrets.
func (p Provider) fileKeys() (keys, sections, secrets int) {
	for _, o := range p.Options {
		if o.FileKey == "" {
			continue
		}
		keys++
		if strings.HasPrefix(o.FileKey, "[") {
			sections++
		}
		if o.Kind == schema.KindSecret {
			secrets++
		}
	}
	return keys, sections, secrets
}
