package cloudapi

import (
	"context"
	"sync"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// pagesTogether is how many pages of one listing are read at the same time. The limiter of the client counts each of them.
const pagesTogether = 4

// ReadPages reads pages of a listing by their numbers, from the first to the last, a few at a time, and returns them in their order. It
// is for the pages after the one that states how many there are. The first that fails ends it.
func ReadPages[P any](ctx context.Context, first, last int, read func(ctx context.Context, number int) (P, error)) ([]P, error) {
	last = min(last, maxPages+1) // beyond which Listing ends it
	if first > last {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pages := make([]P, last-first+1)
	var group sync.WaitGroup
	room := make(chan struct{}, pagesTogether)
	for i := range pages {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		group.Add(1)
		rescue.Go("reading a page of a listing", func() {
			defer group.Done()
			defer func() { <-room }()
			var err error
			if pages[i], err = safePage(ctx, first+i, read); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return pages, nil
}

func safePage[P any](ctx context.Context, number int, read func(ctx context.Context, number int) (P, error)) (p P, err error) {
	defer rescue.Into(&err, "reading a page of a listing")
	return read(ctx, number)
}
