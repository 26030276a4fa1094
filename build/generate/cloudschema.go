package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// cloudSchema returns the schema of the values for one cloud.
func cloudSchema(p registry.Provider) object {
	i := p.Installation
	keys, values := object{}, object{}
	for _, c := range i.Credentials {
		keys[c.Name] = object{"type": "string", "minLength": 1, "description": "Key of the Secret; usually " + c.Key + "."}
		values[c.Name] = object{"type": "string", "description": c.Help}
	}
	if i.Config.HoldsCredentials {
		keys[registry.ConfigCredential] = object{
			"type": "string", "minLength": 1, "description": "Key of the Secret with the cloud config; usually " + i.Config.File + ".",
		}
	}
	noCredential := p.Title + " has no such credential"
	properties := object{
		"credentials":      object{"properties": object{"keys": closedObject(keys, noCredential), "values": closedObject(values, noCredential)}},
		"options":          closedObject(optionsSchema(p), p.Title+" has no such option"),
		"cloudConfig":      configSchema(p),
		"extraCloudConfig": object{"type": "string"},
		"controllers":      object{"items": object{"enum": controllersOf(p)}},
	}
	if i.Config.Format == registry.NoConfig {
		properties["extraCloudConfig"] = object{"const": ""}
	}
	if i.ReadsSecrets == "" {
		properties["readSecrets"] = object{"const": false}
	}
	if !p.InstanceTags.Served() {
		properties["nodeLabelsFromTags"] = object{"maxItems": 0}
	}
	if p.Features.ServingCertificates != registry.Done {
		properties["kubeletServingCertificates"] = object{"properties": object{"approve": object{"const": false}}}
	}
	return properties
}

// closedObject allows only these properties. Validators only say "not allowed" for others, so these must equal an improbable value whose
// text explains the correction.
func closedObject(properties object, no string) object {
	has := "none"
	if len(properties) > 0 {
		has = strings.Join(slices.Sorted(maps.Keys(properties)), ", ")
	}
	return object{"type": "object", "properties": properties, "additionalProperties": object{"const": "absent: " + no + "; it has " + has}}
}

// controllersOf returns a cloud's names for --controllers that the chart's roles know.
func controllersOf(p registry.Provider) []string {
	list := []string{"cloud-node-controller", "cloud-node-lifecycle-controller", "node-label-controller", "service-lb-controller", "node-route-controller"}
	for _, c := range p.Controllers {
		if c.Unneeded == "" {
			list = append(list, c.Name)
		}
	}
	return list
}

// optionsSchema covers a provider's flags and environment variables, except credentials.
func optionsSchema(p registry.Provider) object {
	properties := object{}
	for _, o := range p.Options {
		name := o.Env
		if name == "" {
			name = o.Flag
		}
		credential := func(c registry.Credential) bool { return c.Env == o.EnvOfFile() }
		if name != "" && o.Kind != schema.KindSecret && !slices.ContainsFunc(p.Installation.Credentials, credential) {
			properties[name] = specSchema(o.Spec)
		}
	}
	return properties
}

// configSchema covers the keys of a provider's cloud config, in sections or mappings.
func configSchema(p registry.Provider) object {
	root := object{}
	for _, o := range p.Options {
		if o.FileKey == "" {
			continue
		}
		section, key := configKey(o.FileKey)
		path := []string{section, key}
		if section == "" {
			path = strings.Split(key, ".")
		}
		at := root
		for _, name := range path[:len(path)-1] {
			if _, ok := at[name]; !ok {
				at[name] = object{}
			}
			at, _ = at[name].(object)
		}
		one := specSchema(o.Spec)
		if o.Structured {
			one = object{"description": o.Help}
		}
		at[path[len(path)-1]] = leaf(one)
	}
	config := p.Installation.Config
	patterns := object{}
	for _, s := range config.Sections {
		keys := object{}
		for _, key := range s.Keys {
			keys[key] = leaf(object{})
		}
		section := closedTree(keys, s.Kind, config.AnyCase)
		if config.Format == registry.INI {
			patterns["^"+pattern(s.Kind, config.AnyCase)+` "[^"]+"$`] = section
		}
		root[s.Kind] = leaf(object{"type": "object", "additionalProperties": section})
	}
	if config.Others != "" {
		patterns[config.Others] = true
	}
	all := closedTree(root, "the cloud config of "+p.Title, config.AnyCase)
	if known, ok := all["patternProperties"].(object); ok {
		maps.Copy(patterns, known)
	}
	if len(patterns) > 0 {
		all["patternProperties"] = patterns
	}
	return all
}

// pattern matches a name, optionally ignoring case. It spells out both cases, because validators differ in flags.
func pattern(name string, anyCase bool) string {
	if !anyCase {
		return regexp.QuoteMeta(name)
	}
	var b strings.Builder
	for _, r := range name {
		if lower, upper := unicode.ToLower(r), unicode.ToUpper(r); lower != upper {
			fmt.Fprintf(&b, "[%c%c]", lower, upper)
			continue
		}
		b.WriteString(regexp.QuoteMeta(string(r)))
	}
	return b.String()
}

// leaf distinguishes the schema of a key from a mapping of keys.
type leaf object

// closedTree is the schema of a tree of keys. Keys in another case are not checked.
func closedTree(tree object, name string, anyCase bool) object {
	properties := object{}
	var others []string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		properties[key] = tree[key]
		if below, ok := tree[key].(object); ok {
			properties[key] = closedTree(below, key, anyCase)
		}
		others = append(others, pattern(key, true))
	}
	all := closedObject(properties, name+" has no such key")
	if anyCase && len(others) > 0 {
		all["patternProperties"] = object{"^(" + strings.Join(others, "|") + ")$": true}
	}
	return all
}

// specSchema is the schema of an option. Strings are always allowed, numbers and booleans where they fit.
func specSchema(s schema.Spec) object {
	one := object{"description": s.Help}
	switch s.Kind {
	case schema.KindBool:
		one["enum"] = []any{true, false, "true", "false"}
	case schema.KindInt, schema.KindFloat:
		kind := object{"type": "integer"}
		if s.Kind == schema.KindFloat {
			kind["type"] = "number"
		}
		if s.Min != nil {
			kind["minimum"] = *s.Min
		}
		if s.Max != nil {
			kind["maximum"] = *s.Max
		}
		one["anyOf"] = []any{kind, object{"type": "string"}}
	case schema.KindEnum:
		if s.AnyCase {
			one["type"] = "string"
			break
		}
		one["enum"] = s.Choices
	case schema.KindList, schema.KindIntList:
		one["type"] = []string{"array", "string", "integer"}
	case schema.KindString, schema.KindDuration, schema.KindURL, schema.KindSecret:
		one["type"] = []string{"string", "integer", "boolean"}
	}
	return one
}
