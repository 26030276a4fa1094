package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file reads and compares tags of resources, whose keys are case-insensitive.

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

// setTag sets a tag, in place of one whose key differs in case.
func setTag(tags map[string]string, key, value string) {
	for k := range tags {
		if strings.EqualFold(k, key) {
			delete(tags, k)
		}
	}
	tags[key] = value
}

// tag returns the first of some tags that is there.
func tag(tags map[string]string, keys ...string) (string, bool) {
	for _, key := range keys {
		for k, v := range tags {
			if strings.EqualFold(k, key) {
				return v, true
			}
		}
	}
	return "", false
}

// mergeTags sets tags, and with system tags configured removes the others. It reports whether anything changed, and refuses tags that
// Azure would refuse.
func (r *resource) mergeTags(wanted map[string]string, system string, keep ...string) (changed bool, err error) {
	tags := map[string]string{}
	maps.Copy(tags, r.Tags)
	for _, key := range sortedKeys(wanted) {
		if have, ok := tag(tags, key); !ok || !strings.EqualFold(have, wanted[key]) {
			setTag(tags, key, wanted[key])
			changed = true
		}
	}
	if system != "" {
		for key := range tags {
			if _, ok := tag(wanted, key); !ok && !hasAnyPrefix(key, append(splitList(system), keep...)) {
				delete(tags, key)
				changed = true
			}
		}
	}
	if !changed {
		return false, nil
	}
	r.Tags = tags
	return true, checkTagSizes(tags)
}

func hasAnyPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return strings.HasPrefix(strings.ToLower(key), strings.ToLower(p))
	})
}
