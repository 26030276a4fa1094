// Package registry knows what each cloud provider tells about itself, and opens the one that runs.
//
// A provider registers a description in its init function; package linked decides by build tags which providers are
// part of the binary. The registry imports no provider.
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

	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Permission is a right that a provider's credential needs.
type Permission struct {
	// For says what needs it, such as "nodes".
	For string `json:"for"`
	// Needs are the rights by the cloud's own names.
	Needs []string `json:"needs"`
	// Only says when it is needed; empty means always.
	Only string `json:"only,omitempty"`
	// Beyond are those of Needs that the cloud's own controller does without, so that a credential made for it lacks them.
	Beyond []string `json:"beyond,omitempty"`
	// Without says what happens where those are refused.
	Without string `json:"without,omitempty"`
}

// Inputs is everything from outside that a provider is made of.
type Inputs struct {
	schema.Sources
	// Version of this program, for the user agent.
	Version string
	// Guard says which Nodes are ours and when one may be deleted; nil means the defaults.
	Guard *guard.Policy
	// ClusterCIDR and AllocateNodeCIDRs are the framework's settings of these names, for providers that give nodes their
	// pod ranges.
	ClusterCIDR       string
	AllocateNodeCIDRs bool
	// CIDRAllocator is --cidr-allocator-type; empty means the framework's default.
	CIDRAllocator string
	// Dial opens the connections to the cloud's API; nil means the system's network. Tests reach simulators in memory by it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Adopt says which load balancers without a mark a Service may have; empty means AdoptEvidence.
	Adopt Adoption
	// Defaults are annotations for Services that have none of their own; nil where there are none.
	Defaults *defaults.Source
}

// Provider describes one cloud.
type Provider struct {
	// Name is the value of --cloud-provider: lower-case letters and digits, because it is also a folder and a build tag.
	Name string
	// Aliases are other values of --cloud-provider that mean this cloud, such as the name of its own controller. Nothing else of the program
	// has them: the name is what logs, metrics, folders and the chart say.
	Aliases []string
	// Title is the cloud's name in prose.
	Title string
	// Stability is alpha, beta or stable.
	Stability string
	// SDK is the Go module that talks to the cloud; empty for a client of the provider's own.
	SDK string
	// InCluster is set where there is no cloud outside of the cluster: what a Service has is an address, which objects of the cluster
	// record. There is then no API but that of Kubernetes, no credential and no simulator.
	InCluster bool
	// ProviderIDPrefixes are the beginnings of spec.providerID of this cloud's nodes, such as "digitalocean://". A provider without
	// nodes has none, and takes every Node for one of its cluster.
	ProviderIDPrefixes []string
	// InstanceKey returns what identifies the instance behind a provider ID in whichever of its forms, also without a prefix
	// where the cloud's own controller accepts that, and "" for one that is not the provider's. nil: the ID as it is, where it
	// has one of the prefixes.
	InstanceKey func(providerID string) string
	Features    Features
	// Extras name in a few words what the provider does beside nodes, load balancers and routes.
	Extras []string
	// Controllers are those beside the framework's. The cloud starts them as a ControllerRunner.
	Controllers []Controller
	// PodRanges is set where the provider itself gives nodes their pod ranges with --allocate-node-cidrs, and no controller of its own does.
	PodRanges   bool
	Options     []schema.OptionRow
	Annotations []schema.AnnotationRow
	// Unmanaged says why a Node with the provider's ID is none of its nodes, and "" for one that is; nil where the ID decides.
	Unmanaged func(*v1.Node) string
	// Fields are fields of Services by which the cloud serves portable annotations; portable.FieldLoadBalancerIP is the only one.
	Fields []schema.AnnotationRow
	// ServiceFields say what becomes of what the spec of a Service asks for. Provider.CheckService and the reconciliation judge by them.
	ServiceFields schema.Fields
	// FieldOptions are options by which rows of ServiceFields are chosen, under the names there; nil where none is.
	FieldOptions func(Inputs) map[string]string
	// Unserved says what is wrong with portable annotations that rows cannot tell, because it depends on options. It gets the Service
	// as it was translated, which has the portable annotations as well; nil where nothing depends on options.
	Unserved func(Inputs, *v1.Service) error
	// LeavesAlone returns what reports whether the provider leaves a Service to another controller, so that nothing is said about it and
	// the framework writes nothing on it; nil where it leaves none.
	LeavesAlone func(Inputs) func(*v1.Service) bool
	// ServedElsewhere says the same by one annotation, whose values in OneOf leave the Service to another controller, so that the
	// admission policy knows it as well.
	ServedElsewhere *schema.Where
	// Handover: its load balancers can be given the marks of a restored cluster, as guard.LoadBalancerHandover does.
	Handover bool
	// Records are annotations that the provider writes on Services for itself, and that are in no table, because nobody else sets them.
	Records []string
	// Permissions are those that the credential needs, grouped by purpose.
	Permissions []Permission
	// Installation says what installing the provider takes.
	Installation Installation
	// Events are those that this provider alone writes; the others are in package events.
	Events []events.Row
	// Sections are further generated parts of the provider's page, by the name in their markers.
	Sections map[string]string
	// Limits are what the cloud takes at most; its simulator refuses more by the same rows.
	Limits limits.Table
	// Routes reports whether the inputs ask for routes; nil means that Features.Routes decides alone.
	Routes func(Inputs) bool
	// Warnings says what in the inputs has no effect, such as unknown keys of the cloud config; nil where there is nothing to say.
	Warnings func(Inputs) error
	// Validate checks the inputs without any network, and reports all problems together.
	Validate func(Inputs) error
	// CheckService judges a Service without any network: what its reconciliation would refuse (err) or ignore (warnings).
	// Options count as far as the inputs have them; a missing one that is required says nothing about a Service.
	// It is nil where the provider has nothing to say.
	CheckService func(Inputs, *v1.Service) (warnings, err error)
	// New makes the cloud without starting anything, and without any network unless an option asks for a check.
	New func(Inputs) (cloudprovider.Interface, error)
}

// CloudAPI is implemented by clouds that can tell whether their API works.
type CloudAPI interface {
	// CheckAPI makes a cheap authenticated read, and checks settings that only the cloud can judge.
	CheckAPI(ctx context.Context) error
	// APIHealth returns nil if the last call got a useful answer, else what is wrong and since when. It makes no call.
	APIHealth() error
}

// SettingsChecker is implemented by clouds that can ask the cloud whether settings are right which only it can judge, and that
// cost calls which a program that runs need not make. The command preflight asks.
type SettingsChecker interface {
	CheckSettings(ctx context.Context) error
}

// ControllerRunner is implemented by clouds with controllers of their own that --controllers switches.
type ControllerRunner = guard.ControllerRunner

// Clock is implemented by clouds that can tell the time.
type Clock interface {
	// ClockSkew returns how far our clock is ahead of the cloud's, and whether the cloud has told. It makes no call.
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

// names are all values of --cloud-provider that mean a cloud.
func (p Provider) names() []string { return append([]string{p.Name}, p.Aliases...) }

// Add puts a provider into the set. It refuses incomplete descriptions and clashes with a provider already there.
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
		if err := p.clash(other); err != nil {
			return err
		}
	}
	if r.providers == nil {
		r.providers = map[string]Provider{}
	}
	r.providers[p.Name] = p
	return nil
}

// clash is the error of a provider that cannot stand beside another one.
func (p Provider) clash(other Provider) error {
	for _, name := range p.names() {
		if slices.Contains(other.names(), name) {
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

// Lookup finds a provider by the value of --cloud-provider, which may be an alias. With exactly one provider in the set, an empty name
// means that one. The error is one line that lists the names, and the one that was probably meant.
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

// FlagClashes returns an error for every flag of a provider that is already in taken, or that it declares twice. Two providers may
// share a name: the flag is that of the provider that runs.
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

// Open makes the cloud of provider name and puts the guard above it. There is no way around the guard.
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
	if _, can := cloud.(guard.InstanceVerifier); policy.VerifyInstances && !can {
		return nil, fmt.Errorf("--verify-node-instances: provider %s cannot verify instances; leave it out", p.Name)
	}
	return guard.Wrap(cloud, guard.Facts{
		Provider: p.Name, ProviderIDPrefixes: p.ProviderIDPrefixes, InstanceKey: p.InstanceKey, Unmanaged: p.Unmanaged,
		ClusterCIDR: in.ClusterCIDR, Policy: policy,
		Translate: func(s *v1.Service) portable.Translation { return Translate(p, in, s) },
		Misspelt:  func(s *v1.Service) error { return Misspelt(p, in, s) },
	}), nil
}

// linked holds the providers that are part of this binary.
var linked Registry

// Linked returns the set of providers that are part of this binary.
func Linked() *Registry { return &linked }

// Register adds a provider to this binary, and returns what the provider's init function makes known to the framework under each of the
// provider's names. It panics on a clash, which a test over all providers excludes.
func Register(p Provider) cloudprovider.Factory {
	if err := linked.Add(p); err != nil {
		panic(err)
	}
	return Factory(p)
}

// Maker makes a provider's New of its constructor.
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
