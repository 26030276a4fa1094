package digitaloceansim

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strconv"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

var _ simkit.Pager = (*Sim)(nil)

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	if r.Method != http.MethodGet || !slices.Contains([]string{"droplets", "load_balancers", "certificates", "firewalls"}, path.Base(r.URL.Path)) {
		return false
	}
	q := r.URL.Query()
	simkit.SetPage(r, q.Get("page"))
	q.Del("page")
	r.URL.RawQuery = q.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]json.RawMessage
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	q := r.URL.Query()
	q.Set("page", strconv.Itoa(simkit.Page(r)+1))
	next := "http://" + r.Host + r.URL.Path + "?" + q.Encode()
	page["links"], _ = json.Marshal(map[string]any{"pages": map[string]string{"next": next, "last": next}}) // strings have JSON
	text, _ := json.Marshal(page)
	return text
}
