package ibm

import (
	"bytes"
	"cmp"
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
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath = "/identity/token"
	// maxToken bounds a response of IAM.
	maxToken = 256 << 10
	// tokenMargin is the minimum time that a token is used, also if IAM does not state its lifetime.
	tokenMargin = time.Minute
	// metadataService is the instance's metadata service, and identityLife the lifetime of its identity token in seconds.
	metadataService = "http://169.254.169.254"
	metadataVersion = "2022-03-01"
	identityLife    = 300
	// grants are IAM's grant types.
	grantKey     = "urn:ibm:params:oauth:grant-type:apikey"
	grantProfile = "urn:ibm:params:oauth:grant-type:cr-token"
)

// token is an IAM access token; until is the time from which a new one is requested.
type token struct {
	access string
	until  time.Time
}

// secret is the credential that is exchanged for a token: an API key, or the token of a service account.
type secret struct{ text string }

// String implements fmt.Stringer.
func (secret) String() string { return "(hidden)" }

// String implements fmt.Stringer.
func (token) String() string { return "(hidden)" }

// iam gets tokens.
type iam struct {
	http   *cloudapi.Client
	url    string
	config Config
}

func newTokens(c Config, in registry.Inputs) *session.Keeper[secret, token] {
	i := &iam{url: c.endpoints().iam, config: c, http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Dial: in.Dial,
		Operation:  restapi.Operations(tokenPath, "/instance_identity/v1/token", "/instance_identity/v1/iam_token"),
		Repeatable: func(*http.Request) bool { return true }, // two requests give two tokens
	})}
	return &session.Keeper[secret, token]{Credentials: i.credentials, Login: i.login}
}

// credentials reads the current credential: files are replaced while the program runs.
func (i *iam) credentials() (secret, error) {
	if !i.config.WithProfile() {
		key := i.config.Credential.Reveal()
		return secret{key}, checkKey(key)
	}
	if i.config.Identity {
		return secret{}, nil // requested at each login
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

// form returns the request for a token.
func (i *iam) form(s secret) url.Values {
	switch {
	case i.config.ProfileID != "":
		return url.Values{"grant_type": {grantProfile}, "cr_token": {s.text}, "profile_id": {i.config.ProfileID}}
	case i.config.ProfileName != "":
		return url.Values{"grant_type": {grantProfile}, "cr_token": {s.text}, "profile_name": {i.config.ProfileName}}
	}
	return url.Values{"grant_type": {grantKey}, "apikey": {s.text}, "response_type": {"cloud_iam"}}
}

// login requests a token from IAM. A failure concerns the credential, and never an object of the cloud.
func (i *iam) login(ctx context.Context, s secret) (token, error) {
	if i.config.Identity {
		return i.identify(ctx)
	}
	const what = "asking IAM for a token"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+tokenPath, strings.NewReader(i.form(s).Encode()))
	if err != nil {
		return token{}, cloudapi.Unclear(what, "the address of IAM cannot be used; %s", checkEndpoint)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	return i.requestToken(r, what, s.text)
}

// requestToken sends a request for a token; errors do not contain its secret.
func (i *iam) requestToken(r *http.Request, what, secret string) (token, error) {
	answer, err := i.http.Do(r)
	if err != nil {
		return token{}, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxToken))
	if err != nil {
		return token{}, cloudapi.Describe(err, what)
	}
	if answer.StatusCode != http.StatusOK {
		body = hideSecrets(body, secret)
	}
	return readToken(what, answer, body)
}

// identify gets an IAM token from the instance's metadata service: first the instance's identity token, and with that a token of its
// trusted profile.
func (i *iam) identify(ctx context.Context) (token, error) {
	const what = "asking the instance's metadata service for a token"
	base := strings.TrimRight(cmp.Or(i.config.MetadataEndpoint, metadataService), "/") + "/instance_identity/v1/"
	step := func(method, path, bearer string, in any) (token, error) {
		body, err := json.Marshal(in)
		if err != nil {
			return token{}, fmt.Errorf("%s: %w", what, err)
		}
		r, err := http.NewRequestWithContext(ctx, method, base+path+"?version="+metadataVersion, bytes.NewReader(body))
		if err != nil {
			return token{}, cloudapi.Unclear(what, "its address cannot be used; check g2MetadataEndpointOverride")
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		if r.Header.Set("Metadata-Flavor", "ibm"); bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		return i.requestToken(r, what, bearer)
	}
	own, err := step(http.MethodPut, "token", "", map[string]int{"expires_in": identityLife})
	if err != nil {
		return token{}, err
	}
	profile := map[string]any{}
	switch {
	case i.config.ProfileID != "":
		profile["trusted_profile"] = reference{ID: i.config.ProfileID}
	case i.config.ProfileName != "":
		profile["trusted_profile"] = reference{Name: i.config.ProfileName}
	}
	return step(http.MethodPost, "iam_token", own.access, profile)
}

func readToken(what string, answer *http.Response, body []byte) (token, error) {
	var said struct {
		Access  string     `json:"access_token"`
		Expires int        `json:"expires_in"`
		Code    string     `json:"errorCode"`
		Message string     `json:"errorMessage"`
		Errors  []apiFault `json:"errors"` // of the metadata service
	}
	page := !isJSON(answer.Header) || json.Unmarshal(body, &said) != nil
	if answer.StatusCode == http.StatusOK && !page && said.Access != "" {
		life := time.Duration(said.Expires) * time.Second
		return token{access: said.Access, until: time.Now().Add(max(life*4/5, tokenMargin))}, nil
	}
	if len(said.Errors) > 0 {
		said.Code, said.Message = said.Errors[0].Code, said.Errors[0].Message
	}
	e := &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
		Message: "a page instead of an answer of IAM; " + checkEndpoint,
	}
	switch refused := said.Code != "" && !page; {
	case answer.StatusCode == http.StatusTooManyRequests:
		e.Class, e.Message = cloudapi.ErrRateLimited, shorten(said.Code)
	case refused && answer.StatusCode >= http.StatusBadRequest && answer.StatusCode < http.StatusInternalServerError &&
		answer.StatusCode != http.StatusNotFound:
		e.Class, e.Cause = cloudapi.ErrUnauthorized, session.ErrRefused
		e.Message = shorten(said.Code + ": " + said.Message)
	case refused:
		e.Message = shorten(said.Code + ": " + said.Message)
	}
	return token{}, e
}
