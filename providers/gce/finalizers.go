package gce

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Finalizers and a condition of Services, as Google's own controllers write them.

// objectService starts the object name of changes to the Service itself.
const objectService = "Service "

// conditionPorts is Kubernetes' condition for Services whose ports have several protocols.
const (
	conditionPorts = v1.LoadBalancerPortsError
	messageMixed   = "LoadBalancer with multiple protocols are not supported"
)

// finalizerChanges add or remove one of Google's finalizers, which tell its other controllers who serves the Service. plan omits them,
// because they do not change the cloud.
func (r *reconciler) finalizerChanges(req services.Request, name string, on bool) []change {
	if slices.Contains(req.Service.Finalizers, name) == on || req.Purpose == services.Plan {
		return nil
	}
	detail := "finalizer " + name
	if !on {
		detail = "without " + detail
	}
	write := func(ctx context.Context, req *services.Request, _ *observed) error {
		s := req.Service.DeepCopy()
		meta := map[string]any{"$deleteFromPrimitiveList/finalizers": []string{name}}
		s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == name })
		if on {
			meta = map[string]any{"finalizers": []string{name}}
			s.Finalizers = append(s.Finalizers, name)
		}
		err := r.patchService(ctx, s, "the finalizer "+name, meta, nil)
		if err == nil || !on && apierrors.IsNotFound(err) {
			req.Service, err = s, nil
		}
		return err
	}
	return []change{r.update(objectService+fullName(req.Service), detail, nil, nil, write)}
}

// arePortsRefused reports whether the Service's condition says that its ports cannot be served.
func arePortsRefused(service *v1.Service) bool {
	return slices.ContainsFunc(service.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == conditionPorts && c.Status == metav1.ConditionTrue
	})
}

// setPortsCondition sets the condition of a Service with several protocols, and removes it once they are corrected.
func (r *reconciler) setPortsCondition(ctx context.Context, service *v1.Service) error {
	mixed := hasMixedProtocols(service)
	if isLeftAlone(service, r.config) || mixed == arePortsRefused(service) {
		return nil
	}
	condition := map[string]any{"type": conditionPorts, "$patch": "delete"}
	if mixed {
		condition = map[string]any{
			"type": conditionPorts, "status": metav1.ConditionTrue, "reason": eventMixed, "message": messageMixed, "lastTransitionTime": metav1.Now(),
		}
	}
	err := r.patchService(ctx, service, "the condition "+conditionPorts, map[string]any{}, map[string]any{"conditions": []any{condition}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patchService writes parts of a Service's metadata and status.
func (r *reconciler) patchService(ctx context.Context, service *v1.Service, what string, metadata, status map[string]any) error {
	if r.kube == nil {
		return nil
	}
	metadata["uid"] = service.UID
	document := map[string]any{"metadata": metadata}
	if status != nil {
		document["status"] = status
	}
	patch, err := json.Marshal(document)
	if err == nil {
		_, err = r.kube.CoreV1().Services(service.Namespace).Patch(
			ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("writing %s: grant patch on services/status to the ServiceAccount of this program: %w", what, err)
	case err != nil:
		return fmt.Errorf("writing %s: %w", what, err)
	}
	return nil
}
