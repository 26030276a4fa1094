package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// documentedService is a Service of the documentation, as it stands there, and what it is to give.
type documentedService struct {
	name    string
	service *unstructured.Unstructured
	want    expectations.Example
}

// documentedServices are the manifests for all clouds, and the Services of the cloud's page.
func documentedServices(t *testing.T, provider string, expected expectations.Cloud) (all []documentedService) {
	t.Helper()
	root := filepath.Join("..", "..")
	names, err := expectations.Examples(root)
	require.NoError(t, err)
	for _, name := range names {
		objects, err := harness.Manifests(expectations.ExamplePath(root, name), metav1.NamespaceDefault)
		require.NoError(t, err)
		require.Len(t, objects, 1)
		all = append(all, documentedService{name, objects[0], expected.Portable.Examples[name]})
	}
	blocks, err := expectations.PageBlocks(root, provider, "services", "yaml")
	require.NoError(t, err)
	require.Len(t, blocks, len(expected.Page))
	for _, text := range blocks {
		objects, err := harness.Decode([]byte(text))
		require.NoError(t, err)
		require.Len(t, objects, 1)
		objects[0].SetNamespace(metav1.NamespaceDefault)
		name := objects[0].GetName()
		all = append(all, documentedService{name + " of the page", objects[0], expected.Page[name].Example})
	}
	return all
}

// TestDocumentedServices: the manifests of the documentation and the Services of the cloud's page, applied as they stand there, give what
// the cloud's expectations say, in the cloud; where they are refused, nothing is made, and the event says what is legal.
func TestDocumentedServices(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		want := expected.Portable
		c := newClusterOn(t, provider, "--instances=2")
		for _, step := range want.Prepare {
			prepare(t, c, step)
		}
		createTLSSecret(t, c, "web-tls")
		values := harness.Values{"serviceDefaults": want.Defaults}
		maps.Copy(values, want.Values)
		_, err := c.Install(t.Context(), "cloud-controller-manager", values)
		require.NoError(t, err)
		m := startRelease(t, c, values, nil, nil)
		joinNodes(t, c, 2)
		apply := func(one documentedService) {
			require.NoError(t, c.Apply(t.Context(), []*unstructured.Unstructured{one.service}))
		}

		before := holdings(t, c)
		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		all := documentedServices(t, provider, expected)
		for _, one := range all {
			if one.want.Refused != "" {
				apply(one)
				requireEvent(t, c, metav1.NamespaceDefault, "LoadBalancerConfigError", one.service.GetName(), one.want.Refused)
			}
		}
		requireWorked(t, m, "service")
		assert.Equal(t, before, holdings(t, c), "what is refused makes nothing")
		assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)

		served := slices.DeleteFunc(all, func(one documentedService) bool { return one.want.Refused != "" })
		for _, one := range served {
			apply(one)
		}
		for _, one := range served {
			requireExample(t, c, one)
		}
		assert.Len(t, holdings(t, c), len(before)+len(served))
		assert.Empty(t, calls(t, c).Refused, "the real API would have refused these")
	})
}

// requireExample waits until a Service is served, and holds the cloud against what it is to give.
func requireExample(t *testing.T, c *harness.Cluster, one documentedService) {
	t.Helper()
	name, service, want := one.name, one.service, one.want
	stored, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), service.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	state := want.StateFor(stored)
	address, err := c.WaitServed(t.Context(), service.GetName(), patience)
	require.NoError(t, err)
	if hostname := service.GetAnnotations()[portable.Hostname]; hostname != "" {
		assert.Equal(t, hostname, address)
	} else {
		assert.Regexp(t, want.Address, address, name)
	}
	waitState(t, c, "what "+name+" gives", state)
	for _, words := range want.Warns {
		requireEvent(t, c, metav1.NamespaceDefault, "LoadBalancerAnnotationIgnored", service.GetName(), words)
	}
	requireEvent(t, c, metav1.NamespaceDefault, "EnsuredLoadBalancer", service.GetName()) // comes last
	list, err := c.Kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + service.GetName()})
	require.NoError(t, err)
	ours := slices.DeleteFunc(list.Items, func(e v1.Event) bool { return !wroteEvent(c, e) })
	for _, e := range ours {
		assert.False(t, e.Type == v1.EventTypeWarning && e.Reason != "LoadBalancerAnnotationIgnored", "%s: %s %s", name, e.Reason, e.Message)
		if e.Reason == "LoadBalancerAnnotationIgnored" {
			assert.True(t, slices.ContainsFunc(want.Warns, func(words string) bool { return words == e.Message }), "%s: %s", name, e.Message)
		}
	}
}

// waitState waits until the cloud holds something.
func waitState(t *testing.T, c *harness.Cluster, what string, state any) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, what, func(ctx context.Context) error {
		var has any
		if err := c.Cloud.State(ctx, &has); err != nil {
			return err
		}
		if missing := expectations.Lacks(state, has); missing != "" {
			return errors.New(missing)
		}
		return nil
	}))
}

// prepare makes something in the simulated cloud.
func prepare(t *testing.T, c *harness.Cluster, step expectations.Step) {
	t.Helper()
	require.NoError(t, c.Cloud.Prepare(t.Context(), step), fmt.Sprint(step))
}

// createTLSSecret creates a Secret with a certificate of its own.
func createTLSSecret(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "www.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	_, err = c.Kube.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: v1.SecretTypeTLS, Data: map[string][]byte{
			v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}
