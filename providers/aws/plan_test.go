package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestPlan: a plan names everything that is made, the openings of nodes for classic load balancers included, and writes
// nothing; after the work nothing is left of it.
func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service *v1.Service
		want    []contract.Planned
	}{
		"classic": {service("classic", nil, servicePort("http", 80, 30080)), []contract.Planned{
			{Action: contract.PlanCreate, Object: "security group k8s-elb-auidofclassic", Detail: "2 rules"},
			{Action: contract.PlanChange, Object: "security group " + awssim.NodeGroup + " (nodes)", Detail: "rules: 1 more, 0 less"},
			{Action: contract.PlanCreate, Object: "classic load balancer auidofclassic"},
		}},
		"network": {nlb("network", nil, servicePort("http", 80, 30080)), []contract.Planned{
			{Action: contract.PlanCreate, Object: "network load balancer auidofnetwork"},
			{Action: contract.PlanCreate, Object: "listener TCP/80"},
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
				assert.NotEmpty(t, planned[i].Fields, planned[i].Object)
				planned[i].Fields = nil
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

// TestPlanTellsWhatEventsWill: faults of a Service are findings of its plan with the text of the events, and a plan writes no event. Each
// fault is reported once, however often work is repeated.
func TestPlanTellsWhatEventsWill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service *v1.Service
		change  func(s *v1.Service)
		reasons []string
	}{
		"classic": {
			service("web", map[string]string{annotationEIPs: "eipalloc-00000001"}, servicePort("http", 80, 30080)),
			func(s *v1.Service) {
				s.Annotations[annotationInternal] = "true"
				s.Annotations[annotationGroups] = "sg-00000001"
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			},
			[]string{eventIgnored, eventRangesIgnored, services.EventFixed},
		},
		"network": {
			nlb("web", map[string]string{annotationDraining: "true"}, servicePort("http", 80, 30080)),
			func(s *v1.Service) { s.Annotations[annotationInternal] = "true" },
			[]string{eventIgnored, services.EventFixed},
		},
		"refused": {
			service("web", map[string]string{annotationSubnets: "subnet-99999999"}, servicePort("http", 80, 30080)), nil,
			[]string{eventConfigError},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.sim.AddGroup(awssim.Group{ID: "sg-00000001", Name: "given"})
			w.Apply(c.service)
			s := c.service
			if c.change != nil {
				s = w.change(w.ensure(s), c.change)
				w.Events()
			}
			plan, planErr := w.PlanLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			assert.Empty(t, w.Events(), "a plan writes no event")
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			assert.Equal(t, planErr, err)
			var findings, reasons []string
			for _, f := range plan.Findings {
				assert.True(t, f.Warning)
				findings, reasons = append(findings, "Warning "+f.Reason+" "+f.Message), append(reasons, f.Reason)
			}
			assert.Equal(t, c.reasons, reasons)
			assert.Equal(t, findings, w.Events())
		})
	}
}

// TestDeletionReads: what is left of either kind is looked for once when a Service is deleted, whatever kind it has.
func TestDeletionReads(t *testing.T) {
	t.Parallel()
	for _, s := range []*v1.Service{
		service("web", nil, servicePort("http", 80, 30080)), nlb("web", nil, servicePort("http", 80, 30080)),
	} {
		w := startWorld(t, "", awssim.Options{})
		w.Apply(s)
		s = w.ensure(s)
		w.server.ResetCalls()
		require.NoError(t, w.remove(s))
		calls := w.server.Calls()
		assert.LessOrEqual(t, calls.Reads-calls.ByOperation["ELBv2 DescribeLoadBalancerAttributes"], 5, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.ByOperation["ELBv2 DescribeLoadBalancerAttributes"], 1, "whether it is protected")
		assert.Empty(t, snapshot(w.sim))
	}
}
