package cloudapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"sync"
)

// Bounds on what is read. The largest page seen, 1,000 servers of Nova or instances of EC2, has below 10 MB, and the largest
// cluster, 5,000 nodes, below 60 MB. docs/sizing.md derives the memory limit of the chart from them.
const (
	// maxBody bounds one answer, decompressed.
	maxBody = 24 << 20
	// maxListing bounds the answers of one listing together.
	maxListing = 96 << 20
	// maxLargeListing bounds those of a listing of which little is kept, page by page.
	maxLargeListing = 1 << 30
	// maxPages bounds the pages of one listing.
	maxPages = 1000
	// maxObjects bounds the objects of one listing.
	maxObjects = 50_000
)

var (
	// ErrTooLarge is part of the error of an answer, or of a listing, with more text than is kept: smaller pages may do.
	ErrTooLarge = fmt.Errorf("more text than is kept: %w", errFinal)
	// ErrListingTooLarge is part of the error of a listing of large pages that are more text together than is read: smaller ones are, too.
	ErrListingTooLarge = fmt.Errorf("more text than is read: %w", errFinal)
)

// Listing watches over the pages of one listing, so that one without an end takes neither all memory nor for ever.
type Listing struct {
	// large is set where little of each page is kept.
	large bool
	// limit bounds the answers together, in bytes; 0 is the limit of the kind of listing.
	limit int

	mu                    sync.Mutex
	seed                  maphash.Seed
	pages, bytes, objects int
	seen                  map[uint64]struct{}
	tokens                map[string]struct{}
}

type listingKey struct{}

// WatchListing returns a context for the calls of one listing. They fail once they answer more than any account holds, and where
// an answer repeats an earlier one.
func WatchListing(ctx context.Context) (context.Context, *Listing) {
	l := &Listing{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, tokens: map[string]struct{}{}}
	return context.WithValue(ctx, listingKey{}, l), l
}

// WatchLargeListing is WatchListing where little is kept of each page: only each is bounded by what memory can hold.
func WatchLargeListing(ctx context.Context) (context.Context, *Listing) {
	ctx, l := WatchListing(ctx)
	l.large = true
	return ctx, l
}

// Add counts the objects of a page.
func (l *Listing) Add(objects int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects += objects; l.objects > maxObjects {
		return endless("more than %d objects", maxObjects)
	}
	return nil
}

// Turn notes the token of the next page. One that comes again leads back to a page that was read, whatever that page says then:
// answers of some clouds differ by a request ID alone.
func (l *Listing) Turn(token string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, repeated := l.tokens[token]; repeated {
		return endless("the token of page %d is that of an earlier one", len(l.tokens)+2)
	}
	l.tokens[token] = struct{}{}
	return nil
}

func (l *Listing) page(data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	l.bytes += len(data)
	sum := maphash.Bytes(l.seed, data)
	_, repeated := l.seen[sum]
	l.seen[sum] = struct{}{}
	switch {
	case repeated:
		return endless("page %d repeats an earlier one", l.pages)
	case l.pages > maxPages:
		err := endless("more than %d pages", maxPages)
		if l.large {
			err.Cause = ErrListingTooLarge
		}
		return err
	case l.bytes > l.most():
		err := endless("more than %d MiB", l.most()>>20)
		if err.Cause = ErrTooLarge; l.large {
			err.Cause = ErrListingTooLarge
		}
		return err
	}
	return nil
}

// most is how much text all pages may be together.
func (l *Listing) most() int {
	if l.limit > 0 {
		return l.limit
	}
	if l.large {
		return maxLargeListing
	}
	return maxListing
}

func endless(format string, args ...any) *Error {
	return &Error{Class: ErrTransient, Cause: errFinal, Message: "a listing without an end: " + fmt.Sprintf(format, args...)}
}

// checkList refuses an answer that a listing cannot go on from.
func checkList(req *http.Request, resp *http.Response, data []byte) error {
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if hasNull(data) {
		return &Error{Class: ErrTransient, Status: resp.StatusCode, Message: "an incomplete answer: null in place of an object"}
	}
	if l, ok := req.Context().Value(listingKey{}).(*Listing); ok {
		return l.page(data)
	}
	return nil
}

// chunkSize is that of the buffers that answers are read into, keptChunks how many of an answer are used again.
const (
	chunkSize  = 64 << 10
	keptChunks = 128
)

// texts reads answers whose length nobody states into buffers that it uses again, so that a large one takes no more than twice its size
// while it is read; a buffer that grows would leave several times that behind. The zero value is ready.
type texts struct{ chunks sync.Pool }

// read returns all that there is to read, or a byte more than the most that there may be.
func (t *texts) read(from io.Reader, most int) ([]byte, error) {
	var full []*[chunkSize]byte
	defer func() {
		for _, c := range full[:min(len(full), keptChunks)] {
			t.chunks.Put(c)
		}
	}()
	from = io.LimitReader(from, int64(most)+1)
	size := 0
	for {
		if size == len(full)*chunkSize {
			chunk, ok := t.chunks.Get().(*[chunkSize]byte)
			if !ok {
				chunk = new([chunkSize]byte)
			}
			full = append(full, chunk)
		}
		n, err := from.Read(full[len(full)-1][size%chunkSize:])
		size += n
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			return nil, err //nolint:wrapcheck // the caller says what it was
		}
		text := make([]byte, 0, size)
		for _, c := range full {
			text = append(text, c[:min(chunkSize, size-len(text))]...)
		}
		return text, nil
	}
}

// readBounded reads the answer, decompressed. What is compressed although nobody asked for it would escape the bound.
func (t *texts) readBounded(resp *http.Response) ([]byte, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, &Error{Class: ErrTransient, Status: resp.StatusCode, Cause: errFinal, Message: "the answer has an encoding that was not asked for: " + short(encoding)}
	}
	data, err := t.read(resp.Body, maxBody)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(data) > maxBody {
		return nil, &Error{Class: ErrTransient, Status: resp.StatusCode, Cause: ErrTooLarge, Message: fmt.Sprintf("the answer is larger than %d MiB", maxBody>>20)}
	}
	return data, nil
}

func short(text string) string { return text[:min(len(text), 40)] }

// hasNull reports whether a list that is directly in the outermost object of a JSON text, or is the outermost value, has null for
// an element. That is where APIs put the objects that were asked for; SDKs make of null an object in which nothing is.
func hasNull(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || (data[0] != '{' && data[0] != '[') {
		return false // no JSON, or no object
	}
	var at nesting
	element := false // at the beginning of an element
	for n := 0; n < len(data); n++ {
		switch c := data[n]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case '[', '{':
			at.enter(c)
			element = at.inList()
			continue
		case ',':
			element = at.inList()
			continue
		case ']', '}':
			at.depth--
		case '"':
			n = endOfString(data, n)
		case 'n':
			if element {
				return true
			}
		}
		element = false
	}
	return false
}

// nesting is where in a JSON text one is: how deep, and what the two outermost levels are.
type nesting struct {
	depth        int
	outer, inner byte
}

func (n *nesting) enter(c byte) {
	switch n.depth++; n.depth {
	case 1:
		n.outer = c
	case 2:
		n.inner = c
	}
}

// inList reports whether the innermost level is a list, and one of the two outermost.
func (n *nesting) inList() bool {
	return (n.depth == 1 && n.outer == '[') || (n.depth == 2 && n.inner == '[')
}

// endOfString returns the place of the quote that ends the string which begins at n. Most of a large answer is in strings, so it looks for
// quotes and backslashes as a whole.
func endOfString(data []byte, n int) int {
	quote := n
	for n++; n < len(data); {
		if quote < n {
			next := bytes.IndexByte(data[n:], '"')
			if next < 0 {
				return len(data)
			}
			quote = n + next
		}
		escape := bytes.IndexByte(data[n:quote], '\\')
		if escape < 0 {
			return quote
		}
		n += escape + len(`\"`)
	}
	return n
}
