package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestOrphansOfAClusterWithTheSameID: of two clusters with the same ID, the load balancers of one are no orphans of the other, nor are
// their groups.
func TestOrphansOfAClusterWithTheSameID(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	w.kube = w.Kube
	all := []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))}
	for _, s := range all {
		w.Apply(s)
		w.ensure(s)
	}
	// This cluster has neither the Services nor the Nodes.
	for _, s := range all {
		require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
	w.restart()
	w.kube = w.Kube
	found, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, found)

	// With the Nodes, they are orphans: nothing but this cluster can have made them.
	_, err = w.Kube.CoreV1().Nodes().Create(t.Context(), w.nodes[0], metav1.CreateOptions{})
	require.NoError(t, err)
	found, err = w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, found, 4)

	// What changed since then is looked at again: a Service, or a Node, of the other cluster's.
	_, err = w.Kube.CoreV1().Services("default").Create(t.Context(), all[0], metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Kube.CoreV1().Nodes().Delete(t.Context(), w.nodes[0].Name, metav1.DeleteOptions{}))
	for _, o := range found {
		require.ErrorIs(t, w.DeleteOrphan(t.Context(), o), errNotOrphan, "%s %s", o.Kind, o.Name)
	}
	assert.Len(t, w.sim.Classics(), 1)
	assert.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Groups(), 4)
	assert.Len(t, rules(w.group("nodes")), 3, "the other cluster's load balancers reach its nodes")
}

// TestOrphanOfAManagedGroup: the security group of a network load balancer is found once nothing else is left of its Service, and
// AWS's other controller's, whose names are of the same form, is not.
func TestOrphanOfAManagedGroup(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	group := func(name string, tags awssim.Tags) string {
		tags["kubernetes.io/cluster/simulated"] = "owned"
		return w.sim.AddGroup(awssim.Group{Name: name, Description: managedGroupDescription, Tags: tags})
	}
	lost := group("k8s-shop-web-0123456789", awssim.Tags{})
	group("k8s-shop-api-0123456789", awssim.Tags{"elbv2.k8s.aws/cluster": "simulated"})
	group("k8s-default-living-0123456789", awssim.Tags{})
	group("web", awssim.Tags{})
	found, err := w.Orphans(t.Context(), []*v1.Service{nlb("living", nil, servicePort("http", 80, 30080))})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, lost, found[0].ID)
	require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
	assert.Len(t, w.sim.Groups(), 5)
}

// TestOrphansOfAServiceThatCameBack: a Service comes back under its name after its finalizer was taken away. What is left of the first one
// is found as an orphan, its managed security group as well, and the second one's is none.
func TestOrphansOfAServiceThatCameBack(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	first := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(first)
	w.ensure(first)
	w.Withdraw(first)
	require.NoError(t, w.Kube.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.restart()
	next := nlb("web", nil, servicePort("http", 80, 30080))
	next.UID = "next-life"
	w.Apply(next)
	_, err := w.try(next)
	require.ErrorContains(t, err, "used by another load balancer")
	require.Len(t, w.sim.Groups(), 4)
	found, err := w.Orphans(t.Context(), []*v1.Service{next})
	require.NoError(t, err)
	var names []string
	for _, o := range found {
		names = append(names, o.Kind+" "+o.Name)
		require.NoError(t, w.DeleteOrphan(t.Context(), o))
	}
	assert.Contains(t, names, "security group "+managedGroupName(w.cluster, first))
	assert.Len(t, w.sim.Groups(), 3)
	w.restart()
	w.ensure(next)
	assert.Len(t, w.sim.TargetGroups()[0].Targets, 1)
}
