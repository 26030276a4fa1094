// Package podranges assigns pod ranges to nodes: blocks of the cluster's networks, or ranges that the cloud has assigned to their
// instances.
package podranges

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
)

const (
	period  = 5 * time.Minute
	timeout = 2 * time.Minute
)

// ErrNoFreeRange means that every block of a network of the cluster is taken.
var ErrNoFreeRange = errors.New("no pod range is free in --cluster-cidr; remove nodes, or use a longer node CIDR mask in a new cluster")

// NotAvailable is the error of a node whose instance has no range, until it is given one in the cloud.
type NotAvailable struct{ Reason string }

func (e *NotAvailable) Error() string { return e.Reason }

// Family is the source of the ranges of one address family: Network or Of.
type Family struct {
	// Network is divided into blocks of Bits, one for each node.
	Network netip.Prefix
	Bits    int
	// Of returns the range that the cloud has assigned to the instance of a node; expected is how many nodes are processed in a row. A
	// missing range is NotAvailable.
	Of func(ctx context.Context, node *v1.Node, expected int) (netip.Prefix, error)
}

// Settings say which ranges nodes get.
type Settings struct {
	// Families are in the order in which a node gets its ranges.
	Families []Family
	// Excluded returns networks that must not be used for pods; nil if there are none.
	Excluded func(context.Context) ([]netip.Prefix, error)
	// Ours reports whether a Node is ready to get ranges, such as by its provider ID.
	Ours func(*v1.Node) bool
	// Shared is set if another release may assign ranges of the same network; each then claims a range, by the annotation Claim, before it
	// assigns it.
	Shared bool
	Claim  string
	// Networked is set if the cloud routes the ranges by itself, so that the condition NetworkUnavailable is cleared for a node with
	// ranges.
	Networked bool
}

// Controller assigns pod ranges to nodes. Used ranges are read from the Nodes at each run, so that none can leak: a range is used from when
// it is written on a Node until no Node has it. All Nodes of the cluster count, including those of other releases or clouds; they are read
// from the API server, because the informer may hold ours alone. A Node that has a range keeps it.
type Controller struct {
	Settings

	Kube   kubernetes.Interface
	Events record.EventRecorder
	Nodes  listers.NodeLister

	// blocked counts how often a Node's claim met a conflicting one.
	blocked map[types.UID]int
	// grants are ranges that the cache may not show yet. A failed write may have taken effect: its ranges stay reserved for that node.
	grants map[types.UID]grant
	// listed is set after the first consistent read from the API server.
	listed bool
	// reported are the Nodes whose shared range was already reported.
	reported map[types.UID]bool
}

type grant struct {
	ranges  []netip.Prefix
	written bool
}

// New returns a controller, which needs its fields Kube, Events and Nodes.
func New(s Settings) *Controller {
	return &Controller{Settings: s, grants: map[types.UID]grant{}, blocked: map[types.UID]int{}, reported: map[types.UID]bool{}}
}

// Job returns the controller's job, which should also run when a Node changes.
func (a *Controller) Job() loop.Job {
	return loop.Job{Name: "node-ipam", Period: period, Spacing: time.Second, Timeout: timeout, Run: a.Run}
}

// Run assigns ranges to all Nodes that wait for them. One Node that cannot get any does not delay the others.
func (a *Controller) Run(ctx context.Context) error {
	ours, err := a.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(ours, func(x, y *v1.Node) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
	})
	a.reportConflicts(ours)
	networked := a.writeConditions(ctx, ours)
	waiting := a.waitingNodes(ours)
	if len(waiting) == 0 {
		a.forget(ours)
		return networked
	}
	all, err := a.everyNode(ctx)
	if err != nil {
		return errors.Join(networked, err)
	}
	a.reportConflicts(all)
	waiting = slices.DeleteFunc(waiting, func(n *v1.Node) bool { return hasRangesNow(all, n.UID) })
	return errors.Join(networked, a.serve(ctx, waiting, append(all, ours...)))
}

// serve chooses and assigns ranges for the Nodes that wait.
func (a *Controller) serve(ctx context.Context, waiting, all []*v1.Node) error {
	var excluded []netip.Prefix
	var err error
	if a.Excluded != nil {
		if excluded, err = a.Excluded(ctx); err != nil {
			return err
		}
	}
	a.forget(all)
	taken := a.takenRanges(all)
	var failures []error
	fail := func(node *v1.Node, err error) {
		if err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
		}
	}
	var chosen []choice
	for _, node := range waiting {
		c, err := a.choose(ctx, node, taken, excluded, len(waiting))
		if err == nil && a.Shared {
			err = a.claim(ctx, c)
		}
		if err == nil {
			chosen = append(chosen, c)
		}
		fail(node, err)
	}
	if a.Shared && len(chosen) > 0 {
		// A claim without a visible conflict wins: of two claims the owner of the later one sees the earlier.
		if all, err = a.everyNode(ctx); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	for _, c := range chosen {
		if err := a.checkContested(c, all); err != nil {
			fail(c.node, err)
			continue
		}
		fail(c.node, a.assign(ctx, c))
	}
	return errors.Join(failures...)
}

// everyNode lists all Nodes of the cluster. If another release writes too, the read must be consistent; so must the first one: the former
// leader may have assigned a range a moment ago, which the API server's cache does not show yet.
func (a *Controller) everyNode(ctx context.Context) ([]*v1.Node, error) {
	o := metav1.ListOptions{ResourceVersion: "0"}
	if a.Shared || !a.listed {
		o.ResourceVersion = ""
	}
	list, err := a.Kube.CoreV1().Nodes().List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("listing all nodes of the cluster: %w", err)
	}
	a.listed = true
	all := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// hasRanges reports whether a Node has ranges, which never change.
func hasRanges(n *v1.Node) bool { return n.Spec.PodCIDR != "" || len(n.Spec.PodCIDRs) > 0 }

// hasRangesNow reports whether a Node has its ranges by now.
func hasRangesNow(all []*v1.Node, uid types.UID) bool {
	return slices.ContainsFunc(all, func(n *v1.Node) bool { return n.UID == uid && hasRanges(n) })
}

// waitingNodes returns the Nodes that wait for ranges.
func (a *Controller) waitingNodes(ours []*v1.Node) []*v1.Node {
	var waiting []*v1.Node
	for _, node := range ours {
		if !hasRanges(node) && node.DeletionTimestamp == nil && a.Ours(node) && !a.grants[node.UID].written {
			waiting = append(waiting, node)
		}
	}
	return waiting
}

// forget drops the notes about Nodes that show their ranges, or that are gone.
func (a *Controller) forget(all []*v1.Node) {
	waits := map[types.UID]bool{}
	for _, node := range all {
		waits[node.UID] = true
	}
	for _, node := range all {
		if hasRanges(node) {
			delete(waits, node.UID)
		}
	}
	for uid := range a.grants {
		if !waits[uid] {
			delete(a.grants, uid)
			delete(a.blocked, uid)
		}
	}
}

// assign writes ranges on a Node, and removes the claim in the same write. The API server refuses it if the Node has others by now.
func (a *Controller) assign(ctx context.Context, c choice) error {
	node := c.node
	ranges := texts(c.ranges)
	meta := map[string]any{"uid": node.UID}
	if a.Shared {
		meta["annotations"] = map[string]any{a.Claim: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}})
	if err != nil {
		return fmt.Errorf("encoding its pod ranges: %w", err)
	}
	a.grants[node.UID] = grant{ranges: c.ranges}
	klog.InfoS("Giving a node its pod ranges", "node", node.Name, "ranges", ranges)
	_, err = a.Kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		delete(a.grants, node.UID)
		return nil // the Node was deleted and needs no range
	}
	if err != nil {
		a.sendEvent(node, EventFailed, err)
		return fmt.Errorf("writing its pod ranges: %w", err)
	}
	a.grants[node.UID] = grant{ranges: c.ranges, written: true}
	return a.writeCondition(ctx, node)
}

func texts(ranges []netip.Prefix) []string {
	all := make([]string, len(ranges))
	for i, p := range ranges {
		all[i] = p.String()
	}
	return all
}

func (a *Controller) sendEvent(node *v1.Node, reason string, err error) {
	if a.Events != nil {
		a.Events.Event(node, v1.EventTypeWarning, reason, err.Error())
	}
}
