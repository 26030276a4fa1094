package guard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	servicehelper "k8s.io/cloud-provider/service/helpers"
)

// TestFinalizerIsHeld: a cache that still shows the finalizer which was just removed does not lead to a load balancer without one.
func TestFinalizerIsHeld(t *testing.T) {
	t.Parallel()
	with := []string{servicehelper.LoadBalancerCleanupFinalizer}
	served := v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}}
	for name, c := range map[string]struct {
		cached  v1.Service
		stored  []string
		want    []string
		patches int
	}{
		"removed a moment ago":     {cached: v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: with}}, want: with, patches: 1},
		"there":                    {cached: v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: with}}, stored: with, want: with, patches: 1},
		"put on by the framework":  {cached: v1.Service{}, stored: with, want: with},
		"a Service that is served": {cached: v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: with}, Status: served}, stored: with, want: with},
		"another one is there": {
			cached: v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: with}}, stored: []string{"example.com/x"},
			want: append([]string{"example.com/x"}, with...), patches: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", Finalizers: c.stored}}
			kube := fake.NewSimpleClientset(stored)
			f := &finalizers{}
			cached := c.cached.DeepCopy()
			cached.Name, cached.Namespace, cached.UID = "web", "default", "1"
			require.NoError(t, f.hold(t.Context(), cached), "without a client, as in the commands")
			f.start(kube.CoreV1())
			require.NoError(t, f.hold(t.Context(), cached))
			assert.Len(t, kube.Actions(), c.patches)
			now, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			assert.ElementsMatch(t, c.want, now.Finalizers)
		})
	}
	f := &finalizers{}
	f.start(fake.NewSimpleClientset().CoreV1())
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", Finalizers: with}}
	require.ErrorContains(t, f.hold(t.Context(), gone), "keeping the finalizer on Service default/web before anything is made for it")
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
	_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "c", service, nil)
	require.ErrorContains(t, err, "keeping the finalizer on Service default/web")
}
