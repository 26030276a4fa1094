package nsx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// What NSX alone can judge is told before the program runs: which setting, and what to do.
func TestSettingsThatTheCloudJudges(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		require.NoError(w.T, w.CheckSettings(w.T.Context()))
		assert.Empty(w.T, w.writes())
		lb := &w.config.LoadBalancer
		lb.Tier1GatewayPath, w.config.Route.RouterPath = "/infra/tier-1s/nowhere", "/infra/tier-1s/neither"
		lb.Class.IPPoolName, lb.Class.TCPAppProfileName, lb.Class.UDPAppProfilePath = "no pool", "no profile", "/infra/lb-app-profiles/none"
		lb.Classes = map[string]loadBalancerClass{"dmz": {IPPoolID: "no-dmz"}}
		w.restart()
		err := w.CheckSettings(w.T.Context())
		for _, words := range []string{
			"key loadBalancer.tier1GatewayPath of the cloud config", "key route.routerPath of the cloud config: there is no /infra/tier-1s/neither in NSX",
			"there is no IP pool no pool", "there is no application profile no profile", "there is no /infra/lb-app-profiles/none in NSX",
			"key loadBalancerClass.dmz.ipPoolId of the cloud config",
		} {
			assert.Equal(w.T, 1, strings.Count(err.Error(), words), "%s: %v", words, err)
		}
	})
}
