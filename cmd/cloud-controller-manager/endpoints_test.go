package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// inClear is an endpoint without TLS that is on no machine's own network.
const inClear = "http://192.0.2.1"

// asked matches the names of options that say where something is asked for.
var asked = regexp.MustCompile(`(?i)(ur[il]|endpoint|host|server|target|address|addr)s?(override)?$`)

// notAsked are options with such a name that take no endpoint, and those without effect say so in their help.
var notAsked = map[string]string{
	"aws AWS_CONTAINER_CREDENTIALS_FULL_URI": "the SDK reads it from the process's environment, and takes no address without TLS other than those of this machine, ECS and EKS",
	"digitalocean DEBUG_ADDR":                "the program listens there",
	"digitalocean METRICS_ADDR":              "the program listens there",
	"gce GCE_METADATA_HOST":                  "a host without a scheme, which is sent no credential: Google's metadata server has no TLS",
	"ibm ENABLE_VPC_PUBLIC_ENDPOINT":         "a switch",
}

// beyond are places for endpoints in files that are no options of their own, and what is needed beside them.
var beyond = map[string]struct{ cloud, file string }{
	"aws, ServiceOverride": {"aws", "[ServiceOverride \"1\"]\nService = EC2\nRegion = eu-west-1\nURL = " + inClear + "\nSigningRegion = eu-west-1\n"},
	"vsphere, a vCenter":   {"vsphere", "vcenter:\n  one: {server: \"" + inClear + "\", user: u, password: p, datacenters: [d]}\n"},
}

// neededFiles and neededVariables are those without which a cloud's other options are not looked at.
var (
	neededFiles     = map[string]string{"oci": "{}"}
	neededVariables = map[string]map[string]string{
		"vsphere": {"VSPHERE_VCENTER": "vcenter.example.com", "VSPHERE_USER": "user", "VSPHERE_PASSWORD": "password"},
	}
)

// TestEndpointsOfEachCloud: no option of any cloud lets credentials go to an endpoint without TLS, unless the operator allows it.
func TestEndpointsOfEachCloud(t *testing.T) {
	t.Parallel()
	unused := map[string]bool{}
	for name := range notAsked {
		unused[name] = true
	}
	for _, p := range registry.Linked().Providers() {
		for _, o := range p.Options {
			name := p.Name + " " + cmp.Or(o.Env, o.Flag, o.FileKey)
			places := slices.DeleteFunc([]string{o.Env, o.Flag, o.FileKey}, func(place string) bool { return place == "" })
			switch {
			case o.Kind != schema.KindURL && (!slices.Contains([]schema.Kind{schema.KindString, schema.KindList, schema.KindSecret}, o.Kind) ||
				!slices.ContainsFunc(places, asked.MatchString)):
				continue
			case strings.HasPrefix(o.Help, "Accepted for compatibility, without effect"), strings.HasPrefix(o.Help, "Not served yet"):
				continue
			case notAsked[name] != "":
				delete(unused, name)
				continue
			}
			for place, sources := range sourcesOf(p.Name, o) {
				requireRefusedInClear(t, p, name+", "+place, sources)
			}
		}
	}
	assert.Empty(t, unused, "there are no such options")
	for name, c := range beyond {
		p, err := registry.Linked().Lookup(c.cloud)
		require.NoError(t, err)
		requireRefusedInClear(t, p, name, schema.Sources{File: []byte(c.file)})
	}
}

func requireRefusedInClear(t *testing.T, p registry.Provider, name string, sources schema.Sources) {
	t.Helper()
	const flag = "--" + schema.FlagAllowInsecureEndpoints
	assert.ErrorContains(t, p.Validate(registry.Inputs{Sources: sources}), flag, "%s: a credential goes to an endpoint without TLS", name)
	sources.AllowInsecureEndpoints = true
	if err := p.Validate(registry.Inputs{Sources: sources}); err != nil {
		assert.NotContains(t, err.Error(), flag, "%s: it is allowed", name)
	}
}

// sourcesOf returns the sources from which a cloud takes an option's endpoint, by their names.
func sourcesOf(cloud string, o schema.OptionRow) map[string]schema.Sources {
	with := func(flag, env, file string) schema.Sources {
		return schema.Sources{
			Flags: map[string]string{flag: inClear}, File: []byte(cmp.Or(file, neededFiles[cloud])),
			LookupEnv: func(name string) (string, bool) {
				switch name {
				case env:
					return inClear, true
				case o.Env:
					return "", false
				}
				value, is := neededVariables[cloud][name]
				return value, is
			},
		}
	}
	all := map[string]schema.Sources{}
	if o.Flag != "" {
		all["flag"] = with(o.Flag, "", "")
	}
	if o.Env != "" {
		all["environment"] = with("", o.Env, "")
	}
	if section, key, ini := strings.Cut(o.FileKey, " "); ini {
		all["file"] = with("", "", section+"\n"+key+" = "+inClear+"\n")
	} else if o.FileKey != "" {
		text, parts := `"`+inClear+`"`, strings.Split(o.FileKey, ".")
		for _, part := range slices.Backward(parts) {
			text = `{"` + part + `": ` + text + `}`
		}
		all["file"] = with("", "", text)
	}
	return all
}
