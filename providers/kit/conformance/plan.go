package conformance

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// movedPort is the port that a Service is given while it is served.
const movedPort = 8087

// runPlan: plan says of each object which fields differ, before and after. It writes nothing.
func runPlan(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)

	made := w.plan(c.Service, "before it exists")
	require.NotEmpty(t, made)
	var after strings.Builder
	for _, change := range made {
		if change.Action != contract.PlanCreate {
			continue
		}
		for _, field := range change.Fields {
			assert.Empty(t, field.Before, "%s is not there yet: %+v", change.Object, field)
			after.WriteString(field.Name + "=" + field.After + "\n")
		}
	}
	port := w.service(ctx, c.Service).Spec.Ports[0]
	assert.NotEmpty(t, after.String())
	assert.True(t, !w.outside() || strings.Contains(after.String(), strconv.Itoa(int(port.Port))), "the port is among what is created")

	w.ensure(ctx, c.Service, nil)
	assert.Empty(t, w.plan(c.Service, "when it is served"))

	w.changeService(ctx, c.Service, c.Change)
	assert.NotEmpty(t, w.plan(c.Service, "after its own change"))
	w.ensure(ctx, c.Service, nil)
	assert.Empty(t, w.plan(c.Service, "when the change is made"))
}

// balancerTitle matches plan's title of a load balancer itself, and not of a part.
var balancerTitle = regexp.MustCompile(`(?i)balancer [^ ]+$`)

// runPlanOfPort: the number of a port is shown as it is and as it will be, and the load balancer stays what it is.
func runPlanOfPort(t *testing.T, f *Fixture) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	names := sortedKeys(w.Services)
	plain := slices.IndexFunc(names, func(name string) bool { return !namesPorts(w.Services[name].Service) })
	require.NotEqual(t, -1, plain, "one of the Services has no annotation that names its ports")
	c := w.Services[names[plain]]
	port := c.Service.Spec.Ports[0]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)

	w.changeService(ctx, c.Service, func(s *v1.Service) { s.Spec.Ports[0].Port = movedPort })
	var before strings.Builder
	var after strings.Builder
	for _, change := range w.plan(c.Service, "after a change") {
		assert.False(t, change.Action != contract.PlanChange && balancerTitle.MatchString(change.Object),
			"a port changes, and plan says that the load balancer comes or goes: %s %s (%s)", change.Action, change.Object, change.Detail)
		for _, field := range change.Fields {
			before.WriteString(field.Before + "\n")
			after.WriteString(field.After + "\n")
		}
	}
	assert.Contains(t, before.String(), strconv.Itoa(int(port.Port)), "the port before")
	assert.Contains(t, after.String(), strconv.Itoa(movedPort), "the port after")
}

// namesPorts reports whether an annotation of a Service has a port's number in it.
func namesPorts(s *v1.Service) bool {
	for key, value := range s.Annotations {
		for _, p := range s.Spec.Ports {
			if strings.Contains(key+" "+value, strconv.Itoa(int(p.Port))) {
				return true
			}
		}
	}
	return false
}

// plan returns the planned changes of a Service, each with the fields that differ.
func (w *world) plan(s *v1.Service, when string) []contract.Planned {
	w.t.Helper()
	w.show()
	planner, ok := w.cloud.(contract.Planner)
	require.True(w.t, ok)
	w.Sim.ResetCalls()
	plan, err := planner.PlanLoadBalancer(w.t.Context(), clusterName, w.service(w.t.Context(), s), w.nodes)
	require.NoError(w.t, err, when)
	w.requireNoWrites("plan " + when)
	for _, change := range plan.Changes {
		assert.NotEmpty(w.t, change.Fields, "%s: %s %s (%s) says which fields differ", when, change.Action, change.Object, change.Detail)
		for _, field := range change.Fields {
			assert.NotEqual(w.t, field.Before, field.After, "%s: %s", when, field.Name)
			switch change.Action {
			case contract.PlanCreate:
				assert.NotEmpty(w.t, field.After, "%s: %s", when, field.Name)
			case contract.PlanDelete:
				assert.Empty(w.t, field.After, "%s: %s", when, field.Name)
			}
		}
		w.t.Logf("%s: %s %s (%s): %+v", when, change.Action, change.Object, change.Detail, change.Fields)
	}
	return plan.Changes
}
