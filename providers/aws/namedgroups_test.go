package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestRulesForNamedGroupsStay: an author of a Service can name any security group. Rules that admit that group to the cluster, and were not
// made for the Service, stay while it lives and after it is deleted.
func TestRulesForNamedGroupsStay(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	byHand := awssim.Rule{Protocol: "-1", Group: extraGroup, Description: "control plane"}
	w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = []awssim.Rule{byHand} })
	w.sim.AddGroup(awssim.Group{Name: "etcd", Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}, Rules: []awssim.Rule{byHand}})
	check := func(when string) {
		assert.Equal(t, []awssim.Rule{byHand}, w.group("nodes").Rules, when)
		assert.Equal(t, []awssim.Rule{byHand}, w.group("etcd").Rules, when)
	}
	s := service("tenant", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	check("made")
	w.restart()
	w.addNode(awssim.Spec{Name: "n2"})
	w.update(s)
	check("nodes changed")
	w.Events()
	require.NoError(t, w.remove(s))
	check("gone")
	assert.Empty(t, w.sim.Classics())
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventRuleKept)
}

// TestGroupOfAnotherService: a Service that names the security group of another one's load balancer closes none of that one's
// nodes. It does not get a group that was made for the other one: that could not be deleted then.
func TestGroupOfAnotherService(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} { // the other one's own group, or one that both name
		w := startWorld(t, "", awssim.Options{})
		group := w.sim.AddGroup(awssim.Group{Name: "nodes of a second group", Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}})
		w.addNode(awssim.Spec{Name: "n2", Groups: []string{group}})
		w.nodes[0].Labels["pool"] = "one"
		victim := service("victim", nil, servicePort("http", 80, 30080))
		if named {
			victim.Annotations[annotationGroups] = extraGroup
		}
		w.Apply(victim)
		w.ensure(victim)
		from := w.sim.Classics()[0].Groups[0]
		opened := rules(w.group("nodes of a second group"))
		require.Len(t, opened, 1)

		tenant := service("tenant", map[string]string{annotationGroups: from, annotationNodeLabels: "pool=one"}, servicePort("http", 80, 30081))
		w.Apply(tenant)
		if named {
			w.ensure(tenant)
			w.update(tenant)
		} else {
			w.Events()
			_, err := w.try(tenant)
			require.ErrorContains(t, err, "another Service")
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
			assert.Len(t, w.sim.Classics(), 1)
		}
		require.NoError(t, w.remove(tenant))
		assert.Equal(t, opened, rules(w.group("nodes of a second group")))
		assert.Len(t, rules(w.group("nodes")), 1)
		w.unchanged(victim, "nothing of it was touched")
		require.NoError(t, w.remove(victim))
		assert.Empty(t, rules(w.group("nodes")))
		assert.Empty(t, rules(w.group("nodes of a second group")))
	}
}
