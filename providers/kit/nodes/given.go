package nodes

import (
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// Given returns the addresses from kubelet's --node-ip.
func Given(node *v1.Node) []netip.Addr {
	var all []netip.Addr
	for text := range strings.SplitSeq(node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], ",") {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			all = append(all, ip)
		}
	}
	return all
}

// GivenFirst returns the addresses of an instance with those from kubelet's --node-ip first, or one of the latter that the instance lacks.
func GivenFirst(node *v1.Node, has []netip.Addr) (ordered []netip.Addr, lacks netip.Addr) {
	ordered = slices.Clone(has)
	for i, ip := range Given(node) {
		at := slices.Index(ordered, ip)
		if at < 0 {
			return nil, ip
		}
		ordered = slices.Insert(slices.Delete(ordered, at, at+1), min(i, len(ordered)-1), ip)
	}
	return ordered, netip.Addr{}
}
