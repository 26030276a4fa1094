package oci

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// endpoint is the first line of the config of a world.
func endpoint(w *testWorld) (line, address string) {
	line, _, _ = strings.Cut(w.Config, "\n")
	return line, strings.TrimPrefix(line, "endpoint: ")
}

// asInstance makes the program one that authenticates as its instance, which tells all else.
func asInstance(w *testWorld) {
	line, address := endpoint(w)
	w.Config = line + "\nuseInstancePrincipals: true\n"
	w.Env = map[string]string{"OCI_METADATA_BASE_URL": address + "/opc/v2"}
	w.start()
}

// TestInstancePrincipal: the instance tells where the cluster is and who it is; its token is replaced before it ends, and when it is
// refused.
func TestInstancePrincipal(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		asInstance(w)
		n := w.join("worker", nil)
		w.RequireMetadata(n)
		assert.Equal(w, 1, w.sim.Issued())
		time.Sleep(14 * time.Minute)
		w.RequireMetadata(n)
		assert.Equal(w, 1, w.sim.Issued())
		time.Sleep(2 * time.Minute)
		w.RequireMetadata(n)
		assert.Equal(w, 2, w.sim.Issued(), "before it ends")

		w.sim.EndSessions()
		w.Later()
		w.RequireMetadata(n)
		assert.Equal(w, 3, w.sim.Issued(), "once, and the calls were repeated")
		w.sim.EndSessions()
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "POST other"})
		w.Later()
		_, err := w.Metadata(n)
		require.Error(w, err)
	})
}

// TestInstancePrincipalOutage: a token that cannot be replaced is used to its end.
func TestInstancePrincipalOutage(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		asInstance(w)
		n := w.join("worker", nil)
		w.RequireMetadata(n)
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: "POST other"})
		time.Sleep(17 * time.Minute)
		w.RequireMetadata(n)
		time.Sleep(4 * time.Minute)
		_, err := w.Metadata(n)
		require.Error(w, err)
		w.Server.ClearFaults()
		w.Later()
		w.RequireMetadata(n)
	})
}

// TestTokenExchange: the token of a service account is read from its file for each exchange.
func TestTokenExchange(t *testing.T) {
	for name, env := range map[string][]string{
		"by a client":     {"CLIENT_ID", ocisim.Client, "CLIENT_SECRET", ocisim.ClientSecret},
		"by the instance": {"USE_INSTANCE_PRINCIPAL_FOR_TOKEN_EXCHANGE", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *testWorld) {
				file := filepath.Join(w.TempDir(), "token")
				require.NoError(w, os.WriteFile(file, []byte("expired\n"), 0o600))
				line, address := endpoint(w)
				w.Config = line + "\nuseWorkloadIdentity: true\nauth: {region: us-phoenix-1, compartment: " + ocisim.Compartment + "}\n"
				w.Env = map[string]string{
					"OCI_METADATA_BASE_URL": address + "/opc/v2", identityPrefix + "DOMAIN_URL": address, identityPrefix + "RESOURCE_TYPE": "k8scluster",
					identityPrefix + "TOKEN_PATH": file,
				}
				for i := 0; i < len(env); i += 2 {
					w.Env[identityPrefix+env[i]] = env[i+1]
				}
				w.start()
				n := w.join("worker", nil)
				_, err := w.Metadata(n)
				require.ErrorContains(w, err, "the subject token is not accepted")
				require.NoError(w, os.WriteFile(file, []byte(ocisim.ServiceToken+"\n"), 0o600))
				w.Later()
				w.RequireMetadata(n)
			})
		})
	}
}

// TestRefusedCredential: a refusal proves nothing about an instance.
func TestRefusedCredential(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		w.sim.SetFingerprint("another")
		w.RequireDoubt(n, "not authorized")
	})
}

// TestDiscovery: what the configuration leaves out is asked of the instance once, and a failure names the setting.
func TestDiscovery(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		_, address := endpoint(w)
		w.Config = strings.Replace(w.Config, "compartment: "+ocisim.Compartment, "", 1)
		w.Env = map[string]string{"OCI_METADATA_BASE_URL": address + "/opc/v2"}
		w.start()
		n := w.join("worker", nil)
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "GET other"})
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, "the key compartment is missing, and the instance does not tell it")
		w.Server.ClearFaults()
		w.Later()
		w.Server.ResetCalls()
		w.RequireMetadata(n)
		w.Later()
		w.RequireMetadata(n)
		assert.Equal(w, 1, w.Calls("GET other"))
	})
}

// TestKeys: private keys are read in both forms, also with a passphrase, and no error quotes one.
func TestKeys(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pkcs1 := x509.MarshalPKCS1PrivateKey(key)
	sealed, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY", pkcs1, []byte("open"), x509.PEMCipherAES256) //nolint:staticcheck // as old keys are
	require.NoError(t, err)
	for _, block := range []*pem.Block{{Type: "RSA PRIVATE KEY", Bytes: pkcs1}, {Type: "PRIVATE KEY", Bytes: pkcs8}, sealed} {
		got, err := parseKey(pem.EncodeToMemory(block), []byte("open"))
		require.NoError(t, err)
		assert.True(t, key.Equal(got))
	}
	for text, words := range map[string]string{
		"nonsense": "not PEM", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})): "neither",
		string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})): "PKCS#8",
	} {
		_, err := parseKey([]byte(text), nil)
		require.ErrorContains(t, err, words)
	}
	_, err = parseKey(pem.EncodeToMemory(sealed), []byte("wrong"))
	require.ErrorContains(t, err, "auth.key_passphrase does not open it")

	for _, place := range []string{"key_passphrase", "passphrase"} {
		config := "compartment: c\nauth:\n  region: r\n  tenancy: t\n  user: u\n  fingerprint: f\n  " + place + ": open\n  key: |\n    " +
			strings.ReplaceAll(string(pem.EncodeToMemory(sealed)), "\n", "\n    ")
		c, _, err := parseConfig(inputs(config))
		require.NoError(t, err, place)
		assert.True(t, key.Equal(c.key))
	}
}
