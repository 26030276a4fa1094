package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// TestPlan: a plan names everything that is made, the openings of nodes for classic load balancers included, and writes
// nothing; after the work nothing is left of it.
func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service *v1.Service
		want    []guard.Planned
	}{
		"classic": {service("classic", nil, servicePort("http", 80, 30080)), []guard.Planned{
			{Action: guard.PlanCreate, Object: "security group k8s-elb-auidofclassic", Detail: "2 rules"},
			{Action: guard.PlanChange, Object: "security group " + awssim.NodeGroup + " (nodes)", Detail: "rules: 1 more, 0 less"},
			{Action: guard.PlanCreate, Object: "classic load balancer auidofclassic"},
		}},
		"network": {nlb("network", nil, servicePort("http", 80, 30080)), []guard.Planned{
			{Action: guard.PlanCreate, Object: "network load balancer auidofnetwork"},
			{Action: guard.PlanCreate, Object: "listener TCP/80"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.Apply(c.service)
			w.server.ResetCalls()
			plan, err := w.PlanLoadBalancer(t.Context(), w.cluster, w.Current(c.service), w.nodes)
			require.NoError(t, err)
			planned := plan.Changes
			for i := range planned {
				if i < len(c.want) && c.want[i].Detail == "" {
					planned[i].Detail = ""
				}
			}
			assert.Equal(t, c.want, planned)
			assert.Zero(t, w.server.Calls().Writes)

			s := w.ensure(c.service)
			plan, err = w.PlanLoadBalancer(t.Context(), w.cluster, s, w.nodes)
			require.NoError(t, err)
			planned = plan.Changes
			assert.Empty(t, planned)
		})
	}
}
