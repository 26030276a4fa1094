package nsxsim

import (
	"net/http"
	"slices"
	"strings"
)

// searchLocked answers a search: terms about the kind and the tags of objects, which must all be true.
func (s *Sim) searchLocked(r *http.Request) (any, error) {
	query := r.URL.Query().Get("query")
	var terms []func(*Object) bool
	for text := range strings.SplitSeq(query, " AND ") {
		field, value, ok := strings.Cut(strings.TrimSpace(text), ":")
		is, err := term(field, strings.Trim(value, `"`))
		if !ok || err != nil {
			return nil, invalid("the query %q has a term %q that cannot be parsed", query, text)
		}
		terms = append(terms, is)
	}
	return s.pageLocked(r, func(o *Object) bool {
		return !s.deniesLocked(o.Path) && !slices.ContainsFunc(terms, func(is func(*Object) bool) bool { return !is(o) })
	})
}

// term compiles one search term. Case is ignored, and a backslash escapes the next character.
func term(field, value string) (func(*Object) bool, error) {
	var plain strings.Builder
	for escaped := false; value != ""; value = value[1:] {
		switch c := value[0]; {
		case c == '\\' && !escaped:
			escaped = true
			continue
		case !escaped && strings.ContainsRune(`/+!(){}[]^~*?:`, rune(c)):
			return nil, invalid("%q is not escaped", c)
		default:
			plain.WriteByte(c)
		}
		escaped = false
	}
	want := plain.String()
	tagged := func(part string) func(*Object) bool {
		return func(o *Object) bool {
			tags, _ := o.Fields["tags"].([]any)
			return slices.ContainsFunc(tags, func(t any) bool {
				tag, _ := t.(map[string]any)
				text, _ := tag[part].(string)
				return strings.EqualFold(text, want)
			})
		}
	}
	switch {
	case want == "":
	case field == "resource_type":
		return func(o *Object) bool { return strings.EqualFold(o.Text("resource_type"), want) }, nil
	case field == "tags.scope":
		return tagged("scope"), nil
	case field == "tags.tag":
		return tagged("tag"), nil
	}
	return nil, invalid("there is no term %s", field)
}
