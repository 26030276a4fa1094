package digitalocean

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the name and all addresses of a droplet are what DigitalOcean gave it.
func TestAttested(t *testing.T) {
	t.Parallel()
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: contract.AttestedAddresses("10.0.0.1", "192.0.2.1", "2001:db8::1")},
		droplet{name: "web-1", privateV4: "10.0.0.1", publicV4: "192.0.2.1", publicV6: "2001:db8::1"}.attested())
}
