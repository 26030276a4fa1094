package keepalived

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

func TestMain(m *testing.M) {
	vrrp.Main() // this binary is also client and server in the namespaces of TestFailover
	conformance.Main(m, Name)
}
