package azure

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// world is a simulated Azure and the provider, in virtual time.
type world struct {
	testing.TB
	sim     *azuresim.Sim
	server  *simkit.Server
	network *simkit.Network
	config  string
	cloud   *cloud
	shown   cache.Store
}

// inWorld runs a test in a world of its own.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, network: simkit.NewNetwork()}
		w.sim, w.server = azuresim.New(testSecret, 3*time.Second)
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) }) // or nothing were older than anything
		w.config = w.sim.CloudConfig(w.network.Serve(t, w.server))
		w.restart()
		test(w)
	})
}

// restart makes the provider anew, with nothing in memory.
func (w *world) restart() {
	w.Helper()
	in := inputs(w.config)
	in.Dial = w.network.Dial
	c, err := newCloud(in)
	require.NoError(w, err)
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	c.SetInformers(factory)
	w.cloud, w.shown = c, factory.Core().V1().Nodes().Informer().GetStore()
}

// show puts Nodes where the provider sees them.
func (w *world) show(nodes ...*v1.Node) {
	w.Helper()
	for _, n := range nodes {
		require.NoError(w, w.shown.Add(n))
	}
}

// node is a Node that waits for its cloud controller, or one that has a provider ID already.
func node(name, providerID string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Spec: v1.NodeSpec{ProviderID: providerID}}
	if providerID == "" {
		n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}}
	}
	return n
}

type conn = net.Conn

// waitFor lets virtual time pass.
func waitFor(d time.Duration) { time.Sleep(d) }
