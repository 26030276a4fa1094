package services

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotate writes changed annotations on a Service, where nil removes one, and returns it as it is then; the given one after an error.
// It keeps the annotations that were translated from portable ones: the stored Service lacks them.
func Annotate(ctx context.Context, kube kubernetes.Interface, service *v1.Service, changes map[string]any) (*v1.Service, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return service, err
	}
	stored, err := kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return service, err
	}
	updated := service.DeepCopy()
	updated.ResourceVersion = stored.ResourceVersion
	for key, value := range changes {
		if text, set := value.(string); set {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, text)
		} else {
			delete(updated.Annotations, key)
		}
	}
	return updated, nil
}
