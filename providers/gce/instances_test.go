package gce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func nodeNamed(name, providerID string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.ProviderID = providerID
	return n
}

func newNode(name string) *v1.Node {
	n := nodeNamed(name, "")
	n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}}
	return n
}

// TestNodes: metadata of nodes in every zone and by every form of name, in the order of Google's own controller.
func TestNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		node := w.addNode(gcesim.Spec{Name: "n1", Zone: "us-central1-c", Type: "n2-highmem-8"})
		assert.Equal(t, "gce://my-project/us-central1-c/n1", node.Spec.ProviderID)

		m, err := w.instances.InstanceMetadata(t.Context(), nodeNamed("n1.c.my-project.internal", ""))
		require.NoError(t, err)
		assert.Equal(t, "gce://my-project/us-central1-c/n1", m.ProviderID, "a node may be named by its domain name")
		assert.Equal(t, []string{"n2-highmem-8", "us-central1-c", "us-central1"}, []string{m.InstanceType, m.Zone, m.Region})
		assert.Empty(t, m.AdditionalLabels)

		m, err = w.instances.InstanceMetadata(t.Context(), nodeNamed("n1", "gce://my-project/us-central1-c/n1.c.my-project.internal"))
		require.NoError(t, err)
		assert.Equal(t, "us-central1-c", m.Zone)

		w.sim.AddInstance(gcesim.Spec{Name: "far", Zone: "europe-west1-b"})
		time.Sleep(time.Hour)
		_, err = w.instances.InstanceMetadata(t.Context(), nodeNamed("far", ""))
		require.Error(t, err, "an instance of another region is another cluster's, as far as its name tells")
		m, err = w.instances.InstanceMetadata(t.Context(), nodeNamed("far", "gce://my-project/europe-west1-b/far"))
		require.NoError(t, err)
		assert.Equal(t, "europe-west1", m.Region)
	})
}

// TestAddresses: several interfaces, both families, and no empty address.
func TestAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		spec := gcesim.Spec{Name: "n1", Interfaces: []gcesim.Interface{
			{IP: "10.128.0.9", NAT: []string{"", "34.1.1.1"}, ExternalIPv6: "2600:1900::1"},
			{IP: "10.200.0.9", IPv6: "fd20::9"},
		}}
		shown := func(file string) (list []string) {
			w := newTestWorld(t, file)
			for _, a := range w.addNode(spec).Status.Addresses {
				list = append(list, fmt.Sprint(a.Type, " ", a.Address))
			}
			return list
		}
		assert.Equal(t, []string{
			"InternalIP 10.128.0.9", "ExternalIP 34.1.1.1", "InternalIP 10.200.0.9", "InternalIP 2600:1900::1", "InternalIP fd20::9",
		}, shown(usual))
		assert.Equal(t, []string{
			"InternalIP 2600:1900::1", "InternalIP fd20::9", "InternalIP 10.128.0.9", "ExternalIP 34.1.1.1", "InternalIP 10.200.0.9",
		}, shown(usual+"stack-type = IPV6\n"))

		w := newTestWorld(t, usual)
		w.sim.AddInstance(gcesim.Spec{Name: "bare", Bare: true})
		_, err := w.instances.InstanceMetadata(t.Context(), nodeNamed("bare", ""))
		require.ErrorContains(t, err, "no network interface with an address")
	})
}

// TestStates: an instance exists in any status; stopped ones are shut down.
func TestStates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		node := w.addNode(gcesim.Spec{Name: "n1"})
		for status, down := range map[string]bool{
			"PROVISIONING": false, "STAGING": false, "RUNNING": false, "REPAIRING": false, "STOPPING": false, "SUSPENDING": false, "PENDING_STOP": false,
			"DEPROVISIONING": false, "TERMINATED": true, "STOPPED": true, "SUSPENDED": true,
		} {
			require.NoError(t, w.sim.SetStatus(node.Spec.ProviderID, status))
			time.Sleep(time.Minute)
			exists, err := w.instances.InstanceExists(t.Context(), node)
			require.NoError(t, err)
			assert.True(t, exists, status)
			got, err := w.instances.InstanceShutdown(t.Context(), node)
			require.NoError(t, err)
			assert.Equal(t, down, got, status)
		}
	})
}

// TestPreempted: a managed group recreates a preempted instance under its name: the same node with other addresses.
func TestPreempted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		node := w.addNode(gcesim.Spec{Name: "spot-1", Spot: true})
		w.sim.RemoveInstanceByID(node.Spec.ProviderID)
		w.sim.AddInstance(gcesim.Spec{Name: "spot-1", Spot: true})
		time.Sleep(10 * time.Minute)
		exists, err := w.instances.InstanceExists(t.Context(), node)
		require.NoError(t, err)
		assert.True(t, exists)
		m, err := w.instances.InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.NotEqual(t, node.Status.Addresses, m.NodeAddresses)
		assert.Equal(t, node.Spec.ProviderID, m.ProviderID)
	})
}

// TestDoubtIsNoAbsence: of the many reasons why an instance is not shown, only one proves that it is gone.
func TestDoubtIsNoAbsence(t *testing.T) {
	for name, c := range map[string]struct {
		id      string
		prepare func(w *world)
		gone    bool
	}{
		"deleted":               {"gce://my-project/us-central1-b/n2", nil, true},
		"another project":       {"gce://other-project/us-central1-b/n1", nil, false},
		"a zone that is not":    {"gce://my-project/us-central9-b/n1", nil, false},
		"a zone that is down":   {"gce://my-project/us-central1-b/n1", func(w *world) { w.sim.SetUnreachable("us-central1-b", true) }, false},
		"missing right":         {"gce://my-project/us-central1-b/n2", func(w *world) { w.sim.Deny("GET instances", true) }, false},
		"the limit of a minute": {"gce://my-project/us-central1-b/n2", func(w *world) { w.sim.Throttle("GET instances", 1000) }, false},
		"another credential":    {"gce://my-project/us-central1-b/n2", func(w *world) { w.sim.SetToken("another") }, false},
		"a failing API": {"gce://my-project/us-central1-b/n2", func(w *world) {
			_, _ = w.server.AddFault(simkit.Fault{Kind: simkit.FaultHTML})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1", Zone: "us-central1-b"})
				if c.prepare != nil {
					c.prepare(w)
				}
				time.Sleep(time.Hour)
				exists, err := w.instances.InstanceExists(t.Context(), nodeNamed("n", c.id))
				if c.gone {
					require.NoError(t, err)
					assert.False(t, exists)
					return
				}
				require.Error(t, err)
			})
		})
	}
}

// TestRateLimitIsNoMissingRight: the API uses 403 for both; the limit ends with the minute.
func TestRateLimitIsNoMissingRight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.sim.AddInstance(gcesim.Spec{Name: "n1"})
		w.sim.Throttle("GET instances", 1)
		_, err := w.api.instance(t.Context(), instanceID{"my-project", "us-central1-a", "n1"})
		if err != nil {
			require.ErrorIs(t, err, cloudapi.ErrRateLimited)
			time.Sleep(time.Minute)
			_, err = w.api.instance(t.Context(), instanceID{"my-project", "us-central1-a", "n1"})
		}
		require.NoError(t, err)
		w.sim.Deny("GET instances", true)
		_, err = w.api.instance(t.Context(), instanceID{"my-project", "us-central1-a", "n1"})
		require.ErrorIs(t, err, cloudapi.ErrUnauthorized)
		require.ErrorContains(t, err, "permission")
		assert.True(t, isForbidden(err))
	})
}

// TestPartialListingIsNone: instances of an unreachable zone are unknown, not missing, and the error names the zone.
func TestPartialListingIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.sim.AddInstance(gcesim.Spec{Name: "n1"})
		w.sim.SetUnreachable("us-central1-b", true)
		_, _, err := w.api.instances(t.Context())
		require.ErrorContains(t, err, "zones/us-central1-b")
		require.ErrorIs(t, err, cloudapi.ErrTransient)
	})
}

// TestCostOfNodes: 1,000 nodes in 3 zones are initialised by at most 8 calls; a check of all costs 6.
func TestCostOfNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.server.Seed(1000)
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
		var nodes []*v1.Node
		for i := range 1000 {
			n := newNode(fmt.Sprintf("node-%d", i+1))
			w.Register(n)
			nodes = append(nodes, n)
		}
		w.server.ResetCalls()
		for _, n := range nodes {
			m, err := w.instances.InstanceMetadata(t.Context(), n)
			require.NoError(t, err)
			n.Spec.ProviderID, n.Spec.Taints = m.ProviderID, nil
		}
		calls := w.server.Calls()
		assert.LessOrEqual(t, calls.Total, 8, "%v", calls.ByOperation)
		assert.Equal(t, 2, calls.ByOperation["GET aggregated/instances"], "pages")

		time.Sleep(5 * time.Minute)
		w.server.ResetCalls()
		for _, n := range nodes {
			_, err := w.instances.InstanceMetadata(t.Context(), n)
			require.NoError(t, err)
		}
		calls = w.server.Calls()
		assert.LessOrEqual(t, calls.Total, 6, "%v", calls.ByOperation)
	})
}
