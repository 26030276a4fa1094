package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file reads cloud-provider.yaml, in which keys are nested.

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// readFile returns the values of the file by the keys of the table. Unknown keys are warnings, because Oracle's own controller ignores
// them.
func readFile(data []byte) (keys map[string]string, warnings, err error) {
	var raw map[string]any
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, nil, schema.BlameKey("", "", "is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
	}
	r := reader{keys: map[string]string{}}
	for _, row := range Options.Rows() {
		if row.FileKey != "" {
			r.known = append(r.known, row.FileKey)
		}
	}
	r.read("", raw)
	return r.keys, r.warnings, errors.Join(r.problems...)
}

// reader flattens the nested keys of a file.
type reader struct {
	keys     map[string]string
	known    []string
	warnings error
	problems []error
}

func (r *reader) read(prefix string, values map[string]any) {
	for _, name := range sortedKeys(values) {
		key, value := prefix+name, values[name]
		nested, isMap := value.(map[string]any)
		switch {
		case value == nil:
		case slices.Contains(r.known, key):
			r.keys[key] = textOf(value)
			if why := whyIgnored(key); why != "" {
				r.warn(key, "has no effect: "+why)
			}
		case isMap && prefix == "":
			r.read(key+".", nested)
		default:
			reason := "is unknown and ignored"
			if near := schema.Nearest(key, r.known); near != "" {
				reason += fmt.Sprintf("; did you mean %q?", near)
			}
			r.warn(key, reason)
		}
	}
}

func (r *reader) warn(key, reason string) {
	r.warnings = errors.Join(r.warnings, schema.WarnOfKey(key, reason))
}

func whyIgnored(key string) string {
	for why, keys := range keysWithoutEffect() {
		if slices.Contains(keys, key) {
			return why
		}
	}
	return ""
}

// textOf returns a value as text; lists and maps become JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case map[string]any, []any:
		data, _ := json.Marshal(v) // it was made of YAML
		return string(data)
	default:
		return fmt.Sprint(v)
	}
}
