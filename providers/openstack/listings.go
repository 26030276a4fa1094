package openstack

import (
	"context"
	"errors"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// partsListing holds a load balancer's listeners and pools, without the members' details. Listing them costs the same for one load
// balancer as for all.
type partsListing struct {
	loadBalancerID string
	// asOf is the load balancer's updated_at as known when the listing began, or "".
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

// list returns a load balancer's listed parts. If listings are too large, it is read alone.
func (rd *partsReader) list(ctx context.Context, id string) (*partsListing, error) {
	// A change by somebody else takes longer than one poll, so it began before this age. Callers woken by the same poll share a listing.
	q := inventory.Query{MaxAge: pace.Least / 2, Expected: int(rd.updating.Load())}
	if !rd.pages.tooLarge() {
		if o, err := rd.listed.Get(ctx, id, q); !errors.Is(err, cloudapi.ErrListingTooLarge) {
			return o, err
		}
	}
	q.Absence.OwnRead = true
	return rd.listed.Get(ctx, id, q)
}

// readAfterChange reads the parts after our own changes, because somebody else may have changed them too. Members are read only if a pool's
// member IDs are unexpected.
func (rd *partsReader) readAfterChange(ctx context.Context, lb *loadBalancer, d *details) (*details, error) {
	o, err := rd.list(ctx, lb.ID)
	if errors.Is(err, cloudapi.ErrNotFound) { // it has no listeners and pools
		return rd.readCurrent(ctx, lb)
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	after := d.clone()
	after.listeners, after.pools, after.asOf = slices.Clone(o.listeners), slices.Clone(o.pools), lb.UpdatedAt
	for i := range after.pools {
		p := &after.pools[i]
		known := slices.IndexFunc(d.pools, func(before pool) bool { return before.ID == p.ID })
		if known >= 0 && p.MemberIDs.matches(d.pools[known].members) {
			p.members = d.pools[known].members
		} else if p.members, err = rd.readMembers(ctx, p.ID); err != nil {
			return nil, cloudapi.NotAbsence(err)
		}
		if p.MonitorID != "" {
			q := inventory.Query{MaxAge: monitorsMaxAge, Expected: len(after.pools) * max(1, int(rd.updating.Load()))}
			if p.monitor, err = rd.monitors.Get(ctx, p.MonitorID, q); err != nil {
				return nil, cloudapi.NotAbsence(err)
			}
		}
	}
	after.forgetIDs()
	rd.details.PutPartial(after)
	return after, nil
}
