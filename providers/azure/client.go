package azure

import (
	"bytes"
	"cmp"
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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Versions of the API, by which Azure decides what answers hold.
const (
	computeVersion = "2025-04-01"
	networkVersion = "2025-01-01"
	// setVersion also shows the network resources of uniform scale sets.
	setVersion   = "2018-10-01"
	zonesVersion = "2021-04-01"
)

// limitsOf keep below the buckets that Azure Resource Manager publishes: reads, writes and deletions apart.
//
// Machines and networks are providers of their own, which refuse calls each for itself, and share the buckets.
func limitsOf(r *http.Request) (group string, limits []cloudapi.Limit) {
	of := "network"
	if strings.Contains(strings.ToLower(r.URL.Path), "/providers/microsoft.compute") {
		of = "compute"
	}
	switch {
	case !strings.Contains(strings.ToLower(r.URL.Path), "/subscriptions/"):
		return "tokens", []cloudapi.Limit{{PerSecond: 5, Burst: 20}}
	case r.Method == http.MethodGet:
		return of + " reads", []cloudapi.Limit{{PerSecond: 10, Burst: 100, Floor: 1}}
	case r.Method == http.MethodDelete:
		return of + " deletes", []cloudapi.Limit{{PerSecond: 4, Burst: 75, Floor: 0.5}}
	}
	return of + " writes", []cloudapi.Limit{{PerSecond: 4, Burst: 75, Floor: 0.5}}
}

// api is the part of Azure's API that is used, in the common vocabulary of errors: raw JSON through the SDK's pipeline.
type api struct {
	http       *cloudapi.Client
	config     Config
	pipeline   runtime.Pipeline
	operations *waiting.Room[string, operation]
	identity   *identity
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	a := &api{config: c}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: strings.TrimSpace(c.UserAgent + " anyccm/" + in.Version),
		Operation: operationOf, LimitsOf: limitsOf, ClassOf: classOfAnswer, Dial: in.Dial,
		Repeatable: repeatable,
	})
	a.identity = &identity{config: c, transport: &authority{http: a.http}}
	a.pipeline = runtime.NewPipeline("anyccm", in.Version, runtime.PipelineOptions{
		PerRetry: []policy.Policy{&bearer{session.Tokens[string]{Fetch: a.identity.fetch, Margin: renewBefore}}},
	}, &policy.ClientOptions{
		Transport: a.http, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true},
	})
	a.operations = waiting.New(waiting.Each(a.operation), waiting.Pace{Least: time.Second, Most: 5 * time.Second})
	return a, nil
}

// repeatable reports whether a call may be sent again. A write under an ETag takes effect once. A creation may take effect late and undo
// what was written meanwhile, so that its result is looked for first.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
		return strings.HasSuffix(r.URL.Path, "/token")
	case http.MethodPut:
		return r.Header.Get("If-Match") != ""
	}
	return true
}

// kinds are the types of resources that calls are about, for the names of operations.
var kinds = []string{
	"loadBalancers", "publicIPAddresses", "publicIPPrefixes", "networkSecurityGroups", "routeTables", "virtualNetworks", "subnets",
	"networkInterfaces", "privateLinkServices", "privateEndpointConnections", "virtualMachines", "virtualMachineScaleSets",
	"operations", "instanceView", "CheckIPAddressAvailability",
}

// operationOf names a request without identifiers, for metrics and logs.
func operationOf(r *http.Request) string {
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/token"), strings.HasPrefix(path, "/metadata/"), strings.Contains(path, "/.well-known/"),
		strings.Contains(path, "/discovery/"):
		return r.Method + " identity"
	case strings.HasSuffix(path, "/providers/Microsoft.Compute"):
		return r.Method + " zones"
	}
	parts, name := strings.Split(strings.Trim(path, "/"), "/"), ""
	for i, part := range parts {
		for _, kind := range kinds {
			if strings.EqualFold(part, kind) {
				name = strings.TrimPrefix(name+"/"+kind, "/")
				if i < len(parts)-1 {
					name += "/{name}"
				}
			}
		}
	}
	if name == "" {
		return r.Method + " " + cloudapi.OtherOperation
	}
	return r.Method + " " + name
}

// call makes one call. What names it in errors is what was tried, such as "reading load balancer web".
func (a *api) call(ctx context.Context, what, method, address string, header http.Header, in, out any) (http.Header, error) {
	r, err := runtime.NewRequest(ctx, method, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	maps.Copy(r.Raw().Header, header)
	r.Raw().Header.Set("Accept", "application/json")
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if err := r.SetBody(streaming.NopCloser(bytes.NewReader(body)), "application/json"); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		r.Raw().GetBody = func() (io.ReadCloser, error) { return streaming.NopCloser(bytes.NewReader(body)), nil }
	}
	answer, err := a.pipeline.Do(r)
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	return answer.Header, read(answer, what, out)
}

// address is the URL of a path.
func (a *api) address(path, version string, query ...string) string {
	values := url.Values{"api-version": {version}}
	for i := 0; i+1 < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	return a.config.cloud.endpoint + path + "?" + values.Encode()
}

// get reads one resource.
func (a *api) get(ctx context.Context, what, path, version string, out any, query ...string) error {
	_, err := a.call(ctx, "reading "+what, http.MethodGet, a.address(path, version, query...), nil, nil, out)
	return err
}

// getAs reads one resource as a struct.
func getAs[T any](ctx context.Context, a *api, what, path, version string) (*T, error) {
	var d doc
	err := a.get(ctx, what, path, version, &d)
	return cmp.Or(parse[T](d), new(T)), err
}

// maxEmptyPages is how many pages of a listing may be empty, as Azure's may be where a filter leaves nothing of them.
const maxEmptyPages = 5

// list reads every page of a listing. It is complete or an error.
func list[T any](ctx context.Context, a *api, what, path, version string, query ...string) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	what = "listing " + what
	broken := func(reason string) error {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: reason}
	}
	first, empty := map[string]bool{}, 0
	for next := a.address(path, version, query...); next != ""; {
		var page struct {
			Value *[]json.RawMessage `json:"value"`
			Next  string             `json:"nextLink"`
		}
		pages++
		if _, err = a.call(ctx, what, http.MethodGet, next, nil, nil, &page); err != nil {
			return nil, pages, notAbsence(err)
		}
		if page.Value == nil {
			return nil, pages, broken("the answer is no listing")
		}
		if err = listing.Add(len(*page.Value)); err != nil {
			return nil, pages, err
		}
		if len(*page.Value) == 0 {
			empty++
		}
		if empty > maxEmptyPages {
			return nil, pages, broken("the listing has no end: its pages are empty")
		}
		for i, text := range *page.Value {
			var item *T
			if json.Unmarshal(text, &item) != nil || item == nil {
				return nil, pages, broken("the listing has an item that is no resource")
			}
			if i == 0 && first[string(text)] {
				return nil, pages, broken("the listing repeats a page")
			}
			first[string(text)] = first[string(text)] || i == 0
			all = append(all, *item)
		}
		if next = page.Next; next != "" {
			if err = a.sameHost(next); err == nil {
				err = listing.Turn(next)
			}
			if err != nil {
				return nil, pages, err
			}
		}
	}
	return all, pages, nil
}

// notAbsence is an error that says of no object that it is absent, and keeps its code.
func notAbsence(err error) error {
	code := codeOf(err)
	err = cloudapi.NotAbsence(err)
	if e, ok := errors.AsType[*cloudapi.Error](err); ok && e.Cause == nil && code != "" {
		e.Cause = armError{code}
	}
	return err
}

// sameHost refuses to follow an answer to another host: the token would go with the request.
func (a *api) sameHost(address string) error {
	if cloudapi.HostOf(address) != cloudapi.HostOf(a.config.cloud.endpoint) {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "following a link", Message: "the answer leads to another host: " + cloudapi.HostOf(address)}
	}
	return nil
}

// operation is the state of an asynchronous operation of Azure.
type operation struct {
	Status string    `json:"status"`
	Error  errorBody `json:"error"`
}

func (o operation) isFinished() bool {
	return strings.EqualFold(o.Status, "Succeeded") || strings.EqualFold(o.Status, "Failed") || strings.EqualFold(o.Status, "Canceled")
}

func (a *api) operation(ctx context.Context, address string) (o operation, err error) {
	_, err = a.call(ctx, "reading the state of an operation", http.MethodGet, address, nil, nil, &o)
	if err == nil && o.Status == "" {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading the state of an operation", Message: "the answer has no status"}
	}
	return o, cloudapi.NotAbsence(err)
}

// finish waits until the operation that an answer names has ended.
func (a *api) finish(ctx context.Context, what string, header http.Header) error {
	address := header.Get("Azure-AsyncOperation")
	if address == "" {
		return nil
	}
	if err := a.sameHost(address); err != nil {
		return err
	}
	o, err := a.operations.Until(ctx, address, what, operation.isFinished)
	if err != nil || strings.EqualFold(o.Status, "Succeeded") {
		return err
	}
	mapped := &cloudapi.Error{
		Class: classOf(o.Error, cloudapi.ErrInvalid), Operation: what, Message: o.Error.text(), Cause: armError{o.Error.Code},
	}
	if o.Error.Code == "" {
		mapped.Class, mapped.Message = cloudapi.ErrTransient, "Azure has given up the operation: "+o.Status
	}
	return mapped
}

// put writes a resource, under its ETag where there is one, and waits for the end of the work.
func (a *api) put(ctx context.Context, what, path, version string, body any, etag string) error {
	wait, err := a.startPut(ctx, what, path, version, body, etag)
	if err != nil {
		return err
	}
	return wait()
}

// startPut writes a resource, under its ETag where there is one. The work that this begins is waited for apart.
func (a *api) startPut(ctx context.Context, what, path, version string, body any, etag string) (wait func() error, err error) {
	what = "writing " + what
	answer, err := a.call(ctx, what, http.MethodPut, a.address(path, version), ifMatch(etag), body, &json.RawMessage{})
	if err != nil {
		return nil, err
	}
	return func() error { return a.finish(ctx, what, answer) }, nil
}

// ifMatch is the header of a write under an ETag, where there is one.
func ifMatch(etag string) http.Header {
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	return header
}

// remove deletes a resource, under its ETag where there is one, and waits for the end of the work. One that is not there is no error.
func (a *api) remove(ctx context.Context, what, path, version, etag string) error {
	what = "deleting " + what
	answer, err := a.call(ctx, what, http.MethodDelete, a.address(path, version), ifMatch(etag), nil, nil)
	if err != nil {
		return err
	}
	return a.finish(ctx, what, answer)
}
