package oci

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// TestBalancersOfManyBackendsAreListed: with 1,024 backends behind each, the most that they take, 1,000 load balancers would be more text
// than an answer may be.
func TestBalancersOfManyBackendsAreListed(t *testing.T) {
	tier.Full(t)
	inWorld(t, func(w *testWorld) {
		const balancers, sets, backends = 220, 2, 512
		doc := document{"compartmentId": ocisim.Compartment, "subnetId": ocisim.BalancerSubnet(), "nlbIpVersion": versionIPv4, "listeners": document{}}
		all := document{}
		for i := range sets {
			list := make([]any, backends)
			for n := range list {
				list[n] = document{
					"name": fmt.Sprintf("10.0.%d.%d:%d", n>>8, n&255, 30000+i), "ipAddress": fmt.Sprintf("10.0.%d.%d", n>>8, n&255), "port": 30000 + i,
					"weight": 1, "isBackup": false, "isDrain": false, "isOffline": false,
				}
			}
			all[fmt.Sprintf("TCP-%d", i)] = document{
				"policy": "FIVE_TUPLE", "backends": list, "isPreserveSource": true, "ipVersion": "IPV4",
				"healthChecker": document{"protocol": "TCP", "port": 30000, "retries": 3, "timeoutInMillis": 3000, "intervalInMillis": 10000},
			}
		}
		doc["backendSets"] = all
		for i := range balancers {
			w.sim.AddNetworkLoadBalancer(fmt.Sprintf("default/web-%d/uid", i), doc)
		}
		w.Server.ResetCalls()
		found, pages, err := newLoadBalancers(w.cloud.loadBalancers.common, nlbKind()).compartments.list(w.Context())
		require.NoError(w, err)
		assert.Len(w, found, balancers)
		assert.Equal(w, 3, pages)
	})
}

func TestLimitOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{balancerPath: "100", nlbPath: "100", "/instances": "1000", "/privateIps": "1000"} {
		assert.Equal(t, want, pageLimitOf(path), path)
	}
}
