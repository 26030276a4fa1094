package azure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// kept and former are ranges of which only the first is asked for later.
const kept, former = "10.0.0.0/8", "192.0.2.0/24"

// mayEnter are the sources that the rules let in to an address.
func (w *world) mayEnter(ip string) (list []string) {
	for _, rule := range w.securityRules() {
		if str(rule, "properties", "access") == "Allow" && slices.Contains(destinationsOf(rule), ip) {
			list = append(list, plural(rule, "sourceAddressPrefix", "sourceAddressPrefixes")...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func narrowed(to ...string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = to }
}

// serveNarrowed runs a test for a Service with one node that is open to the ranges given.
func serveNarrowed(t *testing.T, from []string, test func(w *world, s *v1.Service, ip string)) {
	t.Helper()
	t.Parallel()
	s := webService(nil, narrowed(from...))
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		require.NotEmpty(w, w.mayEnter(ip))
		waitFor(2 * lookAge)
		test(w, s, ip)
	})
}

// changeGroup changes the rules of the security group as somebody does by hand.
func (w *world) changeGroup(change func(rules []doc) []doc) {
	group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
	setList(group, "securityRules", change(docs(group, "properties", "securityRules")))
	w.sim.Leave(str(group, "id"), group)
	waitFor(2 * lookAge)
}

// fail makes all calls of an operation fail.
func (w *world) fail(operation string) {
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: operation})
	require.NoError(w, err)
}

// TestNarrowingIsNotHeldUpByARefusedWrite of the load balancer, of its members, or of an address.
// joinAlone adds a node that no scale set brings into the pool.
func (w *world) joinAlone(name string) { w.joinAs(name, w.sim.AddMachine(name)) }

func TestNarrowingIsNotHeldUpByARefusedWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused string
		change  func(w *world, s *v1.Service)
	}{
		"load balancer": {"PUT Microsoft.Network/loadBalancers", func(_ *world, s *v1.Service) { s.Annotations[annotationIdle] = "30" }},
		"members":       {"PUT Microsoft.Network/networkInterfaces", func(w *world, _ *v1.Service) { w.joinAlone("n2") }},
		"address":       {"PUT Microsoft.Network/publicIPAddresses", func(_ *world, s *v1.Service) { s.Annotations[annotationTags] = "team=web" }},
	} {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
				w.fail(c.refused)
				w.change(s, func(s *v1.Service) {
					narrowed(kept)(s)
					c.change(w, s)
				})
				for range 3 {
					_ = w.refuse(s)
					waitFor(2 * lookAge)
				}
				assert.Equal(w, []string{kept}, w.mayEnter(ip))
			})
		})
	}
}

// TestNarrowingIsNotHeldUpByACheck of something else.
func TestNarrowingIsNotHeldUpByACheck(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, s *v1.Service){
		"illegal annotation": func(_ *world, s *v1.Service) { s.Annotations[annotationIdle] = "nonsense" },
		"address not there":  func(_ *world, s *v1.Service) { s.Spec.LoadBalancerIP = "20.99.0.1" },
		"further address":    func(w *world, s *v1.Service) { s.Annotations[annotationAdditional] = internalIP(w.nodes[0], false) },
	} {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
				w.change(s, func(s *v1.Service) {
					narrowed(kept)(s)
					change(w, s)
				})
				_ = w.refuse(s)
				assert.Equal(w, []string{kept}, w.mayEnter(ip))
			})
		})
	}
}

// TestNarrowingIsNotHeldUpByMachines whose network interfaces cannot be listed.
func TestNarrowingIsNotHeldUpByMachines(t *testing.T) {
	serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
		w.joinAlone("n2")
		w.ensure(s)
		w.restart()
		w.fail("GET Microsoft.Network/networkInterfaces")
		w.change(s, narrowed(kept))
		_, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
		assert.Equal(w, []string{kept}, w.mayEnter(ip), "%v", err)
	})
}

// TestNarrowingWithoutNodes: a Service that no node serves is narrowed all the same.
func TestNarrowingWithoutNodes(t *testing.T) {
	serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
		w.nodes = nil
		w.change(s, narrowed(kept))
		w.ensure(s)
		assert.Equal(w, []string{kept}, w.mayEnter(ip))
	})
}

// TestNarrowingIsNotHeldUpByAFullGroup: former clients leave, and members join, where there is no room for the new ones.
func TestNarrowingIsNotHeldUpByAFullGroup(t *testing.T) {
	t.Parallel()
	full := map[string]func(rules []doc) []doc{
		"sources": func(rules []doc) []doc {
			var many []any
			for i := range maxPrefixes - 1 {
				many = append(many, netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}).String())
			}
			theirs := leftAllow("IPv4", "", 300, "Tcp", many, "10.0.0.9", "22")
			theirs["name"] = "theirs"
			return append(rules, theirs)
		},
		"priorities": func(rules []doc) []doc {
			for p := firstPriority + 1; p < lastPriority; p++ {
				theirs := leftAllow("IPv4", "", p, "Tcp", "10.0.0.8", "10.0.0.9", "22")
				theirs["name"] = fmt.Sprint("theirs-", p)
				rules = append(rules, theirs)
			}
			return rules
		},
		"rules": func(rules []doc) []doc {
			for p := firstPriority + 1; p < firstPriority+maxRules; p++ {
				theirs := leftAllow("IPv4", "", p, "Tcp", "10.0.0.8", "10.0.0.9", "22")
				theirs["name"] = fmt.Sprint("theirs-", p)
				rules = append(rules, theirs)
			}
			return rules
		},
	}
	for name, fill := range full {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, []string{former}, func(w *world, s *v1.Service, ip string) {
				w.changeGroup(fill)
				w.change(s, func(s *v1.Service) {
					s.Spec.LoadBalancerSourceRanges = []string{kept, "198.51.100.0/24"}
					s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP, NodePort: 30053})
				})
				w.joinAlone("n2")
				err := w.refuse(s)
				assert.NotContains(w, w.mayEnter(ip), former, "%v", err)
				assert.Equal(w, 2, strings.Count(w.sim.Snapshot(), " pool kubernetes member "), "n2 has joined: %v", err)
			})
		})
	}
}
