package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const annotations = "service.beta.kubernetes.io/do-loadbalancer-"

func holdings(t *testing.T, c *harness.Cluster) []string {
	t.Helper()
	s, err := c.Cloud.Summary(t.Context())
	require.NoError(t, err)
	return s.Holdings
}

func waitHoldings(t *testing.T, c *harness.Cluster, n int, containing string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the load balancers", func(ctx context.Context) error {
		s, err := c.Cloud.Summary(ctx)
		if err != nil {
			return err
		}
		matching := 0
		for _, h := range s.Holdings {
			if strings.Contains(h, containing) {
				matching++
			}
		}
		if matching != n || len(s.Holdings) != n {
			return fmt.Errorf("the cloud holds %v", s.Holdings)
		}
		return nil
	}))
}

func patchService(t *testing.T, c *harness.Cluster, name, patch string) {
	t.Helper()
	_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Patch(
		t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
	)
	require.NoError(t, err)
}

// requireEnsured waits until every Service was reconciled since the start of the program, which the queue tells.
func requireEnsured(t *testing.T, m *harness.CCM, services int) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "all Services to be reconciled", func(ctx context.Context) error {
		done, err := m.Metric(ctx, "workqueue_work_duration_seconds_count", `name="service"`)
		if err != nil {
			return err
		}
		depth, err := m.Metric(ctx, "workqueue_depth", `name="service"`)
		if err == nil && (done < float64(services) || depth > 0) {
			err = fmt.Errorf("%.0f done, %.0f waiting", done, depth)
		}
		return err
	}))
}

// waitFirewall waits until the firewall lets in the health checks of n load balancers. The work queue of the firewall cannot
// tell: between two runs it holds changes back for some seconds, which its metrics do not show.
func waitFirewall(t *testing.T, c *harness.Cluster, n int) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the firewall", func(ctx context.Context) error {
		var answer struct {
			Firewalls []struct {
				InboundRules []struct {
					Sources struct {
						LoadBalancers []string `json:"load_balancer_uids"`
					} `json:"sources"`
				} `json:"inbound_rules"`
			} `json:"firewalls"`
		}
		if err := c.Cloud.Call(ctx, http.MethodGet, "/v2/firewalls", testToken, nil, &answer); err != nil {
			return err
		}
		known := map[string]bool{}
		for _, f := range answer.Firewalls {
			for _, r := range f.InboundRules {
				for _, id := range r.Sources.LoadBalancers {
					known[id] = true
				}
			}
		}
		if len(known) != n {
			return fmt.Errorf("it knows %d of %d load balancers", len(known), n)
		}
		return nil
	}))
}

func TestAdoption(t *testing.T) {
	c := newCluster(t, "--instances=1")
	adopt := []string{"--adopt-load-balancers=any"} // its Service is gone: nothing else shows whose it is
	m := startCCM(t, c, adopt, nil)
	joinNodes(t, c, 1)
	_, err := c.CreateService(t.Context(), "web", map[string]string{annotations + "name": "front"})
	require.NoError(t, err)
	address, err := c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	const idKey = "kubernetes.digitalocean.com/load-balancer-id"
	id := s.Annotations[idKey]
	require.NotEmpty(t, id)

	// Disowned, the load balancer outlives its Service.
	patchService(t, c, "web", `{"metadata":{"annotations":{"service.kubernetes.io/do-loadbalancer-disown":"true"}}}`)
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the Service to go", func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	}))
	waitHoldings(t, c, 1, "front")

	// By ID.
	_, err = c.CreateService(t.Context(), "by-id", map[string]string{idKey: id, annotations + "name": "front"})
	require.NoError(t, err)
	again, err := c.WaitServed(t.Context(), "by-id", patience)
	require.NoError(t, err)
	assert.Equal(t, address, again)
	waitHoldings(t, c, 1, "front")

	// By name, after the record of the ID was lost while the program was down.
	m.Stop(patience)
	patchService(t, c, "by-id", `{"metadata":{"annotations":{"`+idKey+`":null}}}`)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, adopt, nil)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the record of the ID", func(ctx context.Context) error {
		s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "by-id", metav1.GetOptions{})
		if err == nil && s.Annotations[idKey] != id {
			err = fmt.Errorf("it is %q", s.Annotations[idKey])
		}
		return err
	}))
	requireWorked(t, m, "service")
	assert.Zero(t, calls(t, c).Writes)
}

// backends waits until each load balancer has that many droplets, and returns the load balancers' IDs.
func backends(t *testing.T, c *harness.Cluster, loadBalancers, droplets int) (ids []string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, fmt.Sprintf("%d load balancers with %d droplets", loadBalancers, droplets), func(ctx context.Context) error {
		var answer struct {
			LoadBalancers []struct {
				ID         string `json:"id"`
				DropletIDs []int  `json:"droplet_ids"`
			} `json:"load_balancers"`
		}
		if err := c.Cloud.Call(ctx, http.MethodGet, "/v2/load_balancers", testToken, nil, &answer); err != nil {
			return err
		}
		ids = nil
		for _, lb := range answer.LoadBalancers {
			if len(lb.DropletIDs) != droplets {
				return fmt.Errorf("%s has %d", lb.ID, len(lb.DropletIDs))
			}
			ids = append(ids, lb.ID)
		}
		if len(ids) != loadBalancers {
			return fmt.Errorf("there are %d", len(ids))
		}
		return nil
	}))
	return ids
}

// createOfClass creates a Service of a class, with the finalizer that all controllers share where another controller is to
// have put it on.
func createOfClass(t *testing.T, c *harness.Cluster, name, class string, finalizers ...string) {
	t.Helper()
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}},
	}
	if class != "" {
		s.Spec.LoadBalancerClass = &class
	}
	_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
}

// TestLoadBalancerClass: the three modes, and a Service of another controller with the finalizer that all share.
func TestLoadBalancerClass(t *testing.T) {
	const class, finalizer = "example.com/ours", "service.kubernetes.io/load-balancer-cleanup"
	c := newCluster(t, "--instances=3")
	env := everything(t, c)
	named := []string{"--load-balancer-class=" + class, "--load-balancer-class-mode=named"}
	m := startCCM(t, c, named, env)
	joinNodes(t, c, 1)
	createOfClass(t, c, "other", "example.com/other", finalizer)
	createOfClass(t, c, "plain", "")
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "other", metav1.DeleteOptions{}))
	createOfClass(t, c, "ours", class)
	_, err := c.WaitServed(t.Context(), "ours", patience)
	require.NoError(t, err)
	was := backends(t, c, 1, 1)
	waitFirewall(t, c, 1)

	// After a restart in this mode everything goes on: what is served stays, and a node joins and leaves.
	m.Stop(patience)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, named, env)
	requireWorked(t, m, "service")
	requireWorked(t, m, "firewall")
	assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-2", Ready: true}))
	assert.Equal(t, was, backends(t, c, 1, 2))
	waitFirewall(t, c, 1)
	require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "node-2", metav1.DeleteOptions{}))
	assert.Equal(t, was, backends(t, c, 1, 1))
	requireClasses(t, c, class)

	m.Stop(patience)
	startCCM(t, c, []string{"--load-balancer-class=" + class, "--load-balancer-class-mode=named-and-unclassed"}, env)
	_, err = c.WaitServed(t.Context(), "plain", patience)
	require.NoError(t, err)
	assert.Contains(t, backends(t, c, 2, 1), was[0])
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
	backends(t, c, 2, 2)
	other, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "other", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{finalizer}, other.Finalizers, "the other controller has not cleaned up yet")
	requireClasses(t, c, class)

	// Ours are cleaned up: classed ones, and those that are no load balancer any more.
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "ours", metav1.DeleteOptions{}))
	patchService(t, c, "plain", `{"spec":{"type":"ClusterIP"}}`)
	waitHoldings(t, c, 0, "")
}

// requireClasses: what tells the framework which Services are ours exists in the program's memory alone.
func requireClasses(t *testing.T, c *harness.Cluster, class string) {
	t.Helper()
	for name, want := range map[string]*string{"ours": &class, "plain": nil, "other": new("example.com/other")} {
		s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, want, s.Spec.LoadBalancerClass, name)
	}
}

// TestOrphans: what a forced deletion leaves in the cloud is listed, and deleted after the cluster's name was typed.
func TestOrphans(t *testing.T) {
	c := newCluster(t, "--instances=1")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	for _, name := range []string{"kept", "forced"} {
		_, err := c.CreateService(t.Context(), name, nil)
		require.NoError(t, err)
		_, err = c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
	}
	m.Stop(patience)
	patchService(t, c, "forced", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "forced", metav1.DeleteOptions{}))

	env, err := c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	orphans := func(input string, args ...string) (string, error) {
		cmd := exec.CommandContext(
			t.Context(), c.Programs.CCM,
			append([]string{"orphans", "--cloud-provider=digitalocean", "--kubeconfig=" + c.Kubeconfig, "--cluster-name=prod"}, args...)...,
		)
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := orphans("", "-o", "json")
	require.ErrorContains(t, err, "exit status 1", "there are orphans: %s", out)
	var list []struct{ Kind, ID, Name string }
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list, 1)
	assert.Equal(t, "load balancer", list[0].Kind)

	out, err = orphans("production\n", "--delete")
	require.Error(t, err)
	assert.Contains(t, out, "nothing was deleted: that is not the name of the cluster")
	waitHoldings(t, c, 2, "")
	assert.Contains(t, out, "to delete 1 object: ")
	out, err = orphans("", "--delete", "--yes")
	require.NoError(t, err, out)
	assert.Contains(t, out, "Deleted load balancer "+list[0].ID)
	waitHoldings(t, c, 1, "")
	out, err = orphans("")
	require.NoError(t, err)
	assert.Contains(t, out, "There are no orphans.")
}

// TestRetainAndProtect: annotations that mean the same on every cloud.
func TestRetainAndProtect(t *testing.T) {
	c := newCluster(t, "--instances=1")
	startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	for name, annotation := range map[string]string{"retained": "anyccm.io/retain-load-balancer", "protected": "anyccm.io/protect-load-balancer"} {
		_, err := c.CreateService(t.Context(), name, map[string]string{annotation: "true", annotations + "name": name})
		require.NoError(t, err)
		_, err = c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
		require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	requireEvent(t, c, metav1.NamespaceDefault, "LoadBalancerRetained", "retained")
	requireEvent(t, c, metav1.NamespaceDefault, "SyncLoadBalancerFailed", "protected", "remove the annotation anyccm.io/protect-load-balancer")
	waitHoldings(t, c, 2, "")
	patchService(t, c, "protected", `{"metadata":{"annotations":{"anyccm.io/protect-load-balancer":null}}}`)
	waitHoldings(t, c, 1, "retained")
}

func TestBadAnnotations(t *testing.T) {
	c := newCluster(t, "--instances=1")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	_, err := c.CreateService(t.Context(), "bad", map[string]string{
		annotations + "type": "REGIONAL", annotations + "protocol": "htpp", annotations + "http-ports": "eighty",
		annotations + "tls-passthrough": "true", annotations + "certificate-id": "4de7ac8b-495b-4884-9a69-1050c6793cd6",
		annotations + "size-slug": "lb-small", annotations + "size-unit": "2",
	})
	require.NoError(t, err)
	e := requireEvent(t, c, metav1.NamespaceDefault, "LoadBalancerConfigError", "bad")
	assert.Equal(t, v1.EventTypeWarning, e.Type)
	for _, want := range []string{
		`annotation ` + annotations + `protocol: "htpp" is not one of`, `did you mean "http"?`,
		`annotation ` + annotations + `http-ports: "eighty" is not a list of whole numbers`,
		`tls-passthrough: excludes a certificate`, `size-slug and ` + annotations + `size-unit: exclude each other`,
	} {
		assert.Contains(t, e.Message, want)
	}
	requireWorked(t, m, "service")
	assert.Zero(t, calls(t, c).Writes)
	assert.Empty(t, holdings(t, c))
}
