package gce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const (
	indexIP    = "ip"
	indexCheck = "check"
)

// store is the shared view of a collection, by name.
type store[T any] = inventory.Inventory[string, T]

// stores are the collections of objects that make up load balancers.
type stores struct {
	rules     *store[*compute.ForwardingRule]
	pools     *store[*compute.TargetPool]
	checks    *store[*compute.HttpHealthCheck]
	firewalls *store[*compute.Firewall]
	addresses *store[*compute.Address]
	// Internal load balancers only.
	backends   *store[*compute.BackendService]
	nodeChecks *store[*compute.HealthCheck]
	groups     *inventory.Inventory[groupID, *group]
}

// page is one page of a listing.
type page[T any] struct {
	items         []T
	next          string
	kind, warning string
}

// newPage takes the warning of any listing: the SDK has a type for each.
func newPage[T any](items []T, next, kind string, warning any) page[T] {
	var w struct{ Code string }
	text, _ := json.Marshal(warning) // it came from JSON
	_ = json.Unmarshal(text, &w)     // likewise
	return page[T]{items: items, next: next, kind: kind, warning: w.Code}
}

// listCall and getCall are the common methods of the SDK's calls.
type (
	listCall[C, L any] interface {
		MaxResults(most int64) C
		PageToken(token string) C
		Context(ctx context.Context) C
		Do(options ...googleapi.CallOption) (L, error)
	}
	getCall[C, T any] interface {
		Context(ctx context.Context) C
		Do(options ...googleapi.CallOption) (T, error)
	}
)

// collection describes how the objects of one kind are read.
type collection[T, L any, LC listCall[LC, L], GC getCall[GC, T]] struct {
	// one and many are for messages; kind identifies a page's content.
	one, many, kind string
	list            func(at place) LC
	page            func(L) page[T]
	get             func(at place, name string) GC
	name            func(T) string
	// perPage is the page size, by default pageSize. A smaller one also raises the limit of a listing's size.
	perPage int64
	// keep replaces an object before it is stored, to share equal content.
	keep func(T) T
	// indexes are those besides the names.
	indexes map[string]func(T) []string
}

func newStore[T, L any, LC listCall[LC, L], GC getCall[GC, T]](a *api, c collection[T, L, LC, GC]) *store[T] {
	indexes := map[string]func(T) []string{indexName: func(v T) []string { return []string{c.name(v)} }}
	maps.Copy(indexes, c.indexes)
	return inventory.New(inventory.Source[string, T]{
		Kind: c.one, ID: c.name, Indexes: indexes, Keep: c.keep,
		List: func(ctx context.Context) ([]T, int, error) { return listAll(ctx, a, c) },
		Get:  func(ctx context.Context, name string) (T, error) { return readOne(ctx, a, c, name) },
	})
}

// listAll reads all pages of a collection. It fails if a page is incomplete.
func listAll[T, L any, LC listCall[LC, L], GC getCall[GC, T]](
	ctx context.Context, a *api, c collection[T, L, LC, GC],
) (all []T, pages int, err error) {
	at, err := a.places.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	watch := cloudapi.WatchListing
	if c.perPage != 0 {
		watch = cloudapi.WatchLargeListing
	}
	ctx, listing := watch(ctx)
	for token := ""; ; {
		pages++
		p, err := onePage(ctx, at, c, token)
		if err == nil {
			err = listing.Add(len(p.items))
		}
		if err != nil {
			return nil, pages, apiError(err, "listing "+c.many)
		}
		for _, v := range p.items {
			if c.keep != nil { // share equal content early, to save memory
				v = c.keep(v)
			}
			all = append(all, v)
		}
		if token = p.next; token == "" {
			return all, pages, nil
		}
		if err := listing.Turn(token); err != nil {
			return nil, pages, err
		}
	}
}

func onePage[T, L any, LC listCall[LC, L], GC getCall[GC, T]](
	ctx context.Context, at place, c collection[T, L, LC, GC], token string,
) (p page[T], err error) {
	call := c.list(at).MaxResults(cmp.Or(c.perPage, pageSize)).Context(ctx)
	if token != "" {
		call = call.PageToken(token)
	}
	l, err := call.Do()
	if err != nil {
		return p, err //nolint:wrapcheck // named by listAll
	}
	p = c.page(l)
	switch {
	case p.kind != c.kind:
		return p, errWrongAnswer
	case p.warning != "" && p.warning != noResults:
		return p, &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "a partial listing: " + p.warning}
	}
	return p, nil
}

// readOne reads one object, and fails if the response holds another one.
func readOne[T, L any, LC listCall[LC, L], GC getCall[GC, T]](
	ctx context.Context, a *api, c collection[T, L, LC, GC], name string,
) (v T, err error) {
	var none T
	at, err := a.places.get(ctx)
	if err != nil {
		return none, err
	}
	v, err = c.get(at, name).Context(ctx).Do()
	if err == nil && c.name(v) != name {
		err = errWrongAnswer
	}
	if err != nil {
		return none, apiError(err, "reading "+c.one+" "+name)
	}
	return v, nil
}

func newStores(a *api) *stores {
	return &stores{
		rules: newRules(a), pools: newPools(a), checks: newChecks(a), firewalls: newFirewalls(a), addresses: newAddresses(a),
		backends: newBackends(a), nodeChecks: newNodeChecks(a), groups: newGroups(a),
	}
}

func newRules(a *api) *store[*compute.ForwardingRule] {
	return newStore(a, collection[
		*compute.ForwardingRule, *compute.ForwardingRuleList, *compute.ForwardingRulesListCall, *compute.ForwardingRulesGetCall,
	]{
		one: "forwarding rule", many: "forwarding rules", kind: "compute#forwardingRuleList",
		list: func(at place) *compute.ForwardingRulesListCall {
			return a.sdk.ForwardingRules.List(at.project, at.region)
		},
		get: func(at place, name string) *compute.ForwardingRulesGetCall {
			return a.sdk.ForwardingRules.Get(at.project, at.region, name)
		},
		page: func(l *compute.ForwardingRuleList) page[*compute.ForwardingRule] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name: func(v *compute.ForwardingRule) string { return v.Name },
		indexes: map[string]func(*compute.ForwardingRule) []string{
			indexIP: func(v *compute.ForwardingRule) []string { return []string{v.IPAddress} },
		},
	})
}

// poolsPerPage is the page size for target pools. Each lists up to 1,000 instances of 130 bytes, so that 500 would exceed the limit of a
// response.
const poolsPerPage = 100

// keepPool stores equal lists of instances, including their order, once.
func keepPool() func(*compute.TargetPool) *compute.TargetPool {
	lists := inventory.NewLists[string]()
	return func(v *compute.TargetPool) *compute.TargetPool {
		kept := *v
		kept.Instances = lists.Same(slices.Sorted(slices.Values(v.Instances)))
		return &kept
	}
}

func newPools(a *api) *store[*compute.TargetPool] {
	return newStore(a, collection[
		*compute.TargetPool, *compute.TargetPoolList, *compute.TargetPoolsListCall, *compute.TargetPoolsGetCall,
	]{
		one: "target pool", many: "target pools", kind: "compute#targetPoolList",
		list: func(at place) *compute.TargetPoolsListCall { return a.sdk.TargetPools.List(at.project, at.region) },
		get: func(at place, name string) *compute.TargetPoolsGetCall {
			return a.sdk.TargetPools.Get(at.project, at.region, name)
		},
		page: func(l *compute.TargetPoolList) page[*compute.TargetPool] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name:    func(v *compute.TargetPool) string { return v.Name },
		perPage: poolsPerPage, keep: keepPool(),
		indexes: map[string]func(*compute.TargetPool) []string{
			indexCheck: func(v *compute.TargetPool) []string { return lastParts(v.HealthChecks) },
		},
	})
}

func newChecks(a *api) *store[*compute.HttpHealthCheck] {
	return newStore(a, collection[
		*compute.HttpHealthCheck, *compute.HttpHealthCheckList, *compute.HttpHealthChecksListCall, *compute.HttpHealthChecksGetCall,
	]{
		one: "HTTP health check", many: "HTTP health checks", kind: "compute#httpHealthCheckList",
		list: func(at place) *compute.HttpHealthChecksListCall { return a.sdk.HttpHealthChecks.List(at.project) },
		get: func(at place, name string) *compute.HttpHealthChecksGetCall {
			return a.sdk.HttpHealthChecks.Get(at.project, name)
		},
		page: func(l *compute.HttpHealthCheckList) page[*compute.HttpHealthCheck] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name: func(v *compute.HttpHealthCheck) string { return v.Name },
	})
}

func newFirewalls(a *api) *store[*compute.Firewall] {
	return newStore(a, collection[
		*compute.Firewall, *compute.FirewallList, *compute.FirewallsListCall, *compute.FirewallsGetCall,
	]{
		one: "firewall rule", many: "firewall rules", kind: "compute#firewallList",
		list: func(at place) *compute.FirewallsListCall { return a.sdk.Firewalls.List(at.networkProject) },
		get: func(at place, name string) *compute.FirewallsGetCall {
			return a.sdk.Firewalls.Get(at.networkProject, name)
		},
		page: func(l *compute.FirewallList) page[*compute.Firewall] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name: func(v *compute.Firewall) string { return v.Name },
	})
}

func newAddresses(a *api) *store[*compute.Address] {
	return newStore(a, collection[
		*compute.Address, *compute.AddressList, *compute.AddressesListCall, *compute.AddressesGetCall,
	]{
		one: "address", many: "addresses", kind: "compute#addressList",
		list: func(at place) *compute.AddressesListCall { return a.sdk.Addresses.List(at.project, at.region) },
		get: func(at place, name string) *compute.AddressesGetCall {
			return a.sdk.Addresses.Get(at.project, at.region, name)
		},
		page: func(l *compute.AddressList) page[*compute.Address] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name:    func(v *compute.Address) string { return v.Name },
		indexes: map[string]func(*compute.Address) []string{indexIP: func(v *compute.Address) []string { return []string{v.Address} }},
	})
}

func lastParts(links []string) []string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = lastPart(l)
	}
	return names
}

// find returns the object of this name, or the zero value if it is proved to be missing.
func find[T any](ctx context.Context, s *store[T], name string, q inventory.Query) (v T, err error) {
	found, err := s.Find(ctx, indexName, name, q)
	if err != nil || len(found) == 0 {
		return v, err
	}
	return found[0], nil
}

// putOne creates or changes an object, and returns the result. After a failure the object is in doubt, because the call may have taken
// effect.
func putOne[T any](
	ctx context.Context, a *api, s *store[T], like T, path, what string, make func(request string) (*compute.Operation, error),
) (v T, err error) {
	err = a.change(ctx, path, what, make)
	s.Put(like)
	if err != nil {
		s.Doubt(lastPart(path))
		return v, err
	}
	s.Invalidate(lastPart(path))
	return s.Get(ctx, lastPart(path), inventory.Query{})
}

// deleteOne deletes an object; a missing one counts as deleted.
func deleteOne[T any](
	ctx context.Context, a *api, s *store[T], path, what string, make func(request string) (*compute.Operation, error),
) error {
	name := lastPart(path)
	err := a.change(ctx, path, what, make)
	if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
		s.Forget(name)
		return nil
	}
	s.Doubt(name)
	return err
}
