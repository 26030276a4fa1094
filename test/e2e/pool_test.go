package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestClustersAreEmptied: what a test leaves in a cluster, the next one on the same API server does not see: Nodes, Services and namespaces
// that wait for a controller, leases, events, Secrets, and the chart. An API server that had an admission policy is not lent again.
func TestClustersAreEmptied(t *testing.T) {
	c := newCluster(t, "--instances=1")
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	const space = "left"
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}
	_, err := c.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, namespace := range []string{space, metav1.NamespaceDefault} {
		s := serviceOf("web", v1.ServiceTypeLoadBalancer, nil)
		s.Spec.ClusterIP = map[string]string{space: "10.96.0.77", metav1.NamespaceDefault: "10.96.0.78"}[namespace]
		_, err = c.Kube.CoreV1().Services(namespace).Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	createTLSSecret(t, c, "web-tls")
	putConfigMap(t, c, poolsOf("192.168.10.1/32"))
	_, err = c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	m.Stop(patience)
	assert.NotEmpty(t, nodeWrites(t, c))

	reusable, err := harness.Empty(t.Context(), c.API.Config())
	require.NoError(t, err)
	assert.True(t, reusable)
	require.NoError(t, c.API.ForgetAudit(t.Context()))
	assert.Empty(t, nodeWrites(t, c))
	assert.Empty(t, listNodes(t.Context(), t, c))
	for path, want := range map[string][]string{
		"/api/v1/services":                       {"kubernetes"},
		"/api/v1/events":                         nil,
		"/api/v1/secrets":                        nil,
		"/api/v1/serviceaccounts":                nil,
		"/apis/apps/v1/daemonsets":               nil,
		"/apis/coordination.k8s.io/v1/leases":    nil,
		"/api/v1/namespaces":                     {"default", "kube-node-lease", "kube-public", "kube-system"},
		"/apis/networking.k8s.io/v1/ipaddresses": {"10.96.0.1"},
	} {
		assert.ElementsMatch(t, want, namesBelow(t, c, path), path)
	}
	for _, cm := range namesBelow(t, c, "/api/v1/configmaps") {
		assert.NotEqual(t, "kubevip", cm)
	}
	_, err = c.Kube.RbacV1().ClusterRoles().Get(t.Context(), "system:auth-delegator", metav1.GetOptions{})
	require.NoError(t, err, "what the API server has made stays")
	roles, err := c.Kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=cloud-controller-manager"})
	require.NoError(t, err)
	assert.Empty(t, roles.Items)

	_, err = c.Install(t.Context(), "cloud-controller-manager", harness.Values{"admissionPolicy.enabled": true})
	require.NoError(t, err)
	reusable, err = harness.Empty(t.Context(), c.API.Config())
	require.NoError(t, err)
	assert.False(t, reusable, "the policy may still be in force")
	_, err = c.Kube.CoreV1().Namespaces().Get(t.Context(), space, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
}

// namesBelow are the names of the objects that a path lists, but for the API server's own leases.
func namesBelow(t *testing.T, c *harness.Cluster, path string) (names []string) {
	t.Helper()
	text, err := c.Kube.Discovery().RESTClient().Get().AbsPath(path).Param("labelSelector", "!apiserver.kubernetes.io/identity").DoRaw(t.Context())
	require.NoError(t, err)
	var list metav1.PartialObjectMetadataList
	require.NoError(t, json.Unmarshal(text, &list))
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}
