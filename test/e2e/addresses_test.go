package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// This file is about Services that are given addresses where there is no cloud.

// inCluster is the provider without a cloud outside of the cluster.
func inCluster(t *testing.T) string {
	t.Helper()
	all := registry.Linked().Providers()
	i := slices.IndexFunc(all, func(p registry.Provider) bool { return p.InCluster })
	require.GreaterOrEqual(t, i, 0)
	return all[i].Name
}

// putConfigMap creates a ConfigMap of the namespace kube-system, or replaces it.
func putConfigMap(t *testing.T, c *harness.Cluster, cm *v1.ConfigMap) {
	t.Helper()
	configMaps := c.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if _, err := configMaps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		_, err = configMaps.Update(t.Context(), cm, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

func poolsOf(cidr string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubevip"}, Data: map[string]string{"cidr-global": cidr}}
}

// createWaiting creates a Service for which there is no address, and waits for the event that says so.
func createWaiting(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	_, err := c.CreateService(t.Context(), name, nil)
	require.NoError(t, err)
	requireEvent(t, c, metav1.NamespaceDefault, "NoAddressAvailable", name, "ConfigMap kube-system/kubevip")
}

// TestExhaustedPool: who waits for an address gets one as soon as the pool is larger, another Service is gone, or an operator freed what
// one had that was deleted by force while no program ran.
func TestExhaustedPool(t *testing.T) {
	c := newClusterOn(t, inCluster(t))
	putConfigMap(t, c, poolsOf("192.168.10.1/32"))
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	_, err := c.CreateService(t.Context(), "first", nil)
	require.NoError(t, err)
	_, err = c.WaitServed(t.Context(), "first", patience)
	require.NoError(t, err)

	served := func(name, want string) {
		t.Helper()
		began := time.Now()
		address, err := c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
		assert.Equal(t, want, address)
		t.Logf("%s was served after %s", name, time.Since(began).Round(100*time.Millisecond))
	}
	createWaiting(t, c, "second")
	putConfigMap(t, c, poolsOf("192.168.10.1/32,192.168.10.7/32"))
	served("second", "192.168.10.7")

	createWaiting(t, c, "third")
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	served("third", "192.168.10.1")

	m.Stop(patience)
	patchService(t, c, "third", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, c.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "third", metav1.DeleteOptions{}))
	startCCM(t, c, nil, nil)
	createWaiting(t, c, "fourth")
	env, err := c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(
		t.Context(), c.Programs.CCM, "orphans", "--cloud-provider="+c.Provider, "--kubeconfig="+c.Kubeconfig, "--cluster-name=prod", "--delete",
	)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin = strings.NewReader("prod\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "Deleted address ")
	served("fourth", "192.168.10.1")
	conf := c.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	cm, err := conf.Get(t.Context(), "anyccm-keepalived", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, cm.Data["keepalived.conf"], "@node-2 priority 253\n", "the command knows the nodes as well")
	assert.Empty(t, calls(t, c).Refused)
}

// TestAddressesAtFailover: the leader changes while Services come. None has the address of another one, and all are served.
func TestAddressesAtFailover(t *testing.T) {
	c := newClusterOn(t, inCluster(t))
	first := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	second, err := c.StartCCM(t.Context(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the standby", func(ctx context.Context) error {
		_, err := second.Get(ctx, "/healthz")
		return err
	}))
	const n = 30
	for i := range n {
		_, err := c.CreateService(t.Context(), fmt.Sprintf("web-%d", i), nil)
		require.NoError(t, err)
		if i == n/2 {
			require.NoError(t, first.Signal(syscall.SIGTERM))
		}
	}
	owners := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		address, err := c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
		assert.Empty(t, owners[address], "%s has the address of", name)
		owners[address] = name
	}
	waitHoldings(t, c, n, "default/web-")
}

// leaveService makes a Service as another controller leaves it, with its address in the status.
func leaveService(t *testing.T, c *harness.Cluster, s *v1.Service, address string) *v1.Service {
	t.Helper()
	services := c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	s, err := services.Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: address}}
	s, err = services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)
	return s
}

// TestTakeoverOfAddresses: on a real API server, what either version of keepalived-cloud-provider, and kube-vip-cloud-provider, leave is
// taken over without a write, but for the finalizer that the first one does not know; the same at the next restart.
func TestTakeoverOfAddresses(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]struct {
		env   map[string]string
		entry string // empty where there is no ConfigMap
		kube  bool
	}{
		"keepalived-cloud-provider": {
			map[string]string{"KEEPALIVED_ANNOUNCER": "", "KEEPALIVED_CONFIG_MAP": "vip-configmap", "KEEPALIVED_NAMESPACE": "kube-system"},
			`{"uid":%q,"ip":%q,"serviceNamespace":"default","serviceName":%q}`, false,
		},
		"keepalived-cloud-provider 0.0.1": {
			map[string]string{"KEEPALIVED_ANNOUNCER": "", "KEEPALIVED_CONFIG_MAP": "vip-configmap"}, `{"uid":%q,"ip":%q}`, false,
		},
		"kube-vip-cloud-provider": {map[string]string{"KEEPALIVED_ANNOUNCER": "kube-vip"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClusterOn(t, inCluster(t))
			joinNodes(t, c, 2)
			var entries []string
			data := map[string]string{}
			for i := range 3 {
				s := serviceOf(fmt.Sprintf("web-%d", i), v1.ServiceTypeLoadBalancer, nil)
				address := fmt.Sprintf("192.168.10.%d", 20+i)
				if left.kube {
					s.Labels = map[string]string{"implementation": "kube-vip"}
					s.Annotations = map[string]string{"kube-vip.io/loadbalancerIPs": address}
					s.Spec.LoadBalancerIP, s.Finalizers = address, []string{serviceFinalizer}
				}
				s = leaveService(t, c, s, address)
				args := []any{s.UID, address, s.Name}
				entries = append(entries, fmt.Sprintf(left.entry, args[:strings.Count(left.entry, "%q")]...))
				data[address] = "default/" + s.Name
			}
			if left.entry != "" {
				putConfigMap(t, c, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: "vip-configmap", Annotations: map[string]string{"k8s.co/cloud-provider-config": `{"services":[` + strings.Join(entries, ",") + `]}`},
				}, Data: data})
			}
			requireTakenOver(t, c, left.env)
			assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)
		})
	}
}

// requireTakenOver: the program starts twice, and nothing is written but the finalizer that Services lack.
func requireTakenOver(t *testing.T, c *harness.Cluster, env map[string]string) {
	t.Helper()
	before, records := listServices(t.Context(), t, c), configMaps(t, c)
	for range 2 {
		m := startCCM(t, c, nil, env)
		requireEnsured(t, m, len(before))
		requireWorked(t, m, "service")
		m.Stop(patience)
		assert.Equal(t, records, configMaps(t, c), "no ConfigMap was written at all")
		for name, s := range listServices(t.Context(), t, c) {
			was := before[name]
			assert.Equal(t, was.Spec, s.Spec)
			assert.Equal(t, was.Status, s.Status)
			assert.Equal(t, was.Annotations, s.Annotations)
			assert.Equal(t, was.Labels, s.Labels)
			assert.Equal(t, []string{serviceFinalizer}, s.Finalizers)
			if len(was.Finalizers) > 0 {
				assert.Equal(t, was.ResourceVersion, s.ResourceVersion, "it was not written at all")
			}
		}
		before = listServices(t.Context(), t, c)
	}
}

const serviceFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// configMaps are those of the namespace kube-system as JSON has them, by name, but for what the API server keeps there.
func configMaps(t *testing.T, c *harness.Cluster) map[string]string {
	t.Helper()
	list, err := c.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := map[string]string{}
	for _, cm := range list.Items {
		if cm.Name == "extension-apiserver-authentication" || cm.Name == "kube-root-ca.crt" {
			continue
		}
		text, err := json.Marshal(cm)
		require.NoError(t, err)
		all[cm.Name] = string(text)
	}
	return all
}

// TestInitializedByKubelet: where nobody else initialises Nodes, the program takes the taint away, and leaves their addresses as kubelet
// reports them. A Node that bears the ID of another cloud waits for that cloud's controller, and one whose machine is silent stays.
func TestInitializedByKubelet(t *testing.T) {
	c := newClusterOn(t, inCluster(t))
	m := startCCM(t, c, append([]string{"--node-status-update-frequency=1s"}, quickDeletion...), map[string]string{"KEEPALIVED_INITIALIZE_NODES": "true"})
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-1", Ready: true, Address: "10.0.0.1"}))
	n := waitUntainted(t, c, "node-1")
	assert.Equal(t, "keepalived://node-1", n.Spec.ProviderID)
	assert.Equal(t, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "node-1"}}, n.Status.Addresses)

	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-2", Ready: true, Address: "10.0.0.2", ProviderID: "k3s://node-2"}))
	requireEvent(t, c, metav1.NamespaceDefault, "NodeInitializationFailed", "node-2", "its provider ID k3s://node-2 is another cloud's")
	assert.True(t, harness.Uninitialized(node(t, c, "node-2")))
	require.NoError(t, c.SetReady(t.Context(), "node-1", false))
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true, Address: "10.0.0.3"}))
	waitUntainted(t, c, "node-3")
	waitPasses(t, m, provenPasses)
	assert.Empty(t, node(t, c, "node-1").DeletionTimestamp)
}

// waitUntainted waits until a Node does not wait for a cloud any more.
func waitUntainted(t *testing.T, c *harness.Cluster, name string) *v1.Node {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, name+" to be initialised", func(ctx context.Context) error {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && harness.Uninitialized(n) {
			err = fmt.Errorf("it has the taints %v", n.Spec.Taints)
		}
		return err
	}))
	return node(t, c, name)
}
