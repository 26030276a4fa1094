package services

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file compares objects of a cloud field by field, for plan: any JSON encoding, with the names of the cloud's API.

// maxListed is how many elements of a list are shown; of a longer one, only those that differ.
const maxListed = 20

// hidden replaces a secret value.
const hidden = "(hidden)"

// secretFields returns the names of fields whose values are never shown, in lower case and without separators.
func secretFields() []string {
	return []string{"sslkey", "privatekey", "passphrase", "password", "secret", "token"}
}

// SameSet reports whether two lists have the same elements in any order: no cloud promises an order.
func SameSet[T comparable](a, b []T) bool { return sets.New(a...).Equal(sets.New(b...)) }

// Fields returns the fields in which two descriptions of an object differ. Empty, zero and absent are equal.
func Fields(before, after any) []contract.Field {
	var c comparison
	c.compare("", prune(document(before)), prune(document(after)))
	return c.fields
}

// Part returns the named top-level fields of a description.
func Part(v any, names ...string) map[string]any {
	part := map[string]any{}
	if m, ok := document(v).(map[string]any); ok {
		for _, name := range names {
			part[name] = m[name]
		}
	}
	return part
}

// Within returns the part of before that after mentions: fields that a request omits, or sets to null, do not change.
func Within(before, after any) any { return partOf(document(before), document(after)) }

func partOf(before, after any) any {
	switch a := after.(type) {
	case map[string]any:
		b, ok := before.(map[string]any)
		if !ok {
			return before
		}
		part := map[string]any{}
		for k, v := range a {
			if have, ok := b[k]; ok && v != nil {
				part[k] = partOf(have, v)
			}
		}
		return part
	case []any:
		b, ok := before.([]any)
		if !ok || len(a) == 0 {
			return before
		}
		part := make([]any, len(b))
		for i, have := range b {
			part[i] = partOf(have, findMatching(a, have))
		}
		return part
	}
	return before
}

// findMatching returns the element of a list that describes the same thing, or else one with the union of the elements' fields.
func findMatching(list []any, have any) any {
	if m, ok := have.(map[string]any); ok {
		if key := keyOf(list); key != "" {
			for _, v := range list {
				if formatValue(v.(map[string]any)[key]) == formatValue(m[key]) { //nolint:forcetypeassert // keyOf says so
					return v
				}
			}
		}
	}
	return list[0]
}

// document converts a description to maps, lists and scalars.
func document(v any) any {
	if v == nil {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("(cannot be shown: %s)", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var d any
	if err := decoder.Decode(&d); err != nil {
		return nil
	}
	return d
}

// prune returns a document without empty fields and secrets.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			e = prune(e)
			switch {
			case e == nil:
				delete(v, k)
			case isSecret(k):
				v[k] = hidden
			default:
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		v = slices.DeleteFunc(v, func(e any) bool { return prune(e) == nil })
		if len(v) == 0 {
			return nil
		}
		return v
	case string:
		if v == "" {
			return nil
		}
	}
	return v
}

func isSecret(field string) bool {
	return slices.Contains(secretFields(), strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(field)))
}

type comparison struct{ fields []contract.Field }

func (c *comparison) compare(name string, before, after any) {
	if b, a, ok := asTypes[map[string]any](before, after); ok {
		c.compareMaps(name, b, a)
		return
	}
	if b, a, ok := asTypes[[]any](before, after); ok {
		c.compareLists(name, b, a)
		return
	}
	if formatValue(before) != formatValue(after) && (!isZero(before) || !isZero(after)) {
		c.add(name, formatValue(before), formatValue(after))
	}
}

// asTypes returns two values of a type, one of which may be absent.
func asTypes[T any](before, after any) (b, a T, ok bool) {
	b, hasBefore := before.(T)
	a, hasAfter := after.(T)
	return b, a, (hasBefore || before == nil) && (hasAfter || after == nil) && (hasBefore || hasAfter)
}

func (c *comparison) compareMaps(name string, before, after map[string]any) {
	names := map[string]bool{}
	for k := range before {
		names[k] = true
	}
	for k := range after {
		names[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		c.compare(strings.TrimPrefix(name+"."+k, "."), before[k], after[k])
	}
}

func (c *comparison) add(name, before, after string) {
	c.fields = append(c.fields, contract.Field{Name: name, Before: before, After: after})
}

// compareLists compares lists as sets: the clouds' APIs return lists in any order.
func (c *comparison) compareLists(name string, before, after []any) {
	all := append(slices.Clone(before), after...)
	scalar := func(v any) bool { _, ok := v.(map[string]any); return !ok }
	if slices.ContainsFunc(all, scalar) {
		gone, fresh := missingIn(before, after), missingIn(after, before)
		if len(gone)+len(fresh) > 0 {
			c.add(name, listText(before, gone), listText(after, fresh))
		}
		return
	}
	if key := commonKey(before, after); key != "" {
		c.compareKeyed(name, key, before, after)
		return
	}
	gone, fresh := missingIn(before, after), missingIn(after, before)
	if len(gone) == 1 && len(fresh) == 1 {
		c.compare(name+"[]", gone[0], fresh[0])
		return
	}
	for _, v := range gone {
		c.add(name+"[]", formatValue(v), "")
	}
	for _, v := range fresh {
		c.add(name+"[]", "", formatValue(v))
	}
}

func (c *comparison) compareKeyed(name, key string, before, after []any) {
	by := func(list []any) map[string]any {
		m := map[string]any{}
		for _, v := range list {
			m[formatValue(v.(map[string]any)[key])] = v //nolint:forcetypeassert // commonKey says so
		}
		return m
	}
	b, a := by(before), by(after)
	names := maps.Clone(b)
	maps.Copy(names, a)
	for _, k := range slices.Sorted(maps.Keys(names)) {
		c.compare(fmt.Sprintf("%s[%s]", name, k), b[k], a[k])
	}
}

// keyFields returns the names of fields that identify elements of a list, the best first.
func keyFields() []string {
	return []string{"name", "label", "key", "id", "address", "ip_address", "port", "loadBalancerPort"}
}

func commonKey(before, after []any) string {
	for _, key := range keyFields() {
		b, a := keyIn(before, key), keyIn(after, key)
		switch {
		case len(before) == 0 && a != "":
			return a
		case len(after) == 0 && b != "", b != "" && a == b:
			return b
		}
	}
	return ""
}

// keyOf returns the field that all elements of a list have with different values; "" if there is none.
func keyOf(list []any) string {
	for _, key := range keyFields() {
		if found := keyIn(list, key); found != "" {
			return found
		}
	}
	return ""
}

func keyIn(list []any, key string) string {
	found, seen := "", map[string]bool{}
	for _, v := range list {
		m, _ := v.(map[string]any)
		name := ""
		for k := range m {
			if strings.EqualFold(k, key) {
				name = k
			}
		}
		value := formatValue(m[name])
		if name == "" || value == "" || seen[value] || (found != "" && found != name) {
			return ""
		}
		found, seen[value] = name, true
	}
	return found
}

// missingIn returns the elements of a list that another one has less often.
func missingIn(list, other []any) []any {
	counts := map[string]int{}
	for _, v := range other {
		counts[formatValue(v)]++
	}
	var left []any
	for _, v := range list {
		if counts[formatValue(v)]--; counts[formatValue(v)] < 0 {
			left = append(left, v)
		}
	}
	return left
}

// listText formats a list; of a long one, only the elements that differ.
func listText(list, differing []any) string {
	shown, more := list, ""
	if len(list) > maxListed {
		shown, more = differing, fmt.Sprintf(" and %d that stay", len(list)-len(differing))
	}
	texts := make([]string, len(shown))
	for i, v := range shown {
		texts[i] = formatValue(v)
	}
	slices.Sort(texts)
	return strings.TrimPrefix(strings.Join(texts, ", ")+more, " and ")
}

// formatValue formats a value in one line.
func formatValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+"="+formatValue(v[k]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = formatValue(e)
		}
		slices.Sort(parts)
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

func isZero(v any) bool {
	switch t := formatValue(v); t {
	case "", "0", "false":
		return true
	}
	return false
}
