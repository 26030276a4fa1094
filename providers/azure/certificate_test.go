package azure

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certificate makes a certificate with its key, as PEM.
func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
}

// TestCertificate: a certificate with its key is a login, and the request contains its chain. An unregistered certificate is refused, and
// an invalid file is reported.
func TestCertificate(t *testing.T) {
	t.Parallel()
	good, other := certificate(t), certificate(t)
	file := filepath.Join(t.TempDir(), "login.pem")
	inWorld(t, func(w *world) {
		w.sim.TrustCertificate(good)
		id := w.sim.AddInstance("n1")
		try := func(data []byte) error {
			require.NoError(w, os.WriteFile(file, data, 0o600))
			w.set(map[string]any{"aadClientSecret": "", "aadClientCertPath": file})
			_, err := w.cloud.instances.InstanceMetadata(w.Context(), node("n1", id))
			return err
		}
		require.NoError(w, try(good))
		require.ErrorContains(w, try(other), "AADSTS700027")
		err := try([]byte("no certificate"))
		require.ErrorContains(w, err, "aadClientCertPath: the file holds no certificate and key")
		assert.NotContains(w, err.Error(), "no certificate\n")
	})
}
