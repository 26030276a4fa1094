package vsphere

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// What vCenter and NSX alone can judge is told before the program runs: which setting, and what to do.
func TestSettingsThatTheCloudJudges(t *testing.T) {
	t.Run("vCenter", func(t *testing.T) {
		const config = `
vcenter: {one: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password, datacenters: [DC0, DC7]}}
labels: {zone: k8s-zone, region: k8s-region}
`
		inWorld(t, config, nil, func(w *testWorld) {
			w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.start()
			require.NoError(w, w.cloud.CheckAPI(w.Context()), "the cloud works")
			err := w.cloud.CheckSettings(w.Context())
			assert.Len(w, schema.Problems(err), 2, "%v", err)
			require.ErrorContains(w, err, `there is no datacenter "DC7"`)
			require.ErrorContains(w, err, `there is no category of tags named "k8s-zone"; create it, or correct labels.zone`)
		})
	})
	t.Run("a vCenter where all is right", func(t *testing.T) {
		inWorld(t, "", nil, func(w *testWorld) {
			w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.start()
			require.NoError(w, w.cloud.CheckSettings(w.Context()))
		})
	})
	t.Run("NSX", func(t *testing.T) {
		t.Parallel()
		inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
			require.NoError(w.T, w.checkSettings(w.T.Context()))
			assert.Empty(w.T, w.writes())
			lb := &w.config.LoadBalancer
			lb.Tier1GatewayPath, w.config.Route.RouterPath = "/infra/tier-1s/nowhere", "/infra/tier-1s/neither"
			lb.Class.IPPoolName, lb.Class.TCPAppProfileName, lb.Class.UDPAppProfilePath = "no pool", "no profile", "/infra/lb-app-profiles/none"
			lb.Classes = map[string]loadBalancerClass{"dmz": {IPPoolID: "no-dmz"}}
			w.restart()
			err := w.checkSettings(w.T.Context())
			for _, words := range []string{
				"key loadBalancer.tier1GatewayPath of the cloud config", "key route.routerPath of the cloud config: there is no /infra/tier-1s/neither in NSX",
				"there is no IP pool no pool", "there is no application profile no profile", "there is no /infra/lb-app-profiles/none in NSX",
				"key loadBalancerClass.dmz.ipPoolId of the cloud config",
			} {
				assert.Equal(w.T, 1, strings.Count(err.Error(), words), "%s: %v", words, err)
			}
		})
	})
}
