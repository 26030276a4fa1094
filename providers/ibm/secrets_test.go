package ibm

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// echo is a service that repeats what it was sent: the form or the body, and the headers.
func echo(w http.ResponseWriter, r *http.Request, status int, form string) {
	body, _ := io.ReadAll(r.Body) // what is cut short is repeated so
	all := fmt.Sprintf("%s %s", r.Header.Get("Authorization"), body)
	w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
	if strings.HasPrefix(form, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, form, strings.NewReplacer(`"`, "", "&", " ").Replace(all))
}

// TestSecrets: no API key, token or header is in an error, though the service repeats it in its own.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const key, bearer, proof, identity = "api-key-Xy9-secret", "eyJhbGciOi.access.secret", "service-account.token.secret", "instance-identity.secret"
	for name, c := range map[string]struct {
		more, env string
		// failing is the path that repeats what it gets.
		failing string
	}{
		"the key at IAM":                 {env: key, failing: "/identity/token"},
		"the token at the API":           {env: key, failing: "/v1/subnets"},
		"the token of a service account": {more: "g2TrustedProfileID = Profile-1\ng2TrustedProfileTokenFile = TOKEN\n", failing: "/identity/token"},
		"the identity of an instance":    {more: "g2InstanceIdentity = true\ng2MetadataEndpointOverride = HERE\n", failing: "/instance_identity/v1/iam_token"},
		"the token of a trusted profile": {more: "g2InstanceIdentity = true\ng2MetadataEndpointOverride = HERE\n", failing: "/v1/subnets"},
	} {
		for _, form := range []string{
			`{"errors":[{"code":"bad","message":"not accepted: %s"}],"errorCode":"BX","errorMessage":"not accepted: %[1]s","trace":"%[1]s"}`,
			`{"errors":[{"code":"not_found","message":"` + strings.Repeat("x", maxMessage-60) + ` %s","target":{"name":"%[1]s"}}],"errorCode":"BX","errorMessage":"%[1]s"}`,
			`<html>%s</html>`,
		} {
			for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound} {
				t.Run(fmt.Sprint(name, " ", status, form[:9]), func(t *testing.T) {
					t.Parallel()
					server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case c.failing:
							echo(w, r, status, form)
						case "/instance_identity/v1/token":
							echo(w, r, http.StatusOK, `{"access_token":"`+identity+`","expires_in":300,"said":"%s"}`)
						default:
							echo(w, r, http.StatusOK, `{"access_token":"`+bearer+`","expires_in":300,"said":"%s"}`)
						}
					}))
					defer server.Close()
					path := filepath.Join(t.TempDir(), "token")
					require.NoError(t, os.WriteFile(path, []byte(proof), 0o600))
					sim, _ := ibmsim.New(testKey, 0)
					file := sim.CloudConfig(server.URL) + strings.NewReplacer("HERE", server.URL, "TOKEN", path).Replace(c.more)
					env := map[string]string{}
					if c.env != "" {
						env[envKey] = c.env
					}
					config, _, err := parseConfig(inputs(file, env))
					require.NoError(t, err)
					assert.NotContains(t, fmt.Sprintf("%v %+v %#v", config, config, &config), key)
					a, err := newAPI(config, registry.Inputs{})
					require.NoError(t, err)
					_, _, err = a.subnets(t.Context())
					require.Error(t, err)
					for _, secret := range []string{key, bearer, proof, identity} {
						for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
							assert.NotContains(t, text, secret)
							assert.NotContains(t, text, secret[:len(secret)-4], "nor the most of it")
						}
					}
					assert.False(t, bytes.Contains([]byte(err.Error()), []byte("Bearer "+bearer)))
				})
			}
		}
	}
}
