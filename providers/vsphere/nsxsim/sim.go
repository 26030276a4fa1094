// Package nsxsim simulates the part of NSX's policy API that a cloud controller manager touches: load balancer services, virtual
// servers, pools, monitors, application profiles, IP pools and their allocations, static routes of tier-1 gateways, realized states,
// and changes of several objects at once. It refuses what NSX refuses, and takes its time where NSX does.
package nsxsim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
)

const (
	// API is where the policy API begins.
	API = "/policy/api/v1"
	// TokenPath is where a token of VMware Cloud is got.
	TokenPath = "/csp/gateway/am/api/auth/api-tokens/authorize"
	// largestPage is the most of a listing that is sent at once, which is also what is sent where nothing is asked for.
	largestPage = 1000
	// releaseDelay is how long an address that was released is not given to anybody.
	releaseDelay = 2 * time.Minute

	// PerSecond is NSX's published limit on the calls of one client.
	PerSecond = 100
)

// codeUnknown stands for the codes of refusals, which NSX does not document: nobody can rely on them.
const codeUnknown = 500000

// codeInvalid is that of a field that NSX does not take.
const codeInvalid = 255

// Options set up a simulator.
type Options struct {
	// User and Password are accepted; empty accepts everybody.
	User, Password string
	// RefreshToken is exchanged for tokens of VMware Cloud.
	RefreshToken string
	// Activation is how long a change takes until it is realized.
	Activation time.Duration
	// Page is the most of a listing that is sent at once; 0 means 1,000.
	Page int
	// Seed makes listings come in an order that nobody promises; 0 keeps that of the paths.
	Seed uint64
	// OldAllocations: an allocation does not show its address, which only the realized state has.
	OldAllocations bool
	// SlowReferences: what is being deleted still refers to what it referred to.
	SlowReferences bool
	// NoTrees refuses changes of several objects at once.
	NoTrees bool
}

// Sim is the state. All methods are safe for concurrent use.
type Sim struct {
	mu      simkit.Mutex
	options Options
	objects map[string]*Object
	// erasing are objects that were deleted, and when nothing of them is left; dying is what they were.
	erasing map[string]time.Time
	dying   map[string]*Object
	// released are addresses that were given back, and when they can be given again.
	released map[string]time.Time
	pools    map[string]addressRange
	// broken are objects that cannot be realized, by path, with the reason.
	broken   map[string]string
	denied   map[string]bool
	token    string
	tokens   int
	failed   int
	disorder simkit.Disorder
	listed   simkit.Lagging[map[string]*Object]
}

type addressRange struct{ first, last netip.Addr }

// Object is one object of the intent.
type Object struct {
	Path     string
	Fields   map[string]any
	Revision int
	// Since is when it was written last.
	Since time.Time
	// Address is that of an allocation.
	Address string
}

// ID is the last part of the path.
func (o *Object) ID() string { return path.Base(o.Path) }

// Text returns a field that is text.
func (o *Object) Text(name string) string {
	text, _ := o.Fields[name].(string)
	return text
}

// Tag returns the first tag of a scope.
func (o *Object) Tag(scope string) string {
	list, _ := o.Fields["tags"].([]any)
	for _, t := range list {
		if tag, ok := t.(map[string]any); ok && tag["scope"] == scope {
			text, _ := tag["tag"].(string)
			return text
		}
	}
	return ""
}

func (o *Object) clone() *Object {
	c := *o
	c.Fields = copyOf(o.Fields)
	return &c
}

func copyOf(fields map[string]any) map[string]any {
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // it came from JSON
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		panic(err)
	}
	return c
}

// What a new simulator has.
const (
	Tier1      = "/infra/tier-1s/t1-cluster"
	OtherTier1 = "/infra/tier-1s/t1-other"
	PoolID     = "vip-pool"
	PoolName   = "VIPs"
	OtherPool  = "dmz-pool"
	TCPProfile = "/infra/lb-app-profiles/default-tcp-lb-app-profile"
	UDPProfile = "/infra/lb-app-profiles/default-udp-lb-app-profile"
)

// New returns a simulated NSX with two tier-1 gateways, two pools of addresses and the usual application profiles.
func New(o Options) (*Sim, *simkit.Server) {
	s := NewSim(o)
	return s, simkit.New(s)
}

// NewSim is New without the server around it, for a cloud that has more than NSX.
func NewSim(o Options) *Sim {
	if o.Page == 0 {
		o.Page = largestPage
	}
	s := &Sim{
		options: o, objects: map[string]*Object{}, erasing: map[string]time.Time{}, dying: map[string]*Object{}, released: map[string]time.Time{},
		pools: map[string]addressRange{}, broken: map[string]string{}, denied: map[string]bool{},
	}
	s.disorder.Seed(o.Seed)
	s.Add(Tier1, map[string]any{"resource_type": "Tier1", "display_name": "cluster"})
	s.Add(OtherTier1, map[string]any{"resource_type": "Tier1", "display_name": "other"})
	s.AddPool(PoolID, PoolName, "203.0.113.1", "203.0.113.250")
	s.AddPool(OtherPool, "DMZ", "198.51.100.1", "198.51.100.250")
	for name, kind := range map[string]string{TCPProfile: "LBFastTcpProfile", UDPProfile: "LBFastUdpProfile"} {
		s.Add(name, map[string]any{"resource_type": kind, "display_name": path.Base(name), "_system_owned": true})
	}
	s.Add("/infra/lb-app-profiles/default-http-lb-app-profile", map[string]any{"resource_type": "LBHttpProfile", "display_name": "default-http-lb-app-profile"})
	s.Add("/infra/lb-monitor-profiles/default-icmp-lb-monitor", map[string]any{
		"resource_type": "LBIcmpMonitorProfile", "display_name": "default-icmp-lb-monitor", "_system_owned": true,
	})
	return s
}

// AddPool adds a pool with the addresses from first to last.
func (s *Sim) AddPool(id, name, first, last string) {
	s.Add("/infra/ip-pools/"+id, map[string]any{"resource_type": "IpAddressPool", "display_name": name})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[id] = addressRange{netip.MustParseAddr(first), netip.MustParseAddr(last)}
}

// Add puts an object there behind the API's back, such as one that another controller made.
func (s *Sim) Add(at string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeLocked(at, copyOf(fields))
	s.objects[at].Since = time.Time{} // it was realized long ago
	s.wroteLocked()
}

// SetAddress gives an allocation that was added its address.
func (s *Sim) SetAddress(at, address string) { s.mu.Do(func() { s.objects[at].Address = address }) }

// Change changes an object behind the API's back, which raises its revision.
func (s *Sim) Change(at string, change func(fields map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.objects[at].Fields)
	s.objects[at].Revision++
	s.wroteLocked()
}

// Remove takes an object away behind the API's back, with nothing left of it.
func (s *Sim) Remove(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, at)
	s.wroteLocked()
}

// RemoveLoadBalancers deletes all virtual servers and load balancer services, as somebody does by hand. Pools, health checks and the
// addresses stay.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.objects {
		if c := path.Dir(at); c == "/infra/lb-virtual-servers" || c == "/infra/lb-services" {
			delete(s.objects, at)
		}
	}
	s.wroteLocked()
}

// Break makes an object impossible to realize from now on; "" makes it possible again. The path may be the beginning of paths.
func (s *Sim) Break(at, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken[at] = reason; reason == "" {
		delete(s.broken, at)
	}
}

// Deny takes the right to read and change what is at a path, or below it.
func (s *Sim) Deny(at string) { s.mu.Do(func() { s.denied[at] = true }) }

func (s *Sim) deniesLocked(at string) bool {
	for denied := range s.denied {
		if strings.HasPrefix(at, denied) {
			return true
		}
	}
	return false
}

// SetPassword changes the password that is accepted.
func (s *Sim) SetPassword(password string) { s.mu.Do(func() { s.options.Password = password }) }

// RevokeTokens ends the tokens that were given.
func (s *Sim) RevokeTokens() { s.mu.Do(func() { s.token = "" }) }

// FailedLogins is how often a credential was refused.
func (s *Sim) FailedLogins() int { return simkit.Get(&s.mu, func() int { return s.failed }) }

// SetLag makes listings show writes after a while; reads of one object are never old.
func (s *Sim) SetLag(lag time.Duration) { s.mu.Do(func() { s.listed.SetLag(lag, s.copiesLocked()) }) }

// Objects returns copies of the objects of a collection, such as "/infra/lb-pools", in the order of their paths.
func (s *Sim) Objects(collection string) []*Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Object
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if path.Dir(at) == collection {
			list = append(list, s.objects[at].clone())
		}
	}
	return list
}

// Get returns a copy of one object, or nil.
func (s *Sim) Get(at string) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[at]; o != nil {
		return o.clone()
	}
	return nil
}

func (s *Sim) copiesLocked() map[string]*Object {
	all := make(map[string]*Object, len(s.objects))
	for at, o := range s.objects {
		all[at] = o.clone()
	}
	return all
}

func (s *Sim) wroteLocked() {
	if _, lags := s.listed.Seen(); lags {
		s.listed.Wrote(s.copiesLocked())
	}
}

// apiError is an answer other than success, in NSX's words.
type apiError struct {
	status, code int
	message      string
}

func (e *apiError) Error() string { return e.message }

func invalid(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, codeInvalid, fmt.Sprintf(format, args...)}
}

func notFound(at string) error {
	return &apiError{http.StatusNotFound, 600, fmt.Sprintf("The path=[%s] is invalid, the requested object does not exist", at)}
}

// statusNames maps HTTP statuses to NSX's names for them.
var statusNames = map[int]string{
	http.StatusBadRequest: "BAD_REQUEST", http.StatusUnauthorized: "UNAUTHORIZED", http.StatusForbidden: "FORBIDDEN",
	http.StatusNotFound: "NOT_FOUND", http.StatusConflict: "CONFLICT", http.StatusPreconditionFailed: "PRECONDITION_FAILED",
	http.StatusTooManyRequests: "TOO_MANY_REQUESTS", http.StatusInternalServerError: "INTERNAL_SERVER_ERROR",
	http.StatusServiceUnavailable: "SERVICE_UNAVAILABLE", http.StatusMethodNotAllowed: "METHOD_NOT_ALLOWED",
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	code := status
	switch status {
	case http.StatusTooManyRequests:
		code, message = 102, fmt.Sprintf("Client 'admin' exceeded request rate of %d per second.", PerSecond)
	case http.StatusServiceUnavailable:
		code, message = 98, "Client 'admin' exceeded request concurrency of 40."
	}
	writeError(w, &apiError{status, code, message})
}

func writeError(w http.ResponseWriter, e *apiError) {
	write(w, e.status, map[string]any{
		"httpStatus": statusNames[e.status], "error_code": e.code, "module_name": "policy", "error_message": e.message,
	})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v) // a client that went away sees nothing
	}
}

// InOrder implements simkit.Refusals: what is about the state of things is no fault of the request.
func (*Sim) InOrder(status int, body []byte) bool {
	var said struct {
		Code int `json:"error_code"`
	}
	return json.Unmarshal(body, &said) == nil && (status != http.StatusBadRequest || said.Code != 255)
}

// ServeHTTP implements http.Handler.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == TokenPath {
		s.giveToken(w, r)
		return
	}
	if !s.admits(r) {
		writeError(w, &apiError{http.StatusUnauthorized, 403, "The credentials were incorrect or the account specified has been locked."})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	at, ours := strings.CutPrefix(r.URL.Path, API)
	if !ours {
		writeError(w, notFound(r.URL.Path).(*apiError)) //nolint:errorlint,forcetypeassert // it is one
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := simkit.CheckLimits(s, nsxlimits.Table, r); simkit.MarkLimit(w, err) {
		writeError(w, &apiError{http.StatusBadRequest, codeInvalid, err.Error()})
		return
	}
	answer, err := s.serve(r, at, body)
	if refused, ok := err.(*apiError); ok { //nolint:errorlint // none is wrapped
		writeError(w, refused)
		return
	}
	write(w, http.StatusOK, answer)
}

// giveToken answers with a new token, which ends the one before.
func (s *Sim) giveToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.PostForm.Get("refresh_token") != s.options.RefreshToken {
		writeError(w, &apiError{http.StatusBadRequest, 400, "invalid_grant: Invalid refresh token"})
		return
	}
	s.tokens++
	s.token = "token-" + strconv.Itoa(s.tokens)
	write(w, http.StatusOK, map[string]any{"access_token": s.token, "expires_in": 1799, "token_type": "bearer"})
}

func (s *Sim) admits(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := r.Header.Get("Authorization")
	ok := s.options.User == "" && s.options.RefreshToken == ""
	if s.options.User != "" {
		pair := base64.StdEncoding.EncodeToString([]byte(s.options.User + ":" + s.options.Password))
		ok = given == "Basic "+pair || given == "Remote "+pair
	}
	if s.options.RefreshToken != "" {
		ok = s.token != "" && given == "Bearer "+s.token
	}
	if !ok {
		s.failed++
	}
	return ok
}

func (s *Sim) serve(r *http.Request, at string, body []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.deniesLocked(at):
		return nil, &apiError{http.StatusForbidden, 403, "The user does not have permission to perform this operation"}
	case at == "/infra" && r.Method == http.MethodPatch:
		return nil, s.patchTreeLocked(body)
	case at == "/infra/realized-state/realized-entities" && r.Method == http.MethodGet:
		return s.realizedLocked(r.URL.Query().Get("intent_path"))
	case at == "/search/query" && r.Method == http.MethodGet:
		return s.searchLocked(r)
	case kindOf(at+"/x") != nil && r.Method == http.MethodGet:
		return s.listLocked(at, r)
	}
	kind := kindOf(at)
	if kind == nil {
		return nil, notFound(at)
	}
	if r.Method != http.MethodGet && !slices.Contains(kind.verbs, r.Method) {
		return nil, &apiError{http.StatusMethodNotAllowed, 405, "Method not allowed"}
	}
	switch r.Method {
	case http.MethodGet:
		if o := s.objects[at]; o != nil {
			return s.shownLocked(o), nil
		}
		return nil, notFound(at)
	case http.MethodDelete:
		return nil, s.deleteLocked(at)
	}
	return s.replaceLocked(at, kind, body, r.Method == http.MethodPut)
}

// replaceLocked writes an object, and shows it where it was replaced.
func (s *Sim) replaceLocked(at string, k *kind, body []byte, replace bool) (any, error) {
	fields, err := decode(body)
	if err == nil {
		err = s.writeLocked(at, k, fields, replace)
	}
	if err != nil || !replace {
		return nil, err
	}
	return s.shownLocked(s.objects[at]), nil
}

func decode(body []byte) (fields map[string]any, err error) {
	if json.NewDecoder(bytes.NewReader(body)).Decode(&fields) != nil || fields == nil {
		return nil, invalid("the body is not a JSON object")
	}
	return fields, nil
}
