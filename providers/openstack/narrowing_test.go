package openstack

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

const (
	formerRange = "192.0.2.0/24"
	innerRange  = "192.0.2.128/25"
	otherRange  = "198.51.100.0/24"
)

// asks is a change of the source ranges of a Service.
func asks(ranges ...string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

// mayConnect are the networks in the lists of all listeners.
func mayConnect(w *world) (all []string) {
	for _, l := range w.sim.Listeners() {
		all = append(all, l.AllowedCIDRs...)
	}
	return all
}

// refuse changes a Service and reconciles it, which is refused.
func (w *world) refuse(s *v1.Service, changes ...func(*v1.Service)) error {
	w.T.Helper()
	time.Sleep(time.Minute)
	now := w.Current(s)
	for _, change := range changes {
		change(now)
	}
	w.Apply(now)
	_, err := w.try(now)
	require.Error(w.T, err)
	return err
}

// TestNobodyIsLeft: an empty list would let everybody in. Where none of the former clients may connect, and the Service is refused, a
// listener lets in nobody at all.
func TestNobodyIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(*v1.Service)
		want, end []string
	}{
		"another network":  {asks(otherRange), []string{"0.0.0.0/32"}, []string{otherRange}},
		"one inside":       {asks(innerRange, otherRange), []string{innerRange}, []string{innerRange, otherRange}},
		"a wider one":      {asks("192.0.0.0/16"), []string{formerRange}, []string{"192.0.0.0/16"}},
		"everybody":        {asks(), []string{formerRange}, []string{"0.0.0.0/0"}},
		"one cannot be":    {asks(innerRange, "nonsense"), []string{innerRange}, nil},
		"none can be read": {asks("nonsense"), []string{formerRange}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := web(nil)
				asks(formerRange)(s)
				w, s := newServedWorld(t, "", s)
				_ = w.refuse(s, c.change, func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
				assert.Equal(t, c.want, mayConnect(w))
				w.server.ResetCalls()
				_ = w.refuse(s)
				assert.Zero(t, w.server.Calls().Writes, "it is narrowed once")
				if c.end != nil {
					w.changed(s, func(s *v1.Service) { delete(s.Annotations, annotationMethod) })
					assert.Equal(t, c.end, mayConnect(w))
				}
			})
		})
	}
}

// TestNarrowingWaitsForOctavia, which changes a load balancer for somebody else, and refuses the first try.
func TestNarrowingWaitsForOctavia(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 409, Operation: "PUT /load-balancer/v2.0/lbaas/listeners/{id}", Count: 2})
		require.NoError(t, err)
		_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		assert.Equal(t, []string{formerRange}, mayConnect(w))
	})
}

// TestNarrowingOfOneListenerIsRefused: the other one is narrowed.
func TestNarrowingOfOneListenerIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", service("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: "PUT /load-balancer/v2.0/lbaas/listeners/{id}", Count: 1})
		require.NoError(t, err)
		_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		assert.ElementsMatch(t, []string{formerRange, "0.0.0.0/0"}, mayConnect(w))
		_ = w.refuse(s)
		assert.Equal(t, []string{formerRange, formerRange}, mayConnect(w))
	})
}

// TestNarrowingWithAWrongID: the load balancer that a Service has is narrowed, though an annotation names none.
func TestNarrowingWithAWrongID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		err := w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationID] = "not an ID" })
		require.ErrorContains(t, err, annotationID)
		assert.Equal(t, []string{formerRange}, mayConnect(w))
	})
}

// TestNarrowingOfSharedListeners: those of other Services of a load balancer stay open.
func TestNarrowingOfSharedListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		other := rename(service("other", annotated(annotationID, s.Annotations[annotationID]), servicePort("smtp", 25, 30025)), "other")
		w.Apply(other)
		other, _ = w.ensure(other)
		_ = w.refuse(other, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		for _, l := range w.sim.Listeners() {
			want := "0.0.0.0/0"
			if l.ProtocolPort == 25 {
				want = formerRange
			}
			assert.Equal(t, []string{want}, l.AllowedCIDRs, l.Name)
		}
	})
}

// TestNarrowingOfRules: with ovn the rules of the security group are narrowed, also those for a node port that the pools have yet to leave,
// and health checks come in as before.
func TestNarrowingOfRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := web(nil)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
		w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", s)
		require.Equal(t, []string{"tcp 30080 0.0.0.0/0", "tcp 30999 10.0.0.0/16"}, groupRules(w))
		w.addNode(openstacksim.Spec{Name: "late"})
		_ = w.refuse(s, asks(formerRange, otherRange), func(s *v1.Service) {
			s.Spec.Ports[0].NodePort = 30081
			s.Annotations[annotationMethod] = "nonsense"
		})
		assert.Equal(t, []string{"tcp 30080 192.0.2.0/24", "tcp 30080 198.51.100.0/24", "tcp 30999 10.0.0.0/16"}, groupRules(w))
		_ = w.refuse(s, asks("203.0.113.0/24"))
		assert.Equal(t, []string{"tcp 30999 10.0.0.0/16"}, groupRules(w), "nobody new is let in")
		w.changed(s, func(s *v1.Service) { delete(s.Annotations, annotationMethod) })
		assert.Equal(t, []string{"tcp 30081 203.0.113.0/24", "tcp 30999 10.0.0.0/16"}, groupRules(w))
	})
}

// TestOpeningOfWhoIsAskedForFails: who may connect from now on is let in before the rule goes that let them in before. Where that fails for
// a moment it is tried again, and the former rule stays as long; what Neutron refuses for good keeps nothing open.
func TestOpeningOfWhoIsAskedForFails(t *testing.T) {
	t.Parallel()
	const operation, wide, narrow = "POST /networking/v2.0/security-group-rules", "tcp 30080 0.0.0.0/0", "tcp 30080 " + formerRange
	for name, c := range map[string]struct {
		fault      simkit.Fault
		now, later []string
		writes     int
	}{
		"once":         {simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Count: 1}, []string{narrow}, []string{narrow}, 3},
		"answer lost":  {simkit.Fault{Kind: simkit.FaultLost, Count: 1}, []string{narrow}, []string{narrow}, 2},
		"for a while":  {simkit.Fault{Kind: simkit.FaultStatus, Status: 500}, []string{wide}, []string{narrow}, openTries},
		"refused":      {simkit.Fault{Kind: simkit.FaultStatus, Status: 400}, nil, nil, 2},
		"one is there": {simkit.Fault{Kind: simkit.FaultStatusAfter, Status: 409, Count: 1}, []string{narrow}, []string{narrow}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", web(nil))
				require.Equal(t, []string{wide}, groupRules(w))
				c.fault.Operation = operation
				fault, err := w.server.AddFault(c.fault)
				require.NoError(t, err)
				w.server.ResetCalls()
				_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
				assert.Equal(t, c.now, groupRules(w))
				assert.Equal(t, c.writes, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
				w.server.RemoveFault(fault)
				_ = w.refuse(s)
				assert.Equal(t, c.later, groupRules(w))
			})
		})
	}
}

// TestOpeningWaitsForRoom: where the quota of rules is used up, the former rule makes room for who may connect from now on.
func TestOpeningWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", web(nil))
		w.sim.SetQuota("security_group_rule", 1)
		_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		assert.Equal(t, []string{"tcp 30080 " + formerRange}, groupRules(w))
	})
}

// TestOtherPortsAreNarrowed: a rule that stays because of a failure holds up no other port.
func TestOtherPortsAreNarrowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", service("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443)))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "POST /networking/v2.0/security-group-rules", Count: openTries})
		require.NoError(t, err)
		_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		assert.Equal(t, []string{"tcp 30080 0.0.0.0/0", "tcp 30443 " + formerRange}, groupRules(w))
	})
}

// TestNarrowingIsPlanned: a plan of a Service that is refused says who is shut out.
func TestNarrowingIsPlanned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		now := w.Current(s)
		asks(formerRange)(now)
		now.Annotations[annotationMethod] = "nonsense"
		w.server.ResetCalls()
		plan, err := w.PlanLoadBalancer(t.Context(), w.cluster, now, w.nodes)
		require.ErrorContains(t, err, annotationMethod)
		require.Len(t, plan.Changes, 1)
		assert.Equal(t, "update listener: allowed_cidrs", plan.Changes[0].Detail)
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestNarrowingOfAnotherProvider: the option is about new load balancers. Where the provider of an old one filters in listeners, they are
// narrowed there, too.
func TestNarrowingOfAnotherProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := web(nil)
		asks(formerRange, otherRange)(service)
		w, s := newServedWorld(t, "manage-security-groups = true\nlb-provider = amphora\n", service)
		require.ElementsMatch(t, []string{formerRange, otherRange}, mayConnect(w))
		w.file = "manage-security-groups = true\nlb-provider = ovn\n"
		w.restart()
		_ = w.refuse(s, asks(formerRange), func(s *v1.Service) { s.Annotations[annotationMethod] = "nonsense" })
		assert.Equal(t, []string{formerRange}, mayConnect(w))
	})
}

// TestProviderOfAnExistingLoadBalancer: the option says which provider new load balancers get. What an old one needs follows from its own.
func TestProviderOfAnExistingLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, algorithm, rule string }{
		"amphora":            {"", "lb-provider = ovn\n", "ROUND_ROBIN", "tcp 30080 10.0.0.0/16"},
		"ovn":                {"lb-provider = ovn\n", "", "SOURCE_IP_PORT", "tcp 30080 " + formerRange},
		"amphora, lb-method": {"", "lb-provider = ovn\nlb-method = SOURCE_IP\n", "SOURCE_IP", "tcp 30080 10.0.0.0/16"},
		"ovn, and lb-method": {"lb-provider = ovn\n", "lb-method = SOURCE_IP\n", "SOURCE_IP_PORT", "tcp 30080 " + formerRange},
		"amphora, ovn alone": {"", "lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n", "ROUND_ROBIN", "tcp 30080 10.0.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const managed = "manage-security-groups = true\n"
				service := web(nil)
				asks(formerRange)(service)
				w, s := newServedWorld(t, managed+c.before, service)
				w.file = managed + c.after
				w.restart()
				s, _ = w.ensure(s)
				assert.Equal(t, []string{c.rule}, groupRules(w))
				assert.Equal(t, c.algorithm, w.sim.Pools()[0].Algorithm)
				w.requireNoWrites(s)
				w.addNode(openstacksim.Spec{Name: "late"})
				w.update(s)
				_ = w.refuse(s, asks(otherRange), func(s *v1.Service) { s.Annotations[annotationNodeSelector] = "=" })
				want := []string{c.rule}
				if strings.HasSuffix(c.rule, formerRange) {
					want = nil
				}
				assert.Equal(t, want, groupRules(w))
			})
		})
	}
}

// TestSettingsOfAnExistingLoadBalancer: what its provider cannot do is refused, and what it can do is not, whatever new ones get.
func TestSettingsOfAnExistingLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.file = "lb-provider = ovn\n"
		w.restart()
		s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = "v1" })
		assert.Equal(t, "PROXY", w.sim.Pools()[0].Protocol)
		s.Annotations[annotationMethod] = "LEAST_CONNECTIONS"
		w.changed(s, func(s *v1.Service) { s.Annotations[annotationMethod] = "LEAST_CONNECTIONS" })
		assert.Equal(t, "LEAST_CONNECTIONS", w.sim.Pools()[0].Algorithm)
	})
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "lb-provider = ovn\n", web(nil))
		w.file = ""
		w.restart()
		w.server.ResetCalls()
		err := w.refuse(s, func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = "v1" })
		require.ErrorContains(t, err, "is not possible with the provider ovn")
		assert.Zero(t, w.server.Calls().Writes)
	})
}
