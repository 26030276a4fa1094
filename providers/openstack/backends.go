package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
)

// backend is a node as a load balancer reaches it.
type backend struct {
	name, address string
	// serverID is empty for a node of another cloud.
	serverID string
}

// backends returns the nodes that a Service's members are, sorted by name. A node without an address is left out and holds
// nobody else up; doubt about one is an error: a member is never dropped because a read failed.
func (l *loadBalancers) backends(ctx context.Context, service *v1.Service, nodes []*v1.Node, s settings) ([]backend, error) {
	var list []backend
	for _, n := range nodes {
		if !selected(n, s) {
			continue
		}
		address, err := l.addressOf(ctx, n, familyOf(service))
		if err != nil {
			return nil, err
		}
		if address == "" {
			klog.V(2).InfoS("Leaving a node without a usable address out of load balancers", "node", n.Name)
			continue
		}
		id, _ := l.config.parseProviderID(n.Spec.ProviderID) // nodes of another cloud may be members, too
		list = append(list, backend{n.Name, address, id})
	}
	slices.SortFunc(list, func(a, b backend) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// addressOf prefers what the Node tells, and asks the cloud where it does not tell yet: the framework does not come back
// for addresses.
func (l *loadBalancers) addressOf(ctx context.Context, node *v1.Node, family v1.IPFamily) (string, error) {
	if told := nodeAddressFor(node.Status.Addresses, family); told != "" {
		return told, nil
	}
	if _, err := l.config.parseProviderID(node.Spec.ProviderID); err != nil {
		return "", nil //nolint:nilerr // another cloud's node, about which nobody can be asked here
	}
	m, err := l.instances.metadata(ctx, node, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: l.instances.nodes.Counts().All})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil // its Node may be kept for a while; nothing answers there
	case err != nil:
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, err)
	}
	return nodeAddressFor(m.NodeAddresses, family), nil
}
