package simkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of faults that every cloud knows. A cloud adds its own by Cloud.Distort.
const (
	// FaultStatus answers with Fault.Status before the call takes effect.
	FaultStatus = "status"
	// FaultStatusAfter answers with Fault.Status after the call took effect.
	FaultStatusAfter = "status-after"
	// FaultHang never answers; the call does not take effect.
	FaultHang = "hang"
	// FaultReset closes the connection before the call takes effect.
	FaultReset = "reset"
	// FaultLost closes the connection after the call took effect.
	FaultLost = "lost"
	// FaultLate answers with Fault.Status, or 504, and the call takes effect Fault.Late later, as behind a gateway that gave up.
	FaultLate = "late"
	// FaultCut sends half of the answer and closes the connection.
	FaultCut = "cut"
	// FaultHTML answers with Fault.Status, or success, and an HTML page, as a proxy does.
	FaultHTML = "html"
	// FaultNull puts a null in the place of the first object of a listing.
	FaultNull = "null"
	// FaultRedirect answers with Fault.Status, or 307, and sends the client to another host; the call does not take effect.
	FaultRedirect = "redirect"
	// FaultEndless answers every page of a listing with the first one, and says that another one follows; see Pager.
	FaultEndless = "endless"
	// FaultVanished answers a call that names Fault.Names as if that ID did not exist: the cloud gets another ID of the same form, which no
	// object has. Calls that do not name it are not affected.
	FaultVanished = "vanished"
	// FaultUnlisted removes objects that name Fault.Names from lists, as a listing that lags does; calls that name it themselves are not
	// affected.
	FaultUnlisted = "unlisted"
)

// common are the kinds above.
var common = []string{
	FaultStatus, FaultStatusAfter, FaultHang, FaultReset, FaultLost, FaultLate, FaultCut, FaultHTML, FaultNull,
	FaultRedirect, FaultEndless, FaultVanished, FaultUnlisted,
}

// usualStatus is the default of Fault.Status where it is not 500.
var usualStatus = map[string]int{
	FaultHTML: http.StatusOK, FaultRedirect: http.StatusTemporaryRedirect, FaultLate: http.StatusGatewayTimeout,
}

// ElsewhereHost is where FaultRedirect sends clients.
const ElsewhereHost = "elsewhere.example"

// Pager is implemented by clouds whose listings have pages, for FaultEndless.
type Pager interface {
	// FirstPage turns a request for any page of a listing into one for the first, and notes the requested page by SetPage; it returns false
	// if r is not for a page.
	FirstPage(r *http.Request) bool
	// Followed adds to a page the reference to a following one.
	Followed(r *http.Request, body []byte) []byte
}

const pageHeader = "X-Simulated-Page"

// SetPage notes the requested page, counted from 1; an unreadable number means the first.
func SetPage(r *http.Request, number string) {
	if n, err := strconv.Atoi(number); err != nil || n < 1 {
		number = "1"
	}
	r.Header.Set(pageHeader, number)
}

// Page returns the page that SetPage noted.
func Page(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get(pageHeader)) // SetPage wrote it
	return n
}

// Fault makes calls fail. The zero values of the conditions match every call, for ever.
type Fault struct {
	ID int `json:"id,omitempty"`
	// Kind is one of the constants above or a distortion of the cloud.
	Kind string `json:"kind"`
	// Status of FaultStatus and FaultStatusAfter; 0 means 500.
	Status int `json:"status,omitempty"`
	// Late is how long after its answer a call with FaultLate takes effect.
	Late Duration `json:"late,omitempty"`
	// RetryAfter is sent with the status where it is set, in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Operation restricts the fault to operations that contain this text, such as "GET /v2/droplets"; a $ at its end stands
	// for the end of the operation.
	Operation string `json:"operation,omitempty"`
	// Names restricts the fault to calls whose address or body names this ID, as a whole word. FaultVanished and FaultUnlisted need it;
	// commas separate several of FaultUnlisted.
	Names string `json:"names,omitempty"`
	// Writes restricts the fault to calls that change something.
	Writes bool `json:"writes,omitempty"`
	// Reads restricts the fault to calls that change nothing.
	Reads bool `json:"reads,omitempty"`
	// From is the first matching call that fails, counted from 1; 0 means 1.
	From int `json:"from,omitempty"`
	// Count is how many matching calls fail; 0 means all.
	Count int `json:"count,omitempty"`
	// For ends the fault after this time; 0 means never.
	For Duration `json:"for,omitempty"`

	seen  int
	until time.Time
}

// AddFault puts a fault in force and returns its ID.
func (s *Server) AddFault(f Fault) (int, error) {
	known := append(slices.Sorted(maps.Keys(s.cloud.Distort())), common...)
	if !slices.Contains(known, f.Kind) {
		return 0, fmt.Errorf("unknown kind of fault %q; there are %s", f.Kind, strings.Join(known, ", "))
	}
	if (f.Kind == FaultVanished || f.Kind == FaultUnlisted) && f.Names == "" {
		return 0, fmt.Errorf("a fault of the kind %s needs the ID that is to be missing", f.Kind)
	}
	if f.Kind == FaultVanished && strings.Contains(f.Names, ",") {
		return 0, fmt.Errorf("a fault of the kind %s is about one ID", f.Kind)
	}
	if f.Status == 0 {
		f.Status = cmp.Or(usualStatus[f.Kind], http.StatusInternalServerError)
	}
	f.From = max(f.From, 1)
	if f.For > 0 {
		f.until = time.Now().Add(time.Duration(f.For))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	f.ID = s.nextID
	s.faults = append(s.faults, &f)
	return f.ID, nil
}

// Faults returns the faults in force.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Fault, 0, len(s.faults))
	for _, f := range s.faults {
		list = append(list, *f)
	}
	return list
}

// RemoveFault ends one fault.
func (s *Server) RemoveFault(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return f.ID == id })
}

// ClearFaults ends all faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// strikeLocked returns a copy of the first fault that hits the call.
func (s *Server) strikeLocked(r *http.Request, operation string, write bool) *Fault {
	for _, f := range s.faults {
		switch {
		case !f.until.IsZero() && time.Now().After(f.until),
			!strings.Contains(operation+"$", f.Operation),
			f.Writes && !write, f.Reads && write:
			continue
		}
		if (f.Kind == FaultEndless && !pageable(s.cloud, r)) || (f.Names != "" && namesID(r, f.Names) == (f.Kind == FaultUnlisted)) {
			continue
		}
		if distort, ok := s.cloud.Distort()[f.Kind]; ok {
			if _, applies := distort(r, nil); !applies {
				continue
			}
		}
		f.seen++
		if f.seen >= f.From && (f.Count == 0 || f.seen < f.From+f.Count) {
			hit := *f
			return &hit
		}
	}
	return nil
}

// before acts before the call takes effect; it reports whether the call ends here.
func (f *Fault) before(c Cloud, w http.ResponseWriter, r *http.Request) bool {
	switch f.Kind {
	case FaultStatus:
		f.writeStatus(c, w, r)
	case FaultHang:
		<-r.Context().Done()
	case FaultReset:
		hangUp(w)
	case FaultLate:
		late := r.Clone(context.WithoutCancel(r.Context()))
		if r.Body != nil { // which a clone shares
			body, _ := io.ReadAll(r.Body)
			late.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		}
		time.AfterFunc(time.Duration(f.Late), func() { c.ServeHTTP(httptest.NewRecorder(), late) })
		f.writeStatus(c, w, r)
	case FaultHTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte("<!doctype html><title>Please sign in</title>\n"))
	case FaultRedirect:
		w.Header().Set("Location", "http://"+ElsewhereHost+r.URL.RequestURI())
		w.WriteHeader(f.Status)
	case FaultEndless:
		c.(Pager).FirstPage(r) //nolint:forcetypeassert // strikeLocked has asked
		return false
	case FaultVanished:
		replaceID(r, f.Names, unusedID(f.Names))
		return false
	default:
		return false
	}
	return true
}

// after acts on the answer of a call that took effect; it reports whether it answered.
func (f *Fault) after(c Cloud, w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) bool {
	switch f.Kind {
	case FaultStatusAfter:
		f.writeStatus(c, w, r)
	case FaultLost:
		hangUp(w)
	case FaultCut:
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()+1))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		_ = http.NewResponseController(w).Flush() // the half must leave before the connection closes
		hangUp(w)
	case FaultVanished:
		send(w, answer.Header(), answer.Code, wordPattern(unusedID(f.Names)).ReplaceAll(answer.Body.Bytes(), []byte("${1}"+f.Names+"${2}")))
	case FaultUnlisted:
		send(w, answer.Header(), answer.Code, removeElements(answer.Body.Bytes(), wordPattern(f.Names)))
	case FaultNull, FaultEndless:
		if answer.Code != http.StatusOK {
			return false
		}
		body := answer.Body.Bytes()
		if f.Kind == FaultNull {
			body = withNull(body)
		} else {
			body = c.(Pager).Followed(r, body) //nolint:forcetypeassert // strikeLocked has asked
		}
		send(w, answer.Header(), answer.Code, body)
	default:
		distort, ok := c.Distort()[f.Kind]
		if !ok || answer.Code != http.StatusOK {
			return false
		}
		body, _ := distort(r, answer.Body.Bytes())
		send(w, answer.Header(), answer.Code, body)
	}
	return true
}

// pageable reports whether a request is for a page of a listing, without changing it.
func pageable(c Cloud, r *http.Request) bool {
	pager, ok := c.(Pager)
	if !ok {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	probe := r.Clone(r.Context())
	probe.Body = io.NopCloser(bytes.NewReader(body))
	return pager.FirstPage(probe)
}

// firstItem is the beginning of an element of a list in XML.
var firstItem = regexp.MustCompile(`<(item|member)>`)

// withNull puts a null in the place of the first object of the first list of an answer; in XML, an empty element.
func withNull(body []byte) []byte {
	if at := firstItem.FindSubmatchIndex(body); at != nil && bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		name := string(body[at[2]:at[3]])
		if inner := bytes.Index(body, []byte("<instancesSet><item>")); inner >= 0 {
			name, at[0] = "item", inner+len("<instancesSet>")
		}
		depth, end := 0, at[0]
		for end < len(body) {
			switch rest := body[end:]; {
			case bytes.HasPrefix(rest, []byte("<"+name+">")):
				depth++
			case bytes.HasPrefix(rest, []byte("</"+name+">")):
				depth--
			}
			end++
			if depth == 0 {
				end += len("</"+name+">") - 1
				break
			}
		}
		return slices.Concat(body[:at[0]], []byte("<"+name+"/>"), body[end:])
	}
	var answer any
	if json.Unmarshal(body, &answer) != nil || !putNull(answer) {
		return body
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return text
}

// putNull changes the first list of objects that it finds, in the order of the names.
func putNull(v any) bool {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return false
		}
		if _, object := v[0].(map[string]any); object {
			v[0] = nil
			return true
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if putNull(v[name]) {
				return true
			}
		}
	}
	return false
}

func (f *Fault) writeStatus(c Cloud, w http.ResponseWriter, r *http.Request) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	writeError(c, w, r, f.Status, "simulated fault")
}
