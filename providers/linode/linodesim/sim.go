// Package linodesim simulates the part of Linode's API that a cloud controller manager and its users touch: Linodes,
// NodeBalancers, firewalls, reserved addresses, VPCs and the profile. It speaks the wire format of the real API, as
// recordings of it show, and refuses what the real API refuses.
package linodesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
)

// Name is the provider that the simulator stands for.
const Name = "linode"

const (
	defaultPage  = 100
	smallestPage = 25
	largestPage  = 500

	// PublishedListings is Linode's published limit on listings in a minute, for each operation apart.
	PublishedListings = 200
	// PublishedCalls is the limit on other calls.
	PublishedCalls = 1600
)

// Region is where everything is.
const Region = "us-sea"

// Sim is the simulated cloud's state. All methods are safe for concurrent use.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[int, Linode]
	token         string
	serial        int
	nodeBalancers map[int]*NodeBalancer
	firewalls     map[int]*Firewall
	vpcs          map[int]*VPC
	reserved      map[string]*reservation
	disorder      simkit.Disorder
	frozen        time.Time
	lag           time.Duration
	made          map[int]time.Time
	gone          map[int]departed
	seedSubnet    int
}

// firstID is below all IDs: they are too long to be taken for a port.
const firstID = 100000

// Options set up a simulator.
type Options struct {
	// Token is the only one that is accepted; empty accepts every token.
	Token string
	// Seed takes away the order of what is listed; 0 keeps it.
	Seed uint64
	// PublishedLimits switches Linode's rate limits on.
	PublishedLimits bool
}

// New returns a simulated Linode with nothing in it.
func New(o Options) (*Sim, *simkit.Server) {
	s := &Sim{
		token: o.Token, serial: firstID, nodeBalancers: map[int]*NodeBalancer{}, firewalls: map[int]*Firewall{},
		vpcs: map[int]*VPC{}, reserved: map[string]*reservation{}, made: map[int]time.Time{}, gone: map[int]departed{},
	}
	s.Machines = simkit.Machines[int, Linode]{
		Lock: &s.mu, Status: func(l *Linode) *string { return &l.Status }, Removed: func(l *Linode) { s.changed(l, l.ID) },
		Make: func(name string) {
			s.mu.Do(func() { s.addLinodeLocked(Spec{Label: name, Private: true, SubnetID: s.seedSubnet}) })
		},
		About: func(l *Linode) simkit.Instance {
			return simkit.Instance{Name: l.Label, ProviderID: fmt.Sprintf("linode://%d", l.ID), Status: l.Status}
		},
	}
	s.disorder.Seed(o.Seed)
	server := simkit.New(s)
	if o.PublishedLimits {
		server.Configure(func(c *simkit.Settings) { c.PerOperation = true })
	}
	return s, server
}

// NewServer returns the simulator for programs that know simulators only in general. NodeBalancers are active at once.
func NewServer(token string, _ time.Duration, publishedLimits bool) *simkit.Server {
	_, server := New(Options{Token: token, PublishedLimits: publishedLimits, Seed: 1})
	return server
}

// apiError is an answer other than success, in the API's words.
type apiError struct {
	status int
	reason string
	field  string
}

func (e *apiError) Error() string { return e.reason }

func invalid(field, format string, args ...any) error {
	return &apiError{http.StatusBadRequest, fmt.Sprintf(format, args...), field}
}

var errNotFound = &apiError{http.StatusNotFound, "Not found", ""}

func writeReason(w http.ResponseWriter, status int, reason, field string) {
	one := map[string]string{"reason": reason}
	if field != "" {
		one["field"] = field
	}
	write(w, status, map[string]any{"errors": []any{one}})
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	writeReason(w, status, message, "")
}

// RateHeaders implements simkit.Cloud.
func (*Sim) RateHeaders(h http.Header, limit, remaining int, reset time.Time) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
}

var identifier = regexp.MustCompile(`^[0-9]+$`)

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	segments := strings.Split(path.Clean(r.URL.Path), "/")
	for i, s := range segments {
		if identifier.MatchString(s) || (i > 1 && segments[i-1] == "ips" && segments[i-2] == "reserved") {
			segments[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(segments, "/"), r.Method != http.MethodGet && r.Method != http.MethodHead
}

// PerMinute implements simkit.OperationLimits with the published limits.
func (s *Sim) PerMinute(r *http.Request) (string, int) {
	name, _ := s.Operation(r)
	if r.URL.Query().Has("page") {
		return name, PublishedListings
	}
	return name, PublishedCalls
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	isList := func(r *http.Request) bool {
		kind := path.Base(r.URL.Path)
		return r.Method == http.MethodGet && slices.Contains(
			[]string{"instances", "nodebalancers", "firewalls", "configs", "nodes", "ips", "ipv6s", "vpcs", "subnets"}, kind,
		)
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as a token without rights sees it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return []byte(`{"data": [], "page": 1, "pages": 1, "results": 0}`), isList(r)
		},
		// cut-list: the listing ends too early, without telling that there are more pages.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			if !isList(r) || body == nil {
				return nil, isList(r)
			}
			var page map[string]json.RawMessage
			var items []json.RawMessage
			if json.Unmarshal(body, &page) != nil || json.Unmarshal(page["data"], &items) != nil {
				return body, true
			}
			page["data"], _ = json.Marshal(items[:len(items)/2])
			page["pages"] = json.RawMessage("1")
			cut, _ := json.Marshal(page)
			return cut, true
		},
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		// vpc puts instances that are added from now on into a VPC.
		"vpc": simkit.Action(func(in struct{ Label, Subnet, IPv4 string }) error {
			_, ids := s.AddVPC(in.Label, [2]string{in.Subnet, in.IPv4})
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seedSubnet = ids[0]
			return nil
		}),
		"power-off": simkit.SetStatus(s.SetStatus, "offline"),
		"power-on":  simkit.SetStatus(s.SetStatus, "running"),
		"token":     simkit.SetToken(s.SetToken),
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
	return map[string]string{"LINODE_API_TOKEN": token, "LINODE_URL": url, "LINODE_REGION": Region}
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{}
	for _, nb := range sorted(s.nodeBalancers) {
		ports := []string{}
		nodes := map[string]bool{}
		for _, c := range sorted(nb.configs) {
			ports = append(ports, fmt.Sprintf("%s/%d", c.Protocol, c.Port))
			for _, n := range c.nodes {
				nodes[n.Label] = true
			}
		}
		lines = append(lines, fmt.Sprintf("NodeBalancer %s, %s, address %s, %s, %d nodes", nb.Label, nb.Type, nb.IPv4, strings.Join(ports, ", "), len(nodes)))
	}
	return lines
}

// SetToken changes the only token that is accepted.
func (s *Sim) SetToken(token string) { s.mu.Do(func() { s.token = token }) }

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	balancers := []any{}
	for _, nb := range sorted(s.nodeBalancers) {
		configs := []any{}
		for _, c := range sorted(nb.configs) {
			configs = append(configs, map[string]any{"config": c, "nodes": sorted(c.nodes)})
		}
		balancers = append(balancers, map[string]any{"nodebalancer": nb, "configs": configs})
	}
	firewalls := []any{}
	for _, f := range sorted(s.firewalls) {
		firewalls = append(firewalls, s.firewallView(f))
	}
	return simkit.Snapshot(map[string]any{
		"linodes": s.VMs.All(), "nodebalancers": balancers, "firewalls": firewalls, "vpcs": sorted(s.vpcs),
		"reserved": slices.Sorted(maps.Keys(s.reserved)),
	})
}

// ServeHTTP implements simkit.Cloud.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || token == "" || (s.token != "" && token != s.token) {
		writeReason(w, http.StatusUnauthorized, "Invalid Token", "")
		return
	}
	err := simkit.CheckLimits(s, linodelimits.Table, r)
	var answer any
	if err == nil {
		answer, err = s.route(r)
	}
	simkit.MarkLimit(w, err)
	if err != nil {
		if e, ok := errors.AsType[*apiError](err); ok {
			writeReason(w, e.status, e.reason, e.field)
			return
		}
		writeReason(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	write(w, http.StatusOK, answer)
}

func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // a client that went away is its own affair
}

// handler answers one kind of request; ids are the identifiers of its path.
type handler func(s *Sim, r *http.Request, ids []string) (any, error)

// routes are the requests that the simulator knows; {} stands for an identifier.
var routes = map[string]handler{
	"GET profile": func(*Sim, *http.Request, []string) (any, error) {
		return map[string]any{"username": "simulated", "email": "ops@example.com", "restricted": false}, nil
	},

	"GET regions/{}": func(_ *Sim, _ *http.Request, ids []string) (any, error) {
		if ids[0] != Region {
			return nil, errNotFound
		}
		return map[string]any{"id": Region, "country": "us", "status": "ok", "capabilities": []string{"Linodes", "NodeBalancers", "VPCs"}}, nil
	},

	"GET linode/instances":                             (*Sim).listLinodes,
	"POST linode/instances":                            (*Sim).createLinode,
	"GET linode/instances/{}":                          (*Sim).getLinode,
	"DELETE linode/instances/{}":                       (*Sim).deleteLinode,
	"GET linode/instances/{}/configs":                  (*Sim).listLinodeConfigs,
	"GET linode/instances/{}/interfaces":               (*Sim).listLinodeInterfaces,
	"PUT linode/instances/{}/configs/{}/interfaces/{}": (*Sim).updateConfigInterface,
	"PUT linode/instances/{}/interfaces/{}":            (*Sim).updateLinodeInterface,

	"GET vpcs":               (*Sim).listVPCs,
	"POST vpcs":              (*Sim).createVPC,
	"DELETE vpcs/{}":         (*Sim).deleteVPC,
	"GET vpcs/{}":            (*Sim).getVPC,
	"GET vpcs/{}/subnets":    (*Sim).listSubnets,
	"GET vpcs/{}/subnets/{}": (*Sim).getSubnet,
	"GET vpcs/{}/ips":        (*Sim).listVPCIPs,
	"GET vpcs/{}/ipv6s":      (*Sim).listVPCIPv6s,

	"GET nodebalancers":                           (*Sim).listNodeBalancers,
	"POST nodebalancers":                          (*Sim).createNodeBalancer,
	"GET nodebalancers/{}":                        (*Sim).getNodeBalancer,
	"PUT nodebalancers/{}":                        (*Sim).updateNodeBalancer,
	"DELETE nodebalancers/{}":                     (*Sim).deleteNodeBalancer,
	"GET nodebalancers/{}/firewalls":              (*Sim).listNodeBalancerFirewalls,
	"GET nodebalancers/{}/vpcs":                   (*Sim).listNodeBalancerVPCs,
	"GET nodebalancers/{}/configs":                (*Sim).listConfigs,
	"POST nodebalancers/{}/configs":               (*Sim).createConfig,
	"GET nodebalancers/{}/configs/{}":             (*Sim).getConfig,
	"PUT nodebalancers/{}/configs/{}":             (*Sim).updateConfig,
	"DELETE nodebalancers/{}/configs/{}":          (*Sim).deleteConfig,
	"POST nodebalancers/{}/configs/{}/rebuild":    (*Sim).rebuildConfig,
	"GET nodebalancers/{}/configs/{}/nodes":       (*Sim).listNodes,
	"POST nodebalancers/{}/configs/{}/nodes":      (*Sim).createNode,
	"GET nodebalancers/{}/configs/{}/nodes/{}":    (*Sim).getNode,
	"PUT nodebalancers/{}/configs/{}/nodes/{}":    (*Sim).updateNode,
	"DELETE nodebalancers/{}/configs/{}/nodes/{}": (*Sim).deleteNode,

	"GET networking/firewalls":                  (*Sim).listFirewalls,
	"POST networking/firewalls":                 (*Sim).createFirewall,
	"GET networking/firewalls/{}":               (*Sim).getFirewall,
	"PUT networking/firewalls/{}":               (*Sim).updateFirewall,
	"DELETE networking/firewalls/{}":            (*Sim).deleteFirewall,
	"PUT networking/firewalls/{}/rules":         (*Sim).updateRules,
	"GET networking/firewalls/{}/rules":         (*Sim).getRules,
	"GET networking/firewalls/{}/devices":       (*Sim).listDevices,
	"POST networking/firewalls/{}/devices":      (*Sim).createDevice,
	"DELETE networking/firewalls/{}/devices/{}": (*Sim).deleteDevice,

	"GET networking/reserved/ips":       (*Sim).listReserved,
	"POST networking/reserved/ips":      (*Sim).reserve,
	"GET networking/reserved/ips/{}":    (*Sim).getReserved,
	"DELETE networking/reserved/ips/{}": (*Sim).release,
}

// Knows reports whether the simulator serves a kind of request.
func Knows(method, path string) bool {
	handle, _ := handlerOf(method, path)
	return handle != nil
}

// route finds the handler of a request.
func (s *Sim) route(r *http.Request) (any, error) {
	handle, ids := handlerOf(r.Method, r.URL.Path)
	if handle == nil {
		return nil, errNotFound
	}
	return handle(s, r, ids)
}

func handlerOf(method, address string) (handler, []string) {
	segments := strings.Split(strings.Trim(path.Clean(address), "/"), "/")
	if len(segments) < 2 || (segments[0] != "v4" && segments[0] != "v4beta") {
		return nil, nil
	}
	segments = segments[1:]
	var ids []string
	for i, one := range segments {
		if identifier.MatchString(one) || (i == 1 && segments[0] == "regions") || (i > 1 && segments[i-1] == "ips" && segments[i-2] == "reserved") {
			ids = append(ids, one)
			segments[i] = "{}"
		}
	}
	return routes[method+" "+strings.Join(segments, "/")], ids
}

// decode reads a request strictly: a field that the API does not know is refused.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("", "invalid request body: %s", err)
	}
	return nil
}

// list answers one page of what the filter of the request lets through.
func list[T any](s *Sim, r *http.Request, items []T) (any, error) {
	q := r.URL.Query()
	number, size := 1, defaultPage
	for _, p := range []struct {
		name      string
		into      *int
		low, high int
	}{{"page", &number, 1, 1 << 30}, {"page_size", &size, smallestPage, largestPage}} {
		if text := q.Get(p.name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < p.low || n > p.high {
				return nil, invalid(p.name, "must be between %d and %d", p.low, p.high)
			}
			*p.into = n
		}
	}
	items, err := filtered(r, items)
	if err != nil {
		return nil, err
	}
	items = simkit.Scattered(&s.disorder, items, identity)
	pages := max((len(items)+size-1)/size, 1)
	if number > pages {
		return nil, errNotFound
	}
	from := (number - 1) * size
	part := append([]T{}, items[from:min(from+size, len(items))]...)
	return map[string]any{"data": part, "page": number, "pages": pages, "results": len(items)}, nil
}

// identity returns the key of an item in a listing.
func identity[T any](item T) string {
	switch v := any(item).(type) {
	case *Linode:
		return strconv.Itoa(v.ID)
	case *NodeBalancer:
		return strconv.Itoa(v.ID)
	case *Config:
		return strconv.Itoa(v.ID)
	case *Node:
		return strconv.Itoa(v.ID)
	case map[string]any:
		return fmt.Sprint(v["id"], v["address"])
	}
	data, _ := json.Marshal(item) // our own types can be encoded
	return string(data)
}

// FreezeListings makes listings go on showing what there is now: what is made shows late, and what is destroyed for some time.
// Reads of single objects tell the truth. It ends with ThawListings.
func (s *Sim) FreezeListings() { s.mu.Do(func() { s.frozen = time.Now() }) }

// SetListingLag makes listings show what came and went only after a while; 0 makes them show it at once.
func (s *Sim) SetListingLag(lag time.Duration) { s.mu.Do(func() { s.lag = lag }) }

// ThawListings makes listings show what there is.
func (s *Sim) ThawListings() { s.mu.Do(func() { s.frozen = time.Time{} }) }

// changed notes that an object came, or went with its last state.
func (s *Sim) changed(gone any, id int) {
	if gone == nil {
		s.made[id] = time.Now()
		return
	}
	s.gone[id] = departed{object: gone, at: time.Now()}
}

// departed is an object that is gone, and that listings may still show.
type departed struct {
	object any
	at     time.Time
}

// shown returns the objects of one kind that a listing shows.
func shown[V any](s *Sim, objects map[int]*V) []*V {
	if s.frozen.IsZero() && s.lag == 0 {
		return sorted(objects)
	}
	visible := s.frozen
	if visible.IsZero() {
		visible = time.Now().Add(-s.lag)
	}
	all := maps.Clone(objects)
	maps.DeleteFunc(all, func(id int, _ *V) bool { return s.made[id].After(visible) })
	for id, d := range s.gone {
		if v, ok := d.object.(*V); ok && d.at.After(visible) && !s.made[id].After(visible) {
			all[id] = v
		}
	}
	return sorted(all)
}

// filtered applies the header X-Filter: equality of fields, and +contains.
func filtered[T any](r *http.Request, items []T) ([]T, error) {
	text := r.Header.Get("X-Filter")
	if text == "" {
		return items, nil
	}
	var filter map[string]any
	if err := json.Unmarshal([]byte(text), &filter); err != nil {
		return nil, invalid("", "cannot parse the filter")
	}
	var kept []T
	for _, item := range items {
		data, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, err
		}
		ok := true
		for key, want := range filter {
			if strings.HasPrefix(key, "+order") {
				continue
			}
			if _, known := fields[key]; !known {
				return nil, invalid(key, "Cannot filter on %s", key)
			}
			ok = ok && matches(fields[key], want)
		}
		if ok {
			kept = append(kept, item)
		}
	}
	return kept, nil
}

func matches(have, want any) bool {
	if operators, ok := want.(map[string]any); ok {
		text, isText := operators["+contains"].(string)
		if !isText {
			return false
		}
		if all, ok := have.([]any); ok {
			return slices.ContainsFunc(all, func(v any) bool { return strings.Contains(fmt.Sprint(v), text) })
		}
		return strings.Contains(fmt.Sprint(have), text)
	}
	if all, ok := have.([]any); ok {
		return slices.ContainsFunc(all, func(v any) bool { return fmt.Sprint(v) == fmt.Sprint(want) })
	}
	// Several numbers are joined by commas.
	return slices.Contains(strings.Split(fmt.Sprint(want), ","), fmt.Sprint(have))
}

func sorted[K interface{ ~int | ~string }, V any](m map[K]V) []V {
	all := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

func (s *Sim) next() int {
	s.serial++
	return s.serial
}

func number(text string) int {
	n, _ := strconv.Atoi(text) // the route has matched digits
	return n
}

const timeForm = "2006-01-02T15:04:05"

func timeNow() string { return time.Now().UTC().Format(timeForm) }

func find[V any](m map[int]*V, id string) (*V, error) {
	v := m[number(id)]
	if v == nil {
		return nil, errNotFound
	}
	return v, nil
}
