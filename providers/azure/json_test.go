package azure

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

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

func texts(v any, path ...string) (list []string) {
	all, _ := value(v, path...).([]any)
	for _, item := range all {
		if s, ok := item.(string); ok {
			list = append(list, s)
		}
	}
	return list
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

// fieldValues reads a field that may be singular or plural.
func fieldValues(rule doc, singular, many string) []string {
	list := texts(rule, "properties", many)
	if one := str(rule, "properties", singular); one != "" {
		list = append(list, one)
	}
	return list
}

func setFieldValues(p doc, singular, many string, list []string) {
	delete(p, singular)
	delete(p, many)
	if len(list) == 1 {
		p[singular] = list[0]
		return
	}
	p[many] = anyList(slices.Sorted(slices.Values(list)))
}

func asDoc(m map[string]string) doc {
	d := doc{}
	for k, v := range m {
		d[k] = v
	}
	return d
}

func tagsOf(d doc) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, parsed[resource](d).Tags)
	return tags
}

func destinationsOf(rule doc) []string { return parsed[securityRule](rule).destinations() }

// parsed is a document as a struct, whatever types its numbers have.
func parsed[T any](d doc) *T { return cmp.Or(parse[T](jsondoc.Clone(d)), new(T)) }
