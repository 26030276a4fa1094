package xcloud

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud/xcloudsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts
var transcripts embed.FS

// tryLoadBalancers configures the suite's tests of load balancers.
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
	f.StateWithoutInstance = func(state, _ string) string { return state } // addresses are read at most twice a minute
	f.Lag, f.RemoveLoadBalancers = sim.SetLag, sim.RemoveLoadBalancers
	// Names come from the UID of the Service, and the mark of the cluster from its namespace kube-system.
	f.OtherCluster = func() {}
	f.Transcripts, f.Secrets = transcripts, []string{testToken}
	f.Scenarios = conformance.Checklist{
		Rows: Annotations.Rows(), Service: conformance.Web, Items: map[string]conformance.Checked{
			annotationAlgorithm: {Legal: []conformance.Legal{{Value: "least-connections"}, {Value: "round-robin"}}},
		},
	}.Scenarios()
	f.PlannedWrites = []conformance.PlannedWrites{
		{Change: `create load balancer (\S+)`, Writes: []string{"POST /v1/load_balancers"}},
		{Change: `change load balancer (\S+)`, Writes: []string{"PUT /v1/load_balancers/{id}"}},
	}
	f.Serves = func() map[string][]string {
		ports := map[string][]string{}
		for _, lb := range sim.LoadBalancers() {
			for _, l := range lb.Listeners {
				for _, backend := range lb.Backends {
					port := fmt.Sprintf("%s/%d", l.Protocol, l.Port)
					ports[port] = append(ports[port], fmt.Sprintf("%s:%d", backend, l.Target))
				}
			}
		}
		return ports
	}
	f.Names = func() map[string]string { return nameAddresses(sim) }
	f.Snapshot = func() string {
		var text []byte
		for _, lb := range sim.LoadBalancers() {
			lb.ID, lb.Address = "", ""
			// The order has no meaning and changes with each answer.
			lb.Backends, lb.Tags = slices.Sorted(slices.Values(lb.Backends)), slices.Sorted(slices.Values(lb.Tags))
			lb.Listeners = slices.SortedFunc(slices.Values(lb.Listeners), func(a, b xcloudsim.Listener) int { return a.Port - b.Port })
			one, err := json.Marshal(lb)
			require.NoError(t, err)
			text = append(append(text, one...), '\n')
		}
		return string(text)
	}
}

// nameAddresses replaces addresses of load balancers by names that are stable between runs.
func nameAddresses(sim *xcloudsim.Sim) map[string]string {
	names := map[string]string{}
	for _, lb := range sim.LoadBalancers() {
		names[lb.Address] = "address/" + lb.Name
	}
	return names
}

// TestHiddenLoadBalancer: a load balancer missing from listings does not count as absent when its Service is deleted. Another process
// made it, or the answer to its creation was lost.
func TestHiddenLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simkit.Fault{
		"another process made it": {Kind: "empty-list", Operation: "GET /v1/load_balancers"}, // the name is taken
		"the answer was lost":     {Kind: simkit.FaultStatusAfter, Status: http.StatusGatewayTimeout, Operation: "POST /v1/load_balancers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			sim, server := xcloudsim.New(testToken, 0)
			a, err := newAPI(Config{URL: server.Start(t), Token: schema.NewSecret(testToken)}, registry.Inputs{})
			require.NoError(t, err)
			service := conformance.Service("web", nil, conformance.Port("http", 80, 30080))
			if fault.Kind == "empty-list" {
				_, err = newLoadBalancers(newReconciler(a, registry.AdoptEvidence)).EnsureLoadBalancer(ctx, "", service, nil)
				require.NoError(t, err)
			}
			l := newLoadBalancers(newReconciler(a, registry.AdoptEvidence))
			_, err = server.AddFault(fault)
			require.NoError(t, err)
			_, err = l.EnsureLoadBalancer(ctx, "", service, nil)
			require.Error(t, err)
			require.Len(t, sim.LoadBalancers(), 1)

			server.ClearFaults()
			_, err = server.AddFault(simkit.Fault{Kind: "empty-list"})
			require.NoError(t, err)
			var later *cloudproviderapi.RetryError
			require.ErrorAs(t, l.EnsureLoadBalancerDeleted(ctx, "", service), &later)
			server.ClearFaults()
			_, exists, err := l.GetLoadBalancer(ctx, "", service) // as the framework asks each time
			require.NoError(t, err)
			require.True(t, exists)
			_ = l.EnsureLoadBalancerDeleted(ctx, "", service) // it looks again for a while
			require.Empty(t, sim.LoadBalancers())
		})
	}
}
