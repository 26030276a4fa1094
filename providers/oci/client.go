package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	coreVersion     = "/20160918"
	balancerVersion = "/20170115"
	nlbVersion      = "/20200501" // of network load balancers, a service with a host of its own
	nlbPath         = "/networkLoadBalancers"
	balancerPath    = "/loadBalancers"
	// pageLimit is how many objects a page of a listing may have. A page of load balancers has fewer: each may name 1,024 backends of 150
	// bytes, so that 1,000 would exceed the size of an answer.
	pageLimit, balancerPageLimit = "1000", "100"
	// slowest is the rate to which the cloud's own refusals may slow calls down; the cloud seldom says how long to wait.
	slowest = 0.5
)

// api calls the cloud's API.
type api struct {
	http   *cloudapi.Client
	config Config
	// location returns the region and the compartment of the cluster.
	location func(context.Context) (location, error)
	// nodes are those of the cluster. They name compartments of instances, and say whether IPv6 matters.
	nodes *nodecount.Counter
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	m := newMetadata(c, in)
	l := &locator{config: c, metadata: m}
	a := &api{config: c, location: l.locate, nodes: &nodecount.Counter{}}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, LimitsOf: c.limits, Repeatable: isRepeatable,
		Transport: newSigner(credentials(c, newTokenIssuer(c, in, m, l.locate)), cloudapi.NewTransport(in.Dial)),
	})
	return a, nil
}

// credentials returns the source of credentials that the options select: a user's key, the instance, or a service account.
func credentials(c Config, i *tokenIssuer) func(context.Context, credential) (credential, error) {
	own := newTokens(i.tokenOfInstance)
	switch {
	case c.InstancePrincipals:
		return own.Get
	case c.WorkloadIdentity:
		return newTokens(i.tokenForServiceAccount(own)).Get
	}
	return userKey(c)
}

// serviceURL returns the base URL of a service in a region.
func (c *Config) serviceURL(region, service, domain string) string {
	switch {
	case c.Endpoint != "":
		return strings.TrimSuffix(c.Endpoint, "/")
	case strings.Contains(region, "."):
		return "https://" + service + "." + region // a region with a dot is a domain
	}
	return "https://" + service + "." + region + "." + domain
}

// isNLBPath reports whether a path belongs to the service for network load balancers.
func isNLBPath(path string) bool {
	return strings.HasPrefix(path, nlbPath) || strings.HasPrefix(path, "/workRequests")
}

// apiURL returns the URL prefix of an API path.
func (c *Config) apiURL(region, path string) string {
	if isNLBPath(path) {
		return c.serviceURL(region, "network-load-balancer-api", "oci."+c.Domain) + nlbVersion
	}
	base := c.serviceURL(region, "iaas", c.Domain)
	if strings.HasPrefix(path, "/loadBalancer") {
		return base + balancerVersion
	}
	return base + coreVersion
}

// page is a page of a listing: the objects, or a document that has them as items.
type page[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (p *page[T]) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return json.Unmarshal(data, (*[]T)(p))
	}
	var of struct {
		Items *[]T `json:"items"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return err
	}
	if of.Items == nil {
		return errors.New("it has no items")
	}
	*p = *of.Items
	return nil
}

// limits holds calls back, reads and writes apart. Calls wait, and never fail because of it.
func (c *Config) limits(r *http.Request) (string, []cloudapi.Limit) {
	if c.Unlimited {
		return "", nil
	}
	if r.Method == http.MethodGet {
		return "read", []cloudapi.Limit{limitOrUsual(c.ReadQPS, c.ReadBucket)}
	}
	return "write", []cloudapi.Limit{limitOrUsual(c.WriteQPS, c.WriteBucket)}
}

// limitOrUsual returns a limit of the options, where 0 stands for the default.
func limitOrUsual(perSecond float64, burst int) cloudapi.Limit {
	return cloudapi.Limit{PerSecond: cmp.Or(perSecond, 20), Burst: cmp.Or(burst, 5), Floor: slowest}
}

var resource = regexp.MustCompile(`^/[0-9]{8}/(instances|vnicAttachments|vnics|subnets|vcns|privateIps|ipv6|publicIps|loadBalancers|loadBalancerWorkRequests|` +
	`securityLists|networkSecurityGroups|networkLoadBalancers|workRequests)(/[^/]+)?(/(?:errors|workRequests|backendSets|listeners|certificates|ruleSets|updateShape|networkSecurityGroups|` +
	`securityRules|actions))?(/[^/]+)?$`)

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	match := resource.FindStringSubmatch(r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, byAddressPath):
		return r.Method + " " + byAddressPath
	case match == nil:
		return r.Method + " " + cloudapi.OtherOperation
	case match[2] == "":
		return r.Method + " /" + match[1]
	}
	name := r.Method + " /" + match[1] + "/{id}" + match[3]
	switch {
	case match[3] == "/actions":
		name += match[4]
	case match[4] != "":
		name += "/{name}"
	}
	return name
}

// What callers of the API add: a retry token makes a POST repeatable, and an ETag a write conditional.
const (
	tokenHeader = "Opc-Retry-Token" //nolint:gosec // the name of a header
	ifMatch     = "If-Match"
)

// call makes one call. what names it in errors, such as "reading instance ocid1…".
func (a *api) call(ctx context.Context, what, method, path string, in, out any, headers http.Header) (http.Header, error) {
	where, err := a.location(ctx)
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.config.apiURL(where.region, path)+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Accept", "application/json")
	maps.Copy(r.Header, headers)
	answer, err := a.http.Do(r)
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	return answer.Header, decode(answer, what, out)
}

// get reads one object.
func (a *api) get(ctx context.Context, what, path string, out any) error {
	_, err := a.call(ctx, "reading "+what, http.MethodGet, path, nil, out, nil)
	return err
}

// getByID reads the object of an ID, below the path of its kind.
func getByID[T any](ctx context.Context, a *api, kind, path, id string, idOf func(T) string) (found T, err error) {
	what := kind + " " + id
	if err := a.get(ctx, what, path+"/"+url.PathEscape(id), &found); err != nil {
		return found, err
	}
	if idOf(found) != id {
		return found, cloudapi.Unclear("reading "+what, "the answer is about another one")
	}
	return found, nil
}

func pageLimitOf(path string) string {
	if path == balancerPath || path == nlbPath {
		return balancerPageLimit
	}
	return pageLimit
}

// list reads every page. A page may be empty and refer to a next one. "Not found" may mean a compartment that the user may not read, and
// never an empty list.
func list[T any](ctx context.Context, a *api, what, path string, query url.Values) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	query.Set("limit", pageLimitOf(path))
	for {
		pages++
		var items page[T]
		header, err := a.call(ctx, "listing "+what, http.MethodGet, path+"?"+query.Encode(), nil, &items, nil)
		if err == nil {
			err = listing.Add(len(items))
		}
		next := header.Get("Opc-Next-Page")
		if err == nil && next != "" {
			err = listing.Turn(next)
		}
		if err != nil {
			return nil, pages, cloudapi.NotAbsence(err)
		}
		all = append(all, items...)
		if next == "" {
			return all, pages, nil
		}
		query.Set("page", next)
	}
}
