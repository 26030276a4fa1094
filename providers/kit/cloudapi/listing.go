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

// Bounds on responses. The largest page seen, 1,000 servers of Nova or instances of EC2, has less than 10 MB, and the largest cluster,
// 5,000 nodes, less than 60 MB. docs/sizing.md derives the chart's memory limit from them.
const (
	// maxBody bounds one response, decompressed.
	maxBody = 24 << 20
	// maxListing bounds the responses of one listing together.
	maxListing = 96 << 20
	// maxLargeListing bounds those of a listing that is reduced page by page.
	maxLargeListing = 1 << 30
	// maxPages bounds the pages of one listing.
	maxPages = 1000
	// maxObjects bounds the objects of one listing.
	maxObjects = 50_000
)

var (
	// ErrTooLarge is part of the error of a response, or of a listing, that exceeds the bounds: smaller pages may help.
	ErrTooLarge = fmt.Errorf("more text than is kept: %w", errFinal)
	// ErrListingTooLarge is part of the error of a listing whose total size exceeds the bound, so that smaller pages do not help.
	ErrListingTooLarge = fmt.Errorf("more text than is read: %w", errFinal)
)

// Listing bounds the pages of one listing, so that an endless one uses up neither memory nor time.
type Listing struct {
	// large is set if each page is reduced to little.
	large bool
	// limit bounds the total size of the responses, in bytes; 0 means the default of the kind of listing.
	limit int

	mu                    sync.Mutex
	seed                  maphash.Seed
	pages, bytes, objects int
	seen                  map[uint64]struct{}
	tokens                map[string]struct{}
}

type listingKey struct{}

// WatchListing returns a context for the calls of one listing. They fail if they exceed the bounds, or if a response repeats an earlier
// one.
func WatchListing(ctx context.Context) (context.Context, *Listing) {
	l := &Listing{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, tokens: map[string]struct{}{}}
	return context.WithValue(ctx, listingKey{}, l), l
}

// WatchLargeListing is WatchListing for listings that are reduced page by page: only the size of each page is bounded tightly.
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
		return endlessError("more than %d objects", maxObjects)
	}
	return nil
}

// Turn records the token of the next page. A repeated token leads back to an earlier page, even if the response differs: on some clouds
// each has a request ID.
func (l *Listing) Turn(token string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, repeated := l.tokens[token]; repeated {
		return endlessError("the token of page %d is that of an earlier one", len(l.tokens)+2)
	}
	l.tokens[token] = struct{}{}
	return nil
}

func (l *Listing) addPage(data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	l.bytes += len(data)
	sum := maphash.Bytes(l.seed, data)
	_, repeated := l.seen[sum]
	l.seen[sum] = struct{}{}
	switch {
	case repeated:
		return endlessError("page %d repeats an earlier one", l.pages)
	case l.pages > maxPages:
		err := endlessError("more than %d pages", maxPages)
		if l.large {
			err.Cause = ErrListingTooLarge
		}
		return err
	case l.bytes > l.maxSize():
		err := endlessError("more than %d MiB", l.maxSize()>>20)
		if err.Cause = ErrTooLarge; l.large {
			err.Cause = ErrListingTooLarge
		}
		return err
	}
	return nil
}

// maxSize returns the bound on the total size of all pages.
func (l *Listing) maxSize() int {
	if l.limit > 0 {
		return l.limit
	}
	if l.large {
		return maxLargeListing
	}
	return maxListing
}

func endlessError(format string, args ...any) *Error {
	return &Error{Class: ErrTransient, Cause: errFinal, Message: "a listing without an end: " + fmt.Sprintf(format, args...)}
}

// checkList refuses a response with which a listing cannot continue.
func checkList(req *http.Request, resp *http.Response, data []byte) error {
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if hasNull(data) {
		return &Error{Class: ErrTransient, Status: resp.StatusCode, Message: "an incomplete answer: null in place of an object"}
	}
	if l, ok := req.Context().Value(listingKey{}).(*Listing); ok {
		return l.addPage(data)
	}
	return nil
}

// chunkSize is the size of buffers for responses, keptChunks the number of them that is reused.
const (
	chunkSize  = 64 << 10
	keptChunks = 128
)

// texts reads responses of unknown length into reused buffers, so that a large one takes no more than twice its size while it is read; a
// growing buffer would leave several times that as garbage. The zero value is ready.
type texts struct{ chunks sync.Pool }

// readUpTo returns everything, or one byte more than the maximum.
func (t *texts) readUpTo(from io.Reader, most int) ([]byte, error) {
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

// readBounded reads the response, decompressed. A body that is compressed without having been requested so would escape the bound.
func (t *texts) readBounded(resp *http.Response) ([]byte, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, &Error{Class: ErrTransient, Status: resp.StatusCode, Cause: errFinal, Message: "the answer has an encoding that was not asked for: " + shorten(encoding)}
	}
	data, err := t.readUpTo(resp.Body, maxBody)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(data) > maxBody {
		return nil, &Error{Class: ErrTransient, Status: resp.StatusCode, Cause: ErrTooLarge, Message: fmt.Sprintf("the answer is larger than %d MiB", maxBody>>20)}
	}
	return data, nil
}

func shorten(text string) string { return text[:min(len(text), 40)] }

// hasNull reports whether a list in the outermost object of a JSON text, or as the outermost value, has a null element. APIs return the
// requested objects there, and SDKs decode null into an empty object.
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

// nesting is a position in a JSON text: the depth, and the kinds of the two outermost levels.
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

// endOfString returns the position of the closing quote of the string that begins at n. Most of a large response is in strings, so it
// searches for quotes and backslashes in bulk.
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
