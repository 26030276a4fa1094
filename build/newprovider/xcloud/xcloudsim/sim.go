// Package xcloudsim simulates the part of Xcloud's API that the provider uses.
package xcloudsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// pageSize is small, so that listings have pages.
const pageSize = 50

// Instance is an instance as the API shows it.
type Instance struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Region    string `json:"region"`
	Status    string `json:"status"`
	PrivateIP string `json:"private_ip"`
	PublicIP  string `json:"public_ip"`
}

// Listener is one of a load balancer.
type Listener struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	Target   int    `json:"target"`
}

// Spec holds the settings of a load balancer that users may choose.
type Spec struct {
	Name      string     `json:"name"`
	Algorithm string     `json:"algorithm"`
	Listeners []Listener `json:"listeners"`
	Backends  []string   `json:"backends"`
	Tags      []string   `json:"tags"`
}

// LoadBalancer is a load balancer as the API shows it.
type LoadBalancer struct {
	Spec
	ID      string `json:"id"`
	Address string `json:"address"`
	Status  string `json:"status"`

	active time.Time
}

// Sim is a simulated Xcloud.
type Sim struct {
	mu            sync.Mutex
	token         string
	activation    time.Duration
	number        int
	instances     []Instance
	loadBalancers []*LoadBalancer
	// listed is the state in listings of load balancers, which may lag behind.
	listed simkit.Lagging[[]LoadBalancer]
}

// New returns an empty simulated Xcloud. It accepts only the token; "" accepts any.
func New(token string, activation time.Duration) (*Sim, *simkit.Server) {
	s := &Sim{token: token, activation: activation}
	return s, simkit.New(s)
}

// NewServer returns the server for programs that work with any simulator.
func NewServer(token string, activation time.Duration, _ bool) *simkit.Server {
	_, server := New(token, activation)
	return server
}

// AddInstance starts an instance and returns its ID.
func (s *Sim) AddInstance(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	id := fmt.Sprintf("i%06d", s.number)
	s.instances = append(s.instances, Instance{
		ID: id, Name: name, Type: "small", Region: "here", Status: "running",
		PrivateIP: fmt.Sprintf("10.0.%d.%d", s.number/250, s.number%250+1), PublicIP: fmt.Sprintf("198.51.%d.%d", s.number/250, s.number%250+1),
	})
	return id
}

// RemoveInstanceByID destroys an instance.
func (s *Sim) RemoveInstanceByID(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = slices.DeleteFunc(s.instances, func(i Instance) bool { return i.ID == id })
}

// RemoveInstances destroys all instances.
func (s *Sim) RemoveInstances() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = nil
}

// SetType changes the type of an instance.
func (s *Sim) SetType(id, kind string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.instances {
		if s.instances[i].ID == id {
			s.instances[i].Type = kind
			return nil
		}
	}
	return errors.New("there is no instance " + id)
}

// SetStatus changes the status of an instance.
func (s *Sim) SetStatus(id, status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.instances {
		if s.instances[i].ID == id {
			s.instances[i].Status = status
			return nil
		}
	}
	return errors.New("there is no instance " + id)
}

// SetToken changes the only token that is accepted.
func (s *Sim) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// LoadBalancers returns copies of all load balancers.
func (s *Sim) LoadBalancers() []LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies()
}

func (s *Sim) copies() []LoadBalancer {
	list := make([]LoadBalancer, len(s.loadBalancers))
	for i, lb := range s.loadBalancers {
		list[i] = *lb
	}
	return list
}

// SetLag makes listings of load balancers show an earlier state; 0 means the current one.
func (s *Sim) SetLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed.SetLag(lag, s.copies())
}

// RemoveLoadBalancers deletes all load balancers, as somebody might by hand. Other objects of a Service, such as an address, would stay.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadBalancers = nil
	s.listed.Wrote(nil)
}

// ServeHTTP speaks the API.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if auth := r.Header.Get("Authorization"); s.token != "" && auth != "Bearer "+s.token || auth == "" {
		s.WriteError(w, http.StatusUnauthorized, "the token is not accepted")
		return
	}
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch {
	case kind == "instances" && r.Method == http.MethodGet:
		s.serveInstances(w, r, id)
	case kind == "load_balancers":
		s.serveLoadBalancers(w, r, id)
	default:
		s.WriteError(w, http.StatusNotFound, "there is no such path")
	}
}

func (s *Sim) serveInstances(w http.ResponseWriter, r *http.Request, id string) {
	if id == "" {
		writePage(s, w, r, s.instances)
		return
	}
	at := slices.IndexFunc(s.instances, func(i Instance) bool { return i.ID == id })
	if at < 0 {
		s.WriteError(w, http.StatusNotFound, "there is no such instance")
		return
	}
	write(w, http.StatusOK, s.instances[at])
}

func (s *Sim) serveLoadBalancers(w http.ResponseWriter, r *http.Request, id string) {
	at := slices.IndexFunc(s.loadBalancers, func(lb *LoadBalancer) bool { return lb.ID == id })
	switch {
	case r.Method == http.MethodGet && id == "":
		shown, lags := s.listed.Seen()
		if !lags {
			shown = s.copies()
		}
		found := []*LoadBalancer{}
		for _, lb := range shown {
			if name := r.URL.Query().Get("name"); name == "" || name == lb.Name {
				found = append(found, s.current(&lb))
			}
		}
		writePage(s, w, r, found)
	case r.Method == http.MethodPost && id == "":
		s.createLoadBalancer(w, r)
	case at < 0:
		s.WriteError(w, http.StatusNotFound, "there is no such load balancer")
	case r.Method == http.MethodGet:
		write(w, http.StatusOK, s.current(s.loadBalancers[at]))
	case r.Method == http.MethodPut:
		asked, ok := s.spec(w, r)
		if !ok {
			return
		}
		s.loadBalancers[at].Spec = asked
		s.listed.Wrote(s.copies())
		write(w, http.StatusOK, s.current(s.loadBalancers[at]))
	case r.Method == http.MethodDelete:
		s.loadBalancers = slices.Delete(s.loadBalancers, at, at+1)
		s.listed.Wrote(s.copies())
		w.WriteHeader(http.StatusNoContent)
	default:
		s.WriteError(w, http.StatusMethodNotAllowed, "there is no such call")
	}
}

func (s *Sim) createLoadBalancer(w http.ResponseWriter, r *http.Request) {
	asked, ok := s.spec(w, r)
	if !ok {
		return
	}
	if slices.ContainsFunc(s.loadBalancers, func(lb *LoadBalancer) bool { return lb.Name == asked.Name }) {
		s.WriteError(w, http.StatusConflict, "the name is taken")
		return
	}
	s.number++
	lb := &LoadBalancer{
		Spec: asked, ID: fmt.Sprintf("lb%06d", s.number), Address: fmt.Sprintf("203.0.113.%d", s.number%250+1),
		active: time.Now().Add(s.activation),
	}
	s.loadBalancers = append(s.loadBalancers, lb)
	s.listed.Wrote(s.copies())
	write(w, http.StatusCreated, s.current(lb))
}

// current returns the current state of a load balancer.
func (*Sim) current(lb *LoadBalancer) *LoadBalancer {
	lb.Status = "active"
	if time.Now().Before(lb.active) {
		lb.Status = "new"
	}
	return lb
}

// spec reads the requested settings strictly.
func (s *Sim) spec(w http.ResponseWriter, r *http.Request) (asked Spec, ok bool) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&asked)
	switch {
	case err != nil:
	case asked.Name == "" || len(asked.Listeners) == 0 || asked.Backends == nil || asked.Tags == nil:
		err = errors.New("a field is missing")
	case !slices.Contains([]string{"round-robin", "least-connections"}, asked.Algorithm):
		err = errors.New("there is no such algorithm")
	}
	for _, l := range asked.Listeners {
		if (l.Protocol != "tcp" && l.Protocol != "udp") || l.Port < 1 || l.Port > 65535 || l.Target < 1 || l.Target > 65535 {
			err = errors.Join(err, fmt.Errorf("listener %v is refused", l))
		}
	}
	if err != nil {
		s.WriteError(w, http.StatusUnprocessableEntity, err.Error())
	}
	return asked, err == nil
}

// writePage writes the requested page of a listing.
func writePage[T any](s *Sim, w http.ResponseWriter, r *http.Request, all []T) {
	number, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || number < 1 {
		s.WriteError(w, http.StatusBadRequest, "there is no such page")
		return
	}
	from := min((number-1)*pageSize, len(all))
	to := min(from+pageSize, len(all))
	items := all[from:to]
	if items == nil {
		items = []T{}
	}
	write(w, http.StatusOK, map[string]any{"items": items, "total": len(all), "more": to < len(all)})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client disconnected
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("page") {
		return false
	}
	simkit.SetPage(r, query.Get("page"))
	query.Set("page", "1")
	r.URL.RawQuery = query.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(_ *http.Request, body []byte) []byte {
	return []byte(strings.Replace(string(body), `"more":false`, `"more":true`, 1))
}

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	p := path.Clean(r.URL.Path)
	if dir := path.Dir(p); path.Dir(dir) == "/v1" {
		p = dir + "/{id}"
	}
	return r.Method + " " + p, r.Method != http.MethodGet
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	write(w, status, map[string]string{"message": message})
}

// RateHeaders implements simkit.Cloud: the cloud sends none.
func (*Sim) RateHeaders(http.Header, int, int, time.Time) {}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simkit.Snapshot(map[string]any{"instances": s.instances, "load_balancers": s.loadBalancers})
}

// Seed implements simkit.Cloud.
func (s *Sim) Seed(n int) {
	s.mu.Lock()
	from := 0
	for _, i := range s.instances {
		if strings.HasPrefix(i.Name, "node-") {
			from++
		}
	}
	s.mu.Unlock()
	for i := range n {
		s.AddInstance(fmt.Sprintf("node-%d", from+i+1))
	}
}

// Instances implements simkit.Cloud.
func (s *Sim) Instances() []simkit.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]simkit.Instance, len(s.instances))
	for i, v := range s.instances {
		list[i] = simkit.Instance{Name: v.Name, ProviderID: "xcloud://" + v.ID, Status: v.Status}
	}
	return list
}

// RemoveInstance implements simkit.Cloud.
func (s *Sim) RemoveInstance(name string) error {
	for _, i := range s.Instances() {
		if i.Name == name {
			s.RemoveInstanceByID(strings.TrimPrefix(i.ProviderID, "xcloud://"))
			return nil
		}
	}
	return errors.New("there is no instance " + name)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	lines := []string{}
	for _, lb := range s.LoadBalancers() {
		lines = append(lines, fmt.Sprintf("load balancer %s, %s, address %s, %d backends", lb.Name, lb.Status, lb.Address, len(lb.Backends)))
	}
	return lines
}

// Environment implements simkit.Cloud.
func (s *Sim) Environment(url string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.token
	if token == "" {
		token = "any"
	}
	return map[string]string{"XCLOUD_TOKEN": token, "XCLOUD_URL": url}
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("page") }
	return map[string]simkit.Distortion{
		// empty-list: a complete but empty listing, as another account's token would see it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return []byte(`{"items":[],"total":0,"more":false}`), listing(r)
		},
		// cut-list: the listing ends too early.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) {
			var all struct {
				Total int `json:"total"`
			}
			if !listing(r) || json.Unmarshal(body, &all) != nil {
				return body, listing(r)
			}
			return fmt.Appendf(nil, `{"items":[],"total":%d,"more":false}`, all.Total), true
		},
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "stopped"),
		"power-on":  simkit.SetStatus(s.SetStatus, "running"),
	}
}
