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

// Each load balancer names all its droplets, in what we send and in every answer: with 15,000 nodes that is 150 kB of text, and a page of
// 200 load balancers would be larger than any answer may be. So pages have fewer then, an answer is decoded one load balancer at a time,
// and what is sent is put into text when it is sent, not while it waits for its turn.

const (
	loadBalancersPath = "v2/load_balancers"
	// pageText is how much text a page of load balancers should be at most: a third of what one answer may be.
	pageText = 8 << 20
	// dropletText and balancerText are the text of a droplet's ID with its comma, and of everything else about a load balancer.
	dropletText, balancerText = 11, 3 << 10
)

// balancersPerPage is how many load balancers fit on a page where each has so many droplets.
func balancersPerPage(droplets int) int {
	return min(max(pageText/(balancerText+droplets*dropletText), 1), pageSize)
}

// loadBalancers lists all load balancers of the account; nodes is how many droplets each of ours may have. Those of other clusters may have
// many more: where pages turn out too large, smaller ones are read. Lists of droplets that are equal are one in memory.
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

// dropletLists keeps equal lists of droplets once; most are recognised by their text alone.
type dropletLists struct {
	lists *inventory.Lists[int]
	// most is how many load balancers fit on a page, where more did not; 0 is not known.
	most atomic.Int64

	mu     sync.Mutex
	recent []listText
}

// listText is a list of droplets as it came, and what it is.
type listText struct {
	text []byte
	ids  []int
}

// recentTexts is how many texts are kept: those of before and after a change of nodes.
const recentTexts = 4

func newDropletLists() *dropletLists { return &dropletLists{lists: inventory.NewLists[int]()} }

// perPage is how many load balancers to ask for, each of which may have so many droplets.
func (d *dropletLists) perPage(nodes int) int {
	perPage := balancersPerPage(nodes)
	if most := int(d.most.Load()); most != 0 {
		perPage = min(perPage, most)
	}
	return perPage
}

// parse returns the droplets of a text, in order.
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

// listed is a load balancer in a listing, whose droplets are read by their text.
type listed struct {
	*godo.LoadBalancer

	Droplets json.RawMessage `json:"droplet_ids"`
}

// decodeBalancers reads a page without ever holding more than one load balancer's list of droplets besides those that it shares.
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
				lb := listed{LoadBalancer: &godo.LoadBalancer{}, Droplets: droplets[:0]}
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

// eachField goes through the fields of an object; do reads the value of each.
func eachField(decoder *json.Decoder, do func(name string) error) error {
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return unlike("an object", start, err)
	}
	for decoder.More() {
		token, err := decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return unlike("a name", token, err)
		}
		if err := do(name); err != nil {
			return err
		}
	}
	if end, err := decoder.Token(); err != nil {
		return unlike("the end", end, err)
	}
	return nil
}

// eachElement goes through the elements of a list; do reads each. null is a list of none.
func eachElement(decoder *json.Decoder, do func() error) error {
	switch start, err := decoder.Token(); {
	case err == nil && start == nil:
		return nil
	case err != nil || start != json.Delim('['):
		return unlike("a list", start, err)
	}
	for decoder.More() {
		if err := do(); err != nil {
			return err
		}
	}
	if end, err := decoder.Token(); err != nil {
		return unlike("the end of a list", end, err)
	}
	return nil
}

// unlike is the error of an answer that is not what it should be.
func unlike(what string, found json.Token, err error) error {
	if err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return fmt.Errorf("%w: %v in place of %s", errWrongAnswer, found, what)
}

// sendLoadBalancer creates or replaces a load balancer.
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
	request.Body = &lateBody{value: r}
	request.GetBody = func() (io.ReadCloser, error) { return &lateBody{value: r}, nil }
	var answer struct {
		LoadBalancer *godo.LoadBalancer `json:"load_balancer"`
	}
	_, err = a.sdk.Do(ctx, request, &answer)
	return answer.LoadBalancer, err //nolint:wrapcheck // the caller names it
}

// counter counts what is written.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// lateBody is the JSON of a value, which is there from when it is first read until it is closed. HTTP/2 closes bodies that are still read.
type lateBody struct {
	value any

	mu   sync.Mutex
	text *bytes.Buffer
}

// Read implements io.Reader.
func (b *lateBody) Read(p []byte) (int, error) {
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
func (b *lateBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = &bytes.Buffer{}
	return nil
}
