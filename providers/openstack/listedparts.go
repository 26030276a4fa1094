package openstack

import (
	"context"
	"errors"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// partsListing holds the listeners and pools of one load balancer as listings show them: everything but the members, of which only the IDs
// are listed. Listing them for all load balancers costs as much as for one.
type partsListing struct {
	loadBalancerID string
	// asOf is the load balancer's time of change as it was known when the listing began; "" if it was not.
	asOf      string
	listeners []listener
	pools     []pool
}

func newListedPartsInventory(
	pages *partPages, observed *inventory.Inventory[string, *loadBalancer],
) *inventory.Inventory[string, *partsListing] {
	return inventory.New(inventory.Source[string, *partsListing]{
		Kind: "load balancer outline", ID: func(o *partsListing) string { return o.loadBalancerID }, GetCalls: 2,
		List: func(ctx context.Context) ([]*partsListing, int, error) {
			known := timesOfChange(observed)
			listeners, pools, calls, err := pages.listAll(ctx)
			all := partsByLoadBalancer(listeners, pools)
			for _, o := range all {
				o.asOf = known[o.loadBalancerID]
			}
			return all, calls, err
		},
		Get: func(ctx context.Context, id string) (*partsListing, error) {
			listeners, pools, _, err := pages.list(ctx, "loadbalancer_id", id)
			return &partsListing{loadBalancerID: id, listeners: listeners, pools: pools}, err
		},
	})
}

// partsByLoadBalancer sorts listeners and pools by load balancer.
func partsByLoadBalancer(listeners []listener, pools []pool) []*partsListing {
	byID := map[string]*partsListing{}
	var all []*partsListing
	of := func(id string) *partsListing {
		if byID[id] == nil {
			byID[id] = &partsListing{loadBalancerID: id}
			all = append(all, byID[id])
		}
		return byID[id]
	}
	for _, l := range listeners {
		for _, owner := range l.Owners {
			o := of(owner.ID)
			o.listeners = append(o.listeners, l)
		}
	}
	for _, p := range pools {
		for _, owner := range p.Owners {
			o := of(owner.ID)
			o.pools = append(o.pools, p)
		}
	}
	return all
}

// outline returns what listings show of a load balancer, where these are not too large: then it is read alone.
func (l *loadBalancers) outline(ctx context.Context, id string) (*partsListing, error) {
	// A change of somebody else that ended before the load balancer was seen at rest began earlier than this, because none is quicker
	// than a look; so those who were woken by the same look share a listing.
	q := inventory.Query{MaxAge: pace.Least / 2, Expected: int(l.updating.Load())}
	if !l.partPages.tooLarge() {
		if o, err := l.listedParts.Get(ctx, id, q); !errors.Is(err, cloudapi.ErrListingTooLarge) {
			return o, err
		}
	}
	demand := evidence.From(ctx)
	demand.Single = true
	return l.listedParts.Get(evidence.With(ctx, demand), id, q)
}

// partsAfterChange returns the parts of a load balancer as they are after changes of our own, because somebody else may have changed them
// right after. Many that change at the same time, as when a node joins, share the listings. Members are read where those of a
// pool are not the ones that our changes have left there.
func (l *loadBalancers) partsAfterChange(ctx context.Context, lb *loadBalancer, d *details) (*details, error) {
	o, err := l.outline(ctx, lb.ID)
	if errors.Is(err, cloudapi.ErrNotFound) { // it has neither listeners nor pools
		return l.observe(ctx, lb)
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	after := d.clone()
	after.listeners, after.pools, after.asOf = slices.Clone(o.listeners), slices.Clone(o.pools), lb.UpdatedAt
	for i := range after.pools {
		p := &after.pools[i]
		known := slices.IndexFunc(d.pools, func(before pool) bool { return before.ID == p.ID })
		if known >= 0 && p.MemberIDs.areThose(d.pools[known].members) {
			p.members = d.pools[known].members
		} else if p.members, err = l.readMembers(ctx, p.ID); err != nil {
			return nil, cloudapi.NotAbsence(err)
		}
		if p.MonitorID != "" {
			q := inventory.Query{MaxAge: monitorsMaxAge, Expected: len(after.pools) * max(1, int(l.updating.Load()))}
			if p.monitor, err = l.monitors.Get(ctx, p.MonitorID, q); err != nil {
				return nil, cloudapi.NotAbsence(err)
			}
		}
	}
	after.forgetIDs()
	l.parts.PutPartial(after)
	return after, nil
}
