package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"
)

// finalizers keeps the framework's finalizer on Services that get a load balancer.
type finalizers struct {
	mu       sync.Mutex
	services corev1.ServicesGetter
}

func (f *finalizers) start(services corev1.ServicesGetter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = services
}

// hold has the API server put the finalizer on a Service that is not served yet and seems to have it. The framework leaves that out by what
// its cache shows: of a Service whose type changes back right after its load balancer was deleted, that is the finalizer which the
// framework has just removed. Without it nothing tells the framework of the Service's deletion, and the load balancer stays for ever.
// Where the Service has it, the API server writes nothing.
func (f *finalizers) hold(ctx context.Context, service *v1.Service) error {
	f.mu.Lock()
	services := f.services
	f.mu.Unlock()
	if services == nil || !servicehelper.HasLBFinalizer(service) || len(service.Status.LoadBalancer.Ingress) > 0 {
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
		return fmt.Errorf("keeping the finalizer on Service %s before anything is made for it: %w", name(service), err)
	}
	return nil
}
