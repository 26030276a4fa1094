package openstack

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestJoiningAtOnce: Services that join a load balancer at the same time have their turns, and none takes away the tag of another, by
// which the load balancer is known to be in use.
func TestJoiningAtOnce(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.sim.SetActivation(time.Second)
		owner := web(nil)
		w.Apply(owner)
		owner, _ = w.ensure(owner)
		id := owner.Annotations[annotationID]
		var names []string
		var group sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			s := rename(service("", map[string]string{annotationID: id}, servicePort("http", 8000+int32(i), 30100+int32(i))), name)
			w.Apply(s)
			names = append(names, loadBalancerName(w.cluster, s))
			group.Go(func() {
				_, err := w.reconciler.EnsureLoadBalancer(w.T.Context(), w.cluster, s, []*v1.Node{w.nodes[0]})
				assert.NoError(w.T, err)
			})
		}
		group.Wait()
		all := w.sim.LoadBalancers()
		require.Len(w.T, all, 1)
		for _, name := range names {
			assert.True(w.T, slices.Contains(all[0].Tags, name), "%s is not among %v", name, all[0].Tags)
		}
		assert.Empty(w.T, w.server.Calls().Refused)
	})
}
