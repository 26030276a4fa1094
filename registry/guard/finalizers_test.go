package guard

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	servicehelper "k8s.io/cloud-provider/service/helpers"
)

// TestFinalizerIsHeld: a cache that still shows the finalizer which was just removed does not lead to a load balancer without one, and
// nobody else's Service is written.
func TestFinalizerIsHeld(t *testing.T) {
	t.Parallel()
	with := []string{servicehelper.LoadBalancerCleanupFinalizer}
	for name, c := range map[string]struct {
		cached, stored, want []string
		// released is set where the framework has asked for the load balancer, as it does before it removes the finalizer.
		released bool
		patches  int
	}{
		"removed a moment ago":       {cached: with, released: true, want: with, patches: 1},
		"asked for, and still there": {cached: with, stored: with, released: true, want: with, patches: 1},
		"another one is there":       {cached: with, stored: []string{"example.com/x"}, released: true, want: append([]string{"example.com/x"}, with...), patches: 1},
		"put on by the framework":    {stored: with, released: true, want: with},
		"refused, or after a start":  {cached: with, stored: with, want: with},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", Finalizers: c.stored}}
			kube := fake.NewSimpleClientset(stored)
			f := &finalizers{}
			cached := stored.DeepCopy()
			cached.Finalizers = c.cached
			if c.released {
				f.release(cached)
			}
			require.NoError(t, f.hold(t.Context(), cached), "without a client, as in the commands")
			f.start(kube.CoreV1())
			for range 3 {
				require.NoError(t, f.hold(t.Context(), cached))
			}
			assert.Len(t, kube.Actions(), c.patches)
			now, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			assert.ElementsMatch(t, c.want, now.Finalizers)
		})
	}
	f := &finalizers{}
	f.start(fake.NewSimpleClientset().CoreV1())
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", Finalizers: with}}
	f.release(gone)
	for range 2 {
		require.ErrorContains(t, f.hold(t.Context(), gone), "keeping the finalizer on Service default/web before anything is made for it")
	}
}

// TestReleasesAreForgotten: what no cache shows any more is not remembered, nor is what never comes back.
func TestReleasesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &finalizers{}
		f.release(serviceNamed("web"))
		deleted := serviceNamed("deleted")
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		f.release(deleted)
		served := serviceNamed("served")
		served.Spec.Type = v1.ServiceTypeLoadBalancer
		f.release(served) // an update of its nodes has failed
		time.Sleep(releasedMaxAge + time.Second)
		f.release(serviceNamed("other"))
		assert.Equal(t, []types.UID{"other"}, slices.Collect(maps.Keys(f.released)))
	})
}

// TestNothingIsMadeWithoutAFinalizer: where the API server does not put it on, the provider is not called.
func TestNothingIsMadeWithoutAFinalizer(t *testing.T) {
	t.Parallel()
	c := guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) {
		assert.Fail(t, "the provider was called")
		return &v1.LoadBalancerStatus{}, nil
	}})
	c.loadBalancers.finalizers.start(fake.NewSimpleClientset().CoreV1())
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "1", Finalizers: []string{servicehelper.LoadBalancerCleanupFinalizer},
	}}
	_, _, err := c.loadBalancers.GetLoadBalancer(t.Context(), "c", service)
	require.NoError(t, err)
	_, err = c.loadBalancers.EnsureLoadBalancer(t.Context(), "c", service, nil)
	require.ErrorContains(t, err, "keeping the finalizer on Service default/web")
}
