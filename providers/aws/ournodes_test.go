package aws

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// oneClient gives everybody the same client.
type oneClient struct {
	cloudprovider.ControllerClientBuilder

	kube kubernetes.Interface
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c oneClient) ClientOrDie(string) kubernetes.Interface { return c.kube }

// guarded opens the provider as the program does, guard included, with a view of the API server's Nodes.
func guarded(t *testing.T, w *world, selector string, flags map[string]string) cloudprovider.Interface {
	t.Helper()
	var r registry.Registry
	require.NoError(t, r.Add(Description()))
	policy := guard.DefaultPolicy()
	policy.NodeSelector = selector
	in := testInputs(w.sim, w.url, w.sim.CloudConfig(w.url), nil)
	in.Dial = w.dial
	in.Guard, in.Flags = &policy, map[string]string{"tags": "key1=value1", "resources": "instance"}
	maps.Copy(in.Flags, flags)
	c, err := r.Open(Name, in)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c.Initialize(oneClient{kube: w.Kube}, ctx.Done())
	factory := informers.NewSharedInformerFactory(w.Kube, 0)
	c.(cloudprovider.InformerUser).SetInformers(factory)
	synced := factory.Core().V1().Nodes().Informer().HasSynced
	started, err := c.(registry.ControllerRunner).StartController(ctx, taggingController)
	require.NoError(t, err)
	require.True(t, started)
	factory.Start(ctx.Done())
	require.True(t, cache.WaitForCacheSync(ctx.Done(), synced))
	return c
}

// TestLoopsSeeOurNodesAlone: neither routes nor tags of instances look at Nodes outside --node-selector, or at those of other
// clouds.
func TestLoopsSeeOurNodesAlone(t *testing.T) {
	t.Parallel()
	for selector, all := range map[string]bool{"pool=ours": false, "": true} {
		t.Run("selector "+selector, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newVirtualWorld(t, "", awssim.Options{})
				add := func(name, providerID, pool, cidr string) {
					_, err := w.Kube.CoreV1().Nodes().Create(t.Context(), &v1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}},
						Spec:       v1.NodeSpec{ProviderID: providerID, PodCIDR: cidr, PodCIDRs: []string{cidr}},
					}, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				ours, others := w.sim.AddInstance(awssim.Spec{Name: "ours"}), w.sim.AddInstance(awssim.Spec{Name: "named-otherwise"})
				add("ours", "aws:///us-east-1a/"+ours, "ours", "10.244.0.0/24")
				add("others", "aws:///us-east-1a/"+others, "others", "10.244.1.0/24")
				add("elsewhere", "digitalocean://1", "ours", "10.244.2.0/24")
				w.sim.ChangeTable("rtb-0000000000000000b", func(table *awssim.RouteTable) {
					table.Routes = append(table.Routes, &awssim.Route{CIDR: "10.244.0.0/24", Instance: ours}, &awssim.Route{CIDR: "10.244.1.0/24", Instance: others})
				})
				c := guarded(t, w, selector, nil)
				tagged := func(id string) bool {
					for _, i := range w.sim.List() {
						if i.ID == id {
							return i.Tags["key1"] == "value1"
						}
					}
					return false
				}
				require.Eventually(t, func() bool { return tagged(ours) && (!all || tagged(others)) }, 10*time.Second, 5*time.Millisecond)
				routes, ok := c.Routes()
				require.True(t, ok)
				list, err := routes.ListRoutes(t.Context(), "kubernetes")
				require.NoError(t, err)
				if all {
					assert.Len(t, list, 2, "without a selector both are ours")
					return
				}
				assert.False(t, tagged(others))
				require.Len(t, list, 1)
				assert.Equal(t, "ours", string(list[0].TargetNode))
				w.server.ResetCalls()
				for name, cidr := range map[string]string{"others": "10.244.1.0/24", "elsewhere": "10.244.2.0/24"} {
					route := &cloudprovider.Route{TargetNode: types.NodeName(name), DestinationCIDR: cidr}
					require.NoError(t, routes.CreateRoute(t.Context(), "kubernetes", "x", route))
				}
				assert.Zero(t, w.server.Calls().Total, "%v", w.server.Calls().ByOperation)
				assert.Len(t, w.sim.Routes(), 2)
			})
		})
	}
}
