package oci

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// TestTypeIsFixed: scenario 63, and fault 11: a Service never has two load balancers, and what it had is deleted with it, of either kind.
func TestTypeIsFixed(t *testing.T) {
	for _, types := range [][2]string{{typeBalancer, typeNLB}, {typeNLB, typeBalancer}} {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				s := conformance.Service("web", byHand(annotationType, types[0]), web())
				w.requireServed(s, nodes[:1])
				s.Annotations[annotationType] = types[1]
				w.start() // which knows nothing of before
				w.cloud.loadBalancers.setEvents(events)
				w.Server.ResetCalls()
				_, err := w.ensure(s, nodes)
				require.ErrorContains(w, err, "the type of a load balancer cannot be changed")
				assert.Contains(w, <-events.Events, eventOtherKind)
				assert.Empty(w, w.writes())
				plan, err := w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), "kubernetes", s, nodes)
				require.Error(w, err)
				assert.Empty(w, plan.Changes)
				require.Len(w, plan.Findings, 1)
				_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
				require.NoError(w, err)
				assert.True(w, exists)
				require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
				assert.Len(w, w.writes(), 1, "its nodes are kept up to date")
				assert.Len(w, w.sim.Holdings(), 1)
				require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
				assert.Empty(w, w.sim.Holdings())
				w.requireServed(s, nodes)
				assert.Len(w, w.sim.Holdings(), 1)
			})
		})
	}
}

// TestUnservedKind: policies that do not mention network load balancers are enough for load balancers.
func TestUnservedKind(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.mark()
		w.sim.SetNetworkUnserved(true)
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.NoError(w, err)
		assert.True(w, exists)
		orphans, err := w.cloud.Orphans(w.Context(), []*v1.Service{s})
		require.NoError(w, err)
		assert.Empty(w, orphans)
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.LoadBalancers())
		_, exists, err = w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.NoError(w, err)
		assert.False(w, exists)
		_, err = w.ensure(conformance.Service("web", ofNetwork(), web()), nodes)
		require.Error(w, err, "who asks for one needs the policies")
	})
}

// TestNetworkOrphans: network load balancers without a Service are found and deleted.
func TestNetworkOrphans(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.mark()
		s := conformance.Service("web", ofNetwork(), web())
		w.requireServed(s, nodes)
		w.sim.AddNetworkLoadBalancer("default/old/0c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", document{"compartmentId": w.nlb().Doc["compartmentId"]})
		orphans, err := w.cloud.Orphans(w.Context(), []*v1.Service{s})
		require.NoError(w, err)
		assert.Empty(w, orphans, "what has no mark of the cluster may be another's")
		orphans, err = w.cloud.Orphans(w.Context(), nil)
		require.NoError(w, err)
		require.Len(w, orphans, 1)
		assert.Equal(w, testNetworkName, orphans[0].Name)
		w.start() // in a cluster without Services
		require.NoError(w, w.cloud.DeleteOrphan(w.Context(), orphans[0]))
		assert.Len(w, w.sim.NetworkLoadBalancers(), 1)
	})
}

// TestRulesOfNetworkOrphans: the rules for a network load balancer without a Service go before it, which stays until they are gone.
func TestRulesOfNetworkOrphans(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		before := w.allRules()
		s := conformance.Service("web", ofNetwork(nlbListMode, modeAll), web())
		w.serving(s)
		w.requireServed(s, nodes)
		require.NotEqual(w, before, w.allRules())
		w.serving()
		time.Sleep(time.Minute)
		orphans, err := w.cloud.Orphans(w.Context(), nil)
		require.NoError(w, err)
		require.Len(w, orphans, 1)
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "PUT /securityLists/{id}"})
		require.Error(w, w.cloud.DeleteOrphan(w.Context(), orphans[0]))
		assert.Len(w, w.sim.NetworkLoadBalancers(), 1, "what is left is found by it")
		w.Server.ClearFaults()
		require.NoError(w, w.cloud.DeleteOrphan(w.Context(), orphans[0]))
		assert.Empty(w, w.sim.NetworkLoadBalancers())
		assert.Equal(w, before, w.allRules())
	})
}

// mark gives the cluster an identity, which load balancers are marked with.
func (w *testWorld) mark() {
	w.Helper()
	named := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "c1"}}
	_, err := w.kube.CoreV1().Namespaces().Create(w.Context(), named, metav1.CreateOptions{})
	require.NoError(w, err)
	w.start()
}

// TestNetworkRefused: what is wrong is refused before any call, in the words of Oracle's own controller.
func TestNetworkRefused(t *testing.T) {
	t.Parallel()
	set := func(key, value string) func(*v1.Service) {
		return func(s *v1.Service) { s.Annotations[key] = value }
	}
	for name, c := range map[string]struct {
		change func(*v1.Service)
		want   string
	}{
		"rule sets":      {set(annotationRuleSets, "{}"), "a network load balancer has no rule sets"},
		"list mode":      {set(nlbListMode, "Some"), nlbListMode},
		"rule mode":      {set(annotationRuleMode, "Some"), `"Some" is not one of SL-All`},
		"interval":       {set(nlbInterval, "9999"), nlbInterval},
		"retries":        {set(nlbRetries, "many"), nlbRetries},
		"policy":         {set(nlbPolicy, "ROUND_ROBIN"), nlbPolicy},
		"subnet":         {set(nlbSubnet, "here"), "is not an OCID"},
		"tags":           {set(nlbFreeform, "{"), "is not JSON of free-form tags"},
		"defined tags":   {set(nlbNewDefined, `{"a":"b"}`), "is not JSON of defined tags"},
		"selector":       {set(nlbSelector, "a in b"), nlbSelector},
		"private":        {set(nlbPrivateIPv4, "fd00::1"), "is no such address"},
		"internal":       {set(nlbInternal, "oui"), nlbInternal},
		"preserve":       {set(nlbPreserve, "true"), "needs spec.externalTrafficPolicy: Local"},
		"identity":       {set(annotationAccount, "builder"), "is not served"},
		"SCTP":           {func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }, "is a protocol that network load balancers do not have"},
		"no node ports":  {func(s *v1.Service) { s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(bool), 0 }, "node ports"},
		"affinity":       {func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, "has no equivalent on Oracle's load balancers"},
		"six groups":     {set(nlbGroups, sixGroups()), "holds 6 groups; a load balancer takes 5"},
		"illegal groups": {set(nlbGroups, "mine"), "is not an OCID"},
		"UDP and lists": {func(s *v1.Service) {
			s.Spec.Ports[0].Protocol = v1.ProtocolUDP
			s.Annotations[nlbListMode] = modeAll
		}, "is not possible with managed security lists"},
		"reserved": {func(s *v1.Service) {
			s.Spec.LoadBalancerIP = "192.0.2.1"
			s.Annotations[nlbInternal] = "true"
		}, "is a reserved public address, which an internal load balancer cannot have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := conformance.Service("web", ofNetwork(), web())
			_, warnings, err := parseNLB(s)
			require.NoError(t, err)
			require.NoError(t, warnings)
			c.change(s)
			_, _, err = parseNLB(s)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestNoEffectOnNetwork: settings of load balancers that network load balancers do not have are told of, each by its name.
func TestNoEffectOnNetwork(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		annotationShape, annotationShapeMin, annotationInternal, annotationSubnet1, annotationIdle, annotationProxy,
		annotationProtocol, annotationRetries,
		annotationListMode, annotationGroups, annotationPolicy, annotationFreeform, annotationSelector, annotationPrefix + "tls-secret",
	} {
		_, warnings, err := parseNLB(conformance.Service("web", ofNetwork(key, "x"), web()))
		require.NoError(t, err)
		require.ErrorContains(t, warnings, key)
		require.ErrorContains(t, warnings, "has no effect")
	}
	s := conformance.Service("web", ofNetwork(), web())
	s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
	_, warnings, err := parseNLB(s)
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "security rules keep clients out")
	_, warnings, err = parseNLB(conformance.Service("web", ofNetwork(nlbIPv6, "fd00::1"), web()))
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "has no addresses of IPv6")
}

// TestTypeAfterALostCreation: a load balancer whose creation was not answered is waited for before one of the other kind is made.
func TestTypeAfterALostCreation(t *testing.T) {
	for _, types := range [][2]string{{typeBalancer, typeNLB}, {typeNLB, typeBalancer}} {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				w.requireServed(other(byHand(), conformance.Port("alt", 8080, 30081)), nodes)
				w.deleted(other(byHand(), conformance.Port("alt", 8080, 30081)))
				time.Sleep(time.Hour)
				s := conformance.Service("web", byHand(annotationType, types[0]), web())
				s.CreationTimestamp = metav1.Now()
				w.Fail(simkit.Fault{
					Kind: simkit.FaultLate, Late: simkit.Duration(30 * time.Second), Writes: true, Operation: "oadBalancers", Status: http.StatusGatewayTimeout,
				})
				_, err := w.ensure(s, nodes)
				require.Error(w, err)
				w.Server.ClearFaults()
				s.Annotations[annotationType] = types[1]
				for range 30 {
					_, err = w.ensure(s, nodes)
					time.Sleep(5 * time.Second)
				}
				require.ErrorContains(w, err, "the type of a load balancer cannot be changed")
				assert.Len(w, w.sim.Holdings(), 1)
				w.deleted(s)
				assert.Empty(w, w.sim.Holdings())
			})
		})
	}
}

// TestLoadBalancersOfAnotherClusterStay when a Service goes that has their name.
func TestLoadBalancersOfAnotherClusterStay(t *testing.T) {
	eachKind(t, []string{"a"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		w.mark()
		s.Annotations[annotationRuleMode] = "SL-All"
		w.serving(s)
		w.requireServed(s, nodes)
		theirs := document{tagCluster: "anyccm:99999999-7a66-4b58-8b4b-0a61c1f9e0a1"}
		if isNLBService(s) {
			require.NoError(w, w.sim.EditNetworkLoadBalancer(testNetworkName, func(lb *ocisim.NetworkLoadBalancer) { lb.Doc["freeformTags"] = theirs }))
		} else {
			require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { lb.Doc["freeformTags"] = theirs }))
		}
		w.start()
		w.serving(s)
		time.Sleep(time.Minute)
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "is left alone")
		_ = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s)
		assert.Equal(w, 1, len(w.sim.LoadBalancers())+len(w.sim.NetworkLoadBalancers()), "the load balancer of the other cluster stays")
	})
}
