package ocisim

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// newKey makes a key of the simulator's own, with fewer bits than the cloud asks for: signatures are most of what thousands of simulated
// calls cost. Go makes one of 512 bits only where GODEBUG has rsa1024min=0, as it has in this cloud's tests.
func newKey() *rsa.PrivateKey {
	var refused error
	for _, bits := range []int{512, 1024} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err == nil {
			return key
		}
		refused = err
	}
	panic(refused) // the machine has no randomness
}

// userKey makes the key of the only user when it is first asked for. All simulators of a program have the same, because tests make
// thousands of them.
var userKey = sync.OnceValue(newKey) //nolint:gochecknoglobals // it never changes, and making one takes longer than a test

// userPEM is that key as the cloud config has it.
func userPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(userKey())}))
}

// maxSkew is how far a clock may be off.
const maxSkew = 5 * time.Minute

var authorization = regexp.MustCompile(`^Signature (?:[a-zA-Z]+="[^"]*",?)+$`)

var parameter = regexp.MustCompile(`([a-zA-Z]+)="([^"]*)"`)

// signatureParams are the parameters of the signature of a request.
func signatureParams(r *http.Request) map[string]string {
	text := r.Header.Get("Authorization")
	if !authorization.MatchString(text) {
		return nil
	}
	parameters := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		parameters[m[1]] = m[2]
	}
	return parameters
}

const incorrect = "The required information to complete authentication was not provided or was incorrect."

// verify returns why a request is not authenticated, or "".
func (s *Sim) verify(r *http.Request, body []byte) string {
	id := signatureParams(r)["keyId"]
	key := s.keyOf(id)
	if key == nil {
		return incorrect
	}
	return verifyWith(r, body, id, key, []string{"date", "(request-target)", "host"})
}

// verifyWith returns why a request is not signed by a key over what is needed, or "".
func verifyWith(r *http.Request, body []byte, id string, key *rsa.PublicKey, needed []string) string {
	said := signatureParams(r)
	headers := strings.Fields(said["headers"])
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		needed = append(slices.Clone(needed), "content-length", "content-type", "x-content-sha256")
		if sum := sha256.Sum256(body); r.Header.Get("X-Content-Sha256") != base64.StdEncoding.EncodeToString(sum[:]) {
			return "The hash of the body does not match x-content-sha256."
		}
	}
	at, err := http.ParseTime(r.Header.Get("Date"))
	switch {
	case said["version"] != "1" || said["algorithm"] != "rsa-sha256":
		return "The signature has another version or algorithm."
	case said["keyId"] != id:
		return incorrect
	case err != nil || time.Since(at).Abs() > maxSkew:
		return "The date is not within the allowed clock skew."
	}
	for _, name := range needed {
		if !slices.Contains(headers, name) {
			return "The header " + name + " is not signed."
		}
	}
	lines := make([]string, len(headers))
	for i, name := range headers {
		lines[i] = name + ": " + headerOf(r, name)
	}
	signature, err := base64.StdEncoding.DecodeString(said["signature"])
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	if err != nil || rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return "Failed to verify the HTTP(S) Signature."
	}
	return ""
}

// headerOf returns a header as it was signed. The target is the one that was sent, even if a fault has changed it since.
func headerOf(r *http.Request, name string) string {
	switch name {
	case "(request-target)":
		return strings.ToLower(r.Method) + " " + r.RequestURI
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	return r.Header.Get(name)
}
