package cloudapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics"
)

// script answers calls one after the other; the last entry repeats.
type script struct {
	answers []func(*http.Request) (*http.Response, error)
	calls   []*http.Request
	at      []time.Time
	bodies  []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls = append(s.calls, r)
	s.at = append(s.at, time.Now())
	if r.Body != nil {
		data, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, string(data))
	}
	return s.answers[min(len(s.calls), len(s.answers))-1](r)
}

func status(code int, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
}

func failure(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func cutBody(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(strings.NewReader("{"), errReader{})),
	}, nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func newTestClient(s *script, mutate func(*Config)) *Client {
	c, _ := newMeteredClient(s, mutate)
	return c
}

// newMeteredClient returns a client with metrics of its own, and what shows them.
func newMeteredClient(s *script, mutate func(*Config)) (*Client, metrics.Gatherer) {
	c := Config{Provider: "test", UserAgent: "test/1", Operation: func(r *http.Request) string { return r.Method + " /things" }, Transport: s}
	if mutate != nil {
		mutate(&c)
	}
	registry, m := metrics.NewKubeRegistry(), newMeters()
	m.register(registry.MustRegister)
	return newClient(c, m), registry
}

func call(t *testing.T, c *Client, method, body string) (*http.Response, error) {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://cloud.test/things", reader)
	require.NoError(t, err)
	resp, err := c.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return resp, err
}

func TestRetries(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		method  string
		answers []func(*http.Request) (*http.Response, error)
		calls   int
		code    int // 0 means an error
	}{
		"success at once":                         {http.MethodGet, []func(*http.Request) (*http.Response, error){status(200)}, 1, 200},
		"read repeated after a server error":      {http.MethodGet, []func(*http.Request) (*http.Response, error){status(500), status(502), status(200)}, 3, 200},
		"read repeated after a reset":             {http.MethodGet, []func(*http.Request) (*http.Response, error){failure(io.ErrUnexpectedEOF), status(200)}, 2, 200},
		"read repeated after a body that breaks":  {http.MethodGet, []func(*http.Request) (*http.Response, error){cutBody, status(200)}, 2, 200},
		"replacement repeated":                    {http.MethodPut, []func(*http.Request) (*http.Response, error){status(503), status(200)}, 2, 200},
		"creation not repeated: it may have done": {http.MethodPost, []func(*http.Request) (*http.Response, error){status(500), status(202)}, 1, 500},
		"creation not repeated after a reset":     {http.MethodPost, []func(*http.Request) (*http.Response, error){failure(io.ErrUnexpectedEOF), status(202)}, 1, 0},
		"creation repeated: it was never sent":    {http.MethodPost, []func(*http.Request) (*http.Response, error){failure(dial), status(202)}, 2, 202},
		"creation repeated: it was refused":       {http.MethodPost, []func(*http.Request) (*http.Response, error){status(429), status(202)}, 2, 202},
		"client error is final":                   {http.MethodGet, []func(*http.Request) (*http.Response, error){status(404)}, 1, 404},
		"four attempts at most":                   {http.MethodGet, []func(*http.Request) (*http.Response, error){status(500)}, 4, 500},
		"silence is tried twice":                  {http.MethodGet, []func(*http.Request) (*http.Response, error){hang}, 2, 0},
		"a hung call ends by itself":              {http.MethodGet, []func(*http.Request) (*http.Response, error){hang, status(200)}, 2, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: c.answers}
				body := ""
				if c.method != http.MethodGet {
					body = "payload"
				}
				resp, err := call(t, newTestClient(s, nil), c.method, body)
				assert.Len(t, s.calls, c.calls)
				if c.code == 0 {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					assert.Equal(t, c.code, resp.StatusCode)
				}
				for _, sent := range s.bodies {
					assert.Equal(t, body, sent, "a repeated request carries its body again")
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(429, "Retry-After", "7"), status(200)}}
		_, err := call(t, newTestClient(s, nil), http.MethodGet, "")
		require.NoError(t, err)
		assert.Equal(t, 7*time.Second, s.at[1].Sub(s.at[0]).Round(time.Second))
	})
}

func TestLongPauseIsReportedNotSlept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(429, "Retry-After", "60"), status(200)}}
		c := newTestClient(s, nil)
		resp, err := call(t, c, http.MethodGet, "")
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)

		_, err = call(t, c, http.MethodGet, "")
		require.ErrorIs(t, err, ErrRateLimited, "during the pause nothing goes out")
		after, ok := RetryAfter(err)
		assert.True(t, ok)
		assert.InDelta(t, 60, after.Seconds(), 1)
		assert.Len(t, s.calls, 1)

		time.Sleep(61 * time.Second) // virtual time
		_, err = call(t, c, http.MethodGet, "")
		require.NoError(t, err)
		assert.Len(t, s.calls, 2)
	})
}

func TestResetOfTheRateLimitIsHonoured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reset time.Duration
		calls int
		pause time.Duration
	}{
		"soon: the call waits":              {8 * time.Second, 2, 0},
		"later: the caller is told":         {30 * time.Second, 1, 30 * time.Second},
		"a sliding hour: looked at earlier": {time.Hour, 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: []func(*http.Request) (*http.Response, error){status(429), status(200)}}
				reset := time.Now().Add(c.reset)
				client := newTestClient(s, func(config *Config) {
					config.Budget = func(http.Header) (Budget, bool) { return Budget{Limit: 10, Reset: reset}, true }
				})
				_, err := call(t, client, http.MethodGet, "")
				require.NoError(t, err)
				assert.Len(t, s.calls, c.calls)
				if c.pause == 0 {
					assert.Equal(t, c.reset, s.at[1].Sub(s.at[0]).Round(time.Second))
					return
				}
				_, err = call(t, client, http.MethodGet, "")
				after, _ := RetryAfter(err)
				assert.Equal(t, c.pause, after.Round(time.Second))
			})
		})
	}
}

func TestClientSideLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(200)}}
		c := newTestClient(s, func(c *Config) { c.Limits = []Limit{{PerSecond: 2, Burst: 3}} })
		began := time.Now()
		for range 9 {
			_, err := call(t, c, http.MethodGet, "")
			require.NoError(t, err)
		}
		assert.Equal(t, 3*time.Second, time.Since(began).Round(10*time.Millisecond), "3 at once, 6 more at 2 a second")

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://cloud.test/", nil)
		require.NoError(t, err)
		began = time.Now()
		resp, err := c.Do(req)
		if resp != nil {
			resp.Body.Close()
		}
		require.ErrorIs(t, err, ErrRateLimited)
		assert.True(t, NotSent(err))
		assert.True(t, NotSent(Describe(err, "creating")))
		assert.Zero(t, time.Since(began), "a call that cannot make its deadline is refused at once")
	})
}

func TestOutageDoesNotMultiplyCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(500)}}
		c := newTestClient(s, nil)
		const asked = 200
		for range asked {
			_, err := call(t, c, http.MethodGet, "")
			require.NoError(t, err)
		}
		assert.Less(t, len(s.calls), asked+60, "the retry budget caps what an outage costs")
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(401), failure(io.ErrUnexpectedEOF), status(404)}}
		c := newTestClient(s, func(c *Config) { c.Retries = -1 })
		require.NoError(t, c.Health(), "nothing is known yet")
		_, _ = call(t, c, http.MethodGet, "")
		require.ErrorContains(t, c.Health(), "the credential is refused")
		_, _ = call(t, c, http.MethodPost, "")
		require.ErrorContains(t, c.Health(), "unreachable")
		_, _ = call(t, c, http.MethodGet, "")
		require.NoError(t, c.Health(), "an answer such as 404 proves that the API works")
	})
}

func TestCredentialIsReadForEveryAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){status(500), status(200)}}
		tokens := []string{"old", "new"}
		c := newTestClient(s, func(c *Config) {
			c.Authorize = func(r *http.Request) { r.Header.Set("Authorization", tokens[0]); tokens = tokens[1:] }
		})
		_, err := call(t, c, http.MethodGet, "")
		require.NoError(t, err)
		assert.Equal(t, "old", s.calls[0].Header.Get("Authorization"))
		assert.Equal(t, "new", s.calls[1].Header.Get("Authorization"))
		assert.Equal(t, "test/1", s.calls[1].Header.Get("User-Agent"))
	})
}

func TestErrorVocabulary(t *testing.T) {
	t.Parallel()
	for code, class := range map[int]error{
		404: ErrNotFound, 401: ErrUnauthorized, 403: ErrUnauthorized, 429: ErrRateLimited, 409: ErrConflict, 422: ErrInvalid,
		400: ErrInvalid, 408: ErrTransient, 500: ErrTransient, 503: ErrTransient,
	} {
		assert.Equal(t, class, ClassOfStatus(code), code)
	}
	cause := errors.New("sdk")
	err := Describe(&Error{Class: ErrUnauthorized, Status: 403, Message: "no", RequestID: "r1", Cause: cause}, "reading droplet 7")
	require.ErrorIs(t, err, ErrUnauthorized)
	require.ErrorIs(t, err, cause)
	assert.Equal(t, "reading droplet 7: not authorized: no (HTTP 403, request r1); check the credential, its permissions and the account that it belongs to", err.Error())
	assert.False(t, Retryable(err))
	assert.True(t, Retryable(Describe(io.ErrUnexpectedEOF, "reading")))
	require.NoError(t, Describe(nil, "reading"))
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "": 0, "-1": 0, "soon": 0, "Thu, 01 Jan 2026 00:00:30 GMT": 30 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		assert.Equal(t, want, ParseRetryAfter(http.Header{"Retry-After": {text}}, now), text)
	}
}

func TestClockSkew(t *testing.T) {
	t.Parallel()
	var c clock
	_, known := c.skew()
	assert.False(t, known)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.learn(http.Header{"Date": {"Fri, 02 Jan 2026 03:02:05 GMT"}}, now)
	ahead, known := c.skew()
	assert.True(t, known)
	assert.Equal(t, 2*time.Minute, ahead)
	c.learn(http.Header{"Date": {"soon"}}, now)
	ahead, _ = c.skew()
	assert.Equal(t, 2*time.Minute, ahead, "what is no time tells nothing")
}

// TestClassOfAnswers: a cloud may refuse a call for its rate with any status, and tell which of its calls may be repeated.
func TestClassOfAnswers(t *testing.T) {
	t.Parallel()
	body := func(code int, text string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
		}
	}
	classOf := func(_ int, data []byte) error {
		switch string(data) {
		case "slow":
			return ErrRateLimited
		case "who":
			return ErrUnauthorized
		}
		return nil
	}
	post := func(s *script, c *Config) (*http.Response, *Client) {
		client := newTestClient(s, func(to *Config) { to.ClassOf, to.Repeatable = c.ClassOf, c.Repeatable })
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://cloud/", strings.NewReader("x"))
		require.NoError(t, err)
		resp, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp, client
	}
	s := &script{answers: []func(*http.Request) (*http.Response, error){body(503, "slow"), body(400, "slow"), body(200, "fine")}}
	resp, client := post(s, &Config{ClassOf: classOf})
	assert.Equal(t, 200, resp.StatusCode, "a refused call was not carried out, so it is sent again")
	assert.Equal(t, []string{"x", "x", "x"}, s.bodies)
	require.NoError(t, client.Health())

	s = &script{answers: []func(*http.Request) (*http.Response, error){body(400, "who")}}
	_, client = post(s, &Config{ClassOf: classOf})
	require.ErrorContains(t, client.Health(), "the credential is refused (HTTP 400)")
	assert.Len(t, s.calls, 1)

	s = &script{answers: []func(*http.Request) (*http.Response, error){body(503, "broken"), body(200, "fine")}}
	resp, _ = post(s, &Config{ClassOf: classOf})
	assert.Equal(t, 503, resp.StatusCode, "a POST may have taken effect")
	s = &script{answers: []func(*http.Request) (*http.Response, error){body(503, "broken"), body(200, "fine")}}
	resp, _ = post(s, &Config{ClassOf: classOf, Repeatable: func(*http.Request) bool { return true }})
	assert.Equal(t, 200, resp.StatusCode)
}
