package linodesim

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

var _ simkit.Pager = (*Sim)(nil)

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || !q.Has("page") {
		return false
	}
	simkit.SetPage(r, q.Get("page"))
	q.Set("page", "1")
	r.URL.RawQuery = q.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]json.RawMessage
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	page["page"] = fmt.Append(nil, simkit.Page(r))
	page["pages"] = fmt.Append(nil, simkit.Page(r)+1)
	text, _ := json.Marshal(page) // what was JSON is JSON
	return text
}
