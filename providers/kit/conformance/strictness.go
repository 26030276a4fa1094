package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// A simulated cloud that is kinder than the real one hides faults. Kind is one that keeps an order, shows writes at once, or takes
// any value; this part of the suite is about the simulators alone.

// Strictness is where a cloud itself is kind, each with the reason: what its API says, or why it cannot be tried.
type Strictness struct {
	// Ordered are lists in answers whose order the cloud promises, as "OPERATION path" or "path".
	Ordered map[string]string
	// Free are fields of requests that take any value, as "OPERATION path" or "path"; a * in a path stands for anything.
	Free map[string]string
	// Unlimited are texts and lists of requests that may be as long as anybody likes, in the same words. What a project's quota limits is
	// one of them: the cloud has no number for it.
	Unlimited map[string]string
	// LimitsElsewhere are limits of the cloud (see limits.Limit.String) that no life of a Service meets, because they count what is there
	// or concern something else, each with the test that tries it.
	LimitsElsewhere map[string]string
	// Immediate is why reads show at once what was written, on clouds without Fixture.Lag.
	Immediate string
}

// exemptions are a table of what the suite does not demand, and which of its entries were needed.
type exemptions struct {
	mu     sync.Mutex
	table  map[string]string
	needed map[string]bool
}

func newExemptions(table map[string]string) *exemptions {
	return &exemptions{table: table, needed: map[string]bool{}}
}

// covers reports whether the table names a field, and notes the entries that do.
func (e *exemptions) covers(operation, path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	covered := false
	for key, reason := range e.table {
		begin, end, wild := strings.Cut(key, "*")
		for _, name := range []string{path, operation + " " + path} {
			if reason != "" && (name == key || wild && strings.HasPrefix(name, begin) && strings.HasSuffix(name, end)) {
				covered, e.needed[key] = true, true
			}
		}
	}
	return covered
}

// idle returns the entries that nothing needed.
func (e *exemptions) idle() (keys []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range sortedKeys(e.table) {
		if !e.needed[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

func runStrictness(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	free := newExemptions(readFixture(t, newFixture, func(f *Fixture) map[string]string { return f.Strictness.Free }))
	var parts atomic.Int32
	names := readFixture(t, newFixture, serviceNames)
	for _, name := range names {
		virtual(t, "no order is kept: "+name, func(t *testing.T) { runOrders(t, newFixture(t), name) })
		virtual(t, "values are checked: "+name, func(t *testing.T) { runValues(t, newFixture(t), name, free); parts.Add(1) })
	}
	t.Cleanup(func() {
		if int(parts.Load()) == len(names) { // all of them were chosen
			assert.Empty(t, free.idle(), "nothing needs these entries of Strictness.Free")
		}
	})
	if readFixture(t, newFixture, func(f *Fixture) bool { return len(f.Provider.Limits) > 0 }) {
		t.Run("limits", func(t *testing.T) { t.Parallel(); runLimits(t, newFixture) })
	}
	virtual(t, "writes do not show at once", func(t *testing.T) {
		f := newFixture(t)
		if f.Lag == nil {
			require.NotEmpty(t, f.Strictness.Immediate, "the fixture says why reads show at once what was written")
			return
		}
		require.Empty(t, f.Strictness.Immediate)
	})
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Lag != nil }) {
		t.Run("lag", func(t *testing.T) {
			t.Parallel()
			at := func(lag time.Duration) (shown []string) {
				synctest.Test(t, func(t *testing.T) { shown = runShown(t, newFixture(t), lag) })
				return shown
			}
			once := at(0)
			require.NotEmpty(t, once)
			assert.NotSubset(t, at(slices.Max(readFixture(t, newFixture, (*Fixture).lags))), once, "some of these reads are late")
		})
	}
}

// runShown returns the reads that show a write of a creation at once: what they were answered with before never comes again.
func runShown(t *testing.T, f *Fixture, lag time.Duration) []string {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	other := otherService()
	w.createService(ctx, other)
	reads, shown := map[string]inspectedCall{}, map[string]bool{}
	w.inspect(func(operation string, write bool, c inspectedCall) func() {
		if !write {
			reads[operation] = c
		}
		return nil
	})
	w.ensure(ctx, other, nil)
	w.restart()
	w.ensure(ctx, other, nil)
	if lag > 0 {
		w.Lag(lag)
	}
	time.Sleep(2 * lag)
	w.inspect(func(_ string, write bool, _ inspectedCall) func() {
		if !write {
			return nil
		}
		before := map[string]map[string]bool{}
		for operation, read := range reads {
			before[operation] = read.answers(t)
		}
		return func() {
			for operation, read := range reads {
				again := read.answers(t)
				maps.DeleteFunc(again, func(answer string, _ bool) bool { return !before[operation][answer] })
				shown[operation] = shown[operation] || len(again) == 0
			}
		}
	})
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	w.Sim.Inspect(nil)
	maps.DeleteFunc(shown, func(_ string, at bool) bool { return !at })
	return slices.Sorted(maps.Keys(shown))
}

// otherService is a plain Service that is there besides the one that is tried.
func otherService() *v1.Service {
	s := featureService(nil)
	s.Name, s.UID = "other", "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return s
}

// answerID matches the unique ID in each of AWS's responses.
var answerID = regexp.MustCompile(`(?i)"RequestId":"[^"]*"`)

// answers returns the set of responses to a call over time, whatever the order of their parts.
func (i inspectedCall) answers(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for range readings {
		answer := i.answerTo(i.body)
		text, err := json.Marshal(InOrder(parseAnswer(answer.Body.Bytes())))
		require.NoError(t, err)
		all[fmt.Sprint(answer.Code, answerID.ReplaceAllString(string(text), ""))] = true
	}
	return all
}

// playLife takes a Service through its life, with another one there all the time, while every call to the cloud is inspected.
func (w *world) playLife(name string, see func(operation string, write bool, c inspectedCall) (after func())) {
	ctx, c := w.t.Context(), w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	other := otherService()
	w.inspect(see)
	for _, s := range []Case{{Service: other}, c} {
		w.createService(ctx, s.Service)
		w.ensure(ctx, s.Service, nil)
	}
	w.ensure(ctx, c.Service, nil)
	w.changeService(ctx, c.Service, c.Change)
	w.ensure(ctx, c.Service, nil)
	w.addNode(ctx, "worker-3", nil)
	w.update(ctx, c.Service, func() {})
	w.remove(ctx, c.Service, nil)
	w.remove(ctx, other, nil)
	w.Sim.Inspect(nil)
}

// inspect has calls to the cloud inspected, one at a time.
func (w *world) inspect(see func(operation string, write bool, c inspectedCall) (after func())) {
	turn := make(chan struct{}, 1) // a mutex would stop the clock
	w.Sim.Inspect(func(r *http.Request, body []byte, ask func(*http.Request) *httptest.ResponseRecorder) func() {
		turn <- struct{}{}
		defer func() { <-turn }()
		operation, write := w.Sim.Operation(r)
		return see(operation, write, inspectedCall{r, body, ask})
	})
}

// inspectedCall is a call, and a way to ask something else in its place.
type inspectedCall struct {
	request *http.Request
	body    []byte
	ask     func(*http.Request) *httptest.ResponseRecorder
}

// WrongHeader marks requests that are meant to be refused.
const WrongHeader = "X-Simulated-Wrong"

// requestID is how Compute Engine knows a request that comes again.
const requestID = "requestId"

// answerTo returns the answer to the same call with another body.
func (i inspectedCall) answerTo(body []byte) *httptest.ResponseRecorder {
	r := i.request.Clone(context.WithoutCancel(i.request.Context()))
	query := r.URL.Query()
	if query.Has(requestID) { // a cloud that knows it looks at nothing else
		query.Del(requestID)
		r.URL.RawQuery = query.Encode()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return i.ask(r)
}

// isRefusal reports whether the cloud refuses what a request says. One that it does not authenticate says nothing.
func isRefusal(answer *httptest.ResponseRecorder) bool {
	return answer.Code >= 400 && answer.Code < 500 && answer.Code != http.StatusUnauthorized
}

// readings is how often a list is read until its order counts as kept.
const readings = 24

// runOrders: each list of at least two elements that is read comes in more than one order, where the cloud promises none.
func runOrders(t *testing.T, f *Fixture, name string) {
	t.Helper()
	w := newWorld(t, f)
	orders := map[string]map[string]map[string]bool{} // by list and elements
	w.playLife(name, func(operation string, write bool, c inspectedCall) func() {
		if write {
			return nil
		}
		for range readings {
			answer := c.answerTo(c.body)
			if answer.Code != http.StatusOK {
				return nil
			}
			eachList(parseAnswer(answer.Body.Bytes()), "", func(path string, elements []string) {
				list := operation + " " + path
				if orders[list] == nil {
					orders[list] = map[string]map[string]bool{}
				}
				same := fmt.Sprint(slices.Sorted(slices.Values(elements)))
				if orders[list][same] == nil {
					orders[list][same] = map[string]bool{}
				}
				orders[list][same][fmt.Sprint(elements)] = true
			})
		}
		return nil
	})
	var kept []string
	for list, sets := range orders {
		operation, path, _ := cutLast(list)
		several := slices.ContainsFunc(slices.Collect(maps.Values(sets)), func(orders map[string]bool) bool { return len(orders) > 1 })
		if !several && !newExemptions(f.Strictness.Ordered).covers(operation, path) {
			kept = append(kept, list)
		}
	}
	slices.Sort(kept)
	assert.Empty(t, strings.Join(kept, "\n"), "these lists come in the same order at each reading, which no cloud promises without saying so")
}

// cutLast parts a text at its last space.
func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndex(text, " ")
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], true
}

// parseAnswer returns an answer as decoded JSON; nil if it is neither JSON nor XML. XML elements of the same name within one are a list.
func parseAnswer(body []byte) any {
	var v any
	if json.Unmarshal(body, &v) == nil {
		return v
	}
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil
		}
		if _, ok := token.(xml.StartElement); ok {
			v, _ := parseElement(decoder)
			return v
		}
	}
}

func parseElement(decoder *xml.Decoder) (any, error) {
	kids, text := map[string][]any{}, ""
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.CharData:
			text += string(token)
		case xml.StartElement:
			kid, err := parseElement(decoder)
			if err != nil {
				return nil, err
			}
			kids[token.Name.Local] = append(kids[token.Name.Local], kid)
		case xml.EndElement:
			if len(kids) == 0 {
				return text, nil
			}
			object := map[string]any{}
			for name, list := range kids {
				object[name] = any(list)
				if len(list) == 1 {
					object[name] = list[0]
				}
			}
			return object, nil
		}
	}
}

// eachList calls see for each list of at least two different elements, which are given as texts that say nothing of orders within them.
func eachList(v any, path string, see func(path string, elements []string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			eachList(value, strings.TrimPrefix(path+"."+name, "."), see)
		}
	case []any:
		var elements []string
		for _, element := range v {
			text, err := json.Marshal(InOrder(deepCopy(element)))
			if err != nil {
				return
			}
			elements = append(elements, string(text))
			eachList(element, path+"[]", see)
		}
		if different := slices.Compact(slices.Sorted(slices.Values(elements))); len(different) == len(elements) && len(elements) > 1 {
			see(path, elements)
		}
	}
}

// deepCopy copies decoded JSON.
func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, value := range v {
			c[name] = deepCopy(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = deepCopy(value)
		}
		return c
	}
	return v
}

// nonsense is in the place of each text, negative of each number, and unknown is a field that no API has.
const (
	nonsense = "~ no such value ~"
	negative = -7
	unknown  = "noSuchField"
)

// runValues: of each write, each value is replaced by one that cannot be legal, or is of another kind, and a field is added that
// no API knows. The cloud refuses all of them.
func runValues(t *testing.T, f *Fixture, name string, free *exemptions) {
	t.Helper()
	w := newWorld(t, f)
	taken := map[string]bool{}
	defer func() { // also where the life does not end, for what was taken
		assert.Empty(t, strings.Join(slices.Sorted(maps.Keys(taken)), "\n"), "the cloud refuses these, says its API; what takes any value stands in Strictness.Free")
	}()
	w.playLife(name, func(operation string, write bool, c inspectedCall) func() {
		wrong := func(path, what string, body []byte) {
			if free.covers(operation, path) {
				return
			}
			c.request.Header.Set(WrongHeader, what)
			defer c.request.Header.Del(WrongHeader)
			key := fmt.Sprintf("%s %s: %s", operation, path, what)
			if taken[key] { // once is enough, or a cloud that works on what it took is never done
				return
			}
			if !isRefusal(c.answerTo(body)) {
				taken[key] = true
			}
		}
		if !write || len(c.body) == 0 {
			return nil
		}
		var document any
		if json.Unmarshal(c.body, &document) == nil {
			eachWrong(document, "", func(v any) any { return v }, func(path, what string, other any) {
				body, err := json.Marshal(other)
				require.NoError(t, err)
				wrong(path, what, body)
			})
			return nil
		}
		form, err := url.ParseQuery(string(c.body))
		require.NoError(t, err, "the body of %s", operation)
		for key, values := range form {
			path := limits.Numbered.ReplaceAllString(key, "[]")
			other := maps.Clone(form)
			other[key] = []string{nonsense}
			wrong(path, nonsense, []byte(other.Encode()))
			if _, err := strconv.Atoi(values[0]); err == nil {
				other[key] = []string{strconv.Itoa(negative)}
				wrong(path, "a negative number", []byte(other.Encode()))
			}
		}
		other := maps.Clone(form)
		other[unknown] = []string{"1"}
		wrong(unknown, "an unknown parameter", []byte(other.Encode()))
		return nil
	})
}

// eachWrong calls try with documents in which one value is wrong. in puts a value in the place of v.
func eachWrong(v any, path string, in func(any) any, try func(path, what string, document any)) {
	put := func(other any) {
		text, _ := json.Marshal(other) // it was decoded from JSON
		try(path, string(text), in(other))
	}
	switch v := v.(type) {
	case map[string]any:
		if path != "" {
			put(nonsense)
		}
		other := maps.Clone(v)
		other[unknown] = true
		try(strings.TrimPrefix(path+"."+unknown, "."), "an unknown field", in(other))
		for name, value := range v {
			eachWrong(value, strings.TrimPrefix(path+"."+name, "."), func(value any) any {
				other := maps.Clone(v)
				other[name] = value
				return in(other)
			}, try)
		}
	case []any:
		put(nonsense)
		for i, value := range v {
			eachWrong(value, path+"[]", func(value any) any {
				other := slices.Clone(v)
				other[i] = value
				return in(other)
			}, try)
		}
	case string:
		put(nonsense)
		put(negative)
	case float64:
		put(nonsense)
		put(negative)
	case bool:
		put(nonsense)
	}
}
