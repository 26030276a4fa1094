package openstack

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestRules: the rules of a security group, and when two are the same.
func TestRules(t *testing.T) {
	t.Parallel()
	s := service("web", nil, servicePort("a", 80, 30080), servicePort("b", 90, 0))
	some, err := sources.Parse("", []string{"192.0.2.0/24", "2001:db8::/32"})
	require.NoError(t, err)
	rules, err := wantedRules(s, observed{settings: settings{sources: some}}, "10.0.0.0/16")
	require.NoError(t, err)
	one := securityRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", Min: 30080, Max: 30080, Prefix: "10.0.0.0/16"}
	assert.Equal(t, []securityRule{one}, rules, "a port without a node port opens nothing")
	rules, err = wantedRules(s, observed{settings: settings{sources: some}, features: features{provider: providerOVN}}, "10.0.0.0/16")
	require.NoError(t, err)
	require.Len(t, rules, 2)
	assert.Equal(t, []string{"IPv4", "IPv6"}, []string{rules[0].EtherType, rules[1].EtherType}, "each range is of its own family")
	rules, err = wantedRules(s, observed{}, "2001:db8:1::/64")
	require.NoError(t, err)
	assert.Equal(t, "IPv6", rules[0].EtherType)
	other := one
	other.ID, other.GroupID, other.Protocol = "x", "y", "TCP"
	assert.True(t, one.equals(other))
	other.Max = 30081
	assert.False(t, one.equals(other))
	other = one
	other.Prefix = "10.0.0.0/8"
	assert.False(t, one.equals(other))
}

// TestGroupThatSomebodyDeleted: a port whose group is gone is no port that is gone. It is told, and the group made again.
func TestGroupThatSomebodyDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		w.addNode(openstacksim.Spec{Name: "late"})
		groups, err := w.reconciler.securityGroups.findFor(t.Context(), s, 0)
		require.NoError(t, err)
		require.Len(t, groups, 1)
		w.sim.DropSecurityGroup(groups[0].ID)
		err = w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
		require.ErrorContains(t, err, "Security group "+groups[0].ID)
		require.NotErrorIs(t, err, cloudapi.ErrNotFound)
		time.Sleep(2 * time.Minute) // then the other ports are read again, too
		w.update(s)
		require.Equal(t, []string{"tcp 30080 10.0.0.0/16"}, groupRules(w))
		having := 0
		for _, p := range w.sim.Ports() {
			if slices.Contains(p.SecurityGroups, w.sim.SecurityGroups()[0].ID) {
				having++
			}
		}
		assert.Equal(t, len(w.nodes), having)
	})
}

// TestPortThatIsGone: nothing is to be done about the groups of a port that went with its machine.
func TestPortThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		require.NoError(t, w.reconciler.securityGroups.setGroups(t.Context(), &port{ID: someID}, func(*port) []string { return []string{} }))
	})
}
