package xcloud

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud/xcloudsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryLoadBalancers says how the suite tries load balancers.
func tryLoadBalancers(t testing.TB, sim *xcloudsim.Sim, f *conformance.Fixture) {
	t.Helper()
	http := conformance.Port("http", 80, 30080)
	f.Services = map[string]conformance.Case{
		"plain": {
			Service: conformance.Service("plain", nil, http),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: conformance.Service("rich", map[string]string{annotationAlgorithm: "least-connections"}, http, conformance.Port("https", 443, 30443)),
			Change:  func(s *v1.Service) { s.Annotations[annotationAlgorithm] = "round-robin" },
		},
	}
	f.UDP = conformance.FeatureCase{Shows: `"udp"`}
	// Names come from the UID of the Service, and the mark of the cluster from its namespace kube-system.
	f.OtherCluster = func() {}
	f.LeftBehind = func(state, _ string) string { return state }
	f.Snapshot = func() string {
		var text []byte
		for _, lb := range sim.LoadBalancers() {
			lb.ID, lb.Address = "", ""
			one, err := json.Marshal(lb)
			require.NoError(t, err)
			text = append(append(text, one...), '\n')
		}
		return string(text)
	}
}
