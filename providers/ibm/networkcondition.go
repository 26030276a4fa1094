package ibm

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// cniOVNKubernetes is the network plug-in that does not use the condition.
const cniOVNKubernetes = "OVNKubernetes"

// markNetworkUnavailable gives an uninitialised node the condition NetworkUnavailable, which its network plug-in, such as Calico, removes.
// The resource version protects concurrent changes of the plug-in.
func (i *instances) markNetworkUnavailable(ctx context.Context, node *v1.Node) error {
	if !i.config.NetworkUnavailable || i.config.CNI == cniOVNKubernetes || i.kube == nil || !lacksNetworkCondition(node) {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := i.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || !lacksNetworkCondition(now) {
			return err
		}
		stamp := metav1.Now()
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": now.ResourceVersion},
			"status": map[string]any{"conditions": []v1.NodeCondition{{
				Type: v1.NodeNetworkUnavailable, Status: v1.ConditionTrue, Reason: "No CNI present",
				Message: "There is no active CNI present on the node", LastTransitionTime: stamp, LastHeartbeatTime: stamp,
			}}},
		})
		if err != nil {
			return err
		}
		_, err = i.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil {
		return fmt.Errorf("marking the network of node %s as unavailable: %w", node.Name, err)
	}
	return nil
}

// lacksNetworkCondition reports whether a node is uninitialised and lacks the condition.
func lacksNetworkCondition(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider }) &&
		!slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeNetworkUnavailable })
}
