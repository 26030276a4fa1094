package restapi

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// Operations returns names of requests for metrics and logs: the first of these suffixes of their paths. "{id}" matches any segment.
func Operations(ends ...string) func(*http.Request) string {
	patterns := make([]*regexp.Regexp, len(ends))
	for i, end := range ends {
		patterns[i] = regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(end), `\{id\}`, `[^/]+`) + "$")
	}
	return func(r *http.Request) string {
		for i, p := range patterns {
			if p.MatchString(r.URL.Path) {
				return r.Method + " " + ends[i]
			}
		}
		return cloudapi.OtherOperation
	}
}
