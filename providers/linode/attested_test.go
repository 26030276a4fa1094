package linode

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the label and the addresses of a Linode, without the length of a prefix.
func TestAttested(t *testing.T) {
	t.Parallel()
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: contract.AttestedAddresses("192.0.2.1", "192.168.128.1", "2001:db8::1")},
		instance{label: "web-1", ipv4: []string{"192.0.2.1", "192.168.128.1"}, ipv6: "2001:db8::1/128"}.attested())
}

// TestAttestedInVPCs: addresses in a VPC are a Linode's own where the cluster has one VPC; ranges that are routed to it are its pods'.
func TestAttestedInVPCs(t *testing.T) {
	t.Parallel()
	w := vpcWorld(t)
	require.NoError(t, w.RouteAPI.CreateRoute(t.Context(), "kubernetes", "hint", route("new", "10.2.1.0/24")))
	address := netip.MustParseAddr(w.nodes[1].Status.Addresses[1].Address)
	require.True(t, netip.MustParsePrefix("10.0.0.0/16").Contains(address))
	attested := func() []netip.Addr {
		w.restart()
		id, err := parseProviderID(w.nodes[1].Spec.ProviderID)
		require.NoError(t, err)
		l, err := getInstance(t.Context(), w.instances.vpcs.api, w.instances.vpcs, id)
		require.NoError(t, err)
		list := l.attested().Addresses
		for _, a := range list {
			assert.False(t, netip.MustParsePrefix("10.2.0.0/16").Contains(a), "the pods' range is no address")
		}
		return list
	}
	assert.Contains(t, attested(), address)
	w.flags["vpc-names"] = "cluster,other"
	assert.NotContains(t, attested(), address, "another VPC may have the same")
}
