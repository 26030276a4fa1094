package openstack

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: what users write on a server is none of what Nova vouches for.
func TestAttested(t *testing.T) {
	t.Parallel()
	s := server{
		name: "web-1", metadata: map[string]string{"hostname": "api.example.com"}, accessIPv4: "198.51.100.9", accessIPv6: "2001:db8::9",
		addresses: []address{{network: "private", ip: "10.0.0.1"}, {network: "private", ip: "192.0.2.1", floating: true}},
	}
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: contract.AttestedAddresses("10.0.0.1", "192.0.2.1")}, s.attested())
}
