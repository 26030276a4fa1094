package linode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// reservedAddress is a reserved address as the API shows it; the SDK omits its owner.
type reservedAddress struct {
	Address  string          `json:"address"`
	Tags     []string        `json:"tags"`
	Assigned *assignedEntity `json:"assigned_entity"`
}

type assignedEntity struct {
	ID   int    `json:"id"`
	Type string `json:"type"`
}

func (a *api) reservedAddress(ctx context.Context, ip netip.Addr) (*reservedAddress, error) {
	return exchangeJSON(ctx, a, fmt.Sprintf("reading the reserved address %s", ip), http.MethodGet, "networking/reserved/ips/"+ip.String(), nil,
		func(r *reservedAddress) bool { return r.Address == ip.String() })
}

// reasonToKeep says why a reserved address is not released with a NodeBalancer, or "". This program reserves none. The owner of an address
// allows its release with the mark of the cluster; a Service alone cannot.
func reasonToKeep(r *reservedAddress, mark string, nodeBalancer int) string {
	switch {
	case mark == "":
		return "the identity of the cluster is unknown, so that it cannot be told whether it may be released"
	case !slices.Contains(r.Tags, mark):
		return fmt.Sprintf("no controller reserved it; release it by hand, or give an address that may go with its Service the tag %s", mark)
	case r.Assigned == nil || r.Assigned.Type != deviceNodeBalancer || r.Assigned.ID != nodeBalancer:
		return "the NodeBalancer does not have it any more"
	}
	return ""
}

// releaseReserved releases the reserved address of a NodeBalancer before its deletion, if the Service requests it and it is allowed. The
// address keeps working until the NodeBalancer is deleted.
func (r *reconciler) releaseReserved(ctx context.Context, req *services.Request, s settings, nb *nodeBalancer) error {
	if s.RetainReservedIPv4 || s.ReservedIPv4 != nb.IPv4 {
		return nil
	}
	ip, err := netip.ParseAddr(nb.IPv4)
	if err != nil {
		return fmt.Errorf("the reserved address %q of NodeBalancer %d: %w", nb.IPv4, nb.ID, err)
	}
	mark, err := r.owners.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	reserved, err := r.api.reservedAddress(ctx, ip)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil // it is not reserved any more
	}
	if err != nil {
		return err
	}
	if why := reasonToKeep(reserved, mark, nb.ID); why != "" {
		req.Report(services.Notice(contract.EventLoadBalancerRetained, "the address %s stays reserved: %s", ip, why))
		return nil
	}
	klog.InfoS("Releasing a reserved address", "service", klog.KObj(req.Service), "address", ip.String())
	err = do(ctx, fmt.Sprintf("releasing the reserved address %s", ip), func(ctx context.Context) error {
		return r.api.sdk.DeleteReservedIPAddress(ctx, ip.String())
	})
	return cloudapi.IgnoreNotFound(err)
}
