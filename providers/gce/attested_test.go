package gce

import (
	"testing"

	"github.com/stretchr/testify/assert"
	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the names are those in the cloud's DNS; pod ranges are excluded.
func TestAttested(t *testing.T) {
	t.Parallel()
	shown := &compute.Instance{Name: "web-1", Zone: "zones/europe-west1-b", NetworkInterfaces: []*compute.NetworkInterface{{
		NetworkIP: "10.0.0.1", AliasIpRanges: []*compute.AliasIpRange{{IpCidrRange: "10.4.0.0/24"}},
		AccessConfigs: []*compute.AccessConfig{{NatIP: "192.0.2.1"}},
	}}}
	addresses := contract.AttestedAddresses("10.0.0.1", "192.0.2.1")
	assert.Equal(t, contract.Attested{
		Names: []string{"web-1", "web-1.c.shop.internal", "web-1.europe-west1-b.c.shop.internal"}, Addresses: addresses,
	}, newInstance(location{project: "shop"}, shown).attested())
	assert.Equal(t, []string{"web-1"}, newInstance(location{project: "example.com:shop"}, shown).attested().Names)
}
