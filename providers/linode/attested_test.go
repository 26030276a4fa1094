package linode

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the label and the addresses of a Linode, without the length of a prefix.
func TestAttested(t *testing.T) {
	t.Parallel()
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: contract.AttestedAddresses("192.0.2.1", "192.168.128.1", "2001:db8::1")},
		instance{label: "web-1", ipv4: []string{"192.0.2.1", "192.168.128.1"}, ipv6: "2001:db8::1/128"}.attested())
}
