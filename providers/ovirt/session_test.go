package ovirt

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

const tokenCall = "POST " + tokenPath

func (w *testWorld) requireLogins(accepted, refused int) {
	w.Helper()
	a, r, _ := w.sim.Logins()
	require.Equal(w, []int{accepted, refused}, []int{a, r})
}

// TestIdleTokenMeansOneLogin: the engine ends a session that is idle for half an hour, and nobody sees it.
func TestIdleTokenMeansOneLogin(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 5 {
			w.RequireExists(n)
			w.Later()
		}
		w.requireLogins(1, 0)
		time.Sleep(31 * time.Minute)
		w.RequireExists(n)
		w.requireLogins(2, 0)
		w.Stop()
		time.Sleep(time.Second)
		assert.Equal(w, 1, w.Calls("POST "+logoutPath), "the session ends with the program")
	})
}

// TestRefusedPasswordIsNotRepeated: accounts are locked after a few.
func TestRefusedPasswordIsNotRepeated(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		path := filepath.Join(w.TempDir(), "ovirt_password")
		require.NoError(w, os.WriteFile(path, []byte("wrong"), 0o600))
		delete(w.Env, envPassword)
		w.Env[envPassword+fileSuffix] = path
		w.start()
		for range 11 {
			w.RequireDoubt(n, "check username and password (OVIRT_USERNAME, OVIRT_PASSWORD)")
			_, err := w.Metadata(conformance.NewNode("worker", ""))
			require.Error(w, err)
			time.Sleep(5 * time.Second)
		}
		w.requireLogins(0, 1)
		for range 30 {
			_, _ = w.Exists(n)
			time.Sleep(time.Minute)
		}
		_, refused, _ := w.sim.Logins()
		assert.LessOrEqual(w, refused, 7, "in half an hour")

		require.NoError(w, os.WriteFile(path, []byte(ovirtsim.Password), 0o600))
		require.NoError(w, os.Chtimes(path, time.Now(), time.Now()))
		time.Sleep(10 * time.Second)
		w.RequireExists(n)
	})
}

// TestPasswordOfTheCloudConfigIsReadAgain where the engine ends the session.
func TestPasswordOfTheCloudConfigIsReadAgain(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.Path = filepath.Join(w.TempDir(), "ovirt-cloud.conf")
		write := func(password string) {
			w.Config = "[connection]\nuri = " + w.Env[envURL] + "\nusername = " + ovirtsim.User + "\npassword = \"" + password + "\"\n"
			require.NoError(w, os.WriteFile(w.Path, []byte(w.Config), 0o600))
		}
		write(ovirtsim.Password)
		url := w.Env[envURL]
		w.Env = map[string]string{envURL: url}
		w.start()
		w.RequireExists(n)
		w.sim.SetPassword("rotated")
		write("rotated")
		w.sim.EndTokens(false)
		w.Later()
		w.RequireExists(n)
		w.requireLogins(2, 0)

		require.NoError(w, os.WriteFile(w.Path, []byte("[connec"), 0o600))
		w.sim.EndTokens(false)
		w.Later()
		w.RequireDoubt(n, "check username and password") // those from before, which were right once
	})
}

// TestEngineRestart: pages from the web server before it, then tokens that it does not know.
func TestEngineRestart(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.RequireExists(n)
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable})
		w.Later()
		w.RequireDoubt(n, "HTTP 503")
		w.sim.EndTokens(false)
		w.Later()
		w.RequireDoubt(n, "HTTP 503")
		w.Server.ClearFaults()
		time.Sleep(time.Minute)
		w.RequireExists(n)
		w.requireLogins(2, 0)
	})
}

func TestParallelQuestionsMeanOneLogin(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		var list []string
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			list = append(list, w.sim.Add(name).ID)
		}
		ask := func() {
			var group sync.WaitGroup
			for _, id := range list {
				group.Go(func() {
					_, err := w.cloud.api.instance(context.WithoutCancel(w.Context()), id)
					assert.NoError(w, err)
				})
			}
			group.Wait()
		}
		ask()
		w.requireLogins(1, 0)
		w.sim.EndTokens(false)
		ask()
		w.requireLogins(2, 0)
	})
}

// TestPasswordIsEncoded: the simulated engine's password has every character that has a meaning in a form.
func TestPasswordIsEncoded(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		for _, c := range "&+=@%" {
			require.Contains(w, ovirtsim.Password, string(c))
		}
		w.RequireExists(nodeOf(w.sim.Add("worker")))
		for _, c := range w.Server.Calls().Latest {
			if c.Operation == tokenCall {
				assert.Equal(w, "grant_type=password&password=a%26b%2Bc%3Dd%40e%25f&scope=ovirt-app-api&username=ccm%40internal", c.Body)
			}
		}
	})
}

// TestCertificates: an authority of the operator's own is named, or the check is switched off, or the error names the option.
func TestCertificates(t *testing.T) {
	t.Parallel()
	sim, handler := ovirtsim.New(0)
	v := sim.Add("worker")
	url, file, bundle := conformance.ServeTLS(t, handler)
	ask := func(more ...string) error {
		c, err := maker().New(conformance.Inputs(nil, conformance.With(sim.Variables(url), more...)))
		require.NoError(t, err)
		defer c.api.http.Close()
		_, err = c.api.instance(t.Context(), v.ID)
		return err
	}
	require.NoError(t, ask(envCAFile, file))
	require.NoError(t, ask(envCABundle, bundle))
	require.NoError(t, ask(envInsecure, "true"))
	require.ErrorContains(t, ask(), "set cafile (OVIRT_CAFILE, or OVIRT_CA_BUNDLE) to the engine's authority")
}

// TestOldEngineIsRefused, and what is no engine.
func TestOldEngineIsRefused(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		url := w.Network.Serve(w, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			if r.URL.Path == tokenPath {
				_, _ = rw.Write([]byte(`{"access_token":"t"}`))
				return
			}
			_, _ = rw.Write([]byte(`{"product_info":{"version":{"major":"3","full_version":"3.6.7"}}}`))
		}))
		w.Env[envURL] = url
		w.start()
		w.RequireDoubt(conformance.NewNode("worker", providerIDPrefix+"5f3ae1c0-7b1d-4e0a-9c55-000000000001"), "the engine has version 3.6.7, and this program needs 4.0")
	})
}

// TestNothingIsWritten: tokens are the only thing that is asked for by anything but GET, and nothing is asked of anybody else.
func TestNothingIsWritten(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v, other := w.sim.Add("worker"), w.sim.Add("other")
		w.RequireMetadata(conformance.NewNode("worker", ""))
		w.RequireExists(nodeOf(v))
		w.ShutDown(nodeOf(other))
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireGone(nodeOf(v))
		require.NoError(w, w.cloud.instances.CheckAPI(w.Context()))
		w.RequireNothingRefused()
		w.RequireReadOnly(tokenCall)
	})
}

// TestSecretsAreInNoMessage, whatever fails.
func TestSecretsAreInNoMessage(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		secrets := []string{ovirtsim.Password, "a%26b%2B", "token-1-"}
		clean := func(text string) {
			for _, s := range secrets {
				assert.NotContains(w, text, s)
			}
		}
		w.RequireExists(n)
		for _, f := range []simkit.Fault{
			{Kind: simkit.FaultReset},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultStatus, Status: 400},
			{Kind: simkit.FaultStatus, Status: 401},
			{Kind: simkit.FaultRedirect},
			{Kind: simkit.FaultCut},
			{Kind: simkit.FaultStatus, Status: 500, Operation: tokenCall},
		} {
			w.Fail(f)
			w.start()
			_, err := w.Exists(n)
			require.Error(w, err)
			clean(err.Error())
			w.Server.ClearFaults()
			w.Later()
		}
		w.sim.SetPassword("another")
		w.sim.EndTokens(false)
		w.start()
		_, err := w.Exists(n)
		require.Error(w, err)
		clean(err.Error())
	})
	t.Run("in the configuration", func(t *testing.T) {
		env := map[string]string{envURL: "https://admin:hush@engine", envPassword: "quiet", "OVIRT_ZONES": "x"}
		_, _, err := parseConfig(conformance.Inputs(nil, env))
		require.ErrorContains(t, err, "must not hold a user")
		assert.NotContains(t, err.Error(), "hush")
		assert.NotContains(t, err.Error(), "quiet")
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	conformance.Redirects(t, "known", func(t *testing.T, url string) map[string]func(context.Context) error {
		c, err := maker().New(conformance.Inputs(nil, map[string]string{envURL: url, envPassword: "p"}))
		require.NoError(t, err)
		t.Cleanup(c.api.http.Close)
		c.api.keeper.Set(restapi.Tokens{Access: "known"})
		return map[string]func(context.Context) error{
			"listing": func(ctx context.Context) error { _, _, err := c.api.instances(ctx); return err },
			"reading": func(ctx context.Context) error {
				_, err := c.api.instance(ctx, "5f3ae1c0-7b1d-4e0a-9c55-000000000001")
				return err
			},
		}
	})
}

// TestAuthorityIsNotFetched: what is on the way would choose whom to trust.
func TestAuthorityIsNotFetched(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Env[envURL] = "https://engine.example.com:8443/ovirt-engine/api"
		w.start()
		_, err := w.Exists(conformance.NewNode("worker", providerIDPrefix+someUUID))
		require.Error(w, err)
		for _, address := range w.Network.Strangers() {
			assert.Equal(w, "engine.example.com:8443", address, "nobody else is asked")
		}
	})
}
