package azure

import (
	"cmp"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

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

func destinationsOf(rule doc) []string { return parsed[securityRule](rule).destinations() }

// parsed is a document as a struct, whatever types its numbers have.
func parsed[T any](d doc) *T { return cmp.Or(parse[T](jsondoc.Clone(d)), new(T)) }
