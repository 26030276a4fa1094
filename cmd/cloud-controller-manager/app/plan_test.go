package app

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestPlanText: a summary first; cloud paths shortened to names, unless only the rest of the path changes.
func TestPlanText(t *testing.T) {
	p := newPlan(choice{providers: &registry.Registry{}})
	var out bytes.Buffer
	p.cmd.SetOut(&out)
	require.NoError(t, p.print([]plannedService{
		{Service: "shop/web", Planned: []contract.Planned{
			{Action: contract.PlanCreate, Object: "load balancer arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/net/web/50dc6c495c0c9188"},
			{Action: contract.PlanChange, Object: "rule /subscriptions/1-2/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kubernetes/loadBalancingRules/a-TCP-80", Fields: []contract.Field{
				{Name: "network", Before: "projects/p/global/networks/a", After: "https://www.googleapis.com/compute/v1/projects/p/global/networks/b"},
				{Name: "subnet", Before: "/infra/tier-1s/a/segments/s", After: "/infra/tier-1s/b/segments/s"},
				{Name: "path", Before: "/api/v1/projects/of/mine/health", After: ""},
			}},
		}},
		{Service: "shop/api", Error: "refused"},
		{Service: "shop/old", Planned: []contract.Planned{{Action: contract.PlanDelete, Object: "load balancer old"}}},
		{Service: "shop/two", Planned: []contract.Planned{
			{Action: contract.PlanChange, Object: "load balancer two", Detail: "delete port 80"},
			{Action: contract.PlanChange, Object: "load balancer two", Detail: "create port 81"},
		}},
		{Service: "shop/else", Left: true},
		{Service: "shop/done"},
	}))
	assert.Equal(t, `1 to create, 2 to change, 1 to delete, 1 Service not planned
Service shop/web:
  create  load balancer web
  change  rule a-TCP-80
    ~ network: a -> b
    ~ subnet: /infra/tier-1s/a/segments/s -> /infra/tier-1s/b/segments/s
    - path: /api/v1/projects/of/mine/health
Service shop/api: error: refused
Service shop/old:
  delete  load balancer old
Service shop/two:
  change  load balancer two  delete port 80
  change  load balancer two  create port 81
Service shop/else: left to another controller
Service shop/done: nothing to do
`, out.String())
	assert.Equal(t, exitChanges, exitStatus(&printedError{errChanges}))
	assert.Equal(t, exitFailed, exitStatus(&printedError{errors.New("x")}))
}

// TestPlanArguments: impossible combinations are refused before any request.
func TestPlanArguments(t *testing.T) {
	for args, want := range map[string]string{
		"--apply=merge x":                                        "--apply=merge: use auto, client-side, server-side, replace",
		"--apply=replace --field-manager=flux x":                 "--field-manager=flux: has no effect with --apply=replace",
		"--load-balancer-class-mode=named x":                     "needs --load-balancer-class",
		"--apply=client-side --cloud-provider=square /no/such/x": "no such file",
	} {
		cmd := planCommand(choice{providers: &registry.Registry{}})
		cmd.SetArgs(strings.Fields(args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
}

// TestPlaceholders: values that the API server invents for a dry run are named as such.
func TestPlaceholders(t *testing.T) {
	service := func(uid string, ports ...int32) *v1.Service {
		s := &v1.Service{Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
		s.UID = types.UID(uid)
		for _, port := range ports {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{NodePort: port})
		}
		return s
	}
	healthy := service("a", 30001)
	healthy.Spec.HealthCheckNodePort = 32769
	for name, c := range map[string]struct {
		manifest *v1.Service
		planned  applied
		want     string
	}{
		"new":                 {service("", 0), applied{after: service("x", 32769)}, "the UID x, which names in the cloud are made of, the node port 32769"},
		"new, with node port": {service("", 30001), applied{after: service("x", 30001)}, "the UID x, which names in the cloud are made of"},
		"one port more":       {service("", 0, 0), applied{before: service("a", 30001), after: service("a", 30001, 32769)}, "the node port 32769"},
		"health checks":       {service("", 0), applied{before: service("a", 30001), after: healthy}, "the node port 32769"},
		"nothing":             {service("", 0), applied{before: service("a", 30001), after: service("a", 30001)}, ""},
		"no load balancer":    {service("", 0), applied{before: service("a", 30001), after: &v1.Service{}}, ""},
	} {
		found := placeholders(c.manifest, c.planned)
		if c.want == "" {
			assert.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		assert.Equal(t, "the API server chooses others when this is applied: "+c.want, found[0].Message, name)
	}
}
