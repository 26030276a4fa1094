package azure

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file finds addresses of nodes that went while the program did not run: rules for node ports still name them.

// addressUse is whether an address of the network is free.
type addressUse struct {
	ip   string
	free bool
}

func newAddressUses(a *api) *inventory.Inventory[string, addressUse] {
	c := a.config
	network := groupPath(c.NetworkSubscription, c.NetworkGroup, "Microsoft.Network") + "/virtualNetworks/" + c.Network
	return inventory.New(inventory.Source[string, addressUse]{
		Kind: "use of an address", ID: func(u addressUse) string { return u.ip }, Get: func(ctx context.Context, ip string) (addressUse, error) {
			var answer struct {
				Available *bool `json:"available"`
			}
			err := a.get(ctx, "the use of address "+ip, network+"/CheckIPAddressAvailability", networkVersion, &answer, "ipAddress", ip)
			if err == nil && answer.Available == nil {
				err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading the use of address " + ip, Message: "the answer does not say it"}
			}
			return addressUse{ip, err == nil && *answer.Available}, err
		},
	})
}

// findFormerNodes takes free addresses of the network for ones that nodes had, where rules for the Service's node ports alone name them and
// no Node has them: what another cluster uses is not free. Where Azure does not tell, they stay.
func (r *reconciler) findFormerNodes(ctx context.Context, q services.Request, group doc) error {
	if r.config.Network == "" {
		return nil
	}
	k := claim{nodePorts: nodePortsOf(q.Service)}
	nodes := r.nodeIPs.with(r.instances.known(), q.Nodes)
	for _, rule := range docs(group, "properties", "securityRules") {
		if !managed(rule) || !k.onNodes(str(rule, "properties", "protocol"), plural(rule, "destinationPortRange", "destinationPortRanges")) {
			continue
		}
		for _, text := range destinationsOf(rule) {
			ip, bad := netip.ParseAddr(text)
			if bad != nil || !ip.IsPrivate() || slices.Contains(nodes, text) {
				continue
			}
			use, err := r.uses.Get(ctx, text, inventory.Query{MaxAge: 10 * time.Minute})
			switch {
			case errors.Is(err, cloudapi.ErrUnauthorized), errors.Is(err, cloudapi.ErrNotFound), errors.Is(err, cloudapi.ErrInvalid):
			case err != nil:
				return err
			case use.free:
				r.nodeIPs.add(text)
			}
		}
	}
	return nil
}
