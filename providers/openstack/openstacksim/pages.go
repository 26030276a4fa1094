package openstacksim

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

var _ simkit.Pager = (*Sim)(nil)

// pagedPaths are the last segments of the paths of listings.
func pagedPaths() []string {
	return []string{
		"detail", "ports", "networks", "subnets", "routers", "floatingips", "security-groups",
		"loadbalancers", "listeners", "pools", "healthmonitors", "members",
	}
}

// FirstPage implements simkit.Pager. A marker says nothing about the number of its page, and need not: the page that repeats
// always has the same one.
func (*Sim) FirstPage(r *http.Request) bool {
	if r.Method != http.MethodGet || !slices.Contains(pagedPaths(), path.Base(r.URL.Path)) {
		return false
	}
	q := r.URL.Query()
	q.Del("marker")
	r.URL.RawQuery = q.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]json.RawMessage
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	for key, list := range page {
		var objects []struct{ ID string }
		if json.Unmarshal(list, &objects) != nil || len(objects) == 0 {
			continue
		}
		q := r.URL.Query()
		q.Set("marker", objects[len(objects)-1].ID)
		next := map[string]string{"rel": "next", "href": "http://" + r.Host + r.URL.Path + "?" + q.Encode()}
		page[key+"_links"], _ = json.Marshal([]any{next}) // strings have JSON
		break
	}
	text, _ := json.Marshal(page)
	return text
}
