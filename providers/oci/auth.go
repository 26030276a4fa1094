package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
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
	// renewBefore is how long before its end a token is replaced.
	renewBefore = 5 * time.Minute
	// sessionKeyBits is the size that the cloud requires of keys bound to tokens.
	sessionKeyBits = 3072
)

// tokenRequest requests credentials that consist of a token and the key that it is bound to.
type tokenRequest struct {
	send func(ctx context.Context, public []byte) (token string, err error)
	// nextKey is the key of a request that failed. One request is under way at a time.
	nextKey *rsa.PrivateKey
}

func newTokens(send func(context.Context, []byte) (string, error)) *session.Tokens[credential] {
	r := &tokenRequest{send: send}
	return &session.Tokens[credential]{Fetch: r.requestToken, Margin: renewBefore}
}

// requestToken requests a token that is bound to a new key.
func (t *tokenRequest) requestToken(ctx context.Context) (credential, time.Time, error) {
	if t.nextKey == nil {
		key, err := rsa.GenerateKey(rand.Reader, sessionKeyBits)
		if err != nil {
			return credential{}, time.Time{}, fmt.Errorf("making the key of a session: %w", err)
		}
		t.nextKey = key
	}
	key := t.nextKey
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return credential{}, time.Time{}, fmt.Errorf("encoding the key of a session: %w", err)
	}
	token, err := t.send(ctx, public)
	if err != nil {
		return credential{}, time.Time{}, err
	}
	t.nextKey = nil
	ends, err := expiryOf(token)
	return credential{id: "ST$" + token, key: key}, ends, err
}

// expiryOf returns when a token expires, which it says itself.
func expiryOf(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	var claims struct {
		Expires int64 `json:"exp"`
	}
	unreadable := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading the token of a session", Message: "it does not say when it ends"}
	if len(parts) != 3 { //nolint:mnd // header, claims and signature
		return time.Time{}, unreadable
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expires == 0 {
		return time.Time{}, unreadable
	}
	return time.Unix(claims.Expires, 0), nil
}

// tokenIssuer requests tokens. The answers must not be logged; asking twice does no harm.
type tokenIssuer struct {
	http     *cloudapi.Client
	config   Config
	metadata *metadata
	locate   func(context.Context) (location, error)
}

func newTokenIssuer(c Config, in registry.Inputs, m *metadata, where func(context.Context) (location, error)) *tokenIssuer {
	return &tokenIssuer{config: c, metadata: m, locate: where, http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Dial: in.Dial, Timeout: 10 * time.Second,
		Operation:  func(*http.Request) string { return "POST token" },
		Limits:     []cloudapi.Limit{{PerSecond: 0.1, Burst: 5}},
		Repeatable: func(*http.Request) bool { return true },
	})}
}

// tokenOfInstance requests a token as the instance on which the program runs.
func (i *tokenIssuer) tokenOfInstance(ctx context.Context, public []byte) (string, error) {
	where, err := i.locate(ctx)
	if err != nil {
		return "", err
	}
	leaf, key, err := i.certificate(ctx)
	if err != nil {
		return "", err
	}
	intermediate, err := i.metadata.text(ctx, "/identity/intermediate.pem")
	if err != nil {
		return "", err
	}
	chain, _ := pem.Decode([]byte(intermediate))
	if chain == nil {
		return "", cloudapi.Unclear("reading the identity of the instance", "the intermediate certificate is no certificate")
	}
	body, err := json.Marshal(map[string]any{
		"certificate": base64.StdEncoding.EncodeToString(leaf.Raw), "publicKey": base64.StdEncoding.EncodeToString(public),
		"intermediateCertificates": []string{base64.StdEncoding.EncodeToString(chain.Bytes)}, "fingerprintAlgorithm": "SHA256",
	})
	if err != nil {
		return "", err
	}
	address := i.config.serviceURL(where.region, "auth", i.config.Domain) + "/v1/x509"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	c := credential{id: tenancyOf(leaf) + "/fed-x509-sha256/" + fingerprint(leaf.Raw), key: key}
	if err := signHeaders(r, c, time.Now(), []string{"date", "(request-target)"}); err != nil {
		return "", err
	}
	return i.send(r, "asking for a token as instance principal")
}

// certificate returns the instance's certificate and key, which both change every few hours.
func (i *tokenIssuer) certificate(ctx context.Context) (*x509.Certificate, *rsa.PrivateKey, error) {
	const what = "reading the identity of the instance"
	text, err := i.metadata.text(ctx, "/identity/cert.pem")
	if err != nil {
		return nil, nil, err
	}
	var leaf *x509.Certificate
	if block, _ := pem.Decode([]byte(text)); block != nil {
		leaf, _ = x509.ParseCertificate(block.Bytes)
	}
	switch {
	case leaf == nil:
		return nil, nil, cloudapi.Unclear(what, "the certificate is no certificate")
	case tenancyOf(leaf) == "":
		return nil, nil, cloudapi.Unclear(what, "the certificate names no tenancy")
	}
	if text, err = i.metadata.text(ctx, "/identity/key.pem"); err != nil {
		return nil, nil, err
	}
	key, err := parseKey([]byte(text), nil)
	if err != nil {
		return nil, nil, cloudapi.Unclear(what, "the key cannot be used: %s", err)
	}
	return leaf, key, nil
}

// tenancyOf returns the tenancy that an instance's certificate names.
func tenancyOf(c *x509.Certificate) string {
	for _, name := range c.Subject.Names {
		text, _ := name.Value.(string)
		if tenancy, ok := strings.CutPrefix(text, "opc-tenant:"); ok {
			return tenancy
		}
	}
	return ""
}

// fingerprint returns the fingerprint of a certificate, as the cloud writes it.
func fingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// tokenForServiceAccount returns a function that has an identity domain exchange the service account's token.
func (i *tokenIssuer) tokenForServiceAccount(own *session.Tokens[credential]) func(context.Context, []byte) (string, error) {
	return func(ctx context.Context, public []byte) (string, error) {
		e := i.config.Exchange
		subject, err := os.ReadFile(e.TokenPath)
		if err != nil {
			return "", fmt.Errorf("reading the token of the service account: %w", err)
		}
		form := url.Values{
			"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
			"requested_token_type": {e.RequestedType}, "subject_token_type": {e.SubjectType}, "subject_token": {strings.TrimSpace(string(subject))},
			"public_key": {base64.StdEncoding.EncodeToString(public)}, "res_type": {e.ResourceType},
		}
		if e.Expires != "" {
			form.Set("rpst_exp", e.Expires)
		}
		address := strings.TrimSuffix(e.DomainURL, "/") + "/oauth2/v1/token"
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if !e.ByInstance {
			r.SetBasicAuth(e.ClientID, e.ClientSecret.Reveal())
			return i.send(r, "exchanging the token of the service account")
		}
		c, err := own.Get(ctx, credential{})
		if err == nil {
			err = signHeaders(r, c, time.Now(), []string{"date", "(request-target)", "host"})
		}
		if err != nil {
			return "", err
		}
		return i.send(r, "exchanging the token of the service account")
	}
}

func (i *tokenIssuer) send(r *http.Request, what string) (string, error) {
	status, header, data, err := sendAside(i.http, r, what)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token, Message string
		Problem        string `json:"error_description"`
	}
	err = json.Unmarshal(data, &answer)
	if status == http.StatusOK && err == nil && answer.Token != "" {
		return strings.TrimPrefix(answer.Token, "ST$"), nil
	}
	e := &cloudapi.Error{
		Class: cloudapi.ErrUnauthorized, Operation: what, Status: status, RetryAfter: cloudapi.ParseRetryAfter(header, time.Now()),
		Message: cmp.Or(answer.Message+answer.Problem, "the answer holds no token"),
	}
	if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError || err != nil {
		e.Class = cloudapi.ErrTransient
	}
	return "", e
}
