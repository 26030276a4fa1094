package contract

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// Uninitialized reports whether a Node still has the taint of its cloud controller.
func Uninitialized(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// StandInPrefix begins the name of a stand-in for all Nodes. It contains a blank, which no name of a Node does.
const StandInPrefix = "all "

// StandsForAll reports whether a name is that of a stand-in for all Nodes.
func StandsForAll(name string) bool { return strings.HasPrefix(name, StandInPrefix) }

type sharedKey struct{}

// WithSharedNodes adds to an operation's context the list of Nodes that it shares with those on other Services.
func WithSharedNodes(ctx context.Context, nodes []*v1.Node) context.Context {
	return context.WithValue(ctx, sharedKey{}, nodes)
}

// SharedNodes reports whether nodes is the list shared by all Services, so that results computed from it can be shared too. It must not be
// changed.
func SharedNodes(ctx context.Context, nodes []*v1.Node) bool {
	shared, _ := ctx.Value(sharedKey{}).([]*v1.Node)
	return len(nodes) > 0 && len(shared) == len(nodes) && &shared[0] == &nodes[0]
}

type foreignKey struct{}

// WithForeignNodes adds to an operation's context that Nodes of the cluster have another cloud's provider ID.
func WithForeignNodes(ctx context.Context) context.Context {
	return context.WithValue(ctx, foreignKey{}, true)
}

// HasForeignNodes reports whether WithForeignNodes added that.
func HasForeignNodes(ctx context.Context) bool { return ctx.Value(foreignKey{}) != nil }

// MayReceive reports whether the framework makes a Node a backend of load balancers: it is not being deleted, not excluded by its
// label, and not about to be removed by Cluster Autoscaler.
func MayReceive(n *v1.Node) bool {
	if n.DeletionTimestamp != nil || !IsIncluded(n) {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Key == TaintToBeDeleted {
			return false
		}
	}
	return true
}

// IsIncluded reports whether the label of a Node lets it be a backend.
func IsIncluded(n *v1.Node) bool {
	text, labelled := n.Labels[v1.LabelNodeExcludeBalancers]
	if !labelled {
		return true
	}
	excluded, err := strconv.ParseBool(text)
	return err == nil && !excluded
}

// TaintToBeDeleted marks a Node that Cluster Autoscaler is about to remove.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// SelfRouter is implemented by the routes of clouds that route some ranges by themselves, such as one that belongs to a network interface.
// For such a range CreateRoute and DeleteRoute write nothing, so that it need not be inside --cluster-cidr.
type SelfRouter interface {
	// RoutesItself reports whether the cloud routes a range by itself.
	RoutesItself(network netip.Prefix) bool
}

// InstanceVerifier is implemented by clouds that can verify that the instance behind a Node's provider ID is the Node's: by its name or a
// mark of the cluster, but by nothing that a kubelet writes.
type InstanceVerifier interface {
	// VerifyInstance returns whether it is, and the reason if not. A fault of the instance or the ID is a refusal; an error is a temporary
	// failure and no verdict. Many Nodes are verified concurrently.
	VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error)
}
