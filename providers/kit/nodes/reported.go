package nodes

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Reported implements cloudprovider.InstancesV2 for clusters where no cloud knows more about nodes than kubelets report: it removes the
// taint of kubelets with --cloud-provider=external. It never reports a Node as deleted or shut down.
type Reported struct {
	// Prefix is the beginning of the provider IDs for Nodes without one; the Node's name follows.
	Prefix string
}

var _ cloudprovider.InstancesV2 = Reported{}

// InstanceExists implements cloudprovider.InstancesV2.
func (Reported) InstanceExists(context.Context, *v1.Node) (bool, error) { return true, nil }

// InstanceShutdown implements cloudprovider.InstancesV2.
func (Reported) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }

// InstanceMetadata implements cloudprovider.InstancesV2. A Node with another cloud's ID is left to that cloud's controller.
func (r Reported) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	id := node.Spec.ProviderID
	switch {
	case id == "":
		id = r.Prefix + node.Name
	case contract.Uninitialized(node) && !strings.HasPrefix(id, r.Prefix):
		return nil, fmt.Errorf("its provider ID %s is another cloud's, whose controller initialises the Node; this program takes only Nodes without one", id)
	}
	return &cloudprovider.InstanceMetadata{ProviderID: id, NodeAddresses: reportedAddresses(node)}, nil
}

// reportedAddresses returns the addresses that kubelet reports, or, if it reports only its name, those from --node-ip.
func reportedAddresses(node *v1.Node) []v1.NodeAddress {
	all := slices.Clone(node.Status.Addresses)
	has := func(kind v1.NodeAddressType) bool {
		return slices.ContainsFunc(all, func(a v1.NodeAddress) bool { return a.Type == kind })
	}
	if has(v1.NodeInternalIP) {
		return all
	}
	var given []v1.NodeAddress
	for text := range strings.SplitSeq(node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && !a.IsUnspecified() {
			given = append(given, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a.String()})
		}
	}
	if !has(v1.NodeHostName) {
		all = append(all, v1.NodeAddress{Type: v1.NodeHostName, Address: node.Name})
	}
	return append(given, all...)
}
