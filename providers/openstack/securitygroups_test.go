package openstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// TestRules: the rules of a security group, and when two are the same.
func TestRules(t *testing.T) {
	t.Parallel()
	s := service("web", nil, servicePort("a", 80, 30080), servicePort("b", 90, 0))
	some, err := sources.Parse("", []string{"192.0.2.0/24", "2001:db8::/32"})
	require.NoError(t, err)
	rules, err := wantedRules(s, settings{sources: some}, "10.0.0.0/16", "amphora", nil)
	require.NoError(t, err)
	one := securityRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", Min: 30080, Max: 30080, Prefix: "10.0.0.0/16"}
	assert.Equal(t, []securityRule{one}, rules, "a port without a node port opens nothing")
	rules, err = wantedRules(s, settings{sources: some}, "10.0.0.0/16", providerOVN, nil)
	require.NoError(t, err)
	require.Len(t, rules, 2)
	assert.Equal(t, []string{"IPv4", "IPv6"}, []string{rules[0].EtherType, rules[1].EtherType}, "each range is of its own family")
	rules, err = wantedRules(s, settings{}, "2001:db8:1::/64", "amphora", nil)
	require.NoError(t, err)
	assert.Equal(t, "IPv6", rules[0].EtherType)
	other := one
	other.ID, other.GroupID, other.Protocol = "x", "y", "TCP"
	assert.True(t, one.same(other))
	other.Max = 30081
	assert.False(t, one.same(other))
	other = one
	other.Prefix = "10.0.0.0/8"
	assert.False(t, one.same(other))
}
