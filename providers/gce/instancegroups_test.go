package gce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// members returns the instances of the only instance group in the first zone.
func (w *world) members() (names []string) {
	for _, g := range w.sim.Objects("instanceGroups") {
		if strings.HasSuffix(fmt.Sprint(g["zone"]), "-a") {
			list, _ := g["members"].([]any)
			for _, m := range list {
				names = append(names, lastPart(fmt.Sprint(m)))
			}
		}
	}
	return names
}

// TestMembersOfOthersStay: an instance that was never a node of this cluster stays in the group, because another cluster may have the same
// ID. An instance leaves when its Node is deleted or excluded.
func TestMembersOfOthersStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		for _, name := range []string{"n1", "n2", "n3"} {
			w.addNode(gcesim.Spec{Name: name})
			time.Sleep(2 * time.Minute)
		}
		s, _ := w.ensure(w.apply(internalService("web")))
		assert.Equal(t, []string{"n1", "n2", "n3"}, w.members())

		w.sim.AddInstance(gcesim.Spec{Name: "stranger"})
		group := w.sim.Objects("instanceGroups")[0]["name"].(string)
		w.sim.Edit("instanceGroups", group, func(d map[string]any) {
			d["members"] = append(d["members"].([]any), "https://www.googleapis.com/compute/v1/"+hopTo("stranger"))
		})
		w.restart()
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		assert.Equal(t, []string{"n1", "n2", "n3", "stranger"}, w.members())
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning InstanceGroupShared instance group "+group+" in us-central1-a has members "+
			"that are no nodes of this cluster, and that stay: stranger; if they are another cluster's")

		// n2 is a Node without traffic; the Node of n3 is deleted, and its instance stays.
		w.Unregister(w.nodes[2])
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes[:1]))
		assert.Equal(t, []string{"n1", "stranger"}, w.members())
		w.sim.RemoveInstanceByID("gce://my-project/us-central1-a/stranger")
		time.Sleep(time.Hour)
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes[:2]))
		assert.Equal(t, []string{"n1", "n2"}, w.members())
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestNodeDeletedBeforeARestart: a process that never knew the Node takes its instance for another cluster's, leaves it, and says so.
func TestNodeDeletedBeforeARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		for _, name := range []string{"n1", "n2"} {
			w.addNode(gcesim.Spec{Name: name})
			time.Sleep(2 * time.Minute)
		}
		s, _ := w.ensure(w.apply(internalService("web")))
		w.Unregister(w.nodes[1])
		w.nodes = w.nodes[:1]
		w.restart()
		w.ensure(s)
		assert.Equal(t, []string{"n1", "n2"}, w.members())
		assert.Contains(t, strings.Join(w.Events(), "\n"), "that are no nodes of this cluster, and that stay: n2;")
	})
}

// TestMoreThanAGroupHolds: a zone's last nodes by name get no traffic, and an event says so.
func TestMoreThanAGroupHolds(t *testing.T) {
	t.Parallel()
	g := desiredGroup{id: groupID{"us-central1-a", "k8s-ig--1"}, strangers: []string{"x", "y"}}
	for i := range 1003 {
		g.want = append(g.want, fmt.Sprintf("n%04d", i))
	}
	g.limit()
	assert.Len(t, g.want, 998)
	assert.Equal(t, "n0997", g.want[997])
	findings := groupFindings([]desiredGroup{g})
	require.Len(t, findings, 2)
	assert.Equal(t, eventGroupFull, findings[1].Reason)
	assert.Contains(t, findings[1].Message, "the last 5 nodes of the zone by name get no traffic")
	g = desiredGroup{want: g.want}
	g.limit()
	assert.Empty(t, groupFindings([]desiredGroup{g}))
}

// TestMixedProtocols: the condition and its event are written once; the condition is removed when the ports are corrected.
func TestMixedProtocols(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		udp := conformance.Port("dns", 53, 30053)
		udp.Protocol = v1.ProtocolUDP
		s := w.apply(testService("web", conformance.Port("a", 80, 30080), udp))
		for range 3 {
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			require.ErrorContains(t, err, "are of TCP and of UDP, which one load balancer cannot serve")
			s = w.Current(s)
			require.Len(t, s.Status.Conditions, 1)
			c := s.Status.Conditions[0]
			assert.Equal(t, []string{
				"LoadBalancerPortsError", "True", "LoadBalancerMixedProtocolNotSupported", "LoadBalancer with multiple protocols are not supported",
			}, []string{c.Type, string(c.Status), c.Reason, c.Message})
		}
		assert.Equal(t, 1, strings.Count(strings.Join(w.Events(), "\n"), "LoadBalancerMixedProtocolNotSupported"))
		assert.Empty(t, w.sim.Objects("forwardingRules"))
		s.Spec.Ports = s.Spec.Ports[:1]
		s, _ = w.ensure(w.write(s))
		assert.Empty(t, w.Current(s).Status.Conditions)

		other := testService("other", conformance.Port("a", 80, 30080), udp)
		other.Annotations[annotationRBS] = rbsEnabled
		other = w.apply(other)
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", other, w.nodes)
		require.Error(t, err)
		assert.Empty(t, w.Current(other).Status.Conditions, "another controller's")
	})
}

// TestLegacyNetwork: a network without subnets accepts no options, with an error, and no address is reserved.
func TestLegacyNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "", 1))
		w.addNode(gcesim.Spec{Name: "n1"})
		w.sim.Edit("networks", "cluster", func(d map[string]any) {
			delete(d, "subnetworks")
			delete(d, "autoCreateSubnetworks")
			d["IPv4Range"] = "10.240.0.0/16"
		})
		s := internalService("web")
		s.Annotations[annotationGlobalAccess], s.Annotations[annotationSubnet] = "true", "nodes"
		s, _ = w.ensure(w.apply(s))
		rule := w.sim.Objects("forwardingRules")[0]
		assert.NotContains(t, rule, "allowGlobalAccess")
		assert.NotContains(t, rule, "subnetwork")
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning ILBOptionsIgnored Options of internal load balancers have no effect")
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		w.ensure(w.write(s))
		assert.Zero(t, w.server.Calls().ByOperation["POST addresses"])
	})
}

// TestGooglesClasses: the class determines the kind of load balancer, before annotations and options; a contradiction is reported.
func TestGooglesClasses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for class, scheme := range map[string]string{classExternal: "EXTERNAL", classInternal: "INTERNAL"} {
			s := testService("web", conformance.Port("a", 80, 30080))
			s.Spec.LoadBalancerClass = &class
			s.Annotations[annotationRBS] = rbsEnabled
			if class == classExternal {
				s.Annotations[annotationType] = "Internal"
			}
			s, _ = w.ensure(w.apply(s))
			assert.Equal(t, scheme, w.sim.Objects("forwardingRules")[0]["loadBalancingScheme"])
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			assert.Empty(t, w.sim.Objects("forwardingRules"))
			require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		}
		assert.Contains(t, strings.Join(w.Events(), "\n"), "has no effect with the load balancer class "+classExternal)
		foreign := testService("else", conformance.Port("a", 80, 30080))
		foreign.Finalizers = []string{finalizerNetLBv2}
		assert.True(t, isLeftAlone(foreign, Config{}))
		foreign.Spec.LoadBalancerClass = new(classExternal)
		assert.False(t, isLeftAlone(foreign, Config{}), "the class says whose it is")
	})
}

// TestMembersHavePages: members on the second page of a group count.
func TestMembersHavePages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		var first []any
		for n := range pageSize {
			name := fmt.Sprintf("stranger-%d", n)
			w.sim.AddInstance(gcesim.Spec{Name: name})
			first = append(first, "https://www.googleapis.com/compute/v1/"+hopTo(name))
		}
		w.sim.Edit("instanceGroups", w.sim.Objects("instanceGroups")[0]["name"].(string), func(d map[string]any) {
			d["members"] = append(first, d["members"].([]any)...)
		})
		w.restart()
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		assert.Len(t, w.members(), pageSize+1)
	})
}

// TestInstanceThatDoesNotForward: the route is created, as by Google's own controller, and an event on the Node says why its pods are
// unreachable.
func TestInstanceThatDoesNotForward(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		nodes := []*v1.Node{w.podNode("n1", 1)}
		time.Sleep(2 * time.Minute)
		nodes = append(nodes, w.withPods(w.addNode(gcesim.Spec{Name: "closed", Closed: true}), "closed", 2))
		require.Empty(t, w.route(nodes...))
		require.Empty(t, w.route(nodes...))
		assert.Len(t, w.routed(), 2)
		said := w.Events()
		require.Len(t, said, 1)
		assert.Contains(t, said[0], "Warning InstanceDoesNotForward the instance my-project/us-central1-a/closed may not forward packets")
	})
}
