package openstack

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// withAnnotations returns the Service with changed annotations; "" removes one.
func withAnnotations(service *v1.Service, annotations map[string]string) *v1.Service {
	service = service.DeepCopy()
	for key, value := range annotations {
		if value == "" {
			delete(service.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, key, value)
	}
	return service
}

// record writes changed annotations on the Service, and updates the request's Service; "" removes one.
func (r *reconciler) record(ctx context.Context, req *services.Request, wanted map[string]string) error {
	changes := map[string]any{}
	for key, value := range wanted {
		switch have, present := req.Service.Annotations[key]; {
		case value == "" && present:
			changes[key] = nil
		case value != "" && have != value:
			changes[key] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if r.kube != nil {
		var err error
		if req.Service, err = services.Annotate(ctx, r.kube, req.Service, changes); err != nil {
			return fmt.Errorf("recording the load balancer on the Service: %w", err)
		}
	}
	req.Service = withAnnotations(req.Service, wanted)
	return nil
}
