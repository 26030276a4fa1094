package vspheresim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Tag attaches a tag to an object; category and tag are made where there are none.
func (s *Sim) Tag(category, name string, ref types.ManagedObjectReference) {
	s.mu.Lock()
	if s.urns == nil {
		s.urns = map[string]string{}
	}
	categoryURN, tagURN := s.urns[category], s.urns[category+"/"+name]
	s.mu.Unlock()
	if categoryURN == "" {
		categoryURN = s.ask("/tagging/category", map[string]any{"create_spec": map[string]any{
			"name": category, "description": "", "cardinality": "MULTIPLE", "associable_types": []string{},
		}})
	}
	if tagURN == "" {
		tagURN = s.ask("/tagging/tag", map[string]any{"create_spec": map[string]any{"name": name, "description": "", "category_id": categoryURN}})
	}
	s.ask("/tagging/tag-association/id:"+tagURN+"?~action=attach", map[string]any{"object_id": map[string]any{"id": ref.Value, "type": ref.Type}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urns[category], s.urns[category+"/"+name] = categoryURN, tagURN
}

// SetTags gives an object these tags by category, in place of all that it has.
func (s *Sim) SetTags(ref types.ManagedObjectReference, tags map[string]string) {
	s.mu.Lock()
	urns := maps.Clone(s.urns)
	s.mu.Unlock()
	for name, urn := range urns {
		if strings.Contains(name, "/") { // or it is a category
			s.ask("/tagging/tag-association/id:"+urn+"?~action=detach", map[string]any{"object_id": map[string]any{"id": ref.Value, "type": ref.Type}})
		}
	}
	for category, name := range tags {
		s.Tag(category, name, ref)
	}
}

// ask makes a call of the REST API as an administrator does, which is not counted.
func (s *Sim) ask(path string, in any) string {
	login := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/rest/com/vmware/cis/session", http.NoBody)
	login.SetBasicAuth(User, Password)
	var id string
	s.serve(login, &id)
	body, err := json.Marshal(in)
	if err != nil {
		panic(err) // it holds nothing that has no JSON
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/rest/com/vmware/cis"+path, bytes.NewReader(body))
	r.Header.Set("vmware-api-session-id", id)
	var made string
	s.serve(r, &made)
	return made
}

func (s *Sim) serve(r *http.Request, out *string) {
	s.serving.Lock()
	defer s.serving.Unlock()
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, r)
	if answer.Code >= http.StatusBadRequest {
		panic(fmt.Sprintf("%s %s: HTTP %d: %s", r.Method, r.URL, answer.Code, answer.Body))
	}
	value := struct {
		Value *string `json:"value"`
	}{out}
	_ = json.Unmarshal(answer.Body.Bytes(), &value) // some answer nothing
}

// Cluster returns the cluster of a datacenter.
func (s *Sim) Cluster(datacenter string) (ref types.ManagedObjectReference) {
	s.change(func(m *simulator.Registry) { ref = s.clusterOf(m, datacenter).Self })
	return ref
}

// Folder returns the folder with the virtual machines of a datacenter.
func (s *Sim) Folder(datacenter string) (ref types.ManagedObjectReference) {
	s.change(func(m *simulator.Registry) { ref = s.datacenter(m, datacenter).VmFolder })
	return ref
}

// Datastores returns the folder with the datastores of a datacenter, in which no virtual machine is.
func (s *Sim) Datastores(datacenter string) (ref types.ManagedObjectReference) {
	s.change(func(m *simulator.Registry) { ref = s.datacenter(m, datacenter).DatastoreFolder })
	return ref
}

// Pool returns the resource pool of a datacenter's cluster.
func (s *Sim) Pool(datacenter string) (ref types.ManagedObjectReference) {
	s.change(func(m *simulator.Registry) { ref = *s.clusterOf(m, datacenter).ResourcePool })
	return ref
}

// HostOf returns the host of a virtual machine.
func (s *Sim) HostOf(one *Machine) (ref types.ManagedObjectReference) {
	s.change(func(*simulator.Registry) { ref = *one.vm.Runtime.Host })
	return ref
}
