package keepalived

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

func TestMain(m *testing.M) {
	vrrp.Main() // this program is also what answers and asks in the namespaces of TestFailover
	conformance.Main(m, Name)
}
