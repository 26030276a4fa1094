// Package ocisim simulates the part of Oracle's cloud that the provider uses: compute instances, their network, and load balancers.
package ocisim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// The one tenancy, its compartment and network.
const (
	Tenancy     = "ocid1.tenancy.oc1..aaaasimulated"
	User        = "ocid1.user.oc1..aaaasimulated"
	Compartment = "ocid1.compartment.oc1..aaaasimulated"
	VCN         = "ocid1.vcn.oc1.phx.aaaasimulated"
	Region      = "us-phoenix-1"
	// regionShown is how instances of this region show it: the two oldest have keys.
	regionShown = "phx"
	maxPage     = 1000
)

// Sim is a simulated cloud.
type Sim struct {
	mu          simkit.Mutex
	fingerprint string
	number      int
	pageSize    int
	identity    identity
	// blind is set where the policies of the user show nothing of what there is.
	blind bool
	// hidden are parts of paths and queries of which the policies of the user show nothing.
	hidden []string
	simkit.Machines[string, Instance]
	noSubnets []string
	balancing
	networkBalancing
	security
	reserved []*reserved
}

// New returns a simulated cloud with nothing in it. Only calls that the key signs are accepted under the fingerprint.
func New(fingerprint string) (*Sim, *simkit.Server) {
	s := &Sim{fingerprint: fingerprint, pageSize: maxPage}
	s.Machines = simkit.Machines[string, Instance]{
		Lock: &s.mu, Status: func(i *Instance) *string { return &i.State }, Make: func(name string) { s.AddInstance(name) },
		About: func(i *Instance) simkit.Instance {
			return simkit.Instance{Name: i.Name, ProviderID: prefix + i.ID, Status: i.State}
		},
	}
	return s, simkit.New(s)
}

// usualFingerprint is that of the key where none is asked for.
const usualFingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"

// NewServer returns the simulator for programs that know simulators only in general. The credential is the fingerprint of the key.
func NewServer(token string, work time.Duration, _ bool) *simkit.Server {
	s, server := New(cmp.Or(token, usualFingerprint))
	s.workTime = work
	return server
}

// SetFingerprint changes the only fingerprint that is accepted.
func (s *Sim) SetFingerprint(fingerprint string) { s.mu.Do(func() { s.fingerprint = fingerprint }) }

// SetPageSize makes pages smaller than they may be.
func (s *Sim) SetPageSize(n int) { s.mu.Do(func() { s.pageSize = n }) }

// SetBlind makes the cloud show nothing, as to a user whose policies were taken away: lists are empty, and nothing is found.
func (s *Sim) SetBlind(blind bool) { s.mu.Do(func() { s.blind = blind }) }

// Hide makes the cloud find nothing where the path and the query hold one of some texts, as for a user whose policies leave that out.
// Without any it shows everything again.
func (s *Sim) Hide(parts ...string) { s.mu.Do(func() { s.hidden = parts }) }

func (s *Sim) hides(r *http.Request) bool {
	return slices.ContainsFunc(s.hidden, func(part string) bool { return strings.Contains(r.URL.RequestURI(), part) })
}

const metadataPath = "/opc/v2"

var resource = regexp.MustCompile(`^/20160918/([A-Za-z0-9]+)(?:/([^/]+))?$`)

// ServeHTTP speaks the API.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Opc-Request-Id", strconv.Itoa(len(r.URL.Path)))
	switch path, isMetadata := strings.CutPrefix(r.URL.Path, metadataPath); {
	case isMetadata && r.Method == http.MethodGet:
		s.metadata(w, r, path)
		return
	case r.Method+" "+r.URL.Path == "POST /v1/x509":
		s.federate(w, r, body)
		return
	case r.Method+" "+r.URL.Path == "POST /oauth2/v1/token":
		s.exchange(w, r, body)
		return
	}
	if why := s.verify(r, body); why != "" && !simkit.IsAsked(r) {
		fail(w, http.StatusUnauthorized, "NotAuthenticated", why)
		return
	}
	if s.hides(r) {
		notFound(w)
		return
	}
	if overLimit(w, simkit.CheckLimits(s, ocilimits.Table, r)) {
		return
	}
	if s.serveBalancers(w, r, body) || s.serveNetworkBalancers(w, r, body) || s.serveSecurity(w, r, body) {
		return
	}
	match := resource.FindStringSubmatch(r.URL.Path)
	if match == nil {
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
		return
	}
	if r.Method != http.MethodGet {
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
		return
	}
	s.read(w, r, match[1], match[2])
}

// read answers a read.
func (s *Sim) read(w http.ResponseWriter, r *http.Request, kind, id string) {
	if id == "" {
		s.list(w, r, kind)
		return
	}
	var found any
	switch kind {
	case "instances":
		if i := s.VMs.ByID[id]; i != nil {
			found = i
		}
	case "vnics":
		if i := s.ofVNIC(id); i != nil {
			found = i.vnic(id)
		}
	case "vcns":
		if id == VCN {
			found = map[string]any{"id": VCN, "compartmentId": Compartment, "lifecycleState": "AVAILABLE", "cidrBlock": "10.0.0.0/16"}
		}
	case "subnets":
		if subnet, ok := s.subnet(id); ok {
			found = subnet
		}
	}
	if found == nil || s.blind {
		fail(w, http.StatusNotFound, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
		return
	}
	write(w, http.StatusOK, found)
}

// parameters are those that a listing takes, and which of them it needs.
func parameters() map[string]struct{ takes, needs []string } {
	return map[string]struct{ takes, needs []string }{
		"instances":           {[]string{"compartmentId", "availabilityDomain", "displayName", "lifecycleState"}, []string{"compartmentId"}},
		"vnicAttachments":     {[]string{"compartmentId", "instanceId", "vnicId", "availabilityDomain"}, []string{"compartmentId"}},
		"privateIps":          {[]string{"ipAddress", "subnetId", "vnicId"}, nil},
		"ipv6":                {[]string{"ipAddress", "subnetId", "vnicId"}, nil},
		"availabilityDomains": {[]string{"compartmentId"}, []string{"compartmentId"}},
		"publicIps":           {[]string{"scope", "compartmentId", "availabilityDomain", "lifetime"}, []string{"scope", "compartmentId"}},
	}
}

// list answers a listing.
func (s *Sim) list(w http.ResponseWriter, r *http.Request, kind string) {
	known, ok := parameters()[kind]
	if !ok {
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
		return
	}
	query := r.URL.Query()
	for name, values := range query {
		if !slices.Contains(append(known.takes, "limit", "page"), name) || len(values) != 1 || values[0] == "" {
			fail(w, http.StatusBadRequest, "InvalidParameter", "parameter "+name+" is not legal here")
			return
		}
	}
	for _, p := range known.needs {
		if query.Get(p) == "" {
			fail(w, http.StatusBadRequest, "MissingParameter", p+" is missing")
			return
		}
	}
	if why := refusal(kind, query); why != "" {
		fail(w, http.StatusBadRequest, "InvalidParameter", why)
		return
	}
	if c := query.Get("compartmentId"); c != "" && !s.hasCompartment(c) {
		fail(w, http.StatusNotFound, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
		return
	}
	var items []any
	if !s.blind {
		items = s.items(kind, query)
	}
	s.page(w, r, items)
}

const pagePrefix = "page-"

// page writes the page of a listing that is asked for.
func (s *Sim) page(w http.ResponseWriter, r *http.Request, items []any) {
	s.pageAs(w, r, items, func(some []any) any { return some })
}

// pageAs writes a page in the form that the service has.
func (s *Sim) pageAs(w http.ResponseWriter, r *http.Request, items []any, form func([]any) any) {
	size, from := s.pageSize, 0
	query := r.URL.Query()
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			fail(w, http.StatusBadRequest, "InvalidParameter", "limit is 1 to 1000")
			return
		}
		size = min(size, n)
	}
	if token := query.Get("page"); token != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(token, pagePrefix))
		if err != nil || n < 1 || !strings.HasPrefix(token, pagePrefix) {
			fail(w, http.StatusBadRequest, "InvalidParameter", "page is no token of a page")
			return
		}
		from = min((n-1)*size, len(items))
	}
	to := min(from+size, len(items))
	if next := r.Header.Get(endless); next != "" {
		w.Header().Set("Opc-Next-Page", next)
	} else if to < len(items) {
		w.Header().Set("Opc-Next-Page", pagePrefix+strconv.Itoa(from/size+2))
	}
	some := items[from:to]
	if some == nil {
		some = []any{}
	}
	write(w, http.StatusOK, form(some))
}

// endless is the header by which a page is made to refer to another one.
const endless = "X-Simulated-Endless"

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("limit") {
		return false
	}
	number := strings.TrimPrefix(query.Get("page"), pagePrefix)
	simkit.SetPage(r, number)
	n, err := strconv.Atoi(number)
	if err != nil {
		n = 1
	}
	r.Header.Set(endless, pagePrefix+strconv.Itoa(n+1))
	return true
}

// Followed implements simkit.Pager: a header says that another page follows.
func (*Sim) Followed(_ *http.Request, body []byte) []byte { return body }

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	if name := balancerOperation(r); name != "" {
		return name, r.Method != http.MethodGet
	}
	if name := networkOperation(r); name != "" {
		return name, r.Method != http.MethodGet
	}
	if name := securityOperation(r); name != "" {
		return name, r.Method != http.MethodGet && r.URL.Path != byAddressPath
	}
	match := resource.FindStringSubmatch(r.URL.Path)
	name := r.Method + " other"
	if match != nil {
		if name = r.Method + " /" + match[1]; match[2] != "" {
			name += "/{id}"
		}
	}
	return name, r.Method != http.MethodGet
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away
}

// overLimit refuses what is more than the cloud takes, and reports whether it did.
func overLimit(w http.ResponseWriter, err error) bool {
	if !simkit.MarkLimit(w, err) {
		return false
	}
	excess, _ := errors.AsType[*limits.Excess](err) // it was marked
	code := "InvalidParameter"
	if excess.Limit.Unit == limits.Objects {
		code = "LimitExceeded"
	}
	fail(w, http.StatusBadRequest, code, err.Error())
	return true
}

func fail(w http.ResponseWriter, status int, code, message string) {
	write(w, status, map[string]string{"code": code, "message": message})
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	codes := map[int]string{
		http.StatusUnauthorized: "NotAuthenticated", http.StatusForbidden: "NotAuthorized", http.StatusNotFound: "NotAuthorizedOrNotFound",
		http.StatusConflict: "Conflict", http.StatusPreconditionFailed: "NoEtagMatch", http.StatusTooManyRequests: "TooManyRequests",
		http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusBadRequest: "InvalidParameter",
	}
	code := codes[status]
	if code == "" {
		code = "InternalServerError"
	}
	fail(w, status, code, message)
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as a user sees it whose policies show nothing.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			if strings.HasPrefix(r.URL.Path, networkBase) {
				return []byte(`{"items":[]}`), r.Method == http.MethodGet && r.URL.Query().Has("limit")
			}
			return []byte(`[]`), r.Method == http.MethodGet && r.URL.Query().Has("limit")
		},
		// cut-list: the answer ends in the middle of the list.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			return body[:len(body)/2], r.Method == http.MethodGet && r.URL.Query().Has("limit")
		},
	}
}

// Environment implements simkit.Cloud: the cloud config says it all.
func (*Sim) Environment(string) map[string]string { return map[string]string{} }

// CloudConfig implements simkit.CloudConfigurer.
func (s *Sim) CloudConfig(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("endpoint: %s\ncompartment: %s\nvcn: %s\nloadBalancer:\n  subnet1: %s\nauth:\n  region: %s\n  tenancy: %s\n  user: %s\n  fingerprint: %q\n  key: |\n    %s\n",
		url, Compartment, VCN, BalancerSubnet(), Region, Tenancy, User, s.fingerprint,
		strings.ReplaceAll(strings.TrimSpace(userPEM()), "\n", "\n    "))
}
