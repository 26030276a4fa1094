// Package simkit holds the common parts of all simulated clouds: latency, rate limits, faults, a log of calls, and an admin path. A cloud
// adds its wire format.
//
// Admin paths, all JSON:
//
//	GET    /_sim/state    the cloud's state
//	GET    /_sim/calls    counts by operation, and the latest calls
//	DELETE /_sim/calls    sets the counts to zero
//	GET    /_sim/faults   faults in force
//	POST   /_sim/faults   adds one Fault, returns its ID
//	DELETE /_sim/faults   removes all, or the one named by ?id=
//	POST   /_sim/config   changes Settings; absent fields stay
//	POST   /_sim/seed     adds instances: {"instances": 3}
//	GET    /_sim/env      environment of a controller that talks to this cloud
//	GET    /_sim/cloud-config  configuration file of a controller that talks to this cloud, as text; empty if it needs none
//	GET    /_sim/summary  instances, and one line for each of the cloud's objects for Services
//	POST   /_sim/remove   destroys an instance: {"name": "node-1"}
//	POST   /_sim/do/NAME  runs an action of the cloud, such as "power-off", with its own body
package simkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AdminPrefix begins the paths of the admin interface.
const AdminPrefix = "/_sim/"

// latestCalls is how many calls are kept in full.
const latestCalls = 2000

// Snapshot returns a cloud's state as JSON. It shares nothing with the cloud, whose state continues to change.
func Snapshot(state map[string]any) json.RawMessage {
	text, err := json.Marshal(state)
	if err != nil {
		panic(err) // a simulator's state can always be encoded
	}
	return text
}

// Cloud is one simulated cloud.
type Cloud interface {
	// ServeHTTP speaks the cloud's API.
	http.Handler
	// Operation returns the name of a request, without identifiers, and whether it changes anything.
	Operation(*http.Request) (name string, write bool)
	// WriteError writes the cloud's own error body.
	WriteError(w http.ResponseWriter, status int, message string)
	// RateHeaders tells the client about its budget.
	RateHeaders(h http.Header, limit, remaining int, reset time.Time)
	// State returns the cloud's state, as JSON of one moment; Snapshot encodes it while the cloud is locked.
	State() json.RawMessage
	// Seed adds n running instances.
	Seed(n int)
	// Instances returns all instances in order of their creation.
	Instances() []Instance
	// RemoveInstance destroys an instance behind the API's back.
	RemoveInstance(name string) error
	// Holdings describes the cloud's objects for Services, in one line each.
	Holdings() []string
	// Environment returns the variables with which a controller talks to this cloud at url.
	Environment(url string) map[string]string
	// Distort names the ways in which answers can be falsified, such as an empty listing.
	Distort() map[string]Distortion
	// Actions are events that happen without an API call, such as an instance that is powered off.
	Actions() map[string]func(json.RawMessage) error
}

// RequestErrors is implemented by clouds whose services have different error bodies; it replaces Cloud.WriteError if the request is known.
type RequestErrors interface {
	WriteErrorFor(w http.ResponseWriter, r *http.Request, status int, message string)
}

func writeError(c Cloud, w http.ResponseWriter, r *http.Request, status int, message string) {
	if own, ok := c.(RequestErrors); ok {
		own.WriteErrorFor(w, r, status, message)
		return
	}
	c.WriteError(w, status, message)
}

// OperationLimits is implemented by clouds with separate limits for kinds of calls.
type OperationLimits interface {
	// PerMinute names the group that a call counts in, and its limit per minute.
	PerMinute(*http.Request) (group string, limit int)
}

// CloudConfigurer is implemented by clouds whose controllers read a configuration file.
type CloudConfigurer interface {
	// CloudConfig returns the file of a controller that talks to this cloud at url.
	CloudConfig(url string) string
}

// Instance is one machine of the simulated cloud.
type Instance struct {
	Name       string `json:"name"`
	ProviderID string `json:"providerID"`
	Status     string `json:"status"`
}

// Summary is an overview of a cloud for people.
type Summary struct {
	Instances []Instance `json:"instances"`
	Holdings  []string   `json:"holdings"`
}

// Distortion falsifies an answer; it returns the body to send, and false if it does not apply to this request.
type Distortion func(r *http.Request, body []byte) ([]byte, bool)

// Settings change how the cloud behaves as a whole.
type Settings struct {
	// Latency is added to every call.
	Latency Duration `json:"latency"`
	// PerMinute and PerHour are the cloud's published limits; 0 means none.
	PerMinute int `json:"perMinute"`
	PerHour   int `json:"perHour"`
	// PerOperation enables the separate limits for kinds of calls; see OperationLimits.
	PerOperation bool `json:"perOperation"`
	// Unreachable closes every connection without an answer.
	Unreachable bool `json:"unreachable"`
}

// Duration is a time.Duration that reads and writes as text, such as "40ms".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Call is one request that the cloud saw.
type Call struct {
	Number    int       `json:"number"`
	At        time.Time `json:"at"`
	Method    string    `json:"method"`
	URL       string    `json:"url"`
	Operation string    `json:"operation"`
	Write     bool      `json:"write"`
	Status    int       `json:"status"`
	Fault     string    `json:"fault,omitempty"`
	Body      string    `json:"body,omitempty"`
}

// Calls are counts since the last reset, and the latest calls in full.
type Calls struct {
	Total       int            `json:"total"`
	Reads       int            `json:"reads"`
	Writes      int            `json:"writes"`
	ByOperation map[string]int `json:"byOperation"`
	Latest      []Call         `json:"latest"`
	// Refused counts requests that the real API would refuse as malformed, with the reason of each.
	Refused []string `json:"refused,omitempty"`
}

// Server is a simulated cloud with the common parts around it.
type Server struct {
	cloud Cloud

	mu       sync.Mutex
	settings Settings
	number   int
	calls    Calls
	times    map[string][]time.Time
	faults   []*Fault
	nextID   int
	inspect  Inspection
	disorder Disorder
	ordered  func(operation, path string) bool
}

// New puts the common parts around a cloud.
func New(cloud Cloud) *Server {
	s := &Server{cloud: cloud}
	s.ResetCalls()
	return s
}

// Start serves the simulated cloud on a loopback port until the test ends.
func (s *Server) Start(t interface{ Cleanup(func()) }) string {
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// Configure changes the settings.
func (s *Server) Configure(change func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.settings)
}

// Calls returns what the cloud saw since the last reset.
func (s *Server) Calls() Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls
	c.ByOperation = maps.Clone(c.ByOperation)
	c.Latest = slices.Clone(c.Latest)
	c.Refused = slices.Clone(c.Refused)
	return c
}

// Distortions names the ways in which the cloud's answers can be falsified, usable as kinds of faults.
func (s *Server) Distortions() map[string]Distortion { return s.cloud.Distort() }

// ResetCalls sets the counts to zero.
func (s *Server) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = Calls{ByOperation: map[string]int{}}
}

// Summary returns the instances and the objects for Services.
func (s *Server) Summary() Summary {
	return Summary{Instances: s.cloud.Instances(), Holdings: s.cloud.Holdings()}
}

// State returns the cloud's state, as JSON of one moment.
func (s *Server) State() json.RawMessage { return s.cloud.State() }

// Seed adds instances.
func (s *Server) Seed(n int) { s.cloud.Seed(n) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, AdminPrefix) {
		s.admin(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	call, settings, fault := s.begin(r, body)
	if settings.Unreachable {
		s.end(call, 0, "unreachable")
		hangUp(w)
		return
	}
	if !pause(r.Context(), time.Duration(settings.Latency)) {
		s.end(call, 0, "client gave up")
		return
	}
	if wait, limited := s.overLimit(r, w.Header()); limited {
		if wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		}
		s.end(call, http.StatusTooManyRequests, "rate limit")
		writeError(s.cloud, w, r, http.StatusTooManyRequests, "API Rate limit exceeded.")
		return
	}
	if fault != nil {
		s.end(call, 0, fault.Kind) // it may hang up, which ends this function
		if fault.before(s.cloud, w, r) {
			s.end(call, fault.Status, fault.Kind)
			return
		}
	}
	answer := s.serve(r, body)
	if answer.Code >= 400 && answer.Code < 500 && !s.inOrder(answer) {
		s.recordRefusal(call, answer.Body.String())
	}
	kind := ""
	if fault != nil {
		kind = fault.Kind
	}
	s.end(call, answer.Code, kind)
	if fault != nil && fault.after(s.cloud, w, r, answer) {
		return
	}
	send(w, answer.Header(), answer.Code, answer.Body.Bytes())
}

// Refusals is implemented by clouds whose statuses do not show which refused requests were well-formed.
type Refusals interface {
	// InOrder reports whether a refusal is about the state of objects, not about the request.
	InOrder(status int, body []byte) bool
}

func (s *Server) inOrder(answer *httptest.ResponseRecorder) bool {
	if own, ok := s.cloud.(Refusals); ok {
		return own.InOrder(answer.Code, answer.Body.Bytes())
	}
	return slices.Contains(wellFormed, answer.Code)
}

// wellFormed are statuses for well-formed requests that came too late, or with an expired credential.
var wellFormed = []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusPreconditionFailed}

func send(w http.ResponseWriter, header http.Header, status int, body []byte) {
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (s *Server) begin(r *http.Request, body []byte) (int, Settings, *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	operation, write := s.cloud.Operation(r)
	s.number++
	s.calls.Total++
	if write {
		s.calls.Writes++
	} else {
		s.calls.Reads++
	}
	s.calls.ByOperation[operation]++
	s.calls.Latest = append(s.calls.Latest, Call{
		Number: s.number, At: time.Now(), Method: r.Method, URL: r.URL.String(), Operation: operation, Write: write, Body: string(body),
	})
	if extra := len(s.calls.Latest) - latestCalls; extra > 0 {
		s.calls.Latest = slices.Delete(s.calls.Latest, 0, extra)
	}
	return s.number, s.settings, s.strikeLocked(r, operation, write)
}

func (s *Server) end(number, status int, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.calls.Latest) - 1; i >= 0; i-- {
		if c := &s.calls.Latest[i]; c.Number == number {
			c.Status, c.Fault = status, fault
			return
		}
	}
}

func (s *Server) recordRefusal(number int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Refused = append(s.calls.Refused, fmt.Sprintf("call %d: %s", number, strings.TrimSpace(reason)))
}

// overLimit counts the call against sliding windows of a minute and an hour. Over the limit of a minute it returns the time to wait; over
// that of an hour it does not, as real clouds.
func (s *Server) overLimit(r *http.Request, h http.Header) (wait time.Duration, limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, perMinute, perHour := "", s.settings.PerMinute, s.settings.PerHour
	if own, ok := s.cloud.(OperationLimits); ok && s.settings.PerOperation {
		group, perMinute = own.PerMinute(r)
	}
	if perMinute == 0 && perHour == 0 {
		return 0, false
	}
	now := time.Now()
	if s.times == nil {
		s.times = map[string][]time.Time{}
	}
	times := slices.DeleteFunc(s.times[group], func(at time.Time) bool { return now.Sub(at) > time.Hour })
	s.times[group] = times
	inMinute, oldest := 0, now
	for _, at := range slices.Backward(times) {
		if now.Sub(at) > time.Minute {
			break
		}
		inMinute, oldest = inMinute+1, at
	}
	limit, used, reset := perMinute, inMinute, oldest.Add(time.Minute)
	if perHour > 0 {
		limit, used, reset = perHour, len(times), now
		if len(times) > 0 {
			reset = times[0].Add(time.Hour)
		}
	}
	hourly := perHour > 0 && len(times) >= perHour
	burst := perMinute > 0 && inMinute >= perMinute
	if hourly || burst {
		s.cloud.RateHeaders(h, limit, 0, reset)
		if burst {
			wait = oldest.Add(time.Minute).Sub(now)
		}
		return wait, true
	}
	s.times[group] = append(times, now)
	s.cloud.RateHeaders(h, limit, limit-used-1, reset)
	return 0, false
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// adminRoutes are the admin paths; they are described at the top of the package.
var adminRoutes = map[string]func(*Server, http.ResponseWriter, *http.Request){
	"GET state":  func(s *Server, w http.ResponseWriter, _ *http.Request) { reply(w, s.cloud.State()) },
	"GET calls":  func(s *Server, w http.ResponseWriter, _ *http.Request) { reply(w, s.Calls()) },
	"GET faults": func(s *Server, w http.ResponseWriter, _ *http.Request) { reply(w, s.Faults()) },
	"GET env": func(s *Server, w http.ResponseWriter, r *http.Request) {
		reply(w, s.cloud.Environment("http://"+r.Host))
	},
	"GET cloud-config": func(s *Server, w http.ResponseWriter, r *http.Request) {
		if c, ok := s.cloud.(CloudConfigurer); ok {
			_, _ = io.WriteString(w, c.CloudConfig("http://"+r.Host)) // a client that went away is its own affair
		}
	},
	"GET summary": func(s *Server, w http.ResponseWriter, _ *http.Request) {
		reply(w, s.Summary())
	},
	"DELETE calls": func(s *Server, w http.ResponseWriter, _ *http.Request) {
		s.ResetCalls()
		w.WriteHeader(http.StatusNoContent)
	},
	"POST faults": func(s *Server, w http.ResponseWriter, r *http.Request) {
		var f Fault
		if !decode(w, r, &f) {
			return
		}
		id, err := s.AddFault(f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, map[string]int{"id": id})
	},
	"DELETE faults": func(s *Server, w http.ResponseWriter, r *http.Request) {
		if id, err := strconv.Atoi(r.URL.Query().Get("id")); err == nil {
			s.RemoveFault(id)
		} else {
			s.ClearFaults()
		}
		w.WriteHeader(http.StatusNoContent)
	},
	"POST config": func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		changed := s.settings
		s.mu.Unlock()
		if decode(w, r, &changed) {
			s.Configure(func(c *Settings) { *c = changed })
			reply(w, changed)
		}
	},
	"POST seed": func(s *Server, w http.ResponseWriter, r *http.Request) {
		var seed struct {
			Instances int `json:"instances"`
		}
		if decode(w, r, &seed) {
			s.cloud.Seed(seed.Instances)
			w.WriteHeader(http.StatusNoContent)
		}
	},
	"POST remove": func(s *Server, w http.ResponseWriter, r *http.Request) {
		var remove struct {
			Name string `json:"name"`
		}
		if !decode(w, r, &remove) {
			return
		}
		if err := s.cloud.RemoveInstance(remove.Name); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	},
}

func (s *Server) admin(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, AdminPrefix)
	if action, ok := strings.CutPrefix(name, "do/"); ok && r.Method == http.MethodPost {
		s.adminDo(w, r, action)
		return
	}
	if handle, ok := adminRoutes[r.Method+" "+name]; ok {
		handle(s, w, r)
		return
	}
	http.NotFound(w, r)
}

func (s *Server) adminDo(w http.ResponseWriter, r *http.Request, name string) {
	action, ok := s.cloud.Actions()[name]
	if !ok {
		http.Error(w, "unknown action; there are "+strings.Join(slices.Sorted(maps.Keys(s.cloud.Actions())), ", "), http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = action(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // client disconnected
}
