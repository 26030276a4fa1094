package aws

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// lag is how far reads may be behind writes, within what AWS's documentation calls eventual consistency.
const lag = 4 * time.Second

// TestLateReads: reads that show what was before our own writes, now this and now that, lead to the same as reads that show
// everything at once: nothing is made twice, nothing stays behind, nothing wrong is asked for.
func TestLateReads(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		service func() *v1.Service
		change  func(*v1.Service)
	}{
		"classic":      {func() *v1.Service { return service("classic", nil, servicePort("http", 80, 30080)) }, addPort},
		"network":      {func() *v1.Service { return nlb("network", nil, servicePort("http", 80, 30080)) }, addPort},
		"rich classic": {richClassic, changeClassic},
		"rich network": {richNetwork, changeNetwork},
	}
	for name, c := range cases {
		for _, restart := range []time.Duration{-1, 0, lag + time.Second} { // 0: it goes on running; -1: it has just begun, and ends
			t.Run(name+" "+restart.String(), func(t *testing.T) {
				t.Parallel()
				live := func(t *testing.T, lag time.Duration) (stages []string) {
					w := newVirtualWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{Lag: lag})
					w.sim.AddGroup(awssim.Group{ID: extraGroup, Name: "extra"})
					time.Sleep(time.Minute)
					add := func(name string) {
						id := w.sim.AddInstance(awssim.Spec{Name: name})
						n := withID(name, "aws:///us-east-1a/"+id)
						w.nodes = append(w.nodes, n)
						w.Register(n)
						time.Sleep(2 * lag)
					}
					next := func() {
						stages = append(stages, snapshot(w.sim))
						if restart > 0 {
							time.Sleep(restart)
							w.restart()
						}
					}
					add("n1")
					s := c.service()
					w.Apply(s)
					s = w.ensure(s)
					next()
					if restart >= 0 {
						s = w.change(s, c.change)
						s = w.ensure(s)
						next()
						add("n2")
						w.update(s)
						next()
					}
					require.NoError(t, w.remove(s))
					next()
					assert.Empty(t, w.server.Calls().Refused)
					return stages
				}
				var ideal, late []string
				synctest.Test(t, func(t *testing.T) { ideal = live(t, 0) })
				synctest.Test(t, func(t *testing.T) { late = live(t, lag) })
				assert.Equal(t, ideal, late)
				assert.Empty(t, late[len(late)-1])
			})
		}
	}
}

// TestLateRoutes: routes are made and deleted once, whatever the listing shows for a while.
func TestLateRoutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, "", awssim.Options{Lag: lag})
		time.Sleep(time.Minute)
		var nodes []*v1.Node
		for _, name := range []string{"n1", "n2"} {
			id := w.sim.AddInstance(awssim.Spec{Name: name})
			n := withID(name, "aws:///us-east-1a/"+id)
			w.Register(n)
			nodes = append(nodes, n)
		}
		time.Sleep(2 * lag)
		to := func(n *v1.Node, cidr string) *cloudprovider.Route {
			return &cloudprovider.Route{TargetNode: types.NodeName(n.Name), DestinationCIDR: cidr}
		}
		for range 2 { // the framework repeats what the listing lacks
			require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "x", to(nodes[0], "10.244.0.0/24")))
			require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "x", to(nodes[1], "10.244.1.0/24")))
		}
		assert.Len(t, w.sim.Routes(), 2)
		time.Sleep(2 * lag) // until a listing shows it, nobody asks for its deletion
		for range 2 {
			require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", to(nodes[0], "10.244.0.0/24")))
		}
		require.Len(t, w.sim.Routes(), 1)
		assert.Equal(t, "10.244.1.0/24", w.sim.Routes()[0].CIDR)
		assert.Empty(t, w.server.Calls().Refused)
	})
}
