package vsphere

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// What vCenter alone can judge is told before the program runs: which setting, and what to do.
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
}
