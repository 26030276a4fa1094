package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHTTPS: with a certificate the simulator uses HTTPS, which some clouds' own controllers require.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(http.NotFoundHandler())
	defer known.Close()
	folder := t.TempDir()
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return file
	}
	private, err := x509.MarshalPKCS8PrivateKey(known.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	pair := keyPair{write("certificate", "CERTIFICATE", known.TLS.Certificates[0].Certificate[0]), write("key", "PRIVATE KEY", private)}
	ctx, stop := context.WithCancel(t.Context())
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- serveOn(ctx, l, http.NotFoundHandler(), pair) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String(), nil)
	require.NoError(t, err)
	answer, err := known.Client().Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	stop()
	require.NoError(t, <-done)
}
