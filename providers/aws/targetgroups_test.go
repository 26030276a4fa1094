package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestTargetGroupsOfOthersStay: a target group that somebody attached by hand makes way, and is not deleted, neither then nor with
// the Service.
func TestTargetGroupsOfOthersStay(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{true, false} {
		w := startWorld(t, "", awssim.Options{})
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		byHand := awssim.TargetGroup{
			Name: "k8s-shop-byhand", Protocol: "TCP", Type: "instance", AddressType: "ipv4", Port: 30099, CheckPort: "traffic-port",
			CheckProtocol: "TCP", Interval: 30, Timeout: 10, Healthy: 3, Unhealthy: 3, Attributes: usualAttributes(), Tags: awssim.Tags{},
		}
		w.sim.AddTargetGroup(byHand)
		all := w.sim.TargetGroups()
		require.Len(t, all, 2)
		w.sim.AttachTargetGroup(loadBalancerName(s), 80, all[1].ARN)
		w.restart()
		if restored {
			w.ensure(s)
			assert.Equal(t, all[0].ARN, w.sim.Listeners()[0].TargetGroup, "the listener has its own again")
			assert.Len(t, w.sim.TargetGroups(), 2)
		}
		require.NoError(t, w.remove(s))
		require.Len(t, w.sim.TargetGroups(), 1)
		assert.Equal(t, byHand.Name, w.sim.TargetGroups()[0].Name)
	}
}
