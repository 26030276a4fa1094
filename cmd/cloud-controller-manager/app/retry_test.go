package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestRetry: waiting load balancers appear changed every time; the stored Services do not change.
func TestRetry(t *testing.T) {
	t.Parallel()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, kind := range map[string]v1.ServiceType{
		"waits": v1.ServiceTypeLoadBalancer, "served": v1.ServiceTypeLoadBalancer, "internal": v1.ServiceTypeClusterIP,
	} {
		require.NoError(t, store.Add(&v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{Type: kind}}))
	}
	var shown []string
	a := &serviceNotifier{}
	a.watchServices().Handler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, now any) {
		was, is := before.(*v1.Service), now.(*v1.Service)
		assert.NotEqual(t, was.Annotations, is.Annotations, "the framework looks at what changed")
		shown = append(shown, is.Name+" "+is.Annotations[retried])
	}})
	again := retry(a)
	notServed := func(s *v1.Service) bool { return s.Name != "served" }

	again(notServed)
	assert.Empty(t, shown, "nothing is known of Services yet")
	a.setLister(listers.NewServiceLister(store))
	again(notServed)
	again(notServed)
	assert.Equal(t, []string{"waits 2", "waits 3"}, shown)
	for _, s := range store.List() {
		assert.Empty(t, s.(*v1.Service).Annotations)
	}
}
