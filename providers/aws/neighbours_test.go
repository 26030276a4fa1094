package aws

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestNeighbourWithAFault: a Service that has checked the node port of another one, and of which nobody can tell any more what it needs,
// keeps nobody in but its own checks. An event names what stays for these alone.
func TestNeighbourWithAFault(t *testing.T) {
	t.Parallel()
	for what, hinder := range map[string]func(*world, *v1.Service){
		"setting": func(_ *world, s *v1.Service) { s.Annotations[annotationCheckInterval] = "never" },
		"port":    func(_ *world, s *v1.Service) { s.Annotations[annotationCheckPort] = "none" },
		"ranges":  func(_ *world, s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"bad"} },
	} {
		for _, hidden := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hidden subnets %t", what, hidden), func(t *testing.T) {
				t.Parallel()
				w := startWorld(t, "", awssim.Options{})
				s := nlb("web", map[string]string{}, servicePort("http", 80, 30080))
				b := nlb("b", map[string]string{annotationCheckPort: "30080"}, servicePort("http", 80, 30081))
				b.Namespace = "tenant"
				w.Apply(s)
				w.ensure(s)
				s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
				w.ensure(s) // whose rules for checks are there first
				w.Apply(b)
				w.ensure(b)
				s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = nil })
				w.ensure(s)
				require.Contains(t, w.ports("0.0.0.0/0"), 30080)
				w.change(b, func(s *v1.Service) { hinder(w, s) })
				s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.50.0.0/15"} })
				w.ensure(s)
				assert.NotContains(t, w.ports("0.0.0.0/0"), 30080, "it is narrowed")
				assert.Contains(t, w.ports("192.0.2.0/24"), 30080)
				if hidden {
					w.restart()
					w.fault(simkit.Fault{Kind: "empty-set", Operation: "EC2 DescribeSubnets"})
				}
				w.Events()
				require.NoError(t, w.remove(s))
				assert.NotContains(t, w.ports("198.50.0.0/15"), 30080, "no subnet is as large")
				assert.Equal(t, hidden, slices.Contains(w.ports("192.0.2.0/24"), 30080), "it might be a subnet")
				assert.Contains(t, w.ports("10.0.0.0/24"), 30080, "checks get in")
				w.reached(b)
				assert.Regexp(t, eventRuleKept+".*tcp/30080 from 10.0.0.0/24.*Service tenant/b", strings.Join(w.Events(), "\n"))
				w.server.ClearFaults()
				require.NoError(t, w.remove(b))
				assert.Empty(t, rules(w.group("nodes")))
			})
		}
	}
}

// TestNeighbourOnOtherPorts: whatever of a Service cannot be read, others are shut out of ports that it neither has nor checks.
func TestNeighbourOnOtherPorts(t *testing.T) {
	t.Parallel()
	for _, faulty := range []bool{false, true} {
		for _, hidden := range []bool{false, true} {
			t.Run(fmt.Sprintf("fault %t, hidden subnets %t", faulty, hidden), func(t *testing.T) {
				t.Parallel()
				w := startWorld(t, "", awssim.Options{})
				own := map[string]string{annotationCheckPort: "10256", annotationTargetAttributes: attributePreserveClient + "=true"}
				s := nlb("web", own, servicePort("http", 80, 30080), servicePort("more", 81, 30082))
				s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/24", "192.0.2.0/24"}
				b := nlb("b", map[string]string{annotationCheckPort: "30080"}, servicePort("http", 80, 30081))
				b.Namespace = "tenant"
				w.Apply(s, b)
				w.ensure(s)
				w.ensure(b)
				if faulty {
					w.change(b, func(s *v1.Service) { s.Annotations[annotationCheckInterval] = "never" })
				}
				if hidden {
					w.restart()
					w.fault(simkit.Fault{Kind: "empty-set", Operation: "EC2 DescribeSubnets"})
				} else {
					s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.1.0/24"} })
					w.ensure(s)
					assert.NotContains(t, w.ports("10.0.0.0/24"), 30082, "it is narrowed")
				}
				require.NoError(t, w.remove(s))
				for _, cidr := range []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "192.0.2.0/24"} {
					assert.NotContains(t, w.ports(cidr), 30082, "clients at another port, %s", cidr)
					assert.NotContains(t, w.ports(cidr), 10256, "checks of another port, %s", cidr)
				}
				assert.Contains(t, w.ports("10.0.0.0/24"), 30080, "checks get in")
				w.reached(b)
				w.server.ClearFaults()
				require.NoError(t, w.remove(b))
				assert.Empty(t, rules(w.group("nodes")))
			})
		}
	}
}

// TestRulesThatANeighbourMayNeed: a Service of which nobody can tell what it needs keeps its own clients, and its checks from its subnets:
// of any port if nobody can tell which. Where subnets are hidden, larger networks are none of them.
func TestRulesThatANeighbourMayNeed(t *testing.T) {
	t.Parallel()
	at := func(port int32, cidr string) rule {
		return rule{protocolTCP, port, port, ruleSource{cidr: cidr}, descriptionClient + "a"}
	}
	d := doubt{
		ports:   nodePorts([]desiredListener{{group: desiredTargetGroup{protocol: "TCP", port: 30080}}}),
		subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
	}
	assert.True(t, d.mayNeed(at(30080, "0.0.0.0/0")), "its own clients get in")
	assert.True(t, d.mayNeed(at(30081, "10.0.0.0/24")))
	assert.False(t, d.mayNeed(at(30081, "10.1.0.0/24")))
	udp := at(30081, "10.0.0.0/24")
	udp.protocol = protocolUDP
	assert.False(t, d.mayNeed(udp), "checks are TCP")
	d.hidden = true
	assert.True(t, d.mayNeed(at(30081, "10.1.0.0/24")))
	assert.False(t, d.mayNeed(at(30081, "0.0.0.0/0")))
	assert.True(t, d.mayNeed(at(30081, "2001:db8::/44")))
	assert.False(t, d.mayNeed(at(30081, "2001:db8::/43")), "no subnet is as large")
	d.checks = []int32{30082}
	assert.True(t, d.mayNeed(at(30082, "10.1.0.0/24")))
	assert.False(t, d.mayNeed(at(30081, "10.0.0.0/24")), "it checks another port")
}
