package oci

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// renewBefore is how long before its end a token is replaced.
	renewBefore = 5 * time.Minute
	// refusedPause is the least time between two tokens that were asked for because the one before was refused.
	refusedPause = 20 * time.Second
	// sessionKeyBits is the size that the cloud requires of keys bound to tokens.
	sessionKeyBits = 3072
	// maxToken bounds an answer of who gives tokens.
	maxToken = 64 << 10
)

// tokens gives credentials that consist of a token and the key that it is bound to, and asks for another one before it ends.
type tokens struct {
	fetch func(ctx context.Context, public []byte) (token string, err error)

	// turn holds the rest for one caller at a time. fetched is when the latest was asked for, and failed when that failed since.
	turn            chan struct{}
	current         *credential
	next            *rsa.PrivateKey // of the token that was asked for in vain
	ends            time.Time
	fetched, failed time.Time
}

func newTokens(fetch func(context.Context, []byte) (string, error)) *tokens {
	return &tokens{fetch: fetch, turn: make(chan struct{}, 1)}
}

// credential is one that is good for a while. refused is the ID of one that the API did not accept, "" if there is none.
func (t *tokens) credential(ctx context.Context, refused string) (credential, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return credential{}, fmt.Errorf("waiting for a token: %w", ctx.Err())
	}
	defer func() { <-t.turn }()
	now := time.Now()
	if !t.stale(refused, now) {
		return *t.current, nil
	}
	usable := t.current != nil && t.current.id != refused && now.Before(t.ends)
	if usable && now.Sub(t.failed) < refusedPause {
		return *t.current, nil
	}
	c, ends, err := t.another(ctx)
	switch {
	case err == nil:
		t.current, t.ends, t.fetched = &c, ends, now
	case usable: // it is early to replace the token, which is good for the rest of its time
		t.failed = now
	default:
		return credential{}, err
	}
	return *t.current, nil
}

// stale reports whether another token is due: before the end of the present one, or where it was refused.
func (t *tokens) stale(refused string, now time.Time) bool {
	if t.current == nil {
		return true
	}
	margin := min(renewBefore, t.ends.Sub(t.fetched)/4) // a token may last for less than the usual margin
	return t.ends.Sub(now) < margin || (refused == t.current.id && now.Sub(t.fetched) >= refusedPause)
}

// another asks for a token that is bound to a new key.
func (t *tokens) another(ctx context.Context) (credential, time.Time, error) {
	if t.next == nil {
		key, err := rsa.GenerateKey(rand.Reader, sessionKeyBits)
		if err != nil {
			return credential{}, time.Time{}, fmt.Errorf("making the key of a session: %w", err)
		}
		t.next = key
	}
	key := t.next
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return credential{}, time.Time{}, fmt.Errorf("encoding the key of a session: %w", err)
	}
	token, err := t.fetch(ctx, public)
	if err != nil {
		return credential{}, time.Time{}, err
	}
	t.next = nil
	ends, err := endOf(token)
	return credential{id: "ST$" + token, key: key}, ends, err
}

// endOf is when a token ends, as it says itself.
func endOf(token string) (time.Time, error) {
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

// issuer asks those who give tokens. Their answers must not be logged, and asking twice does no harm.
type issuer struct {
	http     *cloudapi.Client
	config   Config
	metadata *metadata
	location func(context.Context) (location, error)
}

func newIssuer(c Config, in registry.Inputs, m *metadata, where func(context.Context) (location, error)) *issuer {
	return &issuer{config: c, metadata: m, location: where, http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Dial: in.Dial, Timeout: 10 * time.Second,
		Operation:  func(*http.Request) string { return "POST token" },
		Limits:     []cloudapi.Limit{{PerSecond: 0.1, Burst: 5}},
		Repeatable: func(*http.Request) bool { return true },
	})}
}

// instancePrincipal asks for a token as the instance that the program runs on.
func (i *issuer) instancePrincipal(ctx context.Context, public []byte) (string, error) {
	where, err := i.location(ctx)
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
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.config.baseURL(where.region, "auth")+"/v1/x509", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	c := credential{id: tenancyOf(leaf) + "/fed-x509-sha256/" + fingerprint(leaf.Raw), key: key}
	if err := signHeaders(r, c, time.Now(), []string{"date", "(request-target)"}); err != nil {
		return "", err
	}
	return i.ask(r, "asking for a token as instance principal")
}

// certificate is that of the instance, with its key; both change every few hours.
func (i *issuer) certificate(ctx context.Context) (*x509.Certificate, *rsa.PrivateKey, error) {
	const what = "reading the identity of the instance"
	text, err := i.metadata.text(ctx, "/identity/cert.pem")
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, nil, cloudapi.Unclear(what, "the certificate is no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, cloudapi.Unclear(what, "the certificate is no certificate")
	}
	if tenancyOf(leaf) == "" {
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

// tenancyOf is the tenancy that a certificate of an instance names.
func tenancyOf(c *x509.Certificate) string {
	for _, name := range c.Subject.Names {
		text, _ := name.Value.(string)
		if tenancy, ok := strings.CutPrefix(text, "opc-tenant:"); ok {
			return tenancy
		}
	}
	return ""
}

// fingerprint is that of a certificate, as the cloud writes it.
func fingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// exchange asks an identity domain for a token in exchange for that of a service account.
func (i *issuer) exchange(own *tokens) func(context.Context, []byte) (string, error) {
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
			return i.ask(r, "exchanging the token of the service account")
		}
		c, err := own.credential(ctx, "")
		if err == nil {
			err = signHeaders(r, c, time.Now(), []string{"date", "(request-target)", "host"})
		}
		if err != nil {
			return "", err
		}
		return i.ask(r, "exchanging the token of the service account")
	}
}

// ask sends a request for a token.
func (i *issuer) ask(r *http.Request, what string) (string, error) {
	ctx, _ := cloudapi.WatchListing(r.Context()) // it is no page of the listing that it may be asked for
	answer, err := i.http.Do(r.WithContext(ctx))
	if err != nil {
		return "", cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxToken))
	if err != nil {
		return "", cloudapi.Describe(err, what)
	}
	var said struct {
		Token   string `json:"token"`
		Message string `json:"message"`
		Problem string `json:"error_description"`
	}
	err = json.Unmarshal(data, &said)
	if answer.StatusCode == http.StatusOK && err == nil && said.Token != "" {
		return strings.TrimPrefix(said.Token, "ST$"), nil
	}
	e := &cloudapi.Error{
		Class: cloudapi.ErrUnauthorized, Operation: what, Status: answer.StatusCode, Message: said.Message + said.Problem,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= http.StatusInternalServerError || err != nil {
		e.Class = cloudapi.ErrTransient
	}
	if e.Message == "" {
		e.Message = "the answer holds no token"
	}
	return "", e
}
