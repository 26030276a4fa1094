package simkit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// wordPattern matches an ID, or any of several separated by commas, as a whole word, with the characters before and behind it.
func wordPattern(ids string) *regexp.Regexp {
	quoted := strings.Split(ids, ",")
	for i, id := range quoted {
		quoted[i] = regexp.QuoteMeta(id)
	}
	return regexp.MustCompile(`(?i)(^|[^0-9a-z])(?:` + strings.Join(quoted, "|") + `)($|[^0-9a-z])`)
}

// namesID reports whether a request names an ID, in its address or in its body.
func namesID(r *http.Request, id string) bool {
	find := wordPattern(id)
	query, err := url.QueryUnescape(r.URL.RawQuery)
	return find.MatchString(r.URL.Path) || (err == nil && find.MatchString(query)) || find.Match(bodyOf(r))
}

// replaceID puts one ID in the place of another one.
func replaceID(r *http.Request, id, other string) {
	find := wordPattern(id)
	replace := func(text string) string { return find.ReplaceAllString(text, "${1}"+other+"${2}") }
	r.URL.Path, r.URL.RawPath = replace(r.URL.Path), ""
	if values, err := url.ParseQuery(r.URL.RawQuery); err == nil {
		for _, list := range values {
			for i := range list {
				list[i] = replace(list[i])
			}
		}
		r.URL.RawQuery = values.Encode()
	}
	body := replace(string(bodyOf(r)))
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

// bodyOf returns the body of a request, which stays readable.
func bodyOf(r *http.Request) []byte {
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// shortID is the length below which IDs are consecutive numbers, so that changing a digit may give another instance's.
const shortID = 4

// unusedID returns an ID of the same form whose first hexadecimal digit differs.
func unusedID(id string) string {
	if len(id) < shortID {
		return id + "777"
	}
	at := strings.IndexAny(strings.ToLower(id), "0123456789abcdef")
	if at < 0 {
		return id + "9"
	}
	digit := "9"
	if id[at] == '9' {
		digit = "8"
	}
	return id[:at] + digit + id[at+1:]
}

// removeElements returns a response without the list elements that name an ID.
func removeElements(body []byte, id *regexp.Regexp) []byte {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		return withoutElements(body, id)
	}
	var answer any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&answer) != nil {
		return body
	}
	dropped := 0
	text, err := json.Marshal(dropFromLists(answer, id, &dropped))
	if err != nil || dropped == 0 {
		return body
	}
	return text
}

// dropFromLists removes elements from lists, and adjusts the fields that count them.
func dropFromLists(v any, id *regexp.Regexp, dropped *int) any {
	switch v := v.(type) {
	case []any:
		kept := []any{}
		for _, element := range v {
			if text, err := json.Marshal(element); err == nil && id.Match(text) {
				*dropped++
				continue
			}
			kept = append(kept, element)
		}
		return kept
	case map[string]any:
		shorter := 0
		for name, value := range v {
			before := *dropped
			v[name] = dropFromLists(value, id, dropped)
			if _, list := value.([]any); list {
				shorter += *dropped - before
			}
		}
		// A field of this name also exists elsewhere, such as for the tags of DigitalOcean.
		if n, ok := v["count"].(json.Number); ok && shorter > 0 {
			count, _ := n.Int64() // counts are whole numbers
			v["count"] = count - int64(shorter)
		}
		meta, _ := v["meta"].(map[string]any) // most have none
		for _, counts := range []map[string]any{v, meta} {
			for _, name := range []string{"total", "results", "totalCount", "total_count"} {
				if n, ok := counts[name].(json.Number); ok && *dropped > 0 {
					count, _ := n.Int64() // counts are whole numbers
					counts[name] = count - int64(*dropped)
				}
			}
		}
	}
	return v
}

// element matches the beginning or end of an XML list's element.
var element = regexp.MustCompile(`</?(item|member|objects)(\s[^>]*[^>/])?>`)

func withoutElements(body []byte, id *regexp.Regexp) []byte {
	var kept []byte
	depth, from := 0, 0
	for _, at := range element.FindAllIndex(body, -1) {
		if body[at[0]+1] != '/' {
			if depth == 0 {
				kept = append(kept, body[from:at[0]]...)
				from = at[0]
			}
			depth++
			continue
		}
		if depth--; depth == 0 {
			if !id.Match(body[from:at[1]]) {
				kept = append(kept, body[from:at[1]]...)
			}
			from = at[1]
		}
	}
	return append(kept, body[from:]...)
}
