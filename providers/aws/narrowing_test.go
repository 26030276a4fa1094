package aws

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// stranger is a rule of somebody else in the group of the nodes.
const stranger = "tcp 22-22 0.0.0.0/0"

// narrowed serves a Service to everybody, beside a stranger's rule, and then asks for one network alone, and for more.
func (w *world) narrowed(s *v1.Service, more func(*v1.Service)) *v1.Service {
	w.T.Helper()
	w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) {
		g.Rules = append(g.Rules, awssim.Rule{Protocol: "tcp", From: 22, To: 22, CIDR: "0.0.0.0/0"})
	})
	w.restart()
	w.Apply(s)
	w.ensure(s)
	require.NotEmpty(w.T, w.everybodyMay(), "it is open at first")
	return w.change(s, func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		more(s)
	})
}

// everybodyMay are the rules by which everybody gets in, but for the stranger's.
func (w *world) everybodyMay() []string {
	list := []string{}
	for _, g := range w.sim.Groups() {
		for _, r := range rules(g) {
			if strings.Contains(r, "0.0.0.0/0") && r != stranger {
				list = append(list, g.Name+": "+r)
			}
		}
	}
	return list
}

// closedBeside demands that a narrowed Service is closed to everybody although something else failed.
func (w *world) closedBeside(err error, what string) {
	w.T.Helper()
	assert.Error(w.T, err, what)
	assert.Empty(w.T, w.everybodyMay(), "%s: everybody still gets in; the error was: %v", what, err)
	assert.Contains(w.T, rules(w.group("nodes")), stranger, what)
}

func alone(*v1.Service) {}

// TestNarrowingIsNotHeldUpByARefusedListener: a listener that AWS refuses keeps nothing open.
func TestNarrowingIsNotHeldUpByARefusedListener(t *testing.T) {
	t.Parallel()
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			s := w.narrowed(s, addPort)
			w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "Listener", Writes: true})
			_, err := w.try(s)
			w.closedBeside(err, "listener refused")
		})
	}
}

// TestNarrowingIsNotHeldUpByAFaultElsewhere: a fault in another setting keeps nothing open.
func TestNarrowingIsNotHeldUpByAFaultElsewhere(t *testing.T) {
	t.Parallel()
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", nil, servicePort("http", 80, 30080)),
	} {
		for what, more := range map[string]func(*v1.Service){
			"check": func(s *v1.Service) { s.Annotations[annotationCheckInterval] = "never" },
			"place": func(s *v1.Service) { s.Annotations[annotationSubnets] = "no-such-subnet" },
		} {
			t.Run(kind+" "+what, func(t *testing.T) {
				t.Parallel()
				w := startWorld(t, "", awssim.Options{})
				_, err := w.try(w.narrowed(s.DeepCopy(), more))
				w.closedBeside(err, what)
			})
		}
	}
}

// TestFormerNodePortIsNarrowed: a node port that a Service leaves along with clients is narrowed as long as the load balancer leads there,
// and no longer.
func TestFormerNodePortIsNarrowed(t *testing.T) {
	t.Parallel()
	for what, more := range map[string]func(*v1.Service){
		"port dropped": func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] },
		"port moved":   func(s *v1.Service) { s.Spec.Ports[1].NodePort = 30090 },
	} {
		for fault, refuse := range map[string]func(*world, *v1.Service){
			"listener": func(w *world, _ *v1.Service) {
				w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "Listener", Writes: true})
			},
			"check": func(_ *world, s *v1.Service) { s.Annotations[annotationCheckInterval] = "never" },
		} {
			t.Run(what+", "+fault, func(t *testing.T) {
				t.Parallel()
				w := startWorld(t, "", awssim.Options{})
				s := w.narrowed(nlb("web", nil, servicePort("http", 80, 30080), servicePort("alt", 443, 30443)), func(s *v1.Service) {
					more(s)
					refuse(w, s)
				})
				_, err := w.try(s)
				w.closedBeside(err, what)
				assert.Equal(t, []int{30080, 30443}, only(w.ports("192.0.2.0/24"), 30080, 30443), "who may still connect does")
				assert.Subset(t, w.ports("10.0.0.0/24"), []int{30443}, "health checks get in")
				w.server.ClearFaults()
				s = w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationCheckInterval) })
				w.ensure(s)
				assert.Empty(t, only(slices.Concat(w.ports("192.0.2.0/24"), w.ports("10.0.0.0/24")), 30443), "the load balancer has left it")
				assert.Empty(t, w.everybodyMay())
				w.reached(s)
			})
		}
	}
}

// only are those of some ports that are among others, sorted.
func only(ports []int, among ...int) []int {
	list := slices.DeleteFunc(ports, func(p int) bool { return !slices.Contains(among, p) })
	slices.Sort(list)
	return list
}

// TestNarrowingNeedsNoNodes: obsolete rules go even if no node serves or is shown.
func TestNarrowingNeedsNoNodes(t *testing.T) {
	t.Parallel()
	for what, none := range map[string]func(*world){
		"no nodes":     func(w *world) { w.nodes = nil },
		"none is seen": func(w *world) { w.sim.Blind() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			s := w.narrowed(nlb("web", nil, servicePort("http", 80, 30080)), alone)
			none(w)
			w.restart()
			_, err := w.try(s)
			assert.Empty(t, w.everybodyMay(), "the error was: %v", err)
			assert.Contains(t, rules(w.group("nodes")), stranger)
		})
	}
	t.Run("classic", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := w.narrowed(service("web", nil, servicePort("http", 80, 30080)), alone)
		w.nodes = nil
		_, err := w.try(s)
		assert.Empty(t, w.everybodyMay(), "the error was: %v", err)
	})
}

// TestNarrowingAtALimit: what cannot be opened keeps nothing open.
func TestNarrowingAtALimit(t *testing.T) {
	t.Parallel()
	t.Run("no right to open", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := w.narrowed(nlb("web", nil, servicePort("http", 80, 30080)), alone)
		w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 AuthorizeSecurityGroupIngress"})
		_, err := w.try(s)
		w.closedBeside(err, "authorize refused")
	})
	t.Run("no right to open, classic", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := w.narrowed(service("web", nil, servicePort("http", 80, 30080)), alone)
		w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 AuthorizeSecurityGroupIngress"})
		_, err := w.try(s)
		w.closedBeside(err, "authorize refused")
	})
	t.Run("full group", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{GroupRules: 5}) // one for the stranger
		s := w.narrowed(nlb("web", nil, servicePort("http", 80, 30080)), alone)
		w.server.ResetCalls()
		_, err := w.try(s)
		w.closedBeside(err, fmt.Sprint("no room, with the calls ", w.server.Calls().ByOperation))
	})
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run("more networks than any group holds, "+kind, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			_, err := w.try(w.narrowed(s, func(s *v1.Service) {
				for i := range 1001 {
					s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("11.%d.%d.0/24", i/250, i%250))
				}
			}))
			w.closedBeside(err, "too many")
		})
	}
}

// TestNarrowingWhileASubnetIsHidden: clients are no business of subnets that EC2 does not show.
func TestNarrowingWhileASubnetIsHidden(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]simkit.Fault{
		"empty": {Kind: "empty-set"}, "refused": {Kind: simkit.FaultStatus, Status: http.StatusForbidden},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			s := w.narrowed(local(nlb("web", nil, servicePort("http", 80, 30080))), alone)
			checks := w.ports("10.0.0.0/24")
			require.NotEmpty(t, checks)
			w.restart()
			fault.Operation = "EC2 DescribeSubnets"
			w.fault(fault)
			_, err := w.try(s)
			assert.Empty(t, w.everybodyMay(), "the error was: %v", err)
			assert.Subset(t, w.ports("10.0.0.0/24"), checks, "health checks get in")
			assert.Contains(t, rules(w.group("nodes")), stranger)
		})
	}
}

// TestNarrowingKeepsHealthChecks: a rule that opens a port to everybody also admits health checks. They are still admitted when it goes; it
// stays while EC2 does not show their subnets.
func TestNarrowingKeepsHealthChecks(t *testing.T) {
	t.Parallel()
	for hidden, stays := range map[bool]int{false: 0, true: 1} {
		t.Run(fmt.Sprint("hidden ", hidden), func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			s := w.narrowed(nlb("web", nil, servicePort("http", 80, 30080)), func(s *v1.Service) {
				s.Annotations[annotationCheckInterval] = "never"
			})
			if hidden {
				w.restart()
				w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 DescribeSubnets"})
			}
			_, err := w.try(s)
			require.Error(t, err)
			assert.True(t, len(w.ports("0.0.0.0/0")) > stays || slices.Contains(w.ports("10.0.0.0/24"), 30080), "health checks get in: %v", rules(w.group("nodes")))
			assert.Equal(t, hidden, slices.Contains(w.ports("0.0.0.0/0"), 30080))
		})
	}
}

// TestNarrowingOfTheFormerKind: another kind of load balancer is refused, and the one that is there is narrowed all the same.
func TestNarrowingOfTheFormerKind(t *testing.T) {
	t.Parallel()
	const managed = "NLBSecurityGroupMode = Managed\n"
	for name, c := range map[string]struct {
		file string
		s    *v1.Service
		to   string
	}{
		"classic to network":                 {"", service("web", map[string]string{}, servicePort("http", 80, 30080)), typeNLB},
		"network to classic":                 {"", nlb("web", nil, servicePort("http", 80, 30080)), ""},
		"network with a group, to classic":   {managed, nlb("web", nil, servicePort("http", 80, 30080)), ""},
		"classic to network, with its group": {managed, service("web", map[string]string{}, servicePort("http", 80, 30080)), typeNLB},
	} {
		for _, guarded := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := startWorld(t, c.file, awssim.Options{})
				s := w.narrowed(c.s.DeepCopy(), func(s *v1.Service) { s.Annotations[annotationType] = c.to })
				var err error
				if guarded { // which has refused it
					require.NoError(t, w.loadBalancers.NarrowLoadBalancer(t.Context(), w.cluster, w.Current(s)))
					err = kindChanged(s, bothKinds{classic: &classicLoadBalancer{}, network: &networkLoadBalancer{}})
				} else {
					_, err = w.try(s)
				}
				w.closedBeside(err, "another kind")
			})
		}
	}
}

// TestFillingThatEndsEarly: if filling a full group fails after the former rules are gone, the next attempt adds what fits, also in another
// process.
func TestFillingThatEndsEarly(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{GroupRules: 5})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 AuthorizeSecurityGroupIngress", From: 3, Count: 9})
	s = w.change(s, func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}
	})
	_, err := w.try(s)
	require.Error(t, err)
	require.Empty(t, w.ports("192.0.2.0/24"))
	w.server.ClearFaults()
	w.restart()
	_, err = w.try(s)
	require.ErrorContains(t, err, codeTooManyRules)
	assert.Empty(t, w.everybodyMay())
	assert.NotEmpty(t, w.ports("192.0.2.0/24"), "nobody gets in: %v", rules(w.group("nodes")))
	w.reached(s)
}

// TestFillingOfARefusedService: if filling a full group fails after the former rules are gone and the Service is then refused, the group
// stays closed to former clients. Once the Service is accepted, it gets what fits, also from another process.
func TestFillingOfARefusedService(t *testing.T) {
	t.Parallel()
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", map[string]string{}, servicePort("http", 80, 30080)),
	} {
		for from := 2; from <= 5; from++ {
			t.Run(fmt.Sprint(kind, ", addition ", from), func(t *testing.T) {
				t.Parallel()
				s := s.DeepCopy()
				w := startWorld(t, "", awssim.Options{GroupRules: 5})
				w.Apply(s)
				w.ensure(s)
				w.fault(simkit.Fault{
					Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: "EC2 AuthorizeSecurityGroupIngress", From: from, Count: 20,
				})
				s = w.change(s, func(s *v1.Service) {
					s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}
					s.Annotations[annotationCheckInterval] = "never"
				})
				_, err := w.try(s)
				require.Error(t, err)
				w.server.ClearFaults()
				w.restart()
				for range 2 {
					_, err = w.try(s)
				}
				require.ErrorContains(t, err, "never")
				assert.Empty(t, w.everybodyMay(), "%v", err)
				s = w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationCheckInterval) })
				_, err = w.try(s)
				require.ErrorContains(t, err, codeTooManyRules)
				assert.Empty(t, w.everybodyMay(), "%v", err)
				var lets []string
				for _, g := range w.sim.Groups() {
					lets = append(lets, rules(g)...)
				}
				assert.Regexp(t, `tcp (80-80|30080-30080) 192\.0\.2\.0/24`, strings.Join(lets, "\n"), "nobody gets in: %v", err)
				if kind == "network" {
					w.reached(s)
				}
			})
		}
	}
}

// TestRulesForPacketSizesLetNobodyIn: path MTU rules do not show whose clients they are for. One left by others opens nothing for new
// clients of a refused Service.
func TestRulesForPacketSizesLetNobodyIn(t *testing.T) {
	t.Parallel()
	network, classic := nlb("web", nil, servicePort("http", 80, 30080)), service("web", map[string]string{}, servicePort("http", 80, 30080))
	for name, c := range map[string]struct {
		file    string
		s       *v1.Service
		group   string
		open    []string // what the Service had asked for
		foreign awssim.Rule
	}{
		"nodes":                  {"", network, "nodes", []string{"192.0.2.0/24"}, cidrRule("icmp", 3, 4, "0.0.0.0/0", descriptionMTU)},
		"nodes that nobody uses": {"", network, "nodes", []string{"2001:db8::/32"}, cidrRule("icmp", 3, 4, "0.0.0.0/0", descriptionMTU)},
		"managed": {
			"NLBSecurityGroupMode = Managed\n", network, managedGroupName("kubernetes", network),
			[]string{"192.0.2.0/24"},
			cidrRule("icmp", 3, 4, "0.0.0.0/0", ""),
		},
		"classic": {
			"", classic, classicGroupName(loadBalancerName(classic)), []string{"192.0.2.0/24"}, cidrRule("icmp", 3, -1, "0.0.0.0/0", "by hand"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, c.file, awssim.Options{})
			s := c.s.DeepCopy()
			s.Spec.LoadBalancerSourceRanges = c.open
			w.Apply(s)
			w.ensure(s)
			var before []string
			w.sim.ChangeGroup(w.group(c.group).ID, func(g *awssim.Group) {
				before = clientRules(*g)
				g.Rules = append(g.Rules, c.foreign)
			})
			w.restart()
			s = w.change(s, func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, "198.51.100.0/24")
				s.Annotations[annotationCheckInterval] = "never"
			})
			_, err := w.try(s)
			require.ErrorContains(t, err, "never")
			assert.Equal(t, before, clientRules(w.group(c.group)), "a refused Service opened something")
		})
	}
}

func clientRules(g awssim.Group) []string {
	return slices.DeleteFunc(rules(g), func(r string) bool { return !strings.HasPrefix(r, "tcp ") })
}

// TestFullForOneFamily: a group that is full of rules for IPv4 gets those for IPv6.
func TestFullForOneFamily(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{GroupRules: 5})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	policy := v1.IPFamilyPolicyPreferDualStack
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, &policy
	w.Apply(s)
	w.ensure(s)
	s = w.change(s, func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}
		for n := range 5 {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.0.0/16", n))
		}
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, "2001:db8::/32")
	})
	_, err := w.try(s)
	require.ErrorContains(t, err, codeTooManyRules)
	front := strings.Join(rules(w.group(managedGroupName("kubernetes", s))), "\n")
	for _, lets := range []string{"tcp 80-80 192.0.2.0/24", "tcp 80-80 198.51.100.0/24", "tcp 80-80 2001:db8::/32"} {
		assert.Contains(t, front, lets)
	}
	assert.NotContains(t, front, "::/0")
	assert.Empty(t, w.everybodyMay())
}

// TestNarrowingOfAFullGroup: what goes makes room for as many of those still asked for as fit.
func TestNarrowingOfAFullGroup(t *testing.T) {
	t.Parallel()
	for _, ranges := range [][]string{{"192.0.2.0/24"}, {"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}} {
		t.Run(strconv.Itoa(len(ranges)), func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{GroupRules: 5})
			s := nlb("web", nil, servicePort("http", 80, 30080))
			w.Apply(s)
			w.ensure(s)
			s = w.change(s, func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = ranges
				s.Annotations[annotationCheckInterval] = "never"
			})
			for range 2 {
				_, err := w.try(s)
				require.Error(t, err)
				assert.Empty(t, w.everybodyMay(), "the error was: %v", err)
				assert.NotEmpty(t, w.ports("192.0.2.0/24"), "nobody gets in: %v; the error was: %v", rules(w.group("nodes")), err)
				w.reached(s)
			}
		})
	}
}
