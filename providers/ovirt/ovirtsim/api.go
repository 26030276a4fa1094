package ovirtsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	apiRoot    = "/ovirt-engine/api"
	tokenPath  = "/ovirt-engine/sso/oauth/token"
	logoutPath = "/ovirt-engine/services/sso-logout"
)

func simShuffled[E any](s *Sim, list []E) []E { return simkit.Shuffled(&s.order, list) }

// ServeHTTP speaks the API.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == tokenPath || r.URL.Path == logoutPath:
		s.serveSSO(w, r)
	case r.URL.Path == apiRoot || strings.HasPrefix(r.URL.Path, apiRoot+"/"):
		s.serveAPI(w, r)
	default:
		page(w, http.StatusNotFound, "Not Found") // of the web server before the engine
	}
}

// page writes what is no answer of the API.
func page(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "text/html;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<html><head><title>%d - %s</title></head></html>", status, title) // a client that went away
}

func (s *Sim) serveSSO(w http.ResponseWriter, r *http.Request) {
	refuse := func(code, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error_code": code, "error": message}) // a client that went away
	}
	form, ok := s.Form(r)
	if !ok {
		refuse("invalid_request", "Missing parameter: 'grant_type'")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == logoutPath {
		s.Logout(form.Get("token"))
		_, _ = w.Write([]byte(`{}`)) // a client that went away
		return
	}
	switch access, _, problem := s.Grant(form); problem {
	case "":
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"scope":"ovirt-app-api","exp":"9223372036854775807","token_type":"bearer"}`, access)
	case "invalid_grant":
		refuse("access_denied", "Cannot authenticate user '"+form.Get("username")+"': The user name or password is incorrect..")
	default:
		refuse(problem, "The request is not supported")
	}
}

// parameters are those that each path takes.
func parameters(path string) []string {
	switch path {
	case "/vms":
		return []string{"search", "max", "case_sensitive", "follow", "filter", "all_content"}
	case "":
		return []string{"follow"}
	}
	return []string{"search", "max", "case_sensitive", "follow", "all_content"}
}

func (s *Sim) serveAPI(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, apiRoot), "/")
	authorized, _ := s.Authorized(r)
	switch version := r.Header.Get("Version"); {
	case path == "/v3" || strings.HasPrefix(path, "/v3/") || (version != "" && version != "4"):
		page(w, http.StatusNotFound, "Not Found") // the engine has its code no more
		return
	case !authorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="RESTAPI"`)
		page(w, http.StatusUnauthorized, "Unauthorized")
		return
	case r.Method != http.MethodGet:
		s.fault(w, r, http.StatusMethodNotAllowed, "this simulated engine is only read")
		return
	}
	for name := range r.URL.Query() {
		if !slices.Contains(parameters(path), name) {
			s.fault(w, r, http.StatusBadRequest, "there is no parameter "+name)
			return
		}
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "":
		s.send(w, r, s.summary())
	case path == "/vms":
		s.listVMs(w, r)
	case parts[0] == "vms":
		s.serveVM(w, r, parts[1:])
	case len(parts) <= 2 && slices.Contains([]string{"clusters", "datacenters", "instancetypes"}, parts[0]):
		s.servePlaces(w, r, parts)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Sim) summary() element {
	return object("api",
		link("vms", apiRoot+"/vms"), link("clusters", apiRoot+"/clusters"),
		object("product_info", text("name", "oVirt Engine"), text("vendor", "ovirt.org"), object("version",
			text("major", "4"), text("minor", "5"), text("build", "7"), text("revision", "0"), text("full_version", "4.5.7-1.el9"))),
		object("summary", object("vms", text("active", strconv.Itoa(len(s.VMs.Order))), text("total", strconv.Itoa(len(s.VMs.Order))))),
		element{name: "time", text: "2024-05-06T07:08:09.000Z", number: "1714979289000"},
	)
}

func (s *Sim) listVMs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	found, problem := s.searched(q)
	if problem != "" {
		s.fault(w, r, http.StatusBadRequest, problem)
		return
	}
	if s.filtered && strings.Contains(q.Get("follow"), "tags") {
		s.fault(w, r, http.StatusForbidden, "Query execution failed due to insufficient permissions.")
		return
	}
	list := collection("vms", "vm")
	for _, v := range found {
		list.kids = append(list.kids, s.vmDocument(v, q.Get("follow")))
	}
	s.send(w, r, list)
}

// searched returns what a search finds, in the engine's ways: no order, the whole set without max, and for a filtered user the
// intersection with what he may see.
func (s *Sim) searched(q url.Values) (found []*VM, problem string) {
	search, err := parseSearch(q.Get("search"), q.Get("case_sensitive") == "true")
	if err != nil {
		return nil, err.Error()
	}
	limit := len(s.VMs.Order)
	if text := q.Get("max"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, "max is no number"
		}
		if n >= 0 {
			limit = n
		}
	}
	all := s.visible()
	ignored := s.filtered && search.sorted && q.Has("max")
	for _, v := range all {
		if ignored || search.matches(s, v) {
			found = append(found, v)
		}
	}
	if !search.sorted {
		found = simShuffled(s, found)
	} else {
		slices.SortFunc(found, func(a, b *VM) int { return strings.Compare(a.Name, b.Name) })
	}
	from := min(max(search.page-1, 0)*limit, len(found))
	return found[from:min(from+limit, len(found))], ""
}

func (s *Sim) serveVM(w http.ResponseWriter, r *http.Request, parts []string) {
	at := slices.IndexFunc(s.visible(), func(v *VM) bool { return v.ID == strings.ToLower(parts[0]) })
	if at < 0 {
		w.WriteHeader(http.StatusNotFound) // usually without a body
		return
	}
	v := s.visible()[at]
	switch {
	case len(parts) == 1:
		s.send(w, r, s.vmDocument(v, r.URL.Query().Get("follow")))
	case len(parts) == 2 && parts[1] == "nics":
		s.send(w, r, s.nicsDocument(v, false))
	case len(parts) == 2 && parts[1] == "reporteddevices":
		s.send(w, r, s.devicesDocument(v, func(Device) bool { return true }))
	case len(parts) == 2 && parts[1] == "tags":
		s.send(w, r, v.tagsDocument())
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// servePlaces serves what virtual machines refer to.
func (s *Sim) servePlaces(w http.ResponseWriter, r *http.Request, parts []string) {
	if s.hidden[parts[0]] {
		s.fault(w, r, http.StatusForbidden, "Query execution failed due to insufficient permissions.")
		return
	}
	list := collection(map[string]string{"clusters": "clusters", "datacenters": "data_centers", "instancetypes": "instance_types"}[parts[0]],
		map[string]string{"clusters": "cluster", "datacenters": "data_center", "instancetypes": "instance_type"}[parts[0]])
	add := func(n named, more ...element) {
		e := object(list.items, append([]element{text("name", n.Name), text("description", "")}, more...)...)
		e.id, e.href = n.ID, apiRoot+"/"+parts[0]+"/"+n.ID
		list.kids = append(list.kids, e)
	}
	switch parts[0] {
	case "clusters":
		for _, c := range s.clusters {
			add(named{c.ID, c.Name}, reference("data_center", "datacenters", c.DataCenter))
		}
	case "datacenters":
		for _, d := range s.dataCenters {
			add(d)
		}
	case "instancetypes":
		for _, t := range s.types {
			add(t)
		}
	}
	if len(parts) == 1 {
		s.send(w, r, list)
		return
	}
	for _, e := range list.kids {
		if e.id == parts[1] {
			s.send(w, r, e)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func (*Sim) send(w http.ResponseWriter, r *http.Request, e element) {
	body, contentType := e.encode(strings.Contains(r.Header.Get("Accept"), "json"))
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // a client that went away
}

func (s *Sim) fault(w http.ResponseWriter, r *http.Request, status int, detail string) {
	body, contentType := object("fault", text("detail", detail), text("reason", "Operation Failed")).encode(strings.Contains(r.Header.Get("Accept"), "json"))
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // no browser reads it
}

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if rest, ok := strings.CutPrefix(path, apiRoot+"/"); ok {
		parts := strings.Split(rest, "/")
		if len(parts) > 1 {
			parts[1] = "{id}"
		}
		path = apiRoot + "/" + strings.Join(parts, "/")
	}
	return r.Method + " " + path, r.Method != http.MethodGet && path != tokenPath && path != logoutPath
}

// WriteError implements simkit.Cloud: what fails before the engine is a page.
func (s *Sim) WriteError(w http.ResponseWriter, status int, message string) {
	s.WriteErrorFor(w, &http.Request{Header: http.Header{"Accept": {"application/json"}}}, status, message)
}

// WriteErrorFor implements simkit.RequestErrors.
func (s *Sim) WriteErrorFor(w http.ResponseWriter, r *http.Request, status int, message string) {
	switch status {
	case http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable:
		page(w, status, http.StatusText(status))
	default:
		s.fault(w, r, status, message)
	}
}
