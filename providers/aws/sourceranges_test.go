package aws

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

const hideClients = attributePreserveClient + "=false"

// TestOpenFamilies is the table of who gets in although source ranges are given.
func TestOpenFamilies(t *testing.T) {
	t.Parallel()
	both := entrance{dualStack: true, nodeGroups: true}
	for _, c := range []struct {
		entrance
		ranges  string
		hide    bool
		checked bool
		open    string
		hides   bool
	}{
		{entrance{nodeGroups: true}, "", true, true, "", true},
		{entrance{nodeGroups: true}, "10.0.0.0/8", false, true, "", false},
		{entrance{nodeGroups: true}, "10.0.0.0/8", true, true, "IPv4", true},
		{entrance{nodeGroups: true}, "10.0.0.0/8", true, false, "IPv4", true},
		{entrance{nodeGroups: true}, "2001:db8::/32", true, false, "", false},
		{entrance{nodeGroups: true}, "2001:db8::/32", true, true, "IPv4", false},
		{entrance{nodeGroups: true}, "10.0.0.0/8,0.0.0.0/0", true, true, "", true},
		{entrance{nodeGroups: true, ownGroup: true}, "10.0.0.0/8", true, true, "", true},
		{entrance{}, "10.0.0.0/8", false, true, "IPv4", false},
		{both, "10.0.0.0/8", false, true, "IPv6", false},
		{both, "10.0.0.0/8", false, false, "", false},
		{both, "10.0.0.0/8,2001:db8::/32", false, false, "IPv6", true},
		{both, "10.0.0.0/8,::/0", false, true, "", true},
		{both, "2001:db8::/32", true, false, "IPv4 IPv6", true},
		{both, "::/0", true, false, "IPv4", true},
		{entrance{dualStack: true, v6: true, nodeGroups: true}, "10.0.0.0/8,::/0", false, true, "IPv4", true},
		{entrance{dualStack: true, v6: true, nodeGroups: true}, "0.0.0.0/0,2001:db8::/32", false, true, "", true},
	} {
		s := settings{network: true}
		for text := range strings.SplitSeq(c.ranges, ",") {
			if text != "" {
				s.ranges = append(s.ranges, netip.MustParsePrefix(text))
			}
		}
		if c.hide {
			s.targetAttributes = map[string]string{attributePreserveClient: textFalse}
		}
		assert.Equal(t, c.open, strings.Join(c.entrance.open(s, c.checked), " "), "%+v", c)
		assert.Equal(t, c.hides, c.admitsHidden(s), "%+v", c)
	}
}

// TestSourceRangesThatDoNotHold: source ranges without effect produce an event and a validation warning.
func TestSourceRangesThatDoNotHold(t *testing.T) {
	t.Parallel()
	const managed = "NLBSecurityGroupMode = Managed\n"
	hidden := map[string]string{annotationType: typeNLB, annotationTargetAttributes: hideClients}
	with := func(key, value string) map[string]string {
		return mergeTags(hidden, map[string]string{key: value})
	}
	for name, c := range map[string]struct {
		file        string
		annotations map[string]string
		ranges      []string
		told        bool
	}{
		"hidden clients":                       {"", hidden, []string{"192.0.2.0/24"}, true},
		"hidden clients, by annotation":        {"", with(annotationSourceRanges, "192.0.2.0/24"), nil, true},
		"hidden clients, everybody may come":   {"", hidden, []string{"0.0.0.0/0"}, false},
		"hidden clients, no ranges":            {"", hidden, nil, false},
		"hidden clients and a security group":  {managed, hidden, []string{"192.0.2.0/24"}, false},
		"hidden clients and a group of others": {managed, with(annotationGroups, extraGroup), []string{"192.0.2.0/24"}, true},
		"clients are seen":                     {"", map[string]string{annotationType: typeNLB}, []string{"192.0.2.0/24"}, false},
		"nodes are left alone":                 {"DisableSecurityGroupIngress = true\n", map[string]string{annotationType: typeNLB}, []string{"192.0.2.0/24"}, true},
		"classic":                              {"", map[string]string{}, []string{"192.0.2.0/24"}, false},
		"classic with a group of others":       {"", map[string]string{annotationGroups: extraGroup}, []string{"192.0.2.0/24"}, true},
		"classic with the group of the option": {"ElbSecurityGroup = " + extraGroup + "\n", map[string]string{}, []string{"192.0.2.0/24"}, true},
	} {
		w := startWorld(t, c.file, awssim.Options{})
		s := service("web", c.annotations, servicePort("http", 80, 30080))
		s.Spec.LoadBalancerSourceRanges = c.ranges
		w.Apply(s)
		w.ensure(s)
		assert.Equal(t, c.told, strings.Contains(strings.Join(w.Events(), "\n"), "Warning "+eventRangesIgnored), name)
		warnings, err := checkService(testInputs(w.sim, w.url, w.sim.CloudConfig(w.url)+c.file, nil), s)
		require.NoError(t, err)
		assert.Equal(t, c.told, warnings != nil && strings.Contains(warnings.Error(), "keeps nobody out"), "%s: %v", name, warnings)
	}
}

// TestRangesOfExistingBalancers: what was made before, by other rules, counts as it is: one that has no security group never gets
// any, and one with both families hides one of them.
func TestRangesOfExistingBalancers(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w.Apply(s)
	w.ensure(s)
	w.file = "NLBSecurityGroupMode = Managed\n"
	w.restart()
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationTargetAttributes] = hideClients })
	w.Events()
	w.ensure(s)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "keeps nobody out that comes by IPv4")

	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationTargetAttributes] = attributePreserveClient + "=true" })
	w.ensure(s)
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.AddressType = addressDualStack })
	w.restart()
	w.Events()
	w.ensure(s)
	assert.NotContains(t, strings.Join(w.Events(), "\n"), "keeps nobody out", "nobody may come by IPv6, and nobody does")
	for _, r := range rules(w.group("nodes")) {
		assert.NotContains(t, r, "30080-30080 10.0.", "clients that the load balancer hides are of IPv6")
	}
	s = w.change(s, func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "2001:db8::/32"}
	})
	w.Events()
	w.ensure(s)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "keeps nobody out that comes by IPv6")
}
