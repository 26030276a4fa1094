// Package gcesim simulates the part of Google's Compute Engine API that the provider uses, and the metadata server.
//
// It is strict: it refuses unknown fields, invalid names, values and references, and stale fingerprints. It is slow: every change is an
// operation that takes time, and some conflicts show only in its result.
package gcesim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// The simulated cloud's constants.
const (
	Project = "my-project"
	Region  = "us-central1"
	Network = "cluster"
	Subnet  = "nodes"
	NodeTag = "node"

	// apiRoot starts the API's paths; linkRoot starts links in responses, whatever the host.
	apiRoot  = "/compute/v1/"
	linkRoot = "https://www.googleapis.com" + apiRoot
)

// zones has three zones of the region and one of another region.
var zones = []string{Region + "-a", Region + "-b", Region + "-c", "europe-west1-b"}

// document is an object of the API.
type document map[string]any

// Sim is a simulated Compute Engine.
type Sim struct {
	mu         simkit.Mutex
	token      string
	served     string
	activation time.Duration
	number     int
	// objects by path, such as "projects/p/regions/r/forwardingRules/n"; born orders them by creation.
	objects map[string]document
	born    map[string]int
	// operations by path; byRequest finds their paths by request ID.
	operations map[string]*operation
	byRequest  map[string]string
	// open are the unfinished operations.
	open []*operation
	// down are the unreachable zones.
	down map[string]bool
	// denied are methods that the credential may not use, such as "POST firewalls" or "POST forwardingRules/setLabels".
	denied map[string]bool
	// throttled counts the calls of each kind to answer with 403 rateLimitExceeded.
	throttled map[string]int
	// stuck are kinds of operations that do not end, such as "insert forwardingRules".
	stuck map[string]bool
	// addresses counts assigned addresses.
	addresses int
	// pods4 and pods6 are the networks for the pod ranges of seeded instances.
	pods4, pods6 netip.Prefix

	// Judge, if set, is called with each API call and its response.
	Judge func(r *http.Request, body []byte, status int, answer []byte)
}

// New returns a simulated Compute Engine with a network and no instances. An empty token accepts any; activation is how long a change
// takes.
func New(token string, activation time.Duration) (*Sim, *simkit.Server) {
	s := &Sim{
		token: token, served: token, activation: activation, objects: map[string]document{}, born: map[string]int{},
		operations: map[string]*operation{}, byRequest: map[string]string{}, down: map[string]bool{}, denied: map[string]bool{},
		throttled: map[string]int{}, stuck: map[string]bool{},
	}
	if s.served == "" {
		s.served = "any"
	}
	s.addNetwork(Project, Network)
	s.addSubnet(Project, Network, Subnet, "10.128.0.0/20")
	return s, simkit.New(s)
}

// NewServer has the signature common to all simulators.
func NewServer(token string, activation time.Duration, _ bool) *simkit.Server {
	_, server := New(token, activation)
	return server
}

// SetToken changes the accepted token; the metadata server still returns the previous one.
func (s *Sim) SetToken(token string) { s.mu.Do(func() { s.token = token }) }

// RotateToken changes the accepted token and the metadata server's.
func (s *Sim) RotateToken(token string) { s.mu.Do(func() { s.token, s.served = token, token }) }

// SetUnreachable says whether a zone can be reached.
func (s *Sim) SetUnreachable(zone string, down bool) { s.mu.Do(func() { s.down[zone] = down }) }

// Deny revokes or restores the permission for a method, such as "POST firewalls".
func (s *Sim) Deny(method string, denied bool) { s.mu.Do(func() { s.denied[method] = denied }) }

// Throttle answers the next n calls of a method, such as "POST firewalls", with rateLimitExceeded.
func (s *Sim) Throttle(method string, n int) { s.mu.Do(func() { s.throttled[method] = n }) }

// Stick keeps operations of a kind, such as "insert forwardingRules", from ending, or lets them end.
func (s *Sim) Stick(kind string, stuck bool) { s.mu.Do(func() { s.stuck[kind] = stuck }) }

// Objects returns copies of a collection's objects, such as "forwardingRules", ordered by name.
func (s *Sim) Objects(collection string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	list := []map[string]any{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		if parsePath(p).collection == collection {
			list = append(list, clone(s.objects[p]))
		}
	}
	return list
}

// Edit changes an object without an API call. nil deletes it.
func (s *Sim) Edit(collection, name string, change func(map[string]any)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	for p, d := range s.objects {
		if at := parsePath(p); at.collection == collection && at.name == name {
			if change == nil {
				delete(s.objects, p)
			} else {
				change(d)
			}
			return true
		}
	}
	return false
}

// Put creates an object without an API call, as a user or Google's own controller does; the path is relative to the project.
func (s *Sim) Put(path string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := parsePath("projects/" + Project + "/" + path)
	c := collections[at.collection]
	d := clone(fields)
	d["name"] = at.name
	if at.collection == "addresses" {
		for key, standard := range map[string]string{
			"networkTier": "PREMIUM", "addressType": "EXTERNAL", "description": "", "labelFingerprint": "abcdef0123A=",
		} {
			d[key] = textOr(d[key], standard)
		}
	} else if err := c.complete(s, at, d); err != nil {
		panic(fmt.Sprint("gcesim.Put ", path, ": ", err.message))
	}
	s.insert(at, d)
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	at := parsePath(strings.TrimPrefix(r.URL.Path, apiRoot))
	if r.Method != http.MethodGet || at.collection == "" || at.name != "" {
		return false
	}
	query := r.URL.Query()
	page := query.Get("pageToken")
	simkit.SetPage(r, strings.TrimPrefix(page, "page-"))
	query.Del("pageToken")
	r.URL.RawQuery = query.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page map[string]any
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	page["nextPageToken"] = fmt.Sprint("page-", simkit.Page(r)+1)
	text, _ := json.Marshal(page) // it was JSON before
	return text
}

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	rest, api := strings.CutPrefix(r.URL.Path, apiRoot)
	if !api {
		return r.Method + " metadata", false
	}
	at := parsePath(rest)
	name := at.collection
	if at.aggregated {
		name = "aggregated/" + name
	}
	if name == "" {
		name = "project"
	}
	if at.name != "" {
		name += "/{name}"
	}
	if at.action != "" {
		name += "/" + at.action
	}
	read := r.Method == http.MethodGet || at.action == "listInstances" || at.action == "wait"
	return r.Method + " " + name, !read
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	reason := map[int]string{
		http.StatusNotFound: "notFound", http.StatusUnauthorized: "authError", http.StatusForbidden: "forbidden", http.StatusBadRequest: "invalid",
		http.StatusConflict: "alreadyExists", http.StatusTooManyRequests: "rateLimitExceeded", http.StatusPreconditionFailed: "conditionNotMet",
	}[status]
	if reason == "" {
		reason = "backendError"
	}
	refusal{status: status, reason: reason, message: message}.write(w)
}

// RateHeaders implements simkit.Cloud: this cloud sends none.
func (*Sim) RateHeaders(http.Header, int, int, time.Time) {}

// PerMinute implements simkit.OperationLimits.
func (s *Sim) PerMinute(r *http.Request) (string, int) {
	name, write := s.Operation(r)
	switch {
	case strings.Contains(name, "metadata"):
		return "metadata", 100_000
	case strings.Contains(name, "operations"):
		return "operations", 3000
	case write:
		return "mutations", 1500
	case strings.Contains(name, "{name}"):
		return "gets", 1500
	}
	return "lists", 750
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	state := map[string]any{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		at := parsePath(p)
		list, _ := state[at.collection].([]document)
		state[at.collection] = append(list, s.responseOf(at, s.objects[p]))
	}
	return simkit.Snapshot(state)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	lines, served := []string{}, map[string]bool{}
	pools := s.Objects("targetPools")
	for _, fr := range s.Objects("forwardingRules") {
		if fr["loadBalancingScheme"] == "INTERNAL" {
			lines = append(lines, fmt.Sprintf("internal forwarding rule %v, %v, address %v, %d instances", fr["name"], fr["IPProtocol"], fr["IPAddress"], s.countBackends(fr)))
			continue
		}
		target := parsePath(location{}.resource(fmt.Sprint(fr["target"]))).name
		served[target] = true
		members := 0
		for _, tp := range pools {
			if tp["name"] == target {
				list, _ := tp["instances"].([]any)
				members = len(list)
			}
		}
		lines = append(lines, fmt.Sprintf("forwarding rule %v, %v %v, address %v, %d nodes", fr["name"], fr["IPProtocol"], fr["portRange"], fr["IPAddress"], members))
	}
	for _, tp := range pools {
		if name := fmt.Sprint(tp["name"]); !served[name] {
			lines = append(lines, "target pool "+name+" without a forwarding rule")
		}
	}
	for _, route := range s.Objects("routes") {
		lines = append(lines, fmt.Sprintf("route %v", route["name"]))
	}
	return lines
}

// countBackends counts the instances of an internal load balancer.
func (s *Sim) countBackends(rule document) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	backend := s.objects[location{}.resource(text(rule, "backendService"))]
	list, _ := backend["backends"].([]any)
	for _, b := range list {
		if of, ok := b.(map[string]any); ok {
			n += len(textsOf(s.objects[location{}.resource(text(of, "group"))]["members"]))
		}
	}
	return n
}

// Environment implements simkit.Cloud: the metadata server provides tokens and what the cloud config omits.
func (*Sim) Environment(url string) map[string]string {
	return map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(url, "http://")}
}

// CloudConfig implements simkit.CloudConfigurer.
func (*Sim) CloudConfig(url string) string {
	return "[global]\nproject-id = " + Project + "\nnetwork-name = " + Network + "\nsubnetwork-name = " + Subnet +
		"\nlocal-zone = " + zones[0] + "\nregional = true\nnode-tags = " + NodeTag + "\napi-endpoint = " + url + apiRoot + "\n"
}

// InOrder implements simkit.Refusals: conflicts, quotas, and objects in use or not ready may occur in correct use.
func (*Sim) InOrder(status int, body []byte) bool {
	switch status {
	case http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusPreconditionFailed:
		return true
	}
	for _, reason := range []string{"resourceInUseByAnotherResource", "resourceNotReady", "memberNotFound", "memberAlreadyExists"} {
		if strings.Contains(string(body), reason) {
			return true
		}
	}
	return false
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) (location, bool) {
		at := parsePath(strings.TrimPrefix(r.URL.Path, apiRoot))
		return at, r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, apiRoot) && at.collection != "" && at.name == ""
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete but empty listing, as another project's credential would get it.
		"empty-list": func(r *http.Request, body []byte) ([]byte, bool) {
			at, is := listing(r)
			if !is {
				return body, false
			}
			if at.aggregated {
				return []byte(`{"kind":"compute#instanceAggregatedList","id":"x","items":{},"selfLink":"x"}`), true
			}
			return []byte(`{"kind":"` + listKind(at) + `","id":"x","selfLink":"x"}`), true
		},
		// cut-list: a listing that reports an unreachable part.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			at, is := listing(r)
			if !is {
				return body, false
			}
			if at.aggregated {
				return []byte(`{"kind":"compute#instanceAggregatedList","id":"x","items":{},"selfLink":"x","unreachables":["zones/us-central1-a"]}`), true
			}
			return []byte(`{"kind":"` + listKind(at) + `","id":"x","selfLink":"x","warning":{"code":"UNREACHABLE","message":"a zone is not reachable"}}`), true
		},
	}
}

func listKind(at location) string { return collections[at.collection].kind + "List" }

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "TERMINATED"), "power-on": simkit.SetStatus(s.SetStatus, "RUNNING"),
		"pod-ranges": s.setPodRanges,
	}
}

// setPodRanges gives instances seeded later an alias range of one network and an IPv6 address of the other.
func (s *Sim) setPodRanges(body json.RawMessage) (err error) {
	var asked struct{ IPv4, IPv6 netip.Prefix }
	if err := json.Unmarshal(body, &asked); err != nil {
		return fmt.Errorf("pod-ranges: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods4, s.pods6 = asked.IPv4, asked.IPv6
	return nil
}

// nthBlock returns the start of the network's nth block of this size.
func nthBlock(network netip.Prefix, n, bits int) netip.Addr {
	at := new(big.Int).SetBytes(network.Masked().Addr().AsSlice())
	at.Add(at, new(big.Int).Lsh(big.NewInt(int64(n)), uint(bits)))
	a, _ := netip.AddrFromSlice(at.FillBytes(network.Addr().AsSlice()))
	return a
}

// podInterface returns the interface of the nth seeded instance; nil for the default.
func (s *Sim) podInterface(n int) []Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pods4.IsValid() {
		return nil
	}
	i := Interface{IP: fmt.Sprintf("10.128.%d.%d", 8+n/250, n%250+2)}
	i.Alias = fmt.Sprintf("%s/24", nthBlock(s.pods4, n, 8))
	if s.pods6.IsValid() {
		i.IPv6 = nthBlock(s.pods6, n, 16).Next().String()
	}
	return []Interface{i}
}

// Seed implements simkit.Cloud: instances are spread over the zones of the region.
func (s *Sim) Seed(n int) {
	simkit.SeedNodes(n, s.Instances(), func(name string, number int) {
		s.AddInstance(Spec{Name: name, Zone: zones[number%3], Interfaces: s.podInterface(number)})
	})
}

// RemoveInstance implements simkit.Cloud.
func (s *Sim) RemoveInstance(name string) error {
	return simkit.RemoveNamed(name, s.Instances(), func(id string) error {
		s.RemoveInstanceByID(id)
		return nil
	})
}

func clone(d map[string]any) document { return jsondoc.Clone(d) }
