package photonsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	tokenPath = "/openidconnect/token"
	// polls is how many reads of a task it takes to end.
	polls = 2
)

func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.auth && r.URL.Path == tokenPath:
		s.serveTokens(w, r)
	case r.URL.Path == s.dialect.Auth:
		s.serveAuth(w)
	case !strings.HasPrefix(r.URL.Path, s.dialect.Root+"/") || strings.HasPrefix(strings.TrimPrefix(r.URL.Path, s.dialect.Root), "/v1/"):
		http.NotFound(w, r)
	case s.auth && !s.authorized(w, r):
	case s.Paused:
		s.refuse(w, http.StatusForbidden, "SystemPaused", "System is paused")
	case r.Method != http.MethodGet:
		s.refuse(w, http.StatusMethodNotAllowed, "InvalidOperation", "this simulation is only read")
	default:
		s.serve(w, r, strings.Split(strings.TrimPrefix(r.URL.Path, s.dialect.Root+"/"), "/"))
	}
}

func (s *Sim) serveAuth(w http.ResponseWriter) {
	if !s.auth {
		write(w, http.StatusOK, map[string]any{"enabled": false})
		return
	}
	write(w, http.StatusOK, map[string]any{"enabled": true, "endpoint": s.authHost, "port": s.authPort, "tenant": "photon.local"})
}

func (s *Sim) serveTokens(w http.ResponseWriter, r *http.Request) {
	bad := func(code, text string) {
		write(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": text})
	}
	form, ok := s.Form(r)
	if !ok {
		bad("invalid_request", "the request is malformed")
		return
	}
	access, refresh, problem := s.Grant(form)
	if problem != "" {
		bad(problem, map[string]string{"password": "incorrect username or password", "refresh_token": "the refresh token has expired"}[form.Get("grant_type")])
		return
	}
	write(w, http.StatusOK, map[string]any{
		"access_token": access, "refresh_token": refresh, "id_token": "id", "token_type": "Bearer", "expires_in": 7200,
	})
}

func (s *Sim) authorized(w http.ResponseWriter, r *http.Request) bool {
	ok, none := s.Authorized(r)
	switch {
	case none:
		s.refuse(w, http.StatusUnauthorized, "MissingAuthToken", "there is no token")
	case !ok:
		s.refuse(w, http.StatusUnauthorized, "ExpiredAuthToken", "the token has expired")
	}
	return ok
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request, parts []string) {
	path := strings.Join(parts, "/")
	switch {
	case path == "projects/"+Project+"/vms":
		s.listVMs(w, r)
	case path == "projects/"+Project:
		write(w, http.StatusOK, map[string]string{"id": Project, "name": "kube", "kind": "project"})
	case len(parts) >= 2 && parts[0] == "vms":
		s.serveVM(w, parts[1:])
	case len(parts) == 2 && s.tasks[parts[1]] != nil && parts[0] == "tasks":
		s.serveTask(w, s.tasks[parts[1]])
	case path == "status", path == "system/status":
		write(w, http.StatusOK, map[string]any{
			"status": "READY", "components": []map[string]string{{"name": "photon-controller", "status": "READY"}},
		})
	default:
		s.refuse(w, http.StatusNotFound, "NotFound", "there is no "+path)
	}
}

func (s *Sim) listVMs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"name", "pageSize", "pageLink"}, name) {
			s.refuse(w, http.StatusBadRequest, "InvalidQueryParams", "there is no parameter "+name)
			return
		}
	}
	size, from := maxPage, 0
	if text := q.Get("pageSize"); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil || size < 1 || size > maxPage {
			s.refuse(w, http.StatusBadRequest, "InvalidPageSize", "the size of a page is 1 to 100")
			return
		}
	}
	if text := q.Get("pageLink"); text != "" {
		if s.Expires > 0 {
			s.Expires--
			s.refuse(w, http.StatusNotFound, "PageExpired", "the page has expired")
			return
		}
		if _, err := fmt.Sscanf(text, "page-%d-%d", &from, &size); err != nil {
			s.refuse(w, http.StatusNotFound, "PageExpired", "there is no page "+text)
			return
		}
	}
	all := simkit.Scattered(&s.order, s.VMs.All(), func(v *VM) string { return v.ID })
	if name := q.Get("name"); name != "" {
		all = slices.DeleteFunc(all, func(v *VM) bool { return v.Name != name })
	}
	to := min(from+size, len(all))
	page := map[string]any{"items": append([]*VM{}, all[min(from, to):to]...), "nextPageLink": nil, "previousPageLink": nil}
	if to < len(all) {
		root := s.dialect.Root
		if s.Rootless {
			root = ""
		}
		page["nextPageLink"] = fmt.Sprintf("%s/projects/%s/vms?pageLink=page-%d-%d", root, Project, to, size)
	}
	write(w, http.StatusOK, page)
}

func (s *Sim) serveVM(w http.ResponseWriter, parts []string) {
	v := s.VMs.ByID[strings.ToLower(parts[0])]
	switch {
	case v == nil:
		s.refuse(w, http.StatusNotFound, "VmNotFound", "VM "+parts[0]+" not found")
	case len(parts) == 1:
		write(w, http.StatusOK, v)
	case len(parts) == 2 && parts[1] == s.dialect.Networks:
		if v.State == "ERROR" {
			s.refuse(w, http.StatusBadRequest, "InvalidVmState", "the VM is in the state ERROR")
			return
		}
		s.tasksMade++
		t := &task{id: fmt.Sprintf("task-%d", s.tasksMade), vm: v}
		s.tasks[t.id] = t
		write(w, http.StatusCreated, s.document(t, "QUEUED", nil))
	default:
		write(w, http.StatusNotFound, map[string]any{"code": http.StatusNotFound, "message": "HTTP 404 Not Found"}) // from the server's framework
	}
}

func (s *Sim) document(t *task, state string, result any) map[string]any {
	step := map[string]any{"sequence": 0, "state": state, "operation": "GET_NETWORKS", "errors": []any{}, "warnings": []any{}}
	if state == "ERROR" {
		step["errors"] = []any{map[string]any{"code": "InternalError", "message": t.vm.Fails, "data": map[string]string{}}}
	}
	return map[string]any{
		"id": t.id, "state": state, "operation": "GET_NETWORKS", "entity": map[string]string{"kind": "vm", "id": t.vm.ID},
		"queuedTime": 1489104000000, "startedTime": 1489104000100, "endTime": nil, "steps": []any{step}, "resourceProperties": result,
		"selfLink": s.dialect.Root + "/tasks/" + t.id,
	}
}

func (s *Sim) serveTask(w http.ResponseWriter, t *task) {
	t.seen++
	switch {
	case t.vm.Stuck || t.seen < polls:
		write(w, http.StatusOK, s.document(t, "STARTED", nil))
	case t.vm.Fails != "":
		write(w, http.StatusOK, s.document(t, "ERROR", nil))
	case t.vm.Properties != "":
		write(w, http.StatusOK, s.document(t, "COMPLETED", json.RawMessage(t.vm.Properties)))
	default:
		write(w, http.StatusOK, s.document(t, "COMPLETED", map[string]any{"networkConnections": t.vm.Connections}))
	}
}

func (s *Sim) refuse(w http.ResponseWriter, status int, code, message string) {
	write(w, status, map[string]any{"code": code, "message": message, "data": map[string]string{}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("request-id", "0badc0de")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// Operation implements simkit.Cloud.
func (s *Sim) Operation(r *http.Request) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1"), "/"), "/")
	if len(parts) > 1 && slices.Contains([]string{"vms", "tasks", "projects"}, parts[0]) {
		parts[1] = "{id}"
	}
	return r.Method + " /" + strings.Join(parts, "/"), r.Method != http.MethodGet && r.URL.Path != tokenPath
}

// WriteError implements simkit.Cloud.
func (s *Sim) WriteError(w http.ResponseWriter, status int, message string) {
	if status == http.StatusBadGateway || status == http.StatusServiceUnavailable {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<html><body><h1>%d Service Unavailable</h1></body></html>", status) // from HAProxy
		return
	}
	code := map[int]string{
		http.StatusUnauthorized: "InvalidAuthToken", http.StatusForbidden: "AccessForbidden", http.StatusNotFound: "NotFound",
		http.StatusTooManyRequests: "TooManyRequests",
	}[status]
	if code == "" {
		code = "InternalError"
	}
	s.refuse(w, status, code, message)
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/vms") {
		return false
	}
	var from, size int
	if _, err := fmt.Sscanf(r.URL.Query().Get("pageLink"), "page-%d-%d", &from, &size); err == nil && size > 0 {
		simkit.SetPage(r, strconv.Itoa(from/size+1))
	} else {
		simkit.SetPage(r, "1")
	}
	r.URL.RawQuery = "pageSize=100"
	return true
}

// Followed implements simkit.Pager: it adds a link to another page, with a new name each time.
func (s *Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]any
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	page["nextPageLink"] = fmt.Sprintf("%s?pageLink=page-%d-100", r.URL.Path, simkit.Page(r)*maxPage)
	text, err := json.Marshal(page)
	if err != nil {
		return body
	}
	return text
}
