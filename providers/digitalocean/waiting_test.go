package digitalocean

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestManyAtOnce: all Services are served soon after their load balancers are active, with the account's limits in force,
// and one look serves all that wait.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		services             int
		activation, servedIn time.Duration
		maxLists             int
	}{
		{20, 4 * time.Second, 6 * time.Second, 8},
		{20, time.Minute, 64 * time.Second, 40},
	} {
		t.Run(fmt.Sprint(c.services, " in ", c.activation), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken, Activation: c.activation, PublishedLimits: true})
				network := simkit.NewNetwork()
				in := testInputs(network.Serve(t, server), map[string]string{"DO_API_RATE_LIMIT_QPS": ""})
				in.Dial = network.Dial
				cloud, err := newCloud(in)
				require.NoError(t, err)
				bench := conformance.NewBench(t)
				l := cloud.loadBalancers
				l.kube, l.Events = bench.Kube, bench.Recorder
				l.owners.cluster.SetClient(bench.Kube)
				l.owners.cluster.SetServices(bench.Services())
				sim.AddDroplet(digitaloceansim.Spec{Name: "node-1"})
				m, err := cloud.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
				require.NoError(t, err)
				nodes := []*v1.Node{
					{
						ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: v1.NodeSpec{ProviderID: m.ProviderID},
						Status: v1.NodeStatus{Addresses: m.NodeAddresses},
					},
				}
				services := make([]*v1.Service, c.services)
				for i := range services {
					services[i] = aged(service("", nil, port("http", 80, int32(30000+i))), fmt.Sprint("s", i), i)
				}
				bench.Apply(services...)
				began := time.Now()
				var group sync.WaitGroup
				for _, s := range services {
					group.Go(func() {
						_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", s, nodes)
						assert.NoError(t, err)
					})
				}
				group.Wait()
				assert.LessOrEqual(t, time.Since(began), c.servedIn)
				calls := server.Calls()
				assert.Zero(t, calls.ByOperation["GET /v2/load_balancers/{id}"], "nobody looks alone")
				assert.LessOrEqual(t, calls.ByOperation["GET /v2/load_balancers"], c.maxLists)
				assert.Empty(t, bench.Events(), "progress is no failure")
				assert.Empty(t, calls.Refused)
			})
		})
	}
}
