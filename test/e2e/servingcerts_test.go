package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/servingcert"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// approving are the values of a release that approves serving certificates.
var approving = harness.Values{"kubeletServingCertificates.approve": true}

func attests(f registry.Features) bool { return f.ServingCertificates == registry.Done }

// TestServingCertificates: a kubelet gets a certificate for what the cloud knows of its instance. Another one, which first writes the
// victim's addresses and annotations on its own Node, gets none for them, and its request is not denied.
func TestServingCertificates(t *testing.T) {
	onEachCloud(t, attests, func(t *testing.T, provider string, _ expectations.Cloud) {
		c := newClusterOn(t, provider, "--instances=2")
		_, err := c.Install(t.Context(), program, approving)
		require.NoError(t, err)
		startRelease(t, c, approving, nil, nil)
		joinNodes(t, c, 2)
		allowRequests(t, c)
		honest, forger := node(t, c, "node-1"), node(t, c, "node-2")
		forge, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{guard.AnnotationAddressInclude: "0.0.0.0/0"}},
			"status":   map[string]any{"addresses": honest.Status.Addresses},
		})
		require.NoError(t, err)
		_, err = c.Kube.CoreV1().Nodes().Patch(t.Context(), forger.Name, types.StrategicMergePatchType, forge, metav1.PatchOptions{}, "status")
		require.NoError(t, err)

		defer startKubelet(t, c, forger.Name, honest.Status.Addresses).Stop()
		defer startKubelet(t, c, honest.Name, honest.Status.Addresses).Stop()
		waitApproved(t, c, honest.Name)
		requireEvent(t, c, metav1.NamespaceDefault, servingcert.EventServingCertificateNotApproved, forger.Name, "is not one of the instance")
		assert.Empty(t, servingRequest(t.Context(), t, c, forger.Name).Status.Conditions)
	})
}

// allowRequests lets kubelets make requests, as Kubernetes' authorizer of nodes does.
func allowRequests(t *testing.T, c *harness.Cluster) {
	t.Helper()
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubelets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// startKubelet has client-go's certificate manager ask for a certificate with all of these addresses, as kubelet does.
func startKubelet(t *testing.T, c *harness.Cluster, name string, addresses []v1.NodeAddress) certificate.Manager {
	t.Helper()
	config := c.API.Config()
	config.Impersonate.UserName, config.Impersonate.Groups = "system:node:"+name, []string{"system:nodes", "system:authenticated"}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	subject := pkix.Name{CommonName: config.Impersonate.UserName, Organization: []string{"system:nodes"}}
	template := &x509.CertificateRequest{Subject: subject}
	for _, a := range addresses {
		if ip := net.ParseIP(a.Address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, a.Address)
		}
	}
	store, err := certificate.NewFileStore("kubelet-server", t.TempDir(), t.TempDir(), "", "")
	require.NoError(t, err)
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil }, CertificateStore: store,
		GetTemplate: func() *x509.CertificateRequest { return template }, SignerName: certificatesv1.KubeletServingSignerName,
		GetUsages: certificate.DefaultKubeletServingGetUsages,
	})
	require.NoError(t, err)
	m.Start()
	return m
}

// servingRequest is the request of a node's kubelet; nil if it made none.
func servingRequest(ctx context.Context, t *testing.T, c *harness.Cluster, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	ours := metav1.ListOptions{FieldSelector: servingcert.Selector}
	list, err := c.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, ours)
	require.NoError(t, err)
	for n := range list.Items {
		if servingcert.NodeName(&list.Items[n]) == node {
			return &list.Items[n]
		}
	}
	return nil
}

func waitApproved(t *testing.T, c *harness.Cluster, node string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the certificate of "+node, func(ctx context.Context) error {
		csr := servingRequest(ctx, t, c, node)
		if csr == nil || len(csr.Status.Conditions) == 0 {
			return errors.New("it is not approved")
		}
		assert.Equal(t, certificatesv1.CertificateApproved, csr.Status.Conditions[0].Type)
		return nil
	}))
}
