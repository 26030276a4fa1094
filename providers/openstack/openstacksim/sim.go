// Package openstacksim simulates the parts of OpenStack that a cloud controller manager touches: Keystone, Nova, Neutron,
// Octavia and Barbican. It speaks their wire formats, is as asynchronous as Octavia is, and refuses what they refuse.
//
// Facts about the interfaces come from the API references at https://docs.openstack.org/api-ref.
package openstacksim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
)

// Name is the provider that the simulator stands for.
const Name = "openstack"

// What exists in every new simulator, and the only credential that is accepted.
const (
	Region   = "RegionOne"
	Project  = "5d1c7a3e0b8f4e0f9a3a4c2f9d7e6b10"
	User     = "ccm"
	Password = "ccm-password"
	Domain   = "Default"
)

// Paths of the services, as the catalog names them. All but Nova's are without a version, as DevStack registers them.
const (
	identityPath     = "/identity"
	computePath      = "/compute/v2.1"
	networkPath      = "/networking"
	loadBalancerPath = "/load-balancer"
	containerPath    = "/key-manager"
)

// Sim is the simulated cloud's state. All methods are safe for concurrent use.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[string, Server]
	serial int

	password     string
	tokens       map[string]time.Time
	tokenTTL     time.Duration
	logins       []string
	appID        string
	appSecret    string
	activation   time.Duration
	works        []time.Duration
	octavia      int // minor version
	providers    []string
	mayFailOver  bool
	failCreates  int
	after        []laterChange
	dice         *rand.Rand
	steady       bool
	real         bool // the times are those of RealTime
	quotas       map[string]int
	extensions   []string
	novaMaxMinor int
	pageLimit    int

	flavors  simkit.Table[string, Flavor]
	ports    simkit.Table[string, Port]
	networks simkit.Table[string, Network]
	subnets  simkit.Table[string, Subnet]
	floating simkit.Table[string, FloatingIP]
	groups   simkit.Table[string, SecurityGroup]
	// nodePortsClosed is set where node ports are closed that no security group opens.
	nodePortsClosed bool
	routers         simkit.Table[string, Router]
	loadBalancers   simkit.Table[string, LoadBalancer]
	listeners       simkit.Table[string, Listener]
	pools           simkit.Table[string, Pool]
	monitors        simkit.Table[string, Monitor]
	containers      map[string]bool
	seedNet         string
}

// Options set up a simulator.
type Options struct {
	// Activation is how long Octavia works on a change, half of it more or less.
	Activation time.Duration
	// OctaviaMinor is the newest version of Octavia's API, 2.x; 0 means the newest known here.
	OctaviaMinor int
	// Seed chooses among the runs that differ in how long each change takes.
	Seed uint64
}

// newestOctavia is the API version of release 2023.1 and later.
const newestOctavia = 27

// New returns a simulated OpenStack with an external network, an internal network behind a router, and two flavors.
func New(o Options) (*Sim, *simkit.Server) {
	if o.OctaviaMinor == 0 {
		o.OctaviaMinor = newestOctavia
	}
	s := &Sim{
		dice:     rand.New(rand.NewPCG(1, o.Seed)), //nolint:gosec // times that vary, and no secrets
		password: Password, tokens: map[string]time.Time{}, tokenTTL: time.Hour, activation: o.Activation, octavia: o.OctaviaMinor,
		providers: []string{"amphora", "octavia", "ovn"}, quotas: map[string]int{}, containers: map[string]bool{}, novaMaxMinor: 95,
		extensions: []string{
			"router", "external-net", "allowed-address-pairs", "extraroute", "extraroute-atomic", "security-group", "standard-attr-tag",
			"standard-attr-revisions", "revision-if-match", "trunk-details",
		},
	}
	s.Machines = simkit.Machines[string, Server]{
		Lock: &s.mu, Status: func(v *Server) *string { return &v.Status }, Removed: s.serverRemoved,
		Make: func(name string) { s.AddServer(Spec{Name: name}) },
		About: func(v *Server) simkit.Instance {
			return simkit.Instance{Name: v.Name, ProviderID: "openstack:///" + v.ID, Status: strings.ToLower(v.Status)}
		},
	}
	s.flavors.Put("1", &Flavor{ID: "1", Name: "m1.small", RAM: 2048, VCPUs: 1, Disk: 20})
	s.flavors.Put("2", &Flavor{ID: "2", Name: "m1.large", RAM: 8192, VCPUs: 4, Disk: 80})
	public := s.AddNetwork("public", true)
	s.AddSubnet(public, "public-subnet", "203.0.113.0/24")
	private := s.AddNetwork("private", false)
	s.AddSubnet(private, "private-subnet", "10.0.0.0/16")
	s.seedNet = private
	s.AddRouter("router", public, private)
	return s, simkit.New(s)
}

// NewServer returns the simulator for programs that know simulators only in general; token is the password. Limits do not apply: OpenStack
// publishes none.
func NewServer(token string, activation time.Duration, _ bool) *simkit.Server {
	s, server := New(Options{Activation: activation})
	s.steady = true // what programs cost is counted, and looks at Octavia's work are part of that
	if token != "" {
		s.password = token
	}
	return server
}

// newID returns an identifier of the form that OpenStack uses; they count up, so that runs are alike.
func (s *Sim) newID(kind byte) string {
	s.serial++
	return fmt.Sprintf("%02x%06x-0000-4000-8000-%012x", kind, s.serial, s.serial)
}

// apiError is an answer other than success, in a service's words.
type apiError struct {
	status  int
	kind    string // Neutron's type, Nova's key
	message string
}

func (e *apiError) Error() string { return e.message }

func failure(status int, kind, format string, args ...any) error {
	return &apiError{status, kind, fmt.Sprintf(format, args...)}
}

func notFound(kind, what, id string) error {
	return failure(http.StatusNotFound, kind, "%s %s could not be found.", what, id)
}

// service is the first segment of a path.
func service(r *http.Request) string {
	for _, p := range []string{identityPath, "/compute", networkPath, loadBalancerPath, containerPath} {
		if r.URL.Path == p || strings.HasPrefix(r.URL.Path, p+"/") {
			return p
		}
	}
	return ""
}

// writeError writes an error in the form of the service that the path belongs to.
func writeError(w http.ResponseWriter, at string, status int, kind, message string) {
	var body any
	switch at {
	case networkPath:
		body = map[string]any{"NeutronError": map[string]string{"type": kind, "message": message, "detail": ""}}
	case loadBalancerPath:
		body = map[string]any{"faultcode": "Client", "faultstring": message, "debuginfo": nil}
	case "/compute":
		if kind == "" {
			kind = "computeFault"
		}
		body = map[string]any{kind: map[string]any{"code": status, "message": message}}
	case containerPath:
		body = map[string]any{"code": status, "title": http.StatusText(status), "description": message}
	default:
		body = map[string]any{"error": map[string]any{"code": status, "title": http.StatusText(status), "message": message}}
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that went away is its own affair
}

// WriteError implements simkit.Cloud. It is called without a request, so it answers as a gateway in front of the services.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	write(w, status, map[string]any{"error": map[string]any{"code": status, "title": http.StatusText(status), "message": message}})
}

var identifier = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f-]{27}$`)

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	segments := strings.Split(path.Clean(r.URL.Path), "/")
	for i, s := range segments {
		if identifier.MatchString(s) || (i > 0 && segments[i-1] == "flavors" && s != "detail") {
			segments[i] = "{id}"
		}
	}
	isLogin := strings.HasSuffix(r.URL.Path, "/auth/tokens")
	return r.Method + " " + strings.Join(segments, "/"), r.Method != http.MethodGet && r.Method != http.MethodHead && !isLogin
}

// ServeHTTP implements http.Handler.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := service(r)
	rest := strings.Trim(strings.TrimPrefix(r.URL.Path, at), "/")
	var err error
	switch at {
	case identityPath:
		err = s.identity(w, r, rest)
	case "":
		err = failure(http.StatusNotFound, "", "no such service")
	default:
		if !s.authorized(r) && !isRoot(rest) {
			writeUnauthorized(w)
			return
		}
		s.finishWork()
		if err = simkit.CheckLimits(s, openstacklimits.Table, r); err == nil {
			err = s.serve(w, r, at, rest)
		}
	}
	if simkit.MarkLimit(w, err) {
		err = failure(http.StatusBadRequest, "HTTPBadRequest", "Invalid input: %s", err)
	}
	if known, ok := errors.AsType[*apiError](err); ok {
		writeError(w, at, known.status, known.kind, known.message)
	} else if err != nil {
		writeError(w, at, http.StatusInternalServerError, "", err.Error())
	}
}

func isRoot(rest string) bool { return rest == "" }

func (s *Sim) serve(w http.ResponseWriter, r *http.Request, at, rest string) error {
	switch at {
	case "/compute":
		return s.compute(w, r, strings.TrimPrefix(strings.TrimPrefix(rest, "v2.1"), "/"))
	case networkPath:
		return s.network(w, r, rest)
	case loadBalancerPath:
		return s.loadBalancing(w, r, rest)
	default:
		return s.keyManager(w, r, rest)
	}
}

func writeUnauthorized(w http.ResponseWriter) {
	w.Header().Set("Www-Authenticate", `Keystone uri="http://keystone"`)
	write(w, http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
}

// decodeBody reads {"wrapper": {...}} strictly: unknown attributes are refused, as the services do.
func decodeBody(r *http.Request, wrapper string, into any) error {
	var outer map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&outer); err != nil {
		return failure(http.StatusBadRequest, "HTTPBadRequest", "The body is not JSON: %s", err)
	}
	inner, ok := outer[wrapper]
	if !ok || len(outer) != 1 {
		return failure(http.StatusBadRequest, "HTTPBadRequest", "The body must hold %q alone", wrapper)
	}
	d := json.NewDecoder(strings.NewReader(string(inner)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return failure(http.StatusBadRequest, "HTTPBadRequest", "Unrecognized or invalid attribute: %s", err)
	}
	return nil
}

// attributes decodes an object into its JSON fields, for filters.
func attributes(v any) map[string]any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types, all of whose fields can be encoded
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		panic(err)
	}
	return m
}

// filter reports whether an object passes one filter of a query.
type filter func(object map[string]any, name, value string) (bool, error)

// notFilters are the parts of a query that choose no objects.
var notFilters = []string{"limit", "marker", "sort_key", "sort_dir", "page_reverse"}

// filtered reports whether a query has a filter.
func filtered(query url.Values) bool {
	for name := range query {
		if !slices.Contains(notFilters, name) {
			return true
		}
	}
	return false
}

// passes reports whether an object passes all filters; of one that is given several times, one must pass.
func passes(object map[string]any, query url.Values, matches filter) (bool, error) {
	for name, values := range query {
		if slices.Contains(notFilters, name) {
			continue
		}
		one := false
		for _, value := range values {
			ok, err := matches(object, name, value)
			if err != nil {
				return false, err
			}
			one = one || ok
		}
		if !one {
			return false, nil
		}
	}
	return true, nil
}

// span finds the page that a query asks for among the IDs that pass.
func (s *Sim) span(query url.Values, ids []string) (start, end int, err error) {
	if marker := query.Get("marker"); marker != "" {
		if start = slices.Index(ids, marker) + 1; start == 0 {
			return 0, 0, failure(http.StatusBadRequest, "badRequest", "marker [%s] not found", marker)
		}
	}
	limit := s.pageLimit
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, 0, failure(http.StatusBadRequest, "badRequest", "Invalid limit %s", text)
		}
		if limit == 0 || n < limit {
			limit = n
		}
	}
	end = len(ids)
	if limit > 0 {
		end = min(end, start+limit)
		query.Set("limit", strconv.Itoa(limit))
	}
	return start, end, nil
}

// idOf returns the ID of an object. Nearly all have a field for it, and a pool may have thousands of members, which are slow to encode.
func idOf(item any) string {
	if v := reflect.Indirect(reflect.ValueOf(item)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("ID"); field.IsValid() {
			return field.String()
		}
	}
	id, _ := attributes(item)["id"].(string)
	return id
}

// listing answers with a page of the objects that pass the filters of the query. A page that is full has a link to the
// next one, even if that is empty.
func (s *Sim) listing(w http.ResponseWriter, r *http.Request, key string, items []any, matches filter) error {
	query := r.URL.Query()
	var kept []any
	var ids []string
	for _, item := range items {
		var object map[string]any
		if filtered(query) {
			object = attributes(item)
		}
		ok, err := passes(object, query, matches)
		if err != nil {
			return err
		}
		if ok {
			kept = append(kept, item)
			ids = append(ids, idOf(item))
		}
	}
	start, end, err := s.span(query, ids)
	if err != nil {
		return err
	}
	body := map[string]any{key: append([]any{}, kept[start:end]...)}
	if query.Get("limit") == strconv.Itoa(end-start) {
		query.Set("marker", ids[end-1])
		body[key+"_links"] = []any{map[string]string{"rel": "next", "href": "http://" + r.Host + r.URL.Path + "?" + query.Encode()}}
	}
	write(w, http.StatusOK, body)
	return nil
}

// equalFilter compares an attribute that every object of the kind has; Neutron refuses filters that it does not know.
func equalFilter(object map[string]any, name, value string) (bool, error) {
	have, known := object[name]
	if !known {
		return false, failure(http.StatusBadRequest, "HTTPBadRequest", "[%q] is invalid attribute for filter", name)
	}
	return fmt.Sprint(have) == value || (have == nil && value == ""), nil
}

func anys[T any](list []*T) []any {
	items := make([]any, len(list))
	for i, v := range list {
		items[i] = v
	}
	return items
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	kinds := []string{
		"detail", "ports", "loadbalancers", "listeners", "pools", "members", "healthmonitors", "floatingips", "networks", "subnets",
		"security-groups", "security-group-rules",
	}
	keyOf := func(r *http.Request) string {
		kind := path.Base(r.URL.Path)
		if kind == "detail" {
			kind = path.Base(path.Dir(r.URL.Path))
		}
		return strings.ReplaceAll(kind, "-", "_")
	}
	isList := func(r *http.Request) bool {
		return r.Method == http.MethodGet && slices.Contains(kinds, path.Base(r.URL.Path))
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as another project sees it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return []byte(`{"` + keyOf(r) + `": []}`), isList(r)
		},
		// no-list: an answer that is JSON, and not the listing.
		"no-list": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{}`), isList(r) },
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "SHUTOFF"),
		"power-on":  simkit.SetStatus(s.SetStatus, "ACTIVE"),
		// activation sets how long Octavia works on each change from now on.
		"activation": simkit.Action(func(in struct{ Activation simkit.Duration }) error {
			s.SetActivation(time.Duration(in.Activation))
			return nil
		}),
		// container makes one of certificates in Barbican, with the ID that is asked for.
		"container": simkit.Action(func(in struct{ ID string }) error {
			if !identifier.MatchString(in.ID) {
				return fmt.Errorf("%q is not the ID of a container", in.ID)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.containers["containers/"+in.ID] = true
			return nil
		}),
		// token changes the password: what is issued already is worth nothing either.
		"token": simkit.SetToken(s.SetPassword),
	}
}

// Environment implements simkit.Cloud: OpenStack's controllers read a file instead, which CloudConfig returns.
func (*Sim) Environment(string) map[string]string { return map[string]string{} }

// CloudConfig returns the cloud.conf of a controller that talks to this cloud at url.
func (s *Sim) CloudConfig(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("[Global]\nauth-url = %q\nusername = %q\npassword = %q\ntenant-id = %q\ndomain-name = %q\nregion = %q\n\n[LoadBalancer]\ncreate-monitor = true\n",
		url+identityPath+"/v3", User, s.password, Project, Domain, Region)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{}
	for _, lb := range s.loadBalancers.All() {
		ports := []string{}
		members := map[string]bool{}
		for _, l := range s.listenersOf(lb.ID) {
			ports = append(ports, fmt.Sprintf("%s/%d", l.Protocol, l.ProtocolPort))
			if p := s.pools.ByID[deref(l.DefaultPoolID)]; p != nil {
				for _, m := range p.members {
					members[m.Address] = true
				}
			}
		}
		address := lb.VIPAddress
		for _, f := range s.floating.All() {
			if deref(f.PortID) == lb.VIPPortID {
				address = f.Address
			}
		}
		lines = append(lines, fmt.Sprintf("load balancer %s, %s, address %s, %s, %d nodes", lb.Name, lb.ProvisioningStatus, address, strings.Join(ports, ", "), len(members)))
	}
	return lines
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	return simkit.Snapshot(map[string]any{
		"servers": s.VMs.All(), "ports": s.ports.All(), "networks": s.networks.All(), "subnets": s.subnets.All(), "floatingips": s.floating.All(),
		"security_groups": s.groups.All(), "routers": s.routers.All(), "loadbalancers": s.loadBalancers.All(), "listeners": s.listeners.All(),
		"pools": s.pools.All(), "healthmonitors": s.monitors.All(),
	})
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
