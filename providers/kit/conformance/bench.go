package conformance

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// Bench is a test bench, no benchmark: a fake API server with what the parts of a provider are given of it, for tests of single parts.
type Bench struct {
	T    *testing.T
	Kube *fake.Clientset
	// Recorder takes the events; Events reads them.
	Recorder        *record.FakeRecorder
	services, nodes cache.Indexer
}

// NewBench returns an API server of the cluster "test-cluster".
func NewBench(t *testing.T) *Bench {
	t.Helper()
	return &Bench{
		T: t, Kube: newKube("test-cluster"), Recorder: record.NewFakeRecorder(1000),
		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		nodes:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
}

// Services returns the lister of the Services that were applied.
func (b *Bench) Services() listers.ServiceLister { return listers.NewServiceLister(b.services) }

// Nodes returns the lister of the nodes that were added.
func (b *Bench) Nodes() listers.NodeLister { return listers.NewNodeLister(b.nodes) }

// Register puts a node where the provider knows it.
func (b *Bench) Register(node *v1.Node) { require.NoError(b.T, b.nodes.Add(node)) }

// Unregister takes a node away.
func (b *Bench) Unregister(node *v1.Node) { require.NoError(b.T, b.nodes.Delete(node)) }

// Apply puts Services where the provider and the API server know them.
func (b *Bench) Apply(services ...*v1.Service) {
	for _, s := range services {
		require.NoError(b.T, b.services.Add(s))
		if _, err := b.Kube.CoreV1().Services(s.Namespace).Create(b.T.Context(), s, metav1.CreateOptions{}); err != nil {
			_, err = b.Kube.CoreV1().Services(s.Namespace).Update(b.T.Context(), s, metav1.UpdateOptions{})
			require.NoError(b.T, err)
		}
	}
}

// Withdraw takes a Service away from the provider's view.
func (b *Bench) Withdraw(s *v1.Service) { require.NoError(b.T, b.services.Delete(s)) }

// Current puts a Service as the API server has it into the cache, and returns a copy, which a test may change while the provider reads
// the cache.
func (b *Bench) Current(s *v1.Service) *v1.Service {
	now := b.read(s)
	require.NoError(b.T, b.services.Update(now))
	return now.DeepCopy()
}

// read returns a Service as the API server has it.
func (b *Bench) read(s *v1.Service) *v1.Service {
	now, err := b.Kube.CoreV1().Services(s.Namespace).Get(b.T.Context(), s.Name, metav1.GetOptions{})
	require.NoError(b.T, err)
	return now
}

// SetStatus writes the status of a Service, as the framework does, and returns the Service as it then is.
func (b *Bench) SetStatus(s *v1.Service, status *v1.LoadBalancerStatus) *v1.Service {
	now := b.Current(s)
	now.Status.LoadBalancer = *status
	_, err := b.Kube.CoreV1().Services(s.Namespace).UpdateStatus(b.T.Context(), now, metav1.UpdateOptions{})
	require.NoError(b.T, err)
	return b.Current(s)
}

// Reconcile ensures the load balancer of a Service, again for as long as the provider asks for more time.
func (b *Bench) Reconcile(
	lb cloudprovider.LoadBalancer, cluster string, s *v1.Service, nodes []*v1.Node,
) (status *v1.LoadBalancerStatus, err error) {
	for range manyTries {
		status, err = lb.EnsureLoadBalancer(b.T.Context(), cluster, b.Current(s), nodes)
		if _, later := errors.AsType[*cloudproviderapi.RetryError](err); !later {
			return status, err
		}
	}
	return nil, err
}

// Remove deletes a Service as the framework does, again for as long as the provider asks for more time.
func (b *Bench) Remove(lb cloudprovider.LoadBalancer, cluster string, s *v1.Service) (err error) {
	for range manyTries {
		now := b.read(s)
		now.DeletionTimestamp = &metav1.Time{Time: now.CreationTimestamp.Add(1)}
		require.NoError(b.T, b.services.Update(now)) // as all other Services' work sees it, too
		var exists bool
		if _, exists, err = lb.GetLoadBalancer(b.T.Context(), cluster, now); err == nil && exists {
			err = lb.EnsureLoadBalancerDeleted(b.T.Context(), cluster, now)
		}
		if err == nil {
			b.Withdraw(now)
		}
		if _, later := errors.AsType[*cloudproviderapi.RetryError](err); !later {
			return err
		}
	}
	return err
}

// manyTries ends a test whose provider asks for more time without end.
const manyTries = 100

// Events returns the events written since the last call.
func (b *Bench) Events() []string {
	var all []string
	for {
		select {
		case e := <-b.Recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}
