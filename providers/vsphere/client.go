package vsphere

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// limits bound the calls to one vCenter, which publishes none: far more than needed, and too few to be a burden.
var limits = []cloudapi.Limit{{PerSecond: 20, Burst: 40}}

// api holds the vCenters, and the client for all calls to them.
type api struct {
	http     *cloudapi.Client
	vcenters []*vcenter
	// keepNodes makes the absence of a virtual machine an error.
	keepNodes bool
	// insecure is set if the operator allows endpoints without TLS.
	insecure bool

	mu sync.Mutex
	// forms are the notations of provider IDs that differ from the ID.
	forms map[string]string
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	a := &api{keepNodes: c.SkipNodeDeletion, insecure: in.AllowInsecureEndpoints, forms: map[string]string{}}
	way := transports{other: cloudapi.NewTransport(in.Dial), to: map[string]http.RoundTripper{}}
	var problems []error
	for _, v := range c.VCenters {
		endpoint, err := v.endpoint(in.AllowInsecureEndpoints)
		if err == nil {
			way.to[endpoint.Host], err = transportTo(v, in.Dial)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("vCenter %s: %w", v.Key, err))
			continue
		}
		a.vcenters = append(a.vcenters, newVCenter(a, v, endpoint, userAgent(in.Version)))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: userAgent(in.Version), Operation: operation, Transport: way, Repeatable: repeatable, ClassOf: classOf,
		LimitsOf: func(r *http.Request) (string, []cloudapi.Limit) { return r.URL.Host, limits },
	})
	return a, nil
}

func userAgent(version string) string { return "anyccm/" + version }

// transports selects the transport of each vCenter, because each has its own TLS settings.
type transports struct {
	to    map[string]http.RoundTripper
	other http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r transports) RoundTrip(req *http.Request) (*http.Response, error) {
	way, ok := r.to[req.URL.Host]
	if !ok {
		way = r.other
	}
	resp, err := way.RoundTrip(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // a round tripper in between
	}
	return correctStatus(resp)
}

// correctStatus changes the status of some faults to success: vCenter sends every fault as an internal error, even that an object does not
// exist or a session has ended, which says nothing about its health. The SDK finds the fault in either.
func correctStatus(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode != http.StatusInternalServerError {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFault))
	_ = resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading a fault: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if kind := kindOfFault(body); kind != "" && kind != faultLogin && !passingFaults[kind] {
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	}
	return resp, nil
}

// maxFault bounds the size of a fault.
const maxFault = 1 << 20

// classOf distinguishes a refused login from a failure of vCenter.
func classOf(status int, body []byte) error {
	if status == http.StatusInternalServerError && kindOfFault(body) == faultLogin {
		return cloudapi.ErrUnauthorized
	}
	return nil
}

// transportTo returns the transport to a vCenter with its TLS settings.
func transportTo(v vcenterConfig, dial cloudapi.DialFunc) (*http.Transport, error) {
	t := cloudapi.NewTransport(dial)
	// vCenter's HTTP/2 does not suit the SDK, which disables it too.
	t.ForceAttemptHTTP2 = false
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: v.Insecure} //nolint:gosec // the operator's choice
	if v.CAFile != "" {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		for _, name := range filepath.SplitList(v.CAFile) {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("caFile: %w", err)
			}
			if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
				return nil, fmt.Errorf("caFile: file %s holds no certificate in PEM", name)
			}
		}
	}
	if v.Thumbprint != "" && !v.Insecure {
		t.TLSClientConfig.InsecureSkipVerify = true // verified below
		t.TLSClientConfig.VerifyConnection = verifier(t.TLSClientConfig.RootCAs, v.Thumbprint)
	}
	return t, nil
}

// verifier accepts certificates signed by one of the roots, and the one with the thumbprint.
func verifier(roots *x509.CertPool, thumbprint string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0]
		o := x509.VerifyOptions{Roots: roots, DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := leaf.Verify(o)
		if err == nil || strings.EqualFold(soap.ThumbprintSHA1(leaf), thumbprint) || strings.EqualFold(soap.ThumbprintSHA256(leaf), thumbprint) {
			return nil
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: fmt.Errorf("%w, and thumbprint differs", err)}
	}
}

// callKey is the context key of a SOAP call's name, which the URL does not contain.
type callKey struct{}

func withMethod(ctx context.Context, method string) context.Context {
	return context.WithValue(ctx, callKey{}, method)
}

func methodOf(r *http.Request) string {
	method, _ := r.Context().Value(callKey{}).(string)
	return method
}

var urn = regexp.MustCompile(`id:[^/]+`)

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	if method := methodOf(r); method != "" {
		return method
	}
	if !strings.HasPrefix(r.URL.Path, restPath) {
		return cloudapi.OtherOperation
	}
	path := urn.ReplaceAllString(strings.TrimPrefix(r.URL.Path, restPath), "{id}")
	if action := r.URL.Query().Get("~action"); action != "" {
		path += " " + action
	}
	return r.Method + " " + path
}

// neverRepeated are calls that the transport does not repeat: a ticket is valid once, a refused login counts towards locking the account,
// and changes in a lost response may not come again.
var neverRepeated = []string{"Login", "LoginByToken", "CloneSession", "Issue", "WaitForUpdatesEx"}

// repeatable reports whether the transport may repeat a request: all others read, or create an object that ends with the session.
func repeatable(r *http.Request) bool {
	return !slices.Contains(neverRepeated, methodOf(r)) && r.URL.Path != restPath+restSession
}

// rewindingTransport makes a request of the SDK repeatable, whose body can be read only once.
type rewindingTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t rewindingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.GetBody == nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		req = req.Clone(req.Context())
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody() // it cannot fail
	}
	return t.next.RoundTrip(req) //nolint:wrapcheck // a round tripper in between
}

// soapClient returns a client of the SDK with our transport, without a session.
func (a *api) soapClient(endpoint *url.URL, agent string) *soap.Client {
	c := soap.NewClient(endpoint, false)
	c.UserAgent = agent
	a.useTransport(c)
	return c
}

func (a *api) useTransport(c *soap.Client) {
	c.Transport = rewindingTransport{a.http.Transport}
	c.CheckRedirect = a.http.CheckRedirect
}
