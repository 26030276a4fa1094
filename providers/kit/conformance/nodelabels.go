package conformance

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/nodelabels"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// labelPeriod is how often the framework asks about the addresses of each node.
const labelPeriod = 5 * time.Minute

// Labels from tags, whose keys are legal in every cloud.
const (
	tagLabel  = "example.com/team"
	tagRole   = "node-role.kubernetes.io/shop"
	tagRack   = "node-restriction.kubernetes.io/rack"
	tagRules  = "team=" + tagLabel + ",shop=" + tagRole + ",rack=" + tagRack
	tagsValue = "7"
)

// runNodeLabels: another type in the cloud is written on the Node by one patch, another zone is only an event, tags become labels
// and go with the tag, and none of this costs a call.
func runNodeLabels(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "labels follow the instance", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.addNode(t.Context(), "worker", nil)
		kube, recorder := fake.NewClientset(), record.NewFakeRecorder(100)
		guarded, ok := w.cloud.(*guard.Cloud)
		require.True(t, ok)
		w.nodes[0].UID, w.nodes[0].Labels = "uid", map[string]string{}
		first := w.metadata()
		require.NotEmpty(t, first.InstanceType)
		for label, value := range map[string]string{
			v1.LabelInstanceTypeStable: first.InstanceType, v1.LabelInstanceType: first.InstanceType,
			v1.LabelTopologyZone: first.Zone, v1.LabelTopologyRegion: first.Region,
		} {
			if value != "" {
				w.nodes[0].Labels[label] = value
			}
		}
		_, err := kube.CoreV1().Nodes().Create(t.Context(), w.nodes[0], metav1.CreateOptions{FieldManager: "another-controller"})
		require.NoError(t, err)
		kube.ClearActions()
		rules, err := nodelabels.ParseRules(strings.Split(tagRules, ","), "", w.Provider.NodeLabels)
		require.NoError(t, err)
		labels := nodelabels.New(kube, recorder, guarded.IsOurs, false, rules)
		guarded.ObserveMetadata(labels.Observe, rules.Any())
		rescue.Go("correcting labels of Nodes", func() { labels.Run(t.Context()) })

		w.sweep()
		usual := w.sweep() + w.sweep() // what some clouds ask besides lasts ten minutes
		assert.Empty(t, kube.Actions(), "nothing changed")
		w.Resize(w.nodes[0].Spec.ProviderID)
		assert.Equal(t, usual, w.sweep()+w.sweep(), "another type costs no call of its own")
		now := w.metadata()
		require.NotEqual(t, first.InstanceType, now.InstanceType)
		node, err := kube.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, now.InstanceType, node.Labels[v1.LabelInstanceTypeStable])
		assert.Equal(t, now.InstanceType, node.Labels[v1.LabelInstanceType])
		assert.Len(t, kube.Actions(), 3, "a read and a patch, and the test's own read")
		require.Len(t, recorder.Events, 1)
		assert.Contains(t, <-recorder.Events, nodelabels.EventNodeLabelsUpdated)

		w.nodes[0] = node
		kube.ClearActions()
		moved := *now
		moved.Zone, moved.Region = first.Zone+"-2", first.Region+"-2"
		require.NoError(t, labels.Observe(t.Context(), node, &moved, nil))
		synctest.Wait()
		if first.Zone+first.Region != "" {
			require.Len(t, recorder.Events, 1)
			assert.Contains(t, <-recorder.Events, nodelabels.EventNodeTopologyChanged)
		}
		for _, a := range kube.Actions() {
			assert.Equal(t, "get", a.GetVerb(), "zone and region stay")
		}
		w.tryTags(kube, usual)
	})
}

// tryTags: what tags say is on a Node, and goes with the tag.
func (w *world) tryTags(kube *fake.Clientset, usual int) {
	t, api, id := w.t, kube.CoreV1().Nodes(), w.nodes[0].Spec.ProviderID
	require.Equal(t, w.Provider.InstanceTags.Served(), w.Tag != nil, "the fixture tags instances where the description serves tags")
	if w.Tag == nil {
		return
	}
	w.Tag(id, map[string]string{"team": tagsValue, "shop": tagsValue, "rack": tagsValue})
	w.sweep() // reads the tags
	node, err := api.Get(t.Context(), "worker", metav1.GetOptions{})
	require.NoError(t, err)
	for _, label := range []string{tagLabel, tagRole, tagRack} {
		assert.Contains(t, []string{tagsValue, "true"}, node.Labels[label], label)
	}
	w.nodes[0] = node
	kube.ClearActions()
	if w.Provider.InstanceTags.Call != "" {
		usual += 2 * len(strings.Split(tagRules, ",")) // where zones are tags as well, they may be looked for among all tags
	}
	assert.LessOrEqual(t, w.sweep()+w.sweep(), usual, "tags come with what is read of an instance anyway")
	assert.Empty(t, kube.Actions(), "labels that are right are not written")

	w.Tag(id, map[string]string{"shop": tagsValue, "rack": tagsValue})
	w.sweep()
	node, err = api.Get(t.Context(), "worker", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, node.Labels, tagLabel, "the tag is gone")
	assert.Contains(t, node.Labels, tagRack)
}

// metadata asks the cloud about the first node.
func (w *world) metadata() *cloudprovider.InstanceMetadata {
	m, err := w.instances().InstanceMetadata(w.t.Context(), w.nodes[0])
	require.NoError(w.t, err)
	return m
}

// sweep has the framework ask about the first node as it does every few minutes, and returns the calls that this takes.
func (w *world) sweep() int {
	time.Sleep(labelPeriod)
	w.Sim.ResetCalls()
	w.metadata()
	synctest.Wait()
	return w.Sim.Calls().Total
}
