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

// A listing of pools contains all member IDs: with 5,000 nodes 240 kB for each pool, so that a page of 1,000 pools would be too large.
// Pages are smaller then, and in very large projects each load balancer's pools are listed alone.

const (
	// poolPageText bounds the size of a page of pools: a third of the maximum response.
	poolPageText = 8 << 20
	// memberText and poolText estimate the size of a member's ID and of the rest of a pool.
	memberText, poolText = 48, 2 << 10
)

// poolsPerPage returns how many pools of that size fit on a page.
func poolsPerPage(members int) int {
	return min(max(poolPageText/(poolText+members*memberText), 1), pageSize)
}

type partPages struct {
	api *api
	// nodes returns the expected members of a pool. Pools of other clusters may have more.
	nodes func() int

	mu sync.Mutex
	// maxPerPage is the number of pools that fit on a page, after a larger page failed; 0 if unknown.
	maxPerPage int
	// tooLargeAt is when listing all pools last exceeded the limit.
	tooLargeAt time.Time
}

const (
	// tooLargeFor is how long a project counts as too large to list.
	tooLargeFor = 24 * time.Hour
	// maxListedIDs bounds the member IDs kept from one listing: 32 MB. Further pools keep only digests.
	maxListedIDs = 2 << 20
)

// tooLarge reports whether listing all pools recently exceeded the limit.
func (p *partPages) tooLarge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.tooLargeAt.IsZero() && time.Since(p.tooLargeAt) < tooLargeFor
}

// list lists the listeners and pools that match a filter, and counts the calls.
func (p *partPages) list(ctx context.Context, filter ...string) (listeners []listener, pools []pool, calls int, err error) {
	var more int
	err = waiting.Together(
		func() (err error) {
			listeners, calls, err = listAll[listener](ctx, p.api, loadBalancing, "lbaas/listeners", "listeners", listQuery(filter...))
			return err
		},
		func() (err error) {
			pools, more, err = p.pools(ctx, filter...)
			return err
		},
	)
	return listeners, pools, calls + more, err
}

// listAll lists those of the whole project, unless that recently exceeded the limit.
func (p *partPages) listAll(ctx context.Context) (listeners []listener, pools []pool, calls int, err error) {
	if p.tooLarge() {
		return nil, nil, 0, cloudapi.ErrListingTooLarge
	}
	listeners, pools, calls, err = p.list(ctx)
	if errors.Is(err, cloudapi.ErrListingTooLarge) || errors.Is(err, cloudapi.ErrTooLarge) {
		p.mu.Lock()
		p.tooLargeAt = time.Now()
		p.mu.Unlock()
		err = fmt.Errorf("%w: %w", cloudapi.ErrListingTooLarge, err)
	}
	return listeners, pools, calls, err
}

func (p *partPages) perPage() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	perPage := poolsPerPage(p.nodes())
	if p.maxPerPage != 0 {
		perPage = min(perPage, p.maxPerPage)
	}
	return perPage
}

// noteTooLarge records that a page with that many pools was too large.
func (p *partPages) noteTooLarge(perPage int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fewer := max(perPage/4, 1); p.maxPerPage == 0 || fewer < p.maxPerPage {
		p.maxPerPage = fewer
	}
}

// pools lists pools, with smaller pages if pages are too large.
func (p *partPages) pools(ctx context.Context, filter ...string) ([]pool, int, error) {
	before := 0
	for {
		perPage, room := p.perPage(), maxListedIDs
		query := listQuery(filter...)
		query.Set("limit", strconv.Itoa(perPage))
		all, pages, err := listLarge(ctx, p.api, loadBalancing, "lbaas/pools", "pools", query, func(page []pool) {
			for i := range page {
				if room -= len(page[i].MemberIDs.ids) + len(page[i].MemberIDs.irregular); room < 0 {
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
