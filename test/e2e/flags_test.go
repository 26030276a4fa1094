package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestExampleFlags: the program starts with the flags of the DaemonSet in Kubernetes' documentation, whose account may do everything. One
// warning tells of those without effect, each controller writes with its own account, and no account is denied anything.
func TestExampleFlags(t *testing.T) {
	all := func(registry.Features) bool { return true }
	onEachCloud(t, all, func(t *testing.T, provider string, _ expectations.Cloud) {
		c := newClusterOn(t, provider, "--instances=1")
		grantEverything(t, c)
		m := startCCM(t, c, []string{
			"--leader-elect=true", "--use-service-account-credentials", "--allocate-node-cidrs=true", "--configure-cloud-routes=true",
			"--cluster-cidr=172.17.0.0/16",
		}, nil)
		log, err := os.ReadFile(m.Log)
		require.NoError(t, err)
		assert.LessOrEqual(t, strings.Count(string(log), "no effect on "), 1)
		if provider != harness.AnyProvider {
			return
		}
		assert.Contains(t, string(log),
			"no effect on DigitalOcean as it is configured: --allocate-node-cidrs, --cluster-cidr, --configure-cloud-routes; leave them out")
		joinNodes(t, c, 1)
		_, err = c.CreateService(t.Context(), "web", nil)
		require.NoError(t, err)
		_, err = c.WaitServed(t.Context(), "web", patience)
		require.NoError(t, err)
		requireOwnAccounts(t, c)
	})
}

// grantEverything makes the program's account an administrator, as Kubernetes' example does.
func grantEverything(t *testing.T, c *harness.Cluster) {
	t.Helper()
	name := "cloud-controller-manager"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:" + name, Labels: map[string]string{"app.kubernetes.io/name": name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}},
	}
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
}

// requireOwnAccounts: Nodes and statuses of Services are written by the accounts of their controllers, none of which was denied anything.
func requireOwnAccounts(t *testing.T, c *harness.Cluster) {
	t.Helper()
	requests, err := c.API.Audit("system:serviceaccount:" + metav1.NamespaceSystem + ":")
	require.NoError(t, err)
	writers := map[string]map[string]bool{}
	for _, r := range requests {
		assert.NotEqual(t, 403, r.ResponseStatus.Code, "denied: %s: %s %s", r.User.Username, r.Verb, r.URI)
		path, _, _ := strings.Cut(r.URI, "?")
		for kind, is := range map[string]bool{
			"a Node":                  strings.HasPrefix(path, "/api/v1/nodes/"),
			"a Service's status":      strings.Contains(path, "/services/") && strings.HasSuffix(path, "/status"),
			"the program's own lease": strings.Contains(path, "/leases/"),
		} {
			if !is || r.Verb == "get" {
				continue
			}
			if writers[kind] == nil {
				writers[kind] = map[string]bool{}
			}
			writers[kind][strings.TrimPrefix(r.User.Username, "system:serviceaccount:"+metav1.NamespaceSystem+":")] = true
		}
	}
	assert.Equal(t, map[string]map[string]bool{
		"a Node": {"node-controller": true}, "a Service's status": {"service-controller": true},
		"the program's own lease": {"cloud-controller-manager": true},
	}, writers)
	events, err := c.Kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=EnsuredLoadBalancer"})
	require.NoError(t, err)
	assert.NotEmpty(t, events.Items, v1.EventTypeNormal)
}
