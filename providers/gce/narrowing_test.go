package gce

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// mayConnect returns the source ranges of a Service's firewall rule; nil without a rule.
func (w *world) mayConnect() any {
	for _, f := range w.sim.Objects("firewalls") {
		if f["name"] == "k8s-fw-"+testLB {
			return f["sourceRanges"]
		}
	}
	return nil
}

// TestFormerClientsAreShutOut although other settings of the Service are refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	refusing := func(operation string) func(*world, *v1.Service) {
		return func(w *world, _ *v1.Service) {
			w.addNode(gcesim.Spec{Name: "n2"})
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: operation, Writes: true})
			require.NoError(t, err)
		}
	}
	for name, change := range map[string]func(*world, *v1.Service){
		"a target pool": refusing("targetPools"),
		"a health check": func(w *world, s *v1.Service) {
			refusing("httpHealthChecks")(w, s)
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 31000
		},
		"an annotation": func(_ *world, s *v1.Service) { s.Annotations = map[string]string{annotationTier: "nonsense"} },
		"no node":       func(w *world, _ *v1.Service) { w.nodes = nil },
		"an address":    func(_ *world, s *v1.Service) { s.Spec.LoadBalancerIP = "192.0.2.99" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
				require.Equal(t, []any{"0.0.0.0/0"}, w.mayConnect())
				time.Sleep(time.Minute)
				s = s.DeepCopy()
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				change(w, s)
				err := w.refuse(w.write(s))
				assert.Equal(t, []any{"192.0.2.0/24"}, w.mayConnect(), "%v", err)
			})
		})
	}
}

// TestNobodyIsLeft: if no former client may connect and the Service is refused, no firewall rule admits anybody.
func TestNobodyIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s := testService("web", conformance.Port("a", 80, 30080))
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		s, _ = w.ensure(w.apply(s))
		time.Sleep(time.Minute)
		s = s.DeepCopy()
		s.Spec.LoadBalancerSourceRanges, s.Annotations = []string{"198.51.100.0/24"}, map[string]string{annotationTier: "nonsense"}
		_ = w.refuse(w.write(s))
		assert.Nil(t, w.mayConnect(), "may connect: %s", fmt.Sprint(w.sim.Objects("firewalls")))
		delete(s.Annotations, annotationTier)
		w.ensure(w.write(s))
		assert.Equal(t, []any{"198.51.100.0/24"}, w.mayConnect())
	})
}

// TestRangesThatFit: of more networks than a firewall rule takes, those that it has already stay.
func TestRangesThatFit(t *testing.T) {
	t.Parallel()
	networks := []string{"99.0.0.0/24"}
	for n := range gcelimits.SourceRanges.Max {
		networks = append(networks, fmt.Sprintf("10.%d.%d.0/24", n/250, n%250))
	}
	slices.Sort(networks)
	fits := rangesThatFit(networks, []string{"10.0.0.0/8", "99.0.0.0/24"})
	assert.Len(t, fits, gcelimits.SourceRanges.Max)
	assert.Contains(t, fits, "99.0.0.0/24")
	assert.True(t, slices.IsSorted(fits))
	assert.Equal(t, networks[1:], rangesThatFit(networks[1:], nil))
}
