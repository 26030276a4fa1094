package gcesim

import (
	"regexp"
	"strings"
)

// mask is a selection of fields: nil selects everything below.
type mask map[string]mask

// selectFields applies the parameter fields, such as "items(name,tags/items),nextPageToken".
func selectFields(d document, text string) (document, bool) {
	m, rest, ok := parseMask(text)
	if !ok || rest != "" {
		return nil, false
	}
	selected, _ := m.apply(map[string]any(d)).(map[string]any)
	return selected, true
}

func parseMask(text string) (m mask, rest string, ok bool) {
	m = mask{}
	for {
		end := strings.IndexAny(text, ",()")
		if end < 0 {
			end = len(text)
		}
		path := strings.Split(text[:end], "/")
		at := m
		for i, part := range path {
			if part == "" {
				return nil, "", false
			}
			if at[part] == nil && i < len(path)-1 {
				at[part] = mask{}
			}
			if i < len(path)-1 {
				at = at[part]
			} else if _, known := at[part]; !known {
				at[part] = nil
			}
		}
		text = text[end:]
		if strings.HasPrefix(text, "(") {
			inner, after, ok := parseMask(text[1:])
			if !ok || !strings.HasPrefix(after, ")") {
				return nil, "", false
			}
			at[path[len(path)-1]], text = inner, after[1:]
		}
		if !strings.HasPrefix(text, ",") {
			return m, text, true
		}
		text = text[1:]
	}
}

func (m mask) apply(v any) any {
	if m == nil {
		return v
	}
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = m.apply(e)
		}
		return list
	case map[string]any:
		kept := map[string]any{}
		for k, e := range v {
			if inner, ok := m[k]; ok {
				kept[k] = inner.apply(e)
			} else if inner, ok := m["*"]; ok {
				kept[k] = inner.apply(e)
			}
		}
		return kept
	}
	return v
}

var term = regexp.MustCompile(`^\(?([a-zA-Z]+) (eq|ne) ("[^"]*"|[^()\s]+)\)?\s*`)

// parseFilter reads filters such as "(name eq x.*) (network eq y)": all expressions must match whole fields.
func parseFilter(text string) (func(document) bool, *refusal) {
	type condition struct {
		field string
		is    bool
		re    *regexp.Regexp
	}
	var all []condition
	for rest := strings.TrimSpace(text); rest != ""; {
		found := term.FindStringSubmatch(rest)
		if found == nil {
			return nil, invalid("Invalid value for field 'filter': '%s'. Invalid list filter expression.", text)
		}
		re, err := regexp.Compile("^(?:" + strings.Trim(found[3], `"`) + ")$")
		if err != nil {
			return nil, invalid("Invalid value for field 'filter': '%s'. Invalid list filter expression.", text)
		}
		all = append(all, condition{found[1], found[2] == "eq", re})
		rest = rest[len(found[0]):]
	}
	return func(d document) bool {
		for _, c := range all {
			value, _ := d[c.field].(string)
			if c.re.MatchString(value) != c.is {
				return false
			}
		}
		return true
	}, nil
}
