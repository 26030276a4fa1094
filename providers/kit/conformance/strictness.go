package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A simulated cloud that is kinder than the real one hides faults. Kind is one that keeps an order, shows writes at once, or takes
// any value; this part of the suite is about the simulators alone.

// Strictness is where a cloud itself is kind, each with the reason: what its API says, or why it cannot be tried.
type Strictness struct {
	// Ordered are lists in answers whose order the cloud promises, as "OPERATION path" or "path".
	Ordered map[string]string
	// Free are fields of requests that take any value, as "OPERATION path" or "path"; a path that ends with a * stands for all
	// that begin like it.
	Free map[string]string
	// Immediate is why reads show at once what was written, on clouds without Fixture.Lag.
	Immediate string
}

// spared reports whether a table names a field.
func spared(table map[string]string, operation, path string) bool {
	for _, name := range []string{path, operation + " " + path} {
		if table[name] != "" {
			return true
		}
		for key := range table {
			if begin, all := strings.CutSuffix(key, "*"); all && strings.HasPrefix(name, begin) {
				return true
			}
		}
	}
	return false
}

func runStrictness(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range of(t, newFixture, serviceNames) {
		virtual(t, "no order is kept: "+name, func(t *testing.T) { runOrders(t, newFixture(t), name) })
		virtual(t, "values are checked: "+name, func(t *testing.T) { runValues(t, newFixture(t), name) })
	}
	virtual(t, "writes do not show at once", func(t *testing.T) {
		f := newFixture(t)
		if f.Lag == nil {
			require.NotEmpty(t, f.Strictness.Immediate, "the fixture says why reads show at once what was written")
			return
		}
		require.Empty(t, f.Strictness.Immediate)
	})
	if of(t, newFixture, func(f *Fixture) bool { return f.Lag != nil }) {
		t.Run("lag", func(t *testing.T) {
			t.Parallel()
			at := func(lag time.Duration) (shown int) {
				synctest.Test(t, func(t *testing.T) { shown = runShown(t, newFixture(t), lag) })
				return shown
			}
			assert.Less(t, at(of(t, newFixture, (*Fixture).lags)[0]), at(0), "some reads are late")
		})
	}
}

// runShown counts the writes of a life that show at once in what was read before.
func runShown(t *testing.T, f *Fixture, lag time.Duration) (shown int) {
	t.Helper()
	w := newWorld(t, f)
	if lag > 0 {
		w.Lag(lag)
	}
	reads := map[string]inspected{}
	w.live(sortedKeys(w.Services)[0], func(operation string, write bool, c inspected) func() {
		if !write {
			reads[operation+c.request.URL.String()+string(c.body)] = c
			return nil
		}
		saying := func() string {
			var all strings.Builder
			for _, key := range sortedKeys(reads) {
				answer := reads[key].again()
				text, err := json.Marshal(inOrder(parsed(answer.Body.Bytes())))
				require.NoError(t, err)
				fmt.Fprintln(&all, key, answer.Code, string(text))
			}
			return all.String()
		}
		before := saying()
		return func() {
			if saying() != before {
				shown++
			}
		}
	})
	return shown
}

// live takes a Service through its life, with another one there all the time, while every call to the cloud is inspected.
func (w *world) live(name string, see func(operation string, write bool, c inspected) (after func())) {
	ctx, c := w.t.Context(), w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	other := featureService(nil)
	other.Name, other.UID = "other", "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	turn := make(chan struct{}, 1) // a mutex would stop the clock
	w.Sim.Inspect(func(r *http.Request, body []byte, ask func(*http.Request) *httptest.ResponseRecorder) func() {
		turn <- struct{}{}
		defer func() { <-turn }()
		operation, write := w.Sim.Operation(r)
		return see(operation, write, inspected{r, body, ask})
	})
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

// inspected is a call, and a way to ask something else in its place.
type inspected struct {
	request *http.Request
	body    []byte
	ask     func(*http.Request) *httptest.ResponseRecorder
}

// with returns the answer to the same call with another body.
func (i inspected) with(body []byte) *httptest.ResponseRecorder {
	r := i.request.Clone(i.request.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return i.ask(r)
}

// again returns the answer to the same call.
func (i inspected) again() *httptest.ResponseRecorder { return i.with(i.body) }

// readings is how often a list is read until its order counts as kept.
const readings = 24

// runOrders: each list of at least two elements that is read comes in more than one order, where the cloud promises none.
func runOrders(t *testing.T, f *Fixture, name string) {
	t.Helper()
	w := newWorld(t, f)
	orders := map[string]map[string]map[string]bool{} // by list and elements
	w.live(name, func(operation string, write bool, c inspected) func() {
		if write {
			return nil
		}
		for range readings {
			answer := c.again()
			if answer.Code != http.StatusOK {
				return nil
			}
			eachList(parsed(answer.Body.Bytes()), "", func(path string, elements []string) {
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
		if !several && !spared(f.Strictness.Ordered, operation, path) {
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

// parsed is what an answer says, as decoded JSON; nil if it is neither JSON nor XML. Elements of the same name within one, and those
// named for being one of many, are lists.
func parsed(body []byte) any {
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
		if start, ok := token.(xml.StartElement); ok {
			v, _ := parsedElement(decoder, start)
			return v
		}
	}
}

func parsedElement(decoder *xml.Decoder, _ xml.StartElement) (any, error) {
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
			kid, err := parsedElement(decoder, token)
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
			text, err := json.Marshal(inOrder(copied(element)))
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

// copied is a deep copy of decoded JSON.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, value := range v {
			c[name] = copied(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = copied(value)
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
func runValues(t *testing.T, f *Fixture, name string) {
	t.Helper()
	w := newWorld(t, f)
	taken := map[string]bool{}
	w.live(name, func(operation string, write bool, c inspected) func() {
		wrong := func(path, what string, body []byte) {
			if spared(f.Strictness.Free, operation, path) {
				return
			}
			if answer := c.with(body); answer.Code < 400 || answer.Code >= 500 {
				taken[fmt.Sprintf("%s %s: %s is answered with %d", operation, path, what, answer.Code)] = true
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
		for key := range form {
			other := maps.Clone(form)
			other[key] = []string{nonsense}
			wrong(key, nonsense, []byte(other.Encode()))
			other[key] = []string{fmt.Sprint(negative)}
			wrong(key, fmt.Sprint(negative), []byte(other.Encode()))
		}
		other := maps.Clone(form)
		other[unknown] = []string{"1"}
		wrong(unknown, "an unknown parameter", []byte(other.Encode()))
		return nil
	})
	assert.Empty(t, strings.Join(slices.Sorted(maps.Keys(taken)), "\n"), "the cloud refuses these, says its API; what takes any value stands in Strictness.Free")
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
