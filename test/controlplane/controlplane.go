package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// startTimeout bounds one try to start a program on a busy machine. A program that ends by itself, such as one whose port
	// somebody else has taken, is tried again at once.
	startTimeout = 5 * time.Minute
	// attempts: a port may be taken between being found free and being used.
	attempts    = 3
	stopGrace   = 5 * time.Second
	serviceCIDR = "10.96.0.0/16"
)

// Etcd is a running etcd. Several API servers can share one, each with a prefix of its own.
type Etcd struct {
	*Process
	URL string
}

// StartEtcd starts etcd with its data under dir. It does not sync to disk: nothing here outlives the machine.
func StartEtcd(ctx context.Context, binaries, dir string) (*Etcd, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making etcd's folder: %w", err)
	}
	return retry(func() (*Etcd, error) {
		ports, err := FreePorts(2)
		if err != nil {
			return nil, err
		}
		client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		p, err := Start("etcd", dir, filepath.Join(binaries, "etcd"), []string{
			"--name=default", "--data-dir=" + filepath.Join(dir, "data"), "--unsafe-no-fsync",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
			"--quota-backend-bytes=4294967296", "--log-level=warn",
		}, nil)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		if err := p.waitFor(ctx, "etcd is healthy", func(ctx context.Context) error { return get(ctx, http.DefaultClient, client+"/health") }); err != nil {
			p.Stop(0)
			return nil, err
		}
		return &Etcd{Process: p, URL: client}, nil
	})
}

func retry[T any](start func() (T, error)) (T, error) {
	var result T
	var err error
	for range attempts {
		if result, err = start(); err == nil {
			return result, nil
		}
	}
	return result, err
}

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // only for the message
		return fmt.Errorf("HTTP %d: %s", resp.StatusCode, body)
	}
	return nil
}

// APIServer is a running kube-apiserver with RBAC and an audit log.
type APIServer struct {
	*Process
	// URL is its address, on loopback.
	URL string
	// CA is the certificate authority's certificate, PEM.
	CA []byte
	// Token belongs to an administrator.
	Token string
	// Dir holds its files.
	Dir string

	// forgotten are the bytes of the audit log that do not count, and marks the requests that were made to see it settled.
	forgotten atomic.Int64
	marks     atomic.Int64
}

// auditPolicy notes who asked for what, and what became of it.
const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

// seldomCollected saves a short-lived API server a good part of what its garbage collection costs, for memory that there is.
const seldomCollected = "GOGC=300"

// StartAPIServer starts kube-apiserver with its files under dir and its objects in etcd under prefix. audit makes it
// note every request.
func StartAPIServer(ctx context.Context, binaries, dir string, etcd *Etcd, prefix string, audit bool) (*APIServer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the API server's folder: %w", err)
	}
	ca, err := newAuthority("control-plane")
	if err != nil {
		return nil, err
	}
	s := &APIServer{CA: ca.pem, Token: randomToken(), Dir: dir}
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := ca.writeServer(dir, "server"); err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	if err := writeKey(file("accounts.key"), accounts); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"ca.crt": string(ca.pem), "audit.yaml": auditPolicy, "tokens.csv": s.Token + ",admin,admin,system:masters\n",
	} {
		if err := os.WriteFile(file(name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return retry(func() (*APIServer, error) {
		ports, err := FreePorts(1)
		if err != nil {
			return nil, err
		}
		s.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
		s.Process, err = Start("kube-apiserver", dir, filepath.Join(binaries, "kube-apiserver"),
			apiServerArguments(file, etcd.URL, prefix, ports[0], audit), []string{seldomCollected})
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		client, err := rest.HTTPClientFor(s.Config())
		if err == nil {
			err = s.waitFor(ctx, "kube-apiserver is ready", func(ctx context.Context) error { return get(ctx, client, s.URL+"/readyz") })
		}
		if err != nil {
			s.Stop(0)
			return nil, err
		}
		return s, nil
	})
}

// apiServerArguments are the command line of an API server whose files have the paths that file returns.
func apiServerArguments(file func(string) string, etcdURL, prefix string, port int, audit bool) []string {
	arguments := []string{
		"--etcd-servers=" + etcdURL, "--etcd-prefix=" + prefix,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"), "--client-ca-file=" + file("ca.crt"),
		"--token-auth-file=" + file("tokens.csv"), "--authorization-mode=RBAC", "--anonymous-auth=true",
		"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + file("accounts.key"),
		"--service-account-signing-key-file=" + file("accounts.key"),
		"--service-cluster-ip-range=" + serviceCIDR, "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true",
		"--profiling=false",
		// The defaults protect a shared API server from one client; here one client is what is measured.
		"--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000",
	}
	if audit {
		arguments = append(arguments, "--audit-policy-file="+file("audit.yaml"), "--audit-log-path="+file("audit.log"), "--audit-log-maxsize=100000") // one file
	}
	return arguments
}

// Config is the administrator's.
func (s *APIServer) Config() *rest.Config {
	return &rest.Config{
		Host: s.URL, BearerToken: s.Token, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA}, QPS: -1, WarningHandler: rest.NoWarnings{},
	}
}

// Client is the administrator's.
func (s *APIServer) Client() (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(s.Config())
}

// WriteKubeconfig writes a kubeconfig for the bearer of a token.
func (s *APIServer) WriteKubeconfig(path, token string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["local"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.CA}
	c.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "user"}
	c.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

func (s *APIServer) auditLog() string { return filepath.Join(s.Dir, "audit.log") }
