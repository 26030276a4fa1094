package services

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotate writes changed annotations on the Service of a request; nil removes one. The request's copy keeps the annotations that were
// translated from portable ones: the stored Service lacks them.
func Annotate(ctx context.Context, kube kubernetes.Interface, req *Request, changes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": req.Service.UID, "annotations": changes}})
	if err != nil {
		return err
	}
	client := kube.CoreV1().Services(req.Service.Namespace)
	stored, err := client.Patch(ctx, req.Service.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	updated := req.Service.DeepCopy()
	updated.ResourceVersion = stored.ResourceVersion
	for key, value := range changes {
		if text, set := value.(string); set {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, text)
		} else {
			delete(updated.Annotations, key)
		}
	}
	req.Service = updated
	return nil
}
