// Package registry holds the descriptions of cloud providers, and opens the selected one.
//
// A provider registers a description in its init function; package linked decides by build tags which providers are part of the binary. The
// registry imports no provider.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Permission is a right that a provider's credential needs.
type Permission struct {
	// For names the purpose, such as "nodes".
	For string `json:"for"`
	// Needs are the rights, with the cloud's own names.
	Needs []string `json:"needs"`
	// Only says when it is needed; "" means always.
	Only string `json:"only,omitempty"`
	// Beyond are those of Needs that the cloud's own controller does not need, so that its credential may lack them.
	Beyond []string `json:"beyond,omitempty"`
	// Without says what happens if those are refused.
	Without string `json:"without,omitempty"`
}

// Inputs holds all external input of a provider.
type Inputs struct {
	schema.Sources
	// Version of this program, for the user agent.
	Version string
	// Guard says which Nodes are ours and when one may be deleted; nil means the defaults.
	Guard *guard.Policy
	// ClusterCIDR and AllocateNodeCIDRs are the framework's settings of these names, for providers that assign pod ranges to nodes.
	ClusterCIDR       string
	AllocateNodeCIDRs bool
	// CIDRAllocator is --cidr-allocator-type; empty means the framework's default.
	CIDRAllocator string
	// Dial opens the connections to the cloud's API; nil means the system's network. Tests use it for simulators in memory.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Adopt says which load balancers without a mark a Service may have; empty means AdoptEvidence.
	Adopt Adoption
	// Defaults are default annotations for Services; nil if there are none.
	Defaults *defaults.Source
}

// Provider describes one cloud.
type Provider struct {
	// Name is the value of --cloud-provider: lower-case letters and digits, because it is also a folder and a build tag.
	Name string
	// Aliases are other values of --cloud-provider for this cloud, such as the name of its own controller. Logs, metrics, folders and the
	// chart use Name only.
	Aliases []string
	// Title is the cloud's name in prose.
	Title string
	// Stability is alpha, beta or stable.
	Stability string
	// SDK is the Go module that talks to the cloud; empty for a client of the provider's own.
	SDK string
	// InCluster is set if there is no cloud outside of the cluster: a Service has an address, which objects of the cluster record. There is
	// then no API but that of Kubernetes, no credential and no simulator.
	InCluster bool
	// ProviderIDPrefixes are the beginnings of spec.providerID of this cloud's nodes, such as "digitalocean://". A provider without nodes
	// has none, and accepts every Node of the cluster.
	ProviderIDPrefixes []string
	// InstanceKey returns the same key for all forms of an instance's provider ID, including those without a prefix if the cloud's own
	// controller accepts them, and "" for an ID that is not the provider's. nil means the ID itself, if it has one of the prefixes.
	InstanceKey func(providerID string) string
	Features    Features
	// InstanceTags describes the tags of instances, which --node-labels-from-tags makes labels of.
	InstanceTags InstanceTags
	// NodeLabels are labels outside of Kubernetes' names by which the provider does something else with a Node, or that it writes itself: no
	// tag gives them.
	NodeLabels []string
	// Extras name in a few words the provider's features besides nodes, load balancers and routes.
	Extras []string
	// Controllers are the provider's own controllers. The cloud starts them as a ControllerRunner.
	Controllers []Controller
	// PodRanges is set if the provider itself assigns pod ranges with --allocate-node-cidrs, without a controller of its own.
	PodRanges   bool
	Options     []schema.OptionRow
	Annotations []schema.AnnotationRow
	// Unmanaged returns why a Node with the provider's ID is not its node, or ""; nil if the ID decides.
	Unmanaged func(*v1.Node) string
	// Fields are fields of Services with which the cloud serves portable annotations; portable.FieldLoadBalancerIP is the only one.
	Fields []schema.AnnotationRow
	// ServiceFields say how the fields of a Service's spec are handled, in Provider.CheckService and the reconciliation.
	ServiceFields schema.Fields
	// FieldOptions returns the options that select rows of ServiceFields, by their names there; nil if there are none.
	FieldOptions func(Inputs) map[string]string
	// Unserved returns faults of portable annotations that depend on options, which rows cannot express. It gets the translated Service
	// with the portable annotations; nil if nothing depends on options.
	Unserved func(Inputs, *v1.Service) error
	// LeavesAlone returns the function that reports whether the provider leaves a Service to another controller, so that nothing is
	// reported about it or written on it; nil if it leaves none.
	LeavesAlone func(Inputs) func(*v1.Service) bool
	// ServedElsewhere is the same for one annotation, whose values in OneOf leave the Service to another controller, so that the admission
	// policy knows it too.
	ServedElsewhere *schema.Where
	// Handover: its load balancers can get the marks of a restored cluster, as contract.LoadBalancerHandover does.
	Handover bool
	// Domains are those of annotations that no other program reads on Services, so that each unknown one is reported.
	Domains []string
	// Foreign are annotations of another controller for the same cloud, which have no effect, and what serves the same here.
	Foreign map[string]string
	// Records are annotations that the provider writes on Services for itself. They are in no table, because nobody else sets them.
	Records []string
	// Permissions are those that the credential needs, grouped by purpose.
	Permissions []Permission
	// Installation says what installing the provider takes.
	Installation Installation
	// Events are those that this provider alone writes; the others are in package events.
	Events []events.Row
	// Sections are further generated parts of the provider's page, by the name in their markers.
	Sections map[string]string
	// Limits are the cloud's maxima; its simulator enforces the same rows.
	Limits limits.Table
	// Routes reports whether the inputs ask for routes; nil means that Features.Routes decides alone.
	Routes func(Inputs) bool
	// Warnings reports inputs without effect, such as unknown keys of the cloud config; nil if there are none.
	Warnings func(Inputs) error
	// Validate checks the inputs without network access, and reports all problems together.
	Validate func(Inputs) error
	// CheckService checks a Service without network access: err holds settings that its reconciliation would refuse, warnings those that it
	// would ignore. Missing required options are no fault of a Service. nil if there is nothing to check.
	CheckService func(Inputs, *v1.Service) (warnings, err error)
	// New creates the cloud without starting anything, and without network access unless an option demands a check.
	New func(Inputs) (cloudprovider.Interface, error)
}

// CloudAPI is implemented by clouds that can check their API.
type CloudAPI interface {
	// CheckAPI makes a cheap authenticated read, and checks settings that only the cloud can judge.
	CheckAPI(ctx context.Context) error
	// APIHealth returns nil if the last call succeeded, else the failure and when it began. It makes no call.
	APIHealth() error
}

// SettingsChecker is implemented by clouds with settings that need calls to check, which a running program need not make. The command
// preflight makes them.
type SettingsChecker interface {
	CheckSettings(ctx context.Context) error
}

// ControllerRunner is implemented by clouds with controllers of their own that --controllers switches.
type ControllerRunner = guard.ControllerRunner

// Clock is implemented by clouds that know the time.
type Clock interface {
	// ClockSkew returns how far this machine's clock is ahead of the cloud's, and whether that is known. It makes no call.
	ClockSkew() (time.Duration, bool)
}

// Registry is a set of providers with unique names and provider ID prefixes.
type Registry struct {
	providers map[string]Provider
}

var (
	validName  = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	validAlias = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
)

// allNames returns all values of --cloud-provider for a cloud.
func (p Provider) allNames() []string { return append([]string{p.Name}, p.Aliases...) }

// Add adds a provider. It refuses incomplete descriptions and clashes with another provider.
func (r *Registry) Add(p Provider) error {
	switch {
	case !validName.MatchString(p.Name):
		return fmt.Errorf("registering provider %q: the name must be lower-case letters and digits", p.Name)
	case p.Validate == nil || p.New == nil:
		return fmt.Errorf("registering provider %q: Validate and New must be set", p.Name)
	case p.Features.Instances == Done && len(p.ProviderIDPrefixes) == 0:
		return fmt.Errorf("registering provider %q: at least one provider ID prefix must be declared", p.Name)
	}
	for n, alias := range p.Aliases {
		if !validAlias.MatchString(alias) || alias == p.Name || slices.Contains(p.Aliases[:n], alias) {
			return fmt.Errorf("registering provider %q: the alias %q must be another name, once, of lower-case letters, digits and dashes", p.Name, alias)
		}
	}
	for _, other := range r.providers {
		if err := p.findClash(other); err != nil {
			return err
		}
	}
	if r.providers == nil {
		r.providers = map[string]Provider{}
	}
	r.providers[p.Name] = p
	return nil
}

// findClash returns the error of two conflicting providers.
func (p Provider) findClash(other Provider) error {
	for _, name := range p.allNames() {
		if slices.Contains(other.allNames(), name) {
			return fmt.Errorf("registering provider %q: the name is taken: %q is provider %q", p.Name, name, other.Name)
		}
	}
	for _, a := range other.ProviderIDPrefixes {
		for _, b := range p.ProviderIDPrefixes {
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return fmt.Errorf("registering provider %q: provider ID prefix %q clashes with %q of provider %q", p.Name, b, a, other.Name)
			}
		}
	}
	return nil
}

// Names returns the sorted names of the set.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.providers)) }

// Providers returns the descriptions of the set, sorted by name.
func (r *Registry) Providers() []Provider {
	all := make([]Provider, 0, len(r.providers))
	for _, name := range r.Names() {
		all = append(all, r.providers[name])
	}
	return all
}

// Lookup returns a provider by the value of --cloud-provider, which may be an alias. If there is exactly one provider, "" means that one.
// The error is one line with the names, and the one that was probably meant.
func (r *Registry) Lookup(name string) (Provider, error) {
	names := r.Names()
	switch {
	case len(names) == 0:
		return Provider{}, errors.New("this program was built without any cloud provider; build it without the tag slim or with a tag provider_<name>")
	case name == "" && len(names) == 1:
		return r.providers[names[0]], nil
	case name == "":
		return Provider{}, fmt.Errorf("--cloud-provider is missing; linked providers: %s", strings.Join(names, ", "))
	}
	if p, ok := r.providers[name]; ok {
		return p, nil
	}
	known := names
	for _, p := range r.Providers() {
		if slices.Contains(p.Aliases, name) {
			return p, nil
		}
		known = append(known, p.Aliases...)
	}
	msg := fmt.Sprintf("unknown --cloud-provider %q; linked providers: %s", name, strings.Join(names, ", "))
	if near := schema.Nearest(name, known); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return Provider{}, errors.New(msg)
}

// FlagClashes returns an error for every flag of a provider that is already in taken, or that it declares twice. Two providers may declare
// the same flag: it is that of the selected provider.
func (r *Registry) FlagClashes(taken func(name string) bool) error {
	var problems []error
	for _, p := range r.Providers() {
		own := map[string]bool{}
		for _, o := range p.Options {
			switch {
			case o.Flag == "":
			case taken(o.Flag):
				problems = append(problems, fmt.Errorf("flag --%s of provider %q already belongs to the framework or to a command", o.Flag, p.Name))
			case own[o.Flag]:
				problems = append(problems, fmt.Errorf("flag --%s is declared twice by provider %q", o.Flag, p.Name))
			}
			own[o.Flag] = true
		}
	}
	return errors.Join(problems...)
}

// Open creates the cloud of provider name inside the guard. No cloud is used without the guard.
func (r *Registry) Open(name string, in Inputs) (cloudprovider.Interface, error) {
	p, err := r.Lookup(name)
	if err != nil {
		return nil, err
	}
	if err := p.Validate(in); err != nil {
		return nil, err
	}
	cloud, err := p.New(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if cloud == nil {
		return nil, fmt.Errorf("%s: the provider returned no cloud", p.Name)
	}
	policy := guard.DefaultPolicy()
	if in.Guard != nil {
		policy = *in.Guard
	}
	if _, can := cloud.(contract.InstanceVerifier); policy.VerifyInstances && !can {
		return nil, fmt.Errorf("--verify-node-instances: provider %s cannot verify instances; leave it out", p.Name)
	}
	return guard.Wrap(cloud, guard.Facts{
		Provider: p.Name, ProviderIDPrefixes: p.ProviderIDPrefixes, InstanceKey: p.InstanceKey, Unmanaged: p.Unmanaged,
		ClusterCIDR: in.ClusterCIDR, Policy: policy,
		Translate:       func(s *v1.Service) portable.Translation { return Translate(p, in, s) },
		FindIneffective: func(s *v1.Service) error { return FindIneffective(p, in, s) },
	}), nil
}

// linked holds the providers that are part of this binary.
var linked Registry

// Linked returns the set of providers that are part of this binary.
func Linked() *Registry { return &linked }

// Register adds a provider to this binary, and returns the framework's factory for all of the provider's names. It panics on a clash, which
// a test over all providers excludes.
func Register(p Provider) cloudprovider.Factory {
	if err := linked.Add(p); err != nil {
		panic(err)
	}
	return Factory(p)
}

// Maker converts a constructor to a provider's New.
func Maker[C cloudprovider.Interface](make func(Inputs) (C, error)) func(Inputs) (cloudprovider.Interface, error) {
	return func(in Inputs) (cloudprovider.Interface, error) {
		cloud, err := make(in)
		if err != nil {
			return nil, err
		}
		return cloud, nil
	}
}

// Factory adapts a description to the framework's plugin registry. The framework hands over the content of
// --cloud-config alone; options from flags need Open.
func Factory(p Provider) cloudprovider.Factory {
	return func(config io.Reader) (cloudprovider.Interface, error) {
		in := Inputs{Sources: schema.Sources{LookupEnv: schema.Environment, EnvNames: schema.EnvironmentNames}}
		if config != nil {
			data, err := io.ReadAll(config)
			if err != nil {
				return nil, fmt.Errorf("reading the cloud config: %w", err)
			}
			in.File = data
		}
		var one Registry
		if err := one.Add(p); err != nil {
			return nil, err
		}
		return one.Open(p.Name, in)
	}
}
