package app

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app/config"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/cloud-provider/fake"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// setNode adds or changes a Node.
func (a *relistAPI) setNode(n *v1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := "MODIFIED"
	if a.nodes[n.Name] == nil {
		kind = "ADDED"
	}
	a.version++
	n.TypeMeta, n.ResourceVersion = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, strconv.Itoa(a.version)
	a.nodes[n.Name] = n
	a.send("nodes", watchEvent(kind, n))
}

func (a *relistAPI) removeNode(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[name]
	delete(a.nodes, name)
	a.version++
	n.ResourceVersion = strconv.Itoa(a.version)
	a.send("nodes", watchEvent("DELETED", n))
}

// The framework's calls for a Service.
const (
	callGet    = "get"
	callEnsure = "ensure"
	callUpdate = "update"
	callDelete = "delete"
)

// backendsCloud records each load balancer's last Nodes.
type backendsCloud struct {
	fake.Cloud

	mu      sync.Mutex
	have    map[string]string
	updates int
	// hold delays calls for a Service, and fails them if it returns an error.
	hold func(ctx context.Context, call string, s *v1.Service) error
}

func (*backendsCloud) ProviderName() string { return "fake" }

func (c *backendsCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *backendsCloud) take(s *v1.Service, nodes []*v1.Node) {
	if len(nodes) > 1000 {
		nodes = nodes[:1] // keep this test's memory out of the measurement
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name + "=" + n.Spec.ProviderID
	}
	slices.Sort(names)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.have[s.Name] = strings.Join(names, " ")
}

func (c *backendsCloud) begin(ctx context.Context, call string, s *v1.Service) error {
	if c.hold == nil {
		return nil
	}
	return c.hold(ctx, call, s)
}

func (c *backendsCloud) GetLoadBalancer(ctx context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	err := c.begin(ctx, callGet, s)
	return s.Status.LoadBalancer.DeepCopy(), c.backends(s.Name) != "", err
}

func (c *backendsCloud) EnsureLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if err := c.begin(ctx, callEnsure, s); err != nil {
		return nil, err
	}
	c.take(s, nodes)
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "198.51.100.1"}}}, nil
}

func (c *backendsCloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, s *v1.Service) error {
	if err := c.begin(ctx, callDelete, s); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.have, s.Name)
	return nil
}

// backends returns the names of a load balancer's Nodes.
func (c *backendsCloud) backends(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have[name]
}

func (c *backendsCloud) UpdateLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	if err := c.begin(ctx, callUpdate, s); err != nil {
		return err
	}
	c.take(s, nodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates++
	return nil
}

// servedCluster is a cluster with the framework's service controller and a guarded cloud.
type servedCluster struct {
	*relistAPI

	cloud *backendsCloud
	nodes informers.SharedInformerFactory
}

// serve starts one, with or without the stand-in for all Nodes.
func serve(ctx context.Context, t *testing.T, api *relistAPI, standIn bool) servedCluster {
	t.Helper()
	access := &rest.Config{Host: "http://api.invalid", Transport: api, QPS: 1e6, Burst: 1e6}
	client, err := kubernetes.NewForConfig(access)
	require.NoError(t, err)
	c := &config.Config{}
	c.VersionedClient = client
	c.ComponentConfig.Generic.MinResyncPeriod = metav1.Duration{Duration: 12 * time.Hour}
	completed := c.Complete()
	trimInformers(completed, serviceSelection{mode: unclassed})
	inner := &backendsCloud{have: map[string]string{}}
	cloud := guard.Wrap(inner, guard.Facts{Provider: "fake", ProviderIDPrefixes: []string{"fake://"}, Policy: guard.DefaultPolicy()})
	cloud.Initialize(clientbuilder.SimpleControllerClientBuilder{ClientConfig: access}, ctx.Done())
	factory := completed.SharedInformers
	if standIn {
		factory = cloud.ServiceNodes(factory)
	}
	sc, err := servicecontroller.New(
		cloud, client, factory.Core().V1().Services(), factory.Core().V1().Nodes(), "kubernetes", utilfeature.DefaultFeatureGate,
	)
	require.NoError(t, err)
	completed.SharedInformers.Start(ctx.Done())
	go sc.Run(ctx, 20, controllersmetrics.NewControllerManagerMetrics("served"))
	return servedCluster{api, inner, completed.SharedInformers}
}

func plainService(name string) *v1.Service {
	s := &v1.Service{Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}}}
	s.Name = name
	return s
}

func servedNode(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: "fake://" + name}}
}

func advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTheStandInIsTheNodes: whatever happens to Nodes, each load balancer gets the same Nodes, and no more often, with the stand-in as
// without it.
func TestTheStandInIsTheNodes(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				var both []servedCluster
				for _, standIn := range []bool{false, true} {
					c := serve(ctx, t, newRelistAPI(), standIn)
					c.setNode(servedNode("first"))
					advanceClock(time.Second) // otherwise a Service might be served before the controller sees the Node
					c.addService(plainService("web"))
					c.addService(plainService("api"))
					both = append(both, c)
				}
				random := rand.New(rand.NewPCG(seed, 2))
				for step := range 60 {
					advanceClock(time.Minute)
					require.Equal(t, both[0].cloud.have, both[1].cloud.have, "after %d steps", step)
					require.Len(t, both[0].cloud.have, 2)
					roll, name := random.IntN(8), fmt.Sprintf("node-%d", random.IntN(6))
					for _, c := range both {
						c.shake(roll, name, step)
					}
				}
				assert.LessOrEqual(t, both[1].cloud.updates, both[0].cloud.updates)
				assert.Zero(t, both[0].cloud.updates%2+both[1].cloud.updates%2, "each change is one of both Services")
				assert.Greater(t, both[1].cloud.updates, 20)
				stop()
				synctest.Wait()
			})
		})
	}
}

// shake changes a Node in a way that may matter to load balancers.
func (c servedCluster) shake(roll int, name string, step int) {
	n := c.relistAPI.nodes[name]
	if n == nil {
		n = servedNode(name)
		if roll%2 == 0 {
			n.Spec.ProviderID = "" // uninitialised
		}
		c.setNode(n)
		return
	}
	n = n.DeepCopy()
	switch roll {
	case 0, 1:
		c.removeNode(name)
		return
	case 2:
		n.Labels = map[string]string{v1.LabelNodeExcludeBalancers: []string{"", "true", "false", "x"}[step%4]}
	case 3:
		n.Labels = nil
	case 4: // marked for deletion, and a new one is added
		n.Spec.Taints = []v1.Taint{{Key: servicecontroller.ToBeDeletedTaint, Effect: v1.TaintEffectNoSchedule}}
		c.setNode(n)
		advanceClock(time.Second)
		c.setNode(servedNode(fmt.Sprintf("joins-%d", step)))
		return
	case 5: // deleted with a finalizer, and a new one is added
		n.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		c.setNode(n)
		advanceClock(time.Second)
		c.setNode(servedNode(fmt.Sprintf("joins-%d", step)))
		return
	case 6:
		n.Spec.ProviderID = "fake://" + name
	default:
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: strconv.Itoa(step)}}
	}
	c.setNode(n)
}

// joinCost measures the memory allocated when a Node joins, and whether copies of earlier Nodes are retained.
func joinCost(t *testing.T, nodes, services int) (bytes uint64, kept bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		api := newRelistAPI()
		for i := range nodes {
			n := servedNode(fmt.Sprintf("node-%d", i))
			n.ResourceVersion = "1"
			n.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
			api.nodes[n.Name] = n
		}
		for i := range services {
			api.addService(plainService(fmt.Sprintf("web-%d", i)))
		}
		c := serve(ctx, t, api, true)
		advanceClock(30 * time.Second)
		require.Len(t, c.cloud.have, services)

		before := func() weak.Pointer[v1.Node] {
			n, err := c.nodes.Core().V1().Nodes().Lister().Get("node-0")
			require.NoError(t, err)
			return weak.Make(n)
		}()
		beat := servedNode("node-0")
		beat.Labels = map[string]string{"beat": "2"}
		api.setNode(beat)
		advanceClock(10 * time.Second)
		api.addService(plainService("later")) // a Service created later gets the present Nodes
		advanceClock(10 * time.Second)
		runtime.GC()
		kept = before.Value() != nil

		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		api.setNode(servedNode("joins"))
		advanceClock(10 * time.Second)
		runtime.ReadMemStats(&is)
		bytes = is.TotalAlloc - was.TotalAlloc
		assert.GreaterOrEqual(t, c.cloud.updates, services)
		stop()
		synctest.Wait()
	})
	return bytes, kept
}

// TestANodeThatJoins: what it costs the program in work and memory grows with the number of load balancers, and not with the number of
// Nodes behind them. It is no parallel test, because it counts what the process allocates.
//
//nolint:paralleltest // see above
func TestANodeThatJoins(t *testing.T) {
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	const services, few, many = 100, 100, 3000
	small, _ := joinCost(t, few, services)
	large, kept := joinCost(t, many, services)
	t.Logf("a Node joins %d load balancers: %d kB with %d nodes, %d kB with %d", services, small>>10, few, large>>10, many)
	assert.False(t, kept, "a copy of a Node that is out of date is kept")
	assert.LessOrEqual(t, large, 2*small+1<<20)
}

// TestTheLogCountsNodes: the framework's log line about an update shows the number of Nodes, not the stand-in.
func TestTheLogCountsNodes(t *testing.T) {
	if raceDetector {
		t.Skip("the framework itself has a race; make test-unit runs this without the detector")
	}
	state := klog.CaptureState()
	defer state.Restore()
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	klog.SetLogFilter(logFilter{})
	require.NoError(t, new(klog.Level).Set("2"))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := serve(ctx, t, newRelistAPI(), true)
		c.setNode(servedNode("first"))
		c.addService(plainService("web"))
		advanceClock(time.Minute)
		c.setNode(servedNode("second"))
		advanceClock(time.Minute)
		stop()
		synctest.Wait()
	})
	klog.Flush()
	assert.Contains(t, log.String(), "Updating backends for load balancer default/web with all 2 nodes\n")
	assert.NotContains(t, log.String(), "with 1 nodes")
	_, args := logFilter{}.FilterF(updating+"%d nodes: %v", []any{"default", "web", 1, []string{"first"}})
	assert.Len(t, args, 4, "a Node is not touched")
}
