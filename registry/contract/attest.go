package contract

import (
	"context"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// Attested holds facts about an instance from the cloud alone: neither the instance, nor its kubelet, nor its Node can write them.
type Attested struct {
	// Names are the instance's names at the cloud, and those that the cloud's own name service gives it.
	Names []string
	// Addresses are those of the instance alone, not of its pods.
	Addresses []netip.Addr
}

// AttestedAddresses parses addresses; other texts are left out.
func AttestedAddresses(texts ...string) []netip.Addr {
	list := []netip.Addr{}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// InstanceAttester is implemented by clouds that can vouch for an instance.
type InstanceAttester interface {
	// AttestInstance verifies the instance behind the Node's provider ID, as InstanceVerifier does, and returns what the cloud alone knows of
	// it, both by one read that is no older than the context demands (evidence.Demand). why says why there is nothing; an error is no verdict.
	AttestInstance(ctx context.Context, node *v1.Node) (a Attested, why string, err error)
}
