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

// Installation describes how to install a provider. The chart, its schema, the pages and the builds are generated from it.
type Installation struct {
	// Credentials are the secrets for calling the cloud's API, one row each. They are mounted as files.
	Credentials []Credential
	// Config describes the file of --cloud-config.
	Config CloudConfig
	// ReadsSecrets says why the provider reads Secrets of the cluster; "" means that it reads none.
	ReadsSecrets string
	// SystemRights are the rights in the namespace kube-system that serving Services needs.
	SystemRights []Right
	// NodeRights and ServiceRights are the provider's cluster-wide rights for Nodes and Services besides reading them. The framework's
	// controllers have rights of their own.
	NodeRights, ServiceRights []Right
	// Secret is the name of the Secret in the examples: that of the cloud's own manifests, if they have one.
	Secret string
	// Set are further values in the example of the installation, such as "options.REGION=nyc3".
	Set []string
	// Notes are paragraphs of Markdown below the example. Links lead from the folder docs.
	Notes []string
	// Migration describes the move from the cloud's own controller.
	Migration Migration
	// MaxSlimMiB limits the size of the program with this cloud alone, stripped, for linux/amd64.
	MaxSlimMiB int
}

// Credential is a secret, or a part of one, that the program gets as a file.
type Credential struct {
	// Name is the key in the chart's values credentials.keys and credentials.values.
	Name string
	// Key is the usual key in the Secret: that of the cloud's own manifests, if they have one.
	Key string
	// Env is the environment variable with the path of the file; "" if the cloud config contains the path.
	Env string
	// Optional credentials are given all together or not at all: the program also runs without them, such as with a role.
	Optional bool
	// Help describes it.
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
	// HoldsCredentials is set if the file is itself a secret. The chart then keeps it in a Secret.
	HoldsCredentials bool
	// Required is set if an installation needs the file. Otherwise the program starts without it.
	Required bool
	// AnyCase is set if the case of sections and keys is ignored.
	AnyCase bool
	// Sections are those with a name: [Kind "name"] in INI, a mapping of names to keys in YAML.
	Sections []NamedSection
	// Others is a pattern for further top-level keys, which are accepted with any value.
	Others string
	// Example is one to begin with, as a value of the chart without its outer braces: "Global: {auth-url: https://keystone/v3}".
	Example string
}

// NamedSection is a kind of named sections of a cloud config.
type NamedSection struct {
	Kind string
	Keys []string
	// HoldsCredentials is set if one of the keys is a secret.
	HoldsCredentials bool
}

// ConfigCredential is the name of a cloud config with credentials in the chart's values.
const ConfigCredential = "cloudConfig"

// Migration describes the move from the cloud's own controller, for the page about migrating.
type Migration struct {
	// Credentials says whether existing credentials can be used.
	Credentials string
	// ClusterName says where the cluster's name is used.
	ClusterName string
	// Written says which objects are written at the move.
	Written string
	// Notes are further paragraphs.
	Notes []string
	// Origin has what the cloud's own manifest or chart installs. Without workloads it was a part of Kubernetes.
	Origin Origin
}

// Origin is an installation of the cloud's own controller.
type Origin struct {
	Namespace string
	// Workloads are stopped at the migration, such as "daemonset/aws-cloud-controller-manager".
	Workloads []string
	// Replicas are those of its Deployments; 0 stands for 1.
	Replicas int
	// Lease is the name of the one by which its pods choose a leader. Without it the workloads are stopped before ours are made.
	Lease string
	// Secret holds the credentials, and stays. Keys are those that differ from ours, such as "token=apiToken".
	Secret string
	Keys   []string
	// ConfigMap holds the cloud config by the key ConfigKey.
	ConfigMap, ConfigKey string
	// Flags are those of its manifest. Before says what has to be done first.
	Flags  []OldFlag
	Before string
	// Set are values of the chart for what comes from it, in place of Installation.Set.
	Set []string
}

// OldFlag is a flag of the cloud's own controller. With neither Value nor Why the chart gives the same one.
type OldFlag struct {
	Flag string
	// Value are values of the chart that take its place, with "," between them; Why says why nothing has to, or where it depends.
	Value, Why string
}

// Controller is a provider's own controller, enabled by --controllers. It is off by default.
type Controller struct {
	Name string
	// Aliases are other names for it in --controllers.
	Aliases []string
	// PodRanges is set for the controller that assigns pod ranges to nodes: it is on by default, and runs if --allocate-node-cidrs is set.
	PodRanges bool
	// Classes are further classes of Services that are served while it is on.
	Classes []string
	// Unneeded says why it has no effect; the name is accepted so that existing arguments work.
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
	// Names are the names of the objects; none means all.
	Names []string `json:"names,omitempty"`
	// NamesOf are options whose values are further names, and NamespacesOf those whose values are further namespaces.
	NamesOf      []string `json:"namesOf,omitempty"`
	NamespacesOf []string `json:"namespacesOf,omitempty"`
}

var (
	validCredential = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	validKey        = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

// Missing returns all gaps and contradictions of the description. Providers in tests may be incomplete; a test checks all linked ones.
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

// credentialProblems compares the credentials with the options that read them.
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

// configProblems compares the description of the cloud config with the options.
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

// fileKeys counts the options with keys in the cloud config, and among those the ones in sections and the secrets.
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
