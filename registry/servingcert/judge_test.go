package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/certificate"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// store is that of a kubelet without a certificate.
type store struct{}

func (store) Current() (*tls.Certificate, error) { return nil, new(certificate.NoCertKeyError) }

func (store) Update([]byte, []byte) (*tls.Certificate, error) {
	return nil, new(certificate.NoCertKeyError)
}

// managerRequest returns a request as client-go's certificate manager of a kubelet creates it and the API server stores it.
func managerRequest(
	t *testing.T, node string, key func() (crypto.Signer, error), dns []string, ips ...string,
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	template := requestTemplate(node, dns, ips...)
	client, requests := fake.NewClientset(), make(chan *certificatesv1.CertificateSigningRequest, 1)
	client.PrependReactor("create", "certificatesigningrequests", func(a ktesting.Action) (bool, runtime.Object, error) {
		csr, ok := a.(ktesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		if ok {
			requests <- csr.DeepCopy()
		}
		return false, nil, nil
	})
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil }, CertificateStore: store{},
		GetTemplate: func() *x509.CertificateRequest { return template }, SignerName: certificatesv1.KubeletServingSignerName,
		GetUsages: certificate.DefaultKubeletServingGetUsages, GenerateKey: key,
	})
	require.NoError(t, err)
	m.Start()
	created := <-requests
	m.Stop()
	created.Spec.Username, created.Spec.Groups = userPrefix+node, []string{nodesGroup, "system:authenticated"}
	return created
}

func requestTemplate(node string, dns []string, ips ...string) *x509.CertificateRequest {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: userPrefix + node, Organization: []string{nodesGroup}}, DNSNames: dns,
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	return template
}

func newRSA() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) }

func node(name, providerID string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID}}
}

// world is the node web-1 with what the cloud knows of it, in a hybrid cluster.
func world() (*v1.Node, contract.Attested, Cluster) {
	web := node("web-1", "toy:///zone/1")
	attested := contract.Attested{
		Names: []string{"web-1", "web-1.c.project.internal"}, Addresses: contract.AttestedAddresses("10.0.0.1", "192.0.2.1", "2001:db8::1"),
	}
	return web, attested, Cluster{
		Nodes: []*v1.Node{web, node("web-2", "toy:///zone/2"), node("new", ""), node("elsewhere", "other://1")},
		InstanceKey: func(id string) string {
			if rest, ok := strings.CutPrefix(id, "toy://"); ok {
				return rest[strings.LastIndex(rest, "/")+1:]
			}
			return ""
		},
		Domain: "cluster.local", Reserved: []string{"api.example.com", "198.51.100.9", "10.96.0.1"},
	}
}

// TestRequestsOfKubelets: what client-go's certificate manager asks for is approved where the cloud knows all of it.
func TestRequestsOfKubelets(t *testing.T) {
	t.Parallel()
	web, attested, cluster := world()
	for name, c := range map[string]struct {
		key  func() (crypto.Signer, error)
		node string
		dns  []string
		ips  []string
		why  string
	}{
		"its name and addresses": {dns: []string{"web-1"}, ips: []string{"10.0.0.1", "192.0.2.1"}},
		"with RSA":               {key: newRSA, dns: []string{"web-1"}, ips: []string{"10.0.0.1"}},
		"addresses alone":        {ips: []string{"10.0.0.1", "2001:db8::1"}},
		"names alone, any case":  {dns: []string{"WEB-1", "web-1.c.Project.internal"}},
		"a former address":       {dns: []string{"web-1"}, ips: []string{"10.0.0.1", "10.0.0.77"}, why: "address 10.0.0.77 is not one of the instance"},
		"another node's address": {ips: []string{"10.0.0.2"}, why: "address 10.0.0.2 is not one"},
		"another node's name":    {dns: []string{"web-2"}, why: `name "web-2" is not one of the instance, which the cloud knows as web-1, web-1.c`},
		"the same in capitals":   {dns: []string{"WEB-2"}, why: `name "WEB-2" is not one`},
		"a balancer's address":   {ips: []string{"198.51.100.9"}, why: "address 198.51.100.9 is never a node's"},
		"the API's Service":      {ips: []string{"10.96.0.1"}, why: "never a node's"},
		"loopback":               {ips: []string{"127.0.0.1"}, why: "never a node's"},
		"no Node":                {node: "nobody", ips: []string{"10.0.0.1"}, why: "there is no Node nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			maker := "web-1"
			if c.node != "" {
				maker = c.node
			}
			csr := managerRequest(t, maker, c.key, c.dns, c.ips...)
			approve, why := judge(csr, web, attested, cluster)
			assert.Equal(t, c.why == "", approve, why)
			assert.Contains(t, why, c.why)
		})
	}
}

// TestNamesThatNoNodeHas: whatever a cloud says, no node gets the names of the API server, of Services or of everybody.
func TestNamesThatNoNodeHas(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"*", "*.example.com", "localhost", "LOCALHOST", "x.localhost", "kubernetes", "Kubernetes.default", "kubernetes.example.com", "web.default.SVC",
		"web.default.svc.example.com", "web.default.svc.cluster.local", "x.Cluster.Local", "cluster.local", "API.example.com", "api.example.com.",
	} {
		_, attested, cluster := world()
		attested.Names = append(attested.Names, name)
		why := cluster.findForeignName(&x509.CertificateRequest{DNSNames: []string{name}}, attested)
		assert.Contains(t, why, "is never a node's", name)
	}
	_, attested, cluster := world()
	attested.Names = append(attested.Names, "")
	assert.NotEmpty(t, cluster.findForeignName(&x509.CertificateRequest{DNSNames: []string{""}}, attested))
	attested.Names = []string{"api"} // as node api.example.org
	assert.NotEmpty(t, cluster.findForeignName(&x509.CertificateRequest{DNSNames: []string{"api.example.org"}}, attested))
}

// forgery changes a valid request, its Node or the cluster; why is the expected reason of the refusal.
type forgery struct {
	template func(*x509.CertificateRequest)
	change   func(*request)
	node     func(*v1.Node)
	cluster  func(*Cluster)
	why      string
}

type request = certificatesv1.CertificateSigningRequest

func forgeries() map[string]forgery {
	return map[string]forgery{
		"nothing":        {},
		"another's name": {template: func(r *x509.CertificateRequest) { r.Subject.CommonName = userPrefix + "web-2" }, why: `it is for "system:node:web-2"`},
		"more groups": {template: func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}, why: "organization"},
		"an e-mail address": {template: func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b.c"} }, why: "e-mail"},
		"a URI": {template: func(r *x509.CertificateRequest) {
			r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, why: "URI"},
		"no names":        {template: func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil }, why: "neither"},
		"an address text": {template: func(r *x509.CertificateRequest) { r.DNSNames = []string{"10.0.0.2"} }, why: "10.0.0.2"},
		"no kubelet":      {change: func(r *request) { r.Spec.Username = "system:admin" }, why: "no kubelet made it"},
		"no group":        {change: func(r *request) { r.Spec.Groups = []string{"system:authenticated"} }, why: "no kubelet made it"},
		"client usage": {change: func(r *request) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth)
		}, why: "usages"},
		"no serving usage": {change: func(r *request) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		}, why: "usages"},
		"another signer": {change: func(r *request) { r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName }, why: "no request"},
		"denied": {change: func(r *request) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		}, why: "no request"},
		"issued":          {change: func(r *request) { r.Status.Certificate = []byte("x") }, why: "no request"},
		"no PEM":          {change: func(r *request) { r.Spec.Request = []byte("x") }, why: "PEM"},
		"two requests":    {change: func(r *request) { r.Spec.Request = append(r.Spec.Request, r.Spec.Request...) }, why: "no single PEM block"},
		"a broken one":    {change: func(r *request) { r.Spec.Request = encode([]byte("x")) }, why: "broken"},
		"a signature":     {change: func(r *request) { r.Spec.Request = resigned(r.Spec.Request) }, why: "broken"},
		"a leaving Node":  {node: func(n *v1.Node) { n.DeletionTimestamp = new(metav1.Now()) }, why: "being deleted"},
		"no provider ID":  {node: func(n *v1.Node) { n.Spec.ProviderID = "" }, why: "no provider ID"},
		"another's cloud": {node: func(n *v1.Node) { n.Spec.ProviderID = "other://1" }, why: "no provider ID of this cloud"},
		"another form of the instance": {cluster: func(c *Cluster) {
			c.Nodes = append(c.Nodes, node("thief", "toy:///elsewhere/1"))
		}, why: "Node thief has the same instance"},
		"two instances of one name": {template: func(r *x509.CertificateRequest) {
			r.DNSNames = []string{"web-1.c.project.INTERNAL", "WEB-1"}
		}, cluster: func(c *Cluster) { c.Nodes = append(c.Nodes, node("web-1.c.project.internal", "other://2")) }, why: "is the name of another Node"},
	}
}

// TestForgedRequests: what a kubelet, or somebody else, changes of a good request.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	for name, c := range forgeries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web, attested, cluster := world()
			template := requestTemplate("web-1", []string{"web-1"}, "10.0.0.1")
			if c.template != nil {
				c.template(template)
			}
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			require.NoError(t, err)
			der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
			require.NoError(t, err)
			csr := &request{Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: encode(der), SignerName: certificatesv1.KubeletServingSignerName, Username: userPrefix + "web-1", Groups: []string{nodesGroup},
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			}}
			if c.change != nil {
				c.change(csr)
			}
			if c.node != nil {
				c.node(web)
			}
			if c.cluster != nil {
				c.cluster(&cluster)
			}
			approve, why := judge(csr, web, attested, cluster)
			assert.Equal(t, c.why == "", approve, why)
			assert.Contains(t, why, c.why)
		})
	}
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// resigned is a request with another signature.
func resigned(data []byte) []byte {
	block, _ := pem.Decode(data)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return pem.EncodeToMemory(block)
}
