package ibm

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// clients hands the API server of a test to the provider.
type clients struct{ kube clientset.Interface }

func (clients) Config(string) (*restclient.Config, error)    { return &restclient.Config{}, nil }
func (clients) ConfigOrDie(string) *restclient.Config        { return &restclient.Config{} }
func (c clients) Client(string) (clientset.Interface, error) { return c.kube, nil }
func (c clients) ClientOrDie(string) clientset.Interface     { return c.kube }

// guarded opens the provider as the program does, with its guard, on the nodes of a world.
func (w *world) guarded(policy guard.Policy) cloudprovider.InstancesV2 {
	w.t.Helper()
	var r registry.Registry
	require.NoError(w.t, r.Add(Description()))
	in := w.in
	in.Guard = &policy
	opened, err := r.Open(Name, in)
	require.NoError(w.t, err)
	stop := make(chan struct{})
	w.t.Cleanup(func() { close(stop) })
	opened.Initialize(clients{w.bench.Kube}, stop)
	factory := informers.NewSharedInformerFactory(w.bench.Kube, 0)
	user, is := opened.(cloudprovider.InformerUser)
	require.True(w.t, is)
	user.SetInformers(factory)
	for _, n := range w.nodes {
		require.NoError(w.t, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	nodes, is := opened.InstancesV2()
	require.True(w.t, is)
	return nodes
}

// TestLostAccess (15, 16): the API finds no instance either where the credential may not look any more, while it still shows the
// subnets, and the token service may answer as if an instance were not found. No Node goes by either, be it the only one, nor where the
// removal of one was announced while others are ready: nothing of this cluster was seen since.
func TestLostAccess(t *testing.T) {
	t.Parallel()
	const one, all, iam = "GET /v1/instances/{id}", "GET /v1/instances", "POST /identity/token"
	gone := simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: iam}
	for name, c := range map[string]struct {
		nodes     int
		announced bool
		lose      func(w *world)
	}{
		"no instance may be read":         {nodes: 3, lose: (*world).hideInstances},
		"the only one":                    {nodes: 1, lose: (*world).hideInstances},
		"one whose removal was announced": {nodes: 3, announced: true, lose: (*world).hideInstances},
		"the token service does not find": {nodes: 3, lose: func(w *world) {
			_, err := w.server.AddFault(gone)
			require.NoError(w.t, err)
			w.sim.EndTokens()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, c.nodes, 0, nil, func(w *world) {
				for _, n := range w.nodes {
					n.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
					n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
				}
				nodes := w.guarded(guard.Policy{
					Confirmations: 3, ConfirmationTime: 10 * time.Second, Window: 10 * time.Minute, MaxShare: 0.2, Floor: 3, HoldTime: 15 * time.Minute,
				})
				for _, n := range w.nodes {
					exists, err := nodes.InstanceExists(w.t.Context(), n)
					require.NoError(w.t, err)
					require.True(w.t, exists)
				}
				c.lose(w)
				silent := w.nodes
				if c.announced {
					silent = w.nodes[:1]
					silent[0].Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Effect: v1.TaintEffectNoExecute}}
				}
				for _, n := range silent {
					n.Status.Conditions[0].Status = v1.ConditionUnknown
				}
				time.Sleep(2 * time.Minute)
				w.server.ResetCalls()
				for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(30 * time.Second) {
					for _, n := range silent {
						exists, err := nodes.InstanceExists(w.t.Context(), n)
						require.True(w.t, exists || err != nil)
					}
				}
				asked := w.server.Calls().ByOperation
				assert.Positive(w.t, asked[one]+asked[all]+asked[iam])
				if asked[iam] == 0 {
					assert.Positive(w.t, asked[one], "single reads call them gone: %v", asked)
				}
			})
		})
	}
}

// hideInstances takes the right to see any instance from the credential: none is found, none is listed, and the subnets are there.
func (w *world) hideInstances() {
	w.t.Helper()
	var ids []string
	for _, n := range w.nodes {
		_, _, id, _ := splitProviderID(n.Spec.ProviderID)
		ids = append(ids, id)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultVanished, Names: id})
		require.NoError(w.t, err)
	}
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultUnlisted, Names: strings.Join(ids, ",")})
	require.NoError(w.t, err)
	_, err = w.cloud.instances.read(w.t.Context(), ids[0])
	require.ErrorIs(w.t, err, cloudapi.ErrNotFound, "for the provider alone it is gone")
}
