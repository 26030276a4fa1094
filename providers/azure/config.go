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

// This file reads azure.json, whose keys count in any case, and whose values may be lists and maps.

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

// parseTags joins the two ways to write tags; the map wins.
func parseTags(list, asMap string) (map[string]string, error) {
	tags := pairs(list)
	if asMap != "" {
		var given map[string]any
		if err := json.Unmarshal([]byte(asMap), &given); err != nil {
			return nil, schema.BlameKey("tagsMap", "", "is no map of texts")
		}
		for _, key := range sortedKeys(given) {
			setTag(tags, strings.TrimSpace(key), strings.TrimSpace(fmt.Sprint(given[key])))
		}
	}
	return tags, nil
}

// pairs reads a=b,c=d; what has not exactly one = is left out, as Azure's own controller does.
func pairs(list string) map[string]string {
	tags := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if key = strings.TrimSpace(key); ok && key != "" && !strings.Contains(value, "=") {
			setTag(tags, key, tagValue(value))
		}
	}
	return tags
}

// tagValue trims a value. The bare word null is reserved, and keeps its blanks.
func tagValue(value string) string {
	if trimmed := strings.TrimSpace(value); !strings.EqualFold(trimmed, "null") {
		return trimmed
	}
	return value
}

// setTag sets a tag, whose key counts in any case.
func setTag(tags map[string]string, key, value string) {
	for k := range tags {
		if strings.EqualFold(k, key) {
			delete(tags, k)
		}
	}
	tags[key] = value
}
