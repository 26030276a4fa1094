package cloudapi

import (
	"context"
	"errors"
	"sync"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// pagesTogether is how many pages of one listing are read concurrently, largeTogether how many if they are large. Each counts against the
// client's rate limit.
const (
	pagesTogether = 4
	largeTogether = 2
)

// ReadPages reads pages of a listing by their numbers, from the first to the last, a few at a time, and returns them in order. Use it after
// the page that shows how many there are. The first failure ends it.
func ReadPages[P any](ctx context.Context, first, last int, read func(ctx context.Context, number int) (P, error)) ([]P, error) {
	return readPages(ctx, first, last, pagesTogether, read)
}

func readPages[P any](
	ctx context.Context, first, last, together int, read func(ctx context.Context, number int) (P, error),
) ([]P, error) {
	last = min(last, maxPages+1) // beyond which Listing ends it
	if first > last {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pages := make([]P, last-first+1)
	var group sync.WaitGroup
	room := make(chan struct{}, together)
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

// Numbered is a listing with numbered pages, each of which states the total number of objects.
type Numbered[P any] struct {
	// What is listed, for messages.
	What string
	// Large says that pages are large and are reduced at once: fewer are read concurrently, and only the size of each is bounded tightly.
	Large bool
	// Read reads a page.
	Read func(ctx context.Context, number int) (P, error)
	// Objects returns the number of objects on a page, Total the number of all objects according to the page, and Last the number of the
	// last page according to the page with a number.
	Objects, Total func(page P) int
	Last           func(page P, number int) int
}

// maxReadings is how often a list is read if it changes during the reading.
const maxReadings = 4

// List reads all pages, those after the first a few at a time. If the list changed in between, an object may have moved from page to page
// and been missed. Then all is read again, one page after the other: additions move objects to later pages, which are still to come.
// Removals move them to earlier pages, so that this reading does not count either; a list that keeps shrinking is an error.
func (n Numbered[P]) List(ctx context.Context) ([]P, error) {
	pages, err := n.readTogether(ctx)
	if err == nil {
		err = n.checkTotals(pages, func(before, after int) bool { return before == after })
	}
	for reading := 1; reading < maxReadings && errors.Is(err, errMoved); reading++ {
		if pages, err = n.readInTurn(ctx); err == nil {
			err = n.checkTotals(pages, func(before, after int) bool { return before <= after })
		}
	}
	return pages, err
}

// errMoved: the pages are not of one state of the list.
var errMoved = errors.New("objects were removed each time while the list was read")

func (n Numbered[P]) movedError() error {
	return &Error{Class: ErrTransient, Operation: "listing " + n.What, Message: errMoved.Error(), Cause: errMoved}
}

// checkTotals compares the total of each page with that of the one before it.
func (n Numbered[P]) checkTotals(pages []P, fits func(before, after int) bool) error {
	for i := 1; i < len(pages); i++ {
		if !fits(n.Total(pages[i-1]), n.Total(pages[i])) {
			return n.movedError()
		}
	}
	return nil
}

// readTogether reads the first page, and then all others concurrently. If these show more pages, it reads them as well.
func (n Numbered[P]) readTogether(ctx context.Context) ([]P, error) {
	ctx, read := n.boundedRead(ctx)
	first, err := read(ctx, 1)
	if err != nil {
		return nil, err
	}
	pages, together := []P{first}, pagesTogether
	if n.Large {
		together = largeTogether
	}
	for last := n.Last(first, 1); len(pages) < last; last = n.Last(pages[len(pages)-1], len(pages)) {
		rest, err := readPages(ctx, len(pages)+1, last, together, read)
		if err != nil {
			return nil, err
		}
		pages = append(pages, rest...)
	}
	return pages, nil
}

// readInTurn reads one page after the other.
func (n Numbered[P]) readInTurn(ctx context.Context) (pages []P, err error) {
	ctx, read := n.boundedRead(ctx)
	for last := 1; len(pages) < last; last = n.Last(pages[len(pages)-1], len(pages)) {
		page, err := read(ctx, len(pages)+1)
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	return pages, nil
}

// boundedRead returns Read within the bounds of one listing.
func (n Numbered[P]) boundedRead(ctx context.Context) (context.Context, func(context.Context, int) (P, error)) {
	watch := WatchListing
	if n.Large {
		watch = WatchLargeListing
	}
	ctx, listing := watch(ctx)
	return ctx, func(ctx context.Context, number int) (P, error) {
		page, err := n.Read(ctx, number)
		switch {
		case err == nil:
			err = listing.Add(n.Objects(page))
		case number > 1 && errors.Is(err, ErrNotFound):
			err = n.movedError() // the page before told of it
		}
		return page, err
	}
}
