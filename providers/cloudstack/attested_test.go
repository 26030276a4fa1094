package cloudstack

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the name and the addresses of a virtual machine.
func TestAttested(t *testing.T) {
	t.Parallel()
	v := vm{Name: "web-1", PublicIP: "192.0.2.1", NICs: []nic{{IP: "10.0.0.1"}, {IP: "10.1.0.1"}, {}}}
	addresses := contract.AttestedAddresses("192.0.2.1", "10.0.0.1", "10.1.0.1")
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: addresses}, v.attested())
}
