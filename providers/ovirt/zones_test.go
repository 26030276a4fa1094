package ovirt

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

func (w *testWorld) requireZone(zone, region string) {
	w.Helper()
	m := w.RequireMetadata(conformance.NewNode("worker", ""))
	require.Equal(w, []string{zone, region}, []string{m.Zone, m.Region})
}

func (w *testWorld) places(cluster, center string) {
	one := ovirtsim.Cluster{ID: ovirtsim.ClusterID, Name: cluster, DataCenter: ovirtsim.DataCenterID}
	w.sim.SetPlaces([]ovirtsim.Cluster{one}, map[string]string{ovirtsim.DataCenterID: center})
}

func TestZones(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.requireZone("Default", "Berlin")
		w.Env["OVIRT_ZONES"] = "ids"
		w.start()
		w.requireZone(ovirtsim.ClusterID, ovirtsim.DataCenterID)
		w.Env["OVIRT_ZONES"] = "off"
		w.start()
		w.requireZone("", "")
	})
}

// TestNamesBecomeLabels: names may be anything, values of labels may not.
func TestNamesBecomeLabels(t *testing.T) {
	for name, want := range map[string]string{
		"Default": "Default", "my cluster": "my-cluster", " a  b ": "a-b", "Zürich Süd": "Z-rich-S-d", "_x_": "x", "東京": "the-id", "": "the-id",
		strings.Repeat("a b", 40): "", strings.Repeat("x", 80): strings.Repeat("x", 63),
	} {
		got := label(name, "the-id")
		assert.Empty(t, validation.IsValidLabelValue(got), name)
		if want != "" {
			assert.Equal(t, want, got)
		}
	}
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.places("rack 7, left", strings.Repeat("long ", 16))
		w.sim.SetType("Very Large")
		m := w.RequireMetadata(conformance.NewNode("worker", ""))
		for _, value := range []string{m.Zone, m.Region, m.InstanceType} {
			assert.Empty(w, validation.IsValidLabelValue(value), value)
		}
		assert.Equal(w, []string{"rack-7-left", "Very-Large"}, []string{m.Zone, m.InstanceType})
	})
}

// TestUnreadableClusters: a user with rights on machines alone gets nodes without zones; a failure is no lack of rights.
func TestUnreadableClusters(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "/clusters"})
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.Error(w, err, "a Node without a zone would stay without")
		w.Server.ClearFaults()
		w.Fail(simkit.Fault{Kind: simkit.FaultHTML, Status: 403, Operation: "/clusters"})
		w.start()
		_, err = w.Metadata(conformance.NewNode("worker", ""))
		require.Error(w, err, "which a proxy said")
		w.Server.ClearFaults()
		for _, kind := range []string{"clusters", "datacenters", "instancetypes"} {
			w.sim.Hide(kind)
		}
		w.start()
		m := w.RequireMetadata(conformance.NewNode("worker", ""))
		assert.Equal(w, []string{"", "", ""}, []string{m.Zone, m.Region, m.InstanceType})
		assert.NotEmpty(w, m.NodeAddresses)
	})
}

// TestInvisibleDataCenter: a filtered user may see the one and not the other.
func TestInvisibleDataCenter(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.sim.SetPlaces([]ovirtsim.Cluster{{ID: ovirtsim.ClusterID, Name: "Default", DataCenter: ovirtsim.DataCenterID}}, nil)
		w.requireZone("Default", "")
		w.sim.SetPlaces(nil, nil)
		w.start()
		w.requireZone("", "")
	})
}

// TestOldZoneStays: an earlier controller wrote the host's ID there.
func TestOldZoneStays(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		n := conformance.NewNode("worker", "")
		n.Labels = map[string]string{v1.LabelTopologyZone: "b0000000-0000-0000-0000-000000000009"}
		m := w.RequireMetadata(n)
		assert.Equal(w, []string{"b0000000-0000-0000-0000-000000000009", "Berlin"}, []string{m.Zone, m.Region})
	})
}
