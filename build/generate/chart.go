package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const chartFolder = "charts/cloud-controller-manager/"

// object is a JSON object whose keys are written in order.
type object = map[string]any

// chartFiles returns the generated files of the chart: the schema of its values, its page, what it knows of the providers,
// and the admission policy.
func chartFiles(root string, providers []registry.Provider) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, chartFolder, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	values := document.Content[0]
	valuesSchema, err := schemaOf(values, providers)
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(root, chartFolder, "README.md"))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	if page, err = splice(page, "values", valuesTable(values)); err != nil {
		return nil, fmt.Errorf("the chart's page: %w", err)
	}
	policy, err := admissionPolicy(providers)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		chartFolder + "values.schema.json":   valuesSchema,
		chartFolder + "README.md":            page,
		chartFolder + "files/providers.json": providersOf(providers),
		chartFolder + "files/policies.yaml":  policy,
	}, nil
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

// providersOf is what the templates must know of each provider: the variable that names the file with its credential, and the
// keys of its cloud config that hold credentials.
func providersOf(providers []registry.Provider) []byte {
	all := object{}
	for _, p := range providers {
		variable, keys := "", []string{}
		for _, o := range p.Options {
			if _, key, ok := strings.Cut(o.FileKey, "] "); ok && o.Kind == schema.KindSecret {
				keys = append(keys, key)
			}
			if o.Kind == schema.KindSecret && o.Env != "" && o.Required {
				variable = o.Env + "_FILE"
			}
		}
		all[p.Name] = object{"tokenVariable": variable, "secretKeys": keys}
	}
	return encode(all)
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

// schemaOf derives the schema of the chart's values from their defaults and comments, and from the tables of options.
func schemaOf(values *yaml.Node, providers []registry.Provider) ([]byte, error) {
	root := objectSchema(values, "", providers)
	properties, _ := root["properties"].(object)
	for _, p := range providers {
		block, ok := properties[p.Name].(object)
		if !ok {
			return nil, fmt.Errorf("values.yaml has no block for provider %s", p.Name)
		}
		inner, _ := block["properties"].(object)
		inner["options"] = optionsSchema(p)
		if sections := sectionsSchema(p); len(sections) > 0 {
			inner["cloudConfig"] = object{"type": "object", "description": "Sections and keys of the cloud config.", "properties": sections, "additionalProperties": false}
		}
	}
	properties["global"] = object{"type": "object", "description": "Values that charts share; this one uses none."}
	root["$schema"] = "https://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart cloud-controller-manager"
	return encode(root), nil
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
	case "nodeSelector", "resources", "podSecurityContext", "securityContext", "metrics.dashboard.labels":
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

// optionsSchema are the options of a provider that are flags or environment variables, without secrets.
func optionsSchema(p registry.Provider) object {
	properties := object{}
	for _, o := range p.Options {
		name := o.Env
		if name == "" {
			name = o.Flag
		}
		if name != "" && o.Kind != schema.KindSecret {
			properties[name] = specSchema(o.Spec)
		}
	}
	return object{"type": "object", "description": "Options by the name of their environment variable or flag.", "properties": properties, "additionalProperties": false}
}

// sectionsSchema are the sections of a provider's cloud config, if it has any.
func sectionsSchema(p registry.Provider) object {
	sections := object{}
	for _, o := range p.Options {
		section, key, ok := strings.Cut(strings.TrimPrefix(o.FileKey, "["), "] ")
		if !ok || !strings.HasPrefix(o.FileKey, "[") {
			continue
		}
		one, known := sections[section].(object)
		if !known {
			one = object{"type": "object", "properties": object{}, "additionalProperties": false}
			sections[section] = one
		}
		properties, _ := one["properties"].(object)
		properties[key] = specSchema(o.Spec)
	}
	return sections
}

// specSchema is the schema of an option. Everything may be written as a text; what is a number or a switch need not be.
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
