package azuresim

import (
	"net/http"
	"strings"
	"time"
)

// Refuse makes the next call of a method on a kind of resource, such as "DELETE Microsoft.Network/loadBalancers", one that is refused.
func (s *Sim) Refuse(operation string, status int, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuseNext[operation] = fail(status, code, "%s", message)
}

// SetActivation changes how long work takes.
func (s *Sim) SetActivation(d time.Duration) { s.mu.Do(func() { s.activation = d }) }

// Change changes a resource behind the API's back.
func (s *Sim) Change(id string, change func(doc map[string]any)) error {
	return s.alter(id, func(r *resource) { change(r.doc) })
}

// Meanwhile changes a resource just before the next write of it, as somebody else who is quicker. Several changes come one by one.
func (s *Sim) Meanwhile(id string, change func(doc map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(id)
	s.meanwhile[key] = append(s.meanwhile[key], change)
}

// interfere does what tests have asked for before a call.
func (s *Sim) interfere(method string, p armPath) *failure {
	if p.group == "" && s.groupsAlone {
		return fail(http.StatusForbidden, "AuthorizationFailed", "The client does not have authorization to perform action '%s/read' over scope "+
			"'/subscriptions/%s' or the scope is invalid.", p.kind(), p.subscription)
	}
	key := strings.ToLower(p.id())
	if r, waiting := s.resources[key], s.meanwhile[key]; method != "GET" && r != nil && len(waiting) > 0 {
		s.meanwhile[key] = waiting[1:]
		waiting[0](r.doc)
		s.number++
		r.etag = s.number
	}
	f := s.refuseNext[method+" "+p.kind()]
	delete(s.refuseNext, method+" "+p.kind())
	return f
}

// GrantGroupsAlone takes the rights on the whole subscription from the credential.
func (s *Sim) GrantGroupsAlone() { s.mu.Do(func() { s.groupsAlone = true }) }

// Fail makes the next write of a kind of resource end in a failure, such as "Microsoft.Network/loadBalancers".
func (s *Sim) Fail(kind, code, message string) {
	s.mu.Do(func() { s.failNext[kind] = fail(http.StatusOK, code, "%s", message) })
}

// AddAddress adds a user's public address and returns its IP.
func (s *Sim) AddAddress(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return text(s.put(ID(kindAddress, name), object{
		"location": Location, "sku": object{"name": "Standard"}, "properties": object{"publicIPAllocationMethod": "Static"},
	}).doc, "properties", "ipAddress")
}
