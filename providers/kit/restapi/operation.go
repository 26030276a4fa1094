package restapi

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// Operations names requests for metrics and logs by the first of these ends of paths that theirs has. "{id}" stands for any segment.
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
