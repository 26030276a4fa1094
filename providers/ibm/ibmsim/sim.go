// Package ibmsim simulates the part of IBM Cloud that the provider uses: the token service, resource groups, and of the VPC API virtual
// server instances, subnets, security groups and load balancers.
package ibmsim

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// What the cloud of a new simulator has.
const (
	Account       = "1e1f75646aef447814a6d907cc83fb3c"
	Cluster       = "ocp4-8pxks"
	VPC           = "ocp4-vpc"
	Region        = "us-south"
	ResourceGroup = "default"
	GroupID       = "0b1c2d3e4f5061728394a5b6c7d8e9f0"

	// tokenLife is how long a token is accepted.
	tokenLife = time.Hour
	// maxPerPage and usualPerPage bound the pages of listings.
	maxPerPage, defaultPerPage = 100, 50
)

// object is a document of the API.
type object = map[string]any

// Instance is a virtual server instance.
type Instance struct {
	ID, Name, Status, Zone, Profile, IP, VPC string
	// Second is the address of a second interface; "" where there is none.
	Second string
	// Number tells the order in which they were made.
	Number int
}

// Subnet is a subnet of a VPC.
type Subnet struct{ ID, Name, Zone, VPC, CIDR string }

// Sim is a simulated region.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[string, Instance]
	key        string
	activation time.Duration
	number     int
	started    int
	tokens     map[string]time.Time
	// profiles are the trusted profiles by ID, with the token that is accepted for each.
	profiles map[string]string
	identity int
	vpcs     []string
	subnets  []Subnet
	balancing
}

// New returns a simulated region with a VPC of two zones, and nothing in it. Only the API key is accepted; "" accepts any. activation is
// how long each write on a load balancer keeps it busy.
func New(key string, activation time.Duration) (*Sim, *simkit.Server) {
	s := &Sim{key: key, activation: activation, tokens: map[string]time.Time{}, profiles: map[string]string{}, vpcs: []string{VPC, "other-vpc"}}
	s.Machines = simkit.Machines[string, Instance]{
		Lock: &s.mu, Status: func(i *Instance) *string { return &i.Status }, Make: func(name string) { s.AddInstance(name) },
		About: func(i *Instance) simkit.Instance {
			return simkit.Instance{Name: i.Name, ProviderID: ProviderID(i.ID), Status: i.Status}
		},
	}
	for n, zone := range []string{Region + "-1", Region + "-2"} {
		s.subnets = append(s.subnets, Subnet{s.id("0717-"), fmt.Sprintf("%s-subnet-%d", Cluster, n+1), zone, VPC, fmt.Sprintf("10.%d.0.0/18", n)})
	}
	s.subnets = append(s.subnets,
		Subnet{s.id("0717-"), "lb-subnet", Region + "-1", VPC, "10.9.0.0/24"},
		Subnet{s.id("0717-"), "x-" + Cluster + "-subnet-1-x", Region + "-1", VPC, "10.8.0.0/24"},
		Subnet{s.id("0717-"), Cluster + "-subnet-1", Region + "-1", "other-vpc", "10.7.0.0/24"})
	s.addFirstGroups()
	return s, simkit.New(s)
}

// NewServer returns the simulator for programs that know simulators only in general.
func NewServer(key string, activation time.Duration, _ bool) *simkit.Server {
	_, server := New(key, activation)
	return server
}

// id is a new identifier.
func (s *Sim) id(prefix string) string {
	s.number++
	return fmt.Sprintf("%s%08x-7a2c-4b1d-9e3f-%012x", prefix, s.number*2654435761%(1<<32), s.number)
}

// AddInstance starts an instance and returns its ID.
func (s *Sim) AddInstance(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	n := s.started
	i := &Instance{
		ID: fmt.Sprintf("0717_%08x-7a2c-4b1d-9e3f-%012x", n*2654435761%(1<<32), n), Name: name, Status: "running", Zone: s.subnets[n%2].Zone,
		Profile: "bx2-4x16", VPC: VPC, Number: n, IP: fmt.Sprintf("10.%d.%d.%d", n%2, n/250, n%250+4),
	}
	return s.VMs.Put(i.ID, i).ID
}

// SwitchAccount makes the credential one of another account, which sees no resources.
func (s *Sim) SwitchAccount() {
	s.mu.Do(func() { s.VMs, s.subnets = simkit.Table[string, Instance]{}, nil })
}

// SetKey changes the only API key that is accepted, and ends all tokens.
func (s *Sim) SetKey(key string) { s.mu.Do(func() { s.key, s.tokens = key, map[string]time.Time{} }) }

// EndTokens ends all tokens.
func (s *Sim) EndTokens() { s.mu.Do(func() { s.tokens = map[string]time.Time{} }) }

// Trust makes a trusted profile that takes one token of a service account.
func (s *Sim) Trust(profile, token string) { s.mu.Do(func() { s.profiles[profile] = token }) }

// Subnets returns the subnets of the region.
func (s *Sim) Subnets() []Subnet {
	return simkit.Get(&s.mu, func() []Subnet { return slices.Clone(s.subnets) })
}

// refusal is an answer other than success.
type refusal struct {
	status        int
	code, message string
	// limit is the one that is exceeded.
	limit error
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

var dateForm = regexp.MustCompile(`^20[0-9]{2}-[01][0-9]-[0-3][0-9]$`)

// ServeHTTP speaks the APIs, each of which has paths of its own.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/identity/token" && r.Method == http.MethodPost {
		s.serveToken(w, r)
		return
	}
	if step, ok := strings.CutPrefix(r.URL.Path, "/instance_identity/v1/"); ok {
		s.serveIdentity(w, r, step)
		return
	}
	access, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if until, known := s.tokens[access]; !bearer || !known || !time.Now().Before(until) {
		s.WriteError(w, http.StatusUnauthorized, "the token is not accepted")
		return
	}
	if err := simkit.CheckLimits(s, ibmlimits.Table, r); simkit.MarkLimit(w, err) {
		writeRefusal(w, overLimit(err))
		return
	}
	status, answer, refused := s.serve(r)
	if refused != nil {
		writeRefusal(w, refused)
		return
	}
	if answer == nil {
		w.WriteHeader(status)
		return
	}
	if t, has := answer.(tagged); has {
		w.Header().Set("ETag", t.tag)
	}
	write(w, status, answer)
}

func (s *Sim) serve(r *http.Request) (int, any, *refusal) {
	if r.URL.Path == "/v2/resource_groups" && r.Method == http.MethodGet {
		return s.resourceGroups(r.URL.Query())
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "there is no such path")
	}
	query := r.URL.Query()
	if !dateForm.MatchString(query.Get("version")) {
		return 0, nil, refuse(http.StatusBadRequest, "missing_version", "the version is missing or no date")
	}
	if query.Get("generation") != "2" {
		return 0, nil, refuse(http.StatusBadRequest, "missing_generation_parameter", "the generation is missing")
	}
	segments := strings.Split(path, "/")
	switch segments[0] {
	case "instances":
		return s.serveInstances(r, segments[1:])
	case "subnets":
		return s.serveSubnets(r, segments[1:])
	case "load_balancers", "security_groups":
		return s.serveBalancing(r, segments)
	case "vpcs":
		return s.serveVPCs(r, segments[1:])
	case "regions":
		return serveRegion(r, segments[1:])
	}
	return 0, nil, refuse(http.StatusNotFound, "not_found", "there is no such path")
}

// serveToken speaks the token service.
func (s *Sim) serveToken(w http.ResponseWriter, r *http.Request) {
	fail := func(code, message string) {
		write(w, http.StatusBadRequest, object{"errorCode": code, "errorMessage": message, "context": object{"requestId": "x"}})
	}
	if err := r.ParseForm(); err != nil {
		fail("BXNIM0107E", "the form cannot be read")
		return
	}
	form := r.PostForm
	switch form.Get("grant_type") {
	case "urn:ibm:params:oauth:grant-type:apikey":
		if form.Get("apikey") == "" || (s.key != "" && form.Get("apikey") != s.key) {
			fail("BXNIM0415E", "Provided API key could not be found.")
			return
		}
	case "urn:ibm:params:oauth:grant-type:cr-token":
		if want := s.profiles[form.Get("profile_id")+form.Get("profile_name")]; want == "" || form.Get("cr_token") != want {
			fail("BXNIM0439E", "The token of the compute resource is not accepted for this profile.")
			return
		}
	default:
		fail("BXNIM0106E", "there is no such grant type")
		return
	}
	s.number++
	access := s.accessToken()
	s.tokens[access] = time.Now().Add(tokenLife)
	write(w, http.StatusOK, object{
		"access_token": access, "refresh_token": "not_supported", "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()),
		"expiration": time.Now().Add(tokenLife).Unix(), "scope": "ibm openid",
	})
}

// serveIdentity speaks the metadata service of an instance, which has one default profile, and others by name or ID.
func (s *Sim) serveIdentity(w http.ResponseWriter, r *http.Request, step string) {
	fail := func(status int, text string) { writeRefusal(w, refuse(status, "invalid_request", "%s", text)) }
	var a struct {
		Expires int        `json:"expires_in"`
		Profile *Reference `json:"trusted_profile"`
	}
	if refused := decode(r, &a); refused != nil || !dateForm.MatchString(r.URL.Query().Get("version")) {
		fail(http.StatusBadRequest, "the body or the version is not legal")
		return
	}
	switch bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); {
	case step == "token" && r.Method == http.MethodPut && r.Header.Get("Metadata-Flavor") == "ibm" && a.Expires >= 5 && a.Expires <= 3600:
		s.identity++
		write(w, http.StatusOK, object{"access_token": fmt.Sprintf("instance-%d", s.identity), "expires_in": a.Expires})
		return
	case step == "iam_token" && r.Method == http.MethodPost:
		known := a.Profile == nil || s.profiles[a.Profile.ID+a.Profile.Name] != ""
		if s.identity == 0 || bearer != fmt.Sprintf("instance-%d", s.identity) || !known {
			fail(http.StatusUnauthorized, "the token of the instance, or the profile, is not accepted")
			return
		}
	default:
		fail(http.StatusNotFound, "there is no such call")
		return
	}
	s.number++
	access := s.accessToken()
	s.tokens[access] = time.Now().Add(tokenLife)
	write(w, http.StatusOK, object{"access_token": access, "expires_in": int(tokenLife.Seconds())})
}

// accessToken is a token in the form of JSON Web Tokens, which clients read the times of.
func (s *Sim) accessToken() string {
	now := time.Now()
	text := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }
	return text(`{"alg":"HS256","typ":"JWT"}`) + "." + text(fmt.Sprintf(`{"iat":%d,"exp":%d,"jti":"%d"}`, now.Unix(), now.Add(tokenLife).Unix(), s.number)) + "." +
		text("simulated")
}

func (s *Sim) resourceGroups(query url.Values) (int, any, *refusal) {
	groups := []object{}
	if query.Get("account_id") == Account && query.Get("name") == ResourceGroup {
		groups = append(groups, object{"id": GroupID, "name": ResourceGroup, "account_id": Account, "state": "ACTIVE"})
	}
	return http.StatusOK, object{"resources": groups}, nil
}

func (s *Sim) serveInstances(r *http.Request, rest []string) (int, any, *refusal) {
	if r.Method != http.MethodGet || len(rest) > 1 {
		return 0, nil, refuse(http.StatusMethodNotAllowed, "method_not_allowed", "there is no such call")
	}
	if len(rest) == 1 {
		if i := s.VMs.ByID[rest[0]]; i != nil {
			return http.StatusOK, s.showInstance(r, i), nil
		}
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Instance not found")
	}
	query := r.URL.Query()
	shown := []object{}
	for _, i := range s.VMs.All() {
		if v, n := query.Get("vpc.name"), query.Get("name"); (v == "" || v == i.VPC) && (n == "" || n == i.Name) {
			shown = append(shown, s.showInstance(r, i))
		}
	}
	return s.page(r, "instances", shown, "vpc.name", "name")
}

// page answers one page of a listing.
func (s *Sim) page(r *http.Request, key string, all []object, filters ...string) (int, any, *refusal) {
	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(append(filters, "version", "generation", "limit", "start"), name) {
			return 0, nil, refuse(http.StatusBadRequest, "invalid_query_parameter", "there is no parameter %q", name)
		}
	}
	limit := defaultPerPage
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPerPage {
			return 0, nil, refuse(http.StatusBadRequest, "bad_field", "limit must be from 1 to %d", maxPerPage)
		}
		limit = n
	}
	number := 1
	if start := query.Get("start"); start != "" {
		var err error
		if number, err = strconv.Atoi(strings.TrimPrefix(start, "page-")); err != nil || number < 1 {
			return 0, nil, refuse(http.StatusBadRequest, "bad_start", "start is none of ours")
		}
	}
	from := min((number-1)*limit, len(all))
	to := min(from+limit, len(all))
	answer := object{"first": object{"href": href(r, "")}, "limit": limit, "total_count": len(all), key: all[from:to]}
	if to < len(all) {
		answer["next"] = object{"href": href(r, fmt.Sprintf("page-%d", number+1))}
		s.afterPage(key)
	}
	return http.StatusOK, answer, nil
}

func href(r *http.Request, start string) string {
	u := *r.URL
	u.Scheme, u.Host = "http", r.Host
	query := u.Query()
	query.Del("start")
	if start != "" {
		query.Set("start", start)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away
}

// overLimit is the refusal of what is more than the cloud takes.
func overLimit(err error) *refusal {
	codes := map[string]string{
		ibmlimits.Name.String(): "bad_field", ibmlimits.PoolName.String(): "pool_invalid_name", ibmlimits.Pools.String(): "pool_over_quota",
		ibmlimits.Listeners.String(): "listener_over_quota", ibmlimits.Members.String(): "member_over_quota",
		ibmlimits.Subnets.String(): "load_balancer_invalid_subnets", ibmlimits.Groups.String(): "load_balancer_over_quota",
		ibmlimits.LoadBalancers.String(): "load_balancer_over_quota",
	}
	excess, _ := errors.AsType[*limits.Excess](err) // CheckLimits knows no other error
	return &refusal{http.StatusBadRequest, cmp.Or(codes[excess.Limit.String()], "over_quota"), err.Error(), err}
}

func writeRefusal(w http.ResponseWriter, r *refusal) {
	simkit.MarkLimit(w, r.limit)
	write(w, r.status, object{
		"errors": []object{{"code": r.code, "message": r.message, "more_info": "https://cloud.ibm.com/docs/vpc"}},
		"trace":  "4f1d0bd0e6a8be8cbf2b0a9d3f3b0a1c",
	})
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("limit") {
		return false
	}
	number := strings.TrimPrefix(query.Get("start"), "page-")
	simkit.SetPage(r, number)
	query.Del("start")
	r.URL.RawQuery = query.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var answer object
	if json.Unmarshal(body, &answer) != nil {
		return body
	}
	answer["next"] = object{"href": href(r, fmt.Sprintf("page-%d", simkit.Page(r)+1))}
	body, _ = json.Marshal(answer) // it was JSON before
	return body
}

var idForm = regexp.MustCompile(`^([0-9a-z]{4}[-_][0-9a-f]{8}-.*|r006-.*)$`)

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	segments := strings.Split(r.URL.Path, "/")
	for i, one := range segments {
		if idForm.MatchString(one) {
			segments[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(segments, "/"),
		r.Method != http.MethodGet && r.URL.Path != "/identity/token" &&
			!strings.HasPrefix(r.URL.Path, "/instance_identity/")
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	codes := map[int]string{
		http.StatusUnauthorized: "not_authorized", http.StatusForbidden: "not_authorized", http.StatusNotFound: "not_found",
		http.StatusTooManyRequests: "rate_limit_exceeded", http.StatusConflict: "load_balancer_update_conflict",
	}
	code := codes[status]
	if code == "" {
		code = "internal_error"
	}
	writeRefusal(w, &refusal{status: status, code: code, message: message})
}

// ProviderID returns the provider ID of an instance's node.
func ProviderID(id string) string { return "ibm://" + Account + "///" + Cluster + "/" + id }

// Environment implements simkit.Cloud.
func (s *Sim) Environment(string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key
	if key == "" {
		key = "any"
	}
	return map[string]string{"IBMCLOUD_API_KEY": key}
}

// CloudConfig implements simkit.CloudConfigurer.
func (s *Sim) CloudConfig(address string) string {
	return `[global]
version = 1.1.0
[kubernetes]
config-file = ""
[provider]
accountID = ` + Account + `
clusterID = ` + Cluster + `
cluster-default-provider = g2
region = ` + Region + `
g2ResourceGroupName = ` + ResourceGroup + `
g2VpcName = ` + VPC + `
g2workerServiceAccountID = ` + Account + `
g2VpcSubnetNames = ` + Cluster + "-subnet-1," + Cluster + `-subnet-2
g2EndpointOverride = ` + address + `
iamEndpointOverride = ` + address + `
rmEndpointOverride = ` + address + "\n"
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("limit") }
	key := func(r *http.Request) string { return r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] }
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as another account's token would see it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return fmt.Appendf(nil, `{"first":{"href":"x"},"limit":50,"total_count":0,%q:[]}`, key(r)), listing(r)
		},
		// cut-list: the listing ends too early.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			var all struct {
				Total int `json:"total_count"`
			}
			if !listing(r) || json.Unmarshal(body, &all) != nil || all.Total == 0 {
				return body, listing(r)
			}
			return fmt.Appendf(nil, `{"first":{"href":"x"},"limit":50,"total_count":%d,%q:[]}`, all.Total, key(r)), true
		},
		// empty-object: a listing that says nothing.
		"empty-object": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{}`), listing(r) },
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.setStatusOf, "stopped"),
		"power-on":  simkit.SetStatus(s.setStatusOf, "running"),
		"set-token": simkit.SetToken(s.SetKey),
	}
}

// setStatusOf is SetStatus by provider ID, or by ID.
func (s *Sim) setStatusOf(id, status string) error {
	return s.SetStatus(id[strings.LastIndex(id, "/")+1:], status)
}
