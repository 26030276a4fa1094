package xcloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// limits are below the published limits of the cloud.
var limits = []cloudapi.Limit{{PerSecond: 100, Burst: 100}}

// api calls the cloud and returns common errors. With an SDK, pass http.Client to it.
type api struct {
	http *cloudapi.Client
	url  string
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	return &api{url: strings.TrimSuffix(c.URL, "/"), http: cloudapi.NewClient(cloudapi.Config{
		Provider:  Name,
		UserAgent: "anyccm/" + in.Version,
		Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.Token.Reveal()) },
		Hosts:     []string{cloudapi.HostOf(c.URL)},
		Operation: operation,
		Limits:    limits,
		Dial:      in.Dial,
	})}, nil
}

var identifier = regexp.MustCompile(`^/v1/(instances|load_balancers)/[^/]+$`)

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	path := r.URL.Path
	if match := identifier.FindStringSubmatch(path); match != nil {
		path = "/v1/" + match[1] + "/{id}"
	}
	switch path {
	case "/v1/instances", "/v1/instances/{id}", "/v1/load_balancers", "/v1/load_balancers/{id}":
		return r.Method + " " + path
	}
	return r.Method + " " + cloudapi.OtherOperation
}

// call makes one call. Errors begin with what, such as "creating load balancer web".
func (a *api) call(ctx context.Context, what, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	return read(answer, what, out)
}

// page is one page of a listing.
type page[T any] struct {
	Items []T  `json:"items"`
	Total int  `json:"total"`
	More  bool `json:"more"`
}

// list reads all pages. It fails unless it got the total that the API states.
func list[T any](ctx context.Context, a *api, what, path string, query url.Values) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	for number := 1; ; number++ {
		query.Set("page", strconv.Itoa(number))
		var p page[T]
		if err = a.call(ctx, "listing "+what, http.MethodGet, path+"?"+query.Encode(), nil, &p); err == nil {
			err = listing.Add(len(p.Items))
		}
		if err != nil {
			return nil, number, err
		}
		all = append(all, p.Items...)
		switch {
		case p.More && len(p.Items) > 0:
		case len(all) < p.Total:
			return nil, number, &cloudapi.Error{
				Class: cloudapi.ErrTransient, Operation: "listing " + what,
				Message: fmt.Sprintf("the listing broke off: %d of %d objects on %d pages", len(all), p.Total, number),
			}
		default:
			return all, number, nil
		}
	}
}
