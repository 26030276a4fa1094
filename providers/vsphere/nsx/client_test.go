package nsx

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// credential writes the Secret with NSX's credentials.
func (w *testWorld) credential(password string) {
	w.T.Helper()
	s := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nsx"},
		Data:       map[string][]byte{"username": []byte(testUser), "password": []byte(password + "\n")},
	}
	secrets := w.Kube.CoreV1().Secrets(s.Namespace)
	if _, err := secrets.Create(w.T.Context(), s, metav1.CreateOptions{}); err != nil {
		_, err = secrets.Update(w.T.Context(), s, metav1.UpdateOptions{})
		require.NoError(w.T, err)
	}
}

func bySecret(c *Config) {
	c.NSXT.User, c.NSXT.Password = "", schema.Secret{}
	c.NSXT.SecretName, c.NSXT.SecretNamespace = "nsx", "kube-system"
}

// Credentials come from a Secret: nothing is asked before it is read, and a change of it is used.
func TestCredentialsFromSecret(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, bySecret, func(w *testWorld) {
		ctx := w.T.Context()
		require.ErrorContains(w.T, w.CheckAPI(ctx), "NSX's credentials are not known")
		assert.Zero(w.T, w.server.Calls().Total, "no login without credentials")
		time.Sleep(failedHold)
		w.credential(testPassword)
		require.NoError(w.T, w.CheckAPI(ctx))
		assert.Zero(w.T, w.sim.FailedLogins())

		w.sim.SetPassword("renewed")
		w.views().InvalidateAll()
		require.ErrorIs(w.T, w.CheckAPI(ctx), cloudapi.ErrUnauthorized)
		assert.Equal(w.T, 1, w.sim.FailedLogins(), "the same password is not tried twice")
		w.credential("renewed")
		w.views().InvalidateAll()
		time.Sleep(failedHold)
		require.NoError(w.T, w.CheckAPI(ctx))
		w.sim.SetPassword("renewed-again")
		w.credential("renewed-again")
		w.views().InvalidateAll()
		require.NoError(w.T, w.CheckAPI(ctx), "what was refused is read again at once")

		require.NoError(w.T, w.Kube.CoreV1().Secrets("kube-system").Delete(ctx, "nsx", metav1.DeleteOptions{}))
		time.Sleep(secretMaxAge + time.Second)
		w.views().InvalidateAll()
		require.ErrorContains(w.T, w.CheckAPI(ctx), "NSX's credentials are not known")
		for _, a := range w.Kube.Actions() {
			if a.GetResource().Resource == "secrets" {
				assert.Contains(w.T, []string{"get", "create", "update", "delete"}, a.GetVerb(), "the one Secret is read, and no other")
			}
		}
	})
}

func TestSecretWithoutPassword(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, bySecret, func(w *testWorld) {
		_, err := w.Kube.CoreV1().Secrets("kube-system").Create(w.T.Context(), &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nsx"}, Data: map[string][]byte{"username": []byte("x")},
		}, metav1.CreateOptions{})
		require.NoError(w.T, err)
		require.ErrorContains(w.T, w.CheckAPI(w.T.Context()), "it must have the keys username and password")
		assert.Zero(w.T, w.server.Calls().Total)
	})
}

// views returns the caches that the test makes outdated.
func (w *testWorld) views() interface{ InvalidateAll() } { return w.loadBalancers.views.ipPools }

// The token of VMware Cloud is renewed before its end, and when NSX refuses it.
func TestTokenOfVMwareCloudIsRenewed(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{RefreshToken: "refresh"}, func(c *Config) {
		c.NSXT.VMCAccessToken, c.NSXT.VMCAuthHost = schema.NewSecret("refresh"), c.NSXT.Host+nsxsim.TokenPath
	}, func(w *testWorld) {
		exchanges := func() int { return w.server.Calls().ByOperation["POST "+nsxsim.TokenPath] }
		ask := func() {
			w.views().InvalidateAll()
			require.NoError(w.T, w.CheckAPI(w.T.Context()))
		}
		ask()
		ask()
		assert.Equal(w.T, 1, exchanges())
		time.Sleep(29 * time.Minute)
		ask()
		assert.Equal(w.T, 2, exchanges(), "before it ends")
		w.sim.RevokeTokens()
		ask()
		assert.Equal(w.T, 3, exchanges(), "after a refusal")
		assert.Equal(w.T, 1, w.sim.FailedLogins())
	})
}

func TestTokenOfVMwareCloudIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{RefreshToken: "refresh"}, func(c *Config) {
		c.NSXT.VMCAccessToken, c.NSXT.VMCAuthHost = schema.NewSecret("old-refresh"), c.NSXT.Host+nsxsim.TokenPath
	}, func(w *testWorld) {
		for range 3 {
			err := w.CheckAPI(w.T.Context())
			require.ErrorContains(w.T, err, "Invalid refresh token")
			assert.NotContains(w.T, err.Error(), "old-refresh")
		}
		assert.Equal(w.T, 1, w.server.Calls().Total, "a failure is believed for a while")
	})
}

func TestWrongPasswordIsOneFailedLogin(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, func(c *Config) { c.NSXT.Password = schema.NewSecret("wrong") }, func(w *testWorld) {
		require.ErrorIs(w.T, w.CheckAPI(w.T.Context()), cloudapi.ErrUnauthorized)
		assert.Equal(w.T, 1, w.sim.FailedLogins())
		require.Error(w.T, w.client.http.Health())
	})
}

func TestRemoteAuth(t *testing.T) {
	t.Parallel()
	a := &authorizer{config: managerConfig{User: "u", Password: schema.NewSecret("p"), RemoteAuth: true}}
	require.NoError(t, a.ensureFresh(t.Context()))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	a.authorize(r)
	assert.Equal(t, "Remote dTpw", r.Header.Get("Authorization"))
}

// The manager's certificate must be signed by what caFile holds; a client certificate is sent in the place of all else.
func TestTLSOfNSX(t *testing.T) {
	t.Parallel()
	var seen *tls.ConnectionState
	var authorization string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen, authorization = r.TLS, r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"results":[],"result_count":0}`))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file := func(name, kind string, data []byte) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return at
	}
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	roots, keyFile := file("ca.pem", "CERTIFICATE", server.Certificate().Raw), file("key.pem", "PRIVATE KEY", key)
	ask := func(c managerConfig) error {
		c.Host = server.URL
		n, err := newClient(c, provider, conformance.Inputs(nil, nil))
		if err == nil {
			_, _, err = listObjects[ipPool](t.Context(), n, kindIPPool, pathIPPools)
		}
		return err
	}
	user := managerConfig{User: "u", Password: schema.NewSecret("p")}
	require.ErrorContains(t, ask(user), "certificate")
	user.Insecure = true
	require.NoError(t, ask(user))
	assert.True(t, strings.HasPrefix(authorization, "Basic "))
	require.NoError(t, ask(managerConfig{User: "u", CAFile: roots + ":" + roots, ClientCertFile: roots, ClientKeyFile: keyFile}))
	assert.Len(t, seen.PeerCertificates, 1)
	assert.Empty(t, authorization)
	require.ErrorContains(t, ask(managerConfig{CAFile: filepath.Join(dir, "nowhere")}), "reading caFile")
	require.ErrorContains(t, ask(managerConfig{CAFile: keyFile}), "holds no certificate")
	require.ErrorContains(t, ask(managerConfig{ClientCertFile: roots, ClientKeyFile: roots}), "reading the client certificate")
}

// What NSX says is mapped; what something in between says proves nothing.
func TestErrorsOfNSX(t *testing.T) {
	t.Parallel()
	json := "application/json"
	for _, c := range []struct {
		status       int
		kind, body   string
		class, cause error
	}{
		{404, json, `{"httpStatus":"NOT_FOUND","error_code":600,"error_message":"gone"}`, cloudapi.ErrNotFound, nil},
		{404, "text/html", `<html>`, cloudapi.ErrTransient, nil},
		{404, json, `{"fault":"proxy"}`, cloudapi.ErrTransient, nil},
		{401, "text/html", `<html>`, cloudapi.ErrUnauthorized, nil},
		{403, json, `{"error_code":403,"error_message":"no"}`, cloudapi.ErrUnauthorized, nil},
		{412, json, `{"error_code":604,"error_message":"revision"}`, cloudapi.ErrConflict, nil},
		{409, json, `{"error_code":604,"error_message":"revision"}`, cloudapi.ErrConflict, nil},
		{400, json, `{"error_code":1,"error_message":"whatever"}`, cloudapi.ErrInvalid, nil},
		{429, json, `{"error_code":102,"error_message":"exceeded request rate"}`, cloudapi.ErrRateLimited, nil},
		{503, json, `{"error_code":98,"error_message":"exceeded request concurrency"}`, cloudapi.ErrRateLimited, nil},
		{503, json, `{"error_code":99,"error_message":"not ready"}`, cloudapi.ErrTransient, nil},
	} {
		answer := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}}
		err := responseError(answer, "asking", []byte(c.body))
		require.ErrorIs(t, err, c.class, c.body)
		if c.cause != nil {
			assert.ErrorIs(t, err, c.cause, c.body)
		}
	}
}

// TestRefusedDeletions: whatever code NSX gives, an object that it does not delete is in use; a page in between says nothing.
func TestRefusedDeletions(t *testing.T) {
	t.Parallel()
	for status, referenced := range map[int]bool{400: true, 409: true, 412: true, 403: false, 404: false, 429: false, 500: false} {
		answer := &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: httptest.NewRequest(http.MethodDelete, "/", nil),
		}
		err := responseError(answer, "deleting", []byte(`{"error_code":1,"error_message":"no"}`))
		assert.Equal(t, referenced, errors.Is(err, errReferenced), status)
		answer.Header.Set("Content-Type", "text/html")
		assert.NotErrorIs(t, responseError(answer, "deleting", []byte("<html>")), errReferenced, status)
	}
}

func TestNSXOperations(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/policy/api/v1/infra":                                  "/policy/api/v1/infra",
		"/policy/api/v1/infra/lb-pools":                         "/policy/api/v1/infra/lb-pools",
		"/policy/api/v1/infra/lb-pools/x":                       "/policy/api/v1/infra/lb-pools/{id}",
		"/policy/api/v1/infra/ip-pools/a/ip-allocations/b":      "/policy/api/v1/infra/ip-pools/{id}/ip-allocations/{id}",
		"/policy/api/v1/infra/tier-1s/lb-pools/static-routes/x": "/policy/api/v1/infra/tier-1s/{id}/static-routes/{id}",
		"/policy/api/v1/infra/realized-state/realized-entities": "/policy/api/v1/infra/realized-state/realized-entities",
		"/policy/api/v1/infra/anything/else":                    "other",
		"/elsewhere":                                            "other",
	} {
		assert.Equal(t, "GET "+want, operation(httptest.NewRequest(http.MethodGet, path, nil)), path)
	}
}

// Fields that this program does not know go back as they came.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	p := &serverPool{}
	require.NoError(t, decodeObject([]byte(`{"id":"x","algorithm":"IP_HASH","members":[{"ip_address":"10.0.0.1","weight":2}],"_revision":3,"new_field":{"a":1}}`), p))
	p.Members = append(p.Members, poolMember{IPAddress: "10.0.0.2"})
	body, err := encodeObject(p)
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"x","algorithm":"IP_HASH","members":[{"ip_address":"10.0.0.1","weight":2},{"ip_address":"10.0.0.2"}],"_revision":3,"new_field":{"a":1}}`, string(body))
}
