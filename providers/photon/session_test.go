package photon

import (
	"net/http"
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

// TestDialects: the dialect is detected without a token, by one call after the other.
func TestDialects(t *testing.T) {
	for name, d := range map[string]photonsim.Dialect{"1.1": photonsim.Old(), "interim": photonsim.Interim(), "1.2": photonsim.New12()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, d, func(w *testWorld) {
				n := nodeOf(w.sim.Add("worker"))
				w.RequireExists(n)
				assert.NotEmpty(w, w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses)
				before := w.Server.Calls()
				for _, c := range before.Latest[:1] {
					assert.Equal(w, "/v1/system/auth", c.URL)
				}
				assert.Equal(w, name, w.dialect())
				w.Env["PHOTON_DIALECT"] = name
				w.Server.ResetCalls()
				w.start()
				w.RequireExists(n)
				assert.Equal(w, d.Auth, w.Server.Calls().Latest[0].URL, "it is not asked for where it is known")
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		inWorld(t, photonsim.New12(), func(w *testWorld) {
			w.Fail(simkit.Fault{Kind: simkit.FaultHTML})
			w.RequireDoubt(conformance.NewNode("worker", providerIDPrefix+"x"), "asking for authentication at /v1/auth")
			w.RequireDoubt(conformance.NewNode("worker", providerIDPrefix+"x"), "none of its paths is answered")
			w.Server.ClearFaults()
			w.Later()
			w.RequireExists(nodeOf(w.sim.Add("worker")))
		})
	})
}

// TestNetworksOfTheOldestServers: servers before 1.0 use another word in the path, which is detected once; newer ones never get that call.
func TestNetworksOfTheOldestServers(t *testing.T) {
	const subnets, networks = "GET /vms/{id}/subnets", "GET /vms/{id}/networks"
	inWorld(t, photonsim.Oldest(), func(w *testWorld) {
		for i, name := range []string{"one", "two"} {
			v := w.sim.Add(name)
			w.Later()
			assert.NotEmpty(w, w.RequireMetadata(conformance.NewNode(v.Name, "")).NodeAddresses)
			assert.Equal(w, []int{1, i + 1}, []int{w.Calls(subnets), w.Calls(networks)})
		}
		assert.Equal(w, "1.1", w.dialect())
	})
	t.Run("others", func(t *testing.T) {
		for _, d := range []photonsim.Dialect{photonsim.Old(), photonsim.New12()} {
			t.Run(d.Auth, func(t *testing.T) {
				inWorld(t, d, func(w *testWorld) {
					w.sim.Add("worker")
					w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: subnets})
					_, err := w.Metadata(conformance.NewNode("worker", ""))
					require.ErrorContains(w, err, "NotFound: simulated fault")
					w.Server.ClearFaults()
					w.Later()
					assert.NotEmpty(w, w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses)
				})
			})
		}
	})
}

func TestWithoutAuthentication(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		sim, server := photonsim.New(photonsim.New12(), 1)
		w.Env = sim.Variables(w.Network.Serve(w, server))
		w.start()
		v := sim.Add("worker")
		w.RequireExists(nodeOf(v))
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
		w.RequireExists(n)
		w.requireLogins(1, 0, 0)
		w.sim.EndTokens(false)
		w.Later()
		w.RequireExists(n)
		w.requireLogins(1, 0, 1)
		w.sim.EndTokens(true)
		w.Later()
		w.RequireExists(n)
		w.requireLogins(2, 0, 1)
	})
}

// TestRefusedPasswordIsNotRepeated until the file holds another one.
func TestRefusedPasswordIsNotRepeated(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		path := filepath.Join(w.TempDir(), "login")
		require.NoError(w, os.WriteFile(path, []byte(photonsim.User+"\nwrong\n"), 0o600))
		delete(w.Env, "PHOTON_USERNAME")
		delete(w.Env, "PHOTON_PASSWORD")
		w.Env["PHOTON_LOGIN_FILE"] = path
		w.start()
		for range 11 {
			w.RequireDoubt(n, "incorrect username or password; check user and password")
			time.Sleep(5 * time.Second)
		}
		w.requireLogins(0, 1, 0)
		require.NoError(w, os.WriteFile(path, []byte(photonsim.User+"\r\n"+photonsim.Password+"\r\n"), 0o600))
		time.Sleep(10 * time.Second)
		w.RequireExists(n)
		w.requireLogins(1, 1, 0)
		w.RequireReadOnly("POST " + tokenPath)
	})
}

func TestNothingIsWritten(t *testing.T) {
	inWorld(t, photonsim.Old(), func(w *testWorld) {
		v, other := w.sim.Add("worker"), w.sim.Add("other")
		w.RequireMetadata(conformance.NewNode("worker", ""))
		w.ShutDown(nodeOf(other))
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireGone(nodeOf(v))
		w.RequireNothingRefused()
		w.RequireReadOnly("POST " + tokenPath)
	})
}

// TestCertificates: verification is new compared with the former provider, so the error names both solutions.
func TestCertificates(t *testing.T) {
	t.Parallel()
	sim, handler := photonsim.New(photonsim.New12(), 0)
	v := sim.Add("worker")
	url, file, _ := conformance.ServeTLS(t, handler)
	ask := func(more ...string) error {
		c, err := maker().New(conformance.Inputs(nil, conformance.With(sim.Variables(url), more...)))
		require.NoError(t, err)
		defer c.instances.api.http.Close()
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
		w.RequireExists(n)
		w.Later()
		w.Server.ResetCalls()
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 60})
		for range 20 {
			w.RequireDoubt(n, "rate limited")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(w, w.Server.Calls().Total, 2, "no burst")
		w.Server.ClearFaults()
		w.Later()
		w.RequireExists(n)
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
			w.Fail(f)
			w.start()
			_, err := w.Exists(n)
			require.Error(w, err, f.Kind)
			for _, secret := range []string{photonsim.Password, "a%26b%2B", "token-1-", "refresh+"} {
				assert.NotContains(w, err.Error(), secret)
			}
			w.Server.ClearFaults()
			w.Later()
		}
	})
}

// Faults of the former provider, which are absent here.

func TestQuestionsShareOneLogin(t *testing.T) {
	inWorld(t, photonsim.Interim(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 50 {
			w.RequireExists(n)
			w.RequireMetadata(n)
		}
		w.requireLogins(1, 0, 0)
		assert.LessOrEqual(w, w.Server.Calls().Total, 10, "%v", w.Server.Calls().ByOperation)
	})
}

func TestNoLoginOverAnUntrustedCertificate(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		delete(w.Env, "PHOTON_IGNORE_CERTIFICATE")
		w.start()
		w.RequireDoubt(nodeOf(w.sim.Add("worker")), "the certificate is not trusted")
		w.requireLogins(0, 0, 0)
	})
}

func TestRefreshTokenIsEncoded(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 3 {
			w.RequireExists(n)
			w.sim.EndTokens(false)
			w.Later()
		}
		w.requireLogins(1, 0, 2) // the refresh token has a character that forms must encode
	})
}

func TestSilenceEndsTheQuestion(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.Fail(simkit.Fault{Kind: simkit.FaultHang})
		began := time.Now()
		_, err := w.Exists(n)
		require.Error(w, err)
		assert.Less(w, time.Since(began), 2*time.Minute)
		w.Server.ClearFaults()
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 502, Operation: "POST " + tokenPath})
		w.Later()
		w.RequireDoubt(n, "HTTP 502")
	})
}
