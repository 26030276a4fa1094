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
	networkVersion  = "/20200501" // of network load balancers, a service with a host of its own
	networkPaths    = "/networkLoadBalancers"
	balancerPaths   = "/loadBalancers"
	// pageLimit is how many objects a page of a listing may have, balancerLimit how many load balancers: each may name 1,024 backends, 150
	// bytes each, so that 1,000 would be more text than an answer may be.
	pageLimit, balancerLimit = "1000", "100"
	// slowest is the rate that refusals for the cloud's own limit slow calls down to: the cloud seldom says how long to wait.
	slowest = 0.5
)

// api is the part of the cloud's API that is used, in the common vocabulary of errors.
type api struct {
	http   *cloudapi.Client
	config Config
	// location says where the cluster is.
	location func(context.Context) (location, error)
	// nodes are those of the cluster. They say in which compartments instances are, and which addresses matter.
	nodes *nodecount.Counter
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	m := newMetadata(c, in)
	l := &locator{config: c, metadata: m}
	a := &api{config: c, location: l.locate, nodes: &nodecount.Counter{}}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, LimitsOf: c.limits, Repeatable: repeatable,
		Transport: &signer{credential: credentials(c, newIssuer(c, in, m, l.locate)), next: cloudapi.NewTransport(in.Dial)},
	})
	return a, nil
}

// credentials returns the source of credentials that the options select: the key of a user, or the identity of the instance or of a service
// account.
func credentials(c Config, i *issuer) func(context.Context, string) (credential, error) {
	own := newTokens(i.instancePrincipal)
	switch {
	case c.InstancePrincipals:
		return own.credential
	case c.WorkloadIdentity:
		return newTokens(i.exchange(own)).credential
	}
	return userKey(c)
}

// baseURL is the base URL of a service in a region.
func (c *Config) baseURL(region, service string) string {
	switch {
	case c.Endpoint != "":
		return strings.TrimSuffix(c.Endpoint, "/")
	case strings.Contains(region, "."):
		return "https://" + service + "." + region // a region with a dot is a domain
	}
	return "https://" + service + "." + region + "." + c.Domain
}

// isNetwork reports whether a path is one of that service.
func isNetwork(path string) bool {
	return strings.HasPrefix(path, networkPaths) || strings.HasPrefix(path, "/workRequests")
}

// base returns the URL prefix of an API path.
func (c *Config) base(region, path string) string {
	if !isNetwork(path) || c.Endpoint != "" || strings.Contains(region, ".") {
		service := "iaas"
		if isNetwork(path) {
			service = "network-load-balancer-api"
		}
		return c.baseURL(region, service) + versionOf(path)
	}
	return "https://network-load-balancer-api." + region + ".oci." + c.Domain + versionOf(path)
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

// limits hold calls back: reads and writes apart, as the options say. Calls wait; they never fail for it.
func (c *Config) limits(r *http.Request) (string, []cloudapi.Limit) {
	if c.Unlimited {
		return "", nil
	}
	if r.Method == http.MethodGet {
		return "read", []cloudapi.Limit{limit(c.ReadQPS, c.ReadBucket)}
	}
	return "write", []cloudapi.Limit{limit(c.WriteQPS, c.WriteBucket)}
}

// limit is a limit of the options, where 0 means the usual.
func limit(perSecond float64, burst int) cloudapi.Limit {
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

// call makes one call. What names it in errors is what was tried, such as "reading instance ocid1…"; a retry token makes a POST
// repeatable.
func (a *api) call(ctx context.Context, what, method, path string, in, out any, token string) (http.Header, error) {
	var more http.Header
	if token != "" {
		more = http.Header{tokenHeader: {token}}
	}
	return a.send(ctx, what, method, path, in, out, more)
}

// ifMatch is the header of the ETag under which something is written.
const ifMatch = "If-Match"

// send is call with any headers.
func (a *api) send(ctx context.Context, what, method, path string, in, out any, more http.Header) (http.Header, error) {
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
	r, err := http.NewRequestWithContext(ctx, method, a.config.base(where.region, path)+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Accept", "application/json")
	maps.Copy(r.Header, more)
	answer, err := a.http.Do(r)
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	return answer.Header, read(answer, what, out)
}

// versionOf is the version of the API that a path belongs to.
func versionOf(path string) string {
	switch {
	case strings.HasPrefix(path, "/loadBalancer"):
		return balancerVersion
	case isNetwork(path):
		return networkVersion
	}
	return coreVersion
}

// get reads one object.
func (a *api) get(ctx context.Context, what, path string, out any) error {
	_, err := a.call(ctx, "reading "+what, http.MethodGet, path, nil, out, "")
	return err
}

// limitOf returns how many objects a page of a listing may have.
func limitOf(path string) string {
	if path == balancerPaths || path == networkPaths {
		return balancerLimit
	}
	return pageLimit
}

// list reads every page. A page may be empty while another one follows. The cloud states no total, so that a listing is complete where no
// page refers to a next one; "not found" is also what it says of a compartment that the user may not read, and never means an empty list.
func list[T any](ctx context.Context, a *api, what, path string, query url.Values) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	query.Set("limit", limitOf(path))
	for {
		pages++
		var items page[T]
		header, err := a.call(ctx, "listing "+what, http.MethodGet, path+"?"+query.Encode(), nil, &items, "")
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
