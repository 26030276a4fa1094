package aws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// manyPorts is a Service of a network load balancer with n ports.
func manyPorts(name string, n int32) *v1.Service {
	ports := make([]v1.ServicePort, n)
	for i := range n {
		ports[i] = servicePort(fmt.Sprint("p", i), 8000+i, 30000+i)
	}
	return nlb(name, nil, ports...)
}

// limitsElsewhere are the tests of limits that no life of a Service meets.
func limitsElsewhere() map[string]string {
	return map[string]string{
		awslimits.Listeners.String(): "TestListenerQuota", awslimits.NetworkLoadBalancers.String(): "TestLoadBalancerQuota",
		awslimits.Targets.String(): "TestFullTargetGroup", awslimits.TargetGroups.String(): "TestRegionQuotas", awslimits.Groups.String(): "TestRegionQuotas",
		awslimits.GroupRules.String(): "TestFillingThatEndsEarly", awslimits.GroupRulesEver.String(): "TestTooManySourceRanges",
		awslimits.AttributeValue.String(): "TestTextsOfLoadBalancers",
	}
}

// withoutLimit are the texts and lists that have no limit of their own.
func withoutLimit() map[string]string {
	const counted, unbounded = "counted with what is there", "AWS's models have no bound for it"
	all := map[string]string{"Action": "it names the call", "Version": "it names the service", "IpPermissions*": counted, "ELBv2 RegisterTargets Targets": counted}
	for _, field := range []string{
		"TagSpecification", "LoadBalancerNames", "LoadBalancerName", "LoadBalancerPorts", "LoadBalancerArn", "LoadBalancerAttributes*", "Subnets",
		"SubnetMappings", "Listeners*", "Policy*", "Instances", "Certificates*", "DefaultActions", "TargetGroupArn", "SslPolicy",
	} {
		all[field] = unbounded
	}
	return all
}

// TestListenerQuota: a Service with more ports than a network load balancer has listeners gets an event. Nodes still join the existing
// listeners, and deleting the Service deletes everything made for it.
func TestListenerQuota(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{GroupRules: 1000})
	s := manyPorts("web", 51)
	w.Apply(s)
	for range 3 {
		_, err := w.try(s)
		require.ErrorContains(t, err, "quota exceeded")
		require.ErrorContains(t, err, "maximum number of listeners")
	}
	require.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Listeners(), 50)
	w.addNode(awssim.Spec{Name: "late"})
	require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
	for _, group := range w.sim.TargetGroups()[:50] {
		assert.Len(t, group.Targets, len(w.nodes), group.Name)
	}
	require.NoError(t, w.remove(w.Current(s)))
	assert.Empty(t, w.sim.Networks())
	assert.Empty(t, w.sim.TargetGroups())
	assert.Empty(t, rules(w.group("nodes")))
}

// TestLoadBalancerQuota: where a region has all the load balancers that it may, nothing is left of a Service that got none.
func TestLoadBalancerQuota(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	for i := range 50 {
		w.sim.AddNetwork(fmt.Sprint("theirs-", i), "network", nil)
	}
	before := snapshot(w.sim)
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	for range 3 {
		_, err := w.try(s)
		require.ErrorContains(t, err, "quota exceeded")
	}
	require.NoError(t, w.remove(w.Current(s)))
	assert.Equal(t, before, snapshot(w.sim))
}

// TestTagsBeyondTheLimits: tags that AWS would refuse are refused without a call; the cluster's and the Service's own count, too.
func TestTagsBeyondTheLimits(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		tags := make([]string, n)
		for i := range tags {
			tags[i] = fmt.Sprintf("tag-%d=x", i)
		}
		return strings.Join(tags, ",")
	}
	for text, refusal := range map[string]string{
		many(48): "", many(49): "a resource would have 51 tags, and the cloud takes at most 50; ask for fewer tags",
		strings.Repeat("k", 128) + "=" + strings.Repeat("v", 256): "",
		strings.Repeat("k", 129) + "=v":                           "would have 129 characters, and the cloud takes at most 128",
		"k=" + strings.Repeat("v", 257):                           "the value of tag k would have 257 characters, and the cloud takes at most 256",
		"Kosten stelle=größe_1.2:3/4+5-6@7":                       "",
		"team=a&b":                                                "tag team has the character '&'; load balancers take letters, digits, blanks and _.:/=+-@",
		"te*m=a":                                                  "tag te*m has the character '*'",
	} {
		s := nlb("web", map[string]string{annotationTags: text}, servicePort("http", 80, 30080))
		_, _, err := parseSettings(s, Config{})
		if refusal == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, refusal)
	}
}

// TestRegionQuotas: the last target group and the last security group of a region are made, and one more is told as what it is.
func TestRegionQuotas(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(sim *awssim.Sim){
		"target groups": func(sim *awssim.Sim) {
			for i := range awslimits.TargetGroups.Max - 1 {
				sim.AddTargetGroup(awssim.TargetGroup{Name: fmt.Sprint("theirs-", i)})
			}
		},
		"security groups": func(sim *awssim.Sim) {
			for i := range awslimits.Groups.Max - 1 - len(sim.Groups()) {
				sim.AddGroup(awssim.Group{Name: fmt.Sprint("theirs-", i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
			fill(w.sim)
			last, more := nlb("last", nil, servicePort("http", 80, 30080)), nlb("more", nil, servicePort("http", 80, 30081))
			w.Apply(last)
			w.ensure(last)
			w.Apply(more)
			_, err := w.try(more)
			require.ErrorContains(t, err, "quota exceeded")
		})
	}
}

// TestDrainingTargets: a node that leaves is drained for as long as its target group says, and is no backend meanwhile: it costs no
// write, keeps nothing from being deleted, and may come back at any time.
func TestDrainingTargets(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.addNode(awssim.Spec{Name: "leaves"})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	all := w.nodes
	require.Greater(t, len(all), 1)
	for _, restart := range []bool{false, true} {
		w.nodes = all[:1]
		w.update(s)
		require.Len(t, w.sim.Draining(), len(all)-1)
		if restart {
			w.restart()
		}
		w.unchanged(s, "what is drained is no backend")
		w.nodes = all
		w.update(s)
		assert.Empty(t, w.sim.Draining(), "they came back")
		assert.Len(t, w.sim.TargetGroups()[0].Targets, len(all))
	}
	w.nodes = all[:1]
	w.update(s)
	require.NotEmpty(t, w.sim.Draining())
	other := nlb("other", nil, servicePort("http", 80, 30080))
	other.UID = types.UID(strings.Repeat("b", 36))
	w.Apply(other)
	w.ensure(other)
	require.NoError(t, w.remove(s))
	require.NoError(t, w.remove(other))
	assert.Empty(t, w.sim.TargetGroups())
	assert.Empty(t, w.server.Calls().Refused)
}
