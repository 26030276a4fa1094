package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/nodelabels"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// Labels from tags.
const (
	tagRole = "node-role.kubernetes.io/gold"
	tagTeam = v1.LabelNamespaceNodeRestriction + "/team"
)

// TestLabelsFollowTheInstance: another type in the cloud is written on the Node that this program initialised, with a record in the managed
// fields of a real API server. A type that somebody sets by hand stays, and so do taints of a Node whose kubelet forges that record. Labels
// from tags are there when the Node is initialised, and go with the tag.
func TestLabelsFollowTheInstance(t *testing.T) {
	c := newCluster(t, "--instances=3")
	tag := func(node int, tags ...string) {
		require.NoError(t, c.Cloud.Do(t.Context(), "tag", map[string]any{"id": 400000000 + node, "tags": tags}))
	}
	tag(2, "team", "gold")
	rules := harness.Values{"nodeLabelsFromTags": []string{"team=" + tagTeam, "gold=" + tagRole}}
	m := startRelease(t, c, rules, []string{"--node-status-update-frequency=1s"}, nil)
	joined, err := c.Kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=node-2"})
	require.NoError(t, err)
	joinNodes(t, c, 3)
	for e := range joined.ResultChan() {
		n, ok := e.Object.(*v1.Node)
		require.True(t, ok, "%v", e)
		if !contract.Uninitialized(n) {
			assert.Equal(t, "true", n.Labels[tagTeam], "the label comes before the taint goes")
			assert.Equal(t, "true", n.Labels[tagRole])
			break
		}
	}
	joined.Stop()
	tag(2, "gold")
	forgeRecord(t, c, "node-3")

	resize := func(node int, size string) {
		require.NoError(t, c.Cloud.Do(t.Context(), "resize", map[string]any{"id": 400000000 + node, "size": size}))
	}
	resize(3, "s-8vcpu-16gb")
	resize(2, "s-8vcpu-16gb")
	waitType(t, c, "node-2", "s-8vcpu-16gb")
	assert.Equal(t, "s-8vcpu-16gb", node(t, c, "node-2").Labels[v1.LabelInstanceType], "the older name of the label")
	requireEvent(t, c, metav1.NamespaceDefault, nodelabels.EventNodeLabelsUpdated, "node-2", "instance-type: s-2vcpu-4gb → s-8vcpu-16gb")

	setType(t, c, "node-1", "kubectl-label", "mine")
	resize(2, "s-4vcpu-8gb")
	waitType(t, c, "node-2", "s-4vcpu-8gb")
	waitRounds(t, m, 3, 3)
	assert.NotContains(t, node(t, c, "node-2").Labels, tagTeam, "the tag is gone")
	assert.Equal(t, "true", node(t, c, "node-2").Labels[tagRole])
	assert.Equal(t, "mine", node(t, c, "node-1").Labels[v1.LabelInstanceTypeStable])
	requireEvent(t, c, metav1.NamespaceDefault, nodelabels.EventNodeRecordForged, "node-3", "anyccm-node-labels for more than labels")
	forged := node(t, c, "node-3")
	assert.Len(t, forged.Spec.Taints, 1, "a kubelet may not remove a taint, and has nobody remove it")
	assert.Equal(t, "s-2vcpu-4gb", forged.Labels[v1.LabelInstanceTypeStable])
}

// forgeRecord taints a Node and, as its kubelet may, empties the managed fields and writes the same taint under the program's manager.
func forgeRecord(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	nodes := c.Kube.CoreV1().Nodes()
	for _, patch := range []string{
		`{"spec":{"taints":[{"key":"quarantine","effect":"NoExecute"}]}}`, `{"metadata":{"managedFields":[{}]}}`,
	} {
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	taint := apply.Node(name).WithSpec(apply.NodeSpec().WithTaints(apply.Taint().WithKey("quarantine").WithEffect(v1.TaintEffectNoExecute)))
	_, err := nodes.Apply(t.Context(), taint, metav1.ApplyOptions{FieldManager: nodelabels.Manager})
	require.NoError(t, err)
	setType(t, c, name, nodelabels.Initializer, "forged")
	setType(t, c, name, nodelabels.Initializer, "s-2vcpu-4gb")
}

// setType writes both labels of the type.
func setType(t *testing.T, c *harness.Cluster, node, manager, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q,%q:%q}}}`, v1.LabelInstanceTypeStable, value, v1.LabelInstanceType, value)
	_, err := c.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	require.NoError(t, err)
}

func waitType(t *testing.T, c *harness.Cluster, name, want string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the type of "+name, func(ctx context.Context) error {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && n.Labels[v1.LabelInstanceTypeStable] != want {
			err = errors.New("it is " + n.Labels[v1.LabelInstanceTypeStable])
		}
		return err
	}))
}
