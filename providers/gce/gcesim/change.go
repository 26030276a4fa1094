package gcesim

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// HostProject is the project of a shared network.
const HostProject = "host-project"

var (
	nameForm = regexp.MustCompile(`^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$`)
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// change serves every call that changes something, and listInstances.
func (s *Sim) change(r *http.Request, at location, c collection) (document, *refusal) {
	if at.collection == "instanceGroups" && at.action == "listInstances" && r.Method == http.MethodPost {
		return s.listMembers(r, at)
	}
	request := r.URL.Query().Get("requestId")
	if request != "" && (!uuidForm.MatchString(request) || request == "00000000-0000-0000-0000-000000000000") {
		return nil, invalid("Invalid value for field 'requestId': '%s'.", request)
	}
	if p, again := s.byRequest[request]; again && request != "" {
		return clone(s.operations[p].doc), nil
	}
	return s.dispatch(r, at, c, request)
}

// dispatch selects the call for a method and a path.
func (s *Sim) dispatch(r *http.Request, at location, c collection, request string) (document, *refusal) {
	if c.fixed {
		return nil, noMethod()
	}
	if at.action != "" {
		if r.Method != http.MethodPost || c.actions[at.action].make == nil {
			return nil, noMethod()
		}
		return s.serveAction(r, at, c, request)
	}
	switch r.Method {
	case http.MethodPost:
		if at.name == "" {
			return s.serveInsert(r, at, c, request)
		}
	case http.MethodDelete:
		if at.name != "" {
			return s.serveDelete(at, request)
		}
	case http.MethodPut, http.MethodPatch:
		if c.replace {
			return s.serveReplace(r, at, c, request)
		}
	}
	return nil, noMethod()
}

func noMethod() *refusal { return &refusal{http.StatusNotFound, "notFound", "Not Found"} }

func (s *Sim) serveInsert(r *http.Request, at location, c collection, request string) (document, *refusal) {
	d, err := read(r, c.form())
	if err != nil {
		return nil, err
	}
	name, _ := d["name"].(string)
	if !nameForm.MatchString(name) {
		return nil, invalid("Invalid value for field 'resource.name': '%s'. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'", name)
	}
	at.name = name
	exists := &refusal{http.StatusConflict, "alreadyExists", "The resource '" + at.path() + "' already exists"}
	if _, taken := s.objects[at.path()]; taken {
		return nil, exists
	}
	readOnly(d)
	if err := s.checkReferences(at, c, d); err != nil {
		return nil, err
	}
	if err := c.complete(s, at, d); err != nil {
		return nil, err
	}
	return s.start(at, "insert", request, func() *refusal {
		if _, taken := s.objects[at.path()]; taken {
			return exists
		}
		if err := s.checkReferences(at, c, d); err != nil {
			return err
		}
		s.insert(at, d)
		return nil
	})
}

// readOnly removes fields that requests may contain and the API ignores.
func readOnly(d document) {
	for _, key := range []string{
		"id", "kind", "selfLink", "creationTimestamp", "region", "zone", "fingerprint", "labelFingerprint", "status", "users", "size",
		"labels", // only setLabels writes them
	} {
		delete(d, key)
	}
}

// insert stores an object with the API's additional fields.
func (s *Sim) insert(at location, d document) {
	s.number++
	d["id"] = numberText(s.number)
	d["kind"] = collections[at.collection].kind
	d["selfLink"] = linkTo(at.path())
	if _, ok := d["creationTimestamp"]; !ok {
		d["creationTimestamp"] = "2024-04-01T12:34:56.123-07:00"
	}
	scopeLink(d, at)
	s.objects[at.path()], s.born[at.path()] = clone(d), s.number
}

func (s *Sim) serveDelete(at location, request string) (document, *refusal) {
	if _, ok := s.objects[at.path()]; !ok {
		return nil, notFound(at.path())
	}
	// The refusal comes at once or in the operation.
	if user := s.userOf(at.path()); user != "" && s.number%2 == 0 {
		return nil, inUse(at.path(), user)
	}
	return s.start(at, "delete", request, func() *refusal {
		if user := s.userOf(at.path()); user != "" {
			return inUse(at.path(), user)
		}
		delete(s.objects, at.path())
		return nil
	})
}

// userOf returns the path of an object that refers to another one.
func (s *Sim) userOf(path string) string {
	for p, d := range s.objects {
		at := parsePath(p)
		if uses := collections[at.collection].uses; uses != nil && slices.Contains(uses(at, d), path) {
			return p
		}
	}
	return ""
}

func (s *Sim) checkReferences(at location, c collection, d document) *refusal {
	if c.uses == nil {
		return nil
	}
	for _, p := range c.uses(at, d) {
		if _, ok := s.objects[p]; !ok {
			return notFound(p)
		}
	}
	return nil
}

func (s *Sim) serveAction(r *http.Request, at location, c collection, request string) (document, *refusal) {
	a := c.actions[at.action]
	at.action = ""
	body, err := read(r, a.form())
	if err != nil {
		return nil, err
	}
	d, ok := s.objects[at.path()]
	if !ok {
		return nil, notFound(at.path())
	}
	if err := a.make(s, at, clone(d), body); err != nil { // faults show at once
		return nil, err
	}
	return s.start(at, a.kind, request, func() *refusal {
		current, ok := s.objects[at.path()]
		if !ok {
			return notFound(at.path())
		}
		return a.make(s, at, current, body)
	})
}

func (s *Sim) serveReplace(r *http.Request, at location, c collection, request string) (document, *refusal) {
	body, err := read(r, c.form())
	if err != nil {
		return nil, err
	}
	current, ok := s.objects[at.path()]
	if !ok {
		return nil, notFound(at.path())
	}
	if c.fingerprint && body["fingerprint"] != current["fingerprint"] {
		return nil, &refusal{http.StatusPreconditionFailed, "conditionNotMet", "Invalid fingerprint."}
	}
	next := document{}
	kind := "update"
	if r.Method == http.MethodPatch {
		next, kind = clone(current), "patch"
		if at.collection == "firewalls" {
			kind = "compute.firewalls.patch"
		}
	}
	if name, ok := body["name"]; ok && name != at.name {
		return nil, invalid("Invalid value for field 'resource.name': '%v'. The name cannot be changed.", name)
	}
	readOnly(body)
	for k, v := range body {
		next[k] = v
		if list, ok := v.([]any); v == nil || (ok && len(list) == 0) {
			delete(next, k)
		}
	}
	next["name"], next["creationTimestamp"] = at.name, current["creationTimestamp"]
	if err := s.checkReferences(at, c, next); err != nil {
		return nil, err
	}
	if err := c.complete(s, at, next); err != nil {
		return nil, err
	}
	return s.start(at, kind, request, func() *refusal {
		if _, ok := s.objects[at.path()]; !ok {
			return notFound(at.path())
		}
		id, born := current["id"], s.born[at.path()]
		s.insert(at, next)
		s.objects[at.path()]["id"], s.born[at.path()] = id, born
		return nil
	})
}

// links returns the paths that fields of an object refer to.
func links(at location, fields ...any) (paths []string) {
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			if f != "" {
				paths = append(paths, at.resource(f))
			}
		case []any:
			paths = append(paths, links(at, f...)...)
		}
	}
	return paths
}

func textsOf(v any) (list []string) {
	all, _ := v.([]any)
	for _, e := range all {
		if text, ok := e.(string); ok {
			list = append(list, text)
		}
	}
	return list
}

func text(d document, key string) string {
	t, _ := d[key].(string)
	return t
}

func lower(d document, key string) string { return strings.ToLower(text(d, key)) }
