package nsxsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

var (
	_ simkit.Cloud    = (*Sim)(nil)
	_ simkit.Pager    = (*Sim)(nil)
	_ simkit.Refusals = (*Sim)(nil)
)

// Serves reports whether a request is for NSX, where one address serves several APIs.
func Serves(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, API+"/") || r.URL.Path == TokenPath
}

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	at := strings.TrimPrefix(r.URL.Path, API)
	parts := strings.Split(at, "/")
	for _, k := range kinds {
		for i, part := range parts {
			if i > 0 && parts[i-1] == path.Base(k.collection) && part != "" && !strings.HasPrefix(part, "ip-alloc") && !strings.HasPrefix(part, "static-r") {
				parts[i] = "{id}"
			}
		}
	}
	write := r.Method != http.MethodGet && r.URL.Path != TokenPath
	return r.Method + " " + strings.TrimSuffix(r.URL.Path, at) + strings.Join(parts, "/"), write
}

// RateHeaders implements simkit.Cloud: NSX says nothing about its limits.
func (*Sim) RateHeaders(http.Header, int, int, time.Time) {}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := map[string][]any{}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		collection := path.Base(path.Dir(at))
		state[collection] = append(state[collection], s.shownLocked(s.objects[at]))
	}
	all := map[string]any{}
	for collection, list := range state {
		all[collection] = list
	}
	return simkit.Snapshot(all)
}

// Seed implements simkit.Cloud: NSX has no machines.
func (*Sim) Seed(int) {}

// Instances implements simkit.Cloud.
func (*Sim) Instances() []simkit.Instance { return nil }

// RemoveInstance implements simkit.Cloud.
func (*Sim) RemoveInstance(string) error { return errors.New("NSX has no machines") }

// Holdings implements simkit.Cloud: one line for all virtual servers of one name, which are those of one Service.
func (s *Sim) Holdings() []string {
	lines, ports := []string{}, map[string][]string{}
	for _, o := range s.Objects("/infra/lb-virtual-servers") {
		members := 0
		if pool := s.Get(o.Text("pool_path")); pool != nil {
			list, _ := pool.Fields["members"].([]any)
			members = len(list)
		}
		name := fmt.Sprintf("load balancer %s, address %s", o.Text("display_name"), o.Text("ip_address"))
		ports[name] = append(ports[name], fmt.Sprintf("port %s to %s, %d nodes", strings.Join(texts(o.Fields["ports"]), ", "),
			strings.Join(texts(o.Fields["default_pool_member_ports"]), ", "), members))
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		slices.Sort(ports[name])
		lines = append(lines, name+": "+strings.Join(ports[name], "; "))
	}
	return lines
}

// Environment implements simkit.Cloud.
func (s *Sim) Environment(url string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{"NSXT_MANAGER_HOST": url}
	if s.options.User != "" {
		env["NSXT_USERNAME"], env["NSXT_PASSWORD"] = s.options.User, s.options.Password
	}
	return env
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	return map[string]simkit.Distortion{
		// cut-nsx-list: a listing ends too early, without a cursor to the next page.
		"cut-nsx-list": func(r *http.Request, body []byte) ([]byte, bool) {
			if !isListing(r) || body == nil {
				return nil, isListing(r)
			}
			var page map[string]any
			if json.Unmarshal(body, &page) != nil {
				return body, true
			}
			results, _ := page["results"].([]any)
			page["results"] = results[:len(results)/2]
			delete(page, "cursor")
			return simkit.Snapshot(page), true
		},
	}
}

func isListing(r *http.Request) bool {
	at, ours := strings.CutPrefix(r.URL.Path, API)
	return ours && r.Method == http.MethodGet && kindOf(at+"/x") != nil
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"nsx-break": simkit.Action(func(in struct{ Path, Reason string }) error {
			s.Break(in.Path, in.Reason)
			return nil
		}),
		"nsx-remove": simkit.Action(func(in struct{ Path string }) error {
			s.Remove(in.Path)
			return nil
		}),
	}
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	if !isListing(r) {
		return false
	}
	q := r.URL.Query()
	simkit.SetPage(r, strings.TrimPrefix(q.Get("cursor"), "p"))
	q.Del("cursor")
	r.URL.RawQuery = q.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]any
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	page["cursor"] = fmt.Sprintf("p%d", simkit.Page(r)+1)
	return simkit.Snapshot(page)
}

// Paths returns the paths of all objects that a controller made.
func (s *Sim) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if len(s.objects[at].Fields) > 0 && s.objects[at].Tag("cluster") != "" || s.objects[at].Tag("vsphere.k8s.io/cluster-name") != "" {
			list = append(list, at)
		}
	}
	return list
}
