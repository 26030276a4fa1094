package linode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// pageSize is the largest page that the API serves.
const pageSize = 500

// The published limits are per operation: 200 listings and 1600 other calls a minute. A bucket allows its burst plus its rate over a
// minute.
func limitsOf(r *http.Request) (string, []cloudapi.Limit) {
	name := operation(r)
	if r.URL.Query().Has("page") {
		return name, []cloudapi.Limit{{PerSecond: 2, Burst: 80}}
	}
	return name, []cloudapi.Limit{{PerSecond: 15, Burst: 600}}
}

// api is the part of Linode's API that we use, with the common classes of errors.
type api struct {
	sdk  linodego.Client
	http *cloudapi.Client
	// rows are the lists shared by nodes of several configs.
	rows *inventory.Lists[nodeRow]
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("reading LINODE_URL: %w", err)
	}
	client := cloudapi.NewClient(cloudapi.Config{
		Provider:  Name,
		UserAgent: "anyccm/" + in.Version,
		Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.Token.Reveal()) },
		Hosts:     []string{cloudapi.HostOf(c.URL)},
		Operation: operation,
		LimitsOf:  limitsOf,
		Budget:    cloudapi.BudgetIn("X-RateLimit-"),
		Timeout:   time.Duration(c.RequestTimeout) * time.Second,
		Dial:      in.Dial,
	})
	registerMetrics()
	a := &api{sdk: linodego.NewClient(client.Client), http: client, rows: inventory.NewLists[nodeRow]()}
	// The SDK would retry up to a thousand times; the transport retries within limits.
	a.sdk.SetRetryCount(0)
	a.sdk.SetBaseURL(base.Scheme + "://" + base.Host)
	a.sdk.SetAPIVersion(versionOf(base))
	a.sdk.SetLogger(silentLogger{})
	a.sdk.SetDebug(false) // regardless of LINODE_DEBUG: the SDK would log bodies, with private keys in them
	a.sdk.OnAfterResponse(checkAnswer)
	return a, nil
}

// versionOf returns the last path segment that begins with v, like the SDK of Linode's own controller.
func versionOf(base *url.URL) string {
	version := linodego.APIVersion
	for segment := range strings.SplitSeq(base.Path, "/") {
		if strings.HasPrefix(segment, "v") {
			version = segment
		}
	}
	return version
}

// silentLogger discards the SDK's messages for standard error; errors are returned to the caller.
type silentLogger struct{}

func (silentLogger) Errorf(string, ...any) {}
func (silentLogger) Warnf(string, ...any)  {}
func (silentLogger) Debugf(string, ...any) {}

// errNotTheAPI: a proxy's HTML page, which says nothing about any object.
var errNotTheAPI = errors.New("a page instead of an answer of the API; check LINODE_URL and proxies")

// checkAnswer refuses responses that the SDK would take for success: HTML pages, and failures without a reason.
func checkAnswer(r *linodego.Response) error {
	kind, _, _ := strings.Cut(r.Header().Get("Content-Type"), ";")
	switch {
	case strings.TrimSpace(kind) != "application/json":
		return errNotTheAPI
	case r.StatusCode() >= http.StatusBadRequest && !strings.Contains(string(r.Body()), `"reason"`):
		return fmt.Errorf("the API failed without a reason (HTTP %d)", r.StatusCode())
	}
	return nil
}

var identifier = regexp.MustCompile(`^[0-9]+$`)

// operation names a request without identifiers: "GET /v4/nodebalancers/{id}". Only our own calls have names, so that user input cannot
// create another one.
func operation(r *http.Request) string {
	segments := strings.Split(path.Clean(r.URL.Path), "/")
	for i, s := range segments {
		if identifier.MatchString(s) || (i > 0 && segments[i-1] == "regions") || (i > 1 && segments[i-1] == "ips" && segments[i-2] == "reserved") {
			segments[i] = "{id}"
		}
	}
	name := r.Method + " " + strings.Join(segments, "/")
	if methodOf(name) == "" || !versionForm.MatchString(segments[min(1, len(segments)-1)]) {
		return cloudapi.OtherOperation
	}
	return name
}

// versionForm is that of a version of the API.
var versionForm = regexp.MustCompile(`^v[0-9a-z]{1,15}$`)

// call makes one call of the SDK and maps its error.
func call[T any](ctx context.Context, doing string, make func(context.Context) (T, error)) (T, error) {
	ctx, caught := cloudapi.RecordLastResponse(ctx)
	v, err := make(ctx)
	countCall(caught.Operation(), err)
	return v, apiError(err, caught, doing)
}

// read is call for a single object, whose ID is checked.
func read[T any](ctx context.Context, doing string, isIt func(*T) bool, make func(context.Context) (*T, error)) (*T, error) {
	return call(ctx, doing, func(ctx context.Context) (*T, error) {
		v, err := make(ctx)
		if err == nil && (v == nil || !isIt(v)) {
			err = cloudapi.ErrWrongAnswer
		}
		return v, err
	})
}

// do is call for a response without content.
func do(ctx context.Context, doing string, make func(context.Context) error) error {
	_, err := call(ctx, doing, func(ctx context.Context) (struct{}, error) { return struct{}{}, make(ctx) })
	return err
}

// page is one page of a listing.
type page[T any] struct {
	Data    []T `json:"data"`
	Page    int `json:"page"`
	Pages   int `json:"pages"`
	Results int `json:"results"`
}

// listAll reads every page. The listing is complete or an error: the number of objects is compared with the stated total.
func listAll[T any](ctx context.Context, a *api, what, endpoint, filter string) ([]T, int, error) {
	doing := func(number int) string { return fmt.Sprintf("listing %s, page %d", what, number) }
	pages, err := cloudapi.Numbered[*page[T]]{
		What: what,
		Read: func(ctx context.Context, number int) (*page[T], error) {
			return call(ctx, doing(number), func(ctx context.Context) (*page[T], error) {
				request := a.sdk.R(ctx).SetResult(&page[T]{}).SetQueryParams(map[string]string{
					"page": strconv.Itoa(number), "page_size": strconv.Itoa(pageSize),
				})
				if filter != "" {
					request.SetHeader("X-Filter", filter)
				}
				return result[page[T]](request.Get(endpoint))
			})
		},
		Objects: func(p *page[T]) int { return len(p.Data) },
		Total:   func(p *page[T]) int { return p.Results },
		Last: func(p *page[T], number int) int {
			if len(p.Data) == 0 {
				return number
			}
			return p.Pages
		},
	}.List(ctx)
	if err != nil {
		return nil, 1, err
	}
	var all []T
	right := true
	for i, p := range pages {
		all, right = append(all, p.Data...), right && p.Page == i+1
	}
	if last := len(pages); !right || len(all) < pages[last-1].Results {
		return nil, last, &cloudapi.Error{
			Class: cloudapi.ErrTransient, Operation: doing(last),
			Message: fmt.Sprintf("the listing broke off: %d objects on %d pages, but the API states %d", len(all), last, pages[last-1].Results),
		}
	}
	return all, len(pages), nil
}
