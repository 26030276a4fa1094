package nodes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func TestVouched(t *testing.T) {
	t.Parallel()
	internal := func(a string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: a} }
	external := func(a string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeExternalIP, Address: a} }
	host := v1.NodeAddress{Type: v1.NodeHostName, Address: "node-1"}
	for name, c := range map[string]struct{ told, has, want []v1.NodeAddress }{
		"a Node that tells nothing yet": {nil, []v1.NodeAddress{internal("10.0.0.5"), host}, []v1.NodeAddress{internal("10.0.0.5")}},
		"the Node chooses the order": {
			[]v1.NodeAddress{host, internal("10.1.0.5"), internal("10.0.0.5")},
			[]v1.NodeAddress{internal("10.0.0.5"), internal("10.1.0.5")},
			[]v1.NodeAddress{internal("10.1.0.5"), internal("10.0.0.5")},
		},
		"what the instance does not have": {
			[]v1.NodeAddress{internal("192.0.2.1"), external("198.51.100.5")},
			[]v1.NodeAddress{internal("10.0.0.5"), external("198.51.100.5")},
			[]v1.NodeAddress{external("198.51.100.5"), internal("10.0.0.5")},
		},
		"nothing is known of the instance": {[]v1.NodeAddress{internal("10.0.0.5")}, nil, []v1.NodeAddress{}},
		"one written in two ways":          {[]v1.NodeAddress{internal("FD00:0::5")}, []v1.NodeAddress{internal("fd00::5")}, []v1.NodeAddress{internal("FD00:0::5")}},
	} {
		assert.Equal(t, c.want, Vouched(c.told, c.has), name)
	}
}
