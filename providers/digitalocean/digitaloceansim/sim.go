// Package digitaloceansim simulates the part of DigitalOcean's API that a cloud controller manager and its users touch:
// droplets, load balancers, certificates, cloud firewalls, tags, regions, the account and the metadata service. It speaks the wire
// format of the published OpenAPI description, and refuses what the real API refuses.
package digitaloceansim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Name is the provider that the simulator stands for.
const Name = "digitalocean"

const (
	defaultPage = 20
	largestPage = 200

	// PublishedPerMinute is DigitalOcean's published limit on bursts.
	PublishedPerMinute = 250
	// PublishedPerHour is DigitalOcean's published rate limit.
	PublishedPerHour = 5000
)

// Sim is the simulated cloud's state. All methods are safe for concurrent use.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[int, Droplet]
	token         string
	region        string
	activation    time.Duration
	serial        int
	loadBalancers map[string]*LoadBalancer
	certificates  map[string]*Certificate
	tags          map[string]map[string]bool
	firewalls     map[string]*CloudFirewall
	// disorder takes every order away that the API does not promise.
	disorder simkit.Disorder
	// listed is the state in listings of droplets, load balancers and firewalls, which may lag behind; single reads never do.
	listed simkit.Lagging[listed]
}

// Options set up a simulator.
type Options struct {
	// Token is the only one that is accepted; empty accepts every token.
	Token string
	// Activation is how long a new load balancer takes to become active.
	Activation time.Duration
	// PublishedLimits switches DigitalOcean's rate limits on.
	PublishedLimits bool
	// Seed makes listings, and the lists within objects, come in an order that nobody promises; 0 keeps that of creation.
	Seed uint64
}

// New returns a simulated DigitalOcean with nothing in it.
func New(o Options) (*Sim, *simkit.Server) {
	s := &Sim{
		token: o.Token, region: "nyc3", activation: o.Activation,
		loadBalancers: map[string]*LoadBalancer{}, certificates: map[string]*Certificate{},
		tags:      map[string]map[string]bool{},
		firewalls: map[string]*CloudFirewall{},
	}
	s.Machines = simkit.Machines[int, Droplet]{
		Lock: &s.mu, Status: func(d *Droplet) *string { return &d.Status },
		Make: func(name string) { s.mu.Do(func() { s.addDropletLocked(Spec{Name: name}) }) },
		About: func(d *Droplet) simkit.Instance {
			return simkit.Instance{Name: d.Name, ProviderID: fmt.Sprintf("%s://%d", Name, d.ID), Status: d.Status}
		},
		Removed: func(d *Droplet) { s.dropletRemoved(d.ID) }, Changed: func() { s.listed.Wrote(s.listedLocked()) },
	}
	s.disorder.Seed(o.Seed)
	server := simkit.New(s)
	if o.PublishedLimits {
		server.Configure(func(c *simkit.Settings) { c.PerMinute, c.PerHour = PublishedPerMinute, PublishedPerHour })
	}
	return s, server
}

// NewServer returns the simulator for programs that know simulators only in general.
func NewServer(token string, activation time.Duration, publishedLimits bool) *simkit.Server {
	_, server := New(Options{Token: token, Activation: activation, PublishedLimits: publishedLimits})
	return server
}

var regions = []Region{
	{
		Slug: "nyc3", Name: "New York 3", Available: true,
		Features: []string{"backups", "ipv6", "metadata"}, Sizes: []string{"s-1vcpu-1gb", "s-2vcpu-4gb"},
	},
	{
		Slug: "fra1", Name: "Frankfurt 1", Available: true,
		Features: []string{"backups", "ipv6", "metadata"}, Sizes: []string{"s-1vcpu-1gb", "s-2vcpu-4gb"},
	},
}

// apiError is an answer other than success, in the API's words.
type apiError struct {
	status  int
	message string
}

func (e *apiError) Error() string { return e.message }

func invalid(format string, args ...any) error {
	return &apiError{http.StatusUnprocessableEntity, fmt.Sprintf(format, args...)}
}

var errNotFound = &apiError{http.StatusNotFound, "The resource you were accessing could not be found."}

// codes are the API's identifiers of HTTP statuses.
var codes = map[int]string{
	http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden",
	http.StatusNotFound: "not_found", http.StatusConflict: "conflict", http.StatusUnprocessableEntity: "unprocessable_entity",
	http.StatusTooManyRequests: "too_many_requests", http.StatusInternalServerError: "server_error",
	http.StatusServiceUnavailable: "service_unavailable", http.StatusMethodNotAllowed: "method_not_allowed",
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	code := codes[status]
	if code == "" {
		code = "server_error"
	}
	write(w, status, map[string]string{"id": code, "message": message, "request_id": "5e1b7a3c-0000-4000-8000-000000000000"})
}

// RateHeaders implements simkit.Cloud.
func (*Sim) RateHeaders(h http.Header, limit, remaining int, reset time.Time) {
	h.Set("RateLimit-Limit", strconv.Itoa(limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
}

var identifier = regexp.MustCompile(`^([0-9]+|[0-9a-f]{8}-[0-9a-f-]{27})$`)

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	segments := strings.Split(path.Clean(r.URL.Path), "/")
	for i, s := range segments {
		switch {
		case identifier.MatchString(s), i > 0 && segments[i-1] == "load_balancers":
			segments[i] = "{id}"
		case i > 0 && segments[i-1] == "tags":
			segments[i] = "{name}"
		}
	}
	return r.Method + " " + strings.Join(segments, "/"), r.Method != http.MethodGet && r.Method != http.MethodHead
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	isList := func(r *http.Request) (string, bool) {
		kind := path.Base(r.URL.Path)
		return kind, r.Method == http.MethodGet && slices.Contains([]string{"droplets", "load_balancers", "certificates", "firewalls"}, kind)
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as another account's token would see it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			kind, ok := isList(r)
			return fmt.Appendf(nil, `{%q: [], "links": {}, "meta": {"total": 0}}`, kind), ok
		},
		// cut-list: the listing ends too early, without a link to the next page.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			kind, ok := isList(r)
			if !ok || body == nil {
				return nil, ok
			}
			var page map[string]json.RawMessage
			var items []json.RawMessage
			if json.Unmarshal(body, &page) != nil || json.Unmarshal(page[kind], &items) != nil {
				return body, ok
			}
			page[kind], _ = json.Marshal(items[:len(items)/2])
			page["links"] = json.RawMessage("{}")
			cut, _ := json.Marshal(page)
			return cut, ok
		},
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"fail-load-balancer": simkit.Action(func(in struct{ ID string }) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			lb := s.loadBalancers[in.ID]
			if lb == nil {
				return errNotFound
			}
			lb.Status = "errored"
			return nil
		}),
		"power-off": simkit.SetStatus(s.SetStatus, "off"),
		"power-on":  simkit.SetStatus(s.SetStatus, "active"),
		"resize": simkit.Action(func(in struct {
			ID   int
			Size string
		},
		) error {
			return s.Change(in.ID, func(d *Droplet) { d.SizeSlug = in.Size })
		}),
		"tag": simkit.Action(func(in struct {
			ID   int
			Tags []string
		},
		) error {
			return s.Change(in.ID, func(d *Droplet) { d.Tags = in.Tags })
		}),
		"token": simkit.SetToken(s.SetToken),
	}
}

// Environment implements simkit.Cloud.
func (s *Sim) Environment(url string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.token
	if token == "" {
		token = "any"
	}
	return map[string]string{"DO_ACCESS_TOKEN": token, "DO_OVERRIDE_URL": url + "/", "DO_METADATA_URL": url + "/"}
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	lines := []string{}
	for _, lb := range s.LoadBalancers() {
		rules := make([]string, len(lb.ForwardingRules))
		for i, r := range lb.ForwardingRules {
			rules[i] = fmt.Sprintf("%s/%d to %s/%d", r.EntryProtocol, r.EntryPort, r.TargetProtocol, r.TargetPort)
		}
		lines = append(lines, fmt.Sprintf("load balancer %s, %s, %s, address %s, %s, %d nodes",
			lb.Name, lb.Type, lb.Status, first(lb.IP, "none yet"), strings.Join(rules, ", "), len(lb.DropletIDs)))
	}
	return lines
}

// SetToken changes the only token that is accepted.
func (s *Sim) SetToken(token string) { s.mu.Do(func() { s.token = token }) }

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags := map[string][]string{}
	for name, resources := range s.tags {
		tags[name] = slices.Sorted(maps.Keys(resources))
	}
	return simkit.Snapshot(map[string]any{
		"droplets": s.VMs.All(), "load_balancers": s.loadBalancersLocked(), "certificates": sorted(s.certificates), "tags": tags,
		"firewalls": s.firewallsLocked(),
	})
}

// ServeHTTP implements simkit.Cloud.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/metadata/") {
		s.metadata(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || token == "" || (s.token != "" && token != s.token) {
		s.WriteError(w, http.StatusUnauthorized, "Unable to authenticate you")
		return
	}
	err := simkit.CheckLimits(s, digitaloceanlimits.Table, r)
	var status int
	var answer any
	if err == nil {
		status, answer, err = s.route(r)
	}
	if simkit.MarkLimit(w, err) {
		err = invalid("%s", err)
	}
	if err != nil {
		if e, ok := errors.AsType[*apiError](err); ok {
			s.WriteError(w, e.status, e.message)
			return
		}
		s.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.Method != http.MethodGet {
		s.listed.Wrote(s.listedLocked())
	}
	write(w, status, answer)
}

// listed is the state that listings show.
type listed struct {
	droplets      []*Droplet
	loadBalancers []LoadBalancer
	firewalls     []CloudFirewall
}

func (s *Sim) listedLocked() listed {
	droplets := s.VMs.All()
	for i, d := range droplets {
		c := *d
		droplets[i] = &c
	}
	return listed{droplets, s.loadBalancersLocked(), s.firewallsLocked()}
}

// SetListingLag makes listings show what is written only after a while; 0 makes them show it at once.
func (s *Sim) SetListingLag(lag time.Duration) {
	s.mu.Do(func() { s.listed.SetLag(lag, s.listedLocked()) })
}

func write(w http.ResponseWriter, status int, answer any) {
	if answer == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // a client that went away is its own affair
}

// handler answers one kind of request; id is the second segment of the path.
type handler func(s *Sim, r *http.Request, id string) (int, any, error)

// routes are the requests that the simulator knows; {} stands for an identifier.
var routes = map[string]handler{
	"GET account": func(*Sim, *http.Request, string) (int, any, error) {
		return http.StatusOK, map[string]any{"account": account}, nil
	},
	"GET regions": func(_ *Sim, r *http.Request, _ string) (int, any, error) { return list(r, "regions", regions) },

	"GET droplets":    func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.listDroplets(r) },
	"POST droplets":   func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.createDroplet(r) },
	"GET droplets/{}": func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.getDroplet(id) },

	"GET load_balancers": func(s *Sim, r *http.Request, _ string) (int, any, error) {
		return s.listLoadBalancers(r)
	},
	"POST load_balancers":               func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.createLoadBalancer(r) },
	"GET load_balancers/{}":             func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.getLoadBalancer(id) },
	"PUT load_balancers/{}":             (*Sim).replaceLoadBalancer,
	"DELETE load_balancers/{}":          func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.deleteLoadBalancer(id) },
	"POST load_balancers/{}/droplets":   (*Sim).changeDroplets,
	"DELETE load_balancers/{}/droplets": (*Sim).changeDroplets,

	"GET firewalls": func(s *Sim, r *http.Request, _ string) (int, any, error) {
		return s.listFirewalls(r)
	},
	"POST firewalls":      func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.createFirewall(r) },
	"GET firewalls/{}":    func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.getFirewall(id) },
	"PUT firewalls/{}":    (*Sim).replaceFirewall,
	"DELETE firewalls/{}": func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.deleteFirewall(id) },

	"GET certificates":    func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.listCertificates(r) },
	"POST certificates":   func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.createCertificate(r) },
	"GET certificates/{}": func(s *Sim, _ *http.Request, id string) (int, any, error) { return s.getCertificate(id) },

	"POST tags":                func(s *Sim, r *http.Request, _ string) (int, any, error) { return s.createTag(r) },
	"GET tags/{}":              func(s *Sim, _ *http.Request, name string) (int, any, error) { return s.getTag(name) },
	"POST tags/{}/resources":   (*Sim).tagResources,
	"DELETE tags/{}/resources": (*Sim).tagResources,
}

// route finds the handler of a request.
func (s *Sim) route(r *http.Request) (int, any, error) {
	segments := strings.Split(strings.Trim(strings.TrimPrefix(path.Clean(r.URL.Path), "/v2"), "/"), "/")
	id := ""
	if len(segments) > 1 {
		id, segments[1] = segments[1], "{}"
	}
	handle, ok := routes[r.Method+" "+strings.Join(segments, "/")]
	if !ok {
		return 0, nil, errNotFound
	}
	return handle(s, r, id)
}

// decode reads a request strictly: a field that the API does not know is refused.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &apiError{http.StatusBadRequest, "invalid request body: " + err.Error()}
	}
	return nil
}

// list answers one page in the API's form, with links to the others.
func list[T any](r *http.Request, plural string, items []T) (int, any, error) {
	q := r.URL.Query()
	page, err := positive(q, "page", 1)
	if err != nil {
		return 0, nil, err
	}
	size, err := positive(q, "per_page", defaultPage)
	if err != nil {
		return 0, nil, err
	}
	if size > largestPage {
		return 0, nil, invalid("per_page must be at most %d", largestPage)
	}
	last := max((len(items)+size-1)/size, 1)
	from := min((page-1)*size, len(items))
	part := items[from:min(from+size, len(items))]
	if part == nil {
		part = []T{}
	}
	return http.StatusOK, map[string]any{plural: part, "links": links(r, page, last), "meta": map[string]int{"total": len(items)}}, nil
}

func positive(q url.Values, name string, absent int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, invalid("%s must be a positive number", name)
	}
	return n, nil
}

func links(r *http.Request, page, last int) map[string]any {
	if last == 1 {
		return map[string]any{}
	}
	to := func(n int) string {
		u := *r.URL
		u.Scheme, u.Host = "http", r.Host
		q := u.Query()
		q.Set("page", strconv.Itoa(n))
		u.RawQuery = q.Encode()
		return u.String()
	}
	pages := map[string]string{}
	if page > 1 {
		pages["first"], pages["prev"] = to(1), to(page-1)
	}
	if page < last {
		pages["next"], pages["last"] = to(page+1), to(last)
	}
	return map[string]any{"pages": pages}
}

func sorted[K interface{ ~int | ~string }, V any](m map[K]V) []V {
	all := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

// uuid returns the next identifier; they are in order of creation, so that listings are too.
func (s *Sim) uuid() string {
	s.serial++
	return fmt.Sprintf("%08x-5eed-4d00-8000-00d161744c0a", s.serial)
}

func timestamp() string { return time.Now().UTC().Format(time.RFC3339) }

// metadata answers what a droplet may ask the link-local metadata service; it needs no credential.
func (s *Sim) metadata(w http.ResponseWriter, r *http.Request) {
	switch path.Clean(r.URL.Path) {
	case "/metadata/v1/region":
		_, _ = bytes.NewBufferString(s.region).WriteTo(w)
	default:
		http.NotFound(w, r)
	}
}

// Region is a region as the API shows it.
type Region struct {
	Slug      string   `json:"slug"`
	Name      string   `json:"name"`
	Available bool     `json:"available"`
	Features  []string `json:"features"`
	Sizes     []string `json:"sizes"`
}

var account = map[string]any{
	"uuid": "b6fr89dbf6d9156cace5f3c78dc9851d957381ef", "email": "ops@example.com", "email_verified": true, "status": "active",
	"status_message": "", "droplet_limit": 10000, "floating_ip_limit": 100, "name": "Simulated",
	"team": map[string]string{"uuid": "5df3e3004a17e242b7c20ca6c9fc25b701a47ece", "name": "Simulated"},
}

func regionOf(slug string) (Region, bool) {
	i := slices.IndexFunc(regions, func(r Region) bool { return r.Slug == slug })
	if i < 0 {
		return Region{}, false
	}
	return regions[i], true
}
