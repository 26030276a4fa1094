package vsphere

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/soap"
	kubetesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

const withSecret = `global: {server: "SERVER1", secretName: vsphere, secretNamespace: kube-system}`

// TestNoLoginBeforeTheSecretIsRead: the original logs in with an empty user first.
func TestNoLoginBeforeTheSecretIsRead(t *testing.T) {
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireDoubt(nodeOf(m), "Secret kube-system/vsphere: does not exist; create it")
		assert.Zero(w, w.calls())
		w.secret(map[string]string{"other.username": "u", "other.password": "very secret"})
		w.Later()
		_, err := w.Exists(nodeOf(m))
		require.ErrorContains(w, err, "it has the keys other.password, other.username")
		assert.NotContains(w, err.Error(), "very secret")
		assert.Zero(w, w.calls())

		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": vspheresim.Password, "note": "x"})
		w.Later()
		w.RequireExists(nodeOf(m))
		accepted, refused := w.sims[0].Logins()
		assert.Equal(w, []int{1, 0}, []int{accepted, refused})
	})
}

// TestOnlyTheNamedSecretIsRead: the original lists and watches those of all namespaces.
func TestOnlyTheNamedSecretIsRead(t *testing.T) {
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": vspheresim.Password})
		w.kube.ClearActions()
		w.start()
		w.RequireExists(nodeOf(m))
		w.Later()
		w.RequireExists(nodeOf(m))
		require.NotEmpty(w, w.kube.Actions())
		for _, a := range w.kube.Actions() {
			get, ok := a.(kubetesting.GetAction)
			require.True(w, ok, "%v", a)
			assert.Equal(w, []string{"get", "kube-system", "vsphere"}, []string{a.GetVerb(), a.GetNamespace(), get.GetName()})
		}
	})
}

// server is the first vCenter's address as the configuration has it.
func server(w *testWorld) string {
	_, rest, _ := strings.Cut(w.config, `server: "`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

// TestRefusedLoginIsNotRepeated: accounts are locked after a few.
func TestRefusedLoginIsNotRepeated(t *testing.T) {
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": "wrong"})
		w.start()
		for range 20 {
			w.RequireDoubt(nodeOf(m), "user name or password is wrong")
			_, err := w.Metadata(conformance.NewNode("worker", ""))
			require.Error(w, err)
			time.Sleep(5 * time.Second)
		}
		_, refused := w.sims[0].Logins()
		assert.Equal(w, 1, refused, "in 100 s")
		for range 30 {
			_, _ = w.Exists(nodeOf(m))
			time.Sleep(time.Minute)
		}
		_, refused = w.sims[0].Logins()
		assert.LessOrEqual(w, refused, 6, "in half an hour")

		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": vspheresim.Password})
		w.RequireExists(nodeOf(m))
	})
}

// TestChangedSecretMeansOneLogin and neither a restart nor a question without an answer.
func TestChangedSecretMeansOneLogin(t *testing.T) {
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": vspheresim.Password})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].SetPassword("new")
		w.Later()
		w.RequireExists(nodeOf(m)) // the session goes on
		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": "mistyped"})
		for range 3 {
			time.Sleep(secretAge)
			w.RequireExists(nodeOf(m)) // so it does beside credentials that are refused
		}
		w.secret(map[string]string{server(w) + ".username": vspheresim.User, server(w) + ".password": "new"})
		for range 5 {
			w.Later()
			w.RequireExists(nodeOf(m))
		}
		accepted, refused := w.sims[0].Logins()
		assert.Equal(w, 2, accepted)
		assert.LessOrEqual(w, refused, 2)
		assert.Equal(w, 1, w.servers[0].Calls().ByOperation["Logout"], "the old session is ended")
	})
}

func TestEndedSessionMeansOneLogin(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		for range 5 {
			w.RequireExists(nodeOf(m))
			w.Later()
		}
		assert.Equal(w, 1, w.servers[0].Calls().ByOperation["Login"], "one session is kept")
		w.sims[0].EndSessions()
		w.RequireExists(nodeOf(m))
		assert.Equal(w, 2, w.servers[0].Calls().ByOperation["Login"])
		w.Later()
		w.sims[0].EndSessions()
		_, _, err := w.cloud.api.listInstances(w.Context())
		require.NoError(w, err, "a listing whose view is gone is made again")
		assert.Equal(w, 3, w.servers[0].Calls().ByOperation["Login"])
	})
}

func TestSessionIsEndedWithTheProgram(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		close(w.stop)
		w.stop = nil
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(w, 1, w.servers[0].Calls().ByOperation["Logout"])
	})
}

func TestSharedSession(t *testing.T) {
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		asked := ""
		url := w.network.Serve(w, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked = r.Header.Get("Authorization")
			_, _ = rw.Write([]byte(`{"token":"` + w.sims[0].CloneTicket() + `"}`))
		}))
		w.secret(map[string]string{server(w) + ".vc-session-manager-url": url, server(w) + ".vc-session-manager-token": "token-1"})
		w.start()
		w.RequireExists(nodeOf(m))
		assert.Equal(w, "Bearer token-1", asked)
		calls := w.servers[0].Calls().ByOperation
		assert.Equal(w, []int{1, 0}, []int{calls["CloneSession"], calls["Login"]})
	})
}

func TestLoginByCertificate(t *testing.T) {
	certificate, key := keyPair(t)
	inWorld(t, withSecret, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.secret(map[string]string{server(w) + ".username": certificate, server(w) + ".password": key})
		w.start()
		w.RequireExists(nodeOf(m))
		calls := w.servers[0].Calls().ByOperation
		assert.Equal(w, []int{1, 0}, []int{calls["LoginByToken"], calls["Login"]})
	})
}

func keyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ccm"}, NotAfter: time.Now().Add(24 * 365 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", raw)
}

// TestOneVCenterDownLeavesTheOther: its nodes go on, those of the first are in doubt, and neither is gone.
func TestOneVCenterDownLeavesTheOther(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		a := w.sims[0].Add(vspheresim.Spec{Name: "a", UUID: "4230aaaa-3f21-5a6b-9c0d-000000000001"})
		b := w.sims[1].Add(vspheresim.Spec{Name: "b", UUID: "4230bbbb-3f21-5a6b-9c0d-000000000002"})
		gone := nodeOf(w.sims[1].Add(vspheresim.Spec{Name: "c", UUID: "4230cccc-3f21-5a6b-9c0d-000000000003"}))
		w.sims[1].Destroy(w.sims[1].Instance("4230cccc-3f21-5a6b-9c0d-000000000003"))
		w.start()
		w.RequireExists(nodeOf(a))
		w.RequireExists(nodeOf(b))
		for _, restart := range []bool{false, true} {
			w.servers[0].Configure(func(s *simkit.Settings) { s.Unreachable = true })
			if restart {
				w.start()
			}
			w.Later()
			w.RequireExists(nodeOf(b))
			w.RequireDoubt(nodeOf(a), "vCenter one")
			w.RequireDoubt(gone, "vCenter one")
			_, err := w.Metadata(conformance.NewNode("b", ""))
			require.NoError(w, err)
			w.servers[0].Configure(func(s *simkit.Settings) { s.Unreachable = false })
			w.Later()
			w.RequireExists(nodeOf(a))
			w.RequireGone(gone)
		}
	})
}

// TestHangingVCenterDelaysNobodyElse for longer than a listing waits for it.
func TestHangingVCenterDelaysNobodyElse(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "a"})
		b := w.sims[1].Add(vspheresim.Spec{Name: "b", UUID: "4230bbbb-3f21-5a6b-9c0d-000000000002"})
		w.fail(simkit.Fault{Kind: simkit.FaultHang})
		w.start()
		began := time.Now()
		_, err := w.Metadata(conformance.NewNode("b", ""))
		require.NoError(w, err)
		assert.LessOrEqual(w, time.Since(began), straggler+time.Second)
		w.Later()
		began = time.Now()
		w.RequireExists(nodeOf(b))
		assert.LessOrEqual(w, time.Since(began), straggler+time.Second)
	})
}

// TestCertificates: a certificate that nobody signed is accepted by its thumbprint alone, and the error says what that is.
func TestCertificates(t *testing.T) {
	t.Parallel()
	sim, server := vspheresim.New(vspheresim.Options{})
	sim.Add(vspheresim.Spec{Name: "worker"})
	tls := httptest.NewTLSServer(server)
	t.Cleanup(tls.Close)
	leaf := tls.Certificate()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), 0o600))
	login := "server: " + tls.Listener.Addr().String() + ", user: " + vspheresim.User + ", password: " + vspheresim.Password
	for settings, problem := range map[string]string{
		"":                     "set caFile to the authority that signed it, or thumbprint, which is " + soap.ThumbprintSHA256(leaf),
		", insecureFlag: true": "",
		", caFile: " + file:    "",
		", thumbprint: " + `"` + soap.ThumbprintSHA1(leaf) + `"`:                    "",
		", thumbprint: " + `"` + strings.ToLower(soap.ThumbprintSHA256(leaf)) + `"`: "",
		", thumbprint: " + `"` + strings.Repeat("AB:", 31) + `AB"`:                  "thumbprint differs",
	} {
		in := conformance.Inputs(nil, nil)
		in.File = []byte("global: {" + login + settings + "}")
		c, err := maker().New(in)
		require.NoError(t, err)
		_, err = c.instances.InstanceMetadata(t.Context(), conformance.NewNode("worker", ""))
		c.api.vcenters[0].close(t.Context())
		c.HTTP.Close()
		if problem == "" {
			assert.NoError(t, err, settings)
			continue
		}
		assert.ErrorContains(t, err, problem, settings)
	}
	in := conformance.Inputs(nil, nil)
	in.File = []byte("global: {" + login + ", caFile: /nowhere}")
	_, err := maker().New(in)
	require.ErrorContains(t, err, "caFile: open /nowhere")
}

// TestNoSecretInErrors: nor in what formats a configuration.
func TestNoSecretInErrors(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		for _, f := range []simkit.Fault{
			{Kind: simkit.FaultStatus, Status: 500},
			{Kind: simkit.FaultStatus, Status: 401},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultReset},
			{Kind: simkit.FaultRedirect},
		} {
			w.fail(f)
			_, err := w.Exists(nodeOf(m))
			require.Error(w, err)
			assert.NotContains(w, err.Error(), vspheresim.Password)
			w.servers[0].ClearFaults()
			w.Later()
		}
	})
}

// TestSharedSessionNeedsTLS: the token for a session manager goes over no way on which anybody can listen, unless the operator allows it.
func TestSharedSessionNeedsTLS(t *testing.T) {
	for allowed, want := range map[bool]string{false: "", true: "Bearer token-1"} {
		t.Run(strconv.FormatBool(allowed), func(t *testing.T) {
			inWorld(t, withSecret, nil, func(w *testWorld) {
				m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
				w.secret(map[string]string{server(w) + ".vc-session-manager-url": "http://192.0.2.50/session", server(w) + ".vc-session-manager-token": "token-1"})
				in := conformance.Inputs(nil, w.env)
				in.AllowInsecureEndpoints = allowed
				var heard atomic.Value
				heard.Store("")
				in.File, in.Dial = []byte(w.config), func(ctx context.Context, network, address string) (net.Conn, error) {
					if address != "192.0.2.50:80" {
						return w.network.Dial(ctx, network, address)
					}
					ours, theirs := net.Pipe()
					go func() {
						defer func() { assert.NoError(t, theirs.Close()) }()
						if r, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
							heard.Store(r.Header.Get("Authorization"))
						}
					}()
					return ours, nil
				}
				c, err := maker().New(in)
				require.NoError(w, err)
				w.stop = make(chan struct{})
				c.begin(cloudbase.Begun{Kube: w.kube, Stop: w.stop})
				w.cloud, w.API = c, c.instances
				_, err = w.Exists(nodeOf(m))
				require.Error(w, err)
				assert.Equal(w, want, heard.Load())
				if !allowed {
					assert.ErrorContains(w, err, "vc-session-manager-url is not encrypted")
				}
			})
		})
	}
}
