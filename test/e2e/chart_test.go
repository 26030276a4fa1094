package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestChartInstallation: the chart is installed, upgraded and uninstalled on a real API server, which validates every
// object strictly; the upgrade changes the running set-up, and nothing is left at the end.
func TestChartInstallation(t *testing.T) {
	c := newCluster(t, "--instances=1")
	everything := harness.Values{
		"kind": "Deployment", "networkPolicy.enabled": true, "metrics.dashboard.enabled": true,
		"admissionPolicy.enabled": true, "loadBalancerClassMode": "named", "loadBalancerClass": "example.com/lb",
		"podAnnotations": map[string]string{"a": "b"}, "podLabels": map[string]string{"c": "d"}, "extraArgs": []string{"--node-deletion-dry-run"},
	}
	_, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	objects, err := c.Install(t.Context(), "extra", everything)
	require.NoError(t, err)
	_, err = c.Install(t.Context(), "extra", everything)
	require.NoError(t, err, "once more changes nothing")
	m, err := c.StartRelease(t.Context(), "extra", c.Programs.CCM, everything, nil, nil)
	require.NoError(t, err)
	require.NoError(t, m.WaitLeading(t.Context(), patience))
	joinNodes(t, c, 1)
	m.Stop(patience)

	first, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	require.NoError(t, c.Delete(t.Context(), objects))
	for _, o := range first {
		if o.GetKind() == "DaemonSet" {
			require.NoError(t, c.Kube.AppsV1().DaemonSets(o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}), "the only object that the change of the kind replaces")
		}
	}
	roles, err := c.Kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, roles.Items)
	accounts, err := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, accounts.Items)
}

// TestAdmissionPolicy: the API server says about bad annotations what the events would say, and refuses them where that is
// asked for; over all annotations it agrees with `validate`.
func TestAdmissionPolicy(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		a := expected.Admission
		cluster := newClusterOn(t, provider)
		_, err := cluster.Install(t.Context(), "cloud-controller-manager", harness.Values{"admissionPolicy.enabled": true, "admissionPolicy.action": "Deny"})
		require.NoError(t, err)
		tries := 0
		require.NoError(t, harness.Eventually(t.Context(), patience, "the policy to be in force", func(ctx context.Context) error {
			tries++
			_, err := cluster.CreateService(ctx, fmt.Sprintf("bad-%d", tries), a.Bad)
			if err == nil {
				return errors.New("the Service was taken")
			}
			if !strings.Contains(err.Error(), a.Words) {
				return fmt.Errorf("refused with other words: %w", err)
			}
			return nil
		}))
		_, err = cluster.CreateService(t.Context(), "good", a.Good)
		require.NoError(t, err)
		_, err = cluster.CreateService(t.Context(), "lenient", a.Lenient)
		require.NoError(t, err, "what counts as the default is a warning alone")
		const key = "anyccm.io/retain-load-balancer"
		_, err = cluster.CreateService(t.Context(), "long", map[string]string{key: strings.Repeat("t", 16385)})
		require.ErrorContains(t, err, "annotation "+key+": is too long; use at most 16384 characters")
		agreesWithValidate(t, cluster)
		onlyChangesAreJudged(t, cluster, a.Bad)
	})
}

// onlyChangesAreJudged: a Service that was bad before the policy can be edited, and what an update makes bad is refused; excluded
// namespaces are not judged.
func onlyChangesAreJudged(t *testing.T, cluster *harness.Cluster, bad map[string]string) {
	t.Helper()
	services := cluster.Kube.CoreV1().Services(metav1.NamespaceDefault)
	install := func(excluded ...any) {
		_, err := cluster.Install(t.Context(), "cloud-controller-manager", harness.Values{
			"admissionPolicy.enabled": true, "admissionPolicy.action": "Deny", "admissionPolicy.excludeNamespaces": excluded,
		})
		require.NoError(t, err)
	}
	install(metav1.NamespaceDefault)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the namespace to be excluded", func(ctx context.Context) error {
		_, err := services.Create(ctx, serviceOf("bad-before", v1.ServiceTypeLoadBalancer, bad), metav1.CreateOptions{})
		return err
	}))
	install()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the policy to be in force again", func(ctx context.Context) error {
		_, err := services.Create(ctx, serviceOf("bad-now", v1.ServiceTypeLoadBalancer, bad), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the Service was taken")
		}
		return nil
	}))
	patch := func(text string) error {
		_, err := services.Patch(t.Context(), "bad-before", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	require.NoError(t, patch(`{"metadata":{"labels":{"a":"b"},"annotations":{"example.com/other":"x"}}}`), "what does not change is not judged")
	key := slices.Sorted(maps.Keys(bad))[0]
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"`+key+`":"`+bad[key]+`-worse"}}}`), key, "what changes is")
	require.NoError(t, patch(`{"spec":{"type":"ClusterIP"}}`))
	require.ErrorContains(t, patch(`{"spec":{"type":"LoadBalancer"}}`), key, "it asks for a load balancer again")
	require.NoError(t, patch(`{"metadata":{"annotations":{"`+key+`":null}},"spec":{"type":"LoadBalancer"}}`))
}

// TestAdoptionIsRefused: with the chart's value, only this program and those who have the right to adopt say which load balancer of
// the cloud a Service has; everything else about Services stays with their authors.
func TestAdoptionIsRefused(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		if len(expected.Adoption.Annotations) == 0 {
			return // test/chart holds that the provider's table has none either
		}
		key := slices.Collect(maps.Keys(expected.Adoption.Asks))[0]
		value := expected.Adoption.Asks[key]
		cluster := newClusterOn(t, provider, "--instances=1")
		values := harness.Values{"admissionPolicy.refuseAdoption": true}
		_, err := cluster.Install(t.Context(), "cloud-controller-manager", values)
		require.NoError(t, err)
		if expected.Adoption.Recorded != "" {
			startRelease(t, cluster, values, nil, nil)
			joinNodes(t, cluster, 1)
		}
		tenant := asTenant(t, cluster, "tenant")
		tries := 0
		require.NoError(t, harness.Eventually(t.Context(), patience, "the policy to be in force", func(ctx context.Context) error {
			tries++
			_, err := tenant.Create(
				ctx, serviceOf(fmt.Sprintf("claims-%d", tries), v1.ServiceTypeLoadBalancer, map[string]string{key: value}),
				metav1.CreateOptions{},
			)
			if err == nil {
				return errors.New("the Service was taken")
			}
			if !strings.Contains(err.Error(), `annotation `+key+`: "`+value+`" asks for what exists in the cloud`) {
				return fmt.Errorf("refused with other words: %w", err)
			}
			return nil
		}))
		detours(t, tenant, key, value)

		adopter := asTenant(
			t, cluster, "adopter",
			rbacv1.PolicyRule{APIGroups: []string{"anyccm.io"}, Resources: []string{"loadbalancers"}, Verbs: []string{"adopt"}},
		)
		_, err = adopter.Create(t.Context(), serviceOf("adopted", v1.ServiceTypeLoadBalancer, map[string]string{key: value}), metav1.CreateOptions{})
		require.NoError(t, err, "who has the right may")
		_, err = tenant.Patch(t.Context(), "adopted", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		require.NoError(t, err, "what is there already stays")
		_, err = tenant.Patch(t.Context(), "adopted", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":null}}}`), metav1.PatchOptions{})
		require.NoError(t, err, "and may go")
		if recorded := expected.Adoption.Recorded; recorded != "" {
			servedForTenant(t, cluster, tenant, recorded)
		}
	})
}

// detours are other ways to the same annotation.
func detours(t *testing.T, tenant typedv1.ServiceInterface, key, value string) {
	t.Helper()
	_, err := tenant.Create(t.Context(), serviceOf("plain", v1.ServiceTypeClusterIP, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	patch := []byte(`{"metadata":{"annotations":{"` + key + `":"` + value + `"}}}`)
	for _, subresource := range [][]string{nil, {"status"}} {
		_, err = tenant.Patch(t.Context(), "plain", types.MergePatchType, patch, metav1.PatchOptions{}, subresource...)
		require.ErrorContains(t, err, "asks for what exists in the cloud", "a Service that may become a load balancer's: %v", subresource)
	}
	_, err = tenant.Patch(
		t.Context(), "plain", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}},"spec":{"type":"LoadBalancer"}}`), metav1.PatchOptions{},
	)
	require.ErrorContains(t, err, "asks for what exists in the cloud")
	other := serviceOf("of-another-class", v1.ServiceTypeLoadBalancer, map[string]string{key: value})
	other.Spec.LoadBalancerClass = new("example.com/another")
	_, err = tenant.Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err, "another controller's Services are its own affair")
}

// servedForTenant: the program records its load balancers, and the author of the Service goes on as before.
func servedForTenant(t *testing.T, c *harness.Cluster, tenant typedv1.ServiceInterface, key string) {
	t.Helper()
	_, err := tenant.Create(t.Context(), serviceOf("own", v1.ServiceTypeLoadBalancer, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.WaitServed(t.Context(), "own", patience)
	require.NoError(t, err)
	s, err := tenant.Get(t.Context(), "own", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, s.Annotations[key], "the program is not refused")
	_, err = tenant.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"00000000-495b-4884-9a69-1050c6793cd6"}}}`), metav1.PatchOptions{})
	require.ErrorContains(t, err, "asks for what exists in the cloud")
	require.NoError(t, tenant.Delete(t.Context(), "own", metav1.DeleteOptions{}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the Service to go", func(ctx context.Context) error {
		if _, err := tenant.Get(ctx, "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	}))
}

// asTenant returns the Services of the namespace default as a user sees them who may write these and has further rights.
func asTenant(t *testing.T, c *harness.Cluster, name string, further ...rbacv1.PolicyRule) typedv1.ServiceInterface {
	t.Helper()
	rules := slices.Concat(further, []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"services", "services/status"}, Verbs: []string{"get", "create", "update", "patch", "delete"},
	}})
	_, err := c.Kube.RbacV1().Roles(metav1.NamespaceDefault).Create(
		t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{},
	)
	require.NoError(t, err)
	_, err = c.Kube.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := c.API.Config()
	config.Impersonate.UserName = name
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	// The authorizer hears of a new role a moment later.
	require.NoError(t, harness.Eventually(t.Context(), patience, "the role to count", func(ctx context.Context) error {
		_, err := services.Create(ctx, serviceOf("probe", v1.ServiceTypeClusterIP, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}))
	return services
}

func serviceOf(name string, kind v1.ServiceType, annotations map[string]string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       v1.ServiceSpec{Type: kind, Selector: map[string]string{"app": name}, Ports: []v1.ServicePort{{Name: "http", Port: 80}}},
	}
}
