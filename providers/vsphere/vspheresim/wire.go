package vspheresim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// intercept sees every SOAP call before govmomi's simulator does, and refuses what vCenter refuses.
func (s *Sim) intercept(_ *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := method.Body.(*types.WaitForUpdatesEx); ok && s.forgetful {
		s.forgetful = false
		return nil, &types.InvalidCollectorVersion{}
	}
	read, ok := method.Body.(*types.RetrievePropertiesEx)
	if !ok {
		return nil, nil
	}
	for _, set := range read.SpecSet {
		for _, o := range set.ObjectSet {
			if s.hidden[o.Obj] != nil {
				ref := o.Obj
				return nil, &types.NoPermission{Object: &ref, PrivilegeId: "System.View"}
			}
		}
	}
	return nil, nil
}

// denied takes from an answer about privileges those that the account does not have; govmomi's simulator grants all.
func (s *Sim) denied(body []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return privileges.ReplaceAllFunc(body, func(one []byte) []byte {
		ref := privileges.FindSubmatch(one)[1]
		for folder := range s.unreadable {
			if folder.Value == string(ref) {
				return bytes.ReplaceAll(one, []byte("<isGranted>true<"), []byte("<isGranted>false<"))
			}
		}
		return one
	})
}

const soapPath = "/sdk"

var (
	methodName = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)
	uuidOf     = regexp.MustCompile(`(<uuid[^>]*>)([^<]*)(</uuid>)`)
	urn        = regexp.MustCompile(`id:[^/]+`)
	privileges = regexp.MustCompile(`(?s)<entity[^>]*>([^<]*)</entity>.*?</privAvailability>`)
)

// ServeHTTP speaks the API.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.forNSX(r) {
		s.NSX.ServeHTTP(w, r)
		return
	}
	if r.URL.Path != soapPath && !strings.HasPrefix(r.URL.Path, "/rest/") && !strings.HasPrefix(r.URL.Path, "/sts/") &&
		!strings.HasPrefix(r.URL.Path, "/lookupservice/") {
		s.WriteError(w, http.StatusNotFound, "there is no such path")
		return
	}
	if r.URL.Path == "/rest/com/vmware/cis/session" && r.Method == http.MethodPost {
		if user, password, ok := r.BasicAuth(); ok && !s.accepts(user, password) {
			s.WriteError(w, http.StatusUnauthorized, "com.vmware.vapi.std.errors.unauthenticated")
			return
		}
		r.SetBasicAuth(User, Password) // govmomi's knows but one password
	}
	if r.URL.Path == sts.Path {
		r.URL.Path = sts.SystemPath // govmomi's simulator has single sign-on there
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	// vCenter compares UUIDs in any case, govmomi's simulator as they stand.
	body = uuidOf.ReplaceAllFunc(body, bytes.ToLower)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.serving.Lock()
	defer s.serving.Unlock()
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, r)
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	answer := recorder.Body.Bytes()
	if bytes.Contains(body, []byte("HasUserPrivilegeOnEntities")) {
		answer = s.denied(answer)
	}
	answer = s.disarranged(answer, "objects", "propSet")
	_, _ = w.Write(answer) // a client that disconnected
}

// disarranged is an answer whose elements of a name have changed places, and within each of them those of the next name: the property
// collector promises no order.
func (s *Sim) disarranged(body []byte, name string, within ...string) []byte {
	opening, closing := []byte("<"+name+">"), []byte("</"+name+">")
	var before, elements [][]byte
	for {
		start := bytes.Index(body, opening)
		length := bytes.Index(body[max(start, 0):], closing)
		if start < 0 || length < 0 {
			break
		}
		end := start + length + len(closing)
		element := body[start:end]
		if len(within) > 0 {
			element = s.disarranged(element, within[0], within[1:]...)
		}
		before, elements = append(before, body[:start]), append(elements, element)
		body = body[end:]
	}
	var all []byte
	for i, element := range simkit.Shuffled(&s.disorder, elements) {
		all = append(append(all, before[i]...), element...)
	}
	return append(all, body...)
}

// listing and reading are the operations of RetrievePropertiesEx: over a view, and of single objects.
const (
	Listing = "RetrievePropertiesEx"
	// Changes is the operation that asks what has changed since.
	Changes = "WaitForUpdatesEx"
	reading = "RetrievePropertiesEx object"
)

// Operation implements simkit.Cloud.
func (s *Sim) Operation(r *http.Request) (string, bool) {
	if s != nil && s.forNSX(r) {
		return s.NSX.Operation(r)
	}
	if r.URL.Path != soapPath {
		path := urn.ReplaceAllString(strings.TrimPrefix(r.URL.Path, "/rest/com/vmware/cis"), "{id}")
		if action := r.URL.Query().Get("~action"); action != "" {
			path += " " + action
		}
		return r.Method + " " + path, false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return r.Method + " " + soapPath, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m := methodName.FindSubmatch(body)
	switch {
	case m == nil:
		return r.Method + " " + soapPath, false
	case string(m[1]) == Listing && !bytes.Contains(body, []byte(">view<")):
		return reading, false
	}
	return string(m[1]), false
}

// WriteError implements simkit.Cloud: what stands before vCenter answers pages.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, message) // a client that disconnected
}

// RateHeaders implements simkit.Cloud: vCenter tells nothing.
func (*Sim) RateHeaders(http.Header, int, int, time.Time) {}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simkit.Snapshot(withNSX(s, map[string]any{"virtualMachines": s.machines}, func() map[string]any {
		return map[string]any{"nsx": s.NSX.State()}
	}))
}

// Seed implements simkit.Cloud.
func (s *Sim) Seed(n int) {
	simkit.SeedNodes(n, s.Instances(), func(name string, _ int) { s.Add(Spec{Name: name}) })
}

// Instances implements simkit.Cloud.
func (s *Sim) Instances() []simkit.Instance {
	s.serving.Lock()
	defer s.serving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]simkit.Instance, len(s.machines))
	for i, one := range s.machines {
		list[i] = simkit.Instance{Name: one.Name, ProviderID: "vsphere://" + one.UUID, Status: string(one.vm.Runtime.PowerState)}
	}
	return list
}

// RemoveInstance implements simkit.Cloud.
func (s *Sim) RemoveInstance(name string) error {
	one, err := s.findByName(name)
	if err == nil {
		s.Destroy(one)
	}
	return err
}

func (s *Sim) findByName(name string) (*Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.machines {
		if one.Name == name || "vsphere://"+one.UUID == name || one.UUID == name {
			return one, nil
		}
	}
	return nil, errors.New("there is no virtual machine " + name)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	if s.NSX == nil {
		return []string{}
	}
	return s.NSX.Holdings()
}

// Environment implements simkit.Cloud.
func (*Sim) Environment(string) map[string]string { return map[string]string{} }

// CloudConfig returns the vsphere.conf of a controller that talks to this vCenter at url.
func (s *Sim) CloudConfig(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("global:\n  server: %q\n  user: %q\n  password: %q\n", url, User, s.password) + s.nsxConfig(url)
}

var objects = regexp.MustCompile(`(?s)<objects>.*</objects>`)

// Distort implements simkit.Cloud.
func (s *Sim) Distort() map[string]simkit.Distortion {
	asked := func(r *http.Request) string {
		operation, _ := (*Sim)(nil).Operation(r)
		return operation
	}
	return withNSX(s, map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it.
		"empty-list": func(r *http.Request, body []byte) ([]byte, bool) {
			return objects.ReplaceAll(body, nil), strings.HasPrefix(asked(r), Listing)
		},
		// cut-list: half of the objects of a listing are missing.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			all := bytes.SplitAfter(body, []byte("</objects>"))
			if len(all) > 2 {
				body = append(bytes.Join(all[:(len(all)+1)/2], nil), all[len(all)-1]...)
			}
			return body, asked(r) == Listing
		},
		// no-match: the search finds nothing.
		"no-match": func(r *http.Request, body []byte) ([]byte, bool) {
			return regexp.MustCompile(`<returnval[^>]*>[^<]*</returnval>`).ReplaceAll(body, nil), asked(r) == "FindAllByUuid"
		},
		// missing-set: the properties of virtual machines are refused one by one.
		"missing-set": func(r *http.Request, body []byte) ([]byte, bool) {
			return withFaults(body), strings.HasPrefix(asked(r), Listing)
		},
	}, func() map[string]simkit.Distortion { return s.NSX.Distort() })
}

var uuidProperty = regexp.MustCompile(`(?s)<propSet><name>(summary\.config\.uuid|config\.uuid)</name>.*?</propSet>`)

// withFaults replaces the UUIDs in an answer by faults.
func withFaults(body []byte) []byte {
	return uuidProperty.ReplaceAll(body, []byte(`<missingSet><path>$1</path><fault><fault xsi:type="NoPermission">`+
		`<object type="VirtualMachine">vm-1</object><privilegeId>System.Read</privilegeId></fault><localizedMessage></localizedMessage></fault></missingSet>`))
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	of := func(f func(*Machine)) func(json.RawMessage) error {
		return simkit.Action(func(in struct{ ID string }) error {
			one, err := s.findByName(in.ID)
			if err == nil {
				f(one)
			}
			return err
		})
	}
	return withNSX(s, map[string]func(json.RawMessage) error{
		"power-off": of(s.PowerOff), "suspend": of(s.Suspend), "lose": of(s.Lose), "hide": of(s.Hide),
		"power-on": of(func(one *Machine) {
			s.Update(one, types.PropertyChange{Name: "runtime.powerState", Val: types.VirtualMachinePowerStatePoweredOn})
		}),
	}, func() map[string]func(json.RawMessage) error { return s.NSX.Actions() })
}
