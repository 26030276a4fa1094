package nsx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// TestNamesBeyondTheLimits: a Service whose objects NSX would refuse for their names is refused before a write.
func TestNamesBeyondTheLimits(t *testing.T) {
	t.Parallel()
	s := service("web", nil, port("http", 80, 30080))
	room := 255 - len(loadBalancerName("", s)) - len(":65535")
	require.NoError(t, checkLengths(strings.Repeat("c", room), s))
	require.ErrorContains(t, checkLengths(strings.Repeat("c", room+1), s),
		"would have 256 characters, and the cloud takes at most 255; shorten --cluster-name or the Service's name")
}

// TestSizeOfTheService: NSX takes what is more than the size of a load balancer service has room for, and does not put it in force. The
// user hears of it, and it is served once there is room.
func TestSizeOfTheService(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ servers, members int }{
		"1001 virtual servers":  {nsxlimits.Servers.Max, 0},
		"7501 members of pools": {1, nsxlimits.Members.Max},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{Activation: time.Second}, nil, func(w *testWorld) {
				balancer, pool := pathServices+"/large", pathPools+"/large"
				w.sim.Add(balancer, fields{"connectivity_path": nsxsim.Tier1, "size": "LARGE", "enabled": true})
				members := make([]any, c.members)
				for n := range members {
					members[n] = fields{"ip_address": fmt.Sprintf("10.1.%d.%d", n/250, n%250)}
				}
				w.sim.Add(pool, fields{"members": members})
				for n := range c.servers {
					w.sim.Add(fmt.Sprintf("%s/%d", pathServers, n), fields{
						"ip_address": fmt.Sprintf("192.0.%d.%d", n/250, n%250), "ports": []any{"80"}, "application_profile_path": nsxsim.TCPProfile,
						"lb_service_path": balancer, "pool_path": pool,
					})
				}
				time.Sleep(time.Second)
				w.addNode("n1", "10.0.0.1")
				w.Apply(webService())
				_, err := w.try(webService())
				require.ErrorContains(t, err, "a LARGE load balancer service would have "+what)
				assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventNotRealized)
				w.sim.Remove(pathServers + "/0")
				w.ensure(webService())
			})
		})
	}
}
