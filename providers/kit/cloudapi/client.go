package cloudapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// Defaults of Config.
const (
	// defaultTimeout bounds one attempt: the slowest listing page seen on a healthy cloud takes a few seconds.
	defaultTimeout = 15 * time.Second
	// defaultRetries after the first attempt.
	defaultRetries = 3
	// maxPatience is the longest that a call is held back before the caller is told to come back later.
	maxPatience  = 10 * time.Second
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Config says how to talk to one cloud.
type Config struct {
	// Provider is the label in metrics and logs.
	Provider string
	// UserAgent is sent with each call; the SDK's own has precedence.
	UserAgent string
	// Authorize puts the credential into a request; nil if the SDK does it. It is called for every attempt, so that a
	// rotated credential is used at once.
	Authorize func(*http.Request)
	// Hosts are the hosts that the credential of Authorize may be sent to; a request to another one is refused.
	Hosts []string
	// Operation names a request without any identifier in it, for metrics and logs.
	Operation func(*http.Request) string
	// Limits are client-side rate limits.
	Limits []Limit
	// LimitsOf returns the limits of a request and the name of the group that shares them, for clouds with separate limits for kinds of
	// calls; nil means that all calls share Limits. A pause that the cloud demands holds back its group alone.
	LimitsOf func(*http.Request) (group string, limits []Limit)
	// Budget reads the cloud's rate limit from a response; nil if responses do not contain it.
	Budget func(http.Header) (Budget, bool)
	// Repeatable reports whether sending a request twice has the same result as once; nil means all but POST.
	Repeatable func(*http.Request) bool
	// ClassOf returns the class of a failure whose status is misleading, as on clouds that report their rate limit with another status than
	// 429. nil, or a nil class, means that the status decides.
	ClassOf func(status int, body []byte) error
	// Timeout of one attempt; 0 means 15 s.
	Timeout time.Duration
	// Retries after the first attempt; 0 means 3, negative means none.
	Retries int
	// Transport carries the calls; nil means NewTransport.
	Transport http.RoundTripper
	// Dial opens connections where Transport is nil; nil means the system's network.
	Dial DialFunc
}

// DialFunc opens a connection, as http.Transport wants it.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// NewTransport returns a transport with the system's proxy settings, for providers that have settings of TLS to add. dial
// replaces the system's network where it is set.
func NewTransport(dial DialFunc) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented type of the standard library
	t.MaxIdleConnsPerHost = 16
	t.DialContext = dial
	if dial == nil {
		t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	t.TLSHandshakeTimeout = 5 * time.Second
	return t
}

// Budget is a cloud's rate limit, read from a response.
type Budget struct {
	Limit, Remaining int
	// Reset is when calls are allowed again; zero if the cloud does not say.
	Reset time.Time
}

// BudgetIn reads the rate limit from the headers with a prefix: Limit, Remaining, and Reset as a Unix time.
func BudgetIn(prefix string) func(http.Header) (Budget, bool) {
	return func(h http.Header) (Budget, bool) {
		limit, limitErr := strconv.Atoi(h.Get(prefix + "Limit"))
		remaining, remainingErr := strconv.Atoi(h.Get(prefix + "Remaining"))
		b := Budget{Limit: limit, Remaining: remaining}
		if reset, err := strconv.ParseInt(h.Get(prefix+"Reset"), 10, 64); err == nil {
			b.Reset = time.Unix(reset, 0)
		}
		return b, limitErr == nil && remainingErr == nil
	}
}

// Client is an http.Client for an SDK. It keeps the health and the clock skew of the cloud's API.
type Client struct {
	*http.Client
	transport *transport
}

// NewClient makes the HTTP client that an SDK is given.
func NewClient(c Config) *Client { return newClient(c, programMeters()) }

func newClient(c Config, m *meters) *Client {
	m.show(c.Provider)
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	switch {
	case c.Retries == 0:
		c.Retries = defaultRetries
	case c.Retries < 0:
		c.Retries = 0
	}
	if c.Transport == nil {
		c.Transport = NewTransport(c.Dial)
	}
	if c.Repeatable == nil {
		c.Repeatable = func(r *http.Request) bool { return r.Method != http.MethodPost }
	}
	c.Operation = boundNames(c.Operation)
	if c.LimitsOf == nil {
		c.LimitsOf = func(*http.Request) (string, []Limit) { return "", c.Limits }
	}
	t := &transport{
		Config:      c,
		meters:      m,
		limiters:    map[string]*limiter{},
		retryBudget: rate.NewLimiter(rate.Every(2*time.Second), 20),
	}
	return &Client{Client: &http.Client{Transport: t, CheckRedirect: refuseRedirect}, transport: t}
}

// Health returns nil if the last call succeeded or none was made yet; else the failure and when it began.
func (c *Client) Health() error { return c.transport.health.err() }

// ClockSkew returns how far this machine's clock is ahead of the cloud's, from the latest response, and whether it is known. It is accurate
// to a second plus the duration of a call.
func (c *Client) ClockSkew() (time.Duration, bool) { return c.transport.clock.skew() }

// Close releases idle connections.
func (c *Client) Close() { c.CloseIdleConnections() }

// transport is the round tripper under every SDK.
type transport struct {
	Config
	meters       *meters
	limitersLock sync.Mutex
	limiters     map[string]*limiter
	texts        texts
	// retryBudget limits retries during an outage: when it is used up, calls are tried once.
	retryBudget *rate.Limiter
	health      health
	clock       clock
}

// limiterOf returns the limiter of the group that a request belongs to.
func (t *transport) limiterOf(req *http.Request) *limiter {
	group, limits := t.LimitsOf(req)
	t.limitersLock.Lock()
	defer t.limitersLock.Unlock()
	l := t.limiters[group]
	if l == nil && len(t.limiters) >= maxOperations {
		group = OtherOperation // unknown operations may contain user input; they share one limit
		l = t.limiters[group]
	}
	if l == nil {
		l = newLimiter(limits)
		t.limiters[group] = l
	}
	return l
}

// RoundTrip implements http.RoundTripper: it waits for the rate limit, sends, reads the whole response, and retries where that is safe.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	recordLastResponse(req.Context(), t.Operation(req), resp, err)
	return resp, err
}

func (t *transport) roundTrip(req *http.Request) (*http.Response, error) {
	operation, limiter := t.Operation(req), t.limiterOf(req)
	t.meters.retriesTotal.WithLabelValues(t.Provider, Label(operation)).Add(0)
	for attempt := 0; ; attempt++ {
		waitBegan := time.Now()
		if err := limiter.wait(req.Context(), maxPatience); err != nil {
			if held, ok := errors.AsType[*Error](err); ok {
				held.NotSent = attempt == 0
			}
			return nil, err
		}
		t.meters.limiterWait.WithLabelValues(t.Provider).Observe(time.Since(waitBegan).Seconds())

		resp, class, err := t.attempt(req, operation)
		t.learn(req.Context(), limiter, operation, resp, class, err)

		delay, again := t.decideRetry(req, resp, class, err, attempt)
		if !again {
			return resp, err
		}
		if err := sleep(req.Context(), delay); err != nil {
			return nil, fmt.Errorf("waiting to try again: %w", err)
		}
		if req, err = rewind(req); err != nil {
			return nil, err
		}
		t.meters.retriesTotal.WithLabelValues(t.Provider, Label(operation)).Inc()
	}
}

// attempt sends the request once, under its own deadline, and reads the whole response: a truncated body is a failure here, not a surprise
// in the SDK's decoder. class is set if the response reports a failure that concerns every call.
func (t *transport) attempt(req *http.Request, operation string) (resp *http.Response, class, err error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.Timeout)
	defer cancel()
	out := req.Clone(ctx)
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", t.UserAgent)
	}
	if t.Authorize != nil {
		if err := t.mayHaveCredential(out.URL); err != nil {
			return nil, nil, err
		}
		t.Authorize(out)
	}
	inFlight := t.meters.requestsInFlight.WithLabelValues(t.Provider)
	inFlight.Inc()
	defer inFlight.Dec()

	began := time.Now()
	resp, err = t.Transport.RoundTrip(out)
	if err == nil {
		class, err = t.buffer(out, resp)
	}
	took := time.Since(began)
	code := ""
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	} else {
		resp = nil
		if ctx.Err() != nil && req.Context().Err() == nil {
			err = fmt.Errorf("%w within %s", errNoAnswer, t.Timeout)
		}
	}
	t.meters.requestsTotal.WithLabelValues(t.Provider, Label(operation), code).Inc()
	t.meters.requestDuration.WithLabelValues(t.Provider, Label(operation)).Observe(took.Seconds())
	klog.V(6).InfoS("Cloud API call", "provider", t.Provider, "operation", operation, "path", req.URL.Path, "code", code, "took", took, "err", err)
	return resp, class, err
}

// errNoAnswer is part of the error of an attempt that timed out.
var errNoAnswer = errors.New("no answer")

// buffer replaces the body by its content, and returns the class of the response's failure.
func (t *transport) buffer(req *http.Request, resp *http.Response) (class, err error) {
	defer resp.Body.Close()
	if err := Redirected(req, resp); err != nil {
		return nil, err
	}
	data, err := t.texts.readBounded(resp)
	if err != nil {
		return nil, err
	}
	if err := checkList(req, resp, data); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	if t.ClassOf != nil {
		if class := t.ClassOf(resp.StatusCode, data); class != nil {
			return class, nil
		}
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return ErrRateLimited, nil
	case resp.StatusCode == http.StatusUnauthorized:
		return ErrUnauthorized, nil
	case resp.StatusCode >= http.StatusInternalServerError:
		return ErrTransient, nil
	}
	return nil, nil
}

// learn records the rate limit, the requested pause and the health that a response shows.
func (t *transport) learn(ctx context.Context, limiter *limiter, operation string, resp *http.Response, class, err error) {
	if err != nil {
		if ctx.Err() != nil {
			return // the caller gave up; that says nothing about the cloud
		}
		if _, described := errors.AsType[*Error](err); !described {
			err = fmt.Errorf("unreachable: %w", err)
		}
		t.report(operation, err)
		return
	}
	t.clock.learn(resp.Header, time.Now())
	if t.Budget != nil {
		if b, ok := t.Budget(resp.Header); ok {
			t.meters.budgetLimit.WithLabelValues(t.Provider).Set(float64(b.Limit))
			t.meters.budgetRemaining.WithLabelValues(t.Provider).Set(float64(b.Remaining))
		}
	}
	switch {
	case errors.Is(class, ErrRateLimited):
		limiter.pause(t.askedPause(resp, class))
		limiter.slowDown()
		t.report(operation, fmt.Errorf("the rate limit is reached (HTTP %d)", resp.StatusCode))
	case errors.Is(class, ErrUnauthorized):
		t.report(operation, fmt.Errorf("the credential is refused (HTTP %d)", resp.StatusCode))
	case class != nil:
		t.report(operation, fmt.Errorf("the API fails (HTTP %d)", resp.StatusCode))
	default:
		limiter.speedUp()
		t.report(operation, nil)
	}
}

func (t *transport) report(operation string, err error) {
	if err == nil {
		t.meters.up.WithLabelValues(t.Provider).Set(1)
		t.meters.lastSuccess.WithLabelValues(t.Provider).SetToCurrentTime()
		t.health.set(nil)
		return
	}
	t.meters.up.WithLabelValues(t.Provider).Set(0)
	t.health.set(fmt.Errorf("%s API: %s: %w", t.Provider, operation, err))
}

// decideRetry decides whether to send the request once more, and after which time.
func (t *transport) decideRetry(req *http.Request, resp *http.Response, class, err error, attempt int) (time.Duration, bool) {
	if attempt >= t.Retries || req.Context().Err() != nil || (req.Body != nil && req.Body != http.NoBody && req.GetBody == nil) {
		return 0, false
	}
	if errors.Is(err, errFinal) || !t.safeToRepeat(req, resp, class, err) {
		return 0, false
	}
	if errors.Is(err, errNoAnswer) && attempt > 0 {
		// A timeout costs the whole time each time; callers should learn of it before they give up themselves.
		return 0, false
	}
	delay := backoff(attempt)
	if resp != nil {
		if asked := t.askedPause(resp, class); asked > maxPatience {
			return 0, false
		} else if asked > 0 {
			delay = asked
		}
	}
	if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) <= delay {
		return 0, false
	}
	return delay, t.retryBudget.Allow()
}

// longestReset bounds a pause until a reset: a sliding window frees one call long before it ends.
const longestReset = time.Minute

// askedPause returns how long the cloud asks to wait: explicitly, or until its rate limit is reset.
func (t *transport) askedPause(resp *http.Response, class error) time.Duration {
	if d := ParseRetryAfter(resp.Header, time.Now()); d > 0 {
		return d
	}
	if !errors.Is(class, ErrRateLimited) || t.Budget == nil {
		return 0
	}
	if b, ok := t.Budget(resp.Header); ok && b.Remaining == 0 && !b.Reset.IsZero() {
		return min(max(time.Until(b.Reset), 0), longestReset)
	}
	return 0
}

// safeToRepeat: a request that may have taken effect is repeated only if it is idempotent. A creation is repeated only if it certainly was
// not carried out.
func (t *transport) safeToRepeat(req *http.Request, resp *http.Response, class, err error) bool {
	switch {
	case err != nil:
		return t.Repeatable(req) || neverSent(err)
	case errors.Is(class, ErrRateLimited):
		return true
	}
	switch resp.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return t.Repeatable(req)
	}
	return false
}

func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// backoff doubles from try to try, with random jitter in its upper half, so that clients do not retry at the same moment.
func backoff(attempt int) time.Duration {
	d := min(firstBackoff<<attempt, maxBackoff)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreading load needs no secure randomness
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rewind returns the request with its body from the beginning.
func rewind(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("rewinding the request: %w", err)
	}
	again := req.Clone(req.Context())
	again.Body = body
	return again, nil
}

// clock remembers how far this machine's clock is ahead of the cloud's.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
	known bool
}

func (c *clock) learn(h http.Header, now time.Time) {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.known = now.Sub(at), true
}

func (c *clock) skew() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// health remembers the last failure until a call succeeds.
type health struct {
	mu    sync.Mutex
	cause error
	since time.Time
}

func (h *health) set(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cause != nil && h.cause == nil {
		h.since = time.Now()
	}
	h.cause = cause
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		return nil
	}
	return fmt.Errorf("since %s: %w", h.since.UTC().Format(time.RFC3339), h.cause)
}
