package gce

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestReservedAddressStays: the load balancer keeps a user's reserved address after spec.loadBalancerIP is removed, and whenever the
// forwarding rule is replaced. It is never released.
func TestReservedAddressStays(t *testing.T) {
	for name, c := range map[string]struct {
		service func(string) *v1.Service
		address map[string]any
	}{
		"external": {
			func(name string) *v1.Service { return testService(name, conformance.Port("a", 80, 30080)) }, map[string]any{"address": "203.0.113.200"},
		},
		"internal": {internalService, map[string]any{
			"address": "10.128.0.200", "addressType": "INTERNAL", "subnetwork": "projects/my-project/regions/us-central1/subnetworks/nodes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				w.reserve("mine", c.address)
				s := c.service("web")
				s.Spec.LoadBalancerIP = fmt.Sprint(c.address["address"])
				s, _ = w.ensure(w.apply(s))
				s.Spec.LoadBalancerIP = ""
				s, _ = w.ensure(w.write(s))
				for range 2 {
					s.Spec.Ports = append(s.Spec.Ports, conformance.Port(fmt.Sprint("p", len(s.Spec.Ports)), 9000+int32(len(s.Spec.Ports)), 30999))
					var ip string
					s, ip = w.ensure(w.write(s))
					assert.Equal(t, c.address["address"], ip)
				}
				require.Len(t, w.sim.Objects("addresses"), 1)
				assert.Equal(t, "mine", w.sim.Objects("addresses")[0]["name"])
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestAskedForItsOwnAddress: a Service that requests its present, unreserved address keeps it when its forwarding rule is replaced.
func TestAskedForItsOwnAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for _, s := range []*v1.Service{testService("web", conformance.Port("a", 80, 30080)), internalService("within")} {
			s, ip := w.ensure(w.apply(s))
			s.Spec.LoadBalancerIP = ip
			s.Spec.Ports = append(s.Spec.Ports, conformance.Port("p", 9000, 30999))
			s, after := w.ensure(w.write(s))
			assert.Equal(t, ip, after)
			assert.Empty(t, w.sim.Objects("addresses"))
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		}
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestNothingGoesForWhatIsRefused: an address or a subnet that the cloud refuses changes nothing.
func TestNothingGoesForWhatIsRefused(t *testing.T) {
	external := func() *v1.Service { return testService("web", conformance.Port("a", 80, 30080)) }
	within := func() *v1.Service { return internalService("web") }
	for name, c := range map[string]struct {
		service func() *v1.Service
		prepare func(w *world)
		change  func(s *v1.Service)
		says    string
	}{
		"of another load balancer": {external, func(w *world) {
			w.reserve("theirs", map[string]any{"address": "203.0.113.200"})
			w.sim.Put("regions/us-central1/targetPools/theirs", map[string]any{})
			w.sim.Put("regions/us-central1/forwardingRules/theirs", map[string]any{
				"IPAddress": "203.0.113.200", "portRange": "80-90", "target": "regions/us-central1/targetPools/theirs",
			})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }, "is in use by forwarding rule theirs"},
		"of an instance": {external, func(w *world) {
			w.sim.AddInstance(gcesim.Spec{Name: "vm", Interfaces: []gcesim.Interface{{IP: "10.128.0.77", NAT: []string{"203.0.113.200"}}}})
			w.reserve("theirs", map[string]any{"address": "203.0.113.200"})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }, "is in use by instance vm"},
		"an internal one": {external, func(w *world) {
			w.reserve("theirs", map[string]any{"address": "10.128.0.200", "addressType": "INTERNAL"})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.128.0.200" }, "is an internal address"},
		"outside of the subnet": {within, nil, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.99.0.9" }, "not within the range"},
		"of an instance of the subnet": {within, func(w *world) {
			w.sim.AddInstance(gcesim.Spec{Name: "vm", Interfaces: []gcesim.Interface{{IP: "10.128.0.77"}}})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.128.0.77" }, "in use by vm"},
		"a subnet that is not there": {within, nil, func(s *v1.Service) { s.Annotations[annotationSubnet] = "none" }, "subnetworks/none' was not found"},
		"of another subnet": {within, func(w *world) {
			w.sim.AddNetwork(gcesim.Project, "cluster", "backend", "10.140.0.0/20")
			w.reserve("theirs", map[string]any{
				"address": "10.140.0.9", "addressType": "INTERNAL", "subnetwork": "projects/my-project/regions/us-central1/subnetworks/backend",
			})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.140.0.9" }, "is an address of subnet backend"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s, ip := w.ensure(w.apply(c.service()))
				if c.prepare != nil {
					c.prepare(w)
				}
				time.Sleep(time.Minute)
				c.change(s)
				require.ErrorContains(t, w.refuse(s), c.says)
				found := false
				for _, r := range w.sim.Objects("forwardingRules") {
					found = found || r["IPAddress"] == ip
				}
				assert.True(t, found, "the load balancer goes on with its address")
				for _, a := range w.sim.Objects("addresses") {
					assert.Equal(t, "theirs", a["name"])
				}
			})
		})
	}
}

// TestTwoServicesOfOneAddress: two load balancers may share a reserved address if their ports or protocols differ.
func TestTwoServicesOfOneAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		w.reserve("mine", map[string]any{"address": "203.0.113.200"})
		two := manyServices(2)
		two[1].Spec.Ports[0].Port = 443
		for i, s := range two {
			s.Spec.LoadBalancerIP = "203.0.113.200"
			two[i], _ = w.ensure(w.apply(s))
		}
		two[1].Spec.Ports[0].Protocol = v1.ProtocolUDP
		_, ip := w.ensure(w.write(two[1]))
		assert.Equal(t, "203.0.113.200", ip)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestLeftoverOfAnotherAddress: a different address that Google's own controller left reserved for the load balancer is released; the load
// balancer keeps its own.
func TestLeftoverOfAnotherAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		w.reserve(loadBalancerName("", s), map[string]any{"address": "203.0.113.240"})
		w.sim.Edit("addresses", loadBalancerName("", s), func(d map[string]any) { d["description"] = serviceDescription("default/web") })
		w.restart()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		_, after := w.ensure(w.write(s))
		assert.Equal(t, ip, after)
		assert.Empty(t, w.sim.Objects("addresses"))
	})
}

// TestTiers: another tier means another address, and the old one is released. Without the annotation the present tier stays.
func TestTiers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		s.Annotations = map[string]string{annotationTier: "Standard"}
		s, other := w.ensure(w.write(s))
		assert.NotEqual(t, ip, other)
		assert.Equal(t, "STANDARD", w.rule()["networkTier"])
		assert.Empty(t, w.sim.Objects("addresses"))
		delete(s.Annotations, annotationTier)
		s = w.write(s)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		s, after := w.ensure(w.write(s))
		assert.Equal(t, other, after)
		w.reserve("premium", map[string]any{"address": "203.0.113.200"})
		time.Sleep(time.Minute)
		s.Annotations, s.Spec.LoadBalancerIP = map[string]string{annotationTier: "Standard"}, "203.0.113.200"
		require.ErrorContains(t, w.refuse(s), "belongs to the PREMIUM network tier; expected STANDARD")
		s.Spec.LoadBalancerIP = "203.0.113.201"
		require.ErrorContains(t, w.refuse(s), "is neither reserved nor the load balancer's")
		assert.Equal(t, other, w.rule()["IPAddress"])
		delete(s.Annotations, annotationTier)
		s.Spec.LoadBalancerIP = "203.0.113.200"
		s, after = w.ensure(w.write(s))
		assert.Equal(t, "203.0.113.200", after)
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		assert.Len(t, w.sim.Objects("addresses"), 1, "a user's address is never released")
	})
}

// TestUsersAddressOfItsName: a user's address with the load balancer's name is neither used nor released, and the load balancer keeps its
// own.
func TestUsersAddressOfItsName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		w.reserve(testLB, map[string]any{"address": "203.0.113.200", "description": "mine"})
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		require.ErrorContains(t, w.refuse(s), "delete or rename address "+testLB)
		assert.Equal(t, ip, w.rule()["IPAddress"])
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", w.Current(s)))
		assert.Len(t, w.sim.Objects("addresses"), 1)
	})
}
