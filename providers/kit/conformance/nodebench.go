package conformance

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// NodeQuestions asks a provider about nodes in virtual time, for tests of single parts.
type NodeQuestions struct {
	*testing.T
	// API is the provider's own API, below the guard.
	API nodes.API
}

// NodeBench is a test bench, no benchmark: it asks a provider that stands in front of a simulated cloud of its own.
type NodeBench struct {
	NodeQuestions

	Server  *simkit.Server
	Network *simkit.Network
	// Env is the environment of the provider, Config its cloud config, which lies at Path.
	Env          map[string]string
	Config, Path string
	// Nodes are those of the cluster.
	Nodes []*v1.Node
	// Guarded is the guarded API, as the framework uses it, after Open.
	Guarded cloudprovider.InstancesV2

	stop chan struct{}
}

// NewNodeBench returns one in the bubble of a test, in front of a simulated cloud that takes a moment for each answer, and the address of
// that cloud.
func NewNodeBench(t *testing.T, server *simkit.Server) (b *NodeBench, address string) {
	t.Helper()
	server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
	b = &NodeBench{NodeQuestions: NodeQuestions{T: t}, Server: server, Network: simkit.NewNetwork()}
	address = b.Network.Serve(t, server)
	t.Cleanup(b.Stop) // before the network ends
	return b, address
}

// Start ends what is running, and has the provider made as a start of the program does: with nothing in memory.
func (b *NodeBench) Start(start func(in registry.Inputs, informers cloudbase.Informers) nodes.API) {
	b.Helper()
	in, factory := b.begin(fake.NewSimpleClientset())
	b.API = start(in, cloudbase.Informers{Interface: factory.Core().V1(), Stop: b.stop})
}

// Open does the same with the guard above the provider, as the program has it.
func (b *NodeBench) Open(p registry.Provider) {
	b.Helper()
	kube := newKube("cluster-1")
	in, factory := b.begin(kube)
	var r registry.Registry
	require.NoError(b, r.Add(p))
	cloud, err := r.Open(p.Name, in)
	require.NoError(b, err)
	cloud.Initialize(clients{kube}, b.stop)
	user, ok := cloud.(cloudprovider.InformerUser)
	require.True(b, ok)
	user.SetInformers(factory)
	b.Guarded, ok = cloud.InstancesV2()
	require.True(b, ok)
}

// begin ends what is running, and returns what the next one is made with.
func (b *NodeBench) begin(kube kubernetes.Interface) (registry.Inputs, informers.SharedInformerFactory) {
	b.Helper()
	b.Stop()
	b.stop = make(chan struct{})
	in := Inputs(nil, b.Env)
	in.File, in.FilePath, in.Dial = []byte(b.Config), b.Path, b.Network.Dial
	factory := informers.NewSharedInformerFactory(kube, 0)
	for _, n := range b.Nodes {
		require.NoError(b, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	return in, factory
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
func (q *NodeQuestions) Exists(n *v1.Node) (bool, error) { return q.API.InstanceExists(q.Context(), n) }

// Metadata asks for what the instance of a node says about it.
func (q *NodeQuestions) Metadata(n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return q.API.InstanceMetadata(q.Context(), n)
}

// RequireMetadata returns it.
func (q *NodeQuestions) RequireMetadata(n *v1.Node) *cloudprovider.InstanceMetadata {
	q.Helper()
	m, err := q.Metadata(n)
	require.NoError(q, err)
	return m
}

// ShutDown reports whether the instance of a node is shut down.
func (q *NodeQuestions) ShutDown(n *v1.Node) bool {
	q.Helper()
	down, err := q.API.InstanceShutdown(q.Context(), n)
	require.NoError(q, err)
	return down
}

// RequireExists holds that the instance of a node exists.
func (q *NodeQuestions) RequireExists(n *v1.Node) {
	q.Helper()
	exists, err := q.Exists(n)
	require.NoError(q, err)
	require.True(q, exists)
}

// RequireGone holds that it does not.
func (q *NodeQuestions) RequireGone(n *v1.Node) {
	q.Helper()
	exists, err := q.Exists(n)
	require.NoError(q, err)
	require.False(q, exists)
}

// RequireDoubt holds that nothing is said of a node, and why.
func (q *NodeQuestions) RequireDoubt(n *v1.Node, words string) {
	q.Helper()
	_, err := q.Exists(n)
	require.ErrorContains(q, err, words)
}

// Later lets what is remembered become old.
func (*NodeQuestions) Later() { time.Sleep(2 * time.Minute) }

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

// RequireReadOnly holds that nothing was written and nobody else asked, but for these operations, which are no writes.
func (b *NodeBench) RequireReadOnly(but ...string) {
	b.Helper()
	calls := b.Server.Calls()
	require.Zero(b, calls.Writes)
	for _, c := range calls.Latest {
		require.True(b, c.Method == http.MethodGet || slices.Contains(but, c.Operation), c.Operation)
	}
	require.Empty(b, b.Network.Strangers())
}
