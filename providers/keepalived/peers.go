package keepalived

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file selects the nodes on which keepalived announces addresses.

// peer is a node that may hold the addresses.
type peer struct {
	name    string
	address netip.Addr
}

// excludedNode is a node that may not hold addresses, with the reason.
type excludedNode struct {
	node *v1.Node
	why  string
}

// peersOf returns the nodes that may hold addresses, by name. Each has its own internal address in the first announced address's family. Of
// two nodes with the same one, the older keeps it: a kubelet can report any address, but cannot change its Node's age. Announced addresses
// are ignored, because kubelets may report them.
func peersOf(nodes []*v1.Node, announced []netip.Addr) (peers []peer, left []excludedNode) {
	v6 := len(announced) > 0 && announced[0].Is6()
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *v1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	owners := map[netip.Addr]string{}
	for _, n := range nodes {
		at := slices.IndexFunc(n.Status.Addresses, func(a v1.NodeAddress) bool {
			ip := parseAddress(a.Address)
			return a.Type == v1.NodeInternalIP && ip.IsValid() && ip.Is6() == v6 && unusableReason(ip) == "" && !ip.IsUnspecified() &&
				!slices.Contains(announced, ip)
		})
		if at < 0 {
			left = append(left, excludedNode{n, fmt.Sprintf("it has no address of type InternalIP and family %s of its own", familyName(v6))})
			continue
		}
		address := parseAddress(n.Status.Addresses[at].Address)
		if other, taken := owners[address]; taken {
			left = append(left, excludedNode{n, fmt.Sprintf("Node %s, which is older, has its InternalIP %s as well", other, address)})
			continue
		}
		owners[address] = n.Name
		peers = append(peers, peer{n.Name, address})
	}
	slices.SortFunc(peers, func(a, b peer) int { return cmp.Compare(a.name, b.name) })
	return peers, left
}

// allNodes returns the nodes of the cluster. A command has no cache of them.
func (r *reconciler) allNodes(ctx context.Context) ([]*v1.Node, error) {
	r.mu.Lock()
	l, client := r.nodes, r.kube
	r.mu.Unlock()
	if l != nil {
		return l.List(labels.Everything())
	}
	if client == nil {
		return nil, nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, kubeError(err, "listing Nodes")
	}
	all := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// announcingNodes returns the nodes on which keepalived runs.
func (r *reconciler) announcingNodes(ctx context.Context) ([]*v1.Node, error) {
	all, err := r.allNodes(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(n *v1.Node) bool {
		return r.config.nodes != nil && !r.config.nodes.Matches(labels.Set(n.Labels))
	}), err
}

// reportExcluded writes an event on each node that cannot hold addresses, once for each reason.
func (r *reconciler) reportExcluded(nodes []*v1.Node, announced []netip.Addr) {
	_, left := peersOf(nodes, announced)
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.left
	r.left = map[string]string{}
	for _, l := range left {
		if contract.Uninitialized(l.node) {
			continue // it has no addresses yet
		}
		r.left[l.node.Name] = l.why
		if before[l.node.Name] != l.why && r.events != nil {
			r.events.Eventf(l.node, v1.EventTypeWarning, eventNodeLeftOut, "keepalived announces no address on this Node: %s", l.why)
		}
	}
}
