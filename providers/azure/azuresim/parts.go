package azuresim

import (
	"net/http"
	"slices"
	"strings"
)

// withoutName is a list without the item of a name, and whether that was there.
func withoutName(list []object, name string) (kept []object, gone bool) {
	kept = slices.DeleteFunc(slices.Clone(list), func(o object) bool { return strings.EqualFold(text(o, "name"), name) })
	return kept, len(kept) < len(list)
}

// servePart serves the PUT of a part of a resource that has a path of its own.
func (s *Sim) servePart(w http.ResponseWriter, r *http.Request, p armPath, k kind) *failure {
	parent := s.resources[strings.ToLower(ownerOf(p.id()))]
	if parent == nil {
		return fail(http.StatusNotFound, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource is not found.")
	}
	asked, f := readResource(r)
	if f != nil {
		return f
	}
	if f := legal(s.shared, k.fields, asked["properties"], nil, "properties"); f != nil {
		return f
	}
	if f := checkValues(asked["properties"], "properties", s.rules, readOnly(), nil); f != nil {
		return f
	}
	if match := r.Header.Get("If-Match"); match != "" && match != etagOf(parent) {
		return mismatch(match, parent, p)
	}
	name := p.pairs[len(p.pairs)-1]
	created, f := k.putPart(s, parent, name, asked)
	if f != nil {
		return f
	}
	s.writeChanged(w, r, parent)
	status := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[created]
	for _, one := range k.list(s, strings.ToLower(parent.id)) {
		if strings.EqualFold(text(one, "name"), name) {
			write(w, status, one)
		}
	}
	return nil
}

// deletePart deletes a part of a resource; what is not there at all is deleted already.
func (s *Sim) deletePart(w http.ResponseWriter, r *http.Request, p armPath, k kind) *failure {
	parent, name := s.resources[strings.ToLower(ownerOf(p.id()))], p.pairs[len(p.pairs)-1]
	there := func(one any) bool { return strings.EqualFold(text(one, "name"), name) }
	if parent == nil || k.cutPart == nil || !slices.ContainsFunc(k.list(s, strings.ToLower(parent.id)), there) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if f := k.cutPart(s, parent, name); f != nil {
		return f
	}
	s.writeChanged(w, r, parent)
	w.Header().Set("Location", strings.Replace(w.Header().Get("Azure-AsyncOperation"), "/operations/", "/operationResults/", 1))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// writeChanged gives a resource a new ETag and starts an operation on it.
func (s *Sim) writeChanged(w http.ResponseWriter, r *http.Request, res *resource) {
	s.number++
	res.etag = s.number
	s.work(w, r, res, nil)
}

// listPools lists the backend pools of a load balancer.
func listPools(s *Sim, parent string) []any {
	return anyOf(items(s.show(s.resources[parent], false), "properties", "backendAddressPools"))
}

// putPool replaces a backend pool of a load balancer.
func putPool(s *Sim, parent *resource, name string, asked object) (created bool, f *failure) {
	kept, replaced := withoutName(items(parent.doc, "properties", "backendAddressPools"), name)
	return !replaced, s.setPools(parent, append(kept, object{"name": name, "properties": propertiesOf(asked)}))
}

// cutPool takes a backend pool out of a load balancer.
func cutPool(s *Sim, parent *resource, name string) *failure {
	kept, _ := withoutName(items(parent.doc, "properties", "backendAddressPools"), name)
	return s.setPools(parent, kept)
}

// setPools judges a load balancer with these pools as one that is written whole.
func (s *Sim) setPools(lb *resource, pools []object) *failure {
	if lb.busy.isRunning() {
		return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.")
	}
	asked := clone(lb.doc)
	propertiesOf(asked)["backendAddressPools"] = anyOf(pools)
	return s.putLoadBalancer(lb, asked, false)
}
