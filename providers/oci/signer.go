package oci

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
)

// credential is a key, and its ID in the cloud.
type credential struct {
	id  string
	key *rsa.PrivateKey
}

// newSigner returns a transport that signs each attempt of a call.
func newSigner(token func(ctx context.Context, refused credential) (credential, error), next http.RoundTripper) http.RoundTripper {
	return &session.Transport[credential]{Token: token, Next: next, Authorize: func(r *http.Request, c credential) error {
		return signHeaders(r, c, time.Now(), []string{"date", "(request-target)", "host"})
	}}
}

// userKey returns the key of a user.
func userKey(c Config) func(context.Context, credential) (credential, error) {
	known := credential{strings.Join([]string{c.Tenancy, c.User, c.Fingerprint}, "/"), c.key}
	return func(context.Context, credential) (credential, error) { return known, nil }
}

// signHeaders signs some headers of a request, and its body.
func signHeaders(r *http.Request, c credential, now time.Time, headers []string) error {
	r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return err
			}
			r.Body.Close()
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		sum := sha256.Sum256(body)
		r.Header.Set("X-Content-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/json")
		}
		headers = append(headers, "content-length", "content-type", "x-content-sha256")
	}
	sum := sha256.Sum256([]byte(signingText(r, headers)))
	signature, err := rsa.SignPKCS1v15(rand.Reader, c.key, crypto.SHA256, sum[:])
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", fmt.Sprintf(`Signature version="1",headers="%s",keyId="%s",algorithm="rsa-sha256",signature="%s"`,
		strings.Join(headers, " "), c.id, base64.StdEncoding.EncodeToString(signature)))
	return nil
}

// signingText returns the text to sign.
func signingText(r *http.Request, headers []string) string {
	lines := make([]string, len(headers))
	for i, name := range headers {
		value := r.Header.Get(name)
		switch name {
		case "(request-target)":
			value = strings.ToLower(r.Method) + " " + r.URL.RequestURI()
		case "host":
			if value = r.Host; value == "" {
				value = r.URL.Host
			}
		}
		lines[i] = name + ": " + value
	}
	return strings.Join(lines, "\n")
}

// parseKey parses a private key in PEM, in the forms PKCS#1 and PKCS#8. Its errors never quote the key.
func parseKey(text, passphrase []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	data, refusal := block.Bytes, errors.New("it is neither PKCS#1 nor PKCS#8")
	if x509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // what Oracle's documentation made keys with for years
		refusal = errors.New("it is encrypted, and auth.key_passphrase does not open it")
		var err error
		if data, err = x509.DecryptPEMBlock(block, passphrase); err != nil { //nolint:staticcheck // the same
			return nil, refusal
		}
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" {
		return nil, errors.New("it is encrypted as PKCS#8, which is not served yet; convert it with openssl rsa -traditional")
	}
	if key, err := x509.ParsePKCS1PrivateKey(data); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(data)
	if err != nil {
		return nil, refusal // one wrong passphrase in 256 opens it to something else
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is no RSA key")
	}
	return key, nil
}
