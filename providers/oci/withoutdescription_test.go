package oci

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// leaveToOracle has a load balancer of a Service look as Oracle's own controller makes it, and the rules for its clients, without a
// description, let in some networks.
func (w *testWorld) leaveToOracle(s *v1.Service, networks ...string) {
	w.Helper()
	list, port := ocisim.BalancerList, 80
	if isNLBService(s) {
		list, port = ocisim.DefaultList, 30080
		require.NoError(w, w.sim.EditNetworkLoadBalancer(testNetworkName, func(lb *ocisim.NetworkLoadBalancer) { delete(lb.Doc, "freeformTags") }))
	} else {
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "freeformTags") }))
	}
	w.sim.EditList(list, func(in, out []any) (_, _ []any) {
		in = slices.DeleteFunc(in, func(v any) bool {
			o, _ := openingOf(v.(document), false)
			return o.port == port && o.network == everybody
		})
		for _, network := range networks {
			in = append(in, opening{false, numberTCP, port, network}.rule(""))
		}
		return in, out
	})
}

// addBalancer makes the load balancer of another cluster, which Oracle's own controller serves.
func (w *testWorld) addBalancer(subnet string, nodePort int) {
	w.Helper()
	d := theirDocument(w.T, w.Nodes)
	d["displayName"], d["subnetIds"] = "another", []string{subnet}
	for _, b := range fieldOf[[]any](d["backendSets"].(document)["TCP-80"].(document), "backends") {
		b.(document)["port"] = nodePort
	}
	_, err := w.cloud.loadBalancers.api.call(w.Context(), "making it", "POST", "/loadBalancers", d, nil, http.Header{tokenHeader: {"another"}})
	require.NoError(w, err)
	time.Sleep(time.Minute)
}

// addServer starts an instance that is no node.
func (w *testWorld) addServer(subnet string) {
	w.sim.Add("server", func(i *ocisim.Instance) {
		i.Interfaces(func(all []ocisim.VNIC) []ocisim.VNIC {
			all[0].Subnet = subnet
			return all
		})
	})
}

// takenOver is a Service whose load balancer was taken over with a network that may connect, which made no write.
func (w *testWorld) takenOver(network string, nodes []*v1.Node, beside func(*testWorld)) *v1.Service {
	w.Helper()
	s := conformance.Service("web", map[string]string{}, web())
	if network != everybody {
		s.Spec.LoadBalancerSourceRanges = []string{network}
	}
	w.serving(s)
	s.Status.LoadBalancer = *w.requireServed(s, nodes)
	w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) { return in[:2], out })
	w.leaveToOracle(s, network)
	beside(w)
	w.start()
	w.serving(s)
	w.Server.ResetCalls()
	w.requireServed(s, nodes)
	require.Empty(w, w.writes(), "the takeover")
	return s
}

// drainEvents returns the texts of events so far.
func drainEvents(events *record.FakeRecorder) string {
	var all []string
	for len(events.Events) > 0 {
		all = append(all, <-events.Events)
	}
	return strings.Join(all, "\n")
}

// TestNarrowingAfterATakeover: a rule without a description lets former clients in no longer where the load balancer is one of Oracle's own
// controller, whichever process meets the new source ranges, and whatever else of the Service is refused. It stays, and is told of, where
// others are seen to have its port.
func TestNarrowingAfterATakeover(t *testing.T) {
	nothing := func(*testWorld) {}
	for name, c := range map[string]struct {
		had    string
		beside func(w *testWorld)
		stays  bool
	}{
		"everybody":                  {everybody, nothing, false},
		"a wider network":            {"203.0.0.0/16", nothing, false},
		"another cluster's balancer": {everybody, func(w *testWorld) { w.addBalancer(ocisim.BalancerSubnet(), 30099) }, true},
		"another list":               {everybody, func(w *testWorld) { w.addBalancer(ocisim.SubnetID(1), 30099) }, false},
		"a balancer in a subnet that may not be read": {everybody, func(w *testWorld) {
			w.addBalancer(ocisim.DualSubnet(), 30099)
			w.sim.Hide("/subnets/" + ocisim.DualSubnet())
		}, true},
		"a server":                     {everybody, func(w *testWorld) { w.addServer(ocisim.BalancerSubnet()) }, true},
		"a server elsewhere":           {everybody, func(w *testWorld) { w.addServer(ocisim.SubnetID(1)) }, false},
		"no rights for the other kind": {everybody, func(w *testWorld) { w.sim.SetNetworkUnserved(true) }, false},
	} {
		for _, restart := range []bool{false, true} {
			for _, refused := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", restart ", restart, ", refused ", refused), func(t *testing.T) {
					marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
						s := w.takenOver(c.had, nodes, c.beside)
						if restart {
							w.start()
						}
						w.cloud.loadBalancers.setEvents(events)
						s = s.DeepCopy()
						s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
						if refused {
							s.Annotations[annotationPolicy] = "no policy"
						}
						w.serving(s)
						_, err := w.ensure(s, nodes)
						require.Equal(w, refused, err != nil, "%v", err)
						assert.Equal(w, c.stays, slices.Contains(w.mayConnect("80"), c.had), "they may connect: %v", w.mayConnect("80"))
						text := drainEvents(events)
						if refused {
							text = err.Error()
						}
						assert.Equal(w, c.stays, strings.Contains(text, "TCP port 80 from "+c.had+" by a rule without a description"), text)
					})
				})
			}
		}
	}
}

// TestNodePortsAfterATakeover: so it is for ports of nodes that see the addresses of clients, where no other load balancer leads there.
func TestNodePortsAfterATakeover(t *testing.T) {
	for name, stays := range map[string]bool{"alone": false, "of another cluster, too": true} {
		t.Run(name, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				s := local(conformance.Service("web", ofNetwork(annotationRuleMode, "SL-All"), web()))
				w.serving(s)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				w.leaveToOracle(s, everybody)
				w.addServer(ocisim.SubnetID(2))
				if stays {
					w.addBalancer(ocisim.SubnetID(1), 30080)
				}
				w.start()
				w.cloud.loadBalancers.setEvents(events)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.serving(s)
				w.requireServed(s, nodes)
				assert.Equal(w, stays, slices.Contains(w.mayConnect("30080"), everybody), "they may connect: %v", w.mayConnect("30080"))
				text := drainEvents(events)
				assert.Equal(w, stays, strings.Contains(text, "TCP port 30080 from 0.0.0.0/0 by a rule without a description"), text)
			})
		})
	}
}

// TestExceptionsByHand: a rule without a description that includes no new source range is somebody's, and stays, and so does all that was
// there when source ranges were asked for already: a takeover closes nothing. An event names it.
func TestExceptionsByHand(t *testing.T) {
	for name, c := range map[string]struct{ networks, left []string }{
		"another network":    {[]string{everybody, "198.51.100.0/24"}, []string{"198.51.100.0/24", "203.0.113.0/24"}},
		"of before, as well": {[]string{everybody, "203.0.113.0/24"}, []string{everybody, "203.0.113.0/24"}},
	} {
		t.Run(name, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{}, web())
				w.serving(s)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				w.leaveToOracle(s, c.networks...)
				w.start()
				w.cloud.loadBalancers.setEvents(events)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.serving(s)
				w.requireServed(s, nodes)
				assert.Equal(w, c.left, w.mayConnect("80"), "left of what was there")
				assert.Contains(w, drainEvents(events), "TCP port 80 from "+c.left[0]+" by a rule without a description")
			})
		})
	}
}

// TestRulesOfAnotherServiceStay: what another Service of the cluster lets in stays, and so does what somebody lets in for one whose rules
// are managed by hand.
func TestRulesOfAnotherServiceStay(t *testing.T) {
	for mode, named := range map[string]bool{"SL-All": false, modeNone: true} {
		t.Run(mode, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{}, web())
				b := other(map[string]string{annotationRuleMode: mode}, conformance.Port("http", 80, 30090))
				if mode == modeNone {
					b.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				}
				w.serving(s, b)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				w.requireServed(b, nodes)
				w.leaveToOracle(s, everybody)
				w.start()
				w.cloud.loadBalancers.setEvents(events)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.serving(s, b)
				w.requireServed(s, nodes)
				assert.Contains(w, w.mayConnect("80"), everybody)
				text := drainEvents(events)
				assert.Equal(w, named, strings.Contains(text, "TCP port 80 from 0.0.0.0/0 by a rule without a description"), text)
			})
		})
	}
}

// TestDeletionAfterATakeover: a rule without a description stays where another cluster's load balancer has its port, and an event says so.
func TestDeletionAfterATakeover(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		w.leaveToOracle(s, everybody)
		w.addBalancer(ocisim.BalancerSubnet(), 30099)
		w.start()
		w.cloud.loadBalancers.setEvents(events)
		w.serving(s)
		w.deleted(s)
		assert.Equal(w, []string{everybody}, w.mayConnect("80"), "the other one is served")
		assert.Contains(w, drainEvents(events), "TCP port 80 from 0.0.0.0/0")
		assert.Len(w, w.sim.LoadBalancers(), 1)
	})
}

// TestPortLeftAfterATakeover: rules that Oracle's own controller left at a port close with it, whatever networks they are for.
func TestPortLeftAfterATakeover(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := w.takenOver(everybody, nodes, func(w *testWorld) {
			w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
				return append(in, maps.Clone(opening{false, numberTCP, 80, "198.51.100.0/24"}.rule(""))), out
			})
		}).DeepCopy()
		s.Spec.Ports[0].Port = 8080
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Empty(w, w.mayConnect("80"), "may connect to the port that is left")
	})
}

// TestEventsWithoutNodes: what stays open is told of although no node serves.
func TestEventsWithoutNodes(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, maps.Clone(opening{false, numberTCP, 80, "198.51.100.0/24"}.rule(""))), out
		})
		w.start()
		w.cloud.loadBalancers.setEvents(events)
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.serving(s)
		_, _ = w.ensure(s, nil)
		assert.Contains(w, drainEvents(events), "TCP port 80 from 198.51.100.0/24 by a rule without a description")
	})
}
