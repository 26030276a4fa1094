package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// WithAddresses returns those nodes that have an instance, with the addresses that it confirms (Vouched), which may be as old as maxAge.
// The error is about a read, and never means that an instance is gone.
func (i *Instances[ID, T]) WithAddresses(ctx context.Context, list []*v1.Node, maxAge time.Duration) (confirmed []*v1.Node, err error) {
	query := inventory.Query{MaxAge: maxAge, MaxMissAge: MissMaxAge, Expected: i.cloud.Nodes.Counts().All}
	for _, n := range list {
		m, err := i.Describe(ctx, n, query)
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue // the Node may outlive its instance
		}
		if err != nil {
			return nil, fmt.Errorf("finding the addresses of node %s: %w", n.Name, err)
		}
		with := *n
		with.Status.Addresses = Vouched(n.Status.Addresses, m.NodeAddresses)
		confirmed = append(confirmed, &with)
	}
	return confirmed, nil
}

// Vouched returns the addresses of a node that its instance confirms: those that the Node reports and its instance has, in the Node's
// order, then the others of the instance. Addresses that only the Node reports are left out, because anybody who controls a kubelet can
// write them. A new Node reports none yet, and the framework does not ask again.
func Vouched(told, has []v1.NodeAddress) []v1.NodeAddress {
	list := []v1.NodeAddress{}
	for _, a := range told {
		ip, err := netip.ParseAddr(a.Address)
		if err == nil && slices.ContainsFunc(has, func(h v1.NodeAddress) bool { return isAddress(h, ip) }) {
			list = append(list, a)
		}
	}
	for _, h := range has {
		ip, err := netip.ParseAddr(h.Address)
		if err == nil && !slices.ContainsFunc(list, func(a v1.NodeAddress) bool { return a.Type == h.Type && isAddress(a, ip) }) {
			list = append(list, h)
		}
	}
	return list
}

func isAddress(a v1.NodeAddress, ip netip.Addr) bool {
	parsed, err := netip.ParseAddr(a.Address)
	return err == nil && parsed == ip
}
