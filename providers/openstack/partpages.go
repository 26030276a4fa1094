package openstack

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// A listing of pools names all members of each: with 5,000 nodes that is 240 kB for each pool, and a page of 1,000 would be larger than any
// answer may be. So pages have fewer then; and what all pools have together may be more than is sensible to read, so that those of a load
// balancer are read alone.

const (
	// poolPageText is how much text a page of pools should be at most: a third of what one answer may be.
	poolPageText = 8 << 20
	// memberText and poolText are the text of a member's ID with what surrounds it, and of everything else about a pool.
	memberText, poolText = 48, 2 << 10
)

// poolsPerPage is how many pools fit on a page where each has so many members.
func poolsPerPage(members int) int {
	return min(max(poolPageText/(poolText+members*memberText), 1), pageSize)
}

// partPages lists listeners and pools.
type partPages struct {
	api *api
	// nodes is how many members each pool of ours may have. Those of other clusters may have many more.
	nodes func() int
	// most is how many pools fit on a page, where more did not; 0 is not known.
	most atomic.Int64
	// beyond is set once all pools together were more than is read.
	beyond atomic.Bool
}

// list lists the listeners and pools that a filter lets through, and counts the calls.
func (p *partPages) list(ctx context.Context, filter ...string) (listeners []listener, pools []pool, calls int, err error) {
	var more int
	err = waiting.Together(
		func() (err error) {
			listeners, calls, err = listAll[listener](ctx, p.api, loadBalancing, "lbaas/listeners", "listeners", paged(filter...))
			return err
		},
		func() (err error) {
			pools, more, err = p.pools(ctx, filter...)
			return err
		},
	)
	return listeners, pools, calls + more, err
}

// all lists those of the whole project, unless that was too much before.
func (p *partPages) all(ctx context.Context) (listeners []listener, pools []pool, calls int, err error) {
	if p.beyond.Load() {
		return nil, nil, 0, cloudapi.ErrListingTooLarge
	}
	listeners, pools, calls, err = p.list(ctx)
	if errors.Is(err, cloudapi.ErrListingTooLarge) {
		p.beyond.Store(true)
	}
	return listeners, pools, calls, err
}

func (p *partPages) perPage() int {
	perPage := poolsPerPage(p.nodes())
	if most := int(p.most.Load()); most != 0 {
		perPage = min(perPage, most)
	}
	return perPage
}

// pools lists pools. Where pages turn out too large, smaller ones are read.
func (p *partPages) pools(ctx context.Context, filter ...string) ([]pool, int, error) {
	before := 0
	for {
		perPage := p.perPage()
		query := paged(filter...)
		query.Set("limit", strconv.Itoa(perPage))
		all, pages, err := listLarge[pool](ctx, p.api, loadBalancing, "lbaas/pools", "pools", query)
		if perPage == 1 || !errors.Is(err, cloudapi.ErrTooLarge) {
			return all, before + pages, err
		}
		p.most.Store(int64(max(perPage/4, 1)))
		before += pages
	}
}
