package ibm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: the name and the primary address of an instance, and no address that a label says.
func TestAttested(t *testing.T) {
	t.Parallel()
	v := instance{Name: "web-1", Attachment: &attachment{}}
	v.Attachment.PrimaryIP.Address = "10.0.0.1"
	assert.Equal(t, contract.Attested{Names: []string{"web-1"}, Addresses: contract.AttestedAddresses("10.0.0.1")}, v.attested())
}
