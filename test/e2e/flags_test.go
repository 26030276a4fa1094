package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestExampleFlags: the program starts with the flags of the DaemonSet in Kubernetes' documentation, whose account may do everything, and
// then with those of the cloud's own manifest. One warning tells of those without effect, each controller writes with its own account,
// and no account is denied anything.
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
			m.Stop(patience)
			startsAsItsOwn(t, c, provider)
			return
		}
		assert.Contains(t, string(log),
			"no effect on DigitalOcean as it is configured: --allocate-node-cidrs, --cluster-cidr, --configure-cloud-routes; leave them out")
		joinNodes(t, c, 1)
		_, err = c.CreateService(t.Context(), "web", nil)
		require.NoError(t, err)
		_, err = c.WaitServed(t.Context(), "web", patience)
		require.NoError(t, err)
		waitWriters(t, c, map[string]map[string]bool{
			"update nodes":          {"node-controller": true},
			"patch services/status": {"service-controller": true},
			"update leases":         {program: true},
		}, nil)
		requireEvent(t, c, metav1.NamespaceDefault, "EnsuredLoadBalancer", "web")
		m.Stop(patience)
		startsAsItsOwn(t, c, provider)
	})
}

// startsAsItsOwn: the program leads with the flags of the manifest of the cloud's own controller, except where files and addresses are.
func startsAsItsOwn(t *testing.T, c *harness.Cluster, provider string) {
	t.Helper()
	p, err := registry.Linked().Lookup(provider)
	require.NoError(t, err)
	from := p.Installation.Migration.Origin
	if from.Namespace != "" && from.Namespace != metav1.NamespaceSystem {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: from.Namespace}}
		_, err := c.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	var flags []string
	for _, f := range from.Flags {
		if name, _, _ := strings.Cut(f.Flag, "="); !slices.Contains([]string{"--cloud-config", "--secure-port", "--bind-address"}, name) {
			flags = append(flags, f.Flag)
		}
	}
	startCCM(t, c, flags, nil)
}

// grantEverything makes the program's account an administrator, as Kubernetes' example does.
func grantEverything(t *testing.T, c *harness.Cluster) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:" + program, Labels: map[string]string{"app.kubernetes.io/name": program}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: program, Namespace: metav1.NamespaceSystem}},
	}
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
}

// TestControllerAccounts: with the chart's value each controller writes with its own ServiceAccount and the rights of its role, and the
// cloud's part with the program's account what the cloud's description says.
func TestControllerAccounts(t *testing.T) {
	all := func(registry.Features) bool { return true }
	onEachCloud(t, all, func(t *testing.T, provider string, expected expectations.Cloud) {
		p, err := registry.Linked().Lookup(provider)
		require.NoError(t, err)
		c := newClusterOn(t, provider, "--instances=2")
		values := harness.Values{"serviceAccount.perController": true, "routes.clusterCIDR": "172.17.0.0/16"}
		_, err = c.Install(t.Context(), program, values)
		require.NoError(t, err)
		m := startRelease(t, c, values, quickDeletion, nil)
		log, err := os.ReadFile(m.Log)
		require.NoError(t, err)
		routes := p.Features.Routes == registry.Done && !strings.Contains(string(log), "--cluster-cidr; leave")
		want := map[string]map[string]bool{"update leases": {program: true}}
		if p.Features.Instances == registry.Done {
			joinNodes(t, c, 2)
			want["update nodes"] = map[string]bool{program + "-node-controller": true}
			want["delete nodes"] = want["update nodes"]
		}
		if p.Features.LoadBalancers == registry.Done {
			_, err = c.CreateService(t.Context(), "web", expected.Service)
			require.NoError(t, err)
			_, err = c.WaitServed(t.Context(), "web", patience)
			require.NoError(t, err)
			want["patch services/status"] = map[string]bool{program + "-service-controller": true}
		}
		if routes {
			_, err = c.Kube.CoreV1().Nodes().Patch(
				t.Context(), "node-1", types.MergePatchType, []byte(`{"spec":{"podCIDR":"172.17.1.0/24","podCIDRs":["172.17.1.0/24"]}}`), metav1.PatchOptions{},
			)
			require.NoError(t, err)
			require.NoError(t, harness.Eventually(t.Context(), patience, "the route", func(ctx context.Context) error {
				if !writers(ctx, t, c)["patch nodes/status"][program+"-route-controller"] {
					return errors.New("nobody tells of it")
				}
				return nil
			}))
		}
		if p.Features.Instances == registry.Done {
			require.NoError(t, c.Cloud.Remove(t.Context(), "node-2"))
			require.NoError(t, c.SetReady(t.Context(), "node-2", false))
			waitGone(t, c, "node-2")
		}
		waitWriters(t, c, want, slices.Concat(p.Installation.NodeRights, p.Installation.ServiceRights))
	})
}

// waitWriters waits until exactly the accounts in want wrote each thing. What the rights allow, the program's account may have written too.
func waitWriters(t *testing.T, c *harness.Cluster, want map[string]map[string]bool, rights []registry.Right) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the audit log", func(ctx context.Context) error {
		have := writers(ctx, t, c)
		for what, accounts := range want {
			verb, resource, _ := strings.Cut(what, " ")
			for _, r := range rights {
				if slices.Contains(r.Verbs, verb) && slices.Contains(r.Resources, resource) {
					delete(have[what], program)
				}
			}
			if !maps.Equal(accounts, have[what]) {
				return fmt.Errorf("%s: want %v, have %v", what, accounts, have[what])
			}
		}
		return nil
	}))
}

// writers are the ServiceAccounts of kube-system that wrote objects, by verb and resource. None was denied anything.
func writers(ctx context.Context, t *testing.T, c *harness.Cluster) map[string]map[string]bool {
	t.Helper()
	const prefix = "system:serviceaccount:" + metav1.NamespaceSystem + ":"
	requests, err := c.API.Audit(ctx, prefix)
	require.NoError(t, err)
	all := map[string]map[string]bool{}
	for _, r := range requests {
		assert.NotEqual(t, 403, r.ResponseStatus.Code, "denied: %s: %s %s", r.User.Username, r.Verb, r.URI)
		path, _, _ := strings.Cut(r.URI, "?")
		parts := strings.Split(path, "/")
		for _, resource := range []string{"nodes", "services", "leases"} {
			i := slices.Index(parts, resource)
			if i < 0 || slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
				continue
			}
			what := r.Verb + " " + resource
			if len(parts) > i+2 {
				what += "/" + parts[i+2]
			}
			if all[what] == nil {
				all[what] = map[string]bool{}
			}
			all[what][strings.TrimPrefix(r.User.Username, prefix)] = true
		}
	}
	return all
}
