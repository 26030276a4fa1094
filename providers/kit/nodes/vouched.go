package nodes

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

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
