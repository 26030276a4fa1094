package ocisim

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ServiceToken is the only token of a service account that is exchanged, and Client and ClientSecret who may ask for that.
const (
	ServiceToken = "header.service-account.signature"
	Client       = "client"
	ClientSecret = "client-secret"
)

// defaultLife is how long tokens last.
const defaultLife = 20 * time.Minute

// session is a token that was issued, and the key that it is bound to.
type session struct {
	public *rsa.PublicKey
	ends   time.Time
}

// identity proves an instance or a service account.
type identity struct {
	leaf     []byte
	key      *rsa.PrivateKey
	sessions map[string]session
	issued   int
}

// EndSessions makes all tokens worthless.
func (s *Sim) EndSessions() { s.mu.Do(func() { s.identity.sessions = nil }) }

// Issued is how many tokens were issued.
func (s *Sim) Issued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.issued
}

// certificate is that of the instance on which the program runs.
func (s *Sim) certificate() ([]byte, *rsa.PrivateKey) {
	if s.identity.leaf != nil {
		return s.identity.leaf, s.identity.key
	}
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "opc-certtype:instance"},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "opc-tenant:" + Tenancy},
		}},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // the template is a constant
	}
	s.identity.leaf, s.identity.key = leaf, key
	return leaf, key
}

// metadata answers what an instance tells about itself.
func (s *Sim) metadata(w http.ResponseWriter, r *http.Request, path string) {
	if r.Header.Get("Authorization") != "Bearer Oracle" {
		http.Error(w, "Missing or incorrect Authorization header", http.StatusForbidden)
		return
	}
	leaf, key := s.certificate()
	texts := map[string][]byte{
		"/identity/cert.pem":         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}),
		"/identity/intermediate.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}),
		"/identity/key.pem":          pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
	if path == "/instance/" {
		write(w, http.StatusOK, map[string]string{"compartmentId": Compartment, "region": regionShown, "canonicalRegionName": Region})
		return
	}
	text, ok := texts[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(text) // a client that went away
}

// federate gives a token for the certificate of an instance.
func (s *Sim) federate(w http.ResponseWriter, r *http.Request, body []byte) {
	var asked struct {
		Certificate   string   `json:"certificate"`
		PublicKey     string   `json:"publicKey"`
		Intermediates []string `json:"intermediateCertificates"`
		Algorithm     string   `json:"fingerprintAlgorithm"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	leaf, key := s.certificate()
	if err := d.Decode(&asked); err != nil || asked.Algorithm != "SHA256" || len(asked.Intermediates) == 0 ||
		asked.Certificate != base64.StdEncoding.EncodeToString(leaf) {
		fail(w, http.StatusBadRequest, "InvalidParameter", "the request is not that of an instance")
		return
	}
	sum := sha256.Sum256(leaf)
	fingerprint := strings.ToUpper(hex.EncodeToString(sum[:]))
	colons := make([]string, 0, len(sum))
	for pair := range slices.Chunk([]byte(fingerprint), 2) {
		colons = append(colons, string(pair))
	}
	id := Tenancy + "/fed-x509-sha256/" + strings.Join(colons, ":")
	if why := verifyWith(r, body, id, &key.PublicKey, []string{"date", "(request-target)"}); why != "" {
		fail(w, http.StatusUnauthorized, "NotAuthenticated", why)
		return
	}
	s.issue(w, asked.PublicKey)
}

// exchange gives a token for that of a service account.
func (s *Sim) exchange(w http.ResponseWriter, r *http.Request, body []byte) {
	form, err := url.ParseQuery(string(body))
	user, password, basic := r.BasicAuth()
	byClient := basic && user == Client && password == ClientSecret
	switch {
	case err != nil || form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" || form.Get("res_type") == "" ||
		form.Get("requested_token_type") != "urn:oci:token-type:oci-rpst" || form.Get("subject_token_type") != "jwt":
		write(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "the form is not that of an exchange"})
	case !byClient && s.verify(r, body) != "":
		write(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "Client authentication failed."})
	case form.Get("subject_token") != ServiceToken:
		write(w, http.StatusUnauthorized, map[string]string{"error": "invalid_grant", "error_description": "the subject token is not accepted"})
	default:
		s.issue(w, form.Get("public_key"))
	}
}

// issue answers with a token that is bound to a key.
func (s *Sim) issue(w http.ResponseWriter, publicKey string) {
	der, err := base64.StdEncoding.DecodeString(publicKey)
	var parsed any
	if err == nil {
		parsed, err = x509.ParsePKIXPublicKey(der)
	}
	public, ok := parsed.(*rsa.PublicKey)
	if err != nil || !ok {
		fail(w, http.StatusBadRequest, "InvalidParameter", "publicKey is no public key")
		return
	}
	ends := time.Now().Add(defaultLife)
	s.identity.issued++
	claims := fmt.Sprintf(`{"exp":%d,"jti":"%d"}`, ends.Unix(), s.identity.issued)
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	if s.identity.sessions == nil {
		s.identity.sessions = map[string]session{}
	}
	s.identity.sessions["ST$"+token] = session{public, ends}
	write(w, http.StatusOK, map[string]string{"token": token})
}

// keyOf is the key that a caller must have signed with; nil is none.
func (s *Sim) keyOf(id string) *rsa.PublicKey {
	if id == strings.Join([]string{Tenancy, User, s.fingerprint}, "/") {
		return &userKey().PublicKey
	}
	if known, ok := s.identity.sessions[id]; ok && time.Now().Before(known.ends) {
		return known.public
	}
	return nil
}
