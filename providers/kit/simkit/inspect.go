package simkit

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Inspection is called right before the cloud carries out a request, and may make other calls with ask. A function that it returns is
// called afterwards.
type Inspection func(r *http.Request, body []byte, ask func(*http.Request) *httptest.ResponseRecorder) (after func())

type askedKey struct{}

// IsAsked reports whether an inspection makes a request. It may have another body than the one that was signed.
func IsAsked(r *http.Request) bool { return r.Context().Value(askedKey{}) != nil }

// Inspect sets a function that inspects each call; nil ends it. An inspection's own calls are not counted.
func (s *Server) Inspect(see Inspection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inspect = see
}

// Operation returns the name of a request, and whether it changes anything.
func (s *Server) Operation(r *http.Request) (name string, write bool) { return s.cloud.Operation(r) }

// Disarrange shuffles the lists in all JSON responses, differently each time, except those whose order the cloud promises according to
// ordered.
func (s *Server) Disarrange(seed uint64, ordered func(operation, path string) bool) {
	s.disorder.Seed(seed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ordered = ordered
}

// serve makes the cloud carry out a call.
func (s *Server) serve(r *http.Request, body []byte) *httptest.ResponseRecorder {
	s.mu.Lock()
	see := s.inspect
	s.mu.Unlock()
	if see != nil {
		ask := func(r *http.Request) *httptest.ResponseRecorder {
			return s.carryOut(r.WithContext(context.WithValue(r.Context(), askedKey{}, true)))
		}
		if after := see(r, body, ask); after != nil {
			defer after()
		}
	}
	return s.carryOut(r)
}

func (s *Server) carryOut(r *http.Request) *httptest.ResponseRecorder {
	s.mu.Lock()
	ordered := s.ordered
	s.mu.Unlock()
	operation, _ := s.cloud.Operation(r)
	answer := httptest.NewRecorder()
	s.cloud.ServeHTTP(answer, r)
	if ordered == nil || !strings.HasPrefix(answer.Header().Get("Content-Type"), "application/json") {
		return answer
	}
	if !bytes.ContainsRune(answer.Body.Bytes(), '[') { // most answers hold no list
		return answer
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(answer.Body.Bytes()))
	decoder.UseNumber() // an ID may have more digits than a float
	if decoder.Decode(&document) != nil {
		return answer
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(s.disarranged(document, "", func(path string) bool { return ordered(operation, path) })) == nil {
		answer.Body = &text
		answer.Header().Del("Content-Length")
	}
	return answer
}

// disarranged returns decoded JSON with its lists in another order. Paths are names with dots between them, and [] for an element.
func (s *Server) disarranged(v any, path string, ordered func(path string) bool) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			v[name] = s.disarranged(value, strings.TrimPrefix(path+"."+name, "."), ordered)
		}
	case []any:
		for i := range v {
			v[i] = s.disarranged(v[i], path+"[]", ordered)
		}
		if !ordered(path) {
			return Shuffled(&s.disorder, v)
		}
	}
	return v
}
