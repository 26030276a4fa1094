package azure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file reads azure.json, whose keys are case-insensitive, and whose values may be lists and maps.

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// readFile returns the values of the file by the names of the table. Unknown keys are warnings, for Azure's own controller ignores them.
func readFile(data []byte) (keys map[string]string, warnings, err error) {
	var raw map[string]any
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, nil, schema.BlameKey("", "", "is neither JSON nor YAML: "+err.Error())
	}
	known := map[string]string{}
	var names []string
	for _, r := range Options.Rows() {
		if r.FileKey != "" {
			known[strings.ToLower(r.FileKey)] = r.FileKey
			names = append(names, r.FileKey)
		}
	}
	keys = map[string]string{}
	var problems []error
	warn := func(key, reason string) {
		warnings = errors.Join(warnings, schema.WarnOfKey(key, reason))
	}
	for _, key := range sortedKeys(raw) {
		name, ok := known[strings.ToLower(key)]
		switch {
		case !ok && strings.HasSuffix(strings.ToLower(key), "ratelimit"):
			warn(key, "has no effect: this program limits its calls by itself")
		case !ok:
			reason := "is unknown and ignored"
			if near := schema.Nearest(key, names); near != "" {
				reason += fmt.Sprintf("; did you mean %q?", near)
			}
			warn(key, reason)
		case raw[key] == nil:
		default:
			value, err := flatten(raw[key])
			if err != nil {
				problems = append(problems, schema.BlameKey(key, "", err.Error()))
				continue
			}
			keys[name] = value
			if why := whyIgnored(name); why != "" && value != "" && value != "false" && value != "0" {
				warn(key, "has no effect: "+why)
			}
		}
	}
	return keys, warnings, errors.Join(problems...)
}

func whyIgnored(key string) string {
	for why, keys := range ignoredKeys() {
		if slices.Contains(keys, key) {
			return why
		}
	}
	return ""
}

// flatten returns a value as text; lists and maps stay JSON.
func flatten(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case map[string]any, []any:
		data, err := json.Marshal(v)
		return string(data), err
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%.6f", v), ".000000"), nil
	default:
		return fmt.Sprint(v), nil
	}
}
