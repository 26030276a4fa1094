package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// limitedPlace is where in a write a limit counts.
type limitedPlace struct {
	limit           limits.Limit
	operation, path string
}

func (p limitedPlace) String() string {
	return fmt.Sprintf("%s, at %s of %s", p.limit, p.path, p.operation)
}

// runLimits: wherever a limit of the cloud counts in what the provider writes, the maximum passes in the simulated cloud, and one more
// is refused by that limit.
func runLimits(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	places, reached := map[limitedPlace]string{}, map[string]bool{}
	faults, unlimited := map[string]bool{}, map[string]bool{}
	exempt := newExemptions(readFixture(t, newFixture, func(f *Fixture) map[string]string { return f.Strictness.Unlimited }))
	for _, name := range readFixture(t, newFixture, serviceNames) {
		synctest.Test(t, func(t *testing.T) { runRefused(t, newFixture(t), name, places, faults) })
	}
	for place, name := range places {
		reached[place.limit.String()] = true
		synctest.Test(t, func(t *testing.T) { runPasses(t, newFixture(t), name, place, faults) })
	}
	for _, name := range readFixture(t, newFixture, serviceNames) {
		synctest.Test(t, func(t *testing.T) { runUnlimited(t, newFixture(t), name, exempt, unlimited) })
	}
	assert.Empty(t, exempt.idle(), "nothing needs these entries of Strictness.Unlimited: no Service has it written, or a limit refuses it")
	assert.Empty(t, strings.Join(slices.Sorted(maps.Keys(faults)), "\n"), "the maximum passes, and one more is refused by its limit")
	assert.Empty(t, strings.Join(slices.Sorted(maps.Keys(unlimited)), "\n"),
		"no limit refuses these; it belongs into the table of the cloud's limits, or Strictness.Unlimited says why there is none")
	elsewhere := readFixture(t, newFixture, func(f *Fixture) map[string]string { return f.Strictness.LimitsElsewhere })
	table := readFixture(t, newFixture, func(f *Fixture) limits.Table { return f.Provider.Limits })
	for _, l := range table {
		assert.NotEqual(t, reached[l.String()], elsewhere[l.String()] != "", "%s: a Service has it written, or Strictness.LimitsElsewhere says what tries it", l)
		if name := elsewhere[l.String()]; name != "" {
			assert.Regexp(t, `^Test[A-Z]\w*$`, name, "%s: Strictness.LimitsElsewhere has the name of a test", l)
		}
		delete(elsewhere, l.String())
	}
	assert.Empty(t, elsewhere, "these are no limits of the cloud")
}

// runRefused plays a life, and has one more than the maximum refused wherever a limit counts. It notes the places.
func runRefused(t *testing.T, f *Fixture, name string, places map[limitedPlace]string, faults map[string]bool) {
	t.Helper()
	newWorld(t, f).playLife(name, func(operation string, write bool, c inspectedCall) func() {
		for place := range limitedPlaces(f, operation, write, c.body) {
			if places[place] != "" {
				continue
			}
			places[place] = name
			c.request.Header.Set(WrongHeader, "one more than the maximum")
			answer, refused := c.answerToGrown(place, place.limit.Max+1, func(answer *httptest.ResponseRecorder) bool {
				return answer.Header().Get(simkit.LimitHeader) == place.limit.String() && isRefusal(answer)
			})
			c.request.Header.Del(WrongHeader)
			if !refused {
				faults[fmt.Sprintf("one more: %s: %d %s", place, answer.Code, answer.Body)] = true
			}
		}
		return nil
	})
}

// runPasses plays a life until a write comes to which a limit is applied, and has the maximum taken.
func runPasses(t *testing.T, f *Fixture, name string, place limitedPlace, faults map[string]bool) {
	t.Helper()
	w, done := newWorld(t, f), false
	w.inspect(func(operation string, write bool, c inspectedCall) func() {
		for at := range limitedPlaces(f, operation, write, c.body) {
			if done || at != place {
				continue
			}
			done = true
			answer, passes := c.answerToGrown(place, place.limit.Max, func(answer *httptest.ResponseRecorder) bool {
				refused := place.limit.Unit == limits.Characters && answer.Code >= http.StatusBadRequest
				return !refused && answer.Header().Get(simkit.LimitHeader) == ""
			})
			if !passes {
				faults[fmt.Sprintf("the maximum: %s: %d %s", place, answer.Code, answer.Body)] = true
			}
		}
		return nil
	})
	w.playUntil(name, func() bool { return done })
	if !done {
		faults[fmt.Sprintf("%s does not come again in the same life", place)] = true
	}
}

// playUntil takes a Service through its life as playLife does, for as long as nothing has been done. What fails then is of no interest.
func (w *world) playUntil(name string, done func() bool) {
	ctx, c := w.t.Context(), w.Services[name]
	ensure := func(s *v1.Service) {
		for began := time.Now(); !done() && time.Since(began) < patience; time.Sleep(firstServicePause) {
			if _, err := w.tryEnsure(ctx, s); err == nil {
				return
			}
		}
	}
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	other := otherService()
	for _, step := range []func(){
		func() { w.createService(ctx, other); ensure(other) },
		func() { w.createService(ctx, c.Service); ensure(c.Service) },
		func() { w.changeService(ctx, c.Service, c.Change); ensure(c.Service) },
		func() {
			w.addNode(ctx, "worker-3", nil)
			_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes)
			ensure(c.Service)
		},
		func() { _ = w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, w.service(ctx, c.Service)) },
	} {
		if !done() {
			step()
		}
	}
}

// limitedPlaces are where limits count in the body of a write.
func limitedPlaces(f *Fixture, operation string, write bool, body []byte) iter.Seq[limitedPlace] {
	return func(yield func(limitedPlace) bool) {
		if !write || len(body) == 0 {
			return
		}
		for size := range simkit.Sizes(body) {
			l, limited := f.Provider.Limits.Find(operation, size)
			if limited && size.N > 0 && !yield(limitedPlace{l, operation, size.Path}) {
				return
			}
		}
	}
}

// answerToGrown returns the answer to a write in which something has so many characters or items, and whether it is as expected. Names
// refer to each other within the write or to what is there, so that both are tried.
func (i inspectedCall) answerToGrown(place limitedPlace, n int, expected func(*httptest.ResponseRecorder) bool) (
	answer *httptest.ResponseRecorder, is bool,
) {
	answer = i.answerTo(grown(i.body, place, n, true))
	if !expected(answer) {
		answer = i.answerTo(grown(i.body, place, n, false))
	}
	return answer, expected(answer)
}

// grown returns the body of a write in which something has so many characters or items; with everywhere, other places of the same text
// have them, too.
func grown(body []byte, place limitedPlace, n int, everywhere bool) []byte {
	var document any
	if json.Unmarshal(body, &document) == nil {
		text, _ := json.Marshal(grownDocument(document, place, n, everywhere)) // it was decoded from JSON
		return text
	}
	form, _ := url.ParseQuery(string(body)) // as the simulator reads it
	for _, key := range slices.Sorted(maps.Keys(form)) {
		if at := limits.Numbered.ReplaceAllString(key, "[]"); at == place.path && place.limit.Unit == limits.Characters {
			form.Set(key, longer(form.Get(key), n))
			break
		}
		for _, at := range limits.Numbered.FindAllStringIndex(key, -1) {
			if limits.Numbered.ReplaceAllString(key[:at[0]], "[]") != place.path || place.limit.Unit == limits.Characters {
				continue
			}
			for i := range n {
				form.Set(key[:at[0]]+strings.TrimRight(key[at[0]:at[1]], "0123456789")+strconv.Itoa(i+1)+key[at[1]:], form.Get(key))
			}
		}
	}
	return []byte(form.Encode())
}

// grownDocument makes a text longer, everywhere because names refer to each other.
func grownDocument(document any, place limitedPlace, n int, everywhere bool) any {
	short := ""
	document, _ = grow(document, "", place, n, &short)
	if short == "" || !everywhere {
		return document
	}
	text, _ := json.Marshal(document) // it was decoded from JSON
	before, _ := json.Marshal(short)
	after, _ := json.Marshal(longer(short, n))
	text = bytes.ReplaceAll(text, before, after)
	before[0], after[0] = '/', '/'                                       // as the end of a path
	_ = json.Unmarshal(bytes.ReplaceAll(text, before, after), &document) // it is the same document
	return document
}

func longer(text string, n int) string {
	return text + strings.Repeat("a", max(0, n-utf8.RuneCountInString(text)))
}

// grow makes something of decoded JSON have so many characters or items, and reports whether it found it. short is the text that it was.
func grow(v any, path string, place limitedPlace, n int, short *string) (any, bool) {
	isItems := place.limit.Unit != limits.Characters
	switch v := v.(type) {
	case string:
		if path == place.path && !isItems {
			*short = v
			return longer(v, n), true
		}
	case []any:
		if path == place.path && isItems && len(v) > 0 {
			return slices.Concat(v, slices.Repeat(v[:1], max(0, n-len(v)))), true
		}
		for i := range v {
			if other, found := grow(v[i], path+"[]", place, n, short); found {
				v[i] = other
				return v, true
			}
		}
	case map[string]any:
		return growObject(v, path, place, n, short)
	}
	return v, false
}

func growObject(v map[string]any, path string, place limitedPlace, n int, short *string) (any, bool) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch {
		case path+"{}" == place.path && place.limit.Unit != limits.Characters:
			for i := len(v); i < n; i++ {
				v["more-"+strconv.Itoa(i)] = v[name]
			}
			return v, true
		case path+"{}" == place.path:
			*short = name
			v[longer(name, n)] = v[name]
			delete(v, name)
			return v, true
		}
		if other, found := grow(v[name], strings.TrimPrefix(path+"."+name, "."), place, n, short); found {
			v[name] = other
			return v, true
		}
	}
	return v, false
}

// TryLimit holds a limit that no life of a Service meets: send makes a request with so many of what it counts, and returns the answer.
func TryLimit(t testing.TB, l limits.Limit, send func(n int) *httptest.ResponseRecorder) {
	t.Helper()
	more := send(l.Max + 1)
	assert.Equal(t, l.String(), more.Header().Get(simkit.LimitHeader), "one more: %s", more.Body)
	assert.True(t, more.Code >= 400 && more.Code < 500, "one more: %d", more.Code)
	most := send(l.Max)
	assert.Less(t, most.Code, http.StatusBadRequest, "the maximum: %s", most.Body)
}

// What is surely more than any cloud takes, and the words for it.
const (
	tooLong  = "a text that is too long"
	tooMany  = "too many items"
	manyMore = 6000
	// manyInForm is for a form, of which no more than 10,000 values are read.
	manyInForm = 1500
)

// runUnlimited notes what is taken although it is too long or too many, and the fixture does not say why: there is no limit of it.
func runUnlimited(t *testing.T, f *Fixture, name string, exempt *exemptions, taken map[string]bool) {
	t.Helper()
	tried := map[string]bool{}
	newWorld(t, f).playLife(name, func(operation string, write bool, c inspectedCall) func() {
		if !write || len(c.body) == 0 {
			return nil
		}
		for size := range simkit.Sizes(c.body) {
			what := tooLong
			if size.Unit == limits.Items {
				what = tooMany
			}
			key := fmt.Sprintf("%s %s: %s", operation, size.Path, what)
			_, limited := f.Provider.Limits.Find(operation, size)
			if size.N == 0 || size.Path == "" || tried[key] || isObject(size) || !limited && exempt.covers(operation, size.Path) {
				continue
			}
			tried[key] = true
			c.request.Header.Set(WrongHeader, what)
			n := manyMore
			if what == tooMany && !json.Valid(c.body) {
				n = manyInForm
			}
			answer := c.answerTo(grown(c.body, limitedPlace{limits.Limit{Unit: size.Unit}, operation, size.Path}, n, true))
			c.request.Header.Del(WrongHeader)
			limited = what == tooLong || answer.Header().Get(simkit.LimitHeader) != ""
			if !isRefusal(answer) || !limited {
				taken[key] = true
			}
		}
		return nil
	})
}

// isObject reports whether a size is that of an object, which has the fields that the API knows.
func isObject(size limits.Size) bool {
	return size.Unit == limits.Items && strings.HasSuffix(size.Path, "{}")
}
