package azure

import (
	"maps"
	"slices"
	"strings"
)

// withoutAdded is a document as plan shows it: what Azure adds does not go when a write leaves it out.
func withoutAdded(v any) any {
	switch v := v.(type) {
	case doc:
		part := doc{}
		for key, one := range v {
			if added := v["name"] != nil || key == "provisioningState"; added && isAdded(key) || isBackReference(key, one) {
				continue
			}
			part[key] = withoutAdded(one)
		}
		return part
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = withoutAdded(one)
		}
		return list
	}
	return v
}

// isAdded reports whether Azure adds a field to documents and their parts, and no write contains it.
func isAdded(key string) bool {
	return slices.Contains([]string{"etag", "id", "provisioningState", "resourceGuid", "type"}, key)
}

// isBackReference reports whether a field lists, by their IDs alone, the rules or pools that refer to a part of a load balancer.
func isBackReference(key string, v any) bool {
	list, ok := v.([]any)
	return ok && slices.Contains([]string{"backendAddressPools", "loadBalancingRules"}, key) && !slices.ContainsFunc(list, func(one any) bool {
		return textOf(one, "name") != "" || textOf(one, "id") == ""
	})
}

func textOf(object any, key string) string {
	d, _ := object.(doc)
	text, _ := d[key].(string)
	return text
}

// tag finds the first of some tags, whose keys count in any case.
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

// mergeTags sets tags, and with system tags configured removes the others. It reports whether anything changed, and refuses what
// Azure would refuse then.
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
			if _, ok := tag(wanted, key); !ok && !hasAnyPrefix(key, append(strings.Split(system, ","), keep...)) {
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
		p = strings.TrimSpace(p)
		return p != "" && strings.HasPrefix(strings.ToLower(key), strings.ToLower(p))
	})
}
