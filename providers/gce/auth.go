package gce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	scope = "https://www.googleapis.com/auth/cloud-platform"
	// tokenMargin is how long before its end a token is replaced.
	tokenMargin = 2 * time.Minute
	// refusedPause is the minimum time between requests for another token after a refusal or a failure.
	refusedPause = 20 * time.Second
	// maxText limits responses of the metadata server and of token servers.
	maxText = 64 << 10
)

// metadata is a client of the machine's metadata server.
type metadata struct {
	http *cloudapi.Client
	url  string
}

func newMetadata(c Config, in registry.Inputs) *metadata {
	return &metadata{
		url: "http://" + c.MetadataHost + "/computeMetadata/v1/",
		http: cloudapi.NewClient(cloudapi.Config{
			Provider: Name, UserAgent: "anyccm/" + in.Version, Timeout: 5 * time.Second, Dial: in.Dial,
			Operation: func(*http.Request) string { return "GET metadata" },
		}),
	}
}

func (m *metadata) text(ctx context.Context, key string) (string, error) {
	what := "asking the metadata server for " + key
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+key, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	request.Header.Set("Metadata-Flavor", "Google")
	answer, err := m.http.Do(request)
	if err != nil {
		return "", cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxText))
	switch {
	case err != nil:
		return "", cloudapi.Describe(err, what)
	case answer.StatusCode != http.StatusOK || answer.Header.Get("Metadata-Flavor") != "Google":
		return "", &cloudapi.Error{
			Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode,
			Message: "the answer is not that of a metadata server; outside of Google's cloud, set project-id, local-zone, network-name and token-url in the cloud config",
		}
	}
	return strings.TrimSpace(string(data)), nil
}

// lastPathPart returns the last part of a value that is a path.
func (m *metadata) lastPathPart(ctx context.Context, key string) (string, error) {
	text, err := m.text(ctx, key)
	return lastPart(text), err
}

// tokens returns the token for each call, and renews it before it expires.
type tokens struct {
	fetch func(context.Context) (*oauth2.Token, error)

	renewals keylock.Locks
	// failed: when the latest renewal failed, which keeps a usable token for a while.
	current         *oauth2.Token
	fetched, failed time.Time
}

func newTokens(c Config, in registry.Inputs, m *metadata) *tokens {
	t := &tokens{}
	switch c.TokenURL {
	case "":
		t.fetch = m.token
	case tokenURLDefault:
		t.fetch = fromFile(c.CredentialsFile, in)
	default:
		t.fetch = fromTokenURL(c, in, m)
	}
	return t
}

// token returns the token of the machine's service account.
func (m *metadata) token(ctx context.Context) (*oauth2.Token, error) {
	text, err := m.text(ctx, "instance/service-accounts/default/token")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Token == "" {
		return nil, errors.New("the metadata server's answer holds no token; give the instance a service account")
	}
	token := &oauth2.Token{AccessToken: answer.Token}
	if answer.Expires > 0 {
		token.Expiry = time.Now().Add(time.Duration(answer.Expires) * time.Second)
	}
	return token, nil
}

// tokenClient calls token servers. Their responses are not logged, and repeated requests are harmless.
func tokenClient(in registry.Inputs) *cloudapi.Client {
	return cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Dial: in.Dial,
		Operation:  func(*http.Request) string { return "POST token" },
		Limits:     []cloudapi.Limit{{PerSecond: 0.05, Burst: 3}},
		Repeatable: func(*http.Request) bool { return true },
	})
}

// fromFile reads the credential again each time, so that a rotated one is used.
func fromFile(path string, in registry.Inputs) func(context.Context) (*oauth2.Token, error) {
	client := tokenClient(in)
	return func(ctx context.Context) (*oauth2.Token, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the file of GOOGLE_APPLICATION_CREDENTIALS: %w", err)
		}
		var kind struct {
			Type google.CredentialsType `json:"type"`
		}
		if json.Unmarshal(data, &kind) != nil || kind.Type == "" {
			return nil, errors.New("the file of GOOGLE_APPLICATION_CREDENTIALS holds no credential: it has no type")
		}
		ctx = context.WithValue(ctx, oauth2.HTTPClient, client.Client)
		credentials, err := google.CredentialsFromJSONWithType(ctx, data, kind.Type, scope)
		if err != nil {
			return nil, errors.New("the file of GOOGLE_APPLICATION_CREDENTIALS cannot be used: " + errorType(err))
		}
		token, err := credentials.TokenSource.Token()
		if err != nil {
			return nil, cloudapi.Describe(err, "asking for a token with the file of GOOGLE_APPLICATION_CREDENTIALS")
		}
		return token, nil
	}
}

// errorType returns the type of a parser's error, because its text quotes the file, which may hold secrets.
func errorType(err error) string {
	text := err.Error()
	if i := strings.IndexAny(text, "{\"'"); i >= 0 {
		return strings.TrimSpace(text[:i])
	}
	return text
}

// fromTokenURL requests tokens at the configured URL with the machine's own token.
func fromTokenURL(c Config, in registry.Inputs, m *metadata) func(context.Context) (*oauth2.Token, error) {
	client := tokenClient(in)
	const what = "asking token-url for a token"
	return func(ctx context.Context) (*oauth2.Token, error) {
		own, err := m.token(ctx)
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.TokenURL, bytes.NewReader([]byte(c.TokenBody.Reveal())))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+own.AccessToken)
		answer, err := client.Do(request)
		if err != nil {
			return nil, cloudapi.Describe(err, what)
		}
		defer answer.Body.Close()
		var token struct {
			AccessToken string    `json:"accessToken"`
			ExpireTime  time.Time `json:"expireTime"`
		}
		err = json.NewDecoder(io.LimitReader(answer.Body, maxText)).Decode(&token)
		if answer.StatusCode != http.StatusOK || err != nil || token.AccessToken == "" {
			return nil, &cloudapi.Error{
				Class: cloudapi.ErrUnauthorized, Operation: what, Status: answer.StatusCode, Message: "the answer holds no token",
			}
		}
		return &oauth2.Token{AccessToken: token.AccessToken, Expiry: token.ExpireTime}, nil
	}
}

// token returns a token that does not expire soon. refused: the token that the API rejected, or "".
func (t *tokens) token(ctx context.Context, refused string) (string, error) {
	unlock, err := t.renewals.Lock(ctx, "")
	if err != nil {
		return "", fmt.Errorf("waiting for a token: %w", err)
	}
	defer unlock()
	now := time.Now()
	usable := t.current != nil && refused != t.current.AccessToken && (t.current.Expiry.IsZero() || now.Before(t.current.Expiry))
	if !t.isStale(refused, now) || (usable && now.Sub(t.failed) < refusedPause) {
		return t.current.AccessToken, nil
	}
	token, err := t.fetch(ctx)
	switch {
	case err == nil:
		t.current, t.fetched = token, now
	case usable: // renewal failed, but the token is still valid
		t.failed = now
	default:
		return "", err
	}
	return t.current.AccessToken, nil
}

// isStale reports whether a token must be renewed: it expires soon or was refused.
func (t *tokens) isStale(refused string, now time.Time) bool {
	if t.current == nil {
		return true
	}
	end := t.current.Expiry
	margin := min(tokenMargin, end.Sub(t.fetched)/4) // short-lived tokens need a smaller margin
	return (!end.IsZero() && end.Sub(now) < margin) || (refused == t.current.AccessToken && now.Sub(t.fetched) >= refusedPause)
}

// tokenTransport adds a token to each call, and repeats a refused call once with another token.
type tokenTransport struct {
	tokens *tokens
	host   string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if cloudapi.HostOf(r.URL.String()) != a.host {
		return nil, fmt.Errorf("the credential is for %s, and %s was asked", a.host, r.URL.Host)
	}
	token, err := a.tokens.token(r.Context(), "")
	if err != nil {
		return nil, err
	}
	answer, err := a.next.RoundTrip(withToken(r, token))
	if err != nil || answer.StatusCode != http.StatusUnauthorized || (r.Body != nil && r.GetBody == nil) {
		return answer, err
	}
	another, ok := a.anotherToken(r.Context(), token)
	if !ok {
		return answer, nil
	}
	again := withToken(r, another)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, fmt.Errorf("repeating a call with another token: %w", err)
		}
	}
	answer.Body.Close()
	return a.next.RoundTrip(again)
}

// anotherToken returns a token other than the refused one. Without one, the caller returns the refusal.
func (a *tokenTransport) anotherToken(ctx context.Context, refused string) (string, bool) {
	token, err := a.tokens.token(ctx, refused)
	return token, err == nil && token != refused
}

func withToken(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
