package gce

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/option"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// pageSize is the API's maximum.
const pageSize = 500

// limits stay below the project's quota of 1,500 calls a minute for each group of calls: 300 + 60×20 = 1,500.
var limits = []cloudapi.Limit{{PerSecond: 20, Burst: 300}}

// listLimits stay below 750 listings a minute.
var listLimits = []cloudapi.Limit{{PerSecond: 10, Burst: 150}}

// api makes calls to the Compute API, with the common classes of errors.
type api struct {
	sdk        *compute.Service
	http       *cloudapi.Client
	metadata   *metadata
	locator    *locator
	operations *operations
	stores     *stores
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	client := cloudapi.NewClient(cloudapi.Config{
		Provider:   Name,
		Operation:  operation,
		LimitsOf:   limitsOf,
		ClassOf:    classOf,
		Repeatable: repeatable,
		Dial:       in.Dial,
	})
	m := newMetadata(c, in)
	sdk, err := compute.NewService(context.Background(),
		option.WithHTTPClient(&http.Client{
			Transport:     newTokenTransport(newTokens(c, in, m), cloudapi.HostOf(c.Endpoint), client.Transport),
			CheckRedirect: client.CheckRedirect,
		}),
		option.WithEndpoint(c.Endpoint),
	)
	if err != nil {
		return nil, fmt.Errorf("making the API client: %w", err)
	}
	sdk.UserAgent = "anyccm/" + in.Version
	a := &api{sdk: sdk, http: client, metadata: m}
	a.locator, a.operations, a.stores = &locator{config: c, api: a}, newOperations(a), newStores(a)
	return a, nil
}

// repeatable excludes creations: after a lost response their result is found by name.
func repeatable(r *http.Request) bool {
	return r.Method != http.MethodPost || strings.HasSuffix(r.URL.Path, "/listInstances")
}

// collections are the API's resource types that calls may name.
var collections = []string{
	"instances", "zones", "operations", "networks", "subnetworks", "firewalls", "routes", "addresses", "forwardingRules", "targetPools",
	"httpHealthChecks", "healthChecks", "backendServices", "instanceGroups",
}

// operation names a request without identifiers, such as "GET instances/{name}"; unknown ones are "other", so that metrics stay bounded.
func operation(r *http.Request) string {
	_, path, _ := strings.Cut(r.URL.Path, "/projects/")
	parts := strings.Split(path, "/")[1:]
	prefix := ""
	switch {
	case len(parts) == 0:
		return r.Method + " project"
	case parts[0] == "aggregated":
		prefix, parts = "aggregated/", parts[1:]
	case parts[0] == "global":
		parts = parts[1:]
	case (parts[0] == "regions" || parts[0] == "zones") && len(parts) > 2:
		parts = parts[2:]
	}
	if len(parts) == 0 || !slices.Contains(collections, parts[0]) {
		return r.Method + " " + cloudapi.OtherOperation
	}
	name := prefix + parts[0]
	if len(parts) > 1 {
		name += "/{name}"
	}
	if len(parts) > 2 {
		name += "/" + parts[2]
	}
	return r.Method + " " + name
}

// limitsOf groups calls by quota.
func limitsOf(r *http.Request) (group string, l []cloudapi.Limit) {
	name := operation(r)
	switch {
	case strings.Contains(name, "operations"):
		return "operations", limits
	case r.Method != http.MethodGet && !strings.HasSuffix(name, "/listInstances"):
		return "mutations", limits
	case strings.Contains(name, "{name}"):
		return "gets", limits
	}
	return "lists", listLimits
}
