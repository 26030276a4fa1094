package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"
)

// releasedMaxAge is how long a cache may still show a finalizer that was removed.
const releasedMaxAge = time.Hour

// finalizers keeps the framework's finalizer on Services that get a load balancer.
type finalizers struct {
	mu       sync.Mutex
	services corev1.ServicesGetter
	// released holds Services whose finalizer the framework may have removed, with the time just before.
	released map[types.UID]time.Time
}

func (f *finalizers) start(services corev1.ServicesGetter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = services
}

// release records that the framework is about to remove the finalizer of a Service, which needs no load balancer now, but may later.
func (f *finalizers) release(service *v1.Service) {
	wants := service.Spec.Type == v1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil
	if wants || service.DeletionTimestamp != nil {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released == nil {
		f.released = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(f.released, func(_ types.UID, at time.Time) bool { return now.Sub(at) > releasedMaxAge })
	f.released[service.UID] = now
}

// hold makes the API server add the finalizer to a Service from which the framework has just removed it. The framework may not, because its
// outdated cache still shows it. Without the finalizer, the framework would not notice the Service's deletion, and the load balancer would
// stay.
func (f *finalizers) hold(ctx context.Context, service *v1.Service) error {
	f.mu.Lock()
	services := f.services
	at, released := f.released[service.UID]
	f.mu.Unlock()
	if services == nil || !released || !servicehelper.HasLBFinalizer(service) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": service.UID, "finalizers": []string{servicehelper.LoadBalancerCleanupFinalizer},
	}})
	if err != nil {
		return err
	}
	_, err = services.Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("keeping the finalizer on Service %s before anything is made for it: %w", serviceName(service), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released[service.UID].Equal(at) {
		delete(f.released, service.UID)
	}
	return nil
}
