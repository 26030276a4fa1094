package photon

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
)

// TestDialects: each generation of the API is found out by one question after the other, without a token.
func TestDialects(t *testing.T) {
	for name, d := range map[string]photonsim.Dialect{"1.1": photonsim.Old(), "interim": photonsim.Interim(), "1.2": photonsim.New12()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, d, func(w *testWorld) {
				n := nodeOf(w.sim.Add("worker"))
				w.requireExists(n)
				assert.NotEmpty(w, w.requireMetadata(newNode("worker", "")).NodeAddresses)
				before := w.server.Calls()
				for _, c := range before.Latest[:1] {
					assert.Equal(w, "/v1/system/auth", c.URL)
				}
				assert.Equal(w, name, w.cloud.api.dialect.name)
				w.env["PHOTON_DIALECT"] = name
				w.server.ResetCalls()
				w.start()
				w.requireExists(n)
				assert.Equal(w, d.Auth, w.server.Calls().Latest[0].URL, "it is not asked for where it is known")
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		inWorld(t, photonsim.New12(), func(w *testWorld) {
			w.fail(simkit.Fault{Kind: simkit.FaultHTML})
			w.requireDoubt(newNode("worker", providerIDPrefix+"x"), "asking for authentication at /v1/auth")
			w.requireDoubt(newNode("worker", providerIDPrefix+"x"), "none of its paths is answered")
			w.server.ClearFaults()
			w.later()
			w.requireExists(nodeOf(w.sim.Add("worker")))
		})
	})
}

func TestWithoutAuthentication(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		sim, server := photonsim.New(photonsim.New12(), 1)
		w.env = sim.Variables(w.network.Serve(w, server))
		w.start()
		v := sim.Add("worker")
		w.requireExists(nodeOf(v))
		for _, c := range server.Calls().Latest {
			assert.Equal(w, http.MethodGet, c.Method)
		}
	})
}

func (w *testWorld) requireLogins(accepted, refused, renewed int) {
	w.Helper()
	a, r, n := w.sim.Logins()
	require.Equal(w, []int{accepted, refused, renewed}, []int{a, r, n})
}

func TestExpiredTokenIsRenewed(t *testing.T) {
	inWorld(t, photonsim.Interim(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.requireExists(n)
		w.requireLogins(1, 0, 0)
		w.sim.EndTokens(false)
		w.later()
		w.requireExists(n)
		w.requireLogins(1, 0, 1)
		w.sim.EndTokens(true)
		w.later()
		w.requireExists(n)
		w.requireLogins(2, 0, 1)
	})
}

// TestRefusedPasswordIsNotRepeated, until another one is in the file.
func TestRefusedPasswordIsNotRepeated(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		path := filepath.Join(w.TempDir(), "login")
		require.NoError(w, os.WriteFile(path, []byte(photonsim.User+"\nwrong\n"), 0o600))
		delete(w.env, "PHOTON_USERNAME")
		delete(w.env, "PHOTON_PASSWORD")
		w.env["PHOTON_LOGIN_FILE"] = path
		w.start()
		for range 11 {
			w.requireDoubt(n, "incorrect username or password; check user and password")
			time.Sleep(5 * time.Second)
		}
		w.requireLogins(0, 1, 0)
		require.NoError(w, os.WriteFile(path, []byte(photonsim.User+"\r\n"+photonsim.Password+"\r\n"), 0o600))
		time.Sleep(10 * time.Second)
		w.requireExists(n)
		w.requireLogins(1, 1, 0)
		w.requireNoRequestOtherThan(http.MethodGet)
	})
}

func (w *testWorld) requireNoRequestOtherThan(method string) {
	w.Helper()
	calls := w.server.Calls()
	assert.Zero(w, calls.Writes)
	for _, c := range calls.Latest {
		assert.True(w, c.Method == method || c.Operation == "POST "+tokenPath, c.Operation)
	}
}

func TestNothingIsWritten(t *testing.T) {
	inWorld(t, photonsim.Old(), func(w *testWorld) {
		v, other := w.sim.Add("worker"), w.sim.Add("other")
		w.requireMetadata(newNode("worker", ""))
		w.shutDown(nodeOf(other))
		w.sim.Remove(v.ID)
		w.later()
		w.requireGone(nodeOf(v))
		w.requireNoRequestOtherThan(http.MethodGet)
		w.requireNothingRefused()
		assert.Empty(w, w.network.Strangers())
	})
}

// TestCertificates: that they are verified is new, so that the error names both ways out.
func TestCertificates(t *testing.T) {
	t.Parallel()
	sim, handler := photonsim.New(photonsim.New12(), 0)
	v := sim.Add("worker")
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, bundle, 0o600))
	ask := func(more ...string) error {
		env := sim.Variables(server.URL)
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		c, err := maker().New(conformance.Inputs(nil, env))
		require.NoError(t, err)
		defer c.api.http.Close()
		_, err = c.instances.read(t.Context(), v.ID)
		return err
	}
	require.NoError(t, ask("PHOTON_CA_FILE", file))
	require.NoError(t, ask("PHOTON_IGNORE_CERTIFICATE", "true"))
	err := ask()
	require.ErrorContains(t, err, "set [Global] caFile to the authority")
	require.ErrorContains(t, err, "or [Global] ignoreCertificate = true")
}

func TestTooManyRequests(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.requireExists(n)
		w.later()
		w.server.ResetCalls()
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 60})
		for range 20 {
			w.requireDoubt(n, "rate limited")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(w, w.server.Calls().Total, 2, "no burst")
		w.server.ClearFaults()
		w.later()
		w.requireExists(n)
	})
}

func TestSecretsAreInNoMessage(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for _, f := range []simkit.Fault{
			{Kind: simkit.FaultReset},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultStatus, Status: 400},
			{Kind: simkit.FaultStatus, Status: 401},
			{Kind: simkit.FaultRedirect},
			{Kind: simkit.FaultCut},
			{Kind: simkit.FaultStatus, Status: 500, Operation: "POST " + tokenPath},
		} {
			w.fail(f)
			w.start()
			_, err := w.exists(n)
			require.Error(w, err, f.Kind)
			for _, secret := range []string{photonsim.Password, "a%26b%2B", "access-", "refresh+"} {
				assert.NotContains(w, err.Error(), secret)
			}
			w.server.ClearFaults()
			w.later()
		}
	})
}
