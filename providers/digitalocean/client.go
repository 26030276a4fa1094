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
	"strings"
	"sync/atomic"
	"time"

	"github.com/digitalocean/godo"
	"k8s.io/utils/ptr"

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
	// perPage is the number of load balancers on a page after a larger one was too large; 0 if none was.
	perPage atomic.Int64
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
		Budget:    cloudapi.BudgetIn("RateLimit-"),
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

// page is one page of a listing, reduced to the values to keep.
type page[V any] struct {
	kept []V
	more bool
	// total is the total that the API states, or -1.
	total int
}

// listAll reads every page and keeps the result of keep for each object. The number of objects must match the API's total, so that a
// missing link to the next page is noticed.
func listAll[T, V any](
	ctx context.Context, what string, perPage int, list func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error), keep func(*T) V,
) ([]V, int, error) {
	pages, err := cloudapi.Numbered[page[V]]{
		What: what, Large: perPage < pageSize,
		Read: func(ctx context.Context, number int) (page[V], error) {
			items, response, err := list(ctx, &godo.ListOptions{Page: number, PerPage: perPage})
			if err != nil {
				return page[V]{}, apiError(err, fmt.Sprintf("listing %s, page %d", what, number))
			}
			p := page[V]{kept: make([]V, len(items)), total: -1}
			for i := range items {
				p.kept[i] = keep(&items[i])
			}
			if response.Meta != nil {
				p.total = response.Meta.Total
			}
			links := ptr.Deref(response.Links, godo.Links{})
			p.more = len(items) > 0 && ptr.Deref(links.Pages, godo.Pages{}).Next != ""
			return p, nil
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
	plain, pages, err := listAll(ctx, "droplets", pageSize, a.sdk.Droplets.List, newDroplet)
	if err != nil {
		return nil, pages, err
	}
	// The plain listing leaves out droplets with GPUs.
	gpu, gpuPages, err := listAll(ctx, "GPU droplets", pageSize, a.sdk.Droplets.ListWithGPUs, newDroplet)
	if err != nil {
		return nil, pages + gpuPages, err
	}
	return append(plain, gpu...), pages + gpuPages, nil
}

func (a *api) droplet(ctx context.Context, id int) (droplet, error) {
	d, _, err := a.sdk.Droplets.Get(ctx, id)
	if d, err = checkAnswer(d, err, d != nil && d.ID == id, fmt.Sprintf("reading droplet %d", id)); err != nil {
		return droplet{}, err
	}
	return newDroplet(d), nil
}

// checkAnswer maps the error of a call. A successful response without the right object is an error too.
func checkAnswer[T any](v T, err error, right bool, operation string) (T, error) {
	if err == nil && !right {
		err = cloudapi.ErrWrongAnswer
	}
	return v, apiError(err, operation)
}

func (a *api) loadBalancer(ctx context.Context, id string) (*godo.LoadBalancer, error) {
	lb, _, err := a.sdk.LoadBalancers.Get(ctx, id)
	return checkAnswer(lb, err, lb != nil && lb.ID == id, "reading load balancer "+id)
}

func (a *api) certificates(ctx context.Context) ([]*godo.Certificate, int, error) {
	return listAll(ctx, "certificates", pageSize, a.sdk.Certificates.List, identity)
}

func (a *api) certificate(ctx context.Context, id string) (*godo.Certificate, error) {
	c, _, err := a.sdk.Certificates.Get(ctx, id)
	return checkAnswer(c, err, c != nil && c.ID == id, "reading certificate "+id)
}

// Each load balancer lists all its droplets, so that a page has fewer of them if there are many nodes.
const (
	// pageText bounds the size of a page of load balancers: a third of the maximum response.
	pageText = 8 << 20
	// dropletText and balancerText estimate the size of a droplet's ID and of the rest of a load balancer.
	dropletText, balancerText = 11, 3 << 10
)

// balancersPerPage returns how many load balancers with that many droplets fit on a page.
func balancersPerPage(droplets int) int {
	return min(max(pageText/(balancerText+droplets*dropletText), 1), pageSize)
}

// loadBalancers lists the account's load balancers; nodes is the expected number of droplets of each. Other clusters may have more, so too
// large a page is read again in smaller ones.
func (a *api) loadBalancers(
	ctx context.Context, nodes int, keep func(*godo.LoadBalancer) *godo.LoadBalancer,
) ([]*godo.LoadBalancer, int, error) {
	for before := 0; ; {
		perPage := balancersPerPage(nodes)
		if smaller := int(a.perPage.Load()); smaller != 0 {
			perPage = min(perPage, smaller)
		}
		all, pages, err := listAll(ctx, "load balancers", perPage, a.sdk.LoadBalancers.List, keep)
		if perPage == 1 || !errors.Is(err, cloudapi.ErrTooLarge) {
			return all, before + pages, err
		}
		a.perPage.Store(int64(max(perPage/4, 1)))
		before += max(pages, 1)
	}
}

func (a *api) createLoadBalancer(ctx context.Context, r *godo.LoadBalancerRequest) (*godo.LoadBalancer, error) {
	lb, _, err := a.sdk.LoadBalancers.Create(ctx, r)
	return checkAnswer(lb, err, lb != nil && lb.ID != "", "creating load balancer "+r.Name)
}

func (a *api) replaceLoadBalancer(ctx context.Context, id string, r *godo.LoadBalancerRequest) (*godo.LoadBalancer, error) {
	lb, _, err := a.sdk.LoadBalancers.Update(ctx, id, r)
	return checkAnswer(lb, err, lb != nil && lb.ID == id, "updating load balancer "+id)
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
	return listAll(ctx, "firewalls", pageSize, a.sdk.Firewalls.List, identity)
}

func (a *api) firewall(ctx context.Context, id string) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Get(ctx, id)
	return checkAnswer(f, err, f != nil && f.ID == id, "reading firewall "+id)
}

func (a *api) createFirewall(ctx context.Context, r *godo.FirewallRequest) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Create(ctx, r)
	return checkAnswer(f, err, f != nil && f.ID != "", "creating firewall "+r.Name)
}

func (a *api) replaceFirewall(ctx context.Context, id string, r *godo.FirewallRequest) (*godo.Firewall, error) {
	f, _, err := a.sdk.Firewalls.Update(ctx, id, r)
	return checkAnswer(f, err, f != nil && f.ID == id, "updating firewall "+id)
}

func (a *api) createTag(ctx context.Context, name string) error {
	tag, _, err := a.sdk.Tags.Create(ctx, &godo.TagCreateRequest{Name: name})
	_, err = checkAnswer(tag, err, tag != nil && tag.Name == name, "creating tag "+name)
	return err
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

// hasTag reports whether the account has a tag.
func (a *api) hasTag(ctx context.Context, name string) (bool, error) {
	tag, _, err := a.sdk.Tags.Get(ctx, name)
	_, err = checkAnswer(tag, err, tag != nil && tag.Name == name, "reading tag "+name)
	return err == nil, cloudapi.IgnoreNotFound(err)
}

// account reads the account, which every credential may do, as a check.
func (a *api) account(ctx context.Context) error {
	_, _, err := a.sdk.Account.Get(ctx)
	return apiError(err, "reading the account")
}

// checkNoContent accepts a response without an object only with status 204, because the page of a proxy has status 200.
func checkNoContent(response *godo.Response, err error) error {
	if err == nil && response.StatusCode != http.StatusNoContent {
		return cloudapi.ErrWrongAnswer
	}
	return err
}

func (a *api) regionSlugs(ctx context.Context) ([]string, error) {
	slugs, _, err := listAll(ctx, "regions", pageSize, a.sdk.Regions.List, func(r *godo.Region) string { return r.Slug })
	return slugs, err
}

// ownRegion returns the region of the droplet that the program runs on.
func (a *api) ownRegion(ctx context.Context) (string, error) {
	region, err := a.readRegion(ctx)
	return region, cloudapi.Describe(err, "asking the metadata service for the region (set REGION where there is none)")
}

// readRegion reads the region from the metadata service. More than a single word is a proxy's page.
func (a *api) readRegion(ctx context.Context) (string, error) {
	address, err := url.JoinPath(a.metadataURL, "metadata/v1/region")
	if err != nil {
		return "", fmt.Errorf("making the address: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", fmt.Errorf("making the request: %w", err)
	}
	response, err := a.metadata.Do(request)
	if err != nil {
		return "", err //nolint:wrapcheck // ownRegion says what it was
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if response.StatusCode != http.StatusOK || text == "" || strings.ContainsAny(text, " <\n") {
		return "", fmt.Errorf("unusable answer with HTTP %d", response.StatusCode)
	}
	return text, nil
}
