package registry

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func described(name string, prefixes ...string) Provider {
	if prefixes == nil {
		prefixes = []string{name + "://"}
	}
	return Provider{
		Name: name, ProviderIDPrefixes: prefixes, Features: Features{Instances: Done},
		Validate: func(Inputs) error { return nil },
		New:      func(Inputs) (cloudprovider.Interface, error) { return &fake.Cloud{EnableInstancesV2: true}, nil },
	}
}

func TestAddRefusesClashes(t *testing.T) {
	t.Parallel()
	var r Registry
	require.NoError(t, r.Add(described("alpha")))
	require.ErrorContains(t, r.Add(described("alpha", "other://")), "the name is taken")
	require.ErrorContains(t, r.Add(described("beta", "alpha://zone")), `provider ID prefix "alpha://zone" clashes with "alpha://" of provider "alpha"`)
	for _, bad := range []string{"", "Beta", "be-ta", "1b"} {
		require.ErrorContains(t, r.Add(described(bad, "x://")), "lower-case letters and digits", bad)
	}
	incomplete := described("gamma")
	incomplete.New = nil
	require.ErrorContains(t, r.Add(incomplete), "must be set")
	unprefixed := described("gamma")
	unprefixed.ProviderIDPrefixes = nil
	require.ErrorContains(t, r.Add(unprefixed), "provider ID prefix must be declared")
	assert.Equal(t, []string{"alpha"}, r.Names())
	unprefixed.Features = Features{LoadBalancers: Done}
	require.NoError(t, r.Add(unprefixed), "without nodes there are no provider IDs")
}

// TestAliases: an alias means its provider wherever --cloud-provider is read, and is nobody else's name.
func TestAliases(t *testing.T) {
	t.Parallel()
	var r Registry
	alpha := described("alpha")
	alpha.Aliases = []string{"external-alpha", "alpha2"}
	require.NoError(t, r.Add(alpha))
	for _, name := range []string{"alpha", "external-alpha", "alpha2", ""} {
		found, err := r.Lookup(name)
		require.NoError(t, err, name)
		assert.Equal(t, "alpha", found.Name)
		cloud, err := r.Open(name, Inputs{})
		require.NoError(t, err, name)
		assert.Equal(t, "alpha", cloud.ProviderName(), name)
	}
	assert.Equal(t, []string{"alpha"}, r.Names(), "an alias is no provider of its own")
	_, err := r.Lookup("external-alfa")
	require.ErrorContains(t, err, `unknown --cloud-provider "external-alfa"; linked providers: alpha; did you mean "external-alpha"?`)

	require.ErrorContains(t, r.Add(described("alpha2")), `the name is taken: "alpha2" is provider "alpha"`)
	for alias, want := range map[string]string{
		"alpha": `"alpha" is provider "alpha"`, "external-alpha": `"external-alpha" is provider "alpha"`,
		"beta": "must be another name", "Beta": "lower-case", "": "lower-case", "b_": "lower-case",
	} {
		beta := described("beta")
		beta.Aliases = []string{alias}
		require.ErrorContains(t, r.Add(beta), want, alias)
	}
	twice := described("beta")
	twice.Aliases = []string{"external-beta", "external-beta"}
	require.ErrorContains(t, r.Add(twice), "once")
	assert.Equal(t, []string{"alpha"}, r.Names())
}

// TestFeatures: what is done, what is not done yet and what the cloud does not have are three things.
func TestFeatures(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Features{Instances: Done, Routes: CloudHasNone})
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"instances":"yes","loadBalancers":"not yet","routes":"the cloud has none","zones":"not yet"`)
	_, err = json.Marshal(Features{Instances: 7})
	require.Error(t, err)
}

// TestFeaturesAreHeld: what a description says about features is what its tables say.
func TestFeaturesAreHeld(t *testing.T) {
	t.Parallel()
	row := func(key string, values map[string]string) schema.AnnotationRow {
		return schema.AnnotationRow{Key: "x/" + key, Serves: []schema.Serves{{Portable: key, Values: values}}}
	}
	scheme := row(portable.Scheme, map[string]string{portable.SchemePublic: "", portable.SchemeInternal: "true"})
	public := row(portable.Scheme, map[string]string{portable.SchemePublic: ""})
	for name, c := range map[string]struct {
		features Features
		rows     []schema.AnnotationRow
		want     string
	}{
		"nothing":                   {},
		"as the table says":         {features: Features{LoadBalancers: Done, Internal: Done}, rows: []schema.AnnotationRow{scheme}},
		"said and not served":       {Features{LoadBalancers: Done, TLS: Done}, nil, `TLS: the description says "yes"`},
		"another value is served":   {Features{LoadBalancers: Done, Internal: Done}, []schema.AnnotationRow{public}, "internal: the description"},
		"served and not said":       {Features{LoadBalancers: Done}, []schema.AnnotationRow{scheme}, `internal: the description says "not yet"`},
		"the cloud is said to lack": {Features{LoadBalancers: Done, Internal: CloudHasNone}, []schema.AnnotationRow{scheme}, "internal:"},
		"of what is not done":       {Features{UDP: Done}, nil, "UDP: the description says that this is done, and not what"},
	} {
		err := Provider{Name: "x", Features: c.features, Annotations: c.rows}.CheckFeatures()
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
	for _, d := range (Features{LoadBalancers: CloudHasNone, UDP: NotYet}).Details()[2:] {
		assert.Equal(t, CloudHasNone, d.Support, d.Title)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	var r Registry
	_, err := r.Lookup("alpha")
	require.ErrorContains(t, err, "built without any cloud provider")
	require.NoError(t, r.Add(described("alpha")))
	p, err := r.Lookup("")
	require.NoError(t, err)
	assert.Equal(t, "alpha", p.Name, "the only one needs no naming")
	require.NoError(t, r.Add(described("beta")))
	for name, want := range map[string]string{
		"":      "--cloud-provider is missing; linked providers: alpha, beta",
		"alhpa": `unknown --cloud-provider "alhpa"; linked providers: alpha, beta; did you mean "alpha"?`,
		"gcp":   `unknown --cloud-provider "gcp"; linked providers: alpha, beta`,
	} {
		_, err := r.Lookup(name)
		require.Error(t, err)
		assert.Equal(t, want, err.Error())
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestOpenGuards(t *testing.T) {
	t.Parallel()
	var r Registry
	require.NoError(t, r.Add(described("alpha")))
	cloud, err := r.Open("alpha", Inputs{})
	require.NoError(t, err)
	assert.Equal(t, "alpha", cloud.ProviderName())
	instances, ok := cloud.InstancesV2()
	require.True(t, ok)
	exists, err := instances.InstanceExists(t.Context(), &v1.Node{Spec: v1.NodeSpec{ProviderID: "elsewhere://1"}})
	require.NoError(t, err)
	assert.True(t, exists, "the guard is above every cloud")

	for name, change := range map[string]func(*Provider){
		"alpha: no network": func(p *Provider) {
			p.New = func(Inputs) (cloudprovider.Interface, error) { return nil, errors.New("no network") }
		},
		"alpha: the provider returned no cloud": func(p *Provider) {
			var nothing cloudprovider.Interface
			p.New = func(Inputs) (cloudprovider.Interface, error) { return nothing, nil }
		},
		"bad option": func(p *Provider) { p.Validate = func(Inputs) error { return errors.New("bad option") } },
	} {
		p := described("alpha")
		change(&p)
		var r Registry
		require.NoError(t, r.Add(p))
		_, err := r.Open("alpha", Inputs{})
		require.EqualError(t, err, name)
	}
}

// TestRegister: the provider itself makes what it gets known to the framework.
func TestRegister(t *testing.T) {
	p := described("registered")
	factory := Register(p)
	t.Cleanup(func() { delete(linked.providers, p.Name) })
	assert.Contains(t, Linked().Names(), p.Name)
	assert.False(t, cloudprovider.IsCloudProvider(p.Name))
	_, err := factory(nil)
	require.NoError(t, err)
	assert.Panics(t, func() { Register(p) }, "the name is taken")
}

func TestFactoryReadsTheCloudConfig(t *testing.T) {
	t.Parallel()
	var got Inputs
	p := described("alpha")
	p.Validate = func(in Inputs) error { got = in; return nil }
	_, err := Factory(p)(strings.NewReader("region: x"))
	require.NoError(t, err)
	assert.Equal(t, "region: x", string(got.File))
	_, err = Factory(p)(nil)
	require.NoError(t, err)
}

func TestFlagClashes(t *testing.T) {
	t.Parallel()
	var r Registry
	for _, name := range []string{"alpha", "beta"} {
		p := described(name)
		p.Options = []schema.OptionRow{{Flag: "same"}, {Flag: name}, {Env: "NO_FLAG"}}
		require.NoError(t, r.Add(p))
	}
	gamma := described("gamma")
	gamma.Options = []schema.OptionRow{{Flag: "twice"}, {Flag: "twice"}}
	require.NoError(t, r.Add(gamma))
	err := r.FlagClashes(func(name string) bool { return name == "beta" })
	require.ErrorContains(t, err, `flag --beta of provider "beta" already belongs to the framework or to a command`)
	require.ErrorContains(t, err, `flag --twice is declared twice by provider "gamma"`)
	assert.Len(t, schema.Problems(err), 2, "two providers may share a flag")
}

// apiCloud can tell whether its API works.
type apiCloud struct{ fake.Cloud }

func (*apiCloud) CheckAPI(context.Context) error { return errors.New("checked") }
func (*apiCloud) APIHealth() error               { return errors.New("health") }

func TestGuardForwardsTheHealthOfTheAPI(t *testing.T) {
	t.Parallel()
	p := described("alpha")
	p.New = func(Inputs) (cloudprovider.Interface, error) { return &apiCloud{}, nil }
	var r Registry
	require.NoError(t, r.Add(p))
	cloud, err := r.Open("alpha", Inputs{})
	require.NoError(t, err)
	api, ok := cloud.(CloudAPI)
	require.True(t, ok)
	require.EqualError(t, api.CheckAPI(t.Context()), "checked")
	require.EqualError(t, api.APIHealth(), "health")
}
