package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const pageSize = 200

// limits stay below the published 250 calls a minute and 5000 an hour. A bucket allows its burst plus its rate: 100 + 60×2.5 = 250 and
// 1000 + 3600×1.1 = 4960.
var limits = []cloudapi.Limit{{PerSecond: 2.5, Burst: 100}, {PerSecond: 1.1, Burst: 1000}}

// api calls DigitalOcean's API and maps its errors to cloudapi's classes.
type api struct {
	sdk  *godo.Client
	http *cloudapi.Client
	// metadata is for the metadata service, which needs no credential.
	metadata    *cloudapi.Client
	metadataURL string
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	used := limits
	if c.RateLimitQPS > 0 {
		used = []cloudapi.Limit{{PerSecond: c.RateLimitQPS, Burst: 1}}
	}
	client := cloudapi.NewClient(cloudapi.Config{
		Provider:  Name,
		Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.Token.Reveal()) },
		Hosts:     []string{cloudapi.HostOf(c.BaseURL)},
		Operation: operation,
		Limits:    used,
		Budget:    budget,
		Dial:      in.Dial,
	})
	sdk, err := godo.New(client.Client, godo.SetBaseURL(c.BaseURL), godo.SetUserAgent("anyccm/"+in.Version))
	if err != nil {
		return nil, fmt.Errorf("making the API client: %w", err)
	}
	return &api{
		sdk: sdk, http: client,
		metadata: cloudapi.NewClient(cloudapi.Config{
			Provider: Name, UserAgent: "anyccm/" + in.Version, Timeout: 3 * time.Second, Dial: in.Dial,
			Operation: func(*http.Request) string { return "GET metadata" },
		}),
		metadataURL: c.MetadataURL,
	}, nil
}

var (
	identifier = regexp.MustCompile(`^([0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27})$`)
	collection = regexp.MustCompile(`/tags/[^/]+`)
)

// operations are the paths of our calls, without IDs.
var operations = map[string]bool{
	"/v2/droplets": true, "/v2/droplets/{id}": true, "/v2/load_balancers": true, "/v2/load_balancers/{id}": true,
	"/v2/load_balancers/{id}/droplets": true, "/v2/certificates": true, "/v2/certificates/{id}": true, "/v2/firewalls": true,
	"/v2/firewalls/{id}": true, "/v2/tags": true, "/v2/tags/{name}": true, "/v2/tags/{name}/resources": true, "/v2/account": true, "/v2/regions": true,
}

// operation names a request without IDs, such as "GET /v2/droplets/{id}". Unknown paths share one name, so that metrics stay bounded.
func operation(r *http.Request) string {
	p := collection.ReplaceAllString(path.Clean(r.URL.Path), "/tags/{name}")
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if identifier.MatchString(s) || (i > 0 && segments[i-1] == "load_balancers") {
			segments[i] = "{id}"
		}
	}
	if p = strings.Join(segments, "/"); !operations[p] {
		p = cloudapi.OtherOperation
	}
	return r.Method + " " + p
}

func budget(h http.Header) (cloudapi.Budget, bool) {
	limit, limitErr := strconv.Atoi(h.Get("RateLimit-Limit"))
	remaining, remainingErr := strconv.Atoi(h.Get("RateLimit-Remaining"))
	b := cloudapi.Budget{Limit: limit, Remaining: remaining}
	if reset, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64); err == nil {
		b.Reset = time.Unix(reset, 0)
	}
	return b, limitErr == nil && remainingErr == nil
}

// page is one page of a listing, reduced to the values to keep.
type page[V any] struct {
	kept []V
	more bool
	// total is the total that the API states, or -1.
	total int
}

func pageOf[V any](kept []V, links *godo.Links, meta *godo.Meta) page[V] {
	p := page[V]{kept: kept, total: -1}
	p.more = links != nil && links.Pages != nil && links.Pages.Next != "" && len(kept) > 0
	if meta != nil {
		p.total = meta.Total
	}
	return p
}

// listAll reads every page and keeps the result of keep for each object.
func listAll[T, V any](
	ctx context.Context, what string, list func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error), keep func(*T) V,
) ([]V, int, error) {
	return listPages(ctx, what, pageSize, false, func(ctx context.Context, number int) (page[V], error) {
		items, response, err := list(ctx, &godo.ListOptions{Page: number, PerPage: pageSize})
		if err != nil {
			return page[V]{}, err
		}
		kept := make([]V, len(items))
		for i := range items {
			kept[i] = keep(&items[i])
		}
		return pageOf(kept, response.Links, response.Meta), nil
	})
}

// listPages reads every page of a listing; large is for pages of which little is kept. The number of objects must match the API's total,
// so that a missing link to the next page is noticed.
func listPages[V any](
	ctx context.Context, what string, perPage int, large bool, read func(ctx context.Context, number int) (page[V], error),
) ([]V, int, error) {
	pages, err := cloudapi.Numbered[page[V]]{
		What: what, Large: large,
		Read: func(ctx context.Context, number int) (page[V], error) {
			p, err := read(ctx, number)
			return p, apiError(err, fmt.Sprintf("listing %s, page %d", what, number))
		},
		Objects: func(p page[V]) int { return len(p.kept) },
		Total:   func(p page[V]) int { return p.total },
		Last: func(p page[V], number int) int {
			if !p.more {
				return number
			}
			return max(number+1, (p.total+perPage-1)/perPage)
		},
	}.List(ctx)
	if err != nil {
		return nil, 1, err
	}
	var all []V
	for _, p := range pages {
		all = append(all, p.kept...)
	}
	if total := pages[len(pages)-1].total; total < 0 || len(all) < total {
		return nil, len(pages), &cloudapi.Error{
			Class: cloudapi.ErrTransient, Operation: "listing " + what,
			Message: fmt.Sprintf("the listing broke off: %d objects on %d pages, but the API states no total or a larger one", len(all), len(pages)),
		}
	}
	return all, len(pages), nil
}

func identity[T any](v *T) *T { return v }

func (a *api) droplets(ctx context.Context) ([]droplet, int, error) {
	plain, pages, err := listAll(ctx, "droplets", a.sdk.Droplets.List, newDroplet)
	if err != nil {
		return nil, pages, err
	}
	// The plain listing leaves out droplets with GPUs.
	gpu, gpuPages, err := listAll(ctx, "GPU droplets", a.sdk.Droplets.ListWithGPUs, newDroplet)
	if err != nil {
		return nil, pages + gpuPages, err
	}
	return append(plain, gpu...), pages + gpuPages, nil
}

func (a *api) droplet(ctx context.Context, id int) (droplet, error) {
	d, _, err := a.sdk.Droplets.Get(ctx, id)
	if err == nil && (d == nil || d.ID != id) {
		err = errWrongAnswer
	}
	if err != nil {
		return droplet{}, apiError(err, fmt.Sprintf("reading droplet %d", id))
	}
	return newDroplet(d), nil
}

// errWrongAnswer: the response was successful but lacks the requested object.
var errWrongAnswer = errors.New("the answer does not hold the object that was asked for")

func (a *api) loadBalancer(ctx context.Context, id string) (*godo.LoadBalancer, error) {
	lb, _, err := a.sdk.LoadBalancers.Get(ctx, id)
	if err == nil && (lb == nil || lb.ID != id) {
		err = errWrongAnswer
	}
	return lb, apiError(err, "reading load balancer "+id)
}

func (a *api) certificates(ctx context.Context) ([]*godo.Certificate, int, error) {
	return listAll(ctx, "certificates", a.sdk.Certificates.List, identity)
}

func (a *api) certificate(ctx context.Context, id string) (*godo.Certificate, error) {
	c, _, err := a.sdk.Certificates.Get(ctx, id)
	if err == nil && (c == nil || c.ID != id) {
		err = errWrongAnswer
	}
	return c, apiError(err, "reading certificate "+id)
}

func (a *api) createLoadBalancer(ctx context.Context, r *godo.LoadBalancerRequest) (*godo.LoadBalancer, error) {
	lb, err := a.sendLoadBalancer(ctx, http.MethodPost, loadBalancersPath, r)
	if err == nil && (lb == nil || lb.ID == "") {
		err = errWrongAnswer
	}
	return lb, apiError(err, "creating load balancer "+r.Name)
}

func (a *api) replaceLoadBalancer(ctx context.Context, id string, r *godo.LoadBalancerRequest) (*godo.LoadBalancer, error) {
	lb, err := a.sendLoadBalancer(ctx, http.MethodPut, loadBalancersPath+"/"+id, r)
	if err == nil && (lb == nil || lb.ID != id) {
		err = errWrongAnswer
	}
	return lb, apiError(err, "updating load balancer "+id)
}

func (a *api) addDroplets(ctx context.Context, id string, droplets []int) error {
	err := checkNoContent(a.sdk.LoadBalancers.AddDroplets(ctx, id, droplets...))
	return apiError(err, "adding droplets to load balancer "+id)
}

func (a *api) removeDroplets(ctx context.Context, id string, droplets []int) error {
	err := checkNoContent(a.sdk.LoadBalancers.RemoveDroplets(ctx, id, droplets...))
	return apiError(err, "removing droplets from load balancer "+id)
}

func (a *api) deleteLoadBalancer(ctx context.Context, id string) error {
	err := checkNoContent(a.sdk.LoadBalancers.Delete(ctx, id))
	return apiError(err, "deleting load balancer "+id)
}

func (a *api) firewalls(ctx context.Context) ([]*godo.Firewall, int, error) {
	return listAll(ctx, "firewalls", a.sdk.Firewalls.List, identity)
}

func (a *api) firewall(ctx context.Context, id string) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Get(ctx, id)
	if err == nil && (f == nil || f.ID != id) {
		err = errWrongAnswer
	}
	return f, apiError(err, "reading firewall "+id)
}

func (a *api) createFirewall(ctx context.Context, r *godo.FirewallRequest) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Create(ctx, r)
	if err == nil && (f == nil || f.ID == "") {
		err = errWrongAnswer
	}
	return f, apiError(err, "creating firewall "+r.Name)
}

func (a *api) replaceFirewall(ctx context.Context, id string, r *godo.FirewallRequest) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Update(ctx, id, r)
	if err == nil && (f == nil || f.ID != id) {
		err = errWrongAnswer
	}
	return f, apiError(err, "updating firewall "+id)
}

func (a *api) createTag(ctx context.Context, name string) error {
	tag, _, err := a.sdk.Tags.Create(ctx, &godo.TagCreateRequest{Name: name})
	if err == nil && (tag == nil || tag.Name != name) {
		err = errWrongAnswer
	}
	return apiError(err, "creating tag "+name)
}

func (a *api) tagLoadBalancers(ctx context.Context, tag string, ids []string) error {
	request := &godo.TagResourcesRequest{}
	for _, id := range ids {
		request.Resources = append(request.Resources, godo.Resource{ID: id, Type: godo.LoadBalancerResourceType})
	}
	err := checkNoContent(a.sdk.Tags.TagResources(ctx, tag, request))
	return apiError(err, fmt.Sprintf("tagging %d load balancers with %s", len(ids), tag))
}

// tag creates a missing tag before it tags the load balancers.
func (a *api) tag(ctx context.Context, tag string, ids []string) error {
	err := a.tagLoadBalancers(ctx, tag, ids)
	if !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	if err := a.createTag(ctx, tag); err != nil {
		return err
	}
	return a.tagLoadBalancers(ctx, tag, ids)
}

func (a *api) untagLoadBalancer(ctx context.Context, tag, id string) error {
	request := &godo.UntagResourcesRequest{Resources: []godo.Resource{{ID: id, Type: godo.LoadBalancerResourceType}}}
	err := checkNoContent(a.sdk.Tags.UntagResources(ctx, tag, request))
	return apiError(err, fmt.Sprintf("taking the tag %s off load balancer %s", tag, id))
}

// account reads the account, which every credential may do, as a check.
func (a *api) account(ctx context.Context) error {
	_, _, err := a.sdk.Account.Get(ctx)
	return apiError(err, "reading the account")
}

// checkNoContent accepts a response without an object only with status 204, because the page of a proxy has status 200.
func checkNoContent(response *godo.Response, err error) error {
	if err == nil && response.StatusCode != http.StatusNoContent {
		return errWrongAnswer
	}
	return err
}

func (a *api) regionSlugs(ctx context.Context) ([]string, error) {
	slugs, _, err := listAll(ctx, "regions", a.sdk.Regions.List, func(r *godo.Region) string { return r.Slug })
	return slugs, err
}

// ownRegion returns the region of the droplet that the program runs on, from the metadata service.
func (a *api) ownRegion(ctx context.Context) (string, error) {
	const doing = "asking the metadata service for the region (set REGION where there is none)"
	address, err := url.JoinPath(a.metadataURL, "metadata/v1/region")
	if err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	response, err := a.metadata.Do(request)
	if err != nil {
		return "", cloudapi.Describe(err, doing)
	}
	defer response.Body.Close()
	text, err := readText(response)
	if err != nil {
		return "", cloudapi.Describe(err, doing)
	}
	return text, nil
}

// readText returns the body of a successful response if it is a single word.
func readText(r *http.Response) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if r.StatusCode != http.StatusOK || text == "" || strings.ContainsAny(text, " <\n") {
		return "", fmt.Errorf("unusable answer with HTTP %d", r.StatusCode)
	}
	return text, nil
}
