package podranges

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of events on Nodes. The first two are those of Kubernetes' own allocators.
const (
	EventNone     = "CIDRNotAvailable"
	EventFailed   = "CIDRAssignmentFailed"
	EventConflict = "PodCIDRConflict"
)

// The condition that Kubernetes' own allocators write for a node whose ranges the cloud routes by itself.
const (
	conditionReason  = "RouteCreated"
	conditionMessage = "NodeController create implicit route"
)

// conflict is a range of a Node that an older Node has as well.
type conflict struct {
	node, older *v1.Node
	block       netip.Prefix
}

// conflicts finds the Nodes that share addresses with an older Node.
func conflicts(all []*v1.Node) (found []conflict) {
	type held struct {
		node  *v1.Node
		block netip.Prefix
	}
	var list []held
	for _, node := range all {
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				list = append(list, held{node, p.Masked()})
			}
		}
	}
	// A network comes right before its subnets.
	slices.SortFunc(list, func(x, y held) int {
		return cmp.Or(x.block.Addr().Compare(y.block.Addr()), cmp.Compare(x.block.Bits(), y.block.Bits()),
			x.node.CreationTimestamp.Compare(y.node.CreationTimestamp.Time), cmp.Compare(x.node.Name, y.node.Name))
	})
	var widest held
	for _, h := range list {
		if widest.node != nil && widest.block.Overlaps(h.block) {
			if widest.node.UID != h.node.UID {
				younger, older := h.node, widest.node
				if younger.CreationTimestamp.Before(&older.CreationTimestamp) {
					younger, older = older, younger
				}
				found = append(found, conflict{younger, older, h.block})
			}
			continue
		}
		widest = h
	}
	return found
}

// reportConflicts reports once each Node whose range another one has as well. This program assigns none twice: another controller does at
// the same time, and no range can be removed from a Node.
func (a *Controller) reportConflicts(all []*v1.Node) {
	for _, c := range conflicts(all) {
		if a.reported[c.node.UID] {
			continue
		}
		a.reported[c.node.UID] = true
		a.sendEvent(c.node, EventConflict, fmt.Errorf(
			"its pod range %s is also that of node %s; delete this Node and let it register again, and see that nobody else gives ranges, "+
				"such as kube-controller-manager with --allocate-node-cidrs", c.block, c.older.Name))
	}
}

// writeConditions writes the condition of all Nodes with ranges.
func (a *Controller) writeConditions(ctx context.Context, ours []*v1.Node) error {
	var failures []error
	for _, node := range ours {
		if hasRanges(node) && node.DeletionTimestamp == nil && a.Ours(node) {
			if err := a.writeCondition(ctx, node); err != nil {
				failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
			}
		}
	}
	return errors.Join(failures...)
}

// writeCondition writes the condition of a Node whose ranges the cloud routes by itself, unless it is there already. Without it, the Node
// keeps a taint that no pod tolerates.
func (a *Controller) writeCondition(ctx context.Context, node *v1.Node) error {
	if !a.Networked || hasCondition(node) {
		return nil
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"conditions": []v1.NodeCondition{{
		Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: conditionReason, Message: conditionMessage,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}}})
	if err != nil {
		return fmt.Errorf("encoding its condition: %w", err)
	}
	_, err = a.Kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing its condition %s: %w", v1.NodeNetworkUnavailable, err)
	}
	return nil
}

// hasCondition reports whether a Node has the condition.
func hasCondition(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionFalse
	})
}
