package podranges

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Claims are annotations with the pod ranges that a release is about to assign to a Node. Two releases that serve one cluster, each with
// its own --node-selector, see each other's claims, even for different clouds; the API server itself would allow both to assign the same
// range.
const (
	claimPrefix = "anyccm.io/"
	claimSuffix = "-pod-range-claim"

	// claimPatience is for how many runs a claim waits for a conflicting one before it is withdrawn: the other owner may have ended in
	// between.
	claimPatience = 3
)

// Claim returns the annotation with which a cloud claims ranges.
func Claim(cloud string) string { return claimPrefix + cloud + claimSuffix }

// errContested: two releases claim one range. It is retried.
var errContested = errors.New("another release of this program claims the same pod range at this moment; it is tried again")

// heldBy returns the ranges that a Node has or claims.
func heldBy(node *v1.Node) []netip.Prefix {
	list := append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...)
	for key, value := range node.Annotations {
		if strings.HasPrefix(key, claimPrefix) && strings.HasSuffix(key, claimSuffix) {
			list = append(list, strings.Split(value, ",")...)
		}
	}
	var held []netip.Prefix
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			held = append(held, p.Masked())
		}
	}
	return held
}

// claimedRanges returns the ranges of a choice that another release could assign as well: those of the cluster's networks.
func (a *Controller) claimedRanges(c choice) (blocks []netip.Prefix) {
	for i, f := range a.Families {
		if f.Of == nil {
			blocks = append(blocks, c.ranges[i])
		}
	}
	return blocks
}

// claim announces a Node's chosen ranges to other releases. They stay reserved for this Node until it has others.
func (a *Controller) claim(ctx context.Context, c choice) error {
	text := strings.Join(texts(a.claimedRanges(c)), ",")
	if text == "" {
		return nil
	}
	a.grants[c.node.UID] = grant{ranges: c.ranges}
	if c.node.Annotations[a.Claim] == text {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.node.UID, "annotations": map[string]string{a.Claim: text}},
	})
	if err != nil {
		return fmt.Errorf("encoding its claim: %w", err)
	}
	if _, err := a.Kube.CoreV1().Nodes().Patch(ctx, c.node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("claiming its pod range: %w", err)
	}
	return nil
}

// checkContested returns an error if another Node in the list, read after our claim was written, has or claims a range. The Node with the
// smaller UID keeps its claim for a while, so that not both withdraw for ever; but it, too, gets the range only when no other claim exists.
func (a *Controller) checkContested(c choice, all []*v1.Node) error {
	if !a.Shared {
		return nil
	}
	for _, other := range all {
		if other.UID == c.node.UID {
			continue
		}
		p, meets := overlapping(heldBy(other), a.claimedRanges(c))
		if !meets {
			continue
		}
		a.blocked[c.node.UID]++
		if hasRanges(other) || c.node.UID > other.UID || a.blocked[c.node.UID] >= claimPatience {
			delete(a.grants, c.node.UID)
			delete(a.blocked, c.node.UID)
		}
		klog.InfoS("Another release claims the same pod range", "node", c.node.Name, "other", other.Name, "range", p.String())
		return errContested
	}
	return nil
}

// overlapping returns a range of one list that overlaps a range of the other.
func overlapping(some, others []netip.Prefix) (netip.Prefix, bool) {
	for _, p := range some {
		if slices.ContainsFunc(others, p.Overlaps) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
