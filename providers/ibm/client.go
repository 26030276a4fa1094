package ibm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// apiVersion is the requested version of the VPC API, a date.
	apiVersion = "2026-01-27"
	// pageSize is the largest that the API accepts.
	pageSize = "100"
	// attemptTimeout bounds one call: a page of 100 instances takes the API seconds.
	attemptTimeout = 30 * time.Second
)

// limits are our own: the API publishes none. They leave room for other users of the account.
var limits = []cloudapi.Limit{{PerSecond: 10, Burst: 60}}

// api is the part of the VPC API that we use, with the common classes of errors.
type api struct {
	http      *cloudapi.Client
	config    Config
	endpoints endpoints
	keeper    *session.Keeper[secret, token]
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	return &api{config: c, endpoints: c.endpoints(), keeper: newTokens(c, in), http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Limits: limits, Timeout: attemptTimeout, Dial: in.Dial,
		Operation: restapi.Operations(
			"/v2/resource_groups", "/v1/instances", "/v1/instances/{id}", "/v1/subnets", "/v1/vpcs/{id}/default_security_group", "/v1/security_groups",
			"/v1/security_groups/{id}", "/v1/security_groups/{id}/rules", "/v1/security_groups/{id}/rules/{id}", "/v1/security_groups/{id}/targets/{id}",
			"/v1/load_balancers", "/v1/load_balancers/{id}", "/v1/load_balancers/{id}/listeners", "/v1/load_balancers/{id}/listeners/{id}",
			"/v1/load_balancers/{id}/pools", "/v1/load_balancers/{id}/pools/{id}", "/v1/load_balancers/{id}/pools/{id}/members",
		),
	})}, nil
}

// request is one call of the VPC API.
type request struct {
	// what names it in errors, such as "creating load balancer web".
	what, method, path string
	query              url.Values
	in                 any
	// account is sent if members are instances of another account, that of the workers.
	account string
	// match is the ETag that the object must still have, if required; etag receives that of the response.
	match string
	etag  *string
}

// call makes one call of the VPC API. out is nil if the response's content does not matter.
func (a *api) call(ctx context.Context, q request, out any) error {
	query := url.Values{"version": {apiVersion}, "generation": {"2"}}
	maps.Copy(query, q.query)
	return a.send(ctx, q, a.endpoints.vpc+"/v1"+q.path+"?"+query.Encode(), out)
}

// send makes a call in a session.
func (a *api) send(ctx context.Context, q request, address string, out any) error {
	var body []byte
	if q.in != nil {
		var err error
		if body, err = json.Marshal(q.in); err != nil {
			return fmt.Errorf("%s: %w", q.what, err)
		}
	}
	return a.keeper.Do(ctx, func(t token) error {
		if !time.Now().Before(t.until) {
			return &cloudapi.Error{Class: cloudapi.ErrUnauthorized, Operation: q.what, NotSent: true, Message: "the token has ended", Cause: session.ErrEnded}
		}
		return a.sendOnce(ctx, q, address, t, body, out)
	})
}

func (a *api) sendOnce(ctx context.Context, q request, address string, t token, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, q.method, address, bytes.NewReader(body))
	if err != nil {
		return cloudapi.Unclear(q.what, "the address cannot be used; %s", checkEndpoint)
	}
	if body == nil {
		r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, 0
	}
	r.Header.Set("Authorization", "Bearer "+t.access)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("X-Request-Id", string(uuid.NewUUID()))
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if body != nil && q.method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if q.match != "" {
		r.Header.Set("If-Match", q.match)
	}
	if q.account != "" {
		r.Header.Set("X-Instance-Account-Id", q.account)
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return cloudapi.Unanswered(err, q.what, checkEndpoint)
	}
	defer answer.Body.Close()
	if q.etag != nil {
		*q.etag = answer.Header.Get("ETag")
	}
	return read(answer, q.what, out, t.access)
}

// read decodes a response, or maps it to an error without the request's secrets. A required content must not be empty.
func read(answer *http.Response, what string, out any, secret string) error {
	body, err := io.ReadAll(answer.Body) // the client below bounds it
	switch {
	case err != nil:
		return cloudapi.Describe(err, what)
	case answer.StatusCode >= http.StatusMultipleChoices:
		return apiError(answer, what, hideSecrets(body, secret))
	case out == nil && answer.StatusCode == http.StatusOK && !isJSON(answer.Header):
		err = fmt.Errorf("a page with status %d", answer.StatusCode)
	case out == nil:
		return nil
	case !isJSON(answer.Header):
		err = fmt.Errorf("content of type %.40q", answer.Header.Get("Content-Type"))
	default:
		err = json.Unmarshal(body, out)
	}
	if err == nil {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, Cause: err,
		Message: "the answer is not that of the API; " + checkEndpoint,
	}
}

// page is a page of a listing. The key of the objects differs between listings.
type page struct {
	Total *int `json:"total_count"`
	Next  *struct {
		Href string `json:"href"`
	} `json:"next"`
}

// maxListings bounds how often a listing is read if its objects change meanwhile.
const maxListings = 3

// errShifted is about a listing whose number of objects changed between two pages: an object may have been missed.
var errShifted = errors.New("objects came or went while the listing was read")

// list reads all pages of a listing. It is complete, or an error; a page without the requested list is an error too.
func list[T any](ctx context.Context, a *api, key, path string, query url.Values) (all []T, pages int, err error) {
	for try := 1; ; try++ {
		var more int
		all, more, err = listOnce[T](ctx, a, key, path, maps.Clone(query))
		pages += more
		if try == maxListings || !errors.Is(err, errShifted) {
			return all, pages, err
		}
	}
}

func listOnce[T any](ctx context.Context, a *api, key, path string, query url.Values) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	var total *int
	what := "listing " + strings.ReplaceAll(key, "_", " ")
	query.Set("limit", pageSize)
	for {
		pages++
		var raw json.RawMessage
		if err := a.call(ctx, request{what: what, method: http.MethodGet, path: path, query: query}, &raw); err != nil {
			return nil, pages, cloudapi.NotAbsence(err)
		}
		items, about, err := readPage[T](what, key, raw)
		if err == nil {
			err = listing.Add(len(items))
		}
		if err == nil && total != nil && about.Total != nil && *total != *about.Total {
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: errShifted.Error(), Cause: errShifted}
		}
		if err != nil {
			return nil, pages, err
		}
		all, total = append(all, items...), about.Total
		if about.Next == nil {
			if about.Total != nil && len(all) < *about.Total {
				return nil, pages, cloudapi.Unclear(what, "the listing broke off: %d of %d objects on %d pages", len(all), *about.Total, pages)
			}
			return all, pages, nil
		}
		next, err := url.Parse(about.Next.Href)
		start := ""
		if err == nil {
			start = next.Query().Get("start")
		}
		if start == "" {
			return nil, pages, cloudapi.Unclear(what, "the address of page %d cannot be read", pages+1)
		}
		if err := listing.Turn(start); err != nil {
			return nil, pages, err
		}
		query.Set("start", start)
	}
}

// readPage reads the objects of one page.
func readPage[T any](what, key string, raw json.RawMessage) (items []T, about page, err error) {
	var fields map[string]json.RawMessage
	if err = json.Unmarshal(raw, &fields); err == nil {
		err = json.Unmarshal(raw, &about)
	}
	if err == nil && fields[key] == nil {
		err = fmt.Errorf("there is no %q", key)
	}
	if err == nil {
		err = json.Unmarshal(fields[key], &items)
	}
	if err == nil && items == nil {
		err = fmt.Errorf("%q is null", key)
	}
	if err != nil {
		return nil, about, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: "the answer is not that of the API; " + checkEndpoint, Cause: err}
	}
	return items, about, nil
}
