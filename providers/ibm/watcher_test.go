package ibm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestWatcher: what a load balancer comes into by itself is told when it lasts, once, and that it is in order again; nothing is told of
// what is in order from the beginning, of what was not seen, and of Services of others.
func TestWatcher(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
		w.mustEnsure(s)
		other := web()
		other.Name, other.UID, other.Finalizers = "other", "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa", s.Finalizers
		other.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: "a.example.com"}} // of another controller
		for _, one := range []*v1.Service{s, other} {
			w.bench.Apply(one.DeepCopy())
			_, err := w.bench.Kube.CoreV1().Services(s.Namespace).UpdateStatus(w.t.Context(), one.DeepCopy(), metav1.UpdateOptions{})
			require.NoError(w.t, err)
		}
		look := func() string {
			time.Sleep(monitorPeriod)
			require.NoError(w.t, w.cloud.watcher.run(w.t.Context()))
			return w.drainEvents()
		}
		set := func(status string) {
			require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) { lb.Provisioning = status }))
		}
		w.drainEvents()
		assert.Empty(w.t, look())
		assert.Empty(w.t, look())
		set("failed")
		assert.Empty(w.t, look())
		assert.Contains(w.t, look(), "Warning "+eventVerifying+" load balancer "+ownName(ibmsim.Cluster, s)+" has failed")
		assert.Empty(w.t, look())
		set("")
		assert.Contains(w.t, look(), "Normal "+eventNormal)
		set("update_pending")
		assert.Empty(w.t, look()+look(), "work takes minutes")
		assert.Contains(w.t, look(), "is online/update_pending")
		set("")
		look()
		w.sim.RemoveLoadBalancers()
		id, err := w.server.AddFault(simkit.Fault{Kind: "empty-list"})
		require.NoError(w.t, err)
		time.Sleep(monitorPeriod)
		require.Error(w.t, w.cloud.watcher.run(w.t.Context()), "the credential sees nothing of the VPC")
		w.server.RemoveFault(id)
		assert.Empty(w.t, look())
		assert.Contains(w.t, look(), "is not there")
		w.server.ResetCalls()
		assert.Empty(w.t, look())
		calls := w.server.Calls()
		assert.Zero(w.t, calls.Writes)
		assert.LessOrEqual(w.t, calls.Total, 3, "a listing, subnets and perhaps a token, whatever the number of Services: %v", calls.ByOperation)
	})
}

// TestNetworkUnavailable (19): the condition is set once, on a node that is not initialised and says nothing of its network.
func TestNetworkUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		edit func(*v1.Node)
		want bool
	}{
		"set":           {"set-network-unavailable = true\ncniProvider = Calico", nil, true},
		"no plug-in":    {"set-network-unavailable", nil, true},
		"by default":    {"", nil, false},
		"OVNKubernetes": {"set-network-unavailable = true\ncniProvider = OVNKubernetes", nil, false},
		"initialised":   {"set-network-unavailable = true", func(n *v1.Node) { n.Spec.Taints = nil }, false},
		"said already": {"set-network-unavailable = true", func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 0, 0, func(file string) string { return strings.Replace(file, "[provider]", c.file+"\n[provider]", 1) }, func(w *world) {
				w.sim.AddInstance("new")
				n := &v1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "new"},
					Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}},
				}
				if c.edit != nil {
					c.edit(n)
				}
				nodes := w.bench.Kube.CoreV1().Nodes()
				_, err := nodes.Create(w.t.Context(), n, metav1.CreateOptions{})
				require.NoError(w.t, err)
				for range 2 { // with what the caller knew the first time
					_, err = w.cloud.instances.InstanceMetadata(w.t.Context(), n)
					require.NoError(w.t, err)
				}
				now, err := nodes.Get(w.t.Context(), "new", metav1.GetOptions{})
				require.NoError(w.t, err)
				if !c.want {
					assert.Equal(w.t, n.Status.Conditions, now.Status.Conditions)
					return
				}
				require.Len(w.t, now.Status.Conditions, 1)
				got := now.Status.Conditions[0]
				assert.Equal(w.t, []any{v1.NodeNetworkUnavailable, v1.ConditionTrue, "No CNI present", "There is no active CNI present on the node"},
					[]any{got.Type, got.Status, got.Reason, got.Message})
				patches := 0
				for _, a := range w.bench.Kube.Actions() {
					if a.GetVerb() == "patch" {
						patches++
					}
				}
				assert.Equal(w.t, 1, patches)
			})
		})
	}
}

// TestGoneByOurselves: of a load balancer that this process deleted nobody is told that it is missing, though the Service still shows it.
// After a restart it may be missing for another reason, which is told once, and keeps no Service.
func TestGoneByOurselves(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		require.NoError(w.t, w.remove(s))
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		require.NoError(w.t, err)
		assert.False(w.t, exists)
		require.NoError(w.t, w.remove(s))
		assert.Empty(w.t, w.drainEvents())
		w.restart()
		_, exists, err = w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		require.NoError(w.t, err)
		assert.False(w.t, exists)
		assert.Contains(w.t, w.drainEvents(), s.Status.LoadBalancer.Ingress[0].Hostname)
		require.NoError(w.t, w.remove(s))
	})
}
