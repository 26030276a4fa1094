package gcesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// maxPage is the maximum and default page size.
const maxPage = 500

type refusal struct {
	status          int
	reason, message string
}

func (e refusal) write(w http.ResponseWriter) {
	reply(w, e.status, map[string]any{"error": map[string]any{
		"code": e.status, "message": e.message, "errors": []any{map[string]any{"domain": "global", "reason": e.reason, "message": e.message}},
	}})
}

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "invalid", fmt.Sprintf(format, args...)}
}

func notFound(path string) *refusal {
	return &refusal{http.StatusNotFound, "notFound", fmt.Sprintf("The resource '%s' was not found", path)}
}

func inUse(path, by string) *refusal {
	kind := map[string]string{
		"targetPools": "target_pool", "httpHealthChecks": "http_health_check", "healthChecks": "health_check", "backendServices": "backend_service",
		"instanceGroups": "instance_group", "addresses": "address",
	}[parsePath(path).collection]
	return &refusal{
		http.StatusBadRequest, "resourceInUseByAnotherResource",
		fmt.Sprintf("The %s resource '%s' is already being used by '%s'", kind, path, by),
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// ServeHTTP serves the API and the metadata server.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Judge == nil || !strings.HasPrefix(r.URL.Path, apiRoot) {
		s.serve(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body) // a body in memory
	r.Body = io.NopCloser(bytes.NewReader(body))
	recorder := httptest.NewRecorder()
	s.serve(recorder, r)
	s.Judge(r, body, recorder.Code, recorder.Body.Bytes())
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes()) // the client may have disconnected
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if strings.HasPrefix(r.URL.Path, metadataRoot) {
		s.serveMetadata(w, r)
		return
	}
	rest, api := strings.CutPrefix(r.URL.Path, apiRoot)
	if auth := r.Header.Get("Authorization"); auth == "" || (s.token != "" && auth != "Bearer "+s.token) {
		refusal{http.StatusUnauthorized, "authError", "Request had invalid authentication credentials."}.write(w)
		return
	}
	at := parsePath(rest)
	if !api || at.project == "" {
		refusal{http.StatusNotFound, "notFound", "Not Found"}.write(w)
		return
	}
	if err := simkit.CheckLimits(s, gcelimits.Table, r); simkit.MarkLimit(w, err) {
		invalid("Invalid value for a field: %s.", err).write(w)
		return
	}
	answer, err := s.handle(r, at)
	if err != nil {
		err.write(w)
		return
	}
	if mask := r.URL.Query().Get("fields"); mask != "" {
		selected, ok := selectFields(answer, mask)
		if !ok {
			invalid("Invalid field selection %s", mask).write(w)
			return
		}
		answer = selected
	}
	reply(w, http.StatusOK, answer)
}

func (s *Sim) handle(r *http.Request, at location) (document, *refusal) {
	if err := s.checkPermitted(r, at); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{Project, HostProject, "123456789"}, at.project) {
		return nil, notFound("projects/" + at.project)
	}
	if at.project == "123456789" {
		at.project = Project
	}
	switch {
	case at.collection == "" && r.Method == http.MethodGet:
		return document{"kind": "compute#project", "id": "123456789", "name": at.project, "selfLink": linkTo("projects/" + at.project)}, nil
	case at.collection == "zones" || at.collection == "regions":
		return s.serveLocations(r, at)
	case at.collection == "operations":
		return s.serveOperation(r, at)
	}
	return s.serveObjects(r, at)
}

// checkPermitted refuses calls over a limit or without a permission.
func (s *Sim) checkPermitted(r *http.Request, at location) *refusal {
	method := r.Method + " " + at.collection
	if n := s.throttled[method]; n > 0 {
		s.throttled[method] = n - 1
		return &refusal{
			http.StatusForbidden, "rateLimitExceeded",
			"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'",
		}
	}
	if s.denied[method] || (at.action != "" && s.denied[method+"/"+at.action]) {
		return &refusal{
			http.StatusForbidden, "forbidden",
			fmt.Sprintf("Required 'compute.%s.%s' permission for '%s'", at.collection, verbs[r.Method], at.path()),
		}
	}
	return nil
}

func (s *Sim) serveObjects(r *http.Request, at location) (document, *refusal) {
	if err := s.checkReachable(at); err != nil {
		return nil, err
	}
	c, known := collections[at.collection]
	if !known || (!at.aggregated && !strings.HasPrefix(at.scope, c.scope)) {
		return nil, noMethod()
	}
	switch {
	case r.Method == http.MethodGet && at.name == "":
		return s.list(r, at, c)
	case r.Method == http.MethodGet && at.action == "":
		if d, ok := s.objects[at.path()]; ok {
			return s.responseOf(at, d), nil
		}
		return nil, notFound(at.path())
	}
	return s.change(r, at, c)
}

func (s *Sim) checkReachable(at location) *refusal {
	if zone, ok := strings.CutPrefix(at.scope, "zones/"); ok {
		if !slices.Contains(zones, zone) {
			return invalid("Invalid value for field 'zone': '%s'. Unknown zone.", zone)
		}
		if s.down[zone] {
			return &refusal{http.StatusServiceUnavailable, "backendError", "The zone '" + zone + "' is not reachable."}
		}
	}
	if region, ok := strings.CutPrefix(at.scope, "regions/"); ok && region != Region && region != "europe-west1" {
		return invalid("Invalid value for field 'region': '%s'. Unknown region.", region)
	}
	return nil
}

func (s *Sim) serveLocations(r *http.Request, at location) (document, *refusal) {
	if r.Method != http.MethodGet || at.action != "" {
		return nil, noMethod()
	}
	all := zoneDocuments(at.project)
	if at.collection == "regions" {
		all = regionDocuments(at.project)
	}
	if at.name == "" {
		return page(r, at, map[string]string{"zones": "compute#zoneList", "regions": "compute#regionList"}[at.collection], all)
	}
	for _, d := range all {
		if d["name"] == at.name {
			return d, nil
		}
	}
	return nil, notFound(at.path())
}

func zoneDocuments(project string) (all []document) {
	for i, z := range zones {
		all = append(all, document{
			"kind": "compute#zone", "id": strconv.Itoa(2000 + i), "name": z, "status": "UP", "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
			"description": z, "region": linkTo("projects/" + project + "/regions/" + regionOf(z)), "selfLink": linkTo("projects/" + project + "/zones/" + z),
		})
	}
	return all
}

func regionDocuments(project string) (all []document) {
	for i, z := range zones {
		region := regionOf(z)
		if i > 0 && regionOf(zones[i-1]) == region {
			last := all[len(all)-1]
			last["zones"] = append(last["zones"].([]any), linkTo("projects/"+project+"/zones/"+z)) //nolint:forcetypeassert // made below
			continue
		}
		all = append(all, document{
			"kind": "compute#region", "id": strconv.Itoa(1000 + i), "name": region, "status": "UP", "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
			"description": region, "selfLink": linkTo("projects/" + project + "/regions/" + region),
			"zones": []any{linkTo("projects/" + project + "/zones/" + z)},
		})
	}
	return all
}

func regionOf(zone string) string { return zone[:max(strings.LastIndex(zone, "-"), 0)] }

func (s *Sim) serveOperation(r *http.Request, at location) (document, *refusal) {
	o := s.operations[location{project: at.project, scope: at.scope, collection: "operations", name: at.name}.path()]
	if o == nil {
		return nil, notFound(at.path())
	}
	if (r.Method != http.MethodGet || at.action != "") && (r.Method != http.MethodPost || at.action != "wait") {
		return nil, noMethod()
	}
	return clone(o.doc), nil // wait may return before the operation is done
}

// list serves a collection, or all collections of a kind.
func (s *Sim) list(r *http.Request, at location, c collection) (document, *refusal) {
	match, err := parseFilter(r.URL.Query().Get("filter"))
	if err != nil {
		return nil, err
	}
	var paths []string
	for p, d := range s.objects {
		o := parsePath(p)
		if o.project != at.project || o.collection != at.collection || (!at.aggregated && o.scope != at.scope) {
			continue
		}
		if zone, zonal := strings.CutPrefix(o.scope, "zones/"); zonal && s.down[zone] {
			continue
		}
		if match(d) {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return s.born[a] - s.born[b] })
	found := make([]document, len(paths))
	for i, p := range paths {
		found[i] = s.responseOf(parsePath(p), s.objects[p])
	}
	if at.aggregated {
		return s.aggregated(r, at, c, found)
	}
	return page(r, at, c.kind+"List", found)
}

// aggregated groups a page by zones; empty ones have a warning.
func (s *Sim) aggregated(r *http.Request, at location, c collection, found []document) (document, *refusal) {
	flat, err := page(r, at, c.kind+"AggregatedList", found)
	if err != nil {
		return nil, err
	}
	items := map[string]any{}
	unreachable := []any{}
	for _, z := range zones {
		items["zones/"+z] = map[string]any{"warning": map[string]any{
			"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope 'zones/" + z + "' on this page.",
			"data": []any{map[string]any{"key": "scope", "value": "zones/" + z}},
		}}
		if s.down[z] {
			items["zones/"+z] = map[string]any{"warning": map[string]any{"code": "UNREACHABLE", "message": "zones/" + z + " is not reachable"}}
			unreachable = append(unreachable, "zones/"+z)
		}
	}
	list, _ := flat["items"].([]any)
	grouped := map[string][]any{}
	for _, v := range list {
		d := v.(map[string]any) //nolint:forcetypeassert // made by page
		scope := parsePath(location{}.resource(text(d, "selfLink"))).scope
		grouped[scope] = append(grouped[scope], d)
	}
	for scope, group := range grouped {
		items[scope] = map[string]any{at.collection: group}
	}
	flat["items"] = items
	if len(unreachable) > 0 {
		flat["unreachables"] = unreachable
	}
	return flat, nil
}

// page returns the requested page of a listing.
func page(r *http.Request, at location, kind string, all []document) (document, *refusal) {
	query := r.URL.Query()
	size := maxPage
	if text := query.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxPage {
			return nil, invalid("Invalid value for field 'maxResults': '%s'. Must be between 0 and 500.", text)
		}
		size = max(n, 1)
	}
	number := 1
	if token := query.Get("pageToken"); token != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(token, "page-"))
		if err != nil || n < 2 {
			return nil, invalid("Invalid value for field 'pageToken': '%s'.", token)
		}
		number = n
	}
	from := min((number-1)*size, len(all))
	to := min(from+size, len(all))
	d := document{"kind": kind, "id": at.path(), "selfLink": linkTo(at.path())}
	if from < to {
		items := make([]any, 0, to-from)
		for _, o := range all[from:to] {
			items = append(items, map[string]any(o))
		}
		d["items"] = items
	}
	if to < len(all) {
		d["nextPageToken"] = fmt.Sprint("page-", number+1)
	}
	return d, nil
}

// read decodes a body strictly into the API's own type, and into a document.
func read(r *http.Request, into any) (document, *refusal) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, invalid("Invalid JSON payload received.")
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil {
		return nil, invalid("Invalid JSON payload received. %s", err)
	}
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, invalid("Invalid JSON payload received. %s", err)
	}
	if name := unknownField(reflect.TypeOf(into), map[string]any(d)); name != "" {
		return nil, invalid("Invalid JSON payload received. Unknown name %q: Cannot find field.", name)
	}
	return d, nil
}

// unknownField finds a field that a type does not have. Types with their own decoder hide it from the strict decoder.
func unknownField(t reflect.Type, v any) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			if name := unknownField(t, element); name != "" {
				return name
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return ""
		}
		known := map[string]reflect.Type{}
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			known[name] = field.Type
		}
		for name, value := range v {
			if known[name] == nil {
				return name
			}
			if inner := unknownField(known[name], value); inner != "" {
				return inner
			}
		}
	}
	return ""
}

// responseOf returns an object as in a response: without internal fields, and with fields computed from other objects.
func (s *Sim) responseOf(at location, d document) document {
	d = clone(d)
	delete(d, "members")
	if warnings := s.routeWarnings(d); at.collection == "routes" && warnings != nil {
		d["warnings"] = warnings
	}
	if at.collection == "addresses" {
		delete(d, "users")
		d["status"] = "RESERVED"
		if users := s.usersOf(text(d, "address")); len(users) > 0 {
			d["status"], d["users"] = "IN_USE", users
		}
	}
	return d
}
