package keepalived

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// TestInitializeNodes: off by default. If enabled, a Node gets its own ID, keeps the addresses that its kubelet reports, and is never
// deleted or shut down. One with another cloud's ID waits for that cloud's controller.
func TestInitializeNodes(t *testing.T) {
	t.Parallel()
	of := func(env map[string]string) *cloud {
		config, _, err := parseConfig(inputs(env))
		require.NoError(t, err)
		c, err := buildCloud(config, noAPI{}, inputs(env))
		require.NoError(t, err)
		return c
	}
	_, on := of(confEnv).InstancesV2()
	require.False(t, on)
	api, on := of(map[string]string{envAnnouncer: announcerNone, envInitialize: "true"}).InstancesV2()
	require.True(t, on)

	taint := []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}}
	hostname := v1.NodeAddress{Type: v1.NodeHostName, Address: "n1"}
	internal := func(a string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: a} }
	both := []v1.NodeAddress{hostname, internal("10.0.0.1")}
	for name, c := range map[string]struct {
		id, wantID, provided string
		reported, want       []v1.NodeAddress
	}{
		"reported": {"", "keepalived://n1", "10.0.0.9", both, both},
		"provided": {
			"", "keepalived://n1", "10.0.0.9,fd00::9", []v1.NodeAddress{hostname}, []v1.NodeAddress{internal("10.0.0.9"), internal("fd00::9"), hostname},
		},
		"nothing":            {"", "keepalived://n1", "", nil, []v1.NodeAddress{hostname}},
		"initialised before": {"keepalived://n1", "keepalived://n1", "", []v1.NodeAddress{internal("10.0.0.1")}, []v1.NodeAddress{internal("10.0.0.1")}},
	} {
		n := node("n1")
		n.Spec.ProviderID, n.Spec.Taints, n.Status.Addresses = c.id, taint, c.reported
		if c.provided != "" {
			n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: c.provided}
		}
		metadata, err := api.InstanceMetadata(t.Context(), n)
		require.NoError(t, err, name)
		assert.Equal(t, c.wantID, metadata.ProviderID, name)
		assert.Equal(t, c.want, metadata.NodeAddresses, name)
		assert.Empty(t, metadata.Zone+metadata.Region+metadata.InstanceType, name)
		exists, err := api.InstanceExists(t.Context(), n)
		require.NoError(t, err)
		assert.True(t, exists)
		shutdown, err := api.InstanceShutdown(t.Context(), n)
		require.NoError(t, err)
		assert.False(t, shutdown)
	}
	foreign := node("n2", "10.0.0.2")
	foreign.Spec.ProviderID, foreign.Spec.Taints = "k3s://n2", taint
	_, err := api.InstanceMetadata(t.Context(), foreign)
	require.ErrorContains(t, err, "its provider ID k3s://n2 is another cloud's")
	foreign.Spec.Taints = nil
	metadata, err := api.InstanceMetadata(t.Context(), foreign)
	require.NoError(t, err)
	assert.Equal(t, "k3s://n2", metadata.ProviderID)
	assert.Equal(t, foreign.Status.Addresses, metadata.NodeAddresses)
}
