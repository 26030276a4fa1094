package digitalocean

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Each load balancer lists all its droplets: with 15,000 nodes 150 kB, so that a page of 200 load balancers would be too large. Pages are
// smaller then, responses are decoded one load balancer at a time, and requests are encoded only when they are sent.

const (
	loadBalancersPath = "v2/load_balancers"
	// pageText bounds the size of a page of load balancers: a third of the maximum response.
	pageText = 8 << 20
	// dropletText and balancerText estimate the size of a droplet's ID and of the rest of a load balancer.
	dropletText, balancerText = 11, 3 << 10
)

// balancersPerPage returns how many load balancers of that size fit on a page.
func balancersPerPage(droplets int) int {
	return min(max(pageText/(balancerText+droplets*dropletText), 1), pageSize)
}

// loadBalancers lists the account's load balancers; nodes is the expected number of droplets of each. Other clusters may have more, so too
// large a page is read again in smaller ones.
func (a *api) loadBalancers(ctx context.Context, nodes int, lists *dropletLists) ([]*godo.LoadBalancer, int, error) {
	before := 0
	for {
		perPage := lists.perPage(nodes)
		all, pages, err := a.balancersOnPages(ctx, perPage, lists)
		if perPage == 1 || !errors.Is(err, cloudapi.ErrTooLarge) {
			return all, before + pages, err
		}
		lists.most.Store(int64(max(perPage/4, 1)))
		before += max(pages, 1)
	}
}

func (a *api) balancersOnPages(ctx context.Context, perPage int, lists *dropletLists) ([]*godo.LoadBalancer, int, error) {
	return listPages(ctx, "load balancers", perPage, perPage < pageSize, func(ctx context.Context, number int) (page[*godo.LoadBalancer], error) {
		request, err := a.sdk.NewRequest(ctx, http.MethodGet, fmt.Sprintf("%s?page=%d&per_page=%d", loadBalancersPath, number, perPage), nil)
		if err != nil {
			return page[*godo.LoadBalancer]{}, fmt.Errorf("making a request: %w", err)
		}
		response, err := a.sdk.DoStream(ctx, request)
		if err != nil {
			return page[*godo.LoadBalancer]{}, err //nolint:wrapcheck // the caller names it
		}
		defer response.Body.Close()
		return decodeBalancers(response.Body, lists)
	})
}

// dropletLists shares equal lists of droplets in memory, usually recognized by their text.
type dropletLists struct {
	lists *inventory.Lists[int]
	// most is the number of load balancers that fit on a page, after a larger page failed; 0 if unknown.
	most atomic.Int64

	mu     sync.Mutex
	recent []listText
}

// listText is a list of droplets as JSON and decoded.
type listText struct {
	text []byte
	ids  []int
}

// recentTexts is the number of texts kept: before and after a change of nodes.
const recentTexts = 4

func newDropletLists() *dropletLists { return &dropletLists{lists: inventory.NewLists[int]()} }

// perPage returns how many load balancers to request on a page.
func (d *dropletLists) perPage(nodes int) int {
	perPage := balancersPerPage(nodes)
	if most := int(d.most.Load()); most != 0 {
		perPage = min(perPage, most)
	}
	return perPage
}

// parse returns the droplets of a text, sorted.
func (d *dropletLists) parse(text []byte) ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.recent, func(known listText) bool { return bytes.Equal(known.text, text) })
	if at < 0 {
		var ids []int
		if err := json.Unmarshal(text, &ids); err != nil {
			return nil, fmt.Errorf("decoding the droplets of a load balancer: %w", err)
		}
		if len(ids) == 0 {
			return nil, nil
		}
		if !slices.IsSorted(ids) {
			slices.Sort(ids)
		}
		if len(d.recent) < recentTexts {
			d.recent = append(d.recent, listText{})
		}
		at = len(d.recent) - 1
		d.recent[at] = listText{bytes.Clone(text), d.lists.Same(ids)}
	}
	found := d.recent[at]
	copy(d.recent[1:at+1], d.recent[:at])
	d.recent[0] = found
	return found.ids, nil
}

// listEntry is a load balancer in a listing, whose droplets are decoded later.
type listEntry struct {
	*godo.LoadBalancer

	Droplets json.RawMessage `json:"droplet_ids"`
}

// decodeBalancers decodes a page while holding at most one list of droplets that is not shared.
func decodeBalancers(text io.Reader, lists *dropletLists) (page[*godo.LoadBalancer], error) {
	var links *godo.Links
	var meta *godo.Meta
	var kept []*godo.LoadBalancer
	var droplets json.RawMessage
	decoder := json.NewDecoder(text)
	err := eachField(decoder, func(name string) error {
		switch name {
		case "load_balancers":
			return eachElement(decoder, func() error {
				lb := listEntry{LoadBalancer: &godo.LoadBalancer{}, Droplets: droplets[:0]}
				if err := decoder.Decode(&lb); err != nil {
					return fmt.Errorf("decoding a load balancer: %w", err)
				}
				if droplets = lb.Droplets; len(droplets) > 0 {
					ids, err := lists.parse(droplets)
					if err != nil {
						return err
					}
					lb.DropletIDs = ids
				}
				kept = append(kept, lb.LoadBalancer)
				return nil
			})
		case "links":
			return decoder.Decode(&links)
		case "meta":
			return decoder.Decode(&meta)
		}
		return decoder.Decode(&json.RawMessage{})
	})
	if err != nil {
		return page[*godo.LoadBalancer]{}, err
	}
	return pageOf(kept, links, meta), nil
}

// eachField calls do for each field of an object; do must read the value.
func eachField(decoder *json.Decoder, do func(name string) error) error {
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return unexpectedToken("an object", start, err)
	}
	for decoder.More() {
		token, err := decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return unexpectedToken("a name", token, err)
		}
		if err := do(name); err != nil {
			return err
		}
	}
	if end, err := decoder.Token(); err != nil {
		return unexpectedToken("the end", end, err)
	}
	return nil
}

// eachElement calls do for each element of a list; do must read it. null is an empty list.
func eachElement(decoder *json.Decoder, do func() error) error {
	switch start, err := decoder.Token(); {
	case err == nil && start == nil:
		return nil
	case err != nil || start != json.Delim('['):
		return unexpectedToken("a list", start, err)
	}
	for decoder.More() {
		if err := do(); err != nil {
			return err
		}
	}
	if end, err := decoder.Token(); err != nil {
		return unexpectedToken("the end of a list", end, err)
	}
	return nil
}

// unexpectedToken returns the error of an unexpected token.
func unexpectedToken(what string, found json.Token, err error) error {
	if err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return fmt.Errorf("%w: %v in place of %s", errWrongAnswer, found, what)
}

func (a *api) sendLoadBalancer(ctx context.Context, method, path string, r *godo.LoadBalancerRequest) (*godo.LoadBalancer, error) {
	request, err := a.sdk.NewRequest(ctx, method, path, nil)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	var size counter
	if err := json.NewEncoder(&size).Encode(r); err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	request.ContentLength = int64(size)
	request.Body = &lazyBody{value: r}
	request.GetBody = func() (io.ReadCloser, error) { return &lazyBody{value: r}, nil }
	var answer struct {
		LoadBalancer *godo.LoadBalancer `json:"load_balancer"`
	}
	_, err = a.sdk.Do(ctx, request, &answer)
	return answer.LoadBalancer, err //nolint:wrapcheck // the caller names it
}

type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// lazyBody encodes a value at the first read and drops the text at the end. HTTP/2 may close a body during a read.
type lazyBody struct {
	value any

	mu   sync.Mutex
	text *bytes.Buffer
}

// Read implements io.Reader.
func (b *lazyBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == nil {
		b.text = &bytes.Buffer{}
		if err := json.NewEncoder(b.text).Encode(b.value); err != nil {
			return 0, fmt.Errorf("encoding the request: %w", err)
		}
	}
	return b.text.Read(p) //nolint:wrapcheck // io.EOF must be itself
}

// Close implements io.Closer.
func (b *lazyBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = &bytes.Buffer{}
	return nil
}
