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
		return str(one, "name") != "" || str(one, "id") == ""
	})
}

// value follows a path of keys.
func value(v any, path ...string) any {
	for _, key := range path {
		d, ok := v.(doc)
		if !ok {
			return nil
		}
		v = d[key]
	}
	return v
}

func str(v any, path ...string) string {
	s, _ := value(v, path...).(string)
	return s
}

func num(v any, path ...string) int {
	switch n := value(v, path...).(type) {
	case float64:
		return int(n)
	case int:
		return n
	}
	return 0
}

func flag(v any, path ...string) bool {
	b, _ := value(v, path...).(bool)
	return b
}

// docs are the objects of a list.
func docs(v any, path ...string) []doc {
	list, _ := value(v, path...).([]any)
	out := make([]doc, 0, len(list))
	for _, item := range list {
		if d, ok := item.(doc); ok {
			out = append(out, d)
		}
	}
	return out
}

func texts(v any, path ...string) []string {
	list, _ := value(v, path...).([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func anyList[T any](list []T) []any {
	out := make([]any, len(list))
	for i, item := range list {
		out[i] = item
	}
	return out
}

// props is the object "properties", which is made where it is missing.
func props(d doc) doc {
	p, ok := d["properties"].(doc)
	if !ok {
		p = doc{}
		d["properties"] = p
	}
	return p
}

// byName finds an item of a list.
func byName(list []doc, name string) doc {
	if i := slices.IndexFunc(list, func(d doc) bool { return strings.EqualFold(str(d, "name"), name) }); i >= 0 {
		return list[i]
	}
	return nil
}

// setList replaces a list of the properties.
func setList(d doc, key string, list []doc) { props(d)[key] = anyList(list) }

// tagsOf are the tags of a resource.
func tagsOf(d doc) map[string]string {
	given, _ := d["tags"].(doc)
	return textsOf(given)
}

// textsOf are the texts of an object.
func textsOf(object doc) map[string]string {
	texts := map[string]string{}
	for key, v := range object {
		if s, ok := v.(string); ok {
			texts[key] = s
		}
	}
	return texts
}

// tag finds a tag, whose key counts in any case.
func tag(tags map[string]string, key string) (string, bool) {
	for k, v := range tags {
		if strings.EqualFold(k, key) {
			return v, true
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

func asDoc(m map[string]string) doc {
	d := doc{}
	for k, v := range m {
		d[k] = v
	}
	return d
}
