package linode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// annotationClaim is the pod range that a release is about to give to a Node. Two releases that serve one cluster, each with
// a --node-selector of its own, see each other's claims; the API server itself would let both give the same range.
const annotationClaim = "anyccm.io/linode-pod-range-claim"

// patience is how many runs a claim waits for another one to go before it gives way: its owner may have ended in between.
const claimPatience = 3

// errContested: two releases want one range. It is tried again.
var errContested = errors.New("another release of this program claims the same pod range at this moment; it is tried again")

// heldBy returns the ranges that a Node has or that are claimed for it.
func heldBy(node *v1.Node) []netip.Prefix {
	var held []netip.Prefix
	for _, text := range append([]string{node.Annotations[annotationClaim]}, node.Spec.PodCIDRs...) {
		if p, err := netip.ParsePrefix(text); err == nil {
			held = append(held, p.Masked())
		}
	}
	return held
}

// claim tells other releases what a Node is going to get. The block stays this Node's until it has another one.
func (a *ipam) claim(ctx context.Context, c choice) error {
	a.given[c.node.UID] = grant{block: c.block}
	if c.node.Annotations[annotationClaim] == c.block.String() {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.node.UID, "annotations": map[string]string{annotationClaim: c.block.String()}},
	})
	if err != nil {
		return fmt.Errorf("encoding its claim: %w", err)
	}
	if _, err := a.kube.CoreV1().Nodes().Patch(ctx, c.node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("claiming its pod range: %w", err)
	}
	return nil
}

// contested returns an error if another Node has the range, or a claim to it, of those that were listed after ours was
// written. The Node with the smaller UID insists for a while, so that not both give way to each other for ever; but it, too,
// gets the range only once nobody else wants it.
func (a *ipam) contested(c choice, all []*v1.Node) error {
	if !a.shared {
		return nil
	}
	for _, other := range all {
		if other.UID == c.node.UID {
			continue
		}
		for _, p := range heldBy(other) {
			if !p.Overlaps(c.block) {
				continue
			}
			a.blocked[c.node.UID]++
			if len(other.Spec.PodCIDRs) > 0 || c.node.UID > other.UID || a.blocked[c.node.UID] >= claimPatience {
				delete(a.given, c.node.UID)
				delete(a.blocked, c.node.UID)
			}
			klog.InfoS("Another release claims the same pod range", "node", c.node.Name, "other", other.Name, "range", c.block.String())
			return errContested
		}
	}
	return nil
}
