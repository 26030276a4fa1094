package schema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestFields: of the rows of a field the first that counts decides, and what is refused needs no further words.
func TestFields(t *testing.T) {
	t.Parallel()
	table := Fields{
		{Field: FieldAddress, Becomes: Told, Words: "has no effect"},
		{Field: FieldUDP, With: map[string]string{"x/kind": "network"}, Becomes: Served},
		{Field: FieldUDP, Becomes: Refused, Words: "is not served"},
		{Field: FieldShared, Becomes: Refused, Words: "is there twice"},
		{Field: FieldApart, Becomes: Refused, Words: "has two node ports"},
		{Field: FieldNoNodePorts, Becomes: Refused, Silent: true},
	}
	tcp, udp := v1.ServicePort{Port: 53, NodePort: 30053}, v1.ServicePort{Port: 53, NodePort: 30053, Protocol: v1.ProtocolUDP}
	apart, without := udp, tcp
	apart.NodePort, without.NodePort = 30054, 0
	for name, c := range map[string]struct {
		ports         []v1.ServicePort
		kind          string
		known         map[string]string
		told, refused string
	}{
		"nothing":                  {ports: []v1.ServicePort{tcp}},
		"not this kind":            {ports: []v1.ServicePort{tcp, udp}, refused: `spec.ports: "53/UDP" is not served`},
		"this kind":                {ports: []v1.ServicePort{udp}, kind: "network"},
		"one of a list":            {ports: []v1.ServicePort{udp}, kind: "other, network"},
		"it is known better":       {ports: []v1.ServicePort{udp}, kind: "network", known: map[string]string{"x/kind": ""}, refused: `"53/UDP" is not served`},
		"one node port":            {ports: []v1.ServicePort{tcp, udp}, kind: "network", refused: `"53/UDP" is there twice`},
		"two node ports":           {ports: []v1.ServicePort{tcp, apart}, kind: "network", refused: `"53/UDP" has two node ports`},
		"the provider says it":     {ports: []v1.ServicePort{without}},
		"an address has no effect": {told: `spec.loadBalancerIP: "192.0.2.1" has no effect`},
	} {
		s := &v1.Service{Spec: v1.ServiceSpec{Ports: c.ports}}
		s.Annotations = map[string]string{"x/kind": c.kind}
		if c.told != "" {
			s.Spec.LoadBalancerIP = "192.0.2.1"
		}
		told, refused := table.Judge(s, c.known)
		for text, err := range map[string]error{c.told: told, c.refused: refused} {
			if text != "" {
				require.ErrorContains(t, err, text, name)
			}
		}
		assert.Equal(t, [2]bool{c.told != "", c.refused != ""}, [2]bool{told != nil, refused != nil}, "%s: %v; %v", name, told, refused)
	}
	require.ErrorContains(t, table.Check(), string(FieldLocal)+": no row says what becomes of it")
	partly := append(OnlyWith(map[string]string{"kind": "network"}, "no", FieldUDP), FieldRow{Field: FieldMixed, Becomes: Served})
	require.ErrorContains(t, partly.Check(), "TCP and UDP: is served where UDP is refused")
	require.ErrorContains(t, append(table, FieldRow{Field: FieldUDP, Becomes: Served}).Check(), "no row after the one that always counts")
	require.ErrorContains(t, append(table, FieldRow{Field: FieldSCTP, Becomes: Refused}).Check(), `SCTP: refused, with the words ""`)
}
