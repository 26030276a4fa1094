package openstack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

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

	mu sync.Mutex
	// most is how many pools fit on a page, where more did not; 0 is not known.
	most int
	// beyond is when all pools together were more than is read.
	beyond time.Time
}

const (
	// beyondFor is how long a project counts as too large to list.
	beyondFor = 24 * time.Hour
	// listedIDs is how many IDs of members one listing keeps: 32 MB. Of what follows, their digests do.
	listedIDs = 2 << 20
)

// tooLarge reports whether all pools together are more than is read, as far as that is known.
func (p *partPages) tooLarge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.beyond.IsZero() && time.Since(p.beyond) < beyondFor
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

// listAll lists those of the whole project, unless that was too much before.
func (p *partPages) listAll(ctx context.Context) (listeners []listener, pools []pool, calls int, err error) {
	if p.tooLarge() {
		return nil, nil, 0, cloudapi.ErrListingTooLarge
	}
	listeners, pools, calls, err = p.list(ctx)
	if errors.Is(err, cloudapi.ErrListingTooLarge) || errors.Is(err, cloudapi.ErrTooLarge) {
		p.mu.Lock()
		p.beyond = time.Now()
		p.mu.Unlock()
		err = fmt.Errorf("%w: %w", cloudapi.ErrListingTooLarge, err)
	}
	return listeners, pools, calls, err
}

func (p *partPages) perPage() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	perPage := poolsPerPage(p.nodes())
	if p.most != 0 {
		perPage = min(perPage, p.most)
	}
	return perPage
}

// noteTooLarge notes that so many pools do not fit on a page.
func (p *partPages) noteTooLarge(perPage int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fewer := max(perPage/4, 1); p.most == 0 || fewer < p.most {
		p.most = fewer
	}
}

// pools lists pools. Where pages turn out too large, smaller ones are read.
func (p *partPages) pools(ctx context.Context, filter ...string) ([]pool, int, error) {
	before := 0
	for {
		perPage, room := p.perPage(), listedIDs
		query := paged(filter...)
		query.Set("limit", strconv.Itoa(perPage))
		all, pages, err := listLarge(ctx, p.api, loadBalancing, "lbaas/pools", "pools", query, func(page []pool) {
			for i := range page {
				if room -= len(page[i].MemberIDs.ids) + len(page[i].MemberIDs.odd); room < 0 {
					page[i].MemberIDs.forget()
				}
			}
		})
		if perPage == 1 || !errors.Is(err, cloudapi.ErrTooLarge) {
			return all, before + pages, err
		}
		p.noteTooLarge(perPage)
		before += pages
	}
}
