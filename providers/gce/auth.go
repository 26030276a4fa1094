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
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	scope = "https://www.googleapis.com/auth/cloud-platform"
	// tokenMargin is how long before its end a token is replaced.
	tokenMargin = 2 * time.Minute
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

// newTokens returns the source of tokens that the configuration selects.
func newTokens(c Config, in registry.Inputs, m *metadata) *session.Tokens[string] {
	fetch := m.token
	switch c.TokenURL {
	case "":
	case tokenURLDefault:
		fetch = fromFile(c.CredentialsFile, in)
	default:
		fetch = fromTokenURL(c, in, m)
	}
	return &session.Tokens[string]{Margin: tokenMargin, Fetch: func(ctx context.Context) (string, time.Time, error) {
		token, err := fetch(ctx)
		if err != nil {
			return "", time.Time{}, err
		}
		return token.AccessToken, token.Expiry, nil
	}}
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

// newTokenTransport returns a transport that sends tokens to the given host alone.
func newTokenTransport(tokens *session.Tokens[string], host string, next http.RoundTripper) http.RoundTripper {
	return &session.Transport[string]{Token: tokens.Get, Next: next, Authorize: func(r *http.Request, token string) error {
		if cloudapi.HostOf(r.URL.String()) != host {
			return fmt.Errorf("the credential is for %s, and %s was asked", host, r.URL.Host)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}}
}
