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
)

// conditionPorts is Kubernetes' condition for Services whose ports have several protocols.
const (
	conditionPorts = v1.LoadBalancerPortsError
	messageMixed   = "LoadBalancer with multiple protocols are not supported"
)

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. It also updates the condition of the Service's ports.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	if err := l.reconciler.setPortsCondition(ctx, service); err != nil {
		return nil, err
	}
	return l.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes) //nolint:wrapcheck // it is the same call
}

// arePortsRefused reports whether the Service's condition says that its ports cannot be served.
func arePortsRefused(service *v1.Service) bool {
	return slices.ContainsFunc(service.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == conditionPorts && c.Status == metav1.ConditionTrue
	})
}

// setPortsCondition sets the condition of a Service with several protocols, and removes it once they are corrected.
func (b *reconciler) setPortsCondition(ctx context.Context, service *v1.Service) error {
	is := hasMixedProtocols(service)
	if isLeftAlone(service, b.config) || is == arePortsRefused(service) || b.kube == nil {
		return nil
	}
	condition := map[string]any{"type": conditionPorts, "$patch": "delete"}
	if is {
		condition = map[string]any{
			"type": conditionPorts, "status": metav1.ConditionTrue, "reason": eventMixed, "message": messageMixed, "lastTransitionTime": metav1.Now(),
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": service.UID}, "status": map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return fmt.Errorf("writing the condition %s: %w", conditionPorts, err)
	}
	_, err = b.kube.CoreV1().Services(service.Namespace).Patch(
		ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("writing the condition %s: grant patch on services/status to the ServiceAccount of this program: %w", conditionPorts, err)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("writing the condition %s: %w", conditionPorts, err)
	}
	return nil
}
