package xcloud

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud/xcloudsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const testToken = "xcloud-token"

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, newFixture)
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) {
	t.Parallel()
	conformance.Soak(t, newFixture)
}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := xcloudsim.New(testToken, 0)
	network := simkit.NewNetwork()
	env := map[string]string{"XCLOUD_TOKEN": testToken, "XCLOUD_URL": network.Serve(t, server)}
	return &conformance.Fixture{
		Sim: server, Network: network,
		Provider: Description(),
		Inputs: func() registry.Inputs {
			lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
			return registry.Inputs{Version: "test", Sources: schema.Sources{LookupEnv: lookup}}
		},
		AddInstance:     func(name string) string { return providerIDPrefix + sim.AddInstance(name) },
		RemoveInstance:  func(id string) { sim.RemoveInstanceByID(instanceOf(t, id)) },
		PowerOff:        func(id string) { require.NoError(t, sim.SetStatus(instanceOf(t, id), "stopped")) },
		InstanceListing: "GET /v1/instances",
		RefuseAccount:   func() { sim.SetToken("another") },
		OtherAccount:    sim.RemoveInstances,
		// Names come from the UID of the Service, and the mark of the cluster from its namespace kube-system.
		OtherCluster: func() {},
		LeftBehind:   func(state, _ string) string { return state },
		MalformedIDs: []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "A"},
		Services: map[string]conformance.Case{
			"plain": {
				Service: service("plain", nil, servicePort("http", 80, 30080)),
				Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, servicePort("alt", 8080, 30081)) },
			},
			"rich": {
				Service: service("rich", map[string]string{annotationAlgorithm: "least-connections"}, servicePort("http", 80, 30080), servicePort("https", 443, 30443)),
				Change:  func(s *v1.Service) { s.Annotations[annotationAlgorithm] = "round-robin" },
			},
		},
		Snapshot: func() string {
			var text []byte
			for _, lb := range sim.LoadBalancers() {
				lb.ID, lb.Address = "", ""
				one, err := json.Marshal(lb)
				require.NoError(t, err)
				text = append(append(text, one...), '\n')
			}
			return string(text)
		},
	}
}

func instanceOf(t testing.TB, providerID string) string {
	t.Helper()
	id, err := parseProviderID(providerID)
	require.NoError(t, err)
	return id
}

func servicePort(name string, number, nodePort int32) v1.ServicePort {
	return v1.ServicePort{Name: name, Protocol: v1.ProtocolTCP, Port: number, NodePort: nodePort}
}

func service(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", Annotations: annotations},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: ports},
	}
}
