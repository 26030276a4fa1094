package azuresim

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// TokenLife is how long a token is valid.
const TokenLife = time.Hour

// serveIdentity serves what is not Azure Resource Manager: the description of the cloud, and tokens.
func (s *Sim) serveIdentity(w http.ResponseWriter, r *http.Request) bool {
	path := strings.ToLower(r.URL.Path)
	switch {
	case path == "/metadata/endpoints":
		write(w, http.StatusOK, []any{object{
			"name": "AzureCloud", "resourceManager": "http://" + r.Host + "/", "authentication": object{
				"loginEndpoint": "http://" + r.Host + "/", "audiences": []any{"https://management.core.windows.net/", "https://management.azure.com/"}, "tenant": "common",
			},
		}})
	case path == "/metadata/identity/oauth2/token":
		s.serveManagedIdentity(w, r)
	case strings.HasSuffix(path, "/.well-known/openid-configuration"):
		base := "https://" + r.Host + "/" + Tenant
		write(w, http.StatusOK, object{
			"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "issuer": base + "/v2.0",
		})
	case path == "/"+strings.ToLower(Tenant)+"/oauth2/v2.0/token":
		s.serveToken(w, r)
	default:
		return false
	}
	return true
}

// serveToken gives a token for the secret of the service principal, or for an assertion.
func (s *Sim) serveToken(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost {
		write(w, http.StatusBadRequest, object{"error": "invalid_request", "error_description": "AADSTS900144: The request body must contain parameters."})
		return
	}
	given := r.Form.Get("client_secret") + r.Form.Get("client_assertion")
	refused := s.secret != "" && given != s.secret && strings.Count(given, ".") != 2 // an assertion is a JWT
	switch {
	case r.Form.Get("grant_type") != "client_credentials" || !strings.HasSuffix(r.Form.Get("scope"), ".default openid offline_access profile") &&
		!strings.HasSuffix(r.Form.Get("scope"), ".default"):
		write(w, http.StatusBadRequest, object{"error": "invalid_request", "error_description": "AADSTS90014: a required field is missing: " + r.Form.Get("scope")})
	case given == "" || refused || r.Form.Get("client_id") == "":
		write(w, http.StatusUnauthorized, object{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."})
	case s.certificate != nil && !s.isSigned(r.Form.Get("client_assertion")):
		write(w, http.StatusUnauthorized, object{"error": "invalid_client", "error_description": "AADSTS700027: The certificate with identifier used " +
			"to sign the client assertion is not registered on application."})
	default:
		write(w, http.StatusOK, s.newToken())
	}
}

// TrustCertificate makes the certificate of a PEM file the only login.
func (s *Sim) TrustCertificate(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block, _ := pem.Decode(data)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err) // the test's own
	}
	s.certificate = c
}

// isSigned reports whether an assertion is signed by the trusted certificate, and carries it.
func (s *Sim) isSigned(assertion string) bool {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return false
	}
	var header struct {
		Algorithm string   `json:"alg"`
		Chain     []string `json:"x5c"`
	}
	head, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || json.Unmarshal(head, &header) != nil || len(header.Chain) == 0 ||
		header.Chain[0] != base64.StdEncoding.EncodeToString(s.certificate.Raw) {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	key, ok := s.certificate.PublicKey.(*rsa.PublicKey)
	if err != nil || !ok {
		return false
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if header.Algorithm == "PS256" {
		return rsa.VerifyPSS(key, crypto.SHA256, sum[:], signature, nil) == nil
	}
	return header.Algorithm == "RS256" && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
}

func (s *Sim) serveManagedIdentity(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("resource") == "" {
		write(w, http.StatusBadRequest, object{"error": "invalid_request", "error_description": "Required metadata header not specified"})
		return
	}
	token := s.newToken()
	token["expires_in"], token["resource"] = fmt.Sprint(token["expires_in"]), r.URL.Query().Get("resource")
	write(w, http.StatusOK, token)
}

func (s *Sim) newToken() object {
	s.number++
	token := "token-" + guid(s.number)
	s.tokens[token] = time.Now().Add(TokenLife)
	return object{"token_type": "Bearer", "expires_in": int(TokenLife.Seconds()), "ext_expires_in": int(TokenLife.Seconds()), "access_token": token}
}

// serveProvider tells the zones of each location.
func (*Sim) serveProvider(w http.ResponseWriter, r *http.Request) *failure {
	if r.Method != http.MethodGet {
		return fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The method is not allowed.")
	}
	zones := []any{object{"location": "West Europe", "zones": []any{"2", "1", "3"}}, object{"location": "West US", "zones": []any{}}}
	write(w, http.StatusOK, object{
		"id": "/subscriptions/" + Subscription + "/providers/Microsoft.Compute", "namespace": "Microsoft.Compute", "registrationState": "Registered",
		"resourceTypes": []any{object{
			"resourceType": "virtualMachines", "locations": []any{"West Europe", "West US"}, "zoneMappings": zones,
			"apiVersions": []any{computeVersion}, "defaultApiVersion": computeVersion, "capabilities": "CrossResourceGroupResourceMove",
		}},
	})
	return nil
}
