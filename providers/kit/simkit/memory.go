package simkit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Network connects clients and simulated clouds within the process: real HTTP over connections in memory. Nothing waits outside the
// process, so a test inside a synctest bubble runs in virtual time.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	strangers []string
}

// NewNetwork returns a network without servers.
func NewNetwork() *Network { return &Network{listeners: map[string]*memoryListener{}} }

// drain is how long reads may outlive their callers; later ones are leaks, which the bubble reports.
const drain = 2 * time.Minute

// Serve serves on its own address until the test ends, and returns the URL. The test must be inside a bubble.
func (n *Network) Serve(t interface{ Cleanup(func()) }, handler http.Handler) string {
	listener := n.listen()
	n.serve(t, handler, listener)
	return "http://" + string(listener.address)
}

// ServeTLS is Serve with a self-signed certificate.
func (n *Network) ServeTLS(t interface{ Cleanup(func()) }, handler http.Handler) string {
	listener := n.listen()
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{selfSigned(listener.address)}}
	n.serve(t, handler, tls.NewListener(listener, config))
	return "https://" + string(listener.address)
}

func (n *Network) listen() *memoryListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	address := memoryAddress(fmt.Sprintf("127.0.0.1:%d", 8000+len(n.listeners)))
	listener := &memoryListener{address: address, connections: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[string(address)] = listener
	return listener
}

func (*Network) serve(t interface{ Cleanup(func()) }, handler http.Handler, listener net.Listener) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		time.Sleep(drain)
		_ = server.Close() // closing connections in memory cannot fail
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	})
}

// selfSigned returns a certificate for an address. It is also valid in virtual time, which begins in the past.
func selfSigned(address memoryAddress) tls.Certificate {
	host, _, _ := net.SplitHostPort(string(address)) // listen created it
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the machine has no randomness
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(host)}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // as above
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Dial opens a connection to a server of this network. Every other address is refused and recorded.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	listener := n.listeners[address]
	if listener == nil {
		n.strangers = append(n.strangers, address)
	}
	n.mu.Unlock()
	if listener == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memoryAddress(address), Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case listener.connections <- server:
		return client, nil
	case <-listener.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: listener.address, Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Addr: listener.address, Err: ctx.Err()}
	}
}

// Strangers returns the addresses outside of this network that somebody tried to reach.
func (n *Network) Strangers() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.strangers)
}

// memoryListener hands connections to an http.Server.
type memoryListener struct {
	address     memoryAddress
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

// Accept implements net.Listener.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *memoryListener) Addr() net.Addr { return l.address }

type memoryAddress string

// Network implements net.Addr.
func (memoryAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a memoryAddress) String() string { return string(a) }
