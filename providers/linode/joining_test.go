package linode

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
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// TestNodesThatJoinInAVPC: a Linode in a VPC takes several calls to read. Nodes that join at any speed share their listings all the
// same, in calls over the wire: who joins alone costs one single read or one listing, and many together a part of a call each.
func TestNodesThatJoinInAVPC(t *testing.T) {
	t.Parallel()
	const n, roundTrip, gather = 60, 20 * time.Millisecond, 400 * time.Millisecond
	for _, every := range []time.Duration{0, 10 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("one every %s, ID known %t", every, known), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sim, server := linodesim.New(linodesim.Options{Token: testToken, Seed: simkit.SeedOf(t), PublishedLimits: true})
					server.Configure(func(c *simkit.Settings) { c.Latency = simkit.Duration(roundTrip) })
					_, subnets := sim.AddVPC("cluster", [2]string{"default", "10.192.0.0/16"})
					network := simkit.NewNetwork()
					in := testInputs(network.Serve(t, server), map[string]string{"vpc-names": "cluster"}, nil)
					in.Dial = network.Dial
					c, err := newCloud(in)
					require.NoError(t, err)
					bench := conformance.NewBench(t)
					c.instances.nodes.SetLister(bench.Nodes())
					join := func(name string) error {
						id := sim.AddLinode(linodesim.Spec{Label: name, SubnetID: subnets[0]})
						node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
						if known {
							node.Spec.ProviderID = fmt.Sprint(providerIDPrefix, id)
						}
						node.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule}}
						bench.Register(node)
						m, err := c.instances.InstanceMetadata(priority.Urgent(t.Context()), node)
						if err == nil {
							node = node.DeepCopy()
							node.Spec.ProviderID, node.Spec.Taints = m.ProviderID, nil
							bench.Register(node)
						}
						return err
					}
					require.NoError(t, join("first"))
					server.ResetCalls()
					began := time.Now()
					var group sync.WaitGroup
					for i := range n {
						group.Go(func() {
							time.Sleep(time.Duration(i) * every)
							assert.NoError(t, join(fmt.Sprint("worker-", i)))
						})
					}
					group.Wait()
					calls, one := server.Calls(), c.loadBalancers.vpcs.callsPerLinode()
					assert.LessOrEqual(t, calls.Total, 6*one+int(time.Since(began)/gather), "no more than a call in %s", gather)
					assert.LessOrEqual(t, calls.Total, 6*one+n*(one+1), "no more than a read each")
					for _, call := range calls.Latest {
						assert.Less(t, call.Status, 400)
					}
				})
			})
		}
	}
}
