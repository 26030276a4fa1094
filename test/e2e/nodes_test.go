package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

func node(t *testing.T, c *harness.Cluster, name string) *v1.Node {
	t.Helper()
	n, err := c.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return n
}

// waitGone waits until a Node is removed, which takes the guard some looks.
func waitGone(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "Node "+name+" to be removed", func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	}))
}

func TestNodeLifeCycle(t *testing.T) {
	c := newCluster(t, "--instances=3")
	startCCM(t, c, quickDeletion, nil)
	joinNodes(t, c, 3)

	n := node(t, c, "node-1")
	assert.Equal(t, "digitalocean://400000001", n.Spec.ProviderID)
	assert.Equal(t, "s-2vcpu-4gb", n.Labels[v1.LabelInstanceTypeStable])
	assert.Equal(t, "nyc3", n.Labels[v1.LabelTopologyRegion])
	assert.NotContains(t, n.Labels, v1.LabelTopologyZone, "DigitalOcean has no zones")
	assert.Equal(t, []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "node-1"}, {Type: v1.NodeInternalIP, Address: "10.108.0.1"}, {Type: v1.NodeExternalIP, Address: "198.18.0.1"},
	}, n.Status.Addresses)
	assert.NotEmpty(t, n.Status.Capacity, "writing the node back loses nothing of what is not kept in memory")
	assert.NotEmpty(t, n.Status.NodeInfo.KubeletVersion)

	require.NoError(t, c.Cloud.Do(t.Context(), "power-off", map[string]int{"id": 400000002}))
	require.NoError(t, c.SetReady(t.Context(), "node-2", false))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the shutdown taint", func(ctx context.Context) error {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, "node-2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == "node.cloudprovider.kubernetes.io/shutdown" {
				return nil
			}
		}
		return fmt.Errorf("taints are %v", n.Spec.Taints)
	}))

	require.NoError(t, c.Cloud.Remove(t.Context(), "node-3"))
	require.NoError(t, c.SetReady(t.Context(), "node-3", false))
	waitGone(t, c, "node-3")
	node(t, c, "node-2")
}

func TestForeignNodesAreLeftAlone(t *testing.T) {
	c := newCluster(t, "--instances=2")
	startCCM(t, c, quickDeletion, nil)
	joinNodes(t, c, 2) // one goes below, and the other one shows that this is the right account
	// Both twins exist before any new Node asks for a listing: one that held the first alone would name it.
	for range 2 {
		require.NoError(
			t,
			c.Cloud.Call(t.Context(), http.MethodPost, "/v2/droplets", testToken, map[string]any{"name": "twin", "size": "s-1vcpu-1gb", "image": "x"}, nil),
		)
	}
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "elsewhere"}))
	foreign := node(t, c, "elsewhere")
	foreign.Spec.ProviderID, foreign.Spec.Taints = "other://1", nil
	_, err := c.Kube.CoreV1().Nodes().Update(t.Context(), foreign, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "nameless"}))
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "twin"}))
	requireEvent(t, c, metav1.NamespaceDefault, "NodeInitializationFailed", "twin", "2 droplets are named twin; rename all but one")

	// Another node that goes proves that the loop has run over all of them since.
	require.NoError(t, c.Cloud.Remove(t.Context(), "node-1"))
	require.NoError(t, c.SetReady(t.Context(), "node-1", false))
	waitGone(t, c, "node-1")
	assert.Equal(t, "other://1", node(t, c, "elsewhere").Spec.ProviderID)
	assert.True(t, harness.Uninitialized(node(t, c, "nameless")), "a node without an instance is neither initialised nor deleted")
	requireEvent(t, c, metav1.NamespaceDefault, "NodeNotOurs", "elsewhere")
	e := requireEvent(t, c, metav1.NamespaceDefault, "NodeInitializationFailed", "nameless")
	assert.Contains(t, e.Message, "no droplet is named nameless; name the droplet like the node, or start kubelet with --provider-id")
}

// TestTwoReleases: two releases share a cluster, each with nodes, a lease and a port of its own.
func TestTwoReleases(t *testing.T) {
	c := newCluster(t, "--instances=3")
	for i, pool := range []string{"a", "b", "b"} { // a Node goes only where another one of its release is seen
		name := fmt.Sprintf("node-%d", i+1)
		require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: name, Ready: true}))
		labelled := node(t, c, name)
		labelled.Labels["pool"] = pool
		_, err := c.Kube.CoreV1().Nodes().Update(t.Context(), labelled, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	startCCM(t, c, []string{"--node-selector=pool=a"}, nil)
	require.NoError(t, c.WaitInitialized(t.Context(), 1, patience))
	requireEvent(t, c, metav1.NamespaceDefault, "NodeNotOurs", "node-2")
	assert.True(t, harness.Initialized(node(t, c, "node-1")))
	assert.True(t, harness.Uninitialized(node(t, c, "node-2")))

	second := harness.Values{"nodeSelectorOfNodes": "pool=b", "controllers": []string{"cloud-node-controller", "cloud-node-lifecycle-controller"}}
	_, err := c.Install(t.Context(), "second", second)
	require.NoError(t, err)
	m, err := c.StartRelease(t.Context(), "second", c.Programs.CCM, second, quickDeletion, nil)
	require.NoError(t, err)
	require.NoError(t, m.WaitLeading(t.Context(), patience))
	require.NoError(t, c.WaitInitialized(t.Context(), 3, patience))

	require.NoError(t, c.Cloud.Remove(t.Context(), "node-2"))
	require.NoError(t, c.SetReady(t.Context(), "node-2", false))
	waitGone(t, c, "node-2")
	node(t, c, "node-1")
}

// TestNodesAreWrittenOnce: the API server stores two addresses of one type in an order of its own, and a kubelet has set one before. Once
// the Node has what its cloud reports, neither the address loop nor a restart writes it.
func TestNodesAreWrittenOnce(t *testing.T) {
	c := newCluster(t)
	require.NoError(
		t,
		c.Cloud.Call(
			t.Context(), http.MethodPost, "/v2/droplets", testToken,
			map[string]any{"name": "node-1", "size": "s-1vcpu-1gb", "image": "x", "ipv6": true}, nil,
		),
	)
	often := []string{"--node-status-update-frequency=1s"}
	m := startCCM(t, c, often, nil)
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-1", Ready: true, Address: "192.0.2.9"}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the cloud's addresses", func(ctx context.Context) error {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
		if err == nil && (len(n.Status.Addresses) != 4 || strings.Contains(fmt.Sprint(n.Status.Addresses), "192.0.2.9")) {
			err = fmt.Errorf("they are %v", n.Status.Addresses)
		}
		return err
	}))
	// A cycle may have read the Node before it saw the initialisation, and write once more.
	waitAnswers(t, m, "droplet", 3, patience)
	before := nodeWrites(t, c)
	statuses := 0
	for _, write := range before {
		if strings.HasPrefix(write, "patch /api/v1/nodes/node-1/status") {
			statuses++
		}
	}
	assert.Positive(t, statuses, "the one of the initialisation")
	assert.LessOrEqual(t, statuses, 2, "and one beside it")
	waitAnswers(t, m, "droplet", 5, patience)
	assert.Empty(t, nodeWrites(t, c)[len(before):], "in five cycles")

	m.Stop(patience)
	before = nodeWrites(t, c)
	m = startCCM(t, c, often, nil)
	waitAnswers(t, m, "droplet", 3, patience)
	assert.Empty(t, nodeWrites(t, c)[len(before):], "at a restart")
}

// TestHybridCluster: nodes of three clouds in one cluster, each with a controller of its own: two releases of ours with
// different providers, and one that is built on the bare framework.
func TestHybridCluster(t *testing.T) {
	c := newCluster(t, "--instances=2")
	other := filepath.Join(c.Dir, "othercloud")
	require.NoError(t, harness.BuildProgram(t.Context(), other, "test/othercloud"))
	for _, lease := range []string{"beta", "gamma"} {
		require.NoError(t, c.AllowLease(t.Context(), lease))
	}
	startCCM(t, c, quickDeletion, nil)
	for name, env := range map[string]map[string]string{"beta": {"GUARDED": "yes"}, "gamma": nil} {
		m, err := c.StartOther(t.Context(), other, []string{"--cloud-provider=" + name, "--leader-elect-resource-name=" + name, "--node-status-update-frequency=2s"}, env)
		require.NoError(t, err)
		require.NoError(t, m.WaitLeading(t.Context(), patience))
	}
	names := map[string]string{
		"node-1": "digitalocean://400000001", "node-2": "digitalocean://400000002", "beta-1": "beta://beta-1", "beta-2": "beta://beta-2", "gamma-1": "gamma://gamma-1",
	}
	for name := range names {
		require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: name, Ready: true}))
	}
	require.NoError(t, c.WaitInitialized(t.Context(), len(names), patience))
	for name := range names {
		require.NoError(t, c.SetReady(t.Context(), name, false))
	}
	require.NoError(t, c.Cloud.Remove(t.Context(), "node-2"))
	waitGone(t, c, "node-2")
	delete(names, "node-2")
	for name, id := range names {
		n := node(t, c, name)
		assert.Equal(t, id, n.Spec.ProviderID, "each controller initialised its own")
		assert.NotContains(t, fmt.Sprint(n.Spec.Taints), "shutdown")
		address := "192.0.2.1" // of the clouds of test/othercloud
		if strings.HasPrefix(name, "node-") {
			address = "10.108.0.1"
		}
		assert.Contains(t, n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}, name)
	}
	requireEvent(t, c, metav1.NamespaceDefault, "NodeNotOurs", "gamma-1", "its provider ID gamma://gamma-1 does not begin with")
}

// waitAnswers waits until the inventory of a kind was asked so many times more.
func waitAnswers(t *testing.T, m *harness.CCM, kind string, more int, within time.Duration) {
	t.Helper()
	ask := func(ctx context.Context) (float64, error) {
		return m.Metric(ctx, "anyccm_inventory_answers_total", fmt.Sprintf("kind=%q", kind))
	}
	before, err := ask(t.Context())
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(t.Context(), within, "the address loop", func(ctx context.Context) error {
		now, err := ask(ctx)
		if err == nil && now < before+float64(more) {
			err = fmt.Errorf("%.0f of %d questions", now-before, more)
		}
		return err
	}))
}
