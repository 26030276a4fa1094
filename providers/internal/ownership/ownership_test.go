package ownership

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func TestMark(t *testing.T) {
	t.Parallel()
	var c Cluster
	assert.Empty(t, c.Mark(t.Context()), "nothing is known yet")
	client := fake.NewClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u1"}})
	c.SetClient(client)
	assert.Equal(t, "anyccm:u1", c.Mark(t.Context()))
	assert.Equal(t, "anyccm:u1", c.Mark(t.Context()))
	assert.Len(t, client.Actions(), 1, "it is read once")

	var denied Cluster
	client = fake.NewClientset()
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	denied.SetClient(client)
	assert.Empty(t, denied.Mark(t.Context()))
	assert.Empty(t, denied.Mark(t.Context()))
	assert.Len(t, client.Actions(), 1, "a refusal is believed for a while")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, Check("lb", "anyccm:u1", nil), "unmarked: as the cloud's own controller left it")
	require.NoError(t, Check("lb", "anyccm:u1", []string{"k8s:x", "anyccm:u1"}))
	require.NoError(t, Check("lb", "", []string{"anyccm:u2"}), "who does not know itself cannot judge")
	err := Check("load balancer 7", "anyccm:u1", []string{"anyccm:u2"})
	require.ErrorContains(t, err, "load balancer 7 belongs to another cluster, whose namespace kube-system has the UID u2 and is left alone")
	_, ok := errors.AsType[*NotOursError](err)
	assert.True(t, ok)
}

func TestCheckRecords(t *testing.T) {
	t.Parallel()
	const key = "example.com/id"
	now := time.Now()
	service := func(name string, age time.Duration, id string, kind v1.ServiceType) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-age)), Annotations: map[string]string{key: id}},
			Spec:       v1.ServiceSpec{Type: kind},
		}
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	first, second := service("first", time.Hour, "7", v1.ServiceTypeLoadBalancer), service("second", time.Minute, "7", v1.ServiceTypeLoadBalancer)
	for _, s := range []*v1.Service{first, second, service("was", 2*time.Hour, "8", v1.ServiceTypeClusterIP)} {
		require.NoError(t, indexer.Add(s))
	}
	var c Cluster
	require.NoError(t, c.CheckRecords("lb 7", key, "7", second), "nothing to look at yet")
	c.SetServices(listers.NewServiceLister(indexer))
	require.NoError(t, c.CheckRecords("lb 7", key, "7", first))
	require.EqualError(t, c.CheckRecords("lb 7", key, "7", second), "lb 7 belongs to Service ns/first and is left alone; choose another name or ID, or remove it from there first")
	require.NoError(t, c.CheckRecords("lb 8", key, "8", second), "a Service that is no load balancer any more has none")
	require.NoError(t, c.CheckRecords("lb", key, "", second))
}
