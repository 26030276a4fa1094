package nodelabels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	ktesting "k8s.io/client-go/testing"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

const (
	team     = "example.com/team"
	teamRule = "team=" + team
	isolated = restriction + "zone"
)

// TestRulesThatAreRefused: each fault with its rule, and all of them together.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	refused := map[string]string{
		"team": "use tag=label", "=team": "use tag=label", "team=": "use tag=label", "": "use tag=label",
		"a*=b": "either both end in *", "a=b*": "either both end in *",
		"a=b c": "no legal key", "a=x/y/z": "no legal key", "a*=x y*": "no legal key", "a=" + strings.Repeat("x", 64): "no legal key",
		"a=" + v1.LabelHostname: "one of Kubernetes", "a=kubernetes.io/os": "one of Kubernetes", "a=" + v1.LabelArchStable: "one of Kubernetes",
		"a=beta.kubernetes.io/os": "one of Kubernetes", "a=" + typeLabel: "one of Kubernetes", "a=" + betaType: "one of Kubernetes",
		"a=" + v1.LabelNodeExcludeBalancers: "one of Kubernetes", "a=kubelet.kubernetes.io/x": "one of Kubernetes",
		"a=" + zoneLabel: "belongs to the cloud", "a=topology.k8s.aws/zone-id": "belongs to the cloud", "a*=topology.gke.io/*": "belongs to the cloud",
		"a=" + roles + "control-plane": "one of Kubernetes", "a=" + roles + "master": "one of Kubernetes", "a*=" + roles + "*": "name each role",
		"a*=" + roles + "work*": "one of Kubernetes",
		"a=example.com/switch":  "means something to this cloud",
		"a=pool":                "--node-selector", "b=example.com/ours": "--node-selector",
		autoscalerPreset + "s": "use tag=label",
	}
	texts := append(slices.Sorted(maps.Keys(refused)), teamRule, teamRule)
	_, err := ParseRules(texts, "pool=a,example.com/ours", []string{"example.com/switch"})
	for text, why := range refused {
		assert.ErrorContains(t, err, fmt.Sprintf("--node-labels-from-tags: %q: ", text))
		_, one := ParseRules([]string{text}, "pool=a,example.com/ours", []string{"example.com/switch"})
		assert.ErrorContains(t, one, why, text)
	}
	require.ErrorContains(t, err, "it is there twice")
	_, err = ParseRules([]string{
		teamRule, "Cost Center=example.com/cost-center", "a=b=plain", autoscalerPreset, "*=tags.example.com/*", "z=" + isolated,
		"r*=" + restriction + "*", "w=" + roles + "worker", "s=example.com/switch",
	}, "pool=a", nil)
	require.NoError(t, err)
}

// TestMatch: what tags give, and what they do not.
func TestMatch(t *testing.T) {
	t.Parallel()
	rules, err := ParseRules([]string{
		teamRule, "squad=" + team, "z=" + isolated, "w=" + roles + "worker", autoscalerPreset, "pre/*=pre.example.com/*", "a=b=plain",
	}, "pool=a", []string{"example.com/switch"})
	require.NoError(t, err)
	const hint = "k8s.io/cluster-autoscaler/node-template/label/"
	type tags = map[string]string
	for name, c := range map[string]struct {
		tags, labels tags
		faults       []string
	}{
		"a tag":                {tags{"team": "shop", "other": "x"}, tags{team: "shop"}, nil},
		"no value":             {tags{"w": ""}, tags{roles + "worker": ""}, nil},
		"isolation":            {tags{"z": "true"}, tags{isolated: "true"}, nil},
		"case counts":          {tags{"Team": "shop"}, tags{}, nil},
		"the last equals sign": {tags{"a=b": "c"}, tags{"plain": "c"}, nil},
		"a switch of a cloud":  {tags{hint + "example.com/switch": "false"}, tags{}, []string{"means something to this cloud"}},
		"a prefix":             {tags{"pre/a": "1", "pre/": "2", "pre": "3", "pre/b c": "4"}, tags{"pre.example.com/a": "1"}, []string{"no legal key"}},
		"the preset":           {tags{hint + "example.com/gpu": "a100", hint + "plain": "x"}, tags{"example.com/gpu": "a100", "plain": "x"}, nil},
		"the preset, Kubernetes's": {
			tags{hint + zoneLabel: "a", hint + typeLabel: "t", hint + "pool": "b"}, tags{}, []string{"Kubernetes", "--node-selector", "belongs"},
		},
		"a role that no rule names": {
			tags{hint + roles + "worker": "", hint + roles + "db": "", hint + roles + "control-plane": ""},
			tags{roles + "worker": ""},
			[]string{"db", "control-plane"},
		},
		"two tags, one label":           {tags{"team": "shop", "squad": "shop"}, tags{}, []string{`example.com/team would come from the tags ["squad" "team"]`}},
		"two rules, one label":          {tags{"team": "shop", hint + team: "shop"}, tags{}, []string{"would come from the tags"}},
		"an illegal value":              {tags{"team": "two words", "z": "a"}, tags{isolated: "a"}, []string{`"two words" of tag "team" is no legal value`}},
		"a value that is too long":      {tags{"team": strings.Repeat("x", 64)}, tags{}, []string{"no legal value"}},
		"a tag with the end of another": {tags{"my team": "x"}, tags{}, nil},
	} {
		labels, faults := rules.match(c.tags)
		assert.Equal(t, c.labels, labels, name)
		var texts []string
		for _, f := range faults {
			texts = append(texts, f.why)
		}
		assert.Len(t, texts, len(c.faults), name)
		for _, want := range c.faults {
			assert.Contains(t, strings.Join(texts, "\n"), want, name)
		}
	}
	many := tags{}
	for n := range 60 {
		many[fmt.Sprintf("pre/x%02d", n)] = "y"
	}
	labels, faults := rules.match(many)
	assert.Len(t, labels, maxTagLabels)
	assert.Contains(t, labels, "pre.example.com/x49")
	assert.Len(t, faults, 10)
}

// taint replaces the taints of the Node web.
func (w *world) taint(taints ...v1.Taint) {
	w.t.Helper()
	node := w.node("web")
	node.Spec.Taints = taints
	require.NoError(w.t, w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""))
}

// TestTagsAreLabels: one write for all labels, none while they are right, one for a new value, and the label goes with its tag.
func TestTagsAreLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, teamRule, "z="+isolated)
		w.addNode("web", Initializer, labels())
		w.tags = map[string]string{"team": "shop", "z": "1"}
		patches, events := w.observe("web")
		assert.Equal(t, 1, patches)
		assert.Equal(t, []string{`Normal NodeLabelsUpdated set to what the cloud says: example.com/team: none → "shop", ` + isolated + `: none → "1"`}, events)
		patches, _ = w.observe("web")
		assert.Zero(t, patches)
		assert.Empty(t, w.client.Actions(), "labels that are right are not read either")

		w.tags["team"], w.cloud.InstanceType = "bank", "large"
		patches, _ = w.observe("web")
		assert.Equal(t, 2, patches, "each manager has its own record")
		assert.Equal(t, "bank", w.node("web").Labels[team])
		assert.Equal(t, "large", w.node("web").Labels[typeLabel])

		w.instances = map[types.UID]*instance{} // a restart
		delete(w.tags, "team")
		patches, events = w.observe("web")
		assert.Equal(t, 1, patches)
		assert.Equal(t, []string{`Normal NodeLabelsUpdated set to what the cloud says: example.com/team: "bank" → none`}, events)
		assert.NotContains(t, w.node("web").Labels, team)
		assert.Equal(t, "1", w.node("web").Labels[isolated])
		assert.Equal(t, "7", w.node("web").Labels[rack], "what the cloud itself gave stays")
		assert.Equal(t, "shop", w.node("web").Labels["team"], "what no rule gives stays")
	})
}

// TestTagsInDoubt: an answer without tags, two tags for one label and an illegal value change nothing, and each fault is one event.
func TestTagsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, teamRule, "squad="+team, "rack="+rack)
		w.addNode("web", Initializer, labels())
		w.tags = map[string]string{"team": "shop"}
		w.observe("web")
		for _, doubt := range []map[string]string{nil, {}, {"team": "a", "squad": "a"}, {"squad": "two words"}} {
			w.tags = doubt
			patches, events := w.observe("web")
			assert.Zero(t, patches, doubt)
			assert.Len(t, events, min(len(doubt), 1), doubt)
			_, events = w.observe("web")
			assert.Empty(t, events, "one event for one fault")
			assert.Equal(t, "shop", w.node("web").Labels[team], doubt)
		}
		w.tags = map[string]string{"team": "shop", "rack": "8"}
		patches, events := w.observe("web")
		assert.Zero(t, patches)
		assert.Equal(t, []string{"Warning NodeTagsIgnored tags of the instance give no label: the cloud itself gives example.com/rack"}, events)
	})
}

// TestOthersLabelsStay: what anybody else manages is neither changed nor removed, nor what is right already claimed.
func TestOthersLabelsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, teamRule, "z="+isolated)
		for _, manager := range []string{"kubectl", kubelet, Initializer} {
			all := labels()
			all[team] = "mine"
			w.addNode(manager, manager, all)
			for _, value := range []string{"mine", "shop"} {
				w.tags = map[string]string{"team": value}
				patches, _ := w.observe(manager)
				assert.Zero(t, patches, "a takeover writes nothing")
			}
			w.tags = map[string]string{"other": "x"}
			patches, _ := w.observe(manager)
			assert.Zero(t, patches, manager)
			assert.Equal(t, "mine", w.node(manager).Labels[team])
		}

		w.addNode("web", Initializer, labels())
		w.tags = map[string]string{"team": "shop", "z": "1"}
		w.observe("web")
		w.setLabel("web", "kubectl", team, "mine")
		patches, _ := w.observe("web")
		assert.Zero(t, patches, "set by hand")
		w.tags = map[string]string{"other": "x"}
		patches, _ = w.observe("web")
		assert.Equal(t, 1, patches)
		assert.Equal(t, "mine", w.node("web").Labels[team], "it is somebody else's now")
		assert.NotContains(t, w.node("web").Labels, isolated)

		w.tags = map[string]string{"team": "shop", "z": "1"}
		w.addNode("both", Initializer, labels())
		w.observe("both")
		same := apply.Node("both").WithLabels(map[string]string{team: "shop"})
		_, err := w.client.CoreV1().Nodes().Apply(t.Context(), same, metav1.ApplyOptions{FieldManager: "kubectl"})
		require.NoError(t, err)
		w.tags = map[string]string{"z": "1"}
		patches, _ = w.observe("both")
		assert.Zero(t, patches)
		assert.Equal(t, "shop", w.node("both").Labels[team])
	})
}

// TestLabelsBeforeTheTaintGoes: an uninitialized Node has its labels when the answer comes; where they cannot be written, there is none.
func TestLabelsBeforeTheTaintGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, teamRule, "z="+isolated)
		w.addNode("web", kubelet, nil)
		w.taint(v1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider})
		node := w.node("web")
		w.tags = map[string]string{"team": "shop", "z": "1"}
		failures := []error{apierrors.NewServiceUnavailable("later"), apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "web", nil)}
		w.client.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			if len(failures) == 0 {
				return false, nil, nil
			}
			err := failures[0]
			failures = failures[1:]
			return true, nil, err
		})
		require.Error(t, w.Observe(t.Context(), node, &w.cloud, w.tags), "the labels could not be written")
		require.NoError(t, w.Observe(t.Context(), node, &w.cloud, w.tags), "another's write in between is no failure")
		assert.Equal(t, map[string]string{v1.LabelHostname: "web", team: "shop", isolated: "1"}, w.node("web").Labels, "the framework writes the others")
		w.client.ClearActions()
		require.NoError(t, w.Observe(t.Context(), node, &w.cloud, w.tags))
		assert.Len(t, w.client.Actions(), 1, "the informer is behind: a read, and no second write")
	})
}

// record replaces a Node's managed fields, as its kubelet may; without fields there are none.
func (w *world) record(name, manager, fields string) {
	w.t.Helper()
	node := w.node(name)
	node.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	if fields != "" {
		node.ManagedFields[0] = metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	_, err := w.client.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{FieldManager: kubelet})
	require.NoError(w.t, err)
}

// TestForgedTagRecord: a kubelet that writes as the manager of tags has nothing removed by it. One event says so, also where the Node is
// not initialised yet, and the labels come when the record is gone.
func TestForgedTagRecord(t *testing.T) {
	t.Parallel()
	for _, uninitialized := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, false, teamRule)
			w.addNode("web", Initializer, labels())
			quarantine := v1.Taint{Key: "quarantine", Effect: v1.TaintEffectNoExecute}
			w.taint(quarantine)
			if uninitialized {
				w.taint(quarantine, v1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider})
			}
			w.record("web", TagManager, `{"f:spec":{"f:taints":{}}}`)
			w.tags = map[string]string{"team": "shop"}
			patches, events := w.observe("web")
			assert.Zero(t, patches)
			require.Len(t, events, 1)
			assert.Contains(t, events[0], "Warning NodeRecordForged labels are not written: the Node's managed fields name anyccm-node-tags for more")
			patches, events = w.observe("web")
			assert.Zero(t, patches)
			assert.Empty(t, events, "one event for one record")
			assert.Contains(t, w.node("web").Spec.Taints, quarantine, "the taint stays")

			w.taint(quarantine)
			w.record("web", "", "")
			patches, _ = w.observe("web")
			assert.Equal(t, 1, patches, "it is tried again")
			assert.Equal(t, "shop", w.node("web").Labels[team])
		})
	}
}

// TestForgedLabels: a kubelet that names labels which it may not set as this program's neither gets nor loses them.
func TestForgedLabels(t *testing.T) {
	t.Parallel()
	for _, manager := range []string{Manager, TagManager} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, false, teamRule, "r*="+restriction+"*", "w="+roles+"worker")
			all := labels()
			all[isolated], all[roles+"worker"] = "1", ""
			w.addNode("web", "kubectl", all)
			w.observe("web")
			names := []string{roles + "control-plane", restriction + "pci", roles + "worker", isolated}
			w.record("web", manager, `{"f:metadata":{"f:labels":{"f:`+strings.Join(names, `":{},"f:`)+`":{}}}}`)
			w.cloud.InstanceType, w.tags = "large", map[string]string{"team": "shop"}
			patches, _ := w.observe("web")
			assert.Equal(t, 2, patches, manager)
			all[typeLabel], all[betaType], all[team], all[v1.LabelHostname] = "large", "large", "shop", "web"
			assert.Equal(t, all, w.node("web").Labels, "no forged label")
		})
	}
}
