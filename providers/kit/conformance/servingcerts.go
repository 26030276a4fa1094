package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
	"github.com/anyccm/cloud-controller-manager/registry/servingcert"
)

// runServingCertificates: kubelets get certificates for all names and addresses of their Nodes, and for nobody else's. Together they cost
// pages; an outage approves nothing. A cloud that does not attest says why, by no call.
func runServingCertificates(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "serving certificates", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		guarded, ok := w.cloud.(*guard.Cloud)
		require.True(t, ok)
		if w.Provider.Features.ServingCertificates != registry.Done {
			w.addNodes(1)
			w.Sim.ResetCalls()
			_, why, err := guarded.AttestInstance(t.Context(), w.nodes[0])
			require.NoError(t, err)
			assert.NotEmpty(t, why)
			assert.Zero(t, w.Sim.Calls().Total)
			return
		}
		servingNodes := 100
		if tier.All() {
			servingNodes = 1000
		}
		w.addNodes(servingNodes)
		k := w.runApprover(guarded)
		w.Sim.ResetCalls()
		time.Sleep(10 * time.Minute)
		assert.Zero(t, w.Sim.Calls().Total, "without requests nothing is asked")
		names := make([]string, servingNodes)
		for i, node := range w.nodes {
			names[i] = k.ask(node, node.Status.Addresses)
		}
		time.Sleep(time.Minute)
		for i, name := range names {
			require.True(t, k.isApproved(name), w.nodes[i].Status.Addresses)
		}
		assert.LessOrEqual(t, w.Sim.Calls().Total, 1+servingNodes/nodesPerCall, "pages")
		assert.Empty(t, k.events.Events)

		forger, victim := w.nodes[0], w.nodes[1]
		forger.Status.Addresses = victim.Status.Addresses
		forged := k.ask(forger, victim.Status.Addresses)
		w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusInternalServerError})
		renewal := k.ask(w.nodes[2], w.nodes[2].Status.Addresses)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		assert.False(t, k.isApproved(renewal), "an outage")
		w.Sim.ClearFaults()
		time.Sleep(15 * time.Minute)
		assert.True(t, k.isApproved(renewal), "after the outage")
		assert.False(t, k.isApproved(forged))
		require.Len(t, k.events.Events, 1)
		assert.Contains(t, <-k.events.Events, servingcert.EventServingCertificateNotApproved)
	})
}

// approver is a running controller of serving certificates with its API server.
type approver struct {
	t      testing.TB
	kube   *fake.Clientset
	events *record.FakeRecorder
	made   int
}

// runApprover starts the controller over the nodes.
func (w *world) runApprover(guarded *guard.Cloud) *approver {
	k := &approver{t: w.t, kube: fake.NewClientset(), events: record.NewFakeRecorder(100)}
	nodes, services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, node := range w.nodes {
		require.NoError(w.t, nodes.Add(node))
		require.NoError(w.t, k.kube.Tracker().Add(node))
	}
	controller := &servingcert.Controller{
		Client: k.kube, Events: k.events, Cloud: guarded, Nodes: listers.NewNodeLister(nodes), Services: listers.NewServiceLister(services),
		Approved: func() {},
	}
	rescue.Go("approving serving certificates", func() { assert.NoError(w.t, controller.Run(w.t.Context())) })
	return k
}

// ask makes the request of a node's kubelet for names and addresses, and returns its name.
func (k *approver) ask(node *v1.Node, addresses []v1.NodeAddress) string {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node.Name, Organization: []string{"system:nodes"}}}
	for _, a := range addresses {
		if a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(a.Address))
		} else {
			template.DNSNames = append(template.DNSNames, a.Address)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(k.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	require.NoError(k.t, err)
	k.made++
	name := fmt.Sprintf("csr-%d", k.made)
	_, err = k.kube.CertificatesV1().CertificateSigningRequests().Create(k.t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName, Username: template.Subject.CommonName, Groups: template.Subject.Organization,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	require.NoError(k.t, err)
	return name
}

func (k *approver) isApproved(name string) bool {
	csr, err := k.kube.CertificatesV1().CertificateSigningRequests().Get(k.t.Context(), name, metav1.GetOptions{})
	require.NoError(k.t, err)
	return len(csr.Status.Conditions) > 0
}
