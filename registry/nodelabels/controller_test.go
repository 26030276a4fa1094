package nodelabels

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

const (
	typeLabel = v1.LabelInstanceTypeStable
	betaType  = v1.LabelInstanceType
	zoneLabel = v1.LabelTopologyZone
	rack      = "example.com/rack"
	other     = "digitalocean-cloud-controller-manager"
)

// world is an API server with the controller.
type world struct {
	*Controller
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
	cloud  cloudprovider.InstanceMetadata
	tags   map[string]string
}

// newWorld starts the controller; it ends with the test.
func newWorld(t *testing.T, topology bool, rules ...string) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), events: record.NewFakeRecorder(100)}
	w.cloud = cloudprovider.InstanceMetadata{
		ProviderID: "toy://1", InstanceType: "small", Zone: "a", Region: "r", AdditionalLabels: map[string]string{rack: "7"},
	}
	isOurs := func(n *v1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, "toy://") }
	parsed, err := ParseRules(rules, "", nil)
	require.NoError(t, err)
	w.Controller = New(w.client, w.events, isOurs, topology, parsed)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// labels are those of a Node as a cloud controller writes them.
func labels() map[string]string {
	return map[string]string{
		betaType: "small", typeLabel: "small", v1.LabelFailureDomainBetaZone: "a", zoneLabel: "a",
		v1.LabelFailureDomainBetaRegion: "r", v1.LabelTopologyRegion: "r", rack: "7", "team": "shop",
	}
}

// addNode has a kubelet register a Node, and a manager write labels on it.
func (w *world) addNode(name, manager string, all map[string]string) *v1.Node {
	w.t.Helper()
	api := w.client.CoreV1().Nodes()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Labels: map[string]string{v1.LabelHostname: name}},
		Spec:       v1.NodeSpec{ProviderID: "toy://" + name},
	}
	_, err := api.Create(w.t.Context(), node, metav1.CreateOptions{FieldManager: kubelet})
	require.NoError(w.t, err)
	maps.Copy(node.Labels, all)
	_, err = api.Update(w.t.Context(), node, metav1.UpdateOptions{FieldManager: manager})
	require.NoError(w.t, err)
	node = w.node(name)
	w.client.ClearActions()
	return node
}

func (w *world) node(name string) *v1.Node {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return node
}

// setLabel writes one label.
func (w *world) setLabel(node, manager, key, value string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value), metav1.PatchOptions{FieldManager: manager})
	require.NoError(w.t, err)
}

// observe has the cloud tell of a Node as it is now, and returns what was written: patches, and events.
func (w *world) observe(name string) (patches int, events []string) {
	w.t.Helper()
	node := w.node(name)
	w.client.ClearActions()
	require.NoError(w.t, w.Observe(w.t.Context(), node, &w.cloud, w.tags))
	synctest.Wait()
	for _, a := range w.client.Actions() {
		switch a.GetVerb() {
		case "get":
		case "patch":
			patches++
		default:
			assert.Fail(w.t, "an unexpected write", "%v", a)
		}
	}
	for len(w.events.Events) > 0 {
		events = append(events, <-w.events.Events)
	}
	return patches, events
}

// TestLaterChangesAreWritten: a type and an additional label that change in the cloud are written by one patch and told by one event,
// whoever wrote them first, with the older name of the label.
func TestLaterChangesAreWritten(t *testing.T) {
	t.Parallel()
	for _, manager := range []string{Initializer, other, "kubectl"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, false)
			w.addNode("web", manager, labels())
			patches, events := w.observe("web")
			assert.Zero(t, patches)
			assert.Empty(t, events)
			w.cloud.InstanceType, w.cloud.AdditionalLabels = "large", map[string]string{rack: "8", "node.kubernetes.io/x": "y"}
			patches, events = w.observe("web")
			assert.Equal(t, 1, patches)
			require.Len(t, events, 1)
			assert.Equal(t, "Normal NodeLabelsUpdated set to what the cloud says: example.com/rack: 7 → 8, "+
				"node.kubernetes.io/instance-type: small → large", events[0])
			want := labels()
			want[betaType], want[typeLabel], want[rack], want[v1.LabelHostname] = "large", "large", "8", "web"
			assert.Equal(t, want, w.node("web").Labels)
			patches, events = w.observe("web")
			assert.Zero(t, patches)
			assert.Empty(t, events)
		})
	}
}

// TestTheRecordOutlivesTheProcess: what this program wrote it corrects also where the change came while it did not run, and one correction
// keeps the labels of earlier ones.
func TestTheRecordOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", Initializer, labels())
		w.cloud.InstanceType = "large"
		patches, _ := w.observe("web")
		assert.Equal(t, 1, patches, "initialised by this program")

		w.addNode("db", other, labels())
		w.cloud.InstanceType = "small"
		w.observe("db")
		w.cloud.InstanceType, w.cloud.AdditionalLabels = "large", map[string]string{rack: "8"}
		w.observe("db")
		w.instances = map[types.UID]*instance{} // a restart
		w.cloud.InstanceType = "huge"
		patches, _ = w.observe("db")
		assert.Equal(t, 1, patches)
		assert.Equal(t, "huge", w.node("db").Labels[typeLabel])
		assert.Equal(t, "8", w.node("db").Labels[rack], "what the manager owns stays in its apply")
	})
}

// TestTakeOverWritesNothing: what another controller left behind stays, with one look at the Node and without an event.
func TestTakeOverWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		old := labels()
		old[betaType], old[typeLabel], old[zoneLabel], old[v1.LabelFailureDomainBetaZone], old[rack] = "tiny", "tiny", "z", "z", "1"
		w.addNode("web", other, old)
		for range 3 {
			patches, events := w.observe("web")
			assert.Zero(t, patches, "a takeover writes nothing")
			assert.Empty(t, events)
		}
		assert.Empty(t, w.client.Actions(), "the difference is known")
		w.cloud.InstanceType = "large"
		patches, events := w.observe("web")
		assert.Equal(t, 1, patches)
		assert.Len(t, events, 1)
		assert.Equal(t, "large", w.node("web").Labels[typeLabel])
		assert.Equal(t, "z", w.node("web").Labels[zoneLabel], "only what changed is written")
		assert.Equal(t, "1", w.node("web").Labels[rack])
	})
}

// TestTopologyIsAnEvent: zone and region stay, and one event says so, unless the flag is set.
func TestTopologyIsAnEvent(t *testing.T) {
	t.Parallel()
	for _, topology := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, topology)
			w.addNode("web", Initializer, labels())
			w.cloud.Zone, w.cloud.Region = "b", "s"
			patches, events := w.observe("web")
			require.Len(t, events, 1)
			if topology {
				assert.Equal(t, 1, patches)
				assert.Contains(t, events[0], "NodeLabelsUpdated")
				assert.Equal(t, "b", w.node("web").Labels[v1.LabelFailureDomainBetaZone])
				assert.Equal(t, "b", w.node("web").Labels[zoneLabel])
				return
			}
			assert.Zero(t, patches)
			assert.Contains(t, events[0], "Warning NodeTopologyChanged")
			assert.Contains(t, events[0], "topology.kubernetes.io/region: r → s, topology.kubernetes.io/zone: a → b")
			_, events = w.observe("web")
			assert.Empty(t, events, "one event for one change")
			w.cloud.InstanceType = "large"
			_, events = w.observe("web")
			require.Len(t, events, 1, "the zone is not reported again")
			assert.Contains(t, events[0], "NodeLabelsUpdated")
		})
	}
}

// TestLabelsThatOthersKeep: what a kubelet restores at each start, what the cloud does not tell, and a beta label that is gone.
func TestLabelsThatOthersKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", kubelet, labels())
		w.addNode("k3s", "k3s", labels())
		w.setLabel("k3s", "k3s", v1.LabelHostname, "k")
		none := w.cloud
		for _, name := range []string{"web", "k3s"} {
			w.cloud = none
			w.observe(name)
			w.cloud.InstanceType = "large"
			patches, _ := w.observe(name)
			assert.Zero(t, patches, name)
		}
		without := labels()
		delete(without, betaType)
		w.addNode("new", Initializer, without)
		w.cloud = cloudprovider.InstanceMetadata{}
		patches, _ := w.observe("new")
		assert.Zero(t, patches, "nothing is removed when in doubt")
		w.cloud.InstanceType = "large"
		patches, _ = w.observe("new")
		assert.Equal(t, 1, patches)
		assert.Equal(t, "large", w.node("new").Labels[typeLabel])
		assert.NotContains(t, w.node("new").Labels, betaType)
	})
}

// TestAdditionalLabelsOfTheFramework: where the framework corrects additional labels itself, the type is written alone, and no tag gives a
// label that the cloud gives.
func TestAdditionalLabelsOfTheFramework(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, "rack="+rack)
		w.LeaveAdditional()
		w.addNode("web", Initializer, labels())
		w.cloud.InstanceType, w.cloud.AdditionalLabels = "large", map[string]string{rack: "8"}
		w.tags = map[string]string{"rack": "9"}
		patches, _ := w.observe("web")
		assert.Equal(t, 1, patches)
		assert.Equal(t, "large", w.node("web").Labels[typeLabel])
		assert.Equal(t, "7", w.node("web").Labels[rack])
	})
}

// TestNodesThatAreNotWritten: one that is not ours any more, one that was made again under the same name, an uninitialized one, one that is
// being deleted.
func TestNodesThatAreNotWritten(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Node){
		"another cloud's": func(n *v1.Node) { n.Spec.ProviderID = "elsewhere://1" },
		"uninitialized":   func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}} },
		"another":         func(n *v1.Node) { n.UID = "another" },
		"leaving":         func(n *v1.Node) { n.DeletionTimestamp, n.Finalizers = new(metav1.Now()), []string{"x/y"} },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, false)
			before := w.addNode("web", Initializer, labels())
			after := before.DeepCopy()
			change(after)
			require.NoError(t, w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), after, ""))
			w.cloud.InstanceType = "large"
			shown := before
			if name == "uninitialized" {
				shown = after
			}
			require.NoError(t, w.Observe(t.Context(), shown, &w.cloud, nil))
			synctest.Wait()
			assert.Equal(t, "small", w.node("web").Labels[typeLabel], name)
		})
	}
}

// TestManyNodes: a thousand Nodes that nothing changed of cost neither a read nor a write, and one that changed costs one of each.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, teamRule)
		w.tags = map[string]string{"team": "shop"}
		right := labels()
		right[team] = "shop"
		var all []*v1.Node
		for n := range 1000 {
			name := strconv.Itoa(n)
			all = append(all, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: right}})
		}
		w.addNode("web", Initializer, right)
		for range 3 {
			for _, n := range all {
				require.NoError(t, w.Observe(t.Context(), n, &w.cloud, w.tags))
			}
			time.Sleep(5 * time.Minute)
		}
		assert.Empty(t, w.client.Actions())
		w.cloud.InstanceType = "large"
		w.observe("web")
		assert.Len(t, w.client.Actions(), 2)
		time.Sleep(3 * forgetAfter)
		w.observe("web")
		assert.Len(t, w.instances, 1, "Nodes of which nothing is heard are forgotten")
	})
}

// TestLabelSetByHandStays: after this program wrote it, after the cloud changed to a value that the Node had, and where somebody sets the
// beta label, which the framework copies.
func TestLabelSetByHandStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", Initializer, labels())
		w.observe("web")
		w.setLabel("web", "kubectl", rack, "mine")
		patches, events := w.observe("web")
		assert.Zero(t, patches)
		assert.Empty(t, events)

		w.setLabel("web", "kubectl", rack, "8")
		w.cloud.AdditionalLabels = map[string]string{rack: "8"}
		w.observe("web")
		w.setLabel("web", "kubectl", rack, "mine")
		patches, _ = w.observe("web")
		assert.Zero(t, patches, "the update of the cloud is done with")

		w.setLabel("web", "kubectl", betaType, "custom")
		w.setLabel("web", Initializer, typeLabel, "custom")
		patches, _ = w.observe("web")
		assert.Zero(t, patches, "the framework only copied the label")
		assert.Equal(t, "custom", w.node("web").Labels[typeLabel])
	})
}

// TestChangeAcrossHalfAnswer: an answer without a fact changes nothing, and the next one is compared with the last that had it.
func TestChangeAcrossHalfAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", other, labels())
		w.cloud.InstanceType = "small"
		w.observe("web")
		w.cloud.InstanceType, w.cloud.AdditionalLabels = "", nil
		patches, _ := w.observe("web")
		assert.Zero(t, patches)
		w.cloud.InstanceType = "large"
		patches, _ = w.observe("web")
		assert.Equal(t, 1, patches, "the change is seen")
		assert.Equal(t, "large", w.node("web").Labels[typeLabel])
		assert.Equal(t, "7", w.node("web").Labels[rack])
	})
}

// TestForgedRecordRemovesNothing: a kubelet that writes as this program's manager would have the next apply remove the Node's taints.
func TestForgedRecordRemovesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", Initializer, labels())
		taint := apply.Node("web").WithSpec(apply.NodeSpec().WithTaints(
			apply.Taint().WithKey("quarantine").WithEffect(v1.TaintEffectNoExecute)))
		_, err := w.client.CoreV1().Nodes().Apply(t.Context(), taint, metav1.ApplyOptions{FieldManager: Manager})
		require.NoError(t, err)
		w.cloud.InstanceType = "large"
		patches, events := w.observe("web")
		assert.Zero(t, patches)
		require.Len(t, events, 1, "the Node has an event")
		assert.Contains(t, events[0], "Warning NodeRecordForged labels are not written: the Node's managed fields name anyccm-node-labels for more")
		_, events = w.observe("web")
		assert.Empty(t, events, "one event for one record")
		assert.Len(t, w.node("web").Spec.Taints, 1, "the taint stays")
	})
}

// TestWriteNeedsTheVersionThatWasRead: a label that somebody sets between the read and the write is read again.
func TestWriteNeedsTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		node := w.addNode("web", Initializer, labels())
		node.ResourceVersion = "17"
		require.NoError(t, w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""))
		w.cloud.InstanceType = "large"
		w.observe("web")
		require.Len(t, w.client.Actions(), 2)
		patch, ok := w.client.Actions()[1].(ktesting.PatchAction)
		require.True(t, ok)
		assert.Contains(t, string(patch.GetPatch()), `"resourceVersion":"17"`)
	})
}

// TestFailedWriteIsRepeated: until it succeeds, and then told once.
func TestFailedWriteIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.addNode("web", Initializer, labels())
		failures := 2
		w.client.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			if failures--; failures >= 0 {
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "web", nil)
			}
			return false, nil, nil
		})
		w.cloud.InstanceType = "large"
		w.observe("web")
		time.Sleep(time.Minute)
		assert.Equal(t, "large", w.node("web").Labels[typeLabel])
		assert.Len(t, w.events.Events, 1)
	})
}
