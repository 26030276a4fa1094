package simkit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Inspection sees a request right before the cloud carries it out, and may ask the cloud something else before and after that: what
// it returns, if anything, runs when the request was carried out.
type Inspection func(r *http.Request, body []byte, ask func(*http.Request) *httptest.ResponseRecorder) (after func())

// Inspect has every call inspected from now on; nil ends it. What an inspection asks is not counted.
func (s *Server) Inspect(see Inspection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inspect = see
}

// Operation names a request, and says whether it changes anything.
func (s *Server) Operation(r *http.Request) (name string, write bool) { return s.cloud.Operation(r) }

// Disarrange puts the lists in all answers into an order that says nothing, another one each time; those of which ordered knows that
// the cloud promises their order stay. Answers that are not JSON are the cloud's own affair.
func (s *Server) Disarrange(seed uint64, ordered func(operation, path string) bool) {
	s.disorder.Seed(seed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ordered = ordered
}

// serve has the cloud carry out a call.
func (s *Server) serve(r *http.Request, body []byte) *httptest.ResponseRecorder {
	s.mu.Lock()
	see := s.inspect
	s.mu.Unlock()
	if see != nil {
		if after := see(r, body, s.carryOut); after != nil {
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

// disarranged is decoded JSON with its lists in another order. Paths are names with dots between them, and [] for an element.
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
