package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const chartFolder = "charts/cloud-controller-manager/"

// object is a JSON object whose keys are written in order.
type object = map[string]any

var keywords = regexp.MustCompile(`(?m)^keywords: \[.*\]$`)

// chart writes the generated files of the chart: the schema of its values, its page, what it knows of the providers, its
// keywords, and the admission policy.
func (w *writer) chart(providers []registry.Provider) {
	text, err := w.read(chartFolder+"values.yaml", "")
	var document yaml.Node
	if err == nil {
		err = yaml.Unmarshal(text, &document)
	}
	if err != nil {
		w.problem(fmt.Errorf("reading the chart's values: %w", err))
		return
	}
	values := document.Content[0]
	w.add(chartFolder+"values.schema.json", schemaOf(values, providers), nil)
	w.page(chartFolder+"README.md", "", map[string]string{"values": valuesTable(values), "clouds": cloudValues(providers)})
	w.add(chartFolder+"files/providers.json", providersOf(providers), nil)
	policy, err := admissionPolicy(providers)
	w.add(chartFolder+"files/policies.yaml", policy, err)
	names := []string{"cloud-controller-manager", "kubernetes"}
	for _, p := range providers {
		names = append(names, p.Name)
	}
	chart, err := w.read(chartFolder+"Chart.yaml", "")
	if err == nil && !keywords.Match(chart) {
		err = errors.New("the line of keywords is missing")
	}
	w.add(chartFolder+"Chart.yaml", keywords.ReplaceAll(chart, []byte("keywords: ["+strings.Join(names, ", ")+"]")), err)
}

// encode writes JSON as it stands in a repository.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // maps of texts and numbers can be encoded
	}
	return b.Bytes()
}

// cloudOf is what the templates must know of a provider.
type cloudOf struct {
	Credentials  []credentialOf `json:"credentials"`
	Config       configOf       `json:"config"`
	Controllers  []controllerOf `json:"controllers"`
	ReadsSecrets bool           `json:"readsSecrets"`
}

type credentialOf struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	Env      string `json:"env"`
	Optional bool   `json:"optional"`
}

type configOf struct {
	Format           registry.ConfigFormat `json:"format"`
	File             string                `json:"file"`
	HoldsCredentials bool                  `json:"holdsCredentials"`
	Required         bool                  `json:"required"`
	SecretKeys       []string              `json:"secretKeys"`
}

type controllerOf struct {
	Name   string           `json:"name"`
	Rights []registry.Right `json:"rights"`
}

func providersOf(providers []registry.Provider) []byte {
	all := map[string]cloudOf{}
	for _, p := range providers {
		i := p.Installation
		one := cloudOf{
			Credentials: []credentialOf{}, Controllers: []controllerOf{}, ReadsSecrets: i.ReadsSecrets != "",
			Config: configOf{
				Format: i.Config.Format, File: i.Config.File, HoldsCredentials: i.Config.HoldsCredentials, Required: i.Config.Required,
				SecretKeys: []string{},
			},
		}
		for _, c := range i.Credentials {
			one.Credentials = append(one.Credentials, credentialOf{c.Name, c.Key, c.Env, c.Optional})
		}
		for _, c := range p.Controllers {
			one.Controllers = append(one.Controllers, controllerOf{c.Name, c.Rights})
		}
		for _, o := range p.Options {
			if o.Kind == schema.KindSecret && o.FileKey != "" {
				_, key := configKey(o.FileKey)
				one.Config.SecretKeys = append(one.Config.SecretKeys, key)
			}
		}
		all[p.Name] = one
	}
	return encode(all)
}

// configKey splits an option's file key into the section, which a key of YAML has none of, and the key.
func configKey(fileKey string) (section, key string) {
	if inside, ok := strings.CutPrefix(fileKey, "["); ok {
		section, key, _ = strings.Cut(inside, "] ")
		return section, key
	}
	return "", fileKey
}

// choices are the values of the chart that are one of a few words.
func choices(path string, providers []registry.Provider) []any {
	switch path {
	case "cloudProvider":
		list := []any{""}
		for _, p := range providers {
			list = append(list, p.Name)
		}
		return list
	case "kind":
		return []any{"DaemonSet", "Deployment"}
	case "loadBalancerClassMode":
		return []any{"unclassed", "named", "named-and-unclassed"}
	case "image.pullPolicy":
		return []any{"Always", "IfNotPresent", "Never"}
	case "admissionPolicy.action":
		return []any{"Warn", "Deny", "Audit"}
	}
	return nil
}

// schemaOf derives the schema of the chart's values from their defaults and comments, and for each cloud from the description
// of its provider.
func schemaOf(values *yaml.Node, providers []registry.Provider) []byte {
	root := objectSchema(values, "", providers)
	properties, _ := root["properties"].(object)
	properties["global"] = object{"type": "object", "description": "Values that charts share; this one uses none."}
	root["$schema"] = "https://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart cloud-controller-manager"
	clouds := make([]any, len(providers))
	for i, p := range providers {
		clouds[i] = object{
			"if":   object{"properties": object{"cloudProvider": object{"const": p.Name}}, "required": []string{"cloudProvider"}},
			"then": object{"properties": cloudSchema(p)},
		}
	}
	root["allOf"] = clouds
	return encode(root)
}

func objectSchema(node *yaml.Node, path string, providers []registry.Provider) object {
	properties := object{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		one := valueSchema(value, at, providers)
		if text := comment(key); text != "" {
			one["description"] = text
		}
		properties[key.Value] = one
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

func valueSchema(node *yaml.Node, path string, providers []registry.Provider) object {
	if list := choices(path, providers); list != nil {
		return object{"enum": list}
	}
	switch node.Kind {
	case yaml.MappingNode:
		// What is empty, or written in one line, is passed to Kubernetes as it stands.
		if len(node.Content) == 0 || passedOn(path) {
			return object{"type": "object"}
		}
		return objectSchema(node, path, providers)
	case yaml.SequenceNode:
		return object{"type": "array"}
	case yaml.ScalarNode:
		switch node.Tag {
		case "!!bool":
			return object{"type": "boolean"}
		case "!!int":
			return object{"type": "integer", "minimum": 0}
		}
	case yaml.DocumentNode, yaml.AliasNode:
	}
	return object{"type": "string"}
}

// passedOn are values that Kubernetes judges.
func passedOn(path string) bool {
	switch path {
	case "nodeSelector", "resources", "podSecurityContext", "securityContext", "metrics.dashboard.labels", "strategy", "updateStrategy",
		"livenessProbe", "readinessProbe":
		return true
	}
	return false
}

// comment is the text behind "# --" above a key.
func comment(key *yaml.Node) string {
	var lines []string
	found := false
	for line := range strings.SplitSeq(key.HeadComment, "\n") {
		text, begins := strings.CutPrefix(line, "# -- ")
		found = found || begins
		if found {
			lines = append(lines, strings.TrimPrefix(text, "# "))
		}
	}
	return strings.Join(lines, " ")
}

// valuesTable is the table of values on the chart's page.
func valuesTable(values *yaml.Node) string {
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 && !passedOn(at) {
				walk(value, at)
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", at, shown(value), cell(comment(key)))
		}
	}
	walk(values, "")
	return b.String()
}

// shown is a default in one line.
func shown(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode {
		if node.Value == "" {
			return ""
		}
		return "`" + node.Value + "`"
	}
	if len(node.Content) == 0 {
		return ""
	}
	var v any
	if err := node.Decode(&v); err != nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return "`" + string(text) + "`"
}
