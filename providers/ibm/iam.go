package ibm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath = "/identity/token"
	// maxToken bounds an answer of IAM.
	maxToken = 256 << 10
	// tokenMargin is how long a token is used at least, as where IAM does not say how long it lives.
	tokenMargin = time.Minute
	// grants are the ways in which IAM is asked for a token.
	grantKey     = "urn:ibm:params:oauth:grant-type:apikey"
	grantProfile = "urn:ibm:params:oauth:grant-type:cr-token"
)

// token is what IAM gives. Another one is asked for from the time on.
type token struct {
	access string
	until  time.Time
}

// secret is what a token is asked for with: an API key, or the token of a service account.
type secret struct{ text string }

// iam gives tokens.
type iam struct {
	http   *cloudapi.Client
	url    string
	config Config
}

func newTokens(c Config, in registry.Inputs) *session.Keeper[secret, token] {
	i := &iam{url: c.endpoints().iam, config: c, http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Dial: in.Dial,
		Operation:  func(*http.Request) string { return "POST " + tokenPath },
		Repeatable: func(*http.Request) bool { return true }, // asking twice gives two tokens
	})}
	return &session.Keeper[secret, token]{Credentials: i.credentials, Login: i.login}
}

// credentials reads what is to be used now: files are replaced while the program runs.
func (i *iam) credentials() (secret, error) {
	if !i.config.WithProfile() {
		key := i.config.credential.Reveal()
		return secret{key}, checkKey(key)
	}
	path := i.config.TokenFile
	if path == "" {
		path = defaultTokenFile
	}
	text, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(text))) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return secret{}, fmt.Errorf("the token for the trusted profile: %w; mount a projected token of a service account there", err)
	}
	return secret{strings.TrimSpace(string(text))}, nil
}

// form is the request for a token.
func (i *iam) form(s secret) url.Values {
	switch {
	case i.config.ProfileID != "":
		return url.Values{"grant_type": {grantProfile}, "cr_token": {s.text}, "profile_id": {i.config.ProfileID}}
	case i.config.ProfileName != "":
		return url.Values{"grant_type": {grantProfile}, "cr_token": {s.text}, "profile_name": {i.config.ProfileName}}
	}
	return url.Values{"grant_type": {grantKey}, "apikey": {s.text}, "response_type": {"cloud_iam"}}
}

// login asks IAM for a token. Whatever it answers is about the credential, and never about an object of the cloud.
func (i *iam) login(ctx context.Context, s secret) (token, error) {
	const what = "asking IAM for a token"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+tokenPath, strings.NewReader(i.form(s).Encode()))
	if err != nil {
		return token{}, cloudapi.Unclear(what, "the address of IAM cannot be used; %s", checkEndpoint)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	answer, err := i.http.Do(r)
	if err != nil {
		return token{}, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxToken))
	if err != nil {
		return token{}, cloudapi.Describe(err, what)
	}
	return readToken(what, answer, body)
}

func readToken(what string, answer *http.Response, body []byte) (token, error) {
	var said struct {
		Access  string `json:"access_token"`
		Expires int    `json:"expires_in"`
		Code    string `json:"errorCode"`
		Message string `json:"errorMessage"`
	}
	page := !isJSON(answer.Header) || json.Unmarshal(body, &said) != nil
	if answer.StatusCode == http.StatusOK && !page && said.Access != "" {
		life := time.Duration(said.Expires) * time.Second
		return token{access: said.Access, until: time.Now().Add(max(life*4/5, tokenMargin))}, nil
	}
	e := &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
		Message: "a page instead of an answer of IAM; " + checkEndpoint,
	}
	switch refused := said.Code != "" && !page; {
	case answer.StatusCode == http.StatusTooManyRequests:
		e.Class, e.Message = cloudapi.ErrRateLimited, said.Code
	case refused && answer.StatusCode >= http.StatusBadRequest && answer.StatusCode < http.StatusInternalServerError &&
		answer.StatusCode != http.StatusNotFound:
		e.Class, e.Cause = cloudapi.ErrUnauthorized, session.ErrRefused
		e.Message = said.Code + ": " + said.Message[:min(len(said.Message), maxMessage)]
	case refused:
		e.Message = said.Code + ": " + said.Message[:min(len(said.Message), maxMessage)]
	}
	return token{}, e
}
