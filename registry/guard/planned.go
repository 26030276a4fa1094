package guard

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// isAnnouncement reports whether a taint or annotation is used by a common program to mark a Node whose instance it is about to remove. It
// is called for all keys of all Nodes.
func isAnnouncement(key string) bool {
	switch key {
	case contract.TaintToBeDeleted, "karpenter.sh/disrupted", "karpenter.sh/disruption", v1.TaintNodeOutOfService:
		return true
	}
	return false
}

// isAnnounced reports whether the removal of this Node was announced. A kubelet can write annotations of its own Node, so this never
// replaces the proof that the instance is gone; it only shows that the loss is no accident.
func (p Policy) isAnnounced(node *v1.Node) bool {
	marks := func(key string) bool {
		return isAnnouncement(key) || slices.Contains(p.PlannedKeys, key)
	}
	if node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return marks(t.Key) }) {
		return true
	}
	for key := range node.Annotations {
		if marks(key) {
			return true
		}
	}
	return false
}

// isReady reports whether a Node's Ready condition is true.
func isReady(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}
