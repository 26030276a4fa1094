package conformance

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// NodeBench asks a provider about nodes, in front of a simulated cloud and in virtual time, for tests of single parts.
type NodeBench struct {
	*testing.T
	Server  *simkit.Server
	Network *simkit.Network
	// Env is the environment of the provider, Config its cloud config, which lies at Path.
	Env          map[string]string
	Config, Path string
	// Nodes are those of the cluster.
	Nodes []*v1.Node

	api  nodes.API
	stop chan struct{}
}

// NewNodeBench returns one in the bubble of a test, in front of a simulated cloud that takes a moment for each answer, and the address of
// that cloud.
func NewNodeBench(t *testing.T, server *simkit.Server) (b *NodeBench, address string) {
	t.Helper()
	server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
	b = &NodeBench{T: t, Server: server, Network: simkit.NewNetwork()}
	address = b.Network.Serve(t, server)
	t.Cleanup(b.Stop) // before the network ends
	return b, address
}

// Start ends what is running, and has the provider made as a start of the program does: with nothing in memory.
func (b *NodeBench) Start(start func(in registry.Inputs, informers cloudbase.Informers) nodes.API) {
	b.Helper()
	b.Stop()
	b.stop = make(chan struct{})
	in := Inputs(nil, b.Env)
	in.File, in.FilePath, in.Dial = []byte(b.Config), b.Path, b.Network.Dial
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	for _, n := range b.Nodes {
		require.NoError(b, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	b.api = start(in, cloudbase.Informers{Interface: factory.Core().V1(), Stop: b.stop})
}

// Stop ends the program, where it runs.
func (b *NodeBench) Stop() {
	if b.stop != nil {
		close(b.stop)
		b.stop = nil
		synctest.Wait()
	}
}

// ServeTLS makes a cloud answer with a certificate that nobody has signed but itself, which lies in the file and is returned as well.
func ServeTLS(t *testing.T, handler http.Handler) (url, file, certificate string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	file = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return server.URL, file, string(text)
}

// With returns an environment with further variables, each before its value.
func With(env map[string]string, more ...string) map[string]string {
	env = maps.Clone(env)
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// NewNode is a Node that waits to be initialised.
func NewNode(name, providerID string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID, Taints: []v1.Taint{{
		Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule,
	}}}}
}

// InitializedNode is a Node that does not.
func InitializedNode(name, providerID string) *v1.Node {
	n := NewNode(name, providerID)
	n.Spec.Taints = nil
	return n
}

// Exists asks whether the instance of a node exists.
func (b *NodeBench) Exists(n *v1.Node) (bool, error) { return b.api.InstanceExists(b.Context(), n) }

// Metadata asks for what the instance of a node says about it.
func (b *NodeBench) Metadata(n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return b.api.InstanceMetadata(b.Context(), n)
}

// RequireMetadata returns it.
func (b *NodeBench) RequireMetadata(n *v1.Node) *cloudprovider.InstanceMetadata {
	b.Helper()
	m, err := b.Metadata(n)
	require.NoError(b, err)
	return m
}

// ShutDown reports whether the instance of a node is shut down.
func (b *NodeBench) ShutDown(n *v1.Node) bool {
	b.Helper()
	down, err := b.api.InstanceShutdown(b.Context(), n)
	require.NoError(b, err)
	return down
}

// RequireExists holds that the instance of a node exists.
func (b *NodeBench) RequireExists(n *v1.Node) {
	b.Helper()
	exists, err := b.Exists(n)
	require.NoError(b, err)
	require.True(b, exists)
}

// RequireGone holds that it does not.
func (b *NodeBench) RequireGone(n *v1.Node) {
	b.Helper()
	exists, err := b.Exists(n)
	require.NoError(b, err)
	require.False(b, exists)
}

// RequireDoubt holds that nothing is said of a node, and why.
func (b *NodeBench) RequireDoubt(n *v1.Node, words string) {
	b.Helper()
	_, err := b.Exists(n)
	require.ErrorContains(b, err, words)
}

// Later lets what is remembered become old.
func (*NodeBench) Later() { time.Sleep(2 * time.Minute) }

// Calls are how many calls there were of an operation.
func (b *NodeBench) Calls(operation string) int { return b.Server.Calls().ByOperation[operation] }

// Fail puts a fault in force.
func (b *NodeBench) Fail(f simkit.Fault) {
	b.Helper()
	_, err := b.Server.AddFault(f)
	require.NoError(b, err)
}

// RequireNothingRefused holds that the simulated cloud found no request at fault.
func (b *NodeBench) RequireNothingRefused() {
	b.Helper()
	require.Empty(b, b.Server.Calls().Refused)
}

// RequireReadOnly holds that nothing was written and nobody else asked, but for one operation that is no write.
func (b *NodeBench) RequireReadOnly(but string) {
	b.Helper()
	calls := b.Server.Calls()
	require.Zero(b, calls.Writes)
	for _, c := range calls.Latest {
		require.True(b, c.Method == http.MethodGet || c.Operation == but, c.Operation)
	}
	require.Empty(b, b.Network.Strangers())
}
