package simkit

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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
	// FaultCut sends half of the answer and closes the connection.
	FaultCut = "cut"
	// FaultHTML answers with Fault.Status, or success, and a page that is no API answer, as a proxy in between does.
	FaultHTML = "html"
)

// Fault makes calls fail. The zero values of the conditions match every call, for ever.
type Fault struct {
	ID int `json:"id,omitempty"`
	// Kind is one of the constants above or a distortion of the cloud.
	Kind string `json:"kind"`
	// Status of FaultStatus and FaultStatusAfter; 0 means 500.
	Status int `json:"status,omitempty"`
	// RetryAfter is sent with the status where it is set, in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Operation restricts the fault to operations that contain this text, such as "GET /v2/droplets"; a $ at its end stands
	// for the end of the operation.
	Operation string `json:"operation,omitempty"`
	// Writes restricts the fault to calls that change something.
	Writes bool `json:"writes,omitempty"`
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
	known := append(slices.Sorted(maps.Keys(s.cloud.Distort())), FaultStatus, FaultStatusAfter, FaultHang, FaultReset, FaultLost, FaultCut, FaultHTML)
	if !slices.Contains(known, f.Kind) {
		return 0, fmt.Errorf("unknown kind of fault %q; there are %s", f.Kind, strings.Join(known, ", "))
	}
	if f.Status == 0 {
		f.Status = http.StatusInternalServerError
		if f.Kind == FaultHTML {
			f.Status = http.StatusOK
		}
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
			f.Writes && !write:
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
	case FaultHTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte("<!doctype html><title>Please sign in</title>\n"))
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

func (f *Fault) writeStatus(c Cloud, w http.ResponseWriter, r *http.Request) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	writeError(c, w, r, f.Status, "simulated fault")
}
