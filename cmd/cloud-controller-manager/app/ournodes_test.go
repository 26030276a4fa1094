package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// TestRouteControllerSeesOurNodesAlone: it sets the condition NetworkUnavailable on every Node that it sees.
func TestRouteControllerSeesOurNodesAlone(t *testing.T) {
	t.Parallel()
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), time.Hour)
	for name, id := range map[string]string{"ours": "alpha://1", "other": "beta://1"} {
		require.NoError(
			t,
			factory.Core().V1().Nodes().Informer().GetStore().Add(&v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: id},
			}),
		)
	}
	var seen []string
	wrapped := withOurNodes(frameworkapp.ControllerInitFuncConstructor{
		Constructor: func(_ frameworkapp.ControllerInitContext, c *config.CompletedConfig, _ cloudprovider.Interface) frameworkapp.InitFunc {
			seen = c.SharedInformers.Core().V1().Nodes().Informer().GetStore().ListKeys()
			return nil
		},
	})
	given := (&config.Config{SharedInformers: factory}).Complete()
	cloud := guard.Wrap(&fake.Cloud{}, guard.Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: guard.DefaultPolicy()})
	wrapped.Constructor(frameworkapp.ControllerInitContext{}, given, cloud)
	assert.Equal(t, []string{"ours"}, seen)
	assert.Len(t, given.SharedInformers.Core().V1().Nodes().Informer().GetStore().ListKeys(), 2, "the other controllers see all")
	wrapped.Constructor(frameworkapp.ControllerInitContext{}, given, &fake.Cloud{})
	assert.Len(t, seen, 2, "a cloud without a guard has no such filter")
}
