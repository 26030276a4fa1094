package guard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

var everything = labels.Everything()

// hears writes what a handler hears.
type hears struct{ to chan string }

func (h hears) OnAdd(o any, _ bool) { h.to <- "+" + nameOf(o) }
func (h hears) OnUpdate(_, o any)   { h.to <- "~" + nameOf(o) }
func (h hears) OnDelete(o any)      { h.to <- "-" + nameOf(o) }

func nameOf(o any) string {
	n, _ := o.(*v1.Node)
	return n.Name
}

func fresh(name, providerID string) *v1.Node {
	n := routed(name, providerID, time.Minute)
	n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
	return n
}

func TestAnInstanceIsOneNodesAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		has     *v1.Node
		first   *v1.Node
		refused string
	}{
		"nobody else":                      {routed("other", "alpha://2", time.Hour), nil, ""},
		"another node has it":              {routed("other", "alpha://1", time.Hour), nil, "instance alpha://1 is already that of node other"},
		"in another form":                  {routed("other", "alpha://zone-b/1", time.Hour), nil, "instance alpha://1 is already that of node other"},
		"another cloud's of that number":   {routed("other", "beta://1", time.Hour), nil, ""},
		"a new one has just been given it": {fresh("other", ""), fresh("other", ""), "is already that of node other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := Wrap(&cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) {
				return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1"}, nil
			}}, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy(), InstanceKey: func(id string) string {
				rest, ours := strings.CutPrefix(id, "alpha://")
				return map[bool]string{true: rest[strings.LastIndex(rest, "/")+1:]}[ours]
			}})
			recorder := record.NewFakeRecorder(10)
			g.reports.setRecorder(recorder)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			n := fresh("worker", "")
			require.NoError(t, store.Add(n))
			require.NoError(t, store.Add(c.has))
			g.ownership.setLister(listers.NewNodeLister(store))
			instances, _ := g.InstancesV2()
			if c.first != nil {
				_, err := instances.InstanceMetadata(t.Context(), c.first)
				require.NoError(t, err)
			}
			for range 2 { // asking again changes nothing
				_, err := instances.InstanceMetadata(t.Context(), n)
				if c.refused == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, c.refused)
				require.ErrorContains(t, err, "kubectl delete node other")
			}
			if c.refused != "" {
				assert.Contains(t, <-recorder.Events, EventNodeInitializationFailed)
			}
			old := routed("worker", "alpha://1", time.Hour)
			_, err := instances.InstanceMetadata(t.Context(), old)
			require.NoError(t, err, "what was initialised before goes on")
		})
	}
}

func TestProviderIDsInOtherForms(t *testing.T) {
	t.Parallel()
	facts := Facts{ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy(), InstanceKey: func(id string) string {
		return map[bool]string{true: id}[strings.HasPrefix(id, "alpha://") || strings.HasPrefix(id, "/")]
	}}
	o := &ownership{reports: &reports{}, facts: facts}
	assert.Empty(t, o.whyForeign(node("/1", false)), "without a scheme, which the provider accepts")
	assert.Empty(t, o.whyForeign(node("alpha://1", false)))
	assert.NotEmpty(t, o.whyForeign(node("beta://1", false)))
}
